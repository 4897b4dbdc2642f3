//! A server that replies as a test wants and records the requests, so that the order in which a
//! client recovers can be compared exactly.

use std::sync::mpsc::{Receiver, Sender, channel};

use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, Operation, Rights, SendOptions,
};
use dafs_memory::{Memory, Pages};
use dafs_types::{ClientId, FileHandle, SessionId, StateId, Status};
use dafs_wire::messages::{
    AuthResult, ClientConnectAuthResult, Delegation, Empty, LockOptions, OneHandle, OpenFlags,
    OpenResult, OpenTarget, SessionOptions as WireOptions,
};
use dafs_wire::{
    ByteOrder, ChainFlags, Request, Response, ResponseHeader, decode_request, encode_response,
};

use crate::fixture::{any, places};

/// What the server does with a request.
pub(crate) enum Act {
    /// Replies.
    Say(Status, Response<'static>),
    /// Breaks the connection instead.
    Break,
    /// Sends nothing.
    Wait,
}

impl Act {
    /// Returns a failure reply.
    pub(crate) fn refuse(status: Status) -> Self {
        Self::Say(status, Response::Failed)
    }
}

/// A server in a separate thread that ends with its client.
pub(crate) struct Script {
    pub address: Address,
    log: Receiver<String>,
    thread: Option<std::thread::JoinHandle<()>>,
    stop: dafs_dat::Waker,
    stopped: Sender<()>,
    _directory: tempfile::TempDir,
}

impl Script {
    /// Starts the server. `act` gets the number of the connection, counted from 1, and the request.
    /// The client id of each connection is the result of `client_of`; session ids are the
    /// connection numbers.
    pub(crate) fn start(
        client_of: impl Fn(u64) -> u64 + Send + 'static,
        act: impl FnMut(u64, &Request<'_>) -> Act + Send + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = places(directory.path(), 0).swap_remove(any() as usize);
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let listener = interface.listen(&address).unwrap();
        let address = interface.listener_address(listener).unwrap();
        let stop = interface.waker();
        let (told, log) = channel();
        let (stopped, is_stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut player = Player { interface, connections: Vec::new(), told, client_of, act };
            while is_stopped.try_recv().is_err() {
                player.turn();
            }
        });
        Self { address, log, thread: Some(thread), stop, stopped, _directory: directory }
    }

    /// Returns the requests since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.log.try_iter().collect()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.stopped.send(());
        self.stop.wake();
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

struct Player<C, A> {
    interface: Interface,
    /// The peers by connection number minus one.
    connections: Vec<Peer>,
    told: Sender<String>,
    client_of: C,
    act: A,
}

struct Peer {
    endpoint: EndpointId,
    inbox: Memory,
    /// The number of replies that may not have been sent yet.
    leaving: usize,
    /// True if the connection is to be broken when they have been sent.
    breaks: bool,
}

impl<C: Fn(u64) -> u64, A: FnMut(u64, &Request<'_>) -> Act> Player<C, A> {
    fn turn(&mut self) {
        self.interface.wait(1, None);
        while let Some(event) = self.interface.next_event() {
            match event {
                Event::ConnectionRequest { pending, .. } => self.take_in(pending),
                Event::Completion(Completion {
                    operation: Operation::Receive,
                    status: CompletionStatus::Success,
                    endpoint,
                    cookie,
                    length,
                    ..
                }) => self.on_message(endpoint, cookie, length as usize),
                Event::Completion(Completion { operation: Operation::Send, endpoint, .. }) => {
                    self.on_left(endpoint);
                }
                Event::Broken { endpoint, .. } => self.interface.release(endpoint),
                _ => {}
            }
        }
    }

    fn take_in(&mut self, pending: dafs_dat::PendingId) {
        let inbox = Memory::anonymous(SLOTS as usize * SLOT_BYTES, Pages::Small).unwrap();
        let region = self.interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let config = EndpointConfig::default();
        let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
        for slot in 0..SLOTS {
            let segment = region.local(slot * SLOT_BYTES as u64, SLOT_BYTES as u32);
            // There are never more requests than slots here.
            let _ = self.interface.post_receive(endpoint, slot, &[segment]);
        }
        self.connections.push(Peer { endpoint, inbox, leaving: 0, breaks: false });
    }

    fn on_left(&mut self, endpoint: EndpointId) {
        let peer = self.connections.iter_mut().find(|peer| peer.endpoint == endpoint).unwrap();
        peer.leaving -= 1;
        if peer.leaving == 0 && peer.breaks {
            self.interface.disconnect(endpoint);
        }
    }

    fn on_message(&mut self, endpoint: EndpointId, slot: u64, length: usize) {
        let place = self.connections.iter().position(|peer| peer.endpoint == endpoint).unwrap();
        if self.connections[place].breaks {
            return;
        }
        let number = place as u64 + 1;
        let message = self.connections[place].inbox.to_vec(slot as usize * SLOT_BYTES, length);
        let (header, request) = decode_request(ByteOrder::NATIVE, &message).unwrap();
        let act = match &request {
            Request::ClientConnectAuth(_) => Act::Say(
                Status::Ok,
                Response::ClientConnectAuth(ClientConnectAuthResult {
                    session: SessionId(number),
                    client: ClientId((self.client_of)(number)),
                    options: WireOptions {
                        response_cache: true,
                        requests_max: 8,
                        request_bytes_max: SLOT_BYTES as u32,
                        response_bytes_max: SLOT_BYTES as u32,
                        ..WireOptions::default()
                    },
                    authentication: AuthResult::None,
                    trusted: false,
                }),
            ),
            Request::GetRootHandle(_) => {
                let root = OneHandle { file: handle(0) };
                Act::Say(Status::Ok, Response::GetRootHandle(root))
            }
            request => {
                let mark = mark(header.chain_flags);
                let _ = self.told.send(format!("{number}: {}{mark}", describe(request)));
                match request {
                    Request::Disconnect(_) => Act::Say(Status::Ok, Response::Disconnect(Empty)),
                    request => (self.act)(number, request),
                }
            }
        };
        match act {
            Act::Break if self.connections[place].leaving > 0 => {
                self.connections[place].breaks = true;
            }
            Act::Break => self.interface.disconnect(endpoint),
            Act::Wait => {}
            Act::Say(status, response) => {
                let header = ResponseHeader::answering(&header, status, 8);
                let mut answer = vec![0; SLOT_BYTES];
                let length =
                    encode_response(ByteOrder::NATIVE, &header, &response, &mut answer).unwrap();
                let gather = [Gather::Bytes(&answer[..length])];
                let options = SendOptions::default();
                let sent = self.interface.post_send(endpoint, 0, &gather, options);
                self.connections[place].leaving += usize::from(sent.is_ok());
            }
        }
    }
}

fn describe(request: &Request<'_>) -> String {
    let name = request.procedure().name();
    match request {
        Request::Open(open) => match open.target {
            OpenTarget::Null { path, .. } => {
                let path: Vec<&str> = path.iter().collect();
                format!("OPEN {} {:?}", path.join("/"), open.access)
            }
            OpenTarget::Previous { file, .. } => {
                format!("OPEN again {} {:?}", number_of(&file), open.access)
            }
            other => format!("OPEN {:?}", other.claim()),
        },
        Request::Close(close) => format!("CLOSE {}", close.state.0),
        Request::SetAttrInline(set) => format!("SETATTR {}", set.state.0),
        Request::ReadDirect(read) => format!("READ {}", read.state.0),
        Request::FetchResponse(fetch) => {
            let procedure = dafs_wire::Procedure::from_number(fetch.procedure).unwrap();
            format!("FETCH {} of {}", procedure.name(), fetch.session.0)
        }
        Request::CheckResponse(check) => format!("CHECK of {}", check.session.0),
        Request::DiscardResponses(discard) => format!("DISCARD {}", discard.session.0),
        Request::Create(create) => match number_of(&create.directory) {
            0 => format!("CREATE {}", create.name),
            number => format!("CREATE {} in {number}", create.name),
        },
        Request::Lock(lock) if lock.options.contains(LockOptions::RECLAIM) => {
            format!("LOCK again {} {:?} {}", lock.state.0, lock.lock_type, lock.offset)
        }
        Request::Remove(remove) => format!("REMOVE {}", remove.name),
        _ => name.to_owned(),
    }
}

/// Describes how a request is chained: what it takes from earlier ones, and whether another
/// follows.
fn mark(flags: ChainFlags) -> String {
    let marks = [
        (ChainFlags::BACK, "+"),
        (ChainFlags::FILE_HANDLE, "file"),
        (ChainFlags::STATE_ID, "state"),
        (ChainFlags::SAVE, "save"),
        (ChainFlags::FORWARD, ">"),
    ];
    let set = marks.into_iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, mark)| format!(" {mark}")).collect()
}

/// Makes a handle that contains a number.
pub(crate) fn handle(number: u8) -> FileHandle {
    let mut bytes = FileHandle::NULL.0;
    bytes[63] = number;
    FileHandle(bytes)
}

fn number_of(handle: &FileHandle) -> u8 {
    handle.0[63]
}

/// Makes a reply to OPEN.
pub(crate) fn opened(file: u8, state: u64) -> Act {
    let result = OpenResult {
        file: handle(file),
        state: StateId(state),
        directory: dafs_types::ChangeInfo::default(),
        component_count: 1,
        flags: OpenFlags::default(),
        delegation: Delegation::None,
    };
    Act::Say(Status::Ok, Response::Open(result))
}

const SLOTS: u64 = 16;
const SLOT_BYTES: usize = 4096 + 512;
