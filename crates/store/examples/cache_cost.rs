//! Measures the cost of a hit and of a write in the cache alone, without transport and disk.
//!
//! `cargo run --release -p dafs-store --example cache_cost`. The checksum shows that the work was
//! done. Compare only numbers of one machine.

use std::time::Instant;

use dafs_store::cache::{
    BLOCK_BYTES, Cache, CacheConfig, CachedFile, CommitStep, Listener, Pieces, Planned, Prepared,
    Read, Spans,
};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{AttributeChanges, Credentials, Store};
use dafs_types::{CacheHint, CreateMode, Moment, ShareAccess, Stability};

fn main() {
    let limits = MemoryLimits { bytes_max: 1 << 30, object_count_max: 10 };
    let store = MemoryStore::new(limits);
    let who = Credentials::superuser();
    let top = store.root(&who).expect("a root").handle;
    let (changes, access) = (AttributeChanges::default(), ShareAccess::Both);
    let (_, file) =
        store.create_file(&who, &top, b"f", CreateMode::Guarded, &changes, access).expect("a file");
    file.set_size(FILE_BYTES).expect("space");
    let version = file.version().expect("a version");
    let mut cache = Cache::new(CacheConfig {
        arena_bytes: 512 << 20,
        dirty_bytes_max: 512 << 20,
        ..CacheConfig::default()
    })
    .expect("address space");
    let open = cache.open(file, version).expect("room");
    fill(&mut cache, open);
    for (what, length) in [("4 KiB", 4096u32), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
        let (nanoseconds, sum) = reads(&mut cache, open, length);
        println!("read hit + unpin, {what} at random: {nanoseconds:.1} ns (checksum {sum:x})");
    }
    let (nanoseconds, sum) = writes(&mut cache, open);
    println!("write prepare + done, 4 KiB at random: {nanoseconds:.1} ns (checksum {sum:x})");
    let mut ticket = cache.commit_begin(open, 0, 0, Stability::Unstable, Listener::Anybody);
    while let CommitStep::Flush(job) = cache.commit_step(&mut ticket) {
        let _ = cache.on_flushed(job.run());
    }
    println!("{:?}", cache.stats());
}

fn fill(cache: &mut Cache, open: CachedFile) {
    let mut jobs = Vec::new();
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        let planned = cache.plan_fill(open, offset, 1 << 20, CacheHint::default(), &mut jobs);
        assert!(matches!(planned, Planned::Jobs | Planned::Ready));
        for job in jobs.drain(..) {
            let _ = cache.on_filled(job.run());
        }
    }
}

fn reads(cache: &mut Cache, open: CachedFile, length: u32) -> (f64, u64) {
    let mut pieces = Pieces::new();
    let (mut random, mut sum) = (1u64, 0);
    let blocks = (FILE_BYTES - u64::from(length)) / BLOCK_BYTES as u64 + 1;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        random = step(random);
        let offset = (random >> 33) % blocks * BLOCK_BYTES as u64;
        let Read::Hit { length: got, .. } = cache.read(open, offset, length, &mut pieces) else {
            panic!("everything is cached");
        };
        assert_eq!(got, length);
        for piece in pieces.drain(..) {
            sum = u64::wrapping_add(sum, piece.offset);
            cache.unpin(piece.pin);
        }
    }
    (start.elapsed().as_nanos() as f64 / ROUNDS as f64, sum)
}

fn writes(cache: &mut Cache, open: CachedFile) -> (f64, u64) {
    let (mut spans, mut jobs) = (Spans::new(), Vec::new());
    let (mut random, mut sum) = (1u64, 0);
    let start = Instant::now();
    for round in 0..ROUNDS {
        random = step(random);
        let offset = (random >> 33) % (FILE_BYTES / 4096) * 4096;
        let prepared = cache.prepare_write(open, offset, 4096, &mut spans, &mut jobs);
        let Prepared::Ready(token) = prepared else { panic!("there is room") };
        sum = u64::wrapping_add(sum, spans[0].offset);
        spans.clear();
        let _ = cache.write_done(token, Moment(round));
    }
    (start.elapsed().as_nanos() as f64 / ROUNDS as f64, sum)
}

fn step(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

const FILE_BYTES: u64 = 256 << 20;
const ROUNDS: u64 = 2_000_000;
