//! A client that holds delegations, message by message.

use std::time::Duration;

use dafs_client::{File, OpenOptions, Session};
use dafs_dat::EndpointId;
use dafs_filer::DelegationPolicy;
use dafs_server::ServerConfig;
use dafs_types::{FileAttributes, FileHandle, ShareAccess, ShareDeny, StateId, Status};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{
    DelegReturn, Delegation, Empty, FileAttributesResult, Open, OpenTarget,
    SessionOptions as WireOptions,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, ChannelType, FileAttributeBlock, Path, Procedure, Request,
    RequestHeader, Response, decode_request, decode_response,
};

use crate::bind::{answer, answer_null, bind};
use crate::fixture::{Fixture, Transport};
use crate::rogue::{Rogue, opening, status_of};

/// A session with a working back-control channel.
pub(super) struct Holder {
    pub rogue: Rogue,
    pub back: EndpointId,
}

/// The result of an OPEN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub file: FileHandle,
    /// The state id of the open.
    pub state: StateId,
    /// The state id of the delegation, and true if it is for writing.
    pub delegation: Option<(StateId, bool)>,
}

/// The server's request on a back-control channel.
#[derive(Debug)]
pub(super) enum Asked {
    Recall { state: StateId, truncate: bool },
    GetAttributes { file: FileHandle, wanted: AttributeBitmap },
}

impl Holder {
    pub(super) fn new(fixture: &Fixture, transport: Transport, name: &'static [u8]) -> Self {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions { back_control_channel: true, ..WireOptions::default() };
        let results = rogue.log_in_as(name, options);
        let back = bind(&mut rogue, fixture, transport, results.session, ChannelType::BackControl);
        let mut holder = Self { rogue, back };
        holder.prove();
        holder
    }

    /// Replies to BC_NULL, and ensures that the server has received the reply.
    pub(super) fn prove(&mut self) {
        let message = self.rogue.message_on(self.back).unwrap();
        let (header, request) = decode_request(ByteOrder::NATIVE, &message).unwrap();
        assert_eq!(request.procedure(), Procedure::BcNull);
        self.rogue.send_on(self.back, &answer_null(&header));
        // The server reads the two connections in any order. A granted open shows that it has read
        // both.
        for _ in 0..2 {
            self.rogue.root();
        }
    }

    pub(super) fn open(&mut self, name: &str, access: ShareAccess) -> Held {
        self.try_open(name, access, ShareDeny::None).unwrap()
    }

    /// Opens the file until the server has received the reply on the back-control channel.
    pub(super) fn hold(&mut self, name: &str, access: ShareAccess) -> Held {
        for _ in 0..10_000 {
            let held = self.open(name, access);
            if held.delegation.is_some() {
                return held;
            }
            std::thread::yield_now();
        }
        panic!("no delegation");
    }

    pub(super) fn try_open(
        &mut self,
        name: &str,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<Held, Status> {
        let (directory, names) = (self.rogue.root(), [name]);
        let target = OpenTarget::Null { directory, path: Path::new(&names) };
        self.try_target(target, access, deny)
    }

    pub(super) fn try_target(
        &mut self,
        target: OpenTarget<'_>,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<Held, Status> {
        let names = [""];
        let root = FileHandle([0; FileHandle::LENGTH]);
        let open = Open { target, access, deny, ..opening(root, Path::new(&names)) };
        let bytes = self.rogue.ask(&Request::Open(open)).unwrap();
        opened(&bytes)
    }

    /// Returns the server's next request on the back-control channel, with its header.
    pub(super) fn asked(&mut self) -> (RequestHeader, Asked) {
        let message = self.rogue.message_on(self.back).unwrap();
        let (header, request) = decode_request(ByteOrder::NATIVE, &message).unwrap();
        let asked = match request {
            Request::BcRecall(recall) => {
                Asked::Recall { state: recall.state, truncate: recall.truncate }
            }
            Request::BcGetAttr(get) => Asked::GetAttributes { file: get.file, wanted: get.wanted },
            other => panic!("{other:?}"),
        };
        (header, asked)
    }

    /// Replies to the next recall with a status.
    pub(super) fn recalled(&mut self, status: Status) -> (StateId, bool) {
        let (header, asked) = self.asked();
        let Asked::Recall { state, truncate } = asked else { panic!("{asked:?}") };
        let response =
            if status == Status::Ok { Response::BcRecall(Empty) } else { Response::Failed };
        self.answer(&header, status, &response);
        (state, truncate)
    }

    pub(super) fn answer(
        &mut self,
        header: &RequestHeader,
        status: Status,
        response: &Response<'_>,
    ) {
        self.rogue.send_on(self.back, &answer(header, status, response));
    }

    /// Replies to BC_GETATTR with a size.
    pub(super) fn tell_size(&mut self, header: &RequestHeader, wanted: AttributeBitmap, size: u64) {
        assert!(wanted.contains(bits::OBJECT_SIZE));
        let full = FileAttributes { size: Some(size), ..FileAttributes::default() };
        let mut buffer = [0; 256];
        let attributes =
            FileAttributeBlock::encode_file(ByteOrder::NATIVE, wanted, &full, &mut buffer).unwrap();
        let told = Response::BcGetAttr(FileAttributesResult { attributes });
        self.answer(header, Status::Ok, &told);
    }

    pub(super) fn give_back(&mut self, state: StateId) -> Status {
        self.rogue.outcome(&Request::DelegReturn(DelegReturn { state })).unwrap()
    }
}

/// Decodes the results of an OPEN.
pub(super) fn opened(bytes: &[u8]) -> Result<Held, Status> {
    let response = decode_response(ByteOrder::NATIVE, Procedure::Open, bytes).unwrap().1;
    match (status_of(bytes), response) {
        (Status::Ok, Response::Open(opened)) => Ok(Held {
            file: opened.file,
            state: opened.state,
            delegation: match opened.delegation {
                Delegation::None => None,
                Delegation::Read { state, recall, .. } => {
                    assert!(!recall);
                    Some((state, false))
                }
                Delegation::Write { state, recall, .. } => {
                    assert!(!recall);
                    Some((state, true))
                }
            },
        }),
        (status, _) => Err(status),
    }
}

/// Opens the file until there is a delegation. The first OPEN of a session may get none: the server
/// may execute it before it has received the reply that proves the session's back-control channel.
pub(super) fn open_delegated(session: &Session, name: &str, options: &OpenOptions) -> File {
    let mut byte = [0; 1];
    for _ in 0..10_000 {
        let file = session.open(name, options).unwrap();
        file.read_at(&mut byte, 0).unwrap();
        let before = session.delegated_reads();
        file.read_at(&mut byte, 0).unwrap();
        if session.delegated_reads() > before {
            return file;
        }
        file.close().unwrap();
    }
    panic!("no delegation");
}

/// Configures a server without a quiet time after recalls.
pub(super) fn lively(change: impl FnOnce(&mut DelegationPolicy)) -> impl FnOnce(&mut ServerConfig) {
    |config| {
        config.filer.delegations.quiet = Duration::ZERO;
        change(&mut config.filer.delegations);
    }
}
