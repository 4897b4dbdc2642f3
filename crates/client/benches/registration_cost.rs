//! What registrations of the application's own memory cost over an RDMA device: reads into a few
//! buffers that are used again and again, with each buffer registered for each read, with a cache
//! of registrations, by a copy out of the client's own memory, and into buffers that are
//! registered for good. For each size the time of a read that a tenth of the blocks stay below and
//! that half do, and how the ways stand to registering each time.
//!
//! ```text
//! DAFS_VERBS_ADDRESS=10.90.0.1 cargo run --release -p dafs-client --example registration_cost -- \
//!     [--blocks N] [--bytes N] [--spin-us N] [--readers N]
//! cargo run --release -p dafs-client --example registration_cost -- --server dafs+verbs://HOST
//! ```
//!
//! The server is the example's own, on that address of a device, and keeps all in its cache; or
//! another one, where a file `registered` is made. Readers are threads with a session of their own,
//! by default one, that read at once: as many as keep the processor busy show what it does, and
//! not what it waits for.

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Outcome, Served, config};
use dafs_client::{
    Buffer, CacheLimits, Client, ClientConfig, File, Location, OpenOptions, OwnMemory,
    SessionOptions, TrustedPeers,
};

/// Few, so that what is measured stays in the processor's caches and the emulator's.
const BUFFERS: usize = 4;
const BLOCKS: usize = 40;
/// Reads in one block of a reader: each buffer a few times.
const ROUNDS: usize = 16 * BUFFERS;
const SIZES: [usize; 4] = [32 << 10, 128 << 10, 512 << 10, 2 << 20];
const WAYS: [&str; 4] = ["registered each time", "cached", "copied", "registered for good"];

/// One way to read.
struct Way {
    readers: Vec<Reader>,
    times: Vec<f64>,
}

/// A thread that reads a block when it is told to and looks into its buffers when it is told again,
/// tells when it has done either, and ends when nobody can tell it any more.
struct Reader {
    tell: Sender<()>,
    done: Receiver<()>,
    thread: JoinHandle<String>,
}

/// What a reader has.
struct Reading {
    client: Client,
    file: File,
    buffers: Vec<Vec<u8>>,
    /// Registered for good; read into, if there are any.
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
                // The first finds nothing registered.
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
    // SAFETY: the only server is this project's, which uses what it is told of for the request
    // that tells it.
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
    /// Microseconds for a read, of all readers together.
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

    /// Whether all of it was read; nothing of it is there for the next block.
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

/// The number behind an option.
fn option(words: &[String], name: &str) -> Outcome<Option<usize>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let word = words.get(at + 1).ok_or_else(|| format!("{name} wants a number"))?;
    Ok(Some(word.parse()?))
}
