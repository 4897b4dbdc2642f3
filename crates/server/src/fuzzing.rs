//! The body of the fuzz target, which is shared with the test that replays the target's corpus. Not
//! part of the public interface.
//!
//! Invariant: the target accepts any bytes, and panics exactly if the server breaks one of these
//! promises: every request gets a reply or its connection ends; other sessions continue; no
//! resources are held after the connection has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dafs_dat::{
    Address, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Operation, Region, Rights, SendOptions, WaitPolicy,
};
use dafs_memory::{Memory, Pages};
use dafs_store::Store;
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_types::{
    CacheHint, CachePattern, CookieVerifier, Credentials, DeleteDisposition, FileHandle, Random,
    ReaddirCookie, RequestId, RmrContext, RmrTarget, SequenceNumber, SetAttributes, SetTime,
    ShareAccess, ShareDeny, Stability, StateId, StreamId, Timestamp, Verifier,
};
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{
    AuthRequest, BatchRequest, BatchSubmit, CacheHintRequest, ClientConnectAuth, Commit, Empty,
    FileChunk, InlineData, Lock, LockOptions, LockTest, LockType, Open, OpenCreation, OpenTarget,
    Placement, ReadDirect, ReadDirectory, ReadInline, SessionOptions, SetAttributesInline,
    TransferDirection, Unlock, WriteDirect, WriteInline,
};
use dafs_wire::{
    Array, AttributeBitmap, ByteOrder, ChannelType, Checksum, ConnectData, DirectBuffer,
    FileAttributeBlock, HEADER_BYTES, Path, Procedure, Request, RequestHeader, Response,
    decode_response, encode_request,
};

use crate::{Server, ServerConfig};

/// Sends fuzzed requests in a valid session. In `data`, each request begins with its procedure
/// number, a bit mask of the offsets at which a valid handle or buffer is inserted, and the length
/// of its body.
pub fn request(data: &[u8]) {
    let mut scene = Scene::new();
    let mut client = Client::connect(&mut scene, b"fuzzer");
    let root = client.root(&mut scene);
    let mut rest = data;
    for sequence in 2..REQUESTS_MAX {
        let Some((&[procedure, good, length], behind)) = rest.split_first_chunk() else { break };
        let length = usize::from(length) * 2;
        let (body, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        let procedure = Procedure::ALL[usize::from(procedure) % Procedure::ALL.len()];
        let mut message = encoded(sequence, &Request::Null(Empty));
        message.extend_from_slice(body);
        message[32..36].copy_from_slice(&(procedure as u32).to_ne_bytes());
        let whole = u32::try_from(message.len()).unwrap_or(u32::MAX);
        message[36..40].copy_from_slice(&whole.to_ne_bytes());
        client.mend(&mut message, good, &root);
        let Some(answer) = client.ask(&mut scene, &message) else { break };
        // The reply must belong to this procedure, or the session must have ended.
        assert!(decode_response(ByteOrder::NATIVE, procedure, &answer).is_ok(), "{procedure:?}");
    }
    drop(client);
    let mut honest = Client::connect(&mut scene, b"honest");
    assert_eq!(honest.root(&mut scene), root);
    drop(honest);
    for _ in 0..TURNS_MAX {
        if scene.server.held() == [0; 4] {
            return;
        }
        scene.server.step();
    }
    panic!("channels, endpoints, tasks, opens: {:?}", scene.server.held());
}

/// Sends requests with extreme integers as offsets, lengths, cookies, counts, times, ids and
/// credits. First, each integer of a valid request is replaced by each extreme value, one integer
/// at a time. Then `count` requests are sent with several extreme integers, chosen by `random`.
/// Every request must get a reply or its connection must end. This is useful only in builds that
/// check for integer overflow.
pub fn extremes(store: Arc<dyn Store>, handles: &[FileHandle], random: &mut Random, count: usize) {
    let mut prober = Prober { scene: Scene::on(store), session: None };
    for &handle in handles {
        let kinds = prober.samples(handle).len();
        for kind in 0..kinds {
            let mut at = HEADER_BYTES + FileHandle::LENGTH;
            loop {
                // State ids belong to one session, so the samples are created again after the
                // session has ended.
                let (procedure, sample) = prober.samples(handle).swap_remove(kind);
                if at + 4 > sample.len() {
                    break;
                }
                for value in EXTREMES {
                    let mut message = sample.clone();
                    let is_long = at.is_multiple_of(8) && at + 8 <= message.len();
                    if is_long {
                        message[at..at + 8].copy_from_slice(&value.to_ne_bytes());
                        prober.ask(procedure, message.clone());
                    }
                    message[at..].copy_from_slice(&sample[at..]);
                    message[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
                    prober.ask(procedure, message);
                }
                at += 4;
            }
        }
    }
    for _ in 0..count {
        let samples = prober.samples(handles[random.below(handles.len())]);
        let (procedure, mut message) = samples[random.below(samples.len())].clone();
        for place in message[HEADER_BYTES + FileHandle::LENGTH..].chunks_exact_mut(4) {
            if random.below(4) == 0 {
                let value = EXTREMES[random.below(EXTREMES.len())] >> (random.below(2) * 32);
                place.copy_from_slice(&(value as u32).to_ne_bytes());
            }
        }
        if random.below(8) == 0 {
            let (at, value) = (random.below(8) * 4, EXTREMES[random.below(EXTREMES.len())]);
            message[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
        }
        // Some messages are sent under the number of another procedure.
        let is_same = random.below(4) > 0;
        let other = Procedure::ALL[random.below(Procedure::ALL.len())];
        prober.ask(if is_same { procedure } else { other }, message);
    }
}

/// A client that sends one request after the other. It opens a new connection when the old one has
/// ended.
struct Prober {
    scene: Scene,
    session: Option<Probing>,
}

struct Probing {
    client: Client,
    sequence: u16,
    /// The state id of an open of the file named `file`.
    state: StateId,
    /// The cookie verifiers of directories, by handle.
    verifiers: Vec<(FileHandle, CookieVerifier)>,
}

impl Prober {
    fn session(&mut self) -> &mut Probing {
        let scene = &mut self.scene;
        self.session.get_or_insert_with(|| {
            let mut client = Client::connect(scene, b"extreme");
            let directory = FileHandle(client.root(scene));
            let open = Request::Open(Open {
                target: OpenTarget::Null { directory, path: Path::new(&["file"]) },
                creation: OpenCreation::NoCreate,
                delete_disposition: DeleteDisposition::DontCare,
                owner: b"owner",
                access: ShareAccess::Both,
                deny: ShareDeny::None,
                key: None,
            });
            let answer = client.ask(scene, &encoded(2, &open)).expect("an answer");
            let decoded = decode_response(ByteOrder::NATIVE, Procedure::Open, &answer);
            let Ok((_, Response::Open(opened))) = decoded else { panic!("{decoded:?}") };
            Probing { client, sequence: 3, state: opened.state, verifiers: Vec::new() }
        })
    }

    /// Sends a message in which any byte after the header may have been changed. Returns the reply,
    /// or `None` if the connection has ended.
    fn ask(&mut self, procedure: Procedure, mut message: Vec<u8>) -> Option<Vec<u8>> {
        let probing = self.session();
        probing.sequence = probing.sequence.wrapping_add(1);
        let sequence = probing.sequence;
        let header = encoded(sequence, &Request::Null(Empty));
        let is_whole = message[..32] == encoded(0, &Request::Null(Empty))[..32];
        if is_whole {
            message[..HEADER_BYTES].copy_from_slice(&header[..HEADER_BYTES]);
        }
        message[32..36].copy_from_slice(&(procedure as u32).to_ne_bytes());
        let whole = u32::try_from(message.len()).unwrap_or(u32::MAX);
        message[36..40].copy_from_slice(&whole.to_ne_bytes());
        let mut probing = self.session.take()?;
        let answer = probing.client.ask(&mut self.scene, &message)?;
        let decoded = decode_response(ByteOrder::NATIVE, procedure, &answer);
        assert!(decoded.is_ok() || !is_whole, "{procedure:?} {message:?}");
        // After a request with a wrong sequence number, its stream can no longer be used.
        if is_whole && procedure != Procedure::Disconnect {
            self.session = Some(probing);
        }
        Some(answer)
    }

    fn verifier(&mut self, directory: FileHandle) -> CookieVerifier {
        let known = |probing: &Probing| {
            probing.verifiers.iter().find(|(handle, _)| *handle == directory).map(|known| known.1)
        };
        if let Some(known) = known(self.session()) {
            return known;
        }
        let list = listing(directory, CookieVerifier::default());
        let answer = self.ask(Procedure::ReadDirInline, encoded(0, &list));
        let decoded = answer
            .as_ref()
            .map(|answer| decode_response(ByteOrder::NATIVE, Procedure::ReadDirInline, answer));
        let found = match decoded {
            Some(Ok((_, Response::ReadDirInline(page)))) => page.verifier,
            _ => CookieVerifier::default(),
        };
        self.session().verifiers.push((directory, found));
        found
    }

    /// Returns valid requests about an object as encoded messages, one for each procedure.
    fn samples(&mut self, file: FileHandle) -> Vec<(Procedure, Vec<u8>)> {
        let verifier = self.verifier(file);
        let probing = self.session();
        let state = probing.state;
        let shared = &probing.client.shared;
        let buffer = DirectBuffer {
            target: RmrTarget(shared.address),
            length: 512,
            context: RmrContext(shared.stag.0),
        };
        let (buffers, chunks) = ([buffer], [FileChunk { offset: 0, length: 512, hint: HINT }]);
        let transfers = [BatchRequest {
            file,
            request: RequestId(1),
            state,
            direction: TransferDirection::Read,
            chunks: Array::from(chunks.as_slice()),
            buffers: Array::from(buffers.as_slice()),
            checksum: Checksum::NONE,
        }];
        let wanted = SetAttributes {
            size: Some(7),
            mode: Some(0o600),
            time_access: Some(SetTime::Client(Timestamp { seconds: 1, nanoseconds: 2 })),
            time_modify: Some(SetTime::Client(Timestamp { seconds: 3, nanoseconds: 4 })),
            ..SetAttributes::default()
        };
        let mut room = [0; ATTRIBUTE_BYTES_MAX];
        let attributes = FileAttributeBlock::encode_set(ByteOrder::NATIVE, &wanted, &mut room)
            .expect("attributes that may be set");
        let (data, offset, length, hint) = (InlineData::Here(b"eight by"), 5, 8, HINT);
        let (stability, placement) = (Stability::DataSync, Placement::Packed);
        let list = Array::from(buffers.as_slice());
        let (lock_type, options) = (LockType::Write, LockOptions::default());
        let requests = [
            listing(file, verifier),
            Request::ReadInline(ReadInline { file, state, offset, length, hint }),
            Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers: list }),
            Request::WriteInline(WriteInline {
                file,
                state,
                offset,
                stability,
                hint,
                placement,
                data,
            }),
            Request::WriteDirect(WriteDirect {
                file,
                state,
                offset,
                length,
                stability,
                hint,
                checksum: Checksum::NONE,
                buffers: list,
            }),
            Request::Commit(Commit { file, offset, length }),
            Request::CacheHint(CacheHintRequest {
                file,
                offset,
                length,
                pattern: CachePattern::WillNeed,
                hint,
            }),
            Request::SetAttrInline(SetAttributesInline { file, state, attributes }),
            Request::Lock(Lock { file, lock_type, options, state, offset, length: 9 }),
            Request::LockT(LockTest { file, lock_type, owner: b"other", offset, length: 9 }),
            Request::LockU(Unlock { file, lock_type, state, offset, length: 9 }),
            Request::BatchSubmit(BatchSubmit {
                requests: Array::from(transfers.as_slice()),
                window_us: 1,
                completion_count: 1,
                synchronous: true,
            }),
        ];
        requests.iter().map(|request| (request.procedure(), encoded(0, request))).collect()
    }
}

fn listing(directory: FileHandle, verifier: CookieVerifier) -> Request<'static> {
    Request::ReadDirInline(ReadDirectory {
        directory,
        cookie: ReaddirCookie(0),
        verifier,
        names_bytes: 1000,
        result_bytes_max: 1000,
        wanted: AttributeBitmap::NONE,
    })
}

/// A server and its client that run on the same thread.
struct Scene {
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
        Self::on(Arc::new(MemoryStore::new(limits)))
    }

    fn on(store: Arc<dyn Store>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("dafs-fuzz-{}-{count}", std::process::id());
        let mut config = ServerConfig {
            listen: vec![Address::Shm(std::env::temp_dir().join(socket))],
            pool_threads: 1,
            wait: WaitPolicy { spin_max: Duration::ZERO },
            ..ServerConfig::default()
        };
        config.cache.arena_bytes = 4 << 20;
        config.cache.dirty_bytes_max = 1 << 20;
        config.cache.file_count_max = 100;
        config.sessions.authentication.anonymous = Some(Credentials::superuser());
        Self { server: Server::new(&config, store).expect("a server") }
    }
}

struct Client {
    interface: Interface,
    endpoint: EndpointId,
    inbox: Memory,
    region: Region,
    /// Memory of the client that the server may read and write by RDMA.
    shared: Region,
}

impl Client {
    fn connect(scene: &mut Scene, name: &[u8]) -> Self {
        let wait = WaitPolicy { spin_max: Duration::ZERO };
        let config = InterfaceConfig { wait, ..InterfaceConfig::default() };
        let mut interface = Interface::new(config).expect("an interface");
        let data =
            ConnectData { client_instance: 1, client_session: 1, channel: ChannelType::Operation };
        let data = data.encode(ByteOrder::NATIVE);
        let (address, config) = (scene.server.addresses()[0].clone(), EndpointConfig::default());
        let endpoint =
            interface.connect(&address, Domain(0), &config, &data).expect("a connection begun");
        let memory = || Memory::anonymous(SLOT_BYTES as usize, Pages::Small).expect("memory");
        let (inbox, shared) = (memory(), memory());
        let region = interface.register(&inbox, Domain(0), Rights::LOCAL).expect("a slot");
        let shared = interface.register(&shared, Domain(0), Rights::REMOTE).expect("a slot");
        let mut client = Self { interface, endpoint, inbox, region, shared };
        let login = Request::ClientConnectAuth(ClientConnectAuth {
            options: SessionOptions::default(),
            fence_id: "",
            client_string: name,
            verifier: Verifier([7; 8]),
            authentication: AuthRequest::None,
        });
        while !matches!(client.event(scene), Event::Established { .. }) {}
        assert!(client.ask(scene, &encoded(0, &login)).is_some());
        client
    }

    fn root(&mut self, scene: &mut Scene) -> [u8; 64] {
        let message = encoded(1, &Request::GetRootHandle(Empty));
        let answer = self.ask(scene, &message).expect("an answer");
        match decode_response(ByteOrder::NATIVE, Procedure::GetRootHandle, &answer) {
            Ok((_, Response::GetRootHandle(root))) => root.file.0,
            other => panic!("{other:?}"),
        }
    }

    fn event(&mut self, scene: &mut Scene) -> Event {
        for turn in 0..TURNS_MAX {
            if let Some(event) = self.interface.next_event() {
                return event;
            }
            self.interface.poll();
            scene.server.step();
            if turn > TURNS_MAX / 2 {
                // Gives the pool's thread a chance to run.
                std::thread::yield_now();
            }
        }
        panic!("no answer and no end");
    }

    /// Sends a message. Returns the reply, or `None` if the connection has ended.
    fn ask(&mut self, scene: &mut Scene, message: &[u8]) -> Option<Vec<u8>> {
        let segment = self.region.local(0, SLOT_BYTES);
        self.interface.post_receive(self.endpoint, 1, &[segment]).ok()?;
        let options = SendOptions::default();
        self.interface.post_send(self.endpoint, 2, &[Gather::Bytes(message)], options).ok()?;
        self.interface.flush();
        loop {
            match self.event(scene) {
                Event::Completion(done) if done.operation == Operation::Receive => {
                    let arrived = done.status == CompletionStatus::Success;
                    return arrived.then(|| self.inbox.to_vec(0, done.length as usize));
                }
                Event::Broken { .. } => return None,
                _ => {}
            }
        }
    }

    /// Overwrites bytes of a message with valid values that a fuzzer could not guess: the root's
    /// handle, and the address of a buffer of the client. The bits of `good` select the offsets.
    fn mend(&self, message: &mut [u8], good: u8, root: &[u8; 64]) {
        for (bit, at) in [(1, 40), (2, 48), (4, 104)] {
            if good & bit != 0
                && let Some(place) = message.get_mut(at..at + 64)
            {
                place.copy_from_slice(root);
            }
        }
        let at = 40 + usize::from(good >> 4) * 8 + 64;
        if good & 8 != 0
            && let Some(place) = message.get_mut(at..at + 16)
        {
            place[..8].copy_from_slice(&self.shared.address.to_ne_bytes());
            place[8..12].copy_from_slice(&512u32.to_ne_bytes());
            place[12..].copy_from_slice(&self.shared.stag.0.to_ne_bytes());
        }
    }
}

fn encoded(sequence: u16, request: &Request<'_>) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    let header = RequestHeader::new(StreamId(0), SequenceNumber(sequence));
    let length = encode_request(ByteOrder::NATIVE, &header, request, &mut buffer);
    buffer.truncate(length.expect("a request of ours"));
    buffer
}

/// Extreme values: the limits of 31, 32, 63 and 64-bit integers, and their neighbours.
const EXTREMES: [u64; 12] = [
    1,
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 1,
    u64::MAX,
];
const HINT: CacheHint = CacheHint(0);
const SLOT_BYTES: u32 = 8192;
const REQUESTS_MAX: u16 = 20;
/// The number of server turns without a reply after which the test fails.
const TURNS_MAX: u32 = 1_000_000;
