//! Tests tokens message by message: replayed, for another session, of another principal, out of
//! order, too long.

use std::sync::Arc;

use dafs_client::CredentialSource;
use dafs_gss::{Credential, Initiator, Library, Step};
use dafs_server::ServerConfig;
use dafs_types::{AuthType, ClientId, SessionId, Status, Verifier};
use dafs_wire::messages::{
    AuthMethod, AuthRequest, AuthResult, ChannelUse, ClientAuth, ClientConnect, ClientConnectAuth,
    ClientConnectResult, ConnectBind, Empty, GssProcedure, GssService, ServerAuth, ServerProof,
    SessionOptions as WireOptions,
};
use dafs_wire::{ByteOrder, ChannelType, Procedure, Request, Response, decode_response};

use super::kerberos::{SERVICE, populate, serve};
use crate::fixture::{Fixture, Transport, transports};
use crate::realm::{Realm, scenario};
use crate::rogue::{Rogue, encoded, status_of};

/// Makes a client's token, and the object that reads the reply to it.
fn token(realm: &Realm, cache: &str, binding: Option<Vec<u8>>) -> (Initiator, Vec<u8>) {
    let library = Library::load().unwrap();
    let source = CredentialSource::Cache(realm.path(cache).into());
    let credential = Arc::new(Credential::acquire(&library, &source).unwrap());
    let initiator = Initiator::new(credential, &SERVICE.parse().unwrap()).unwrap();
    let initiator = match binding {
        Some(binding) => initiator.bound_to(&binding),
        None => initiator,
    };
    match initiator.step(None).unwrap() {
        Step::Continue { party, token } => (party, token),
        Step::Done { .. } => panic!("mutual authentication takes two tokens"),
    }
}

fn bound_to(session: SessionId, client: ClientId, channel: u8) -> Vec<u8> {
    let mut bytes = b"dafs1".to_vec();
    bytes.extend(session.0.to_le_bytes());
    bytes.extend(client.0.to_le_bytes());
    bytes.push(channel);
    bytes
}

fn init(token: &[u8]) -> AuthRequest<'_> {
    let (procedure, service) = (GssProcedure::Init, GssService::Authentication);
    AuthRequest::Gss { procedure, service, token }
}

fn wishes() -> WireOptions {
    WireOptions { back_control_channel: true, request_bytes_max: 1 << 16, ..WireOptions::default() }
}

/// Connects a session that has not authenticated.
fn connect(
    fixture: &Fixture,
    transport: Transport,
    name: &'static [u8],
) -> (Rogue, ClientConnectResult) {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    let connect = ClientConnect {
        options: wishes(),
        fence_id: "",
        client_string: name,
        verifier: Verifier([7; 8]),
    };
    let answer = rogue.ask(&Request::ClientConnect(connect)).unwrap();
    match decoded(Procedure::ClientConnect, &answer) {
        Response::ClientConnect(result) => (rogue, result),
        other => panic!("{other:?}"),
    }
}

fn decoded(procedure: Procedure, answer: &[u8]) -> Response<'_> {
    decode_response(ByteOrder::NATIVE, procedure, answer).unwrap().1
}

/// Authenticates. Returns the status and the token in the reply.
fn authenticate(rogue: &mut Rogue, authentication: AuthRequest<'_>) -> (Status, Vec<u8>) {
    let answer = rogue.ask(&Request::ClientAuth(ClientAuth { authentication })).unwrap();
    let token = match decoded(Procedure::ClientAuth, &answer) {
        Response::ClientAuth(result) => match result.authentication {
            AuthResult::Gss { token, .. } => token.to_vec(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    (status_of(&answer), token)
}

fn served(realm: &Realm) -> Fixture {
    serve(realm, populate(realm), |_: &mut ServerConfig| {})
}

#[test]
fn what_is_offered_is_said() {
    scenario("auth::tokens::what_is_offered_is_said", |realm| {
        let fixture = served(realm);
        let (mut rogue, _) = connect(&fixture, Transport::Tcp, b"asker");
        let answer = rogue.ask(&Request::SecInfo(Empty)).unwrap();
        let Response::SecInfo(offered) = decoded(Procedure::SecInfo, &answer) else { panic!() };
        let gss = offered.methods.iter().find_map(|method| match method {
            AuthMethod::Gss { oid, quality, service } => Some((oid.to_vec(), quality, service)),
            _ => None,
        });
        let expected = (dafs_gss::KERBEROS_OID.to_vec(), 0, GssService::Authentication);
        assert_eq!(gss, Some(expected));
    });
}

#[test]
fn a_token_opens_its_own_session_and_only_once() {
    scenario("auth::tokens::a_token_opens_its_own_session_and_only_once", |realm| {
        let fixture = served(realm);
        for transport in transports() {
            let (mut honest, made) = connect(&fixture, transport, b"honest");
            let binding = bound_to(made.session, made.client, 0);
            let (_, captured) = token(realm, "default.cache", Some(binding));
            // In another session the token is not valid.
            let (mut thief, _) = connect(&fixture, transport, b"thief");
            assert_eq!(authenticate(&mut thief, init(&captured)).0, Status::NotAuthorized);
            // After that attempt it is not valid in its own session either.
            assert_eq!(authenticate(&mut honest, init(&captured)).0, Status::NotAuthorized);
            let binding = bound_to(made.session, made.client, 0);
            let (initiator, fresh) = token(realm, "default.cache", Some(binding));
            let (status, reply) = authenticate(&mut honest, init(&fresh));
            assert_eq!(status, Status::Ok);
            assert!(matches!(initiator.step(Some(&reply)), Ok(Step::Done { .. })));
        }
        // An unbound token is valid for any session, but not twice.
        let (mut first, _) = connect(&fixture, Transport::Tcp, b"first");
        let (initiator, captured) = token(realm, "default.cache", None);
        let (status, reply) = authenticate(&mut first, init(&captured));
        assert_eq!(status, Status::Ok);
        assert!(matches!(initiator.step(Some(&reply)), Ok(Step::Done { .. })));
        let (mut second, _) = connect(&fixture, Transport::Tcp, b"second");
        let (status, told) = authenticate(&mut second, init(&captured));
        assert_eq!(status, Status::NotAuthorized);
        assert!(!told.is_empty(), "an honest client can be told why");
        // Nor for CLIENT_CONNECT_AUTH, and that leaves no session.
        let mut third = Rogue::connect(&fixture.address(Transport::Tcp));
        let request = Request::ClientConnectAuth(ClientConnectAuth {
            options: wishes(),
            fence_id: "",
            client_string: b"third",
            verifier: Verifier([7; 8]),
            authentication: init(&captured),
        });
        let answer = third.ask(&request).unwrap();
        assert_eq!(status_of(&answer), Status::NotAuthorized);
        assert_eq!(status_of(&third.ask(&Request::Null(Empty)).unwrap()), Status::NotAuthenticated);
        let (_, fresh) = token(realm, "default.cache", None);
        let Request::ClientConnectAuth(again) = request else { unreachable!() };
        let again = ClientConnectAuth { authentication: init(&fresh), ..again };
        let answer = third.ask(&Request::ClientConnectAuth(again)).unwrap();
        assert_eq!(status_of(&answer), Status::Ok);
    });
}

#[test]
fn binding_can_be_demanded() {
    scenario("auth::tokens::binding_can_be_demanded", |realm| {
        let fixture = serve(realm, populate(realm), |config| {
            config.kerberos.as_mut().unwrap().binding_required = true;
        });
        let (mut loose, _) = connect(&fixture, Transport::Tcp, b"loose");
        let (_, captured) = token(realm, "default.cache", None);
        assert_eq!(authenticate(&mut loose, init(&captured)).0, Status::NotAuthorized);
        let (mut tight, made) = connect(&fixture, Transport::Tcp, b"tight");
        let binding = bound_to(made.session, made.client, 0);
        let (_, bound) = token(realm, "default.cache", Some(binding));
        assert_eq!(authenticate(&mut tight, init(&bound)).0, Status::Ok);
    });
}

#[test]
fn what_is_out_of_turn_or_no_token_is_refused() {
    scenario("auth::tokens::what_is_out_of_turn_or_no_token_is_refused", |realm| {
        let fixture = served(realm);
        let (_, good) = token(realm, "default.cache", None);
        let gss = |procedure, service| AuthRequest::Gss { procedure, service, token: &good };
        for (request, expected) in [
            (gss(GssProcedure::Continue, GssService::Authentication), Status::IllegalState),
            (gss(GssProcedure::Init, GssService::Privacy), Status::NotSupp),
            (init(b"no token at all"), Status::Inval),
            (init(&good[..good.len() / 2]), Status::Inval),
        ] {
            let (mut rogue, _) = connect(&fixture, Transport::Tcp, b"rogue");
            assert_eq!(authenticate(&mut rogue, request).0, expected);
            // The token admitted no client.
            let asked = rogue.ask(&Request::GetRootHandle(Empty)).unwrap();
            assert_eq!(status_of(&asked), Status::NotAuthenticated);
        }
        // Three failures end the connection.
        let (mut guesser, _) = connect(&fixture, Transport::Tcp, b"guesser");
        for _ in 0..3 {
            assert_eq!(authenticate(&mut guesser, init(b"no token")).0, Status::Inval);
        }
        guesser.ends();
    });
}

/// Tickets with many groups make tokens that do not fit a message of 4 KiB.
#[test]
fn long_tokens_are_taken_once_that_is_agreed() {
    scenario("auth::tokens::long_tokens_are_taken_once_that_is_agreed", |realm| {
        let fixture = serve(realm, populate(realm), |config| {
            config.kerberos.as_mut().unwrap().token_bytes_max = 48_000;
        });
        let (mut rogue, made) = connect(&fixture, Transport::Tcp, b"member of many groups");
        assert!(made.options.request_bytes_max > 48_000);
        let (_, mut long) = token(realm, "default.cache", None);
        long.resize(40_000, 0);
        // The token is read and found invalid, because its announced length is wrong.
        assert_eq!(authenticate(&mut rogue, init(&long)).0, Status::Inval);
        // Over shared memory, whose rings are small, as much as fits.
        let (_, near) = connect(&fixture, Transport::Shm, b"member of many groups");
        assert!(near.options.request_bytes_max < 8192);
    });
}

#[test]
fn both_sides_are_proved_at_once() {
    scenario("auth::tokens::both_sides_are_proved_at_once", |realm| {
        let fixture = served(realm);
        let ask = |rogue: &mut Rogue, auth_type| {
            let answer = rogue.ask(&Request::ServerAuth(ServerAuth { auth_type })).unwrap();
            let proof = match decoded(Procedure::ServerAuth, &answer) {
                Response::ServerAuth(result) => Some(result.proof == ServerProof::Gss),
                _ => None,
            };
            (status_of(&answer), proof)
        };
        let (mut proved, _) = connect(&fixture, Transport::Tcp, b"proved");
        let (_, fresh) = token(realm, "default.cache", None);
        assert_eq!(authenticate(&mut proved, init(&fresh)).0, Status::Ok);
        assert_eq!(ask(&mut proved, AuthType::Gss), (Status::Ok, Some(true)));
        assert_eq!(ask(&mut proved, AuthType::Text), (Status::NotSupp, None));
        let (mut plain, _) = connect(&fixture, Transport::Tcp, b"plain");
        assert_eq!(authenticate(&mut plain, AuthRequest::None).0, Status::Ok);
        assert_eq!(ask(&mut plain, AuthType::Gss), (Status::NotAuthorized, None));
        assert_eq!(ask(&mut plain, AuthType::None), (Status::Ok, Some(false)));
    });
}

#[test]
fn a_channel_is_bound_by_its_sessions_principal_alone() {
    scenario("auth::tokens::a_channel_is_bound_by_its_sessions_principal_alone", |realm| {
        let fixture = served(realm);
        realm.ticket("bob", "builder", &realm.path("bob.cache"), &[]);
        for transport in transports() {
            let (mut rogue, made) = connect(&fixture, transport, b"binder");
            let (_, fresh) = token(realm, "default.cache", None);
            assert_eq!(authenticate(&mut rogue, init(&fresh)).0, Status::Ok);
            let address = fixture.address(transport);
            let back = rogue.open_beside(&address, ChannelType::BackControl);
            let bind = |rogue: &mut Rogue, authentication: AuthRequest<'_>| {
                let request = Request::ConnectBind(ConnectBind {
                    session: made.session,
                    channel_use: ChannelUse::BackControl,
                    request_bytes_max: 0,
                    response_bytes_max: 0,
                    requests_max: 2,
                    authentication,
                });
                rogue.send_on(back, &encoded(0, 0, &request));
                status_of(&rogue.message_on(back).unwrap())
            };
            // Another principal, another type, and a token for the other channel.
            let binding = bound_to(made.session, made.client, 1);
            let (_, of_bob) = token(realm, "bob.cache", Some(binding.clone()));
            assert_eq!(bind(&mut rogue, init(&of_bob)), Status::NotAuthorized);
            assert_eq!(bind(&mut rogue, AuthRequest::None), Status::NotAuthorized);
            let (_, of_alice) = token(realm, "default.cache", Some(binding));
            assert_eq!(bind(&mut rogue, init(&of_alice)), Status::Ok);
        }
    });
}
