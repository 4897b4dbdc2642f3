//! What registrations of the application's own memory cost over an RDMA device: reads into a few
//! buffers that are used again and again, with each buffer registered for each read, with a cache
//! of registrations, by a copy out of the client's own memory, and into buffers that are
//! registered for good. For each size the time that a tenth of the blocks stay below and that
//! half do, and how the ways stand to registering each time.
//!
//! ```text
//! DAFS_VERBS_ADDRESS=10.90.0.1 cargo run --release -p dafs-client --example registration_cost -- \
//!     [--blocks N] [--octets N] [--spin-us N]
//! ```
//!
//! The server is the example's own, on that address of a device, and keeps all in its cache.

mod common;

use std::time::{Duration, Instant};

use common::{Outcome, Served, config};
use dafs_client::{
    Buffer, CacheLimits, Client, ClientConfig, File, OpenOptions, OwnMemory, SessionOptions,
    TrustedPeers,
};

const BUFFERS: usize = 16;
const BLOCKS: usize = 40;
/// Reads in one block: each buffer a few times.
const ROUNDS: usize = 4 * BUFFERS;
const SIZES: [usize; 4] = [32 << 10, 128 << 10, 512 << 10, 2 << 20];
const WAYS: [&str; 4] = ["registered each time", "cached", "copied", "registered for good"];

/// One way to read.
struct Way {
    client: Client,
    file: File,
    /// Registered for good; read into, if there are any.
    buffers: Vec<Buffer>,
    times: Vec<f64>,
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let blocks = option(&words, "--blocks")?.unwrap_or(BLOCKS).max(1);
    let sizes = option(&words, "--octets")?.map_or(SIZES.to_vec(), |octets| vec![octets]);
    let place = tempfile::tempdir()?;
    let mut config = config(place.path(), "verbs")?;
    if let Some(spin) = option(&words, "--spin-us")? {
        config.wait.spin_max = Duration::from_micros(spin as u64);
    }
    let served = Served::start(place.path(), &config)?;
    // SAFETY: the only server is this program's own, which uses what it is told of for the
    // request that tells it.
    let trusted = unsafe { TrustedPeers::new() };
    let cached = OwnMemory::Cached(CacheLimits::default(), trusted);
    for octets in sizes {
        let mut ways = Vec::new();
        for own_memory in [OwnMemory::Registered, cached, OwnMemory::Copied, OwnMemory::Copied] {
            ways.push(Way::new(&served, ClientConfig { wait: config.wait, own_memory }, octets)?);
        }
        ways[3].register(octets)?;
        let mut buffers = vec![vec![0_u8; octets]; BUFFERS];
        for block in 0..blocks + 1 {
            for turn in 0..ways.len() {
                let way = &mut ways[(block + turn) % WAYS.len()];
                let start = Instant::now();
                for round in 0..ROUNDS {
                    let index = round % BUFFERS;
                    let place = (index * octets) as u64;
                    let read = match way.buffers.get(index) {
                        Some(buffer) => {
                            way.file.read_into(place, buffer.slice(0, octets)?)?.length as usize
                        }
                        None => way.file.read_at(&mut buffers[index], place)?,
                    };
                    assert_eq!(read, octets);
                }
                // The first finds nothing registered.
                if block > 0 {
                    way.times.push(start.elapsed().as_micros() as f64 / ROUNDS as f64);
                }
                for (index, buffer) in buffers.iter_mut().enumerate() {
                    if let Some(registered) = way.buffers.get(index) {
                        registered.read(0, buffer);
                    }
                    assert!(buffer.iter().all(|octet| *octet == index as u8 + 1));
                    buffer.fill(0);
                }
            }
        }
        report(octets, &mut ways);
    }
    Ok(())
}

fn report(octets: usize, ways: &mut [Way]) {
    let mut first = [f64::NAN; 2];
    for (way, name) in ways.iter_mut().zip(WAYS) {
        way.times.sort_by(f64::total_cmp);
        let times = [10, 2].map(|part| way.times[way.times.len() / part]);
        first = if first[0].is_nan() { times } else { first };
        let [tenth, half] = [0, 1].map(|at| {
            let (time, faster) = (times[at], first[at] / times[at]);
            format!("{time:9.1} us, {faster:5.2} x as fast")
        });
        println!("{:5} KiB  {name:20} a tenth {tenth}; half {half}", octets >> 10);
    }
    let counters = ways[1].client.own_memory_counters();
    println!("           {counters:?}");
}

impl Way {
    fn new(served: &Served, config: ClientConfig, octets: usize) -> Outcome<Self> {
        let client = Client::new(config)?;
        let session = client.connect_to(&served.address, &SessionOptions::default())?;
        let file = session.open("/registered", &OpenOptions::write())?;
        for index in 0..BUFFERS {
            file.write_at(&vec![index as u8 + 1; octets], (index * octets) as u64)?;
        }
        Ok(Self { client, file, buffers: Vec::new(), times: Vec::new() })
    }

    fn register(&mut self, octets: usize) -> Outcome<()> {
        for _ in 0..BUFFERS {
            self.buffers.push(self.client.register(vec![0; octets].into())?);
        }
        Ok(())
    }
}

/// The number behind an option.
fn option(words: &[String], name: &str) -> Outcome<Option<usize>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let word = words.get(at + 1).ok_or_else(|| format!("{name} wants a number"))?;
    Ok(Some(word.parse()?))
}
