//! A client that sends whatever a test wants, over a real transport.

use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, LocalSegment, Operation, Region, Rights, SendOptions,
};
use dafs_memory::{Memory, Pages};
use dafs_types::{
    FileHandle, RmrContext, RmrTarget, SequenceNumber, ShareAccess, ShareDeny, StateId, Status,
    StreamId, Verifier,
};
use dafs_wire::messages::{
    AuthRequest, AuthResult, ClientConnectAuth, ClientConnectAuthResult, DelegationType, Empty,
    Lookup, Open, OpenCreation, OpenTarget, SessionOptions as WireOptions,
};
use dafs_wire::{
    ByteOrder, ChannelType, ConnectData, DirectBuffer, Path, Procedure, Request, RequestHeader,
    Response, ResponseHeader, decode_response, encode_request, seal,
};

use crate::fixture::HANG;

/// One connection, and the messages received on it.
pub(crate) struct Rogue {
    pub interface: Interface,
    pub endpoint: EndpointId,
    inbox: Memory,
    region: Region,
    sequence: u16,
    /// The number of credits to request.
    pub credits: u16,
    /// True if its requests have checksums.
    seals: bool,
    /// Messages received while waiting for others.
    aside: Vec<(EndpointId, Vec<u8>)>,
    /// Connections that have ended.
    ended: Vec<EndpointId>,
}

impl Rogue {
    /// Opens a connection without sending anything.
    pub(crate) fn connect(address: &Address) -> Self {
        Self::connect_with(address, &EndpointConfig::default())
    }

    pub(crate) fn connect_with(address: &Address, config: &EndpointConfig) -> Self {
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let inbox = Memory::anonymous(2 * SLOTS as usize * SLOT_BYTES, Pages::Small).unwrap();
        let region = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let data = connect_data();
        let endpoint = interface.connect(address, Domain(0), config, &data).unwrap();
        let (aside, ended) = (Vec::new(), Vec::new());
        let mut rogue = Self {
            interface,
            endpoint,
            inbox,
            region,
            sequence: 0,
            credits: 1,
            seals: false,
            aside,
            ended,
        };
        for slot in 0..SLOTS {
            rogue.post(slot);
        }
        rogue.stands(endpoint);
        rogue
    }

    /// Starts a valid session.
    pub(crate) fn logged_in(address: &Address) -> Self {
        let mut rogue = Self::connect(address);
        rogue.log_in();
        rogue
    }

    /// Starts a session with checksums.
    pub(crate) fn logged_in_sealed(address: &Address) -> Self {
        let mut rogue = Self::connect(address);
        rogue.request(0, 0, &login_with(WireOptions { checksums: true, ..WireOptions::default() }));
        assert_eq!(rogue.status(), Some(Status::Ok));
        rogue.seals = true;
        rogue
    }

    /// Opens another connection of the same client.
    pub(crate) fn open_beside(&mut self, address: &Address, kind: ChannelType) -> EndpointId {
        let config = EndpointConfig::default();
        let data = connect_data_of(kind);
        let beside = self.interface.connect(address, Domain(0), &config, &data).unwrap();
        for slot in SLOTS..2 * SLOTS {
            self.post_on(beside, slot);
        }
        self.stands(beside);
        beside
    }

    /// Waits until a connection is established. Messages of other connections are kept.
    fn stands(&mut self, beside: EndpointId) {
        loop {
            match self.event() {
                Event::Established { endpoint, .. } if endpoint == beside => return,
                Event::Rejected { endpoint, .. } if endpoint == beside => panic!("rejected"),
                Event::Broken { endpoint, reason } if endpoint == beside => panic!("{reason:?}"),
                event => self.take_in(event),
            }
        }
    }

    /// Sends on another connection.
    pub(crate) fn send_on(&mut self, endpoint: EndpointId, bytes: &[u8]) {
        let gather = [Gather::Bytes(bytes)];
        let _ = self.interface.post_send(endpoint, 99, &gather, SendOptions::default());
        self.interface.flush();
    }

    /// Returns the next message of a connection; `None` if it ended instead.
    pub(crate) fn message_on(&mut self, endpoint: EndpointId) -> Option<Vec<u8>> {
        loop {
            if let Some(place) = self.aside.iter().position(|(from, _)| *from == endpoint) {
                return Some(self.aside.remove(place).1);
            }
            if self.ended.contains(&endpoint) {
                return None;
            }
            let event = self.event();
            self.take_in(event);
        }
    }

    /// Processes everything that has arrived, and serves the server's reads. Messages are kept.
    pub(crate) fn turn(&mut self) {
        // Sockets are checked only when nothing else is left.
        while self.interface.poll() > 0 {
            while let Some(event) = self.interface.next_event() {
                self.take_in(event);
            }
        }
        self.interface.flush();
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Completion(Completion {
                operation: Operation::Receive,
                status: CompletionStatus::Success,
                endpoint,
                cookie,
                length,
                ..
            }) => {
                let bytes = self.inbox.to_vec(cookie as usize * SLOT_BYTES, length as usize);
                self.post_on(endpoint, cookie);
                self.aside.push((endpoint, bytes));
            }
            Event::Broken { endpoint, reason } => {
                eprintln!("{endpoint:?} has ended: {reason:?}");
                self.ended.push(endpoint);
            }
            _ => {}
        }
    }

    fn post(&mut self, slot: u64) {
        self.post_on(self.endpoint, slot);
    }

    fn post_on(&mut self, endpoint: EndpointId, slot: u64) {
        let segment: LocalSegment =
            self.region.local(slot * SLOT_BYTES as u64, u32::try_from(SLOT_BYTES).unwrap());
        let _ = self.interface.post_receive(endpoint, slot, &[segment]);
    }

    pub(crate) fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.interface.next_event() {
                return event;
            }
            let count = self.interface.wait(1, Some(HANG));
            assert!(count > 0, "nothing happens any more");
        }
    }

    /// Sends bytes as one message, valid or not.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let gather = [Gather::Bytes(bytes)];
        let _ = self.interface.post_send(self.endpoint, 99, &gather, SendOptions::default());
        self.interface.flush();
    }

    /// True if a message has arrived that was not returned yet.
    pub(crate) fn has_answer(&mut self) -> bool {
        self.turn();
        self.aside.iter().any(|(from, _)| *from == self.endpoint)
    }

    /// Sends a request with any stream and sequence number.
    pub(crate) fn request(&mut self, stream: u16, sequence: u16, request: &Request<'_>) {
        let mut header = RequestHeader::new(StreamId(stream), SequenceNumber(sequence));
        header.desired_credits = self.credits;
        let mut message = encoded_under(&header, request);
        if self.seals {
            seal(&mut message, &[]);
        }
        self.send(&message);
    }

    /// Returns the next reply; `None` if the connection ended instead.
    pub(crate) fn answer(&mut self) -> Option<Vec<u8>> {
        self.message_on(self.endpoint)
    }

    /// Returns the status of the next reply.
    pub(crate) fn status(&mut self) -> Option<Status> {
        self.answer().map(|bytes| status_of(&bytes))
    }

    /// Sends a valid request on stream 0.
    pub(crate) fn begin(&mut self, request: &Request<'_>) {
        self.sequence = self.sequence.wrapping_add(1);
        self.request(0, self.sequence, request);
    }

    /// Sends a valid request on stream 0 and returns its reply; `None` if the connection ended
    /// instead.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Option<Vec<u8>> {
        self.begin(request);
        self.answer()
    }

    /// Does the same and returns only the status.
    pub(crate) fn outcome(&mut self, request: &Request<'_>) -> Option<Status> {
        self.ask(request).map(|bytes| status_of(&bytes))
    }

    /// Does the same with a message made by hand for a stream and a sequence number.
    pub(crate) fn outcome_of(&mut self, make: impl FnOnce(u16, u16) -> Vec<u8>) -> Option<Status> {
        self.sequence = self.sequence.wrapping_add(1);
        self.send(&make(0, self.sequence));
        self.status()
    }

    pub(crate) fn log_in(&mut self) {
        self.request(0, 0, &login());
        assert_eq!(self.status(), Some(Status::Ok));
    }

    /// Logs in with its own name and requests more resources than most.
    pub(crate) fn log_in_as(
        &mut self,
        name: &'static [u8],
        options: WireOptions,
    ) -> ClientConnectAuthResult<'static> {
        let seals = options.checksums;
        self.request(0, 0, &login_as(name, options));
        let logged_in = self.logged_in_as();
        self.seals = seals;
        logged_in
    }

    /// Does the same as another incarnation of the client, which begins with a first request.
    pub(crate) fn log_in_anew(
        &mut self,
        name: &'static [u8],
        options: WireOptions,
    ) -> ClientConnectAuthResult<'static> {
        let Request::ClientConnectAuth(login) = login_as(name, options) else { unreachable!() };
        let verifier = Verifier([8; 8]);
        self.request(0, 0, &Request::ClientConnectAuth(ClientConnectAuth { verifier, ..login }));
        let logged_in = self.logged_in_as();
        assert_eq!(self.outcome(&Request::Null(Empty)), Some(Status::Ok));
        logged_in
    }

    fn logged_in_as(&mut self) -> ClientConnectAuthResult<'static> {
        let bytes = self.answer().unwrap();
        assert_eq!(status_of(&bytes), Status::Ok);
        match decoded(Procedure::ClientConnectAuth, &bytes) {
            Response::ClientConnectAuth(result) => {
                ClientConnectAuthResult { authentication: AuthResult::None, ..result }
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn root(&mut self) -> FileHandle {
        let bytes = self.ask(&Request::GetRootHandle(Empty)).unwrap();
        match decoded(Procedure::GetRootHandle, &bytes) {
            Response::GetRootHandle(root) => root.file,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn lookup(&mut self, name: &str) -> FileHandle {
        let (directory, names) = (self.root(), [name]);
        let lookup = Lookup { directory, path: Path::new(&names) };
        let bytes = self.ask(&Request::Lookup(lookup)).unwrap();
        match decoded(Procedure::Lookup, &bytes) {
            Response::Lookup(found) => found.file,
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file in the root for reading and writing.
    pub(crate) fn open(&mut self, name: &str) -> (FileHandle, StateId) {
        self.try_open(name).unwrap()
    }

    /// Does the same where it may fail.
    pub(crate) fn try_open(&mut self, name: &str) -> Result<(FileHandle, StateId), Status> {
        let (directory, names) = (self.root(), [name]);
        let bytes = self.ask(&Request::Open(opening(directory, Path::new(&names)))).unwrap();
        match (status_of(&bytes), decoded(Procedure::Open, &bytes)) {
            (Status::Ok, Response::Open(opened)) => Ok((opened.file, opened.state)),
            (status, _) => Err(status),
        }
    }

    /// Reclaims an open after the server's restart.
    pub(crate) fn reclaim(&mut self, file: FileHandle) -> Result<StateId, Status> {
        let delegation = DelegationType::None;
        let target = OpenTarget::Previous { file, delegation };
        let names = [""];
        let open = Open { target, ..opening(file, Path::new(&names)) };
        let bytes = self.ask(&Request::Open(open)).unwrap();
        match (status_of(&bytes), decoded(Procedure::Open, &bytes)) {
            (Status::Ok, Response::Open(opened)) => Ok(opened.state),
            (status, _) => Err(status),
        }
    }

    /// Registers memory that the server may read and write.
    pub(crate) fn expose(&mut self, memory: &Memory) -> Region {
        self.interface.register(memory, Domain(0), Rights::REMOTE).unwrap()
    }

    /// Returns part of a region as messages name it, because devices have their own names for
    /// memory.
    pub(crate) fn buffer(&mut self, region: &Region, offset: u64, length: u32) -> DirectBuffer {
        let remote = self.interface.remote(self.endpoint, region, offset, length);
        let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
        DirectBuffer { target, length, context }
    }

    /// Waits for the server to end the connection, whatever it replies before.
    pub(crate) fn ends(&mut self) {
        while self.answer().is_some() {}
    }
}

/// Returns the connect data of an operation channel.
pub(crate) fn connect_data() -> Vec<u8> {
    connect_data_of(ChannelType::Operation)
}

fn connect_data_of(channel: ChannelType) -> Vec<u8> {
    ConnectData { client_instance: 1, client_session: 2, channel }
        .encode(ByteOrder::NATIVE)
        .to_vec()
}

/// Encodes a request.
pub(crate) fn encoded(stream: u16, sequence: u16, request: &Request<'_>) -> Vec<u8> {
    encoded_under(&RequestHeader::new(StreamId(stream), SequenceNumber(sequence)), request)
}

fn encoded_under(header: &RequestHeader, request: &Request<'_>) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let length = encode_request(ByteOrder::NATIVE, header, request, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

/// Returns the first request of a session.
pub(crate) fn login() -> Request<'static> {
    login_with(WireOptions::default())
}

fn login_with(options: WireOptions) -> Request<'static> {
    login_as(b"rogue", options)
}

/// Returns the first request with another name.
pub(crate) fn login_as(name: &'static [u8], options: WireOptions) -> Request<'static> {
    Request::ClientConnectAuth(ClientConnectAuth {
        options,
        fence_id: "",
        client_string: name,
        verifier: Verifier([7; 8]),
        authentication: AuthRequest::None,
    })
}

/// Returns the first request with a user's password. Each user is a client with that name, because
/// the client of another user may still exist.
pub(crate) fn login_by_password<'a>(identity: &'a str, password: &'a str) -> Request<'a> {
    let Request::ClientConnectAuth(login) = login_as(b"guest", WireOptions::default()) else {
        unreachable!()
    };
    let authentication = AuthRequest::Text { identity, password };
    let client_string = identity.as_bytes();
    Request::ClientConnectAuth(ClientConnectAuth { authentication, client_string, ..login })
}

/// Returns an open for reading and writing that denies nothing to others.
pub(crate) fn opening<'a>(directory: FileHandle, path: Path<'a>) -> Open<'a> {
    Open {
        target: OpenTarget::Null { directory, path },
        creation: OpenCreation::NoCreate,
        delete_disposition: dafs_types::DeleteDisposition::DontCare,
        owner: b"rogue",
        access: ShareAccess::Both,
        deny: ShareDeny::None,
        key: None,
    }
}

/// Returns the status in a reply's header.
pub(crate) fn status_of(bytes: &[u8]) -> Status {
    ResponseHeader::decode(ByteOrder::NATIVE, bytes).unwrap().status
}

pub(crate) fn decoded(procedure: Procedure, bytes: &[u8]) -> Response<'_> {
    decode_response(ByteOrder::NATIVE, procedure, bytes).unwrap().1
}

const SLOTS: u64 = 64;
const SLOT_BYTES: usize = 4608;
