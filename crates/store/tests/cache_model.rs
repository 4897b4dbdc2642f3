//! Compares the cache with the simplest possible model: a vector of bytes for each file.

mod change;
mod ranges;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_memory::Memory;
use dafs_store::cache::{
    Cache, CacheConfig, CachedFile, ClearDone, ClearJob, CommitStep, FillDone, FlushDone, Listener,
    Pieces, Planned, Prepared, RangeStep, RangeWork, Read, SizeStep, Spans,
};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{
    AttributeChanges, Attributes, Credentials, File, FileKey, FileVersion, Store, StoreError,
};
use dafs_types::{CacheHint, CreateMode, FileHandle, Moment, ShareAccess, Stability, Timestamp};
use proptest::prelude::*;

/// A file that fails on demand.
struct Fragile {
    inner: Arc<dyn File>,
    write_fails: AtomicBool,
    write_tears: AtomicBool,
    read_fails: AtomicBool,
}

impl File for Fragile {
    fn key(&self) -> FileKey {
        self.inner.key()
    }
    fn handle(&self) -> FileHandle {
        self.inner.handle()
    }
    fn read_at(
        &self,
        m: &Memory,
        at: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize, StoreError> {
        if self.read_fails.load(Ordering::Relaxed) {
            return Err(StoreError::Io);
        }
        self.inner.read_at(m, at, length, offset)
    }
    fn write_at(
        &self,
        m: &Memory,
        at: usize,
        length: usize,
        offset: u64,
    ) -> Result<(), StoreError> {
        if self.write_tears.load(Ordering::Relaxed) {
            self.inner.write_at(m, at, length / 2, offset)?;
            return Err(StoreError::NoSpace);
        }
        if self.write_fails.load(Ordering::Relaxed) {
            return Err(StoreError::NoSpace);
        }
        self.inner.write_at(m, at, length, offset)
    }
    fn sync(&self, data_only: bool) -> Result<(), StoreError> {
        self.inner.sync(data_only)
    }
    fn attributes(&self) -> Result<Attributes, StoreError> {
        self.inner.attributes()
    }
    fn set_size(&self, size: u64) -> Result<(), StoreError> {
        self.inner.set_size(size)
    }
    fn allocate(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.inner.allocate(offset, length)
    }
    fn deallocate(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.inner.deallocate(offset, length)
    }
    fn version(&self) -> Result<FileVersion, StoreError> {
        self.inner.version()
    }
}

struct Tracked {
    disk: Arc<Fragile>,
    open: CachedFile,
    model: Vec<u8>,
}

/// A cache and its driver: jobs run at once, and the test decides when their results come back.
struct Rig {
    cache: Cache,
    files: Vec<Tracked>,
    fills: Vec<FillDone>,
    flushes: Vec<FlushDone>,
    /// Memory that is being cleared.
    clears: Vec<ClearDone>,
    now: u64,
    _store: MemoryStore,
}

impl Rig {
    fn new(file_count: usize, arena_bytes: usize) -> Self {
        let limits = MemoryLimits { bytes_max: 1 << 30, object_count_max: 100 };
        let store = MemoryStore::new(limits);
        let who = Credentials::superuser();
        let top = store.root(&who).unwrap().handle;
        let mut cache = Cache::new(CacheConfig {
            arena_bytes,
            dirty_bytes_max: arena_bytes / 4,
            write_back_age: Duration::from_millis(10),
            read_ahead_bytes_max: 128 << 10,
            file_count_max: 16,
        })
        .unwrap();
        let files = (0..file_count)
            .map(|i| {
                let name = format!("f{i}");
                let (changes, access) = (AttributeChanges::default(), ShareAccess::Both);
                let (_, inner) = store
                    .create_file(&who, &top, name.as_bytes(), CreateMode::Guarded, &changes, access)
                    .unwrap();
                let disk = Arc::new(Fragile {
                    inner,
                    write_fails: AtomicBool::new(false),
                    write_tears: AtomicBool::new(false),
                    read_fails: AtomicBool::new(false),
                });
                let version = disk.version().unwrap();
                let open = cache.open(disk.clone(), version).unwrap();
                Tracked { disk, open, model: Vec::new() }
            })
            .collect();
        Self { cache, files, fills: vec![], flushes: vec![], clears: vec![], now: 0, _store: store }
    }

    fn deliver(&mut self) {
        for done in self.fills.drain(..) {
            let _ = self.cache.on_filled(done);
        }
        for done in self.flushes.drain(..) {
            let _ = self.cache.on_flushed(done);
        }
        for done in self.clears.drain(..) {
            self.cache.on_cleared(done);
        }
    }

    /// Does what a server does while a request must wait.
    fn progress(&mut self) {
        self.deliver();
        while let Some(job) = self.cache.poll_flush() {
            let _ = self.cache.on_flushed(job.run());
        }
    }

    fn read(&mut self, index: usize, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let file = self.files[index].open;
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            let mut pieces = Pieces::new();
            let at = offset + bytes.len() as u64;
            let rest = (length - bytes.len()) as u32;
            match self.cache.read(file, at, rest, &mut pieces) {
                Read::Hit { length: got, is_end, wants_more } => {
                    let mut sum = 0;
                    for piece in pieces {
                        let arena = self.cache.arena();
                        bytes.extend(arena.to_vec(piece.offset as usize, piece.length as usize));
                        sum += piece.length;
                        self.cache.unpin(piece.pin);
                    }
                    assert_eq!(sum, got);
                    if wants_more {
                        let mut jobs = Vec::new();
                        self.cache.plan_ahead(file, &mut jobs);
                        self.fills.extend(jobs.into_iter().map(|job| job.run()));
                    }
                    if is_end || bytes.len() == length {
                        return Ok(bytes);
                    }
                }
                Read::Miss => {
                    let mut jobs = Vec::new();
                    let hint = CacheHint::default();
                    let planned = self.cache.plan_fill(file, at, rest, hint, &mut jobs);
                    assert_eq!(planned == Planned::Jobs, !jobs.is_empty());
                    let mut failed = None;
                    for job in jobs {
                        failed = self.cache.on_filled(job.run()).error.or(failed);
                    }
                    if let Some(error) = failed {
                        return Err(error);
                    }
                    if planned != Planned::Jobs {
                        self.progress();
                    }
                }
            }
        }
        panic!("a read does not end");
    }

    fn write(&mut self, index: usize, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.files[index].open;
        let mut done = 0;
        for _ in 0..10_000 {
            if done == bytes.len() {
                let model = &mut self.files[index].model;
                let end = offset as usize + bytes.len();
                if !bytes.is_empty() && model.len() < end {
                    model.resize(end, 0);
                }
                if !bytes.is_empty() {
                    model[offset as usize..end].copy_from_slice(bytes);
                }
                return Ok(());
            }
            let (mut spans, mut jobs) = (Spans::new(), Vec::new());
            let rest = &bytes[done..];
            let at = offset + done as u64;
            let prepared =
                self.cache.prepare_write(file, at, rest.len() as u32, &mut spans, &mut jobs);
            for job in jobs {
                let _ = self.cache.on_filled(job.run());
            }
            match prepared {
                Prepared::Ready(token) => {
                    let mut moved = 0;
                    for span in spans {
                        let part = &rest[moved..moved + span.length as usize];
                        self.cache.arena().write(span.offset as usize, part);
                        moved += span.length as usize;
                    }
                    assert_eq!(moved, token.length() as usize);
                    done += moved;
                    self.now += 1_000_000;
                    let _ = self.cache.write_done(token, Moment(self.now));
                }
                Prepared::Fill => {}
                Prepared::Wait | Prepared::Pressure => self.progress(),
                Prepared::Lost(_) => {
                    return Err(self.cache.take_loss(file, Listener::Anybody).unwrap());
                }
                Prepared::Failed(error) => return Err(error),
            }
        }
        panic!("a write does not end");
    }

    fn set_size(&mut self, index: usize, size: u64) {
        self.deliver();
        match self.cache.set_size(self.files[index].open, size) {
            SizeStep::Job(job) => assert_eq!(self.cache.on_sized(job.run()).error, None),
            SizeStep::Wait => panic!("nothing is under way"),
        }
        self.files[index].model.resize(size as usize, 0);
    }

    fn commit(&mut self, index: usize, stability: Stability) -> Result<(), StoreError> {
        self.commit_range(index, (0, 0), stability)
    }

    fn commit_range(
        &mut self,
        index: usize,
        (offset, length): (u64, u64),
        stability: Stability,
    ) -> Result<(), StoreError> {
        let file = self.files[index].open;
        let listener = Listener::Anybody;
        let mut ticket = self.cache.commit_begin(file, offset, length, stability, listener);
        for _ in 0..10_000 {
            match self.cache.commit_step(&mut ticket) {
                CommitStep::Flush(job) => drop(self.cache.on_flushed(job.run())),
                CommitStep::Sync(job) => drop(self.cache.on_synced(job.run())),
                CommitStep::Wait => self.progress(),
                CommitStep::Done(result) => return result,
            }
        }
        panic!("a commit does not end");
    }

    fn disk(&self, index: usize) -> Vec<u8> {
        let disk = &self.files[index].disk.inner;
        let size = disk.attributes().unwrap().size as usize;
        let memory = Memory::from_heap(vec![0; size.max(1)].into_boxed_slice());
        disk.read_at(&memory, 0, size, 0).unwrap();
        memory.to_vec(0, size)
    }

    fn reopen(&mut self, index: usize) {
        let version = self.files[index].disk.version().unwrap();
        let again = self.cache.open(self.files[index].disk.clone(), version).unwrap();
        self.cache.close(self.files[index].open);
        self.files[index].open = again;
    }

    fn check(&mut self, index: usize, offset: u64, length: usize) {
        let got = self.read(index, offset, length).unwrap();
        let model = &self.files[index].model;
        let from = model.len().min(offset as usize);
        let to = model.len().min(offset as usize + length);
        assert!(got == model[from..to], "file {index} at {offset}+{length} differs");
        assert_eq!(self.cache.size(self.files[index].open), self.files[index].model.len() as u64);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize, u64, u64),
    Deallocate(usize, u64, u64),
    Copy((usize, u64), (usize, u64), u64),
    Read(usize, u64, usize),
    Write(usize, u64, usize, u8),
    SetSize(usize, u64),
    Commit(usize, bool),
    /// Starts due flushes, whose results are held back for a while.
    Tick,
    Deliver,
    Foreign(usize, u64, u8),
    ForeignCut(usize, u64),
    Reopen(usize),
}

const FILES: usize = 3;
const SPAN: u64 = 1 << 20;

fn step() -> impl Strategy<Value = Step> {
    let file = 0..FILES;
    let length = prop_oneof![0usize..9000, Just(4096), 0usize..300_000];
    let offset = prop_oneof![0..SPAN, (0..SPAN / 4096).prop_map(|block| block * 4096)];
    prop_oneof![
        6 => (file.clone(), offset.clone(), length.clone())
            .prop_map(|(f, o, l)| Step::Read(f, o, l)),
        6 => (file.clone(), offset.clone(), length, any::<u8>())
            .prop_map(|(f, o, l, b)| Step::Write(f, o, l, b)),
        1 => (file.clone(), offset.clone()).prop_map(|(f, o)| Step::SetSize(f, o)),
        1 => (file.clone(), any::<bool>()).prop_map(|(f, s)| Step::Commit(f, s)),
        2 => Just(Step::Tick),
        1 => Just(Step::Deliver),
        1 => (file.clone(), offset.clone(), any::<u8>())
            .prop_map(|(f, o, b)| Step::Foreign(f, o, b)),
        1 => (file.clone(), offset.clone()).prop_map(|(f, o)| Step::ForeignCut(f, o)),
        1 => (file.clone(), offset.clone(), 1..300_000u64)
            .prop_map(|(f, o, l)| Step::Allocate(f, o, l)),
        2 => (file.clone(), offset.clone(), 1..300_000u64)
            .prop_map(|(f, o, l)| Step::Deallocate(f, o, l)),
        2 => ((file.clone(), offset.clone()), (file.clone(), offset.clone()), 1..300_000u64)
            .prop_map(|(from, to, l)| Step::Copy(from, to, l)),
        1 => file.prop_map(Step::Reopen),
    ]
}

fn run(steps: Vec<Step>) {
    let mut rig = Rig::new(FILES, 2 << 20);
    for step in steps {
        match step {
            Step::Read(file, offset, length) => rig.check(file, offset, length),
            Step::Write(file, offset, length, seed) => {
                let bytes: Vec<u8> =
                    (0..length).map(|i| seed.wrapping_add((i / 7) as u8) | 1).collect();
                rig.write(file, offset, &bytes).unwrap();
            }
            Step::SetSize(file, size) => rig.set_size(file, size),
            Step::Allocate(file, offset, length) => rig.allocate(file, offset, length),
            Step::Deallocate(file, offset, length) => rig.deallocate(file, offset, length),
            Step::Copy(from, to, length) => rig.copy(from, to, length),
            Step::Commit(file, sync) => {
                let stability = if sync { Stability::FileSync } else { Stability::Unstable };
                rig.commit(file, stability).unwrap();
                assert!(rig.disk(file) == rig.files[file].model, "commit left file {file} behind");
            }
            Step::Tick => {
                rig.now += 20_000_000;
                rig.cache.on_tick(Moment(rig.now));
                if rig.flushes.is_empty()
                    && let Some(job) = rig.cache.poll_flush()
                {
                    rig.flushes.push(job.run());
                }
                rig.clears.extend(rig.cache.poll_clear().map(ClearJob::run));
            }
            Step::Deliver => rig.deliver(),
            Step::Foreign(file, offset, seed) => {
                rig.deliver();
                rig.commit(file, Stability::Unstable).unwrap();
                let memory = Memory::from_heap(vec![seed; 5000].into_boxed_slice());
                rig.files[file].disk.inner.write_at(&memory, 0, 5000, offset).unwrap();
                rig.files[file].model = rig.disk(file);
                rig.reopen(file);
            }
            Step::ForeignCut(file, size) => {
                rig.deliver();
                rig.commit(file, Stability::Unstable).unwrap();
                rig.files[file].disk.inner.set_size(size).unwrap();
                rig.files[file].model = rig.disk(file);
                rig.reopen(file);
            }
            Step::Reopen(file) => rig.reopen(file),
        }
    }
    rig.deliver();
    for file in 0..FILES {
        rig.check(file, 0, 3 << 20);
        rig.commit(file, Stability::FileSync).unwrap();
        assert!(rig.disk(file) == rig.files[file].model);
    }
    assert_eq!(rig.cache.stats().dirty_bytes, 0);
}

proptest! {
    #[test]
    fn the_cache_is_the_file(steps in proptest::collection::vec(step(), 1..60)) {
        run(steps);
    }
}

#[test]
fn a_file_larger_than_the_arena_streams_through_it() {
    let mut rig = Rig::new(1, 2 << 20);
    let bytes: Vec<u8> = (0..9 << 20).map(|i| (i / 4096 * 31) as u8).collect();
    rig.write(0, 0, &bytes).unwrap();
    for offset in (0..9 << 20).step_by(100_000) {
        rig.check(0, offset, 100_000);
    }
    assert!(rig.cache.stats().evicted_block_count > 1000);
    assert!(rig.cache.stats().used_bytes <= 2 << 20);
}

#[test]
fn a_failed_flush_is_told_once_and_changes_the_verifier() {
    for tears in [false, true] {
        let mut rig = Rig::new(1, 2 << 20);
        rig.write(0, 0, &[1; 8192]).unwrap();
        rig.commit(0, Stability::FileSync).unwrap();
        rig.write(0, 4096, &[2; 8192]).unwrap();
        let disk = rig.files[0].disk.clone();
        disk.write_fails.store(true, Ordering::Relaxed);
        disk.write_tears.store(tears, Ordering::Relaxed);
        assert_eq!(rig.commit(0, Stability::FileSync), Err(StoreError::NoSpace));
        assert_eq!(rig.cache.loss_count(), 1);
        assert_eq!(rig.commit(0, Stability::FileSync), Ok(()));
        disk.write_fails.store(false, Ordering::Relaxed);
        disk.write_tears.store(false, Ordering::Relaxed);
        // Lost data is read again from the file, so the file is the truth.
        rig.files[0].model = rig.disk(0);
        rig.check(0, 0, 20_000);
        rig.write(0, 4096, &[3; 8192]).unwrap();
        rig.commit(0, Stability::FileSync).unwrap();
        assert_eq!(rig.disk(0), rig.files[0].model);
        assert_eq!(rig.cache.stats().dirty_bytes, 0);
    }
}

#[test]
fn a_write_during_a_flush_is_not_lost_even_if_the_flush_is() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[1; 4096]).unwrap();
    rig.cache.on_tick(Moment(1_000_000_000));
    let done = rig.cache.poll_flush().unwrap().run();
    rig.write(0, 100, &[2; 50]).unwrap();
    let _ = rig.cache.on_flushed(done);
    rig.check(0, 0, 5000);
    assert_eq!(rig.cache.stats().dirty_bytes, 4096);
    rig.files[0].disk.write_fails.store(true, Ordering::Relaxed);
    rig.cache.on_tick(Moment(3_000_000_000));
    let done = rig.cache.poll_flush().unwrap().run();
    rig.files[0].disk.write_fails.store(false, Ordering::Relaxed);
    rig.write(0, 200, &[3; 50]).unwrap();
    let _ = rig.cache.on_flushed(done);
    rig.check(0, 0, 5000);
    assert_eq!(rig.commit(0, Stability::FileSync), Err(StoreError::NoSpace));
    rig.commit(0, Stability::FileSync).unwrap();
    assert_eq!(rig.disk(0), rig.files[0].model);
}

#[test]
fn a_failed_read_is_told_and_leaves_nothing_behind() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[1; 10_000]).unwrap();
    rig.commit(0, Stability::Unstable).unwrap();
    let memory = Memory::from_heap(vec![7; 10].into_boxed_slice());
    rig.files[0].disk.inner.write_at(&memory, 0, 10, 0).unwrap();
    rig.files[0].model = rig.disk(0);
    rig.reopen(0);
    rig.files[0].disk.read_fails.store(true, Ordering::Relaxed);
    assert_eq!(rig.read(0, 0, 100), Err(StoreError::Io));
    rig.files[0].disk.read_fails.store(false, Ordering::Relaxed);
    rig.check(0, 0, 20_000);
}

#[test]
fn pinned_memory_is_never_given_to_another() {
    let mut rig = Rig::new(2, 2 << 20);
    rig.write(0, 0, &[9; 4096]).unwrap();
    rig.commit(0, Stability::Unstable).unwrap();
    let mut pieces = Pieces::new();
    let hit = rig.cache.read(rig.files[0].open, 0, 4096, &mut pieces);
    assert!(matches!(hit, Read::Hit { length: 4096, is_end: true, .. }));
    rig.write(1, 0, &vec![5; 6 << 20]).unwrap();
    rig.set_size(0, 0);
    rig.write(1, 6 << 20, &vec![6; 6 << 20]).unwrap();
    let piece = pieces.pop().unwrap();
    assert_eq!(rig.cache.arena().to_vec(piece.offset as usize, 4096), [9; 4096]);
    rig.cache.unpin(piece.pin);
}

#[test]
fn a_broken_transfer_leaves_no_trace_behind_the_end() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[1; 100]).unwrap();
    let (mut spans, mut jobs) = (Spans::new(), Vec::new());
    let file = rig.files[0].open;
    let Prepared::Ready(token) = rig.cache.prepare_write(file, 50, 3000, &mut spans, &mut jobs)
    else {
        panic!("the block is there");
    };
    rig.cache.arena().write(spans[0].offset as usize, &[8; 1000]);
    let _ = rig.cache.write_abort(token, Moment(1));
    rig.set_size(0, 200);
    let seen = rig.read(0, 0, 300).unwrap();
    assert_eq!((seen.len(), &seen[100..]), (200, &[0; 100][..]));
}

#[test]
fn a_broken_transfer_leaves_the_room_to_the_others_in_it() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[1; 4096]).unwrap();
    rig.commit(0, Stability::Unstable).unwrap();
    let file = rig.files[0].open;
    let (mut spans, mut jobs) = (Spans::new(), Vec::new());
    let mut prepare = |rig: &mut Rig| {
        spans.clear();
        match rig.cache.prepare_write(file, 0, 4096, &mut spans, &mut jobs) {
            Prepared::Ready(token) => (token, spans[0].offset as usize),
            _ => panic!("the block is there"),
        }
    };
    let ((broken, _), (whole, place)) = (prepare(&mut rig), prepare(&mut rig));
    rig.cache.arena().write(place, &[2; 4096]);
    // Another process has changed the file, so its clean blocks must be read again.
    let version = rig.files[0].disk.version().unwrap();
    let time_modify = Timestamp { seconds: 1, ..version.time_modify };
    rig.cache.revalidate(file, FileVersion { time_modify, ..version });
    let _ = rig.cache.write_abort(broken, Moment(1));
    rig.cache.plan_fill(file, 0, 4096, CacheHint::default(), &mut jobs);
    for job in jobs {
        let _ = rig.cache.on_filled(job.run());
    }
    let _ = rig.cache.write_done(whole, Moment(1));
    assert_eq!(rig.read(0, 0, 4096).unwrap(), [2; 4096]);
    rig.commit(0, Stability::Unstable).unwrap();
    assert_eq!(rig.disk(0), [2; 4096]);
}

#[test]
fn a_file_cut_to_nothing_and_closed_is_flushed_no_more() {
    let mut rig = Rig::new(2, 2 << 20);
    rig.write(0, 0, &[1; 5000]).unwrap();
    rig.set_size(0, 0);
    rig.cache.close(rig.files[0].open);
    rig.write(1, 0, &[2; 5000]).unwrap();
    rig.cache.on_tick(Moment(10_000_000_000));
    while let Some(job) = rig.cache.poll_flush() {
        let _ = rig.cache.on_flushed(job.run());
    }
    assert_eq!(rig.disk(1), rig.files[1].model);
}

#[test]
fn a_file_that_gets_a_name_again_keeps_what_was_written() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[1; 5000]).unwrap();
    let handle = rig.files[0].disk.handle();
    rig.cache.forget(&handle);
    rig.cache.remember(&handle);
    rig.cache.close(rig.files[0].open);
    rig.cache.flush_all();
    rig.progress();
    assert_eq!(rig.disk(0), rig.files[0].model);
}

#[test]
fn closed_and_forgotten_files_leave_the_tables() {
    let mut rig = Rig::new(3, 2 << 20);
    for index in 0..3 {
        rig.write(index, 0, &[1; 5000]).unwrap();
    }
    rig.commit(0, Stability::Unstable).unwrap();
    for index in 0..3 {
        rig.cache.close(rig.files[index].open);
    }
    let handles: Vec<_> = rig.files.iter().map(|file| file.disk.handle()).collect();
    rig.cache.forget(&handles[0]);
    rig.cache.forget(&handles[1]);
    let stats = rig.cache.stats();
    assert_eq!((stats.file_count, stats.dirty_bytes), (1, 8192));
    rig.cache.flush_all();
    rig.progress();
    assert_eq!(rig.cache.stats().dirty_bytes, 0);
    assert_eq!(rig.disk(2), rig.files[2].model);
    assert_eq!(Arc::strong_count(&rig.files[2].disk), 1, "no descriptor for closed clean files");
    rig.cache.forget(&handles[2]);
    assert_eq!((rig.cache.stats().file_count, rig.cache.stats().used_bytes), (0, 0));
}

#[test]
fn a_growing_file_is_flushed_while_it_grows() {
    const MIB: usize = 1 << 20;
    let mut rig = Rig::new(1, 64 * MIB);
    let mebibyte = |seed: u8| vec![seed; MIB];
    for number in 0..3 {
        rig.write(0, (number * MIB) as u64, &mebibyte(number as u8 + 1)).unwrap();
    }
    assert!(!rig.cache.wants_flush() && rig.cache.poll_flush().is_none(), "it is young and small");
    rig.write(0, 3 * MIB as u64, &mebibyte(4)).unwrap();
    assert!(rig.cache.wants_flush());
    let job = rig.cache.poll_flush().expect("four mebibytes are a job's worth");
    // Data that arrives during the flush waits for it.
    rig.write(0, 4 * MIB as u64, &mebibyte(5)).unwrap();
    assert!(rig.cache.poll_flush().is_none() && !rig.cache.wants_flush());
    let (disk, sizes) = (rig.files[0].disk.clone(), std::cell::RefCell::new(Vec::new()));
    let look = || sizes.borrow_mut().push(disk.version().unwrap().size);
    let _ = rig.cache.on_flushed(job.run_in_parts(look));
    let parts: Vec<u64> = (0..16).map(|part| part * (256 << 10)).collect();
    assert_eq!(sizes.into_inner(), parts, "a pause before each part, that others may go on");
    assert_eq!(rig.disk(0), rig.files[0].model[..4 * MIB]);
    assert!(
        rig.cache.wants_flush() && rig.cache.poll_flush().is_none(),
        "a mebibyte is too little"
    );
    // Blocks that the disk has already may be overwritten many times before they are flushed.
    for number in 0..4 {
        rig.write(0, (number * MIB) as u64, &mebibyte(number as u8 + 6)).unwrap();
    }
    assert!(!rig.cache.wants_flush() && rig.cache.poll_flush().is_none());
    rig.commit(0, Stability::Unstable).unwrap();
    assert_eq!(rig.disk(0), rig.files[0].model);
}

#[test]
fn what_is_old_is_flushed_to_its_end() {
    const MIB: usize = 1 << 20;
    let mut rig = Rig::new(1, 64 * MIB);
    rig.set_size(0, 16 << 20);
    for number in 0..9 {
        rig.write(0, (number * MIB) as u64, &vec![number as u8 + 1; MIB]).unwrap();
    }
    assert!(rig.cache.poll_flush().is_none());
    rig.now += 10_000_000;
    rig.cache.on_tick(Moment(rig.now));
    for part in 0..3 {
        let job = rig.cache.poll_flush().unwrap_or_else(|| panic!("part {part} is due"));
        assert!(rig.cache.poll_flush().is_none(), "one at a time");
        // Data that arrives meanwhile does not reset the age of the rest.
        rig.write(0, 15 << 20, &[part; 100]).unwrap();
        let _ = rig.cache.on_flushed(job.run());
    }
    assert_eq!(rig.disk(0)[..9 * MIB], rig.files[0].model[..9 * MIB]);
}

#[test]
fn a_write_is_later_than_what_the_disk_tells_to_the_nanosecond() {
    let mut rig = Rig::new(1, 2 << 20);
    let file = rig.files[0].open;
    for _ in 0..100 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let changed = Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 };
        let version = rig.files[0].disk.version().unwrap();
        let version = FileVersion { time_modify: changed, time_metadata: changed, ..version };
        rig.cache.revalidate(file, version);
        rig.write(0, 0, &[1; 100]).unwrap();
        let mut attributes = rig.files[0].disk.attributes().unwrap();
        (attributes.time_modify, attributes.time_metadata) = (changed, changed);
        rig.cache.overlay(file, &mut attributes);
        assert!(attributes.time_modify > changed && attributes.time_metadata > changed);
    }
}

#[test]
fn a_growing_file_passes_its_memory_on_and_keeps_its_beginning() {
    const MIB: usize = 1 << 20;
    let mut rig = Rig::new(1, 64 * MIB);
    for number in 0..24 {
        rig.write(0, (number * MIB) as u64, &vec![number as u8 + 1; MIB]).unwrap();
        while let Some(job) = rig.cache.poll_flush() {
            let _ = rig.cache.on_flushed(job.run());
        }
    }
    let used = rig.cache.stats().used_bytes as usize;
    assert!((4 * MIB..=12 * MIB).contains(&used), "{used} bytes of 24 MiB are cached");
    let misses = rig.cache.stats().miss_count;
    rig.check(0, 0, 4 * MIB);
    assert_eq!(rig.cache.stats().miss_count, misses, "a sixteenth of the cache stays");
    rig.check(0, 0, 24 * MIB);
    assert!(rig.cache.stats().miss_count > misses);
    rig.commit(0, Stability::FileSync).unwrap();
    assert_eq!(rig.disk(0), rig.files[0].model);
}

#[test]
fn a_flush_of_all_that_is_cached_leaves_what_a_stranger_did_beside_it() {
    let mut rig = Rig::new(2, 2 << 20);
    let stranger = |rig: &Rig, file: usize, offset: u64| {
        let memory = Memory::from_heap(vec![9; 4096].into_boxed_slice());
        rig.files[file].disk.inner.write_at(&memory, 0, 4096, offset).unwrap();
    };
    // A change after the end, while nothing else is cached.
    rig.write(0, 0, &[1; 4096]).unwrap();
    stranger(&rig, 0, 8192);
    rig.commit(0, Stability::Unstable).unwrap();
    rig.files[0].model = rig.disk(0);
    assert_eq!(rig.cache.size(rig.files[0].open), 12_288);
    rig.check(0, 0, 12_288);
    // A change in a block that a client has read since the flush began.
    rig.set_size(1, 12_288);
    rig.write(1, 0, &[2; 4096]).unwrap();
    let file = rig.files[1].open;
    let mut ticket = rig.cache.commit_begin(file, 0, 0, Stability::Unstable, Listener::Anybody);
    let CommitStep::Flush(job) = rig.cache.commit_step(&mut ticket) else { panic!("all is new") };
    assert_eq!(rig.read(1, 4096, 4096).unwrap(), [0; 4096]);
    stranger(&rig, 1, 4096);
    let _ = rig.cache.on_flushed(job.run());
    rig.files[1].model = rig.disk(1);
    rig.check(1, 0, 12_288);
}
