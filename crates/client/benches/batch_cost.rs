//! Measures the client's cost of a batch of 64 random reads of 4 KiB against 64 single reads: the
//! processor time of the client's thread, over TCP and over shared memory on this machine. The
//! server runs in a thread of its own and serves a directory.
//!
//! The ways of reading take turns in blocks, so that all see the same machine, and the median block
//! of each counts; single reads one after the other are the reference. The time used by the rest of
//! the process, which is the server, is printed next to each. A thread that waits for a batch
//! sleeps once, so the cost of a bare sleep of that length comes last.
//!
//! `--test` runs only a few rounds. For a profiler, `--shm` and `--tcp` select one transport, and
//! `--only-single`, `--only-gathered`, `--only-batch` and `--only-submitted` one way of reading.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dafs_client::{
    Buffer, Client, ClientConfig, File, Group, OpenOptions, Session, SessionOptions,
};
use dafs_types::Random;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

use common::{Outcome, Served};

const READS: usize = 64;
const BYTES: usize = 4096;
const FILE_BYTES: usize = 32 << 20;
/// Roughly the duration of a batch over shared memory.
const SLEEP: Duration = Duration::from_micros(80);
const BLOCKS: usize = 400;
const ROUNDS_PER_BLOCK: u32 = 10;
const WAYS: [&str; 4] = ["single", "gathered", "batch", "submitted"];

fn main() -> Outcome<()> {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let blocks = if has("--test") { 3 } else { BLOCKS };
    for transport in ["tcp", "shm"] {
        let other = if transport == "tcp" { "--shm" } else { "--tcp" };
        if !has(other) {
            over(transport, blocks)?;
        }
    }
    let sleep = median(sleeps(blocks)?);
    println!("one sleep of {} us, and nothing else: {sleep:.1} us", SLEEP.as_micros());
    Ok(())
}

/// Returns, for each block of sleeps, the microseconds of this thread's time for one sleep until
/// another thread wakes it.
fn sleeps(blocks: usize) -> Outcome<Vec<f64>> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
    let wanted = AtomicU32::new(0);
    let rounds = blocks as u32 * ROUNDS_PER_BLOCK;
    std::thread::scope(|scope| {
        // This thread never sleeps, like a busy server.
        let ringer = scope.spawn(|| -> rustix::io::Result<()> {
            for round in 1..=rounds {
                while wanted.load(Ordering::Acquire) != round {
                    std::hint::spin_loop();
                }
                let begun = Instant::now();
                while begun.elapsed() < SLEEP {
                    std::hint::spin_loop();
                }
                rustix::io::write(&bell, &1u64.to_ne_bytes())?;
            }
            Ok(())
        });
        let mut times = Vec::new();
        for block in 0..blocks as u32 {
            let begun = thread_time();
            for round in 1..=ROUNDS_PER_BLOCK {
                wanted.store(block * ROUNDS_PER_BLOCK + round, Ordering::Release);
                rustix::io::read(&bell, &mut [0; 8])?;
            }
            times.push((thread_time() - begun) / f64::from(ROUNDS_PER_BLOCK));
        }
        ringer.join().map_err(|_| "the thread that wakes has failed")??;
        Ok(times)
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn over(transport: &str, blocks: usize) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let exported = directory.path().join("export");
    std::fs::create_dir(&exported)?;
    let content = Random::new(1).bytes(FILE_BYTES);
    std::fs::write(exported.join("file"), &content)?;
    let served = Served::start(directory.path(), &common::config(directory.path(), transport)?)?;

    let client = Client::new(ClientConfig::default())?;
    let session = client.connect_to(&served.address, &SessionOptions::default())?;
    let file = session.open("/file", &OpenOptions::read())?;
    let buffer = client.allocate(READS * BYTES)?;
    let measured = Bench { client, session, file, buffer, content }.measure(blocks);
    drop(served);
    println!("{READS} reads of {BYTES} bytes over {transport}, us of processor time:");
    let measured = measured?;
    let single = measured[0].0;
    for (way, (client, server)) in WAYS.iter().zip(measured) {
        let ratio = client / single;
        println!("  {way:10} client {client:8.1}  {ratio:5.3} x   server {server:8.1}");
    }
    Ok(())
}

struct Bench {
    client: Client,
    session: Session,
    file: File,
    buffer: Buffer,
    content: Vec<u8>,
}

impl Bench {
    /// Measures, in microseconds, one round of each way: the client's time and the server's.
    fn measure(&self, blocks: usize) -> Outcome<[(f64, f64); 4]> {
        let only =
            std::env::args().find_map(|word| word.strip_prefix("--only-").map(str::to_owned));
        let mut times = [const { (Vec::new(), Vec::new()) }; 4];
        let mut dice = Random::new(2);
        // Load everything into the server's cache before measuring.
        for at in (0..FILE_BYTES).step_by(READS * BYTES) {
            self.file.read_into(at as u64, self.buffer.slice(0, READS * BYTES)?)?;
        }
        for _ in 0..blocks {
            for (way, (own, others)) in WAYS.iter().zip(&mut times) {
                if only.as_deref().is_some_and(|only| only != *way) {
                    continue;
                }
                let rounds: Vec<[u64; READS]> =
                    (0..ROUNDS_PER_BLOCK).map(|_| places(&mut dice)).collect();
                let (thread, process) = (thread_time(), process_time());
                for places in &rounds {
                    self.round(way, places)?;
                }
                let (thread, process) = (thread_time() - thread, process_time() - process);
                own.push(thread / f64::from(ROUNDS_PER_BLOCK));
                others.push((process - thread) / f64::from(ROUNDS_PER_BLOCK));
                self.check(&rounds[rounds.len() - 1]);
            }
        }
        Ok(times.map(|(own, others)| (median(own), median(others))))
    }

    fn round(&self, way: &str, places: &[u64; READS]) -> Outcome<()> {
        let slice = |index: usize| self.buffer.slice(index * BYTES, BYTES);
        match way {
            "single" => {
                for (index, place) in places.iter().enumerate() {
                    self.file.read_into(*place, slice(index)?)?;
                }
            }
            "gathered" => {
                let group = Group::DEFAULT;
                for (index, place) in places.iter().enumerate() {
                    self.session.submit_read(&self.file, *place, slice(index)?, group, 0)?;
                }
                self.client.wait(group, READS, None);
                while let Some(done) = self.client.next(group) {
                    done.result?;
                }
            }
            way => {
                let mut batch = self.session.batch();
                for (index, place) in places.iter().enumerate() {
                    batch = batch.read(&self.file, *place, slice(index)?);
                }
                let ended = if way == "batch" { batch.run()? } else { batch.submit()?.wait() };
                for outcome in ended {
                    outcome?;
                }
            }
        }
        Ok(())
    }

    /// Checks that the buffer has the data of these positions.
    fn check(&self, places: &[u64; READS]) {
        let mut bytes = vec![0; BYTES];
        for (index, place) in places.iter().enumerate() {
            self.buffer.read(index * BYTES, &mut bytes);
            let place = *place as usize;
            assert_eq!(bytes, self.content[place..place + BYTES], "read {index}");
        }
    }
}

fn places(dice: &mut Random) -> [u64; READS] {
    std::array::from_fn(|_| (dice.below(FILE_BYTES / BYTES) * BYTES) as u64)
}

fn thread_time() -> f64 {
    microseconds(ClockId::ThreadCPUTime)
}

fn process_time() -> f64 {
    microseconds(ClockId::ProcessCPUTime)
}

fn microseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
