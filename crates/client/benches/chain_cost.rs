//! Measures the wall time of an open, a read of 4 KiB and a close in one chain, against a plain
//! read of the same 4 KiB from an open file, and against the three requests one after the other,
//! over TCP on this machine (`--shm`: over shared memory). The server serves a directory.
//!
//! The ways take turns in blocks, so that all see the same machine. The plain read uses another
//! file, so that the open and the close are the first and the last of their file. `--test` runs
//! only a few rounds; `--only-plain`, `--only-chained` and `--long` are for a profiler.

mod common;

use std::time::Instant;

use dafs_client::{Buffer, Client, ClientConfig, File, OpenOptions, Session, SessionOptions};

use common::{Outcome, Served};

const BYTES: usize = 4096;
const BLOCKS: usize = 1500;
const ROUNDS_PER_BLOCK: u32 = 20;

fn main() -> Outcome<()> {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let blocks = match (has("--test"), has("--long")) {
        (true, _) => 3,
        (_, true) => 20 * BLOCKS,
        _ => BLOCKS,
    };
    let directory = tempfile::tempdir()?;
    let exported = directory.path().join("export");
    std::fs::create_dir(&exported)?;
    let content: Vec<u8> = (0..BYTES).map(|at| (at * 7) as u8).collect();
    std::fs::write(exported.join("plain"), &content)?;
    std::fs::write(exported.join("small"), &content)?;
    let transport = if has("--shm") { "shm" } else { "tcp" };
    let served = Served::start(directory.path(), &common::config(directory.path(), transport)?)?;

    let client = Client::new(ClientConfig::default())?;
    let session = client.connect_to(&served.address, &SessionOptions::default())?;
    let buffer = client.allocate(BYTES)?;
    let [plain, chained, apart] = measure(&session, &buffer, blocks)?;
    let mut bytes = vec![0; BYTES];
    buffer.read(0, &mut bytes);
    assert_eq!(bytes, content);
    let line = |name, time: f64| {
        println!("{name:44} {:8.2} us  {:5.2} x", time / 1000.0, time / plain);
    };
    line("plain read", plain);
    line("open, read and close in one chain", chained);
    line("open, read and close one after the other", apart);
    Ok(())
}

/// Returns, in nanoseconds, one round of each way in the block at the first decile, since other
/// processes may use the machine too.
fn measure(session: &Session, buffer: &Buffer, blocks: usize) -> Outcome<[f64; 3]> {
    let file = session.open("/plain", &OpenOptions::read())?;
    let only = std::env::args().find_map(|word| word.strip_prefix("--only-").map(str::to_owned));
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..blocks {
        if is_wanted("plain") {
            times[0].push(block(|| plain(&file, buffer))?);
        }
        if is_wanted("chained") {
            times[1].push(block(|| chained(session, buffer))?);
        }
        if is_wanted("apart") {
            times[2].push(block(|| apart(session, buffer))?);
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 10).copied().unwrap_or(f64::NAN)
    }))
}

fn block(round: impl Fn() -> Outcome<u32>) -> Outcome<f64> {
    let start = Instant::now();
    for _ in 0..ROUNDS_PER_BLOCK {
        assert_eq!(round()?, BYTES as u32);
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS_PER_BLOCK))
}

fn plain(file: &File, buffer: &Buffer) -> Outcome<u32> {
    Ok(file.read_into(0, buffer.slice(0, BYTES)?)?.length)
}

fn chained(session: &Session, buffer: &Buffer) -> Outcome<u32> {
    Ok(session.read_file_once("/small", buffer.slice(0, BYTES)?)?.length)
}

fn apart(session: &Session, buffer: &Buffer) -> Outcome<u32> {
    let file = session.open("/small", &OpenOptions::read())?;
    let read = file.read_into(0, buffer.slice(0, BYTES)?)?;
    file.close()?;
    Ok(read.length)
}
