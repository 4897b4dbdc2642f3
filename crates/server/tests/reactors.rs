//! Work that several reactors leave to each other, with turns in an order that the test chooses.
//!
//! The server is stepped, and its clients are on a simulated network without faults. Every reactor
//! listens on its own port, so a test chooses the reactor of each connection.

use std::sync::Arc;

use dafs_dat::sim::{Network, NetworkConfig};
use dafs_dat::{
    Address, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Operation, Region, Rights, SendOptions,
};
use dafs_memory::{Memory, Pages};
use dafs_server::{ServerConfig, SteppedServer};
use dafs_store::local::Squash;
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{AttributeChanges, Credentials, Store};
use dafs_types::{
    CacheHint, CreateMode, DeleteDisposition, FileHandle, Moment, Random, RequestId, RmrContext,
    RmrTarget, SequenceNumber, SessionId, ShareAccess, ShareDeny, StateId, Status, StreamId,
    Verifier,
};
use dafs_wire::messages::{
    AuthRequest, BatchRequest, BatchSubmit, ChannelUse, ClientConnectAuth, Close, Completion,
    ConnectBind, Empty, FenceAccess, FenceObject, FenceUpdate, FileChunk, Open, OpenCreation,
    OpenTarget, ReadDirect, SessionOptions, SetFencingList, TransferDirection,
};
use dafs_wire::{
    Array, ByteOrder, ChannelType, Checksum, ConnectData, DirectBuffer, DirectBuffers, Path,
    Procedure, Request, RequestHeader, Response, ResponseHeader, decode_request, decode_response,
    encode_request,
};

// ---- the server ----------------------------------------------------------------------------

/// A server with two reactors, and its network.
struct Scene {
    network: Network,
    server: SteppedServer,
}

impl Scene {
    /// Starts a server with files of these names, each filled with [`CONTENT`].
    fn new(names: &[&str]) -> Self {
        let network = Network::new(NetworkConfig { at_once_ppm: 1_000_000, ..sure_network() });
        let mut config =
            ServerConfig { listen: vec![port(A)], reactors: REACTORS, ..ServerConfig::default() };
        config.cache.arena_bytes = 4 << 20;
        config.cache.dirty_bytes_max = 1 << 20;
        config.sessions.authentication.anonymous = Some(Credentials::superuser());
        config.access.squash = Some(Squash::Nobody);
        config.filer.delegations.enabled = false;
        let interfaces = (0..REACTORS).map(|reactor| {
            let (sim, owner) = (Some(network.at(SERVER_NODE)), reactor as u8);
            let config = InterfaceConfig { sim, owner, ..InterfaceConfig::default() };
            let mut interface = Interface::serving(config).unwrap();
            // The server itself makes the first interface listen.
            if reactor != A {
                interface.listen(&port(reactor)).unwrap();
            }
            interface
        });
        let mut random = Random::new(1);
        let (entropy, order) = (Box::new(random.fork()), Box::new(random.fork()));
        let (store, interfaces) = (furnished(names), interfaces.collect());
        let server = SteppedServer::new(&config, store, interfaces, entropy, order).unwrap();
        Self { network, server }
    }

    /// Delivers everything that is in transit.
    fn deliver(&self) {
        self.network.advance_to(self.network.now_ns() + JOURNEY_NS);
    }

    /// Runs a turn of a reactor, or half of one.
    fn step(&mut self, reactor: usize) {
        self.server.step(reactor, Moment(self.network.now_ns()));
    }
}

fn sure_network() -> NetworkConfig {
    NetworkConfig { latency_ns_max: JOURNEY_NS / 2, ..NetworkConfig::new(1) }
}

fn port(reactor: usize) -> Address {
    Address::Sim { node: SERVER_NODE, port: reactor as u16 }
}

fn furnished(names: &[&str]) -> Arc<dyn Store> {
    let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
    let store = MemoryStore::new(limits);
    let who = Credentials::superuser();
    let root = store.root(&who).unwrap().handle;
    let (mode, changes) = (CreateMode::Guarded, AttributeChanges::default());
    for name in names {
        let access = ShareAccess::Both;
        let made = store.create_file(&who, &root, name.as_bytes(), mode, &changes, access);
        let content = Memory::from_heap(CONTENT.to_vec().into());
        made.unwrap().1.write_at(&content, 0, CONTENT.len(), 0).unwrap();
    }
    Arc::new(store)
}

// ---- its clients ---------------------------------------------------------------------------

/// A scripted client, with a session over one connection.
struct Client {
    interface: Interface,
    operation: EndpointId,
    session: SessionId,
    root: FileHandle,
    /// The memory where messages arrive, each in its own slot.
    inbox: Memory,
    slots: Region,
    slots_used: usize,
    /// The memory that the server writes the results of reads to.
    memory: Memory,
    region: Region,
    /// Messages that were received but not returned yet, in order of arrival.
    heard: Vec<(EndpointId, Vec<u8>)>,
    /// The sequence number of the next request on the stream for requests outside the test.
    sequence: u16,
}

impl Client {
    /// Connects to a reactor from a node, and opens a session.
    fn connect(scene: &mut Scene, node: u32, reactor: usize, fence_id: &str) -> Self {
        let sim = Some(scene.network.at(node));
        let mut interface =
            Interface::new(InterfaceConfig { sim, ..InterfaceConfig::default() }).unwrap();
        let inbox = Memory::anonymous(SLOTS_MAX * SLOT_BYTES, Pages::Small).unwrap();
        let slots = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let memory = Memory::anonymous(CONTENT.len(), Pages::Small).unwrap();
        let region = interface.register(&memory, Domain(0), Rights::REMOTE).unwrap();
        let operation = open_connection(&mut interface, reactor, ChannelType::Operation);
        let (session, root) = (SessionId(0), FileHandle::NULL);
        let (slots_used, heard, sequence) = (0, Vec::new(), 0);
        let mut client = Self {
            interface,
            operation,
            session,
            root,
            inbox,
            slots,
            slots_used,
            memory,
            region,
            heard,
            sequence,
        };
        client.await_connection(scene, operation);
        let options = SessionOptions { back_control_channel: true, ..SessionOptions::default() };
        let login = Request::ClientConnectAuth(ClientConnectAuth {
            options,
            fence_id,
            client_string: &node.to_le_bytes(),
            verifier: Verifier([7; 8]),
            authentication: AuthRequest::None,
        });
        let message = client.ask(scene, &login);
        match decode_response(ORDER, Procedure::ClientConnectAuth, &message) {
            Ok((_, Response::ClientConnectAuth(made))) => client.session = made.session,
            other => panic!("{other:?}"),
        }
        let message = client.ask(scene, &Request::GetRootHandle(Empty));
        match decode_response(ORDER, Procedure::GetRootHandle, &message) {
            Ok((_, Response::GetRootHandle(root))) => client.root = root.file,
            other => panic!("{other:?}"),
        }
        client
    }

    /// Binds a back-control channel to the session, over a connection to a reactor.
    fn bind_back_control(&mut self, scene: &mut Scene, reactor: usize) -> EndpointId {
        let back = open_connection(&mut self.interface, reactor, ChannelType::BackControl);
        self.await_connection(scene, back);
        for _ in 0..BACK_REQUESTS_MAX {
            self.post_receive(back);
        }
        let bind = Request::ConnectBind(ConnectBind {
            session: self.session,
            channel_use: ChannelUse::BackControl,
            request_bytes_max: 0,
            response_bytes_max: 0,
            requests_max: BACK_REQUESTS_MAX,
            authentication: AuthRequest::None,
        });
        self.send_over(back, 0, 0, &bind);
        let message = self.next_message(scene, back, &ALL);
        assert_eq!(status_of(&message), Status::Ok);
        // The server tests it with a request. The request needs no reply here: it takes one of
        // several credits.
        let message = self.next_message(scene, back, &ALL);
        let (_, request) = decode_request(ORDER, &message).unwrap();
        assert_eq!(request.procedure(), Procedure::BcNull);
        back
    }

    fn await_connection(&mut self, scene: &mut Scene, wanted: EndpointId) {
        for _ in 0..ROUNDS_MAX {
            self.interface.poll();
            while let Some(event) = self.interface.next_event() {
                match event {
                    Event::Established { endpoint, .. } if endpoint == wanted => return,
                    Event::Broken { .. } => panic!("the server has ended a connection"),
                    _ => {}
                }
            }
            scene.deliver();
            ALL.iter().for_each(|reactor| scene.step(*reactor));
        }
        panic!("nobody accepts the connection");
    }

    fn post_receive(&mut self, over: EndpointId) {
        let slot = self.slots_used;
        assert!(slot < SLOTS_MAX, "more messages than a test may have");
        self.slots_used += 1;
        let segment = self.slots.local((slot * SLOT_BYTES) as u64, SLOT_BYTES as u32);
        self.interface.post_receive(over, slot as u64, &[segment]).unwrap();
    }

    fn send_over(&mut self, over: EndpointId, stream: u16, sequence: u16, request: &Request<'_>) {
        self.post_receive(over);
        let mut message = [0; SLOT_BYTES];
        let header = RequestHeader {
            desired_credits: STREAMS,
            ..RequestHeader::new(StreamId(stream), SequenceNumber(sequence))
        };
        let length = encode_request(ORDER, &header, request, &mut message).unwrap();
        let gather = [Gather::Bytes(&message[..length])];
        self.interface.post_send(over, SENT, &gather, SendOptions::default()).unwrap();
        self.interface.flush();
    }

    /// Sends the first request of a stream.
    fn send(&mut self, stream: u16, request: &Request<'_>) {
        self.send_over(self.operation, stream, 1, request);
    }

    /// Receives the messages that have arrived.
    fn listen(&mut self) {
        self.interface.poll();
        while let Some(event) = self.interface.next_event() {
            match event {
                Event::Completion(done) if done.operation == Operation::Receive => {
                    assert_eq!(done.status, CompletionStatus::Success);
                    let at = done.cookie as usize * SLOT_BYTES;
                    let message = self.inbox.to_vec(at, done.length as usize);
                    self.heard.push((done.endpoint, message));
                }
                Event::Broken { .. } => panic!("the server has ended a connection"),
                _ => {}
            }
        }
    }

    /// Waits for the next message on a connection, while only these reactors take turns.
    fn next_message(&mut self, scene: &mut Scene, over: EndpointId, reactors: &[usize]) -> Vec<u8> {
        for _ in 0..ROUNDS_MAX {
            self.listen();
            let place = self.heard.iter().position(|(endpoint, _)| *endpoint == over);
            if let Some(place) = place {
                return self.heard.remove(place).1;
            }
            scene.deliver();
            reactors.iter().for_each(|reactor| scene.step(*reactor));
            scene.deliver();
        }
        panic!("no message comes");
    }

    /// Sends a request that is not under test. Returns its reply.
    fn ask(&mut self, scene: &mut Scene, request: &Request<'_>) -> Vec<u8> {
        self.send_over(self.operation, 0, self.sequence, request);
        self.sequence += 1;
        let message = self.next_message(scene, self.operation, &ALL);
        assert_eq!(status_of(&message), Status::Ok, "{request:?}");
        message
    }

    fn open(&mut self, scene: &mut Scene, name: &str) -> (FileHandle, StateId) {
        let path = [name];
        let request = Request::Open(Open {
            target: OpenTarget::Null { directory: self.root, path: Path::new(&path) },
            creation: OpenCreation::NoCreate,
            delete_disposition: DeleteDisposition::DontCare,
            owner: b"owner",
            access: ShareAccess::Both,
            deny: ShareDeny::None,
            key: None,
        });
        let message = self.ask(scene, &request);
        match decode_response(ORDER, Procedure::Open, &message) {
            Ok((_, Response::Open(opened))) => (opened.file, opened.state),
            other => panic!("{other:?}"),
        }
    }

    /// A buffer of all the memory that the server may write to.
    fn buffer(&self) -> [DirectBuffer; 1] {
        let (target, context) = (RmrTarget(self.region.address), RmrContext(self.region.stag.0));
        [DirectBuffer { target, length: CONTENT.len() as u32, context }]
    }

    fn has_read(&self) -> bool {
        self.memory.to_vec(0, CONTENT.len()) == CONTENT
    }
}

fn open_connection(interface: &mut Interface, reactor: usize, channel: ChannelType) -> EndpointId {
    let data = ConnectData { client_instance: 1, client_session: 1, channel }.encode(ORDER);
    interface.connect(&port(reactor), Domain(0), &EndpointConfig::default(), &data).unwrap()
}

fn header_of(message: &[u8]) -> ResponseHeader {
    ResponseHeader::decode(ORDER, message).unwrap()
}

fn status_of(message: &[u8]) -> Status {
    header_of(message).status
}

/// A read of a whole file.
fn read<'m>((file, state): (FileHandle, StateId), buffers: &'m [DirectBuffer]) -> Request<'m> {
    let (length, buffers) = (CONTENT.len() as u32, DirectBuffers::from(buffers));
    let hint = CacheHint(0);
    Request::ReadDirect(ReadDirect { file, state, offset: 0, length, hint, buffers })
}

// ---- the tests -----------------------------------------------------------------------------

/// The bytes of an asynchronous batch go over the back-control channel. The reactor that accepts
/// the batch starts its read, and the reactor of the channel must continue it.
#[test]
fn a_read_of_a_batch_that_is_left_to_another_reactor_outlives_the_last_open_of_its_file() {
    let mut scene = Scene::new(&["file"]);
    let mut client = Client::connect(&mut scene, 1, A, "");
    let back = client.bind_back_control(&mut scene, B);
    let (file, state) = client.open(&mut scene, "file");
    let chunks = [FileChunk { offset: 0, length: CONTENT.len() as u32, hint: CacheHint(0) }];
    let buffers = client.buffer();
    let requests = [BatchRequest {
        file,
        request: RequestId(5),
        state,
        direction: TransferDirection::Read,
        chunks: Array::from(&chunks),
        buffers: DirectBuffers::from(&buffers),
        checksum: Checksum::NONE,
    }];
    client.send(
        1,
        &Request::BatchSubmit(BatchSubmit {
            requests: Array::from(&requests),
            window_us: 0,
            completion_count: 1,
            synchronous: false,
        }),
    );
    let accepted = client.next_message(&mut scene, client.operation, &[A]);
    assert_eq!(status_of(&accepted), Status::Ok);
    client.send(2, &Request::Close(Close { file, state }));
    let closed = client.next_message(&mut scene, client.operation, &[A]);
    assert_eq!(status_of(&closed), Status::Ok);
    assert!(!client.has_read(), "only the other reactor can have read");

    let message = client.next_message(&mut scene, back, &[B]);
    let told: Vec<Completion> = match decode_request(ORDER, &message).unwrap().1 {
        Request::BcBatchCompletion(told) => told.completions.iter().collect(),
        other => panic!("{other:?}"),
    };
    let [done] = told[..] else { panic!("{told:?}") };
    let length = CONTENT.len() as u32;
    assert_eq!((done.request, done.status, done.length), (RequestId(5), Status::Ok, length));
    assert!(client.has_read());
}

/// The reply to a change of a fence is sent by the reactor that ends the last transfer of the
/// fenced client. Meanwhile the client that changed the fence reads over a connection whose reactor
/// is in the middle of a turn.
#[test]
fn an_answer_of_another_reactor_goes_out_before_those_of_reads_under_way() {
    let mut scene = Scene::new(&["mine", "fenced"]);
    let mut fencer = Client::connect(&mut scene, 1, A, "inside");
    let mut fenced = Client::connect(&mut scene, 2, B, "outside");
    let of_fencer = fencer.open(&mut scene, "mine");
    let of_fenced = fenced.open(&mut scene, "fenced");
    let (to_fencer, to_fenced) = (fencer.buffer(), fenced.buffer());
    // These reads bring the files into the cache.
    fencer.ask(&mut scene, &read(of_fencer, &to_fencer));
    fenced.ask(&mut scene, &read(of_fenced, &to_fenced));

    fenced.send(1, &read(of_fenced, &to_fenced));
    scene.deliver();
    scene.step(B);
    assert!(scene.server.is_moving(B));
    let fence_ids = ["inside"];
    let fence = Request::SetFencingList(SetFencingList {
        file: of_fenced.0,
        object: FenceObject::File,
        access: FenceAccess::Allow,
        update: FenceUpdate::Overwrite,
        fence_ids: Array::from(&fence_ids),
    });
    fencer.send(1, &fence);
    fencer.send(2, &read(of_fencer, &to_fencer));
    scene.deliver();
    scene.step(A);
    assert!(scene.server.is_moving(A));
    scene.deliver();
    fencer.listen();
    assert_eq!(fencer.heard, [], "the fence waits for the read of the other client");

    // The second halves: the first one ends the transfer that the fence waits for.
    scene.step(B);
    assert!(!scene.server.is_moving(B));
    scene.step(A);
    assert!(!scene.server.is_moving(A));
    let operation = fencer.operation;
    let answers = [0, 1].map(|_| fencer.next_message(&mut scene, operation, &ALL));
    let streams = answers.map(|answer| {
        let header = header_of(&answer);
        assert_eq!(header.status, Status::Ok);
        header.stream
    });
    assert_eq!(streams, [StreamId(1), StreamId(2)]);
}

const ORDER: ByteOrder = ByteOrder::Little;
const SERVER_NODE: u32 = 0;
const REACTORS: usize = 2;
/// The first reactor.
const A: usize = 0;
/// The second reactor.
const B: usize = 1;
const ALL: [usize; REACTORS] = [A, B];
/// The content of every file.
const CONTENT: &[u8] = &[7; 8192];
/// Longer than any message is in transit.
const JOURNEY_NS: u64 = 50_000;
const SLOT_BYTES: usize = 4096;
/// The most messages that a client can receive in total.
const SLOTS_MAX: usize = 32;
/// The number of streams that a client asks for.
const STREAMS: u16 = 8;
const BACK_REQUESTS_MAX: u32 = 4;
/// The cookie of sent messages.
const SENT: u64 = u64::MAX >> 1;
/// The number of rounds after which nothing more is expected.
const ROUNDS_MAX: usize = 1_000;
