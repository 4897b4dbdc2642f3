//! Tests chains (draft 4.3): message by message (`members`), over a broken connection (`broken`),
//! through the client (`client`), and many against a model (`random`).

mod broken;
mod client;
mod members;
mod random;

use std::collections::BTreeMap;

use dafs_types::{FileHandle, SequenceNumber, SessionId, StateId, Status, StreamId};
use dafs_wire::messages::SessionOptions as WireOptions;
use dafs_wire::{
    ByteOrder, ChainFlags, Procedure, Request, RequestHeader, Response, ResponseHeader,
    decode_response, encode_request,
};

use crate::fixture::{Fixture, Transport};
use crate::rogue::Rogue;

const F: ChainFlags = ChainFlags::FORWARD;
const B: ChainFlags = ChainFlags::BACK;
const FB: ChainFlags = F.with(B);
const FILE: ChainFlags = ChainFlags::FILE_HANDLE;
const STATE: ChainFlags = ChainFlags::STATE_ID;
const SAVE: ChainFlags = ChainFlags::SAVE;
const NONE: ChainFlags = ChainFlags(0);
const NULL: Request<'static> = Request::Null(dafs_wire::messages::Empty);

/// Encodes a request with chain flags.
fn member(stream: u16, sequence: u16, flags: ChainFlags, request: &Request<'_>) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let header = RequestHeader {
        chain_flags: flags,
        desired_credits: CREDITS,
        ..RequestHeader::new(StreamId(stream), SequenceNumber(sequence))
    };
    let length = encode_request(ByteOrder::NATIVE, &header, request, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

/// A client with credits for long chains.
struct Chainer {
    rogue: Rogue,
    root: FileHandle,
    session: SessionId,
    sequence: u16,
}

impl Chainer {
    fn new(fixture: &Fixture, transport: Transport) -> Self {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions {
            response_cache: true,
            requests_max: u32::from(CREDITS),
            ..WireOptions::default()
        };
        let session = rogue.log_in_as(b"chainer", options).session;
        let root = FileHandle::NULL;
        let mut chainer = Self { rogue, root, session, sequence: 100 };
        // When all streams are used, the server grants more.
        for _ in 0..4 {
            let statuses = chainer.run(&[(NONE, NULL); 8]);
            assert_eq!(statuses, [Status::Ok; 8]);
        }
        let bytes = chainer.ask(&Request::GetRootHandle(dafs_wire::messages::Empty));
        match results(Procedure::GetRootHandle, &bytes) {
            Response::GetRootHandle(root) => chainer.root = root.file,
            other => panic!("{other:?}"),
        }
        chainer
    }

    /// Sends one request that is not in a chain, and returns its reply.
    fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        self.send(&[(NONE, *request)]);
        self.answers(1).remove(0)
    }

    /// Opens a file in the root for reading and writing.
    fn open(&mut self, name: &str) -> (FileHandle, StateId) {
        let names = [name];
        let opening = crate::rogue::opening(self.root, dafs_wire::Path::new(&names));
        opened(&self.ask(&Request::Open(opening)))
    }

    /// Sends members at once, each on its own stream.
    fn send(&mut self, members: &[(ChainFlags, Request<'_>)]) {
        self.sequence += 1;
        let sequence = self.sequence;
        let numbered = (0..).zip(members);
        let messages: Vec<_> = numbered
            .map(|(stream, (flags, request))| member(stream, sequence, *flags, request))
            .collect();
        self.send_bytes(&messages);
    }

    fn send_bytes(&mut self, messages: &[Vec<u8>]) {
        for message in messages {
            let gather = [dafs_dat::Gather::Bytes(message)];
            let options = dafs_dat::SendOptions::default();
            let _ = self.rogue.interface.post_send(self.rogue.endpoint, 99, &gather, options);
        }
        self.rogue.interface.flush();
    }

    /// Receives this many replies and returns them by stream.
    fn answers(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut answers = BTreeMap::new();
        for _ in 0..count {
            let bytes = self.rogue.answer().expect("the session stands");
            let header = ResponseHeader::decode(ByteOrder::NATIVE, &bytes).unwrap();
            assert!(answers.insert(header.stream.0, bytes).is_none(), "answered twice");
        }
        answers.into_values().collect()
    }

    /// Runs members and returns the status of each.
    fn run(&mut self, members: &[(ChainFlags, Request<'_>)]) -> Vec<Status> {
        self.send(members);
        self.answers(members.len()).iter().map(|bytes| crate::rogue::status_of(bytes)).collect()
    }

    /// Runs members, all of which must succeed, and returns their replies.
    fn succeed(&mut self, members: &[(ChainFlags, Request<'_>)]) -> Vec<Vec<u8>> {
        self.send(members);
        let answers = self.answers(members.len());
        for (bytes, (_, request)) in answers.iter().zip(members) {
            assert_eq!(crate::rogue::status_of(bytes), Status::Ok, "{request:?}");
        }
        answers
    }
}

fn results(procedure: Procedure, bytes: &[u8]) -> Response<'_> {
    decode_response(ByteOrder::NATIVE, procedure, bytes).unwrap().1
}

fn opened(bytes: &[u8]) -> (FileHandle, StateId) {
    match results(Procedure::Open, bytes) {
        Response::Open(opened) => (opened.file, opened.state),
        other => panic!("{other:?}"),
    }
}

/// The maximum number of streams that the tests use at once.
const CREDITS: u16 = 32;
