//! Measures a cached read at a random position on the server's host, in four ways: by local
//! `pread`; under a read delegation, by descriptor and from a mapping; and from the server over
//! shared memory. The ways take turns of some milliseconds, so that a slow phase of the machine
//! affects all of them. Prints the median block of each way, and its ratio to local `pread`.
//!
//! ```text
//! cargo run --release -p dafs-client --example direct_reads -- \
//!     [--blocks N] [--bytes N] [--file-bytes N] [--directory DIR]
//! ```
//!
//! The server is a thread of this process, and serves its own directory beneath `--directory` (by
//! default that for temporary files).

mod common;

use std::fs::File as SystemFile;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use dafs_client::{Client, ClientConfig, File, OpenOptions, Session, SessionOptions};
use dafs_dat::Address;
use dafs_types::Random;

use self::common::{Outcome, Served};

const WAYS: [&str; 4] = ["local pread", "descriptor", "mapping", "asking"];
const BYTES: usize = 4096;
const FILE_BYTES: usize = 64 << 20;
const BLOCKS: usize = 200;
/// The number of reads in one block.
const ROUNDS: usize = 2000;

fn main() -> Outcome<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let blocks = number(&mut words, "--blocks")?.unwrap_or(BLOCKS).max(1);
    let bytes = number(&mut words, "--bytes")?.unwrap_or(BYTES).max(1);
    let file_bytes = number(&mut words, "--file-bytes")?.unwrap_or(FILE_BYTES).max(bytes);
    let place = option(&mut words, "--directory")?.map_or_else(std::env::temp_dir, Into::into);
    if let Some(word) = words.first() {
        return Err(format!("{word:?} is not understood").into());
    }
    let scratch = tempfile::tempdir_in(place)?;
    let mut config = common::config(scratch.path(), "shm")?;
    config.cache.arena_bytes = (4 * file_bytes).max(64 << 20);
    let served = Served::start(scratch.path(), &config)?;
    let path = scratch.path().join("export/file");
    std::fs::write(&path, Random::new(7).bytes(file_bytes))?;
    measure(&served.address, &SystemFile::open(path)?, (blocks, bytes, file_bytes))
}

fn measure(
    address: &Address,
    local: &SystemFile,
    (blocks, block_bytes, file_bytes): (usize, usize, usize),
) -> Outcome<()> {
    let client = Client::new(ClientConfig::default())?;
    let options = SessionOptions::default().delegations(true);
    let session = client.connect_to(address, &options)?;
    let direct = opened(&session)?;
    let mapping = direct.map();
    if !mapping.is_mapped() {
        return Err("the server does not hand the file over".into());
    }
    let session = client.connect_to(address, &SessionOptions::default())?;
    let asking = session.open("file", &OpenOptions::read())?;
    let mut bytes = vec![0; block_bytes];
    let mut dice = Random::new(1);
    let places = (file_bytes / block_bytes).max(1);
    let mut times = [const { Vec::new() }; WAYS.len()];
    let mut sum = 0u64;
    for block in 0..=blocks {
        for turn in 0..WAYS.len() {
            let way = (turn + block) % WAYS.len();
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                let offset = (dice.below(places) * block_bytes) as u64;
                let read = match way {
                    0 => local.read_at(&mut bytes, offset)?,
                    1 => direct.read_at(&mut bytes, offset)?,
                    2 => mapping.read_at(&mut bytes, offset)?,
                    _ => asking.read_at(&mut bytes, offset)?,
                };
                sum += read as u64 + u64::from(bytes[0]);
            }
            // The first block only warms the caches.
            if block > 0 {
                times[way].push(begun.elapsed().as_nanos() as f64 / ROUNDS as f64);
            }
        }
    }
    println!("{block_bytes} bytes at random in {file_bytes}, cached; checksum {sum:#x}");
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let first = times[0][times[0].len() / 2];
    for (way, times) in WAYS.iter().zip(&times) {
        let [tenth, half] = [10, 2].map(|part| times[times.len() / part]);
        println!("{way:12} {half:8.0} ns, a tenth {tenth:8.0}  {:5.2} x", half / first);
    }
    Ok(())
}

/// Opens the file repeatedly until this process has a descriptor of it.
fn opened(session: &Session) -> Outcome<File> {
    for _ in 0..1000 {
        let file = session.open("file", &OpenOptions::read())?;
        if file.map().is_mapped() {
            return Ok(file);
        }
        file.close()?;
    }
    Err("the server gives no delegation".into())
}

fn number(words: &mut Vec<String>, name: &str) -> Outcome<Option<usize>> {
    Ok(option(words, name)?.map(|word| word.parse()).transpose()?)
}

/// Removes an option and its value from the arguments and returns the value.
fn option(words: &mut Vec<String>, name: &str) -> Outcome<Option<String>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let value = words.get(at + 1).cloned().ok_or_else(|| format!("{name} wants a value"))?;
    words.drain(at..at + 2);
    Ok(Some(value))
}
