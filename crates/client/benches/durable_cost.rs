//! Measures the cost of exactly-once semantics: files are created, written and closed, 32 at a
//! time, on a server whose journal keeps results on stable storage, against one that keeps them in
//! memory. Over TCP on this machine. Both servers serve directories on one disk (that of the given
//! directory, or of the temporary files) and take turns. `--test` creates only a few files.

mod common;
mod together;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dafs_client::{Client, ClientConfig, OpenOptions, Session, SessionOptions};
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_server::JournalConfig;

use common::{Outcome, Served};
use together::together;

const FILES: usize = 1000;
const ROUNDS: usize = 9;
const BYTES: usize = 4096;
/// The number of files in flight at once.
const AT_ONCE: usize = 32;

/// A session and its server, in the order in which they must be dropped.
struct Connected {
    session: Session,
    client: Client,
    _served: Served,
}

fn main() -> Outcome<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (files, rounds) = if is_test { (40, 1) } else { (FILES, ROUNDS) };
    let named = std::env::args().skip(1).find(|argument| argument != "--test");
    let place = match named {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let servers =
        [serve(&place.path().join("stable"), true)?, serve(&place.path().join("memory"), false)?];
    let mut took: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        for (connected, took) in servers.iter().zip(&mut took) {
            let start = Instant::now();
            make_files(connected, round, files)?;
            took.push(start.elapsed().as_secs_f64());
        }
    }
    drop(servers);
    let [stable, memory] = took.map(median);
    let rate = |seconds: f64| files as f64 / seconds;
    println!("made, written and closed, {AT_ONCE} files at a time, {BYTES} bytes each:");
    println!("  results on stable storage   {:8.0} files/s", rate(stable));
    println!("  results in memory           {:8.0} files/s", rate(memory));
    println!("  ratio                       {:8.2}", memory / stable);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn serve(place: &Path, is_stable: bool) -> Outcome<Connected> {
    let mut config = common::config(place, "tcp")?;
    config.cache.arena_bytes = 256 << 20;
    config.cache.dirty_bytes_max = 64 << 20;
    if is_stable {
        let journal = place.join("journal");
        std::fs::create_dir_all(&journal)?;
        config.journal = Some(JournalConfig {
            storage: Arc::new(DirectoryStorage::open(&journal)?),
            log: LogConfig::default(),
            undo: UndoConfig::default(),
        });
    }
    let served = Served::start(place, &config)?;
    let client = Client::new(ClientConfig::default())?;
    let options = SessionOptions::default().credits(256);
    let session = client.connect_to(&served.address, &options)?;
    Ok(Connected { session, client, _served: served })
}

fn make_files(connected: &Connected, round: usize, files: usize) -> Outcome<()> {
    let Connected { session, client, .. } = connected;
    let directory = format!("d{round}");
    session.create_dir(&directory, 0o755)?;
    let parent = session.metadata(&directory)?.handle;
    let buffer = client.allocate(AT_ONCE * BYTES)?;
    let creating = OpenOptions::write().create_new(true);
    let one = async |number: usize| -> Outcome<()> {
        let name = format!("f{number}");
        let file = session.open_in_async(parent, &name, &name, &creating).await?;
        file.write_async(0, buffer.slice(number % AT_ONCE * BYTES, BYTES)?).await?;
        Ok(file.close_async().await?)
    };
    let worker = async |first: usize| -> Outcome<()> {
        for number in (first..files).step_by(AT_ONCE) {
            one(number).await?;
        }
        Ok(())
    };
    together(client, (0..AT_ONCE).map(worker))
}
