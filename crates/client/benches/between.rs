//! Compares servers, for example builds of two versions. The same client has blocks of reads,
//! writes and chains (open, read, close) served by each server in turn, for a few milliseconds at a
//! time, so that a slow phase of the machine affects all of them. Prints the median block of each
//! way, and its ratio to the first server's.
//!
//! `--only` selects ways, such as "write x32"; `--blocks` sets the number of blocks of each;
//! `--bytes` sets the size of one transfer (4096).
//!
//! ```text
//! cargo run --release -p dafs-client --example between -- \
//!     [--blocks N] [--only WAY] [--bytes N] URL URL
//! ```
//!
//! Each URL is a directory of a server, such as `dafs+shm:///run/dafs/2050.sock!/`; a file of 32
//! MiB is created there.

use std::time::Instant;

use dafs_client::{
    Buffer, Client, ClientConfig, File, Group, Location, OpenOptions, Session, SessionOptions,
    Stability,
};
use dafs_types::Random;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BYTES: usize = 4096;
const FILE_BYTES: usize = 32 << 20;
const DEPTH: usize = 32;
/// The number of bytes moved in one block, and the smallest number of rounds in one.
const BLOCK_BYTES: usize = 4 << 20;
const ROUNDS_MIN: usize = 64;
const BLOCKS: usize = 300;
const WAYS: [&str; 5] = ["read x1", "read x32", "write x1", "write x32", "chain x1"];

fn main() -> Outcome<()> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let blocks = option(&mut urls, "--blocks")?.map_or(Ok(BLOCKS), |number| number.parse())?;
    let bytes = option(&mut urls, "--bytes")?.map_or(Ok(BYTES), |number| number.parse())?;
    let rounds = (BLOCK_BYTES / bytes).max(ROUNDS_MIN);
    let only = option(&mut urls, "--only")?.unwrap_or_default();
    let ways: Vec<usize> = (0..WAYS.len()).filter(|way| WAYS[*way].contains(&only)).collect();
    if !(1..=FILE_BYTES).contains(&bytes) {
        return Err(format!("--bytes wants 1 to {FILE_BYTES}").into());
    }
    if urls.len() < 2 {
        return Err("two URLs of servers are wanted, at least".into());
    }
    let client = Client::new(ClientConfig::default())?;
    let peers =
        urls.iter().map(|url| Peer::new(&client, url, bytes)).collect::<Outcome<Vec<_>>>()?;
    let mut times = vec![[const { Vec::new() }; WAYS.len()]; peers.len()];
    let mut dice = Random::new(1);
    for block in 0..blocks {
        for &way in &ways {
            for turn in 0..peers.len() {
                let index = (turn + block) % peers.len();
                peers[index].round(&client, way, &mut dice, rounds / 8)?;
                let start = Instant::now();
                peers[index].round(&client, way, &mut dice, rounds)?;
                times[index][way].push(start.elapsed().as_nanos() as f64 / rounds as f64);
            }
        }
    }
    for way in ways {
        let (name, mut first) = (WAYS[way], f64::NAN);
        for (url, times) in urls.iter().zip(&mut times) {
            times[way].sort_by(f64::total_cmp);
            let [tenth, half] = [10, 2].map(|part| times[way][times[way].len() / part]);
            first = if first.is_nan() { half } else { first };
            println!("{name:10} {half:8.0} ns, a tenth {tenth:8.0}  {:5.3} x  {url}", half / first);
        }
    }
    Ok(())
}

/// Removes an option and its value from the arguments and returns the value.
fn option(words: &mut Vec<String>, name: &str) -> Outcome<Option<String>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let value = words.get(at + 1).cloned().ok_or_else(|| format!("{name} wants a value"))?;
    words.drain(at..at + 2);
    Ok(Some(value))
}

struct Peer {
    session: Session,
    file: File,
    buffer: Buffer,
    bytes: usize,
}

impl Peer {
    fn new(client: &Client, url: &str, bytes: usize) -> Outcome<Self> {
        let session = client.connect(&Location::parse(url)?, &SessionOptions::default())?;
        let file = session.open("/between", &OpenOptions::write())?;
        let buffer = client.allocate(DEPTH * bytes)?;
        for at in (0..FILE_BYTES).step_by(bytes) {
            file.write_from(at as u64, buffer.slice(0, bytes)?)?;
        }
        file.commit()?;
        Ok(Self { session, file, buffer, bytes })
    }

    fn round(&self, client: &Client, way: usize, dice: &mut Random, rounds: usize) -> Outcome<()> {
        let bytes = self.bytes;
        let slice = |index: usize| self.buffer.slice(index * bytes, bytes);
        let mut place = || (dice.below(FILE_BYTES / bytes) * bytes) as u64;
        if way.is_multiple_of(2) {
            for _ in 0..rounds {
                match way {
                    0 => self.file.read_into(place(), slice(0)?)?,
                    2 => self.file.write_from(place(), slice(0)?)?,
                    _ => self.session.read_file_once("/between", slice(0)?)?,
                };
            }
            return Ok(());
        }
        let group = Group::DEFAULT;
        let submit = |place, index| match way {
            1 => self.session.submit_read(&self.file, place, slice(index)?, group, 0),
            _ => {
                let stability = Stability::Unstable;
                self.session.submit_write(&self.file, place, slice(index)?, stability, group, 0)
            }
        };
        for index in 0..DEPTH {
            submit(place(), index)?;
        }
        let (mut begun, mut ended) = (DEPTH, 0);
        while ended < rounds {
            client.wait(group, 1, None);
            while let Some(done) = client.next(group) {
                done.result?;
                ended += 1;
                if begun < rounds {
                    submit(place(), begun % DEPTH)?;
                    begun += 1;
                }
            }
        }
        Ok(())
    }
}
