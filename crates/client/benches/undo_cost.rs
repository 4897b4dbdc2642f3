//! Measures rewriting a large file under an auto-recovery lock: with undo data that shares blocks
//! with the file, with copied undo data, and under a lock without undo data. Over shared memory.
//! All three servers serve directories on one disk, that of the given directory, and take turns;
//! the disk needs reflinks for the first to differ from the second. `--test` writes a small file
//! once.

mod common;
mod together;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dafs_client::{
    Buffer, Client, ClientConfig, File, LockKind, LockOptions, OpenOptions, Session, SessionOptions,
};
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_server::JournalConfig;

use common::{Outcome, Served};
use together::together;

const FILE_BYTES: usize = 256 << 20;
const ROUNDS: usize = 5;
const PIECE_BYTES: usize = 1 << 20;
/// The number of writes in flight at once.
const AT_ONCE: usize = 4;
const WAYS: [&str; 3] = ["cloned", "copied", "none"];

/// A session and its server, in the order in which they must be dropped.
struct Connected {
    session: Session,
    client: Client,
    _served: Served,
}

/// The seconds that one turn took.
#[derive(Clone, Copy)]
struct Took {
    first: f64,
    all: f64,
    synced: f64,
    aborted: f64,
}

fn main() -> Outcome<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (bytes, rounds) = if is_test { (8 << 20, 1) } else { (FILE_BYTES, ROUNDS) };
    let named = std::env::args().skip(1).find(|argument| argument != "--test");
    let place = match named {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let mut servers = Vec::new();
    for way in WAYS {
        servers.push(serve(&place.path().join(way), way)?);
    }
    let mut took: [Vec<Took>; 3] = Default::default();
    for round in 0..rounds {
        for ((connected, took), way) in servers.iter().zip(&mut took).zip(WAYS) {
            took.push(rewrite(connected, &format!("f{round}"), bytes, way != "none")?);
        }
    }
    drop(servers);
    println!("{} MiB written anew, {AT_ONCE} writes of 1 MiB at a time, seconds:", bytes >> 20);
    println!("  undo     first write   all answered   unlocked   aborted");
    for (way, took) in WAYS.iter().zip(&took) {
        let of = |part: fn(&Took) -> f64| median(took.iter().map(part).collect());
        println!(
            "  {way:<8}{:12.4}{:15.3}{:11.3}{:10.3}",
            of(|took| took.first),
            of(|took| took.all),
            of(|took| took.synced),
            of(|took| took.aborted)
        );
    }
    let all = took.map(|took| median(took.iter().map(|took| took.synced).collect()));
    println!("  copied against cloned, up to the unlock: {:.2}", all[1] / all[0]);
    println!("  cloned against none, up to the unlock:   {:.2}", all[0] / all[2]);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn serve(place: &Path, way: &str) -> Outcome<Connected> {
    std::fs::create_dir_all(place)?;
    let mut config = common::config(place, "shm")?;
    config.cache.arena_bytes = 128 << 20;
    config.cache.dirty_bytes_max = 32 << 20;
    let mut undo = UndoConfig::default();
    if way == "copied" {
        undo.clone_bytes_min = u64::MAX;
    }
    let storage = Arc::new(DirectoryStorage::open(place.join("journal"))?);
    config.journal = Some(JournalConfig { storage, log: LogConfig::default(), undo });
    let served = Served::start(place, &config)?;
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect_to(&served.address, &SessionOptions::default())?;
    Ok(Connected { session, client, _served: served })
}

/// Creates a file, rewrites it under a lock and commits; then rewrites it again and rolls back.
fn rewrite(connected: &Connected, name: &str, bytes: usize, takes_back: bool) -> Outcome<Took> {
    let Connected { session, client, .. } = connected;
    let buffer = client.allocate(AT_ONCE * PIECE_BYTES)?;
    let file = session.open(name, &OpenOptions::write())?;
    write_all(client, &file, &buffer, bytes)?;
    file.commit()?;
    let options = if takes_back { LockOptions::AUTO_RECOVERY } else { LockOptions::default() };
    file.lock(LockKind::Exclusive, 0, u64::MAX, options, None)?;
    let start = Instant::now();
    file.write_at(&[1; 4096], 0)?;
    let first = start.elapsed().as_secs_f64();
    write_all(client, &file, &buffer, bytes)?;
    let all = start.elapsed().as_secs_f64();
    if !takes_back {
        // For the others the unlock does this.
        file.commit()?;
    }
    file.unlock(0, u64::MAX)?;
    let synced = start.elapsed().as_secs_f64();
    let mut aborted = f64::NAN;
    if takes_back {
        file.lock(LockKind::Exclusive, 0, u64::MAX, options, None)?;
        write_all(client, &file, &buffer, bytes)?;
        let start = Instant::now();
        file.abort_lock(0, u64::MAX)?;
        aborted = start.elapsed().as_secs_f64();
        file.unlock(0, u64::MAX)?;
    }
    file.close()?;
    session.remove(name)?;
    Ok(Took { first, all, synced, aborted })
}

fn write_all(client: &Client, file: &File, buffer: &Buffer, bytes: usize) -> Outcome<()> {
    let worker = async |first: usize| -> Outcome<()> {
        for number in (first..bytes / PIECE_BYTES).step_by(AT_ONCE) {
            let piece = buffer.slice(first * PIECE_BYTES, PIECE_BYTES)?;
            file.write_async((number * PIECE_BYTES) as u64, piece).await?;
        }
        Ok(())
    };
    together(client, (0..AT_ONCE).map(worker))
}
