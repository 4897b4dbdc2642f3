//! Creates and reads the small files of a tree, many at once, with chains and with the same
//! requests without chains. Over TCP on this machine; the server serves a directory, and rounds of
//! each take turns. `--test` uses only a few files.

mod common;
mod together;

use std::time::Instant;

use dafs_client::{Client, ClientConfig, OpenOptions, Session, SessionOptions};

use common::{Outcome, Served};
use together::together;

const FILES: usize = 5000;
const ROUNDS: usize = 5;
const BYTES: usize = 2000;
/// The number of files in flight at once.
const AT_ONCE: usize = 64;

fn main() -> Outcome<()> {
    let testing = std::env::args().any(|argument| argument == "--test");
    let (files, rounds) = if testing { (50, 1) } else { (FILES, ROUNDS) };
    let directory = tempfile::tempdir()?;
    let served = Served::start(directory.path(), &common::config(directory.path(), "tcp")?)?;
    let client = Client::new(ClientConfig::default())?;
    let options = SessionOptions::default().credits(256);
    let session = client.connect_to(&served.address, &options)?;
    let [made_apart, made_chained, read_apart, read_chained] =
        measure(&client, &session, files, rounds)?;
    println!("made one request after the other   {made_apart:8.1} ms");
    println!("made in chains                     {made_chained:8.1} ms");
    println!("read one request after the other   {read_apart:8.1} ms");
    println!("read in chains                     {read_chained:8.1} ms");
    Ok(())
}

/// Returns the fastest round of each in milliseconds.
fn measure(client: &Client, session: &Session, files: usize, rounds: usize) -> Outcome<[f64; 4]> {
    let buffer = client.allocate(AT_ONCE * BYTES)?;
    let mut best = [f64::INFINITY; 4];
    for round in 0..rounds {
        let apart = format!("a{round}");
        let chained = format!("c{round}");
        for directory in [&apart, &chained] {
            session.create_dir(format!("/{directory}"), 0o755)?;
        }
        let creating = OpenOptions::write().create_new(true);
        let reading = OpenOptions::read();
        let slice = |at: usize| buffer.slice(at % AT_ONCE * BYTES, BYTES);
        let handle = session.metadata(format!("/{apart}"))?.handle;
        let other = session.metadata(format!("/{chained}"))?.handle;
        let take = |best: &mut f64, start: Instant| {
            *best = best.min(start.elapsed().as_secs_f64() * 1000.0);
        };
        let start = Instant::now();
        in_parallel(client, files, async |at| {
            let name = format!("f{at}");
            let file = session.open_in_async(handle, &name, &name, &creating).await?;
            file.write_async(0, slice(at)?).await?;
            Ok(file.close_async().await?)
        })?;
        take(&mut best[0], start);
        let start = Instant::now();
        in_parallel(client, files, async |at| {
            let name = format!("f{at}");
            let chain =
                session.chain().at(other).open(&name, &creating).write_from(0, slice(at)?).close();
            chain.run_async().await?;
            Ok(())
        })?;
        take(&mut best[1], start);
        let start = Instant::now();
        in_parallel(client, files, async |at| {
            let name = format!("f{at}");
            let file = session.open_in_async(handle, &name, &name, &reading).await?;
            file.read_async(0, slice(at)?).await?;
            Ok(file.close_async().await?)
        })?;
        take(&mut best[2], start);
        let start = Instant::now();
        in_parallel(client, files, async |at| {
            let name = format!("f{at}");
            let chain =
                session.chain().at(other).open(&name, &reading).read_into(0, slice(at)?).close();
            chain.run_async().await?;
            Ok(())
        })?;
        take(&mut best[3], start);
    }
    Ok(best)
}

/// Runs an action for each file, [`AT_ONCE`] at a time.
fn in_parallel(
    client: &Client,
    files: usize,
    work: impl AsyncFn(usize) -> Outcome<()>,
) -> Outcome<()> {
    let next = std::cell::Cell::new(0);
    let worker = async || -> Outcome<()> {
        while next.get() < files {
            work(next.replace(next.get() + 1)).await?;
        }
        Ok(())
    };
    together(client, (0..AT_ONCE).map(|_| worker()))
}
