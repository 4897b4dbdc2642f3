//! Tests a server on a store whose calls panic on demand. The server must continue.
//!
//! Invariant: otherwise the store behaves like the one it wraps.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use dafs_client::{ClientError, OpenOptions, Session, Status};
use dafs_memory::{Memory, Pages};
use dafs_server::ServerConfig;
use dafs_store::{
    Altered, AttributeChanges, Attributes, Created, File, FileKey, ListPage, ListRequest, NewNode,
    Object, Removed, Renamed, Result, Store,
};
use dafs_types::{
    AccessMask, CacheHint, ChangeInfo, CreateMode, Credentials, FileHandle, FileSystemAttributes,
    ShareAccess, Stability, StateId,
};
use dafs_wire::messages::{Empty, WriteDirect};
use dafs_wire::{Checksum, DirectBuffers, Request};

use crate::batch::messages::{Batcher, One, PLACE, READ, SYNCHRONOUS, completions_of};
use crate::fixture::{Fixture, any, await_that, pattern};
use crate::rogue::Rogue;

/// After this time, a search that does not end counts as hanging.
const HANG: Duration = Duration::from_secs(60);

/// The call that panics or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Breaks {
    Nothing,
    Read,
    /// An error, reported at once.
    ReadRefused,
    Write,
    Sync,
    Size,
}

/// Lets a number of bytes be written, and blocks the next write until it is opened.
#[derive(Debug)]
pub(crate) struct Gate {
    bytes_left: Mutex<usize>,
    opened: Condvar,
}

impl Default for Gate {
    fn default() -> Self {
        Self { bytes_left: Mutex::new(usize::MAX), opened: Condvar::new() }
    }
}

impl Gate {
    /// Lets this number of bytes be written from now on.
    pub(crate) fn let_through(&self, bytes: usize) {
        *self.bytes_left.lock().unwrap() = bytes;
        self.opened.notify_all();
    }

    fn pass(&self, bytes: usize) {
        let left = self.bytes_left.lock().unwrap();
        let (mut left, late) =
            self.opened.wait_timeout_while(left, HANG, |left| *left < bytes).unwrap();
        assert!(!late.timed_out(), "the gate is never opened");
        if *left != usize::MAX {
            *left -= bytes;
        }
    }
}

/// Opens the gate when it is dropped, even by a panic, so that the server can end.
pub(crate) struct Opening<'g>(pub &'g Gate);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.let_through(usize::MAX);
    }
}

/// Controls which call of a [`FragileStore`] panics.
#[derive(Clone, Debug, Default)]
struct Fate {
    breaks: Arc<AtomicU8>,
    /// The number of failed reads.
    refused: Arc<AtomicUsize>,
    gate: Arc<Gate>,
}

impl Fate {
    fn set(&self, breaks: Breaks) {
        self.breaks.store(breaks as u8, Ordering::SeqCst);
    }

    fn is(&self, breaks: Breaks) -> bool {
        self.breaks.load(Ordering::SeqCst) == breaks as u8
    }

    fn meet(&self, call: Breaks) {
        assert!(!self.is(call), "planted: {call:?} panics");
    }
}

/// An object that must be searched for, and a search that blocks until it is released.
#[derive(Debug, Default)]
struct Lost {
    state: Mutex<LostState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LostState {
    handle: Option<FileHandle>,
    search_count: usize,
    may_end: bool,
}

/// Releases the search when it is dropped, even by a panic.
struct LetGo<'l>(&'l Lost);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.with(|lost| lost.may_end = true);
    }
}

impl Lost {
    fn with<T>(&self, act: impl FnOnce(&mut LostState) -> T) -> T {
        let done = act(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        done
    }

    fn wait_until(&self, is_so: impl Fn(&LostState) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, late) =
            self.changed.wait_timeout_while(state, HANG, |state| !is_so(state)).unwrap();
        assert!(!late.timed_out(), "a search hangs");
    }
}

struct FragileStore {
    inner: Arc<dyn Store>,
    fate: Fate,
    lost: Arc<Lost>,
}

struct FragileFile {
    inner: Arc<dyn File>,
    fate: Fate,
}

impl FragileStore {
    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FragileFile { inner, fate: self.fate.clone() })
    }
}

impl File for FragileFile {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn handle(&self) -> FileHandle {
        self.inner.handle()
    }

    fn read_at(&self, memory: &Memory, at: usize, length: usize, offset: u64) -> Result<usize> {
        self.fate.meet(Breaks::Read);
        if self.fate.is(Breaks::ReadRefused) {
            self.fate.refused.fetch_add(1, Ordering::SeqCst);
            return Err(dafs_store::StoreError::Io);
        }
        self.inner.read_at(memory, at, length, offset)
    }

    fn write_at(&self, memory: &Memory, at: usize, length: usize, offset: u64) -> Result<()> {
        self.fate.meet(Breaks::Write);
        self.fate.gate.pass(length);
        self.inner.write_at(memory, at, length, offset)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.fate.meet(Breaks::Sync);
        self.inner.sync(data_only)
    }

    fn attributes(&self) -> Result<Attributes> {
        self.inner.attributes()
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.fate.meet(Breaks::Size);
        self.inner.set_size(size)
    }
}

impl Store for FragileStore {
    fn defer_searches(&self) -> bool {
        self.inner.defer_searches();
        true
    }

    fn must_search(&self, handle: &FileHandle) -> bool {
        self.lost.with(|lost| lost.handle == Some(*handle)) || self.inner.must_search(handle)
    }

    fn search(&self, handles: &[FileHandle]) {
        self.lost.with(|lost| lost.search_count += 1);
        self.lost.wait_until(|lost| lost.may_end);
        self.lost.with(|lost| lost.handle.take_if(|handle| handles.contains(handle)));
        self.inner.search(handles);
    }

    fn renewed(&self, handle: &FileHandle) -> Option<FileHandle> {
        if handle.birth_node() == ALIAS_NODE { Some(unaliased(handle)) } else { None }
    }

    fn root(&self, who: &Credentials) -> Result<Object> {
        self.inner.root(who)
    }

    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object> {
        self.inner.lookup(who, directory, name)
    }

    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object> {
        self.inner.lookup_parent(who, directory)
    }

    fn attributes(&self, who: &Credentials, handle: &FileHandle) -> Result<Attributes> {
        self.inner.attributes(who, handle)
    }

    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered> {
        self.inner.set_attributes(who, handle, changes)
    }

    fn fs_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        self.inner.fs_attributes(who, handle)
    }

    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask> {
        self.inner.access(who, handle, wanted)
    }

    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        if self.lost.with(|lost| lost.handle == Some(*handle)) {
            return Err(dafs_store::StoreError::Busy);
        }
        self.inner.open(who, handle, access).map(|file| self.wrap(file))
    }

    fn create_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)> {
        let (created, file) =
            self.inner.create_file(who, directory, name, mode, changes, access)?;
        Ok((created, self.wrap(file)))
    }

    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        let (object, file) = self.inner.create_unlinked(who, directory, changes)?;
        Ok((object, self.wrap(file)))
    }

    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        self.inner.create_node(who, directory, name, node, changes)
    }

    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo> {
        self.inner.link(who, source, directory, name)
    }

    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed> {
        self.inner.remove(who, directory, name)
    }

    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed> {
        self.inner.rename(who, source, old_name, target, new_name)
    }

    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        self.inner.readdir(who, directory, request)
    }

    fn sync(&self, handle: &FileHandle) -> Result<()> {
        self.inner.sync(handle)
    }

    fn readlink(&self, who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>> {
        self.inner.readlink(who, handle)
    }
}

/// Starts a server with such a store, and a session.
fn fragile() -> (Fixture, Fate) {
    let (fixture, fate, _) = fragile_with(|_| {});
    (fixture, fate)
}

/// Starts a server whose writes to files must pass a gate.
pub(crate) fn gated(change: impl FnOnce(&mut ServerConfig)) -> (Fixture, Arc<Gate>) {
    let (fixture, fate, _) = fragile_with(change);
    (fixture, fate.gate)
}

/// Does the same with changes to its configuration, and an object that can be lost.
fn fragile_with(change: impl FnOnce(&mut ServerConfig)) -> (Fixture, Fate, Arc<Lost>) {
    let (fate, lost) = (Fate::default(), Arc::<Lost>::default());
    let (given, also) = (fate.clone(), lost.clone());
    let wrap = |inner| Arc::new(FragileStore { inner, fate: given, lost: also }) as Arc<dyn Store>;
    let fixture = Fixture::on_store_within(change, wrap);
    (fixture, fate, lost)
}

/// Checks the result of a request whose job panicked.
fn assert_server_fault<T: std::fmt::Debug>(result: dafs_client::Result<T>) {
    match result {
        Err(ClientError::Status { status, .. }) => assert_eq!(status, Status::ServerFault),
        other => panic!("not refused by its status: {other:?}"),
    }
}

fn write_new(session: &Session, name: &str) -> dafs_client::File {
    let file = session.open(name, &OpenOptions::write()).unwrap();
    file.write_at(&pattern(20_000, 7), 0).unwrap();
    file
}

#[test]
fn a_job_that_panics_fails_its_request_and_the_server_goes_on_and_ends() {
    let (fixture, fate) = fragile();
    let (_client, session) = fixture.connect(any());
    // More often than there are threads, in case a panic ended one.
    for round in 0..9 {
        let file = write_new(&session, &format!("/{round}"));
        fate.set(if round % 3 == 0 { Breaks::Write } else { Breaks::Sync });
        assert_server_fault(file.commit());
        fate.set(Breaks::Nothing);
    }
    let file = write_new(&session, "/whole");
    file.commit().unwrap();
    assert_eq!(std::fs::read(fixture.local("whole")).unwrap(), pattern(20_000, 7));
    file.close().unwrap();
    drop(session);
    fixture.stop();
}

#[test]
fn everybody_who_had_a_file_open_hears_once_that_its_data_was_lost() {
    let (fixture, fate) = fragile();
    let [(_first, writers), (_second, others), (_third, latecomers)] =
        std::array::from_fn(|_| fixture.connect(any()));
    for way in ["close", "commit", "append"] {
        let path = format!("/{way}");
        let writer = write_new(&writers, &path);
        let open = || others.open(&path, &OpenOptions::write()).unwrap();
        let (other, beside) = (open(), open());
        fate.set(Breaks::Write);
        assert_server_fault(other.commit());
        fate.set(Breaks::Nothing);
        // The loss was reported to one open. A later open has lost nothing.
        let late = latecomers.open(&path, &OpenOptions::write()).unwrap();
        late.close().unwrap();
        other.commit().unwrap();
        other.write_at(b"text", 0).unwrap();
        other.close().unwrap();
        // Its session was told.
        beside.close().unwrap();
        match way {
            "close" => assert_server_fault(writer.close()),
            "commit" => assert_server_fault(writer.commit()),
            _ => assert_server_fault(writer.append(b"more")),
        }
    }
    drop((writers, others, latecomers));
    fixture.stop();
}

#[test]
fn a_write_that_is_told_of_a_loss_does_not_keep_it_from_who_has_lost_the_data() {
    let (fixture, fate) = fragile();
    let ((_client, writers), (_other_client, others)) =
        (fixture.connect(any()), fixture.connect(any()));
    let writer = write_new(&writers, "/file");
    let other = others.open("/file", &OpenOptions::write()).unwrap();
    let third = others.open("/file", &OpenOptions::write()).unwrap();
    fate.set(Breaks::Write);
    // The data is written back after a while.
    await_that("a write is told that data was lost", || other.write_at(b"text", 0).is_err());
    fate.set(Breaks::Nothing);
    third.write_at(b"text", 0).unwrap();
    third.close().unwrap();
    assert_server_fault(writer.close());
    drop((writers, others));
    fixture.stop();
}

#[test]
fn a_file_that_is_opened_anew_to_learn_what_became_of_its_data_tells_of_a_loss() {
    let (fixture, fate) = fragile();
    let ((_client, writers), (_other_client, others)) =
        (fixture.connect(any()), fixture.connect(any()));
    let writer = write_new(&writers, "/file");
    let other = others.open("/file", &OpenOptions::write()).unwrap();
    fate.set(Breaks::Write);
    // The write-back happens before the first request, and another open is told of its failure.
    await_that("a write is told that data was lost", || other.write_at(b"text", 0).is_err());
    fate.set(Breaks::Nothing);
    let anew = || writers.open("/file", &OpenOptions::write()).unwrap().close();
    assert_server_fault(anew());
    assert_server_fault(writer.close());
    // No data of the current opens is lost any more.
    anew().unwrap();
    drop((writers, others));
    fixture.stop();
}

#[test]
fn a_read_and_a_truncation_that_panic_fail_and_can_be_tried_again() {
    let (fixture, fate) = fragile();
    // Much more than the serving thread reads at once.
    let data = pattern(6 << 20, 9);
    std::fs::write(fixture.local("big"), &data).unwrap();
    let (_client, session) = fixture.connect(any());
    let file = session.open("/big", &OpenOptions::write()).unwrap();
    let mut back = vec![0; data.len()];
    fate.set(Breaks::Read);
    assert_server_fault(file.read_at(&mut back, 0));
    fate.set(Breaks::Size);
    assert_server_fault(file.set_len(1000));
    fate.set(Breaks::Nothing);
    assert_eq!(file.read_at(&mut back, 0).unwrap(), data.len());
    assert_eq!(back, data);
    file.set_len(1000).unwrap();
    file.close().unwrap();
    drop(session);
    fixture.stop();
}

#[test]
fn what_cannot_be_read_is_told_though_it_fails_at_once() {
    let (fixture, fate) = fragile();
    // The serving thread reads this little itself, and must not retry forever.
    std::fs::write(fixture.local("small"), pattern(4096, 9)).unwrap();
    let (_client, session) = fixture.connect(any());
    let file = session.open("/small", &OpenOptions::write()).unwrap();
    fate.set(Breaks::ReadRefused);
    assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap_err().status(), Some(Status::Io));
    assert_eq!(file.write_at(b"text", 1).unwrap_err().status(), Some(Status::Io));
    let tries = fate.refused.load(Ordering::SeqCst);
    assert!(tries <= 4, "{tries} tries");
    fate.set(Breaks::Nothing);
    let mut back = vec![0; 4096];
    assert_eq!(file.read_at(&mut back, 0).unwrap(), 4096);
    assert_eq!(back, pattern(4096, 9));
    drop((file, session));
    fixture.stop();
}

#[test]
fn a_search_keeps_nobody_waiting_but_those_who_asked_for_it() {
    let (fixture, _, lost) = fragile_with(|_| {});
    std::fs::write(fixture.local("lost"), b"found").unwrap();
    std::fs::write(fixture.local("other"), b"here").unwrap();
    let (_client, session) = fixture.connect(any());
    let handle = session.open("/lost", &OpenOptions::read()).unwrap().handle();
    lost.with(|lost| lost.handle = Some(handle));
    std::thread::scope(|scope| {
        let let_go = LetGo(&lost);
        let askers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (_client, session) = fixture.connect(any());
                    session.metadata("/lost").map(|found| found.size)
                })
            })
            .collect();
        // An OPEN by handle finds out itself that it must wait.
        let opener = scope.spawn(|| {
            let (_client, session) = fixture.connect(any());
            session.open_handle(handle, "lost", &OpenOptions::read())?.close()
        });
        lost.wait_until(|lost| lost.search_count > 0);
        for _ in 0..100 {
            assert_eq!(session.metadata("/other").unwrap().size, 4);
            session.create_dir("/d", 0o700).unwrap();
            session.remove("/d").unwrap();
        }
        assert!(askers.iter().all(|asker| !asker.is_finished()), "they wait for the search");
        assert!(!opener.is_finished(), "it waits, too");
        drop(let_go);
        for asker in askers {
            assert_eq!(asker.join().unwrap().unwrap(), 5);
        }
        opener.join().unwrap().unwrap();
    });
    // Requests that arrive during a search share the next one.
    assert!(lost.with(|lost| lost.search_count) <= 2);
    drop(session);
    fixture.stop();
}

#[test]
fn a_batch_waits_for_a_search_and_later_ones_of_its_session_wait_behind_it() {
    let (fixture, _, lost) = fragile_with(|_| {});
    let data = pattern(2 * PLACE, 3);
    std::fs::write(fixture.local("file"), &data).unwrap();
    let mut batcher = Batcher::connect(&fixture, any(), b"batcher");
    let state = std::mem::replace(&mut batcher.state, StateId::ANONYMOUS);
    lost.with(|lost| lost.handle = Some(batcher.file));
    batcher.send(1, &[One(0, READ, 0, PLACE as u32)], SYNCHRONOUS);
    lost.wait_until(|lost| lost.search_count > 0);
    // An open file needs no search.
    batcher.state = state;
    batcher.send(2, &[One(1, READ, PLACE as u64, PLACE as u32)], SYNCHRONOUS);
    assert_eq!(batcher.rogue.outcome(&Request::Null(Empty)), Some(Status::Ok));
    assert!(!batcher.rogue.has_answer(), "a batch was answered before the search was over");
    lost.with(|lost| lost.may_end = true);
    for name in 0..2 {
        let done = completions_of(&batcher.rogue.answer().unwrap());
        let done: Vec<_> = done.iter().map(|done| (done.request.0, done.status)).collect();
        assert_eq!(done, [(name, Status::Ok)]);
    }
    assert_eq!(batcher.bytes(0, data.len()), data);
}

#[test]
fn large_writes_are_summed_by_the_pool_and_the_server_goes_on() {
    const LENGTH: u32 = 1 << 20;
    let (fixture, _, lost) = fragile_with(|config| config.pool_threads = 1);
    for name in ["lost", "plain", "sealed"] {
        std::fs::write(fixture.local(name), b"").unwrap();
    }
    let (_client, session) = fixture.connect(any());
    let handle = session.open("/lost", &OpenOptions::read()).unwrap().handle();
    let data = pattern(LENGTH as usize, 3);
    let own = Memory::shared(data.len(), Pages::Small).unwrap();
    own.write(0, &data);
    let writing = |rogue: &mut Rogue, name| {
        let (file, state) = rogue.open(name);
        let region = rogue.expose(&own);
        let buffers = [rogue.buffer(&region, 0, LENGTH)];
        let buffers = DirectBuffers::from(&buffers[..]);
        let (length, hint) = (LENGTH, CacheHint::default());
        let (stability, checksum) = (Stability::Unstable, Checksum::of(&data));
        let offset = 0;
        let write = WriteDirect { file, state, offset, length, stability, hint, checksum, buffers };
        rogue.begin(&Request::WriteDirect(write));
    };
    let mut plain = Rogue::logged_in(&fixture.address(any()));
    let mut sealed = Rogue::logged_in_sealed(&fixture.address(any()));
    lost.with(|lost| lost.handle = Some(handle));
    std::thread::scope(|scope| {
        let let_go = LetGo(&lost);
        let asker = scope.spawn(|| {
            let (_client, session) = fixture.connect(any());
            session.metadata("/lost").map(|found| found.size)
        });
        lost.wait_until(|lost| lost.search_count > 0);
        // The pool is fully occupied.
        writing(&mut sealed, "sealed");
        writing(&mut plain, "plain");
        assert_eq!(plain.status(), Some(Status::Ok), "what is not summed needs no pool");
        for _ in 0..100 {
            assert_eq!(plain.outcome(&Request::Null(Empty)), Some(Status::Ok));
            assert!(!sealed.has_answer(), "the thread that serves everybody has summed it");
        }
        drop(let_go);
        assert_eq!(sealed.status(), Some(Status::Ok));
        assert_eq!(asker.join().unwrap().unwrap(), 0);
    });
    for name in ["/plain", "/sealed"] {
        let mut seen = vec![0; data.len()];
        let file = session.open(name, &OpenOptions::read()).unwrap();
        assert_eq!(file.read_at(&mut seen, 0).unwrap(), data.len());
        assert!(seen == data, "{name}");
    }
}

/// Returns a handle that only [`FragileStore::renewed`] understands.
fn aliased(handle: &FileHandle) -> FileHandle {
    let mut alias = *handle;
    alias.0[6..8].copy_from_slice(&ALIAS_NODE.to_le_bytes());
    alias
}

fn unaliased(alias: &FileHandle) -> FileHandle {
    let mut handle = *alias;
    handle.0[6..8].fill(0);
    handle
}

const ALIAS_NODE: u16 = 0x1234;

#[test]
fn requests_with_handles_of_an_older_form_are_about_the_same_objects() {
    let (fixture, _) = fragile();
    std::fs::write(fixture.local("file"), b"text").unwrap();
    let (_client, session) = fixture.connect(any());
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    let handle = file.handle();
    let old = session.reader(aliased(&handle), "/file");
    let mut bytes = [0; 4];
    assert_eq!(old.read_at(&mut bytes, 0).unwrap(), 4);
    assert_eq!(&bytes, b"text");
    // Unflushed data written through one handle is read through the other.
    file.write_at(b"next", 0).unwrap();
    assert_eq!(old.read_at(&mut bytes, 0).unwrap(), 4);
    assert_eq!(&bytes, b"next");
}
