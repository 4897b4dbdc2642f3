//! Channels in addition to the operation channel (draft 3.1.2.1, 6.2.5).

use crate::common::{Bench, arguments, description, head};
use dafs_sessions::*;
use dafs_types::*;

struct Session {
    channel: ChannelId,
    id: SessionId,
}

fn session(bench: &mut Bench, name: &str) -> Session {
    let channel = bench.channel();
    let wanted = Negotiated {
        use_back_control_channel: 1,
        use_rdma_read_channel: 1,
        ..Negotiated::default()
    };
    bench.admit(channel, &head(RequestClass::Connect, 0), Moment(0)).unwrap();
    let arguments = ConnectArguments { wanted, ..arguments(name, 1) };
    let results = bench.connect_with(channel, &arguments).unwrap();
    bench.sessions.finish(channel, StreamId(0));
    assert_eq!(results.granted.use_back_control_channel, 1);
    bench.authenticate(channel).unwrap();
    Session { channel, id: results.session_id }
}

fn open(bench: &mut Bench, kind: ChannelKind) -> ChannelId {
    bench.sessions.channel_opened(PeerIdentity::Remote, description(kind), Moment(0)).unwrap()
}

fn bind(bench: &mut Bench, channel: ChannelId, session: SessionId) -> Result<ChannelId, Status> {
    bind_as(bench, channel, session, ChannelKind::BackControl)
}

fn bind_as(
    bench: &mut Bench,
    channel: ChannelId,
    session: SessionId,
    kind: ChannelKind,
) -> Result<ChannelId, Status> {
    let proof = AuthRequest::None;
    let arguments = BindArguments { protocol_version: PROTOCOL_VERSION, session, kind, proof };
    match bench.sessions.begin_bind(channel, &arguments) {
        AuthDecision::Accept(who) => bench.sessions.finish_bind(channel, Ok(who.into()), Moment(0)),
        AuthDecision::VerifyPassword | AuthDecision::VerifyToken => panic!("NONE needs none"),
        AuthDecision::Reject(status) => Err(status),
    }
}

#[test]
fn a_session_has_one_channel_of_each_kind() {
    let mut bench = Bench::new(SessionConfig::default());
    let session = session(&mut bench, "a");
    let back = open(&mut bench, ChannelKind::BackControl);
    assert_eq!(bind(&mut bench, back, session.id), Ok(session.channel));
    assert_eq!(bench.sessions.back_control(session.channel), Some(back));
    let expected = Some((session.channel, ChannelKind::BackControl));
    assert_eq!(bench.sessions.bound_to(back), expected);
    let second = open(&mut bench, ChannelKind::BackControl);
    assert_eq!(bind(&mut bench, second, session.id), Err(Status::IllegalState));
    let read = open(&mut bench, ChannelKind::RdmaRead);
    let bound = bind_as(&mut bench, read, session.id, ChannelKind::RdmaRead);
    assert_eq!(bound, Ok(session.channel));
    // The channel carries no requests of the client.
    let asked = bench.admit(back, &head(RequestClass::Ordinary, 0), Moment(0));
    assert_eq!(asked, Err(Refusal::Break(BreakReason::ChannelClosing)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut bench = Bench::new(SessionConfig::default());
    let session = session(&mut bench, "a");
    let back = open(&mut bench, ChannelKind::BackControl);
    assert_eq!(bind(&mut bench, back, SessionId(77)), Err(Status::UnknownSession));
    let other = bind_as(&mut bench, back, session.id, ChannelKind::RdmaRead);
    assert_eq!(other, Err(Status::Inval));
    let plain = bench.session("plain");
    let (plain_id, _) = bench.sessions.ids(plain).unwrap();
    assert_eq!(bind(&mut bench, back, plain_id), Err(Status::NotSupp));
    // Another user, as the kernel reports it.
    let local = PeerIdentity::Local(Credentials::plain(7, 7).unwrap());
    let kind = description(ChannelKind::BackControl);
    let stranger = bench.sessions.channel_opened(local, kind, Moment(0)).unwrap();
    assert_eq!(bind(&mut bench, stranger, session.id), Err(Status::NotAuthorized));
    // A failed attempt may be repeated.
    assert_eq!(bind(&mut bench, back, session.id), Ok(session.channel));
}

#[test]
fn bound_channels_end_with_their_session_but_not_the_reverse() {
    let mut bench = Bench::new(SessionConfig::default());
    let session = session(&mut bench, "a");
    let first = open(&mut bench, ChannelKind::BackControl);
    bind(&mut bench, first, session.id).unwrap();
    bench.drop_channel(first);
    assert_eq!(bench.sessions.back_control(session.channel), None);
    assert!(bench.sessions.take_orphaned_channels().is_empty());
    let second = open(&mut bench, ChannelKind::BackControl);
    bind(&mut bench, second, session.id).unwrap();
    // The channels stay open however long they are silent.
    assert_eq!(bench.on_tick(crate::common::LATER), TickActions::default());
    bench.drop_channel(session.channel);
    assert_eq!(bench.sessions.take_orphaned_channels(), [second]);
    bench.drop_channel(second);
    bench.assert_empty();
}

#[test]
fn a_session_that_ends_while_its_channel_is_verified_gets_none() {
    let config = SessionConfig::default();
    let mut bench = Bench::new(config);
    let session = session(&mut bench, "a");
    let back = open(&mut bench, ChannelKind::BackControl);
    let arguments = BindArguments {
        protocol_version: PROTOCOL_VERSION,
        session: session.id,
        kind: ChannelKind::BackControl,
        proof: AuthRequest::None,
    };
    let AuthDecision::Accept(who) = bench.sessions.begin_bind(back, &arguments) else { panic!() };
    bench.drop_channel(session.channel);
    let bound = bench.sessions.finish_bind(back, Ok(who.into()), Moment(0));
    assert_eq!(bound, Err(Status::UnknownSession));
    bench.drop_channel(back);
    bench.assert_empty();
}
