//! Body of the fuzz target, shared with the test that replays its corpus.
//!
//! Invariant: it takes any octets at all, and panics exactly if the server broke a
//! promise: every request is answered or its connection ends, another session goes on,
//! and nothing is held once the connection is gone. Not part of the interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dafs_dat::{
    Address, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Operation, Region, Rights, SendOptions, WaitPolicy,
};
use dafs_memory::{Memory, Pages};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_types::{Credentials, SequenceNumber, StreamId, Verifier};
use dafs_wire::messages::{AuthRequest, ClientConnectAuth, Empty, SessionOptions};
use dafs_wire::{
    ByteOrder, ChannelType, ConnectData, Procedure, Request, RequestHeader, Response,
    decode_response, encode_request,
};

use crate::{Server, ServerConfig};

/// Request bodies for a session in good order. Each begins with a procedure, what of it
/// becomes a handle or a buffer that is good, and a length.
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
        // What comes back is a response to that very procedure, or the session ended.
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

/// A server on a thread that is also its client's.
struct Scene {
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let store = MemoryStore::new(MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 });
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
        config.filer.anonymous = Some(Credentials::superuser());
        Self { server: Server::new(&config, Arc::new(store)).expect("a server") }
    }
}

struct Client {
    interface: Interface,
    endpoint: EndpointId,
    inbox: Memory,
    region: Region,
    /// Memory that the server may read and write.
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
                // The pool's thread has something to do.
                std::thread::yield_now();
            }
        }
        panic!("no answer and no end");
    }

    /// The answer; `None` if the connection ended instead.
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

    /// Puts what no fuzzer could guess into a message: the root's handle, and a buffer of
    /// ours wherever one may be.
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

const SLOT_BYTES: u32 = 8192;
const REQUESTS_MAX: u16 = 20;
/// Turns after which nothing more is to be expected.
const TURNS_MAX: u32 = 1_000_000;
