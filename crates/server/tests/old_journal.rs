//! This version recovers from a journal that an earlier version of the server has left. Stored
//! results are kept, requests in flight get a verdict, locks can be reclaimed, changes under locks
//! are rolled back, and fences stay in force.
//!
//! `old_journal/be567f9.pack` was written by commit be567f9. To make such a file, put this module
//! into a checkout of that commit and run its ignored test there:
//!
//! ```text
//! git worktree add /tmp/old be567f9
//! cp crates/server/tests/old_journal.rs /tmp/old/crates/server/tests/
//! cd /tmp/old && DAFS_PACK=be567f9.pack cargo test -p dafs-server --test old_journal -- --ignored
//! ```
//!
//! The store is in memory. Objects get their handles in order of creation, so the handles in the
//! journal are valid for any store that is filled in the same way. The changes that the old server
//! made to its store are made by the test ([`as_left`]).

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dafs_dat::{
    Address, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Operation, Region, Rights, SendOptions, WaitPolicy,
};
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_memory::{Memory, Pages};
use dafs_server::{JournalConfig, ServerConfig, SteppedServer};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{AttributeChanges, Credentials, NewNode, Store};
use dafs_types::{
    CacheHint, CreateMode, DeleteDisposition, FileHandle, Moment, Random, RemoveMode,
    SequenceNumber, SessionId, SetAttributes, ShareAccess, ShareDeny, Stability, StateId, Status,
    StreamId, Verifier,
};
use dafs_wire::messages::{
    AppendInline, AuthRequest, CachedResponse, ClientConnectAuth, Create, DelegationType, Empty,
    FenceAccess, FenceObject, FenceUpdate, GetAttributes, GetFencingList, InlineData, Link, Lock,
    LockOptions, LockType, NewObject, Open, OpenCreation, OpenTarget, Placement, ReadInline,
    Remove, Rename, SessionOptions, SetAttributesInline, SetFencingList, WriteInline,
};
use dafs_wire::{
    Array, AttributeBitmap, ByteOrder, ChannelType, ConnectData, FileAttributeBlock, HEADER_BYTES,
    Path, Procedure, Request, RequestHeader, Response, decode_response, encode_request,
};

// ---- the exported files -------------------------------------------------------------------

/// The files of the export and their contents. Their handles depend on this order.
const FILES: [(&str, &[u8]); 8] = [
    ("locked", b"locked"),
    ("undone", b"original"),
    ("fenced", b""),
    ("victim", b""),
    ("old", b""),
    ("mode", b""),
    ("source", b""),
    ("log", b"first."),
];

/// The bytes that the earlier server had appended, and those of its append in progress.
const APPENDED: &[u8] = b"second.";
const APPENDING: &[u8] = b"third.";
/// The bytes that the earlier server wrote over "original".
const CHANGED: &[u8] = b"changed!";

fn furnished() -> Arc<MemoryStore> {
    let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
    let store = Arc::new(MemoryStore::new(limits));
    let root = root_of(&*store);
    for (name, content) in FILES {
        let (who, changes) = (Credentials::superuser(), AttributeChanges::default());
        let (mode, access) = (CreateMode::Guarded, ShareAccess::Both);
        let name = name.as_bytes();
        let (_, file) = store.create_file(&who, &root, name, mode, &changes, access).unwrap();
        let memory = Memory::from_heap(content.to_vec().into());
        file.write_at(&memory, 0, content.len(), 0).unwrap();
    }
    store
}

fn root_of(store: &dyn Store) -> FileHandle {
    store.root(&Credentials::superuser()).unwrap().handle
}

fn handle_of(store: &dyn Store, name: &str) -> Option<FileHandle> {
    let found = store.lookup(&Credentials::superuser(), &root_of(store), name.as_bytes());
    found.ok().map(|object| object.handle)
}

fn content_of(store: &dyn Store, name: &str) -> Vec<u8> {
    let handle = handle_of(store, name).unwrap();
    let file = store.open(&Credentials::superuser(), &handle, ShareAccess::Read).unwrap();
    let size = usize::try_from(file.version().unwrap().size).unwrap();
    let memory = Memory::from_heap(vec![0; size].into());
    file.read_at(&memory, 0, size, 0).unwrap();
    memory.to_vec(0, size)
}

/// The store as the crash has left it: all requests in flight had their effect, except the creation
/// of the directory "never".
fn as_left() -> Arc<MemoryStore> {
    let store = furnished();
    let (who, root) = (Credentials::superuser(), root_of(&*store));
    let none = AttributeChanges::default();
    let directory = |name: &[u8]| {
        store.create_node(&who, &root, name, NewNode::Directory, &none).unwrap();
    };
    let file = |name: &[u8]| {
        let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
        store.create_file(&who, &root, name, mode, &none, access).unwrap()
    };
    let write = |name: &str, at: u64, content: &[u8]| {
        let handle = handle_of(&*store, name).unwrap();
        let file = store.open(&who, &handle, ShareAccess::Write).unwrap();
        let memory = Memory::from_heap(content.to_vec().into());
        file.write_at(&memory, 0, content.len(), at).unwrap();
    };
    directory(b"kept");
    file(b"opened");
    write("log", 6, APPENDED);
    write("undone", 0, CHANGED);
    directory(b"made");
    store.rename(&who, &root, b"old", &root, b"new").unwrap();
    store.remove(&who, &root, b"victim").unwrap();
    let mode = AttributeChanges { mode: Some(0o600), ..none };
    store.set_attributes(&who, &handle_of(&*store, "mode").unwrap(), &mode).unwrap();
    store.link(&who, &handle_of(&*store, "source").unwrap(), &root, b"linked").unwrap();
    file(b"born");
    write("log", 13, APPENDING);
    store
}

// ---- a server and its clients --------------------------------------------------------------

struct Scene {
    server: SteppedServer,
    /// Time advances by `step` with each step of the server.
    now: Moment,
    step: Duration,
}

impl Scene {
    fn new(store: Arc<MemoryStore>, journal: &FilePath, seed: u64) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("dafs-old-journal-{}-{count}", std::process::id());
        let wait = WaitPolicy { spin_max: Duration::ZERO };
        let log = LogConfig {
            segment_bytes: 96 << 10,
            segment_count_max: 64,
            spare_segment_count: 0,
            record_bytes_max: 4 << 10,
            buffered_bytes_max: 8 << 10,
            checkpoint_after_bytes: 24 << 10,
            checkpoint_bytes_max: 128 << 10,
            checkpoint_chunk_bytes: 4 << 10,
        };
        let storage = Arc::new(DirectoryStorage::open(journal).unwrap());
        let mut config = ServerConfig {
            listen: vec![Address::Shm(std::env::temp_dir().join(socket))],
            wait,
            journal: Some(JournalConfig { storage, log, undo: UndoConfig::default() }),
            ..ServerConfig::default()
        };
        config.cache.arena_bytes = 4 << 20;
        config.cache.dirty_bytes_max = 1 << 20;
        config.cache.file_count_max = 100;
        config.sessions.authentication.anonymous = Some(Credentials::superuser());
        config.filer.delegations.enabled = false;
        let interface = InterfaceConfig { wait, ..InterfaceConfig::default() };
        let interface = Interface::serving(interface).unwrap();
        let mut random = Random::new(seed);
        let (entropy, order) = (Box::new(random.fork()), Box::new(random.fork()));
        let server = SteppedServer::new(&config, store, vec![interface], entropy, order).unwrap();
        Self { server, now: Moment(0), step: Duration::from_micros(10) }
    }

    fn step(&mut self) {
        self.now = self.now.after(self.step);
        self.server.step(0, self.now);
    }
}

struct Client {
    interface: Interface,
    endpoint: EndpointId,
    slots: Region,
    inbox: Memory,
    session: SessionId,
    root: FileHandle,
}

impl Client {
    fn connect(scene: &mut Scene, name: &[u8], fence_id: &str) -> Self {
        let wait = WaitPolicy { spin_max: Duration::ZERO };
        let config = InterfaceConfig { wait, ..InterfaceConfig::default() };
        let mut interface = Interface::new(config).unwrap();
        let data =
            ConnectData { client_instance: 1, client_session: 1, channel: ChannelType::Operation };
        let data = data.encode(ORDER);
        let (address, config) = (scene.server.addresses()[0].clone(), EndpointConfig::default());
        let endpoint = interface.connect(&address, Domain(0), &config, &data).unwrap();
        let inbox = Memory::anonymous(SLOTS * SLOT_BYTES as usize, Pages::Small).unwrap();
        let slots = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let (session, root) = (SessionId(0), FileHandle::NULL);
        let mut client = Self { interface, endpoint, slots, inbox, session, root };
        while !matches!(client.event(scene), Event::Established { .. }) {}
        let login = Request::ClientConnectAuth(ClientConnectAuth {
            options: SessionOptions { response_cache: true, ..SessionOptions::default() },
            fence_id,
            client_string: name,
            verifier: Verifier([7; 8]),
            authentication: AuthRequest::None,
        });
        let message = client.ask(scene, 0, 0, &login);
        match decode_response(ORDER, Procedure::ClientConnectAuth, &message) {
            Ok((_, Response::ClientConnectAuth(connected))) => client.session = connected.session,
            other => panic!("{other:?}"),
        }
        let message = client.ask(scene, 0, 1, &Request::GetRootHandle(Empty));
        match decode_response(ORDER, Procedure::GetRootHandle, &message) {
            Ok((_, Response::GetRootHandle(root))) => client.root = root.file,
            other => panic!("{other:?}"),
        }
        client
    }

    fn event(&mut self, scene: &mut Scene) -> Event {
        for _ in 0..TURNS_MAX {
            if let Some(event) = self.interface.next_event() {
                return event;
            }
            self.interface.poll();
            scene.step();
        }
        panic!("no answer and no end");
    }

    /// Sends a request. The reply arrives in the slot of its stream.
    fn send(&mut self, stream: u16, sequence: u16, request: &Request<'_>) {
        let mut message = vec![0; SLOT_BYTES as usize];
        let header = RequestHeader {
            desired_credits: SLOTS as u16,
            ..RequestHeader::new(StreamId(stream), SequenceNumber(sequence))
        };
        let length = encode_request(ORDER, &header, request, &mut message).unwrap();
        let slot = self.slots.local(u64::from(stream) * u64::from(SLOT_BYTES), SLOT_BYTES);
        self.interface.post_receive(self.endpoint, u64::from(stream), &[slot]).unwrap();
        let (gather, options) = ([Gather::Bytes(&message[..length])], SendOptions::default());
        self.interface.post_send(self.endpoint, SENT, &gather, options).unwrap();
        self.interface.flush();
    }

    /// Waits for the next reply.
    fn answer(&mut self, scene: &mut Scene) -> Vec<u8> {
        loop {
            match self.event(scene) {
                Event::Completion(done) if done.operation == Operation::Receive => {
                    assert_eq!(done.status, CompletionStatus::Success);
                    // Receives are used in order; only one is posted while a reply is awaited.
                    let at = done.cookie as usize * SLOT_BYTES as usize;
                    return self.inbox.to_vec(at, done.length as usize);
                }
                Event::Broken { .. } => panic!("the server has ended the connection"),
                _ => {}
            }
        }
    }

    fn ask(
        &mut self,
        scene: &mut Scene,
        stream: u16,
        sequence: u16,
        request: &Request<'_>,
    ) -> Vec<u8> {
        self.send(stream, sequence, request);
        self.answer(scene)
    }

    fn status(
        &mut self,
        scene: &mut Scene,
        stream: u16,
        sequence: u16,
        request: &Request<'_>,
    ) -> Status {
        let message = self.ask(scene, stream, sequence, request);
        decode_response(ORDER, request.procedure(), &message).unwrap().0.status
    }

    /// Queries a request of an earlier session. Returns its status, and its results if it was
    /// executed.
    fn fetch(
        &mut self,
        scene: &mut Scene,
        session: SessionId,
        stream: u16,
        request: &Request<'_>,
    ) -> (Status, Vec<u8>) {
        let (sequence, procedure) = (SequenceNumber(1), request.procedure().number());
        let about = CachedResponse { session, stream: StreamId(stream), sequence, procedure };
        let message = self.ask(scene, 0, 2, &Request::FetchResponse(about));
        let decoded = decode_response(ORDER, request.procedure(), &message).unwrap();
        (decoded.0.status, message[HEADER_BYTES..].to_vec())
    }

    fn open(&mut self, scene: &mut Scene, stream: u16, request: &Request<'_>) -> StateId {
        let message = self.ask(scene, stream, 1, request);
        match decode_response(ORDER, Procedure::Open, &message) {
            Ok((_, Response::Open(opened))) => opened.state,
            other => panic!("{other:?}"),
        }
    }
}

// ---- the requests --------------------------------------------------------------------------

fn create(directory: FileHandle, name: &str) -> Request<'_> {
    Request::Create(Create {
        directory,
        name,
        object: NewObject::Directory,
        attributes: FileAttributeBlock::empty(ORDER),
    })
}

fn open<'m>(target: OpenTarget<'m>, creation: OpenCreation<'m>) -> Request<'m> {
    Request::Open(Open {
        target,
        creation,
        delete_disposition: DeleteDisposition::DontCare,
        owner: b"owner",
        access: ShareAccess::Both,
        deny: ShareDeny::None,
        key: None,
    })
}

fn open_new<'m>(directory: FileHandle, path: &'m [&'m str]) -> Request<'m> {
    let target = OpenTarget::Null { directory, path: Path::new(path) };
    open(target, OpenCreation::Unchecked(FileAttributeBlock::empty(ORDER)))
}

fn open_old<'m>(directory: FileHandle, path: &'m [&'m str]) -> Request<'m> {
    open(OpenTarget::Null { directory, path: Path::new(path) }, OpenCreation::NoCreate)
}

fn lock(file: FileHandle, state: StateId, options: LockOptions) -> Request<'static> {
    Request::Lock(Lock { file, lock_type: LockType::Write, options, state, offset: 0, length: 8 })
}

fn append(file: FileHandle, data: &[u8]) -> Request<'_> {
    Request::AppendInline(AppendInline {
        file,
        state: StateId::ANONYMOUS,
        stability: Stability::FileSync,
        hint: CacheHint(0),
        placement: Placement::Packed,
        data: InlineData::Here(data),
    })
}

/// The requests whose results the earlier server has stored, by stream.
fn concluded<'m>(store: &dyn Store, root: FileHandle) -> Vec<(u16, Request<'m>)> {
    let log = handle_of(store, "log").unwrap();
    vec![(1, create(root, "kept")), (2, open_new(root, &["opened"])), (3, append(log, APPENDED))]
}

/// The requests that were in flight when the earlier server was killed, by stream. All of them were
/// in the journal.
fn under_way<'m>(
    store: &dyn Store,
    root: FileHandle,
    mode: FileAttributeBlock<'m>,
) -> Vec<(u16, Request<'m>)> {
    let of = |name| handle_of(store, name).unwrap_or_default();
    let (victim, no_state) = (RemoveMode::Unchecked, StateId::ANONYMOUS);
    vec![
        (NEVER, create(root, "never")),
        (5, create(root, "made")),
        (
            6,
            Request::Rename(Rename {
                source: root,
                target: root,
                old_name: "old",
                new_name: "new",
            }),
        ),
        (7, Request::Remove(Remove { directory: root, name: "victim", mode: victim })),
        (
            8,
            Request::SetAttrInline(SetAttributesInline {
                file: of("mode"),
                state: no_state,
                attributes: mode,
            }),
        ),
        (9, Request::Link(Link { source: of("source"), directory: root, name: "linked" })),
        (10, open_new(root, &["born"])),
        (APPENDER, append(of("log"), APPENDING)),
    ]
}

fn new_mode(room: &mut [u8]) -> FileAttributeBlock<'_> {
    let wanted = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    FileAttributeBlock::encode_set(ORDER, &wanted, room).unwrap()
}

// ---- packing files into one ----------------------------------------------------------------

type Pack = BTreeMap<String, Vec<u8>>;

/// Packs files: each as a name, a length, and those of its blocks that are not all zeros.
fn pack(files: &Pack) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, content) in files {
        packed.push(name.len() as u8);
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(&(content.len() as u64).to_le_bytes());
        let blocks = content.chunks(BLOCK).enumerate();
        for (index, block) in blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
            packed.extend_from_slice(&(index as u32).to_le_bytes());
            packed.push(block.len() as u8 - 1);
            packed.extend_from_slice(block);
        }
        packed.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    packed
}

fn unpacked(mut packed: &[u8]) -> Pack {
    fn take<'p>(packed: &mut &'p [u8], count: usize) -> &'p [u8] {
        let (front, rest) = packed.split_at(count);
        *packed = rest;
        front
    }
    let mut files = Pack::new();
    while !packed.is_empty() {
        let length = usize::from(take(&mut packed, 1)[0]);
        let name = String::from_utf8(take(&mut packed, length).to_vec()).unwrap();
        let length = u64::from_le_bytes(take(&mut packed, 8).try_into().unwrap()) as usize;
        let mut content = vec![0; length];
        loop {
            let index = u32::from_le_bytes(take(&mut packed, 4).try_into().unwrap());
            if index == u32::MAX {
                break;
            }
            let length = usize::from(take(&mut packed, 1)[0]) + 1;
            let at = index as usize * BLOCK;
            content[at..at + length].copy_from_slice(take(&mut packed, length));
        }
        files.insert(name, content);
    }
    files
}

// ---- the earlier server --------------------------------------------------------------------

/// Makes a pack with the server that it is compiled with; see the module.
#[test]
#[ignore = "it is run with an earlier version of the server"]
fn a_journal_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = furnished();
    let mut scene = Scene::new(store.clone(), directory.path(), 35);
    let mut files = Pack::new();

    let mut first = Client::connect(&mut scene, b"first", "");
    let root = first.root;
    for (stream, request) in concluded(&*store, root) {
        let message = first.ask(&mut scene, stream, 1, &request);
        let (header, _) = decode_response(ORDER, request.procedure(), &message).unwrap();
        assert_eq!(header.status, Status::Ok);
        files.insert(format!("results-{stream}"), message[HEADER_BYTES..].to_vec());
    }
    let locked = handle_of(&*store, "locked").unwrap();
    let state = first.open(&mut scene, LOCKER, &open_old(root, &["locked"]));
    let status = first.status(&mut scene, LOCKER, 2, &lock(locked, state, LockOptions::PERSIST));
    assert_eq!(status, Status::Ok);
    let fence = Request::SetFencingList(SetFencingList {
        file: handle_of(&*store, "fenced").unwrap(),
        object: FenceObject::File,
        access: FenceAccess::Allow,
        update: FenceUpdate::Overwrite,
        fence_ids: Array::from(&["node-1"]),
    });
    assert_eq!(first.status(&mut scene, 0, 2, &fence), Status::Ok);

    let mut second = Client::connect(&mut scene, b"second", "");
    let undone = handle_of(&*store, "undone").unwrap();
    let state = second.open(&mut scene, 1, &open_old(root, &["undone"]));
    let taken = lock(undone, state, LockOptions::AUTO_RECOVERY);
    assert_eq!(second.status(&mut scene, 1, 2, &taken), Status::Ok);
    let write = Request::WriteInline(WriteInline {
        file: undone,
        state,
        offset: 0,
        stability: Stability::FileSync,
        hint: CacheHint(0),
        placement: Placement::Packed,
        data: InlineData::Here(CHANGED),
    });
    assert_eq!(second.status(&mut scene, 1, 3, &write), Status::Ok);
    assert_eq!(content_of(&*store, "undone"), CHANGED);

    let mut room = [0; 256];
    let mode = new_mode(&mut room);
    for (stream, request) in under_way(&*store, root, mode) {
        first.send(stream, 1, &request);
    }
    // Their intents are in one group, so if one is executed, all are. Nothing is synced yet.
    for _ in 0..TURNS_MAX {
        if handle_of(&*store, "born").is_some() {
            break;
        }
        scene.step();
    }
    for name in ["never", "made", "new", "linked", "born"] {
        assert!(handle_of(&*store, name).is_some(), "{name}");
    }
    for entry in std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name != "lock" {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files.insert("session".to_owned(), first.session.0.to_le_bytes().to_vec());
    let to = std::env::var("DAFS_PACK").expect("DAFS_PACK says where the pack goes");
    std::fs::write(to, pack(&files)).unwrap();
}

// ---- this version --------------------------------------------------------------------------

/// A server of this version with the journal of an earlier one.
struct Successor {
    store: Arc<MemoryStore>,
    scene: Scene,
    files: Pack,
    /// The session with the earlier server.
    session: SessionId,
    journal: tempfile::TempDir,
}

impl Successor {
    fn of(commit: &str) -> Self {
        let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_journal");
        let packed = std::fs::read(folder.join(format!("{commit}.pack"))).unwrap();
        let files = unpacked(&packed);
        let journal = tempfile::tempdir().unwrap();
        for (name, content) in &files {
            if name.starts_with("log-") || name.starts_with("undo-") {
                std::fs::write(journal.path().join(name), content).unwrap();
            }
        }
        let session = SessionId(u64::from_le_bytes(files["session"][..].try_into().unwrap()));
        let store = as_left();
        // This server must draw other ids for its sessions.
        let scene = Scene::new(store.clone(), journal.path(), 36);
        Self { store, scene, files, session, journal }
    }

    /// Restarts the server with the journal that this version has written.
    fn restarted(self) -> Self {
        let Self { store, scene, files, session, journal } = self;
        drop(scene);
        let scene = Scene::new(store.clone(), journal.path(), 37);
        Self { store, scene, files, session, journal }
    }
}

fn check_requests(successor: &mut Successor) {
    let Successor { store, scene, files, session, .. } = successor;
    let mut client = Client::connect(scene, b"first", "");
    let root = client.root;
    for (stream, request) in concluded(&**store, root) {
        let found = client.fetch(scene, *session, stream, &request);
        let kept = files[&format!("results-{stream}")].clone();
        assert_eq!(found, (Status::Ok, kept), "stream {stream}");
    }
    let mut room = [0; 256];
    let mode = new_mode(&mut room);
    for (stream, request) in under_way(&**store, root, mode) {
        let (status, _) = client.fetch(scene, *session, stream, &request);
        let expected = match stream {
            // The client may send it again: a partial append was cut off.
            NEVER | APPENDER => Status::NoXidMatch,
            _ => Status::Ok,
        };
        assert_eq!(status, expected, "stream {stream}");
    }
    assert_eq!(content_of(&**store, "log"), [b"first.", APPENDED].concat());
    let made = create(root, "made");
    let (_, results) = client.fetch(scene, *session, 5, &made);
    assert_eq!(results[..64], handle_of(&**store, "made").unwrap().0);
    // Other clients are not told.
    let mut other = Client::connect(scene, b"other", "");
    assert_eq!(other.fetch(scene, *session, 5, &made).0, Status::UnknownSession);
}

fn check_fence(successor: &mut Successor) {
    let Successor { store, scene, .. } = successor;
    let file = handle_of(&**store, "fenced").unwrap();
    let mut outsider = Client::connect(scene, b"outsider", "node-2");
    let wanted = AttributeBitmap::NONE;
    let attributes = Request::GetAttrInline(GetAttributes { file, wanted });
    assert_eq!(outsider.status(scene, 1, 1, &attributes), Status::Access);
    let message = outsider.ask(scene, 1, 2, &Request::GetFencingList(GetFencingList { file }));
    match decode_response(ORDER, Procedure::GetFencingList, &message) {
        Ok((_, Response::GetFencingList(list))) => {
            assert!(list.fence_ids.iter().eq(["node-1"]));
        }
        other => panic!("{other:?}"),
    }
    let mut insider = Client::connect(scene, b"insider", "node-1");
    assert_eq!(insider.status(scene, 1, 1, &attributes), Status::Ok);
}

fn check_locks(successor: &mut Successor) {
    let Successor { store, scene, .. } = successor;
    let file = handle_of(&**store, "locked").unwrap();
    let mut owner = Client::connect(scene, b"first", "");
    let target = OpenTarget::Previous { file, delegation: DelegationType::None };
    let state = owner.open(scene, 1, &open(target, OpenCreation::NoCreate));
    let options = LockOptions::PERSIST.with(LockOptions::RECLAIM);
    assert_eq!(owner.status(scene, 1, 2, &lock(file, state, options)), Status::Ok);
    // The other lock, whose owner does not return, ends with the grace period and is rolled back.
    assert_eq!(content_of(&**store, "undone"), CHANGED);
    scene.step = Duration::from_millis(100);
    for _ in 0..TURNS_MAX {
        if content_of(&**store, "undone") == b"original" {
            break;
        }
        owner.interface.poll();
        scene.step();
    }
    assert_eq!(content_of(&**store, "undone"), b"original");
    scene.step = Duration::from_micros(10);
    // The reclaimed lock is held, so another client cannot get it.
    let mut other = Client::connect(scene, b"other", "");
    let root = other.root;
    let state = other.open(scene, 1, &open_old(root, &["locked"]));
    let mine = lock(file, state, LockOptions::default());
    assert_eq!(other.status(scene, 1, 2, &mine), Status::Denied);
    let undone = handle_of(&**store, "undone").unwrap();
    let state = other.open(scene, 2, &open_old(root, &["undone"]));
    let mine = lock(undone, state, LockOptions::default());
    assert_eq!(other.status(scene, 2, 2, &mine), Status::Ok);
    let read = ReadInline { file: undone, state, offset: 0, length: 8, hint: CacheHint(0) };
    let message = other.ask(scene, 2, 3, &Request::ReadInline(read));
    match decode_response(ORDER, Procedure::ReadInline, &message) {
        Ok((_, Response::ReadInline(read))) => {
            assert_eq!(read.data.bytes(), Some(b"original".as_slice()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_of_an_earlier_servers_sessions_have_their_results_and_verdicts() {
    let mut successor = Successor::of("be567f9");
    check_requests(&mut successor);
}

#[test]
fn fences_and_locks_of_an_earlier_server_stand_and_its_undo_is_rolled_back() {
    let mut successor = Successor::of("be567f9");
    check_fence(&mut successor);
    check_locks(&mut successor);
}

/// The journal that this version writes has the same content.
#[test]
fn an_earlier_servers_journal_is_the_same_once_this_version_has_written_it() {
    let mut successor = Successor::of("be567f9").restarted();
    check_requests(&mut successor);
    let mut successor = Successor::of("be567f9").restarted();
    check_fence(&mut successor);
    check_locks(&mut successor);
}

const ORDER: ByteOrder = ByteOrder::Little;
const SLOT_BYTES: u32 = 4096;
/// The number of streams used here.
const SLOTS: usize = 16;
/// The stream of the request that the crash prevented, although it was in the journal.
const NEVER: u16 = 4;
/// The stream of the append in progress.
const APPENDER: u16 = 11;
/// The stream on which the first client takes its lock.
const LOCKER: u16 = 12;
/// The cookie of sent messages.
const SENT: u64 = u64::MAX >> 1;
const BLOCK: usize = 64;
/// The number of turns after which nothing more is expected.
const TURNS_MAX: u32 = 1_000_000;
