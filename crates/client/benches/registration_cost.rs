//! Measures the cost of registering the application's own memory with an RDMA device. It reads into
//! a few buffers that are used again and again, in four ways: registering each buffer for each
//! read, with a cache of registrations, by a copy from the client's memory, and into buffers that
//! stay registered. For each size it prints the first decile and the median of a read's time, and
//! the ratio to registering each time.
//!
//! ```text
//! DAFS_VERBS_ADDRESS=10.90.0.1 cargo run --release -p dafs-client --example registration_cost -- \
//!     [--blocks N] [--bytes N] [--spin-us N] [--readers N]
//! cargo run --release -p dafs-client --example registration_cost -- --server dafs+verbs://HOST
//! ```
//!
//! The server runs in this process, at that address of a device, and keeps all data in its cache.
//! With `--server`, another server is used, and a file `registered` is created there. Readers are
//! threads with their own sessions that read at the same time; the default is one. With enough
//! readers to keep the processor busy, the figures show its work instead of its waiting.

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Outcome, Served, config};
use dafs_client::{
    Buffer, CacheLimits, Client, ClientConfig, File, Location, OpenOptions, OwnMemory,
    SessionOptions, TrustedPeers,
};

/// Few, so that the data stays in the caches of the processor and the emulator.
const BUFFERS: usize = 4;
const BLOCKS: usize = 40;
/// The number of reads in one block of a reader: each buffer a few times.
const ROUNDS: usize = 16 * BUFFERS;
const SIZES: [usize; 4] = [32 << 10, 128 << 10, 512 << 10, 2 << 20];
const WAYS: [&str; 4] = ["registered each time", "cached", "copied", "registered for good"];

/// One way of reading.
struct Way {
    readers: Vec<Reader>,
    times: Vec<f64>,
}

/// A thread that reads a block on the first command, checks its buffers on the second, reports
/// after each, and ends when the channel is closed.
struct Reader {
    tell: Sender<()>,
    done: Receiver<()>,
    thread: JoinHandle<String>,
}

/// The state of a reader.
struct Reading {
    client: Client,
    file: File,
    buffers: Vec<Vec<u8>>,
    /// Buffers that stay registered; if there are any, they are read into.
    registered: Vec<Buffer>,
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let blocks = option(&words, "--blocks")?.unwrap_or(BLOCKS).max(1);
    let readers = option(&words, "--readers")?.unwrap_or(1).max(1);
    let sizes = option(&words, "--bytes")?.map_or(SIZES.to_vec(), |bytes| vec![bytes]);
    let mut client = ClientConfig::default();
    if let Some(spin) = option(&words, "--spin-us")? {
        client.wait.spin_max = Duration::from_micros(spin as u64);
    }
    let place = tempfile::tempdir()?;
    let served;
    let url = match words.iter().position(|word| word == "--server") {
        Some(at) => words.get(at + 1).ok_or("--server wants a URL")?.clone(),
        None => {
            served = Served::start(place.path(), &config(place.path(), "verbs")?)?;
            format!("dafs+{}", served.address).replacen(':', "://", 1)
        }
    };
    for bytes in sizes {
        let mut ways = Vec::new();
        for (way, own_memory) in ways_of_memory().into_iter().enumerate() {
            let config = client.own_memory(own_memory);
            let is_for_good = way == WAYS.len() - 1;
            let start = || Reader::start(url.clone(), config, bytes, is_for_good);
            let readers = (0..readers).map(|_| start()).collect();
            ways.push(Way { readers, times: Vec::new() });
        }
        for block in 0..blocks + 1 {
            for turn in 0..ways.len() {
                let way = &mut ways[(block + turn) % WAYS.len()];
                let time = way.read_block()?;
                // In the first block nothing is registered yet.
                if block > 0 {
                    way.times.push(time);
                }
            }
        }
        report(bytes, ways)?;
    }
    Ok(())
}

fn ways_of_memory() -> [OwnMemory; WAYS.len()] {
    // SAFETY: the only server is this project's, which uses registered memory only for the request
    // that names it.
    let trusted = unsafe { TrustedPeers::new() };
    let cached = OwnMemory::Cached(CacheLimits::default(), trusted);
    [OwnMemory::Registered, cached, OwnMemory::Copied, OwnMemory::Copied]
}

fn report(bytes: usize, mut ways: Vec<Way>) -> Outcome<()> {
    let mut first = [f64::NAN; 2];
    for (way, name) in ways.iter_mut().zip(WAYS) {
        way.times.sort_by(f64::total_cmp);
        let times = [10, 2].map(|part| way.times[way.times.len() / part]);
        first = if first[0].is_nan() { times } else { first };
        let [tenth, half] = [0, 1].map(|at| {
            let (time, faster) = (times[at], first[at] / times[at]);
            format!("{time:9.1} us, {faster:5.2} x as fast")
        });
        println!("{:5} KiB  {name:20} a tenth {tenth}; half {half}", bytes >> 10);
    }
    for (way, name) in ways.into_iter().zip(WAYS) {
        for Reader { tell, thread, .. } in way.readers {
            drop(tell);
            let counters = thread.join().map_err(|_| "a reader has panicked")?;
            if name == "cached" {
                println!("           {counters}");
            }
        }
    }
    Ok(())
}

impl Way {
    /// Returns the microseconds per read of one block, over all readers together.
    fn read_block(&self) -> Outcome<f64> {
        let start = Instant::now();
        self.step()?;
        let time = start.elapsed().as_micros() as f64;
        self.step()?;
        Ok(time / (ROUNDS * self.readers.len()) as f64)
    }

    fn step(&self) -> Outcome<()> {
        for reader in &self.readers {
            reader.tell.send(())?;
        }
        for reader in &self.readers {
            reader.done.recv()?;
        }
        Ok(())
    }
}

impl Reader {
    fn start(url: String, config: ClientConfig, bytes: usize, is_for_good: bool) -> Self {
        let (tell, told) = channel();
        let (is_done, done) = channel();
        let thread = std::thread::spawn(move || {
            let mut reading = Reading::new(&url, config, bytes, is_for_good).expect("a session");
            while told.recv().is_ok() {
                reading.read_block(bytes).expect("reads");
                is_done.send(()).expect("somebody who waits");
                told.recv().expect("somebody who has waited");
                reading.verify();
                is_done.send(()).expect("somebody who waits");
            }
            format!("{:?}", reading.client.own_memory_counters())
        });
        Self { tell, done, thread }
    }
}

impl Reading {
    fn new(url: &str, config: ClientConfig, bytes: usize, is_for_good: bool) -> Outcome<Self> {
        let client = Client::new(config)?;
        let session = client.connect(&Location::parse(url)?, &SessionOptions::default())?;
        let file = session.open("/registered", &OpenOptions::write())?;
        for index in 0..BUFFERS {
            file.write_at(&vec![index as u8 + 1; bytes], (index * bytes) as u64)?;
        }
        let registered = if is_for_good { BUFFERS } else { 0 };
        let registered = (0..registered).map(|_| client.register(vec![0; bytes].into()));
        let registered = registered.collect::<Result<_, _>>()?;
        Ok(Self { client, file, buffers: vec![vec![0; bytes]; BUFFERS], registered })
    }

    fn read_block(&mut self, bytes: usize) -> Outcome<()> {
        for round in 0..ROUNDS {
            let index = round % BUFFERS;
            let place = (index * bytes) as u64;
            let read = match self.registered.get(index) {
                Some(buffer) => {
                    self.file.read_into(place, buffer.slice(0, bytes)?)?.length as usize
                }
                None => self.file.read_at(&mut self.buffers[index], place)?,
            };
            if read != bytes {
                return Err(format!("{read} bytes were read of {bytes}").into());
            }
        }
        Ok(())
    }

    /// Checks that everything was read, and clears the buffers for the next block.
    fn verify(&mut self) {
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            if let Some(registered) = self.registered.get(index) {
                registered.read(0, buffer);
                registered.write(0, &vec![0; buffer.len()]);
            }
            assert!(buffer.iter().all(|byte| *byte == index as u8 + 1));
            buffer.fill(0);
        }
    }
}

/// Returns the number after an option.
fn option(words: &[String], name: &str) -> Outcome<Option<usize>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let word = words.get(at + 1).ok_or_else(|| format!("{name} wants a number"))?;
    Ok(Some(word.parse()?))
}
