//! Tests the additional channels of a session message by message (draft 3.1.2.1, 6.2.5, 6.6).

use dafs_dat::EndpointId;
use dafs_memory::{Memory, Pages};
use dafs_types::{CacheHint, FileHandle, SessionId, Stability, StateId, Status};
use dafs_wire::messages::{
    AuthRequest, ChannelUse, ConnectBind, Empty, SessionOptions as WireOptions, WriteDirect,
};
use dafs_wire::{
    ByteOrder, ChannelType, Checksum, DirectBuffers, Procedure, Request, RequestHeader, Response,
    ResponseHeader, decode_request, encode_response,
};

use crate::fixture::{Fixture, Transport, over_each_alone};
use crate::rogue::{Rogue, encoded, status_of};

/// Starts a session that may have all channels.
fn session(fixture: &Fixture, transport: Transport) -> (Rogue, SessionId) {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    let options = WireOptions {
        back_control_channel: true,
        rdma_read_channel: true,
        ..WireOptions::default()
    };
    let results = rogue.log_in_as(b"binder", options);
    assert!(results.options.back_control_channel && results.options.rdma_read_channel);
    (rogue, results.session)
}

fn binding(session: SessionId, channel_use: ChannelUse) -> Vec<u8> {
    let bind = ConnectBind {
        session,
        channel_use,
        request_bytes_max: 0,
        response_bytes_max: 0,
        requests_max: 2,
        authentication: AuthRequest::None,
    };
    encoded(0, 0, &Request::ConnectBind(bind))
}

/// Binds a channel, which the server must accept.
pub(crate) fn bind(
    rogue: &mut Rogue,
    fixture: &Fixture,
    transport: Transport,
    session: SessionId,
    kind: ChannelType,
) -> EndpointId {
    let beside = rogue.open_beside(&fixture.address(transport), kind);
    let channel_use = match kind {
        ChannelType::RdmaRead => ChannelUse::RdmaRead,
        _ => ChannelUse::BackControl,
    };
    rogue.send_on(beside, &binding(session, channel_use));
    let answer = rogue.message_on(beside).unwrap();
    assert_eq!(status_of(&answer), Status::Ok);
    beside
}

/// Returns the server's next request on a back-control channel.
fn asked(rogue: &mut Rogue, back: EndpointId) -> (RequestHeader, Procedure) {
    let message = rogue.message_on(back).unwrap();
    let (header, request) = decode_request(ByteOrder::NATIVE, &message).unwrap();
    (header, request.procedure())
}

/// Encodes the client's reply to a request on a back-control channel.
pub(crate) fn answer(header: &RequestHeader, status: Status, response: &Response<'_>) -> Vec<u8> {
    let mut message = vec![0; 512];
    let header = ResponseHeader::answering(header, status, 2);
    let length = encode_response(ByteOrder::NATIVE, &header, response, &mut message).unwrap();
    message.truncate(length);
    message
}

/// Encodes the client's reply to BC_NULL.
pub(crate) fn answer_null(header: &RequestHeader) -> Vec<u8> {
    answer(header, Status::Ok, &Response::BcNull(Empty))
}

#[test]
fn a_bound_back_control_channel_is_tried_out() {
    over_each_alone(|fixture, transport| {
        let (mut rogue, session) = session(fixture, transport);
        let back = bind(&mut rogue, fixture, transport, session, ChannelType::BackControl);
        let (header, procedure) = asked(&mut rogue, back);
        assert_eq!(procedure, Procedure::BcNull);
        rogue.send_on(back, &answer_null(&header));
        rogue.root();
        // A second reply matches no request: the channel ends, and the session continues.
        rogue.send_on(back, &answer_null(&header));
        assert_eq!(rogue.message_on(back), None);
        rogue.root();
    });
}

#[test]
fn requests_on_a_bound_channel_end_it() {
    over_each_alone(|fixture, transport| {
        let (mut rogue, session) = session(fixture, transport);
        for kind in [ChannelType::BackControl, ChannelType::RdmaRead] {
            let beside = bind(&mut rogue, fixture, transport, session, kind);
            rogue.send_on(beside, &encoded(0, 1, &Request::Null(Empty)));
            while rogue.message_on(beside).is_some() {}
            rogue.root();
        }
    });
}

#[test]
fn a_channel_is_bound_to_a_session_that_is_and_agreed() {
    over_each_alone(|fixture, transport| {
        let (mut rogue, session) = session(fixture, transport);
        let address = fixture.address(transport);
        let beside = rogue.open_beside(&address, ChannelType::BackControl);
        let mut try_it = |session, channel_use| {
            rogue.send_on(beside, &binding(session, channel_use));
            status_of(&rogue.message_on(beside).unwrap())
        };
        let unknown = SessionId(session.0 ^ 1);
        assert_eq!(try_it(unknown, ChannelUse::BackControl), Status::UnknownSession);
        assert_eq!(try_it(session, ChannelUse::RdmaRead), Status::Inval);
        assert_eq!(try_it(session, ChannelUse::BackControl), Status::Ok);
        let mut plain = Rogue::connect(&address);
        let plain_session = plain.log_in_as(b"plain", WireOptions::default()).session;
        let beside = plain.open_beside(&address, ChannelType::BackControl);
        plain.send_on(beside, &binding(plain_session, ChannelUse::BackControl));
        assert_eq!(status_of(&plain.message_on(beside).unwrap()), Status::NotSupp);
    });
}

#[test]
fn bound_channels_end_with_their_session() {
    over_each_alone(|fixture, transport| {
        let (mut rogue, session) = session(fixture, transport);
        let back = bind(&mut rogue, fixture, transport, session, ChannelType::BackControl);
        asked(&mut rogue, back);
        let operation = rogue.endpoint;
        rogue.interface.disconnect(operation);
        assert_eq!(rogue.message_on(back), None);
    });
}

fn writing(
    (file, state): (FileHandle, StateId),
    buffers: DirectBuffers<'_>,
    length: u32,
) -> Request<'_> {
    Request::WriteDirect(WriteDirect {
        file,
        state,
        offset: 0,
        length,
        stability: Stability::Unstable,
        hint: CacheHint(0),
        checksum: Checksum::NONE,
        buffers,
    })
}

#[test]
fn writes_are_read_over_the_channel_that_is_there_for_it() {
    over_each_alone(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"old old").unwrap();
        let (mut rogue, session) = session(fixture, transport);
        let open = rogue.open("file");
        let memory = Memory::shared(4096, Pages::Small).unwrap();
        memory.write(0, b"new new");
        let region = rogue.expose(&memory);
        let buffer = [rogue.buffer(&region, 0, 7)];
        let write = writing(open, DirectBuffers::from(&buffer[..]), 7);
        let read = bind(&mut rogue, fixture, transport, session, ChannelType::RdmaRead);
        assert_eq!(rogue.outcome(&write), Some(Status::Ok));
        // Without the channel, the server reads over the operation channel again.
        rogue.interface.disconnect(read);
        assert_eq!(rogue.message_on(read), None);
        memory.write(0, b"newest.");
        assert_eq!(rogue.outcome(&write), Some(Status::Ok));
        let commit = dafs_wire::messages::Commit { file: open.0, offset: 0, length: 0 };
        assert_eq!(rogue.outcome(&Request::Commit(commit)), Some(Status::Ok));
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"newest.");
    });
}
