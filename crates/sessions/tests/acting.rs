//! Proof by tokens, its expiry, and trusted clients that act for other users.

use crate::common::{Bench, arguments, description, head};
use dafs_filer::*;
use dafs_sessions::*;
use dafs_types::*;
use dafs_wire::messages::CredentialData;

const FIRST: AuthRequest<'_> = AuthRequest::Gss { is_first: true };
const NEXT: AuthRequest<'_> = AuthRequest::Gss { is_first: false };
const HOUR: u64 = 3_600_000_000_000;

fn bench() -> Bench {
    let mut config = SessionConfig::default();
    config.authentication.gss = true;
    config.credentials.is_served = true;
    Bench::seeded(config, 7)
}

fn user(uid: u32) -> Credentials {
    Credentials::plain(uid, uid).unwrap()
}

/// The result of checking a token.
fn proof(name: &str, expires: Option<u64>) -> Verified {
    Verified {
        who: user(1000),
        principal: Some(Principal::Gss(name.into())),
        trusted: true,
        expires: expires.map(Moment),
    }
}

fn refused(status: Status) -> Result<(), Refusal> {
    Err(Refusal::Answer(status))
}

fn session(bench: &mut Bench, name: &str, proof: Verified) -> ChannelId {
    let channel = bench.channel();
    bench.connect(channel, name, 1);
    assert_eq!(bench.sessions.begin_auth(channel, FIRST), AuthDecision::VerifyToken);
    bench.finish_auth(channel, Ok(proof), Moment(0)).unwrap();
    bench.exchange(channel, RequestClass::Ordinary).unwrap();
    channel
}

fn register(bench: &mut Bench, channel: ChannelId, data: &CredentialData<'_>) -> CredHandle {
    match bench.sessions.register_credentials(channel, data).unwrap() {
        Registration::Done(handle) => handle,
        Registration::LookUp(lookup, _) => {
            bench.sessions.credentials_looked_up(lookup, Some(user(77))).unwrap()
        }
    }
}

fn ask_as(bench: &mut Bench, channel: ChannelId, handle: CredHandle) -> Result<(), Refusal> {
    let head = RequestHead { cred_handle: handle, ..head(RequestClass::Ordinary, 0) };
    bench.admit(channel, &head, Moment(0)).map(|_| ())
}

#[test]
fn a_mechanism_may_want_several_tokens() {
    let mut bench = bench();
    let channel = bench.channel();
    bench.connect(channel, "a", 1);
    let illegal = AuthDecision::Reject(Status::IllegalState);
    assert_eq!(bench.sessions.begin_auth(channel, NEXT), illegal);
    assert_eq!(bench.sessions.begin_auth(channel, FIRST), AuthDecision::VerifyToken);
    // While one proof is being checked, no other is accepted.
    let second = bench.exchange(channel, RequestClass::Authenticate);
    assert_eq!(second, refused(Status::IllegalState));
    bench.sessions.await_token(channel);
    assert_eq!(bench.exchange(channel, RequestClass::Authenticate), Ok(()));
    assert_eq!(bench.sessions.begin_auth(channel, NEXT), AuthDecision::VerifyToken);
    bench.finish_auth(channel, Ok(proof("ada@R", None)), Moment(0)).unwrap();
    assert_eq!(bench.sessions.principal(channel), Some(&Principal::Gss("ada@R".into())));
    // A proof that lasts as long as the session is not renewed.
    let again = bench.exchange(channel, RequestClass::Authenticate);
    assert_eq!(again, refused(Status::IllegalState));
}

#[test]
fn a_token_that_proves_no_principal_is_refused() {
    let mut bench = bench();
    let channel = bench.channel();
    bench.connect(channel, "a", 1);
    // The name that the client gave before does not matter.
    let text = AuthRequest::Text { user: "ada" };
    assert_eq!(bench.sessions.begin_auth(channel, text), AuthDecision::VerifyPassword);
    let wrong = bench.finish_auth(channel, Err(Status::Access), Moment(0));
    assert_eq!(wrong, Err(Status::Access));
    assert_eq!(bench.sessions.begin_auth(channel, FIRST), AuthDecision::VerifyToken);
    let nobody = Verified { principal: None, ..proof("", None) };
    let outcome = bench.finish_auth(channel, Ok(nobody), Moment(0));
    assert_eq!(outcome, Err(Status::IllegalState));
}

#[test]
fn an_expired_proof_is_renewed_by_the_same_principal() {
    let mut bench = bench();
    let channel = session(&mut bench, "a", proof("ada@R", Some(HOUR)));
    bench.on_tick(Moment(HOUR - 1));
    assert_eq!(bench.exchange(channel, RequestClass::Ordinary), Ok(()));
    assert_eq!(bench.on_tick(Moment(HOUR)), TickActions::default());
    let lapsed = bench.exchange(channel, RequestClass::Ordinary);
    assert_eq!(lapsed, refused(Status::NotAuthenticated));
    assert_eq!(bench.exchange(channel, RequestClass::SecurityInfo), Ok(()));
    let password = bench.sessions.begin_auth(channel, AuthRequest::Text { user: "ada" });
    assert_eq!(password, AuthDecision::Reject(Status::NotAuthorized));
    for (name, expected) in [("eve@R", Err(Status::NotAuthorized)), ("ada@R", Ok(()))] {
        assert_eq!(bench.exchange(channel, RequestClass::Authenticate), Ok(()));
        assert_eq!(bench.sessions.begin_auth(channel, FIRST), AuthDecision::VerifyToken);
        let second = bench.exchange(channel, RequestClass::Authenticate);
        assert_eq!(second, refused(Status::IllegalState));
        let new = proof(name, Some(2 * HOUR));
        let outcome = bench.finish_auth(channel, Ok(new), Moment(HOUR));
        assert_eq!(outcome.map(|_| ()), expected);
    }
    assert_eq!(bench.exchange(channel, RequestClass::Ordinary), Ok(()));
    assert_eq!(bench.sessions.counters().sessions, 1);
}

#[test]
fn a_session_that_does_not_renew_within_a_lease_is_closed() {
    let mut bench = bench();
    let channel = session(&mut bench, "a", proof("ada@R", Some(HOUR)));
    bench.on_tick(Moment(HOUR));
    let lease = bench.filer.config().lease;
    let late = Moment(HOUR).after(lease);
    let close = vec![(channel, CloseReason::AuthenticationExpired)];
    assert_eq!(bench.on_tick(late), TickActions { close, released: vec![] });
    bench.drop_channel(channel);
    bench.assert_empty();
}

#[test]
fn a_session_outlives_delayed_renewals() {
    let mut bench = bench();
    let channel = session(&mut bench, "a", proof("ada@R", Some(HOUR)));
    for _ in 0..10 {
        let request = AuthRequest::Gss { is_first: true };
        assert_eq!(bench.sessions.begin_auth(channel, request), AuthDecision::VerifyToken);
        let refused = bench.finish_auth(channel, Err(Status::Delay), Moment(0));
        assert_eq!(refused.unwrap_err(), Status::Delay);
    }
    assert_eq!(bench.on_tick(Moment(1)), TickActions::default());
    assert_eq!(bench.sessions.counters().sessions, 1);
}

#[test]
fn a_channel_is_bound_by_the_token_of_its_sessions_principal() {
    let mut bench = bench();
    let channel = bench.channel();
    let wanted = Negotiated { use_back_control_channel: 1, ..Negotiated::default() };
    bench.admit(channel, &head(RequestClass::Connect, 0), Moment(0)).unwrap();
    let arguments = ConnectArguments { wanted, ..arguments("a", 1) };
    let results = bench.connect_with(channel, &arguments).unwrap();
    bench.sessions.begin_auth(channel, FIRST);
    bench.finish_auth(channel, Ok(proof("ada@R", None)), Moment(0)).unwrap();
    let kind = ChannelKind::BackControl;
    let description = description(kind);
    let back = bench.sessions.channel_opened(PeerIdentity::Remote, description, Moment(0)).unwrap();
    let (protocol_version, session) = (PROTOCOL_VERSION, results.session_id);
    let bind = BindArguments { protocol_version, session, kind, proof: FIRST };
    for (name, expected) in [("eve@R", Err(Status::NotAuthorized)), ("ada@R", Ok(channel))] {
        assert_eq!(bench.sessions.begin_bind(back, &bind), AuthDecision::VerifyToken);
        let bound = bench.sessions.finish_bind(back, Ok(proof(name, None)), Moment(0));
        assert_eq!(bound, expected);
    }
}

#[test]
fn a_trusted_client_acts_for_the_users_it_registered() {
    let mut bench = bench();
    let channel = session(&mut bench, "a", proof("gateway@R", None));
    assert_eq!(bench.sessions.negotiated(channel).unwrap().max_credentials, 64);
    let handle = register(&mut bench, channel, &CredentialData::Name("bob"));
    assert_eq!(ask_as(&mut bench, channel, handle), Ok(()));
    assert_eq!(bench.sessions.acting_for(channel, StreamId(0)), Some(&user(77)));
    // The credentials stay as long as the request runs.
    let conflict = bench.sessions.release_credentials(channel, handle);
    assert_eq!(conflict, Err(Status::CrHandConflict));
    bench.sessions.finish(channel, StreamId(0));
    assert_eq!(bench.sessions.acting_for(channel, StreamId(0)), None);
    // They belong to the client, so all of its sessions may use them.
    let other = session(&mut bench, "a", proof("gateway@R", None));
    assert_eq!(ask_as(&mut bench, other, handle), Ok(()));
    bench.drop_channel(other);
    assert_eq!(bench.sessions.release_credentials(channel, handle), Ok(()));
    assert_eq!(ask_as(&mut bench, channel, handle), refused(Status::NoCreds));
    bench.sessions.finish(channel, StreamId(0));
    register(&mut bench, channel, &CredentialData::Default);
    bench.drop_channel(channel);
    assert_eq!(bench.sessions.credential_counters().taken, 0);
    bench.assert_empty();
}

#[test]
fn credentials_are_useless_to_other_clients() {
    let mut bench = bench();
    let trusted = session(&mut bench, "a", proof("gateway@R", None));
    let handle = register(&mut bench, trusted, &CredentialData::Default);
    let stranger = session(&mut bench, "b", proof("gateway@R", None));
    assert_eq!(ask_as(&mut bench, stranger, handle), refused(Status::NoCreds));
    bench.sessions.finish(stranger, StreamId(0));
    let plain = Verified { trusted: false, ..proof("gateway@R", None) };
    let untrusted = session(&mut bench, "a", plain);
    assert_eq!(bench.sessions.negotiated(untrusted).unwrap().max_credentials, 0);
    assert_eq!(ask_as(&mut bench, untrusted, handle), refused(Status::NoCreds));
    bench.sessions.finish(untrusted, StreamId(0));
    let asked = bench.exchange(untrusted, RequestClass::Credential);
    assert_eq!(asked, refused(Status::NotAuthorized));
    let registered = bench.sessions.register_credentials(untrusted, &CredentialData::Default);
    assert_eq!(registered, Err(Status::NotAuthorized));
}
