//! Compares the cost of a group of records with that of a bare write and fdatasync of as many
//! bytes.
//!
//! `cargo run --release -p dafs-journal --example group_cost [DIRECTORY]`, with a directory on the
//! disk to measure. The two alternate in one run; only their ratio is meaningful.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dafs_journal::{DirectoryStorage, Log, LogConfig, RecordKind};
use dafs_types::Random;

fn main() {
    let place = match std::env::args().nth(1) {
        Some(directory) => tempfile::tempdir_in(directory),
        None => tempfile::tempdir(),
    }
    .expect("a directory");
    let storage = DirectoryStorage::open(place.path().join("journal")).expect("a storage");
    let (mut log, _) = Log::open(Arc::new(storage), LogConfig::default(), &mut Random::new(1))
        .expect("an empty journal");
    let bare = bare_file(&place.path().join("bare"));
    println!("records of a group | log, us | of it in memory | bare, us | ratio of medians");
    for (count, length) in [(1, 256), (16, 256), (64, 256), (16, 4096), (1, 1 << 20)] {
        let record = Random::new(2).bytes(length);
        let padded = (64 + count * (24 + length)).next_multiple_of(4096);
        let bytes = Random::new(3).bytes(padded);
        let (mut ours, mut memory, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut offset = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..count {
                log.append(RecordKind(1), &[&record]).expect("room");
            }
            let job = log.take_group().expect("records");
            memory.push(start.elapsed());
            log.on_group_done(job.run()).expect("a disk that works");
            ours.push(start.elapsed());
            if offset + padded as u64 > BARE_BYTES {
                offset = 0;
            }
            let start = Instant::now();
            bare.write_all_at(&bytes, offset).expect("a write");
            bare.sync_data().expect("a sync");
            theirs.push(start.elapsed());
            offset += padded as u64;
            checkpoint(&mut log);
        }
        let [ours, memory, theirs] = [ours, memory, theirs].map(median);
        let ratio = ours / theirs;
        println!("{count:3} x {length:7} | {ours:9.1} | {memory:7.2} | {theirs:9.1} | {ratio:.2}");
    }
    println!("durable: {:?}", log.durable());
}

/// Makes a checkpoint outside the measured time, so that free segments need no writing of zeros.
fn checkpoint(log: &mut Log) {
    if log.wants_checkpoint() {
        log.begin_checkpoint([(RecordKind(2), &b"all of it"[..])]).expect("room");
        let job = log.take_group().expect("a checkpoint");
        log.on_group_done(job.run()).expect("a disk that works");
    }
}

/// Creates a file of zeros, written and synced, like the log's segments.
fn bare_file(path: &Path) -> File {
    let file = File::create(path).expect("a file");
    let zeros = vec![0; 1 << 20];
    for offset in (0..BARE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset).expect("space");
    }
    file.sync_all().expect("a sync");
    file
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

const ROUNDS: usize = 200;
const BARE_BYTES: u64 = 16 << 20;
