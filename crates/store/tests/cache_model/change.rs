//! Tests the change attribute of files and directories of a real file system, as clients see it:
//! through evictions, restarts and crashes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

use dafs_store::NewNode;
use dafs_store::local::{LocalConfig, LocalStore};

use rustix::time::{ClockId, clock_getres, clock_gettime};

use super::*;

/// A file with the stamps of kernels before Linux 6.13, which have only the resolution of the
/// clock's ticks.
struct Ticking {
    inner: Arc<dyn File>,
    stamp: Arc<Mutex<Timestamp>>,
}

impl Ticking {
    fn stamp(&self) {
        *self.stamp.lock().unwrap() = time_of(ClockId::RealtimeCoarse);
    }
}

impl File for Ticking {
    fn key(&self) -> FileKey {
        self.inner.key()
    }
    fn handle(&self) -> FileHandle {
        self.inner.handle()
    }
    fn read_at(&self, m: &Memory, at: usize, len: usize, from: u64) -> Result<usize, StoreError> {
        self.inner.read_at(m, at, len, from)
    }
    fn write_at(&self, m: &Memory, at: usize, len: usize, to: u64) -> Result<(), StoreError> {
        self.stamp();
        self.inner.write_at(m, at, len, to)
    }
    fn sync(&self, data_only: bool) -> Result<(), StoreError> {
        self.inner.sync(data_only)
    }
    fn mark_changed(&self) {
        self.stamp();
    }
    fn attributes(&self) -> Result<Attributes, StoreError> {
        let [exact, coarse] = [ClockId::Realtime, ClockId::RealtimeCoarse].map(nanoseconds);
        let mut attributes = self.inner.attributes()?;
        let stamp = *self.stamp.lock().unwrap();
        (attributes.time_modify, attributes.time_metadata) = (stamp, stamp);
        let changed = stamp.seconds as u64 * 1_000_000_000 + u64::from(stamp.nanoseconds);
        let settled = changed + 2 * tick();
        let is_over = coarse > changed && exact >= settled;
        attributes.change = if is_over { settled } else { exact };
        Ok(attributes)
    }
    fn set_size(&self, size: u64) -> Result<(), StoreError> {
        self.stamp();
        self.inner.set_size(size)
    }
    fn deallocate(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.stamp();
        self.inner.deallocate(offset, length)
    }
}

fn time_of(clock: ClockId) -> Timestamp {
    let time = clock_gettime(clock);
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time between two stamps of the kernel.
fn tick() -> u64 {
    let tick = clock_getres(ClockId::RealtimeCoarse);
    tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
}

/// Returns true if the coarse clock is less than two ticks late. On a machine with too few
/// processors it may be later.
fn is_on_time() -> bool {
    let coarse = nanoseconds(ClockId::RealtimeCoarse);
    nanoseconds(ClockId::Realtime) < coarse + 2 * tick()
}

/// Waits until the coarse clock has advanced.
fn pass_tick() {
    let before = nanoseconds(ClockId::RealtimeCoarse);
    while nanoseconds(ClockId::RealtimeCoarse) == before {
        std::thread::yield_now();
    }
}

/// Waits until the change attributes of all files that were changed before have settled.
fn settle() {
    pass_tick();
    pass_tick();
}

/// A server's store and cache, and what a client has seen of one file.
struct Server {
    _directory: tempfile::TempDir,
    tree: PathBuf,
    config: LocalConfig,
    store: LocalStore,
    cache: Cache,
    open: CachedFile,
    file: Arc<dyn File>,
    now: u64,
    next: u64,
    /// The content that was read with each change attribute.
    shown: HashMap<u64, Vec<u8>>,
    /// The stamp of a [`Ticking`] file.
    stamp: Option<Arc<Mutex<Timestamp>>>,
    /// True if the numbers must never decrease; then the highest so far.
    rises: bool,
    highest: u64,
    /// A flush that is done but not reported to the cache.
    pending: Option<FlushDone>,
}

impl Server {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tree, state) = (directory.path().join("tree"), directory.path().join("state"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), b"nothing yet").unwrap();
        std::fs::write(tree.join("other"), b"").unwrap();
        let config = LocalConfig::new(&tree, state);
        let (store, cache) = begin(&config);
        let (mut cache, file) = (cache, open(&store, "file"));
        let open = cache.open(file.clone(), file.version().unwrap()).unwrap();
        let shown = HashMap::new();
        Self {
            _directory: directory,
            tree,
            config,
            store,
            cache,
            open,
            file,
            now: 0,
            next: 0,
            shown,
            stamp: None,
            rises: false,
            highest: 0,
            pending: None,
        }
    }

    /// A server that is not killed and whose file is [`Ticking`].
    fn steady() -> Self {
        let mut server = Self::new();
        server.stamp = Some(Arc::new(Mutex::new(time_of(ClockId::RealtimeCoarse))));
        server.evict();
        server.rises = true;
        server
    }

    fn write(&mut self) {
        self.next += 1;
        let bytes = self.next.to_be_bytes();
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        loop {
            match self.cache.prepare_write(self.open, 0, 8, &mut spans, &mut jobs) {
                Prepared::Ready(token) => {
                    self.cache.arena().write(spans[0].offset as usize, &bytes);
                    let _ = self.cache.write_done(token, Moment(self.now));
                    return;
                }
                Prepared::Fill => {
                    for job in jobs.drain(..) {
                        let _ = self.cache.on_filled(job.run());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Writes dirty data to the file without telling the cache yet.
    fn begin_flush(&mut self) {
        self.deliver();
        let stability = Stability::Unstable;
        let mut ticket = self.cache.commit_begin(self.open, 0, 0, stability, Listener::Anybody);
        if let CommitStep::Flush(job) = self.cache.commit_step(&mut ticket) {
            self.pending = Some(job.run());
        }
    }

    fn deliver(&mut self) {
        if let Some(done) = self.pending.take() {
            let _ = self.cache.on_flushed(done);
        }
    }

    fn commit(&mut self) {
        self.deliver();
        let mut ticket =
            self.cache.commit_begin(self.open, 0, 0, Stability::Unstable, Listener::Anybody);
        loop {
            match self.cache.commit_step(&mut ticket) {
                CommitStep::Flush(job) => drop(self.cache.on_flushed(job.run())),
                CommitStep::Done(result) => return result.unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Closes the file, evicts its entry by opening another file, and opens it again.
    fn evict(&mut self) {
        self.commit();
        self.cache.close(self.open);
        let other = open(&self.store, "other");
        let held = self.cache.open(other.clone(), other.version().unwrap()).unwrap();
        self.cache.close(held);
        assert!(self.cache.find(&self.file.handle()).is_none(), "its entry is gone");
        self.reopen();
    }

    fn reopen(&mut self) {
        self.file = open(&self.store, "file");
        if let Some(stamp) = &self.stamp {
            self.file = Arc::new(Ticking { inner: self.file.clone(), stamp: stamp.clone() });
        }
        self.open = self.cache.open(self.file.clone(), self.file.version().unwrap()).unwrap();
    }

    /// Kills the server, with all data that it has not written, and restarts it.
    fn crash(&mut self) {
        (self.store, self.cache) = begin(&self.config);
        self.reopen();
    }

    /// Evicts a file that does not change. It must keep the number that it had while cached.
    fn evict_at_rest(&mut self) {
        self.commit();
        let before = self.look();
        let is_settled = self.look() == before;
        self.evict();
        if is_settled {
            assert_eq!(self.look(), before, "its number has changed with its place");
        }
    }

    fn cut(&mut self, while_under_way: impl FnOnce(&mut Self)) {
        self.deliver();
        self.next += 1;
        match self.cache.set_size(self.open, 8 + self.next % 8) {
            SizeStep::Job(job) => {
                let done = job.run();
                while_under_way(self);
                assert_eq!(self.cache.on_sized(done).error, None);
            }
            SizeStep::Wait => panic!("nothing is under way"),
        }
    }

    /// Makes a hole in the file, which then has other bytes than before.
    fn punch(&mut self, while_under_way: impl FnOnce(&mut Self)) {
        self.write();
        loop {
            self.commit();
            match self.cache.work_on_range(self.open, RangeWork::Deallocate, (3, 5)) {
                RangeStep::Job(job) => {
                    let done = job.run_in_parts(|| ());
                    while_under_way(self);
                    let _ = self.cache.on_ranged(&done);
                    return;
                }
                RangeStep::Dirty => {}
                RangeStep::Wait => panic!("nothing is under way"),
            }
        }
    }

    fn change_mode(&self) {
        let mode = 0o600 + (self.next % 8) as u32;
        let changes = AttributeChanges { mode: Some(mode), ..AttributeChanges::default() };
        self.store
            .set_attributes(&Credentials::superuser(), &self.file.handle(), &changes)
            .unwrap();
    }

    /// Does a GETATTR and a READ like a server.
    fn look(&mut self) -> u64 {
        let was_on_time = is_on_time();
        let mut attributes = self.file.attributes().unwrap();
        self.cache.revalidate(self.open, FileVersion::from(&attributes));
        self.cache.overlay(self.open, &mut attributes);
        if self.rises && was_on_time && is_on_time() {
            assert!(
                attributes.change >= self.highest,
                "back by {}",
                self.highest - attributes.change
            );
            self.highest = attributes.change;
        }
        if let Some(content) = self.read() {
            let before = self.shown.entry(attributes.change).or_insert_with(|| content.clone());
            assert_eq!(*before, content, "{} stands for both", attributes.change);
        }
        attributes.change
    }

    /// Reads the file. `None` if a READ would have to wait.
    fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut pieces = Pieces::new();
            match self.cache.read(self.open, 0, 4096, &mut pieces) {
                Read::Hit { .. } => {
                    let arena = self.cache.arena().clone();
                    let mut bytes = Vec::new();
                    for piece in pieces {
                        bytes.extend(arena.to_vec(piece.offset as usize, piece.length as usize));
                        self.cache.unpin(piece.pin);
                    }
                    return Some(bytes);
                }
                Read::Miss => {
                    let mut jobs = Vec::new();
                    let hint = CacheHint::default();
                    if self.cache.plan_fill(self.open, 0, 4096, hint, &mut jobs) == Planned::Wait {
                        return None;
                    }
                    for job in jobs {
                        let _ = self.cache.on_filled(job.run());
                    }
                }
            }
        }
    }
}

fn begin(config: &LocalConfig) -> (LocalStore, Cache) {
    let cache = Cache::new(CacheConfig { file_count_max: 1, ..CacheConfig::default() });
    (LocalStore::new(config).unwrap(), cache.unwrap())
}

fn open(store: &LocalStore, name: &str) -> Arc<dyn File> {
    let who = Credentials::superuser();
    let top = store.root(&who).unwrap().handle;
    let handle = store.lookup(&who, &top, name.as_bytes()).unwrap().handle;
    store.open(&who, &handle, ShareAccess::Both).unwrap()
}

#[test]
fn the_change_attribute_of_an_evicted_file_never_stands_for_other_content() {
    let mut server = Server::new();
    for _ in 0..20 {
        for _ in 0..5 {
            server.write();
            server.look();
        }
        server.evict();
    }
}

#[test]
fn the_change_attribute_goes_on_over_a_restart_of_the_server() {
    let mut server = Server::new();
    for round in 0..20 {
        for _ in 0..5 {
            server.write();
            server.look();
        }
        if round % 2 == 0 {
            server.commit();
        }
        server.crash();
    }
}

#[test]
fn a_change_of_size_has_a_number_of_its_own_though_it_takes_long() {
    let mut server = Server::new();
    server.write();
    server.commit();
    for _ in 0..3 {
        server.look();
        server.cut(|server| {
            // The file has its new size, but the cache still returns the old content.
            let file = server.tree.join("file");
            let cut = std::fs::metadata(&file).unwrap().modified().unwrap();
            while cut.elapsed().is_ok_and(|since| since < Duration::from_millis(50)) {
                std::thread::yield_now();
            }
            server.look();
        });
        server.look();
        server.evict();
        server.look();
    }
}

#[test]
fn a_directory_has_a_new_change_attribute_after_each_change() {
    let mut server = Server::new();
    let who = Credentials::superuser();
    let top = server.store.root(&who).unwrap().handle;
    let none = AttributeChanges::default();
    let mut seen = HashMap::new();
    for number in 0..100 {
        let name = format!("d{}", number % 10);
        let change = if number % 20 < 10 {
            let made =
                server.store.create_node(&who, &top, name.as_bytes(), NewNode::Directory, &none);
            made.unwrap().change
        } else {
            server.store.remove(&who, &top, name.as_bytes()).unwrap().change
        };
        let now = server.store.attributes(&who, &top).unwrap().change;
        // The state of the directory that each number was reported for.
        for (shown, state) in
            [(change.before, number), (change.after, number + 1), (now, number + 1)]
        {
            assert_eq!(*seen.entry(shown).or_insert(state), state, "{shown} stands for both");
        }
        if number % 30 == 7 {
            server.crash();
        }
    }
}

#[test]
fn a_file_that_rests_keeps_its_change_attribute() {
    let mut server = Server::new();
    server.write();
    server.commit();
    let mut last = server.look();
    // Waits until the change attribute has settled.
    let settled = loop {
        std::thread::yield_now();
        let shown = server.look();
        if shown == last {
            break shown;
        }
        last = shown;
    };
    server.evict();
    assert_eq!(server.look(), settled);
    server.crash();
    assert_eq!(server.look(), settled);
}

#[test]
fn a_file_that_is_written_within_one_tick_keeps_its_number_when_it_leaves_the_cache() {
    let mut server = Server::steady();
    for _ in 0..20 {
        server.write();
        server.commit();
        server.write();
        server.begin_flush();
        server.look();
        settle();
        server.look();
        settle();
        server.evict_at_rest();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_number_goes_back_as_long_as_the_server_lives(
        steps in prop::collection::vec(0..13u8, 1..60),
    ) {
        let mut server = Server::steady();
        for step in steps {
            match step {
                0..3 => server.write(),
                3 => server.commit(),
                4 => server.begin_flush(),
                5 => server.deliver(),
                6 => server.evict_at_rest(),
                7 => server.cut(|_| ()),
                8 => server.punch(|_| ()),
                9 => pass_tick(),
                10 => settle(),
                _ => {
                    server.look();
                }
            }
        }
        server.look();
    }

    #[test]
    fn no_history_shows_one_number_for_two_contents(
        steps in prop::collection::vec(0..11u8, 1..120),
    ) {
        let mut server = Server::new();
        for step in steps {
            match step {
                0..3 => server.write(),
                3 => server.commit(),
                4 => server.evict(),
                5 => server.crash(),
                6 => {
                    server.commit();
                    server.cut(|server| {
                        server.look();
                    });
                }
                7 => server.change_mode(),
                8 => server.punch(|server| {
                    server.look();
                }),
                _ => {
                    server.look();
                }
            }
        }
        server.look();
    }
}
