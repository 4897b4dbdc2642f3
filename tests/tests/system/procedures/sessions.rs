//! Tests the negotiation of sessions, the request header, and client identities (draft 3.1, 6.1.3,
//! 6.2.1 to 6.2.8).

use std::time::Duration;

use dafs_types::{
    AuthType, CredHandle, SequenceNumber, ShareAccess, ShareDeny, Status, StreamId, Verifier,
};
use dafs_wire::messages::{
    AuthMethod, AuthRequest, ClientAuth, ClientConnect, ClientConnectAuth, ClientConnectAuthResult,
    Empty, GetAttributes, LockType, Open, ServerAuth, SessionOptions as WireOptions,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, Path, Procedure, Request, RequestHeader, Response, ResponseHeader,
    SpecialConditions, decode_response, encode_request,
};

use super::{found, header_of};
use crate::fixture::{Fixture, far, over_each, reactors};
use crate::locks::{holder, served};
use crate::rogue::{Rogue, encoded, login, login_as, opening, status_of};

#[test]
fn each_of_the_nine_values_is_agreed_on() {
    over_each(|fixture, transport| {
        let mut number = 0;
        let mut agreed = |wanted| {
            number += 1;
            let mut rogue = Rogue::connect(&fixture.address(transport));
            rogue.log_in_as(if number % 2 == 0 { b"even" } else { b"odd" }, wanted).options
        };
        let none = WireOptions::default();
        let default = agreed(none);
        assert_eq!((default.checksums, default.response_cache), (false, false));
        assert_eq!((default.back_control_channel, default.rdma_read_channel), (false, false));
        assert_eq!(default.credentials_max, 0, "who is not trusted registers none");
        // Zero requests the server's preferred value.
        assert!(default.request_bytes_max >= 2048 && default.response_bytes_max >= 512);
        assert!(default.requests_max >= 1 && default.inline_write_header_bytes >= 136);
        let all = WireOptions {
            checksums: true,
            response_cache: true,
            credentials_max: 5,
            request_bytes_max: 2048,
            response_bytes_max: 1024,
            requests_max: 3,
            inline_write_header_bytes: 512,
            back_control_channel: true,
            rdma_read_channel: true,
        };
        let given = WireOptions { credentials_max: 0, rdma_read_channel: reactors() == 1, ..all };
        assert_eq!(agreed(all), given);
        // Values out of range are limited to the valid range.
        let request_bytes = |wanted| WireOptions { request_bytes_max: wanted, ..none };
        let response_bytes = |wanted| WireOptions { response_bytes_max: wanted, ..none };
        assert_eq!(agreed(request_bytes(8)).request_bytes_max, 2048);
        assert!(agreed(request_bytes(u32::MAX)).request_bytes_max <= 64 << 10);
        assert_eq!(agreed(response_bytes(8)).response_bytes_max, 512);
        assert!(agreed(response_bytes(u32::MAX)).response_bytes_max <= 64 << 10);
        let requests = agreed(WireOptions { requests_max: u32::MAX, ..none }).requests_max;
        assert!((1..=256).contains(&requests));
    });
}

/// A server may decline what a client requests, except checksums.
#[test]
fn a_server_declines_what_it_does_not_serve() {
    let fixture = Fixture::with(|config| {
        config.sessions.response_cache = false;
        config.sessions.back_control = false;
        config.sessions.rdma_read = false;
        config.sessions.messages.checksums_always = true;
    });
    let mut rogue = Rogue::connect(&fixture.address(far()));
    let wanted = WireOptions {
        response_cache: true,
        back_control_channel: true,
        rdma_read_channel: true,
        ..WireOptions::default()
    };
    let granted = rogue.log_in_as(b"asker", wanted).options;
    assert!(!granted.response_cache && !granted.back_control_channel);
    assert!(!granted.rdma_read_channel && granted.checksums);
}

#[test]
fn an_answer_bears_what_its_request_bore() {
    over_each(|fixture, transport| {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        rogue.credits = 16;
        rogue.log_in();
        for (stream, sequence, analyzer) in [(0, 1, 0), (3, 65_535, u64::MAX), (7, 0, 0x0102)] {
            let header = RequestHeader {
                analyzer,
                desired_credits: 16,
                ..RequestHeader::new(StreamId(stream), SequenceNumber(sequence))
            };
            let mut message = vec![0; 64];
            let null = Request::Null(Empty);
            let length = encode_request(ByteOrder::NATIVE, &header, &null, &mut message).unwrap();
            rogue.send(&message[..length]);
            let answer = header_of(&rogue.answer().unwrap());
            assert_eq!((answer.stream, answer.sequence), (header.stream, header.sequence));
            assert_eq!((answer.analyzer, answer.status), (analyzer, Status::Ok));
            assert_eq!((answer.length, answer.version), (40, header.version));
            // There is no migration here, and no failover location changes.
            assert_eq!(answer.conditions, SpecialConditions(0));
            assert!(answer.target_credits >= 1);
        }
    });
}

#[test]
fn another_version_and_a_second_connect_are_refused() {
    over_each(|fixture, transport| {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        for (asked, offered) in [(2u32, 1), (99, 1), (0, 0)] {
            let mut message = encoded(0, 0, &login());
            message[4..8].copy_from_slice(&asked.to_ne_bytes());
            rogue.send(&message);
            let answer = header_of(&rogue.answer().unwrap());
            assert_eq!((answer.status, answer.version), (Status::IllegalProt, offered), "{asked}");
        }
        rogue.log_in();
        assert_eq!(rogue.outcome(&login()), Some(Status::IllegalState));
        rogue.root();
        // Unassigned procedure numbers, and those of the other direction.
        for procedure in [99u32, 107, 120, 121, 168, u32::MAX] {
            let status = rogue.outcome_of(|stream, sequence| {
                let mut message = encoded(stream, sequence, &Request::Null(Empty));
                message[32..36].copy_from_slice(&procedure.to_ne_bytes());
                message
            });
            assert_eq!(status, Some(Status::NotSupp), "{procedure}");
        }
        assert_eq!(rogue.outcome(&Request::BcNull(Empty)), Some(Status::NotSupp));
        // Credentials that the session has not registered.
        let status = rogue.outcome_of(|stream, sequence| {
            let header = RequestHeader {
                credentials: CredHandle(1),
                ..RequestHeader::new(StreamId(stream), SequenceNumber(sequence))
            };
            let mut message = vec![0; 64];
            let null = Request::Null(Empty);
            let length = encode_request(ByteOrder::NATIVE, &header, &null, &mut message).unwrap();
            message.truncate(length);
            message
        });
        assert_eq!(status, Some(Status::NoCreds));
    });
}

#[test]
fn a_client_connects_asks_what_will_do_and_authenticates() {
    over_each(|fixture, transport| {
        for authentication in [AuthRequest::None, AuthRequest::Default] {
            let mut rogue = Rogue::connect(&fixture.address(transport));
            let auth = Request::ClientAuth(ClientAuth { authentication });
            let disconnect = Request::Disconnect(Empty);
            assert_eq!(rogue.outcome(&auth), Some(Status::IllegalState));
            let connect = Request::ClientConnect(ClientConnect {
                options: WireOptions::default(),
                fence_id: "",
                client_string: b"asker",
                verifier: Verifier([7; 8]),
            });
            assert_eq!(rogue.outcome(&connect), Some(Status::Ok));
            assert_eq!(rogue.outcome(&Request::Null(Empty)), Some(Status::NotAuthenticated));
            let answer = rogue.ask(&Request::SecInfo(Empty)).unwrap();
            let offered = found!(SecInfo, &answer).methods;
            for method in [AuthMethod::None, AuthMethod::Default] {
                assert!(offered.iter().any(|offer| offer == method), "{method:?}");
            }
            let answer = rogue.ask(&auth).unwrap();
            assert!(!found!(ClientAuth, &answer).trusted);
            assert_eq!(rogue.outcome(&auth), Some(Status::IllegalState));
            assert_eq!(rogue.outcome(&Request::Null(Empty)), Some(Status::Ok));
            let prove = Request::ServerAuth(ServerAuth { auth_type: AuthType::None });
            assert_eq!(rogue.outcome(&prove), Some(Status::Ok));
            assert_eq!(rogue.outcome(&disconnect), Some(Status::Ok));
        }
    });
}

/// Any message renews the lease, even an empty one.
#[test]
fn whoever_says_something_now_and_then_keeps_what_it_holds() {
    let fixture = served().journaled_with(|config| {
        config.filer.lease = Duration::from_millis(1);
        config.sessions.silence_max = Some(Duration::from_secs(3));
    });
    let mut ann = holder(&fixture, far(), b"ann");
    let mut bob = holder(&fixture, far(), b"bob");
    assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
    assert_eq!(bob.lock(LockType::Write, (10, 10)), Status::Ok);
    let mut cid = holder(&fixture, far(), b"cid");
    crate::fixture::await_that("the lock of who is silent ends", || {
        assert_eq!(ann.rogue.outcome(&Request::Null(Empty)), Some(Status::Ok));
        cid.lock(LockType::Write, (10, 10)) == Status::Ok
    });
    bob.rogue.ends();
    assert_eq!(cid.lock(LockType::Write, (0, 10)), Status::Denied);
    assert_eq!(ann.unlock((0, 10)), Status::Ok);
}

#[test]
fn either_byte_order_will_do() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"12345").unwrap();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut rogue = Rogue::connect(&fixture.address(transport));
            let mut sequence = 0;
            let mut ask = |request: &Request<'_>| {
                let header = RequestHeader::new(StreamId(0), SequenceNumber(sequence));
                sequence += 1;
                let mut message = vec![0; 4096];
                let length = encode_request(order, &header, request, &mut message).unwrap();
                rogue.send(&message[..length]);
                let answer = rogue.answer().unwrap();
                let header = ResponseHeader::decode(order, &answer).unwrap();
                assert_eq!(header.status, Status::Ok, "{order:?}");
                answer
            };
            ask(&login());
            let answer = ask(&Request::GetRootHandle(Empty));
            let (_, root) = decode_response(order, Procedure::GetRootHandle, &answer).unwrap();
            let Response::GetRootHandle(root) = root else { panic!("{root:?}") };
            let answer = ask(&Request::Open(opening(root.file, Path::new(&["file"]))));
            let (_, opened) = decode_response(order, Procedure::Open, &answer).unwrap();
            let Response::Open(opened) = opened else { panic!("{opened:?}") };
            let wanted = AttributeBitmap::of(9);
            let file = opened.file;
            let answer = ask(&Request::GetAttrInline(GetAttributes { file, wanted }));
            let (_, told) = decode_response(order, Procedure::GetAttrInline, &answer).unwrap();
            let Response::GetAttrInline(told) = told else { panic!("{told:?}") };
            assert_eq!(told.attributes.file().size, Some(5));
        }
    });
}

fn life(fixture: &Fixture, verifier: u8) -> (Rogue, ClientConnectAuthResult<'static>) {
    let mut rogue = Rogue::connect(&fixture.address(far()));
    let Request::ClientConnectAuth(login) = login_as(b"client", WireOptions::default()) else {
        unreachable!()
    };
    let verifier = Verifier([verifier; 8]);
    rogue.request(0, 0, &Request::ClientConnectAuth(ClientConnectAuth { verifier, ..login }));
    let answer = rogue.answer().unwrap();
    let result = found!(ClientConnectAuth, &answer);
    let authentication = dafs_wire::messages::AuthResult::None;
    let result = ClientConnectAuthResult { authentication, ..result };
    (rogue, result)
}

#[test]
fn a_client_is_known_by_its_name_and_its_life() {
    let fixture = Fixture::new();
    std::fs::write(fixture.local("file"), b"x").unwrap();
    let (mut first, one) = life(&fixture, 1);
    let (mut second, two) = life(&fixture, 1);
    assert_eq!(one.client, two.client);
    assert_ne!(one.session, two.session);
    assert!(!one.trusted);
    // Both sessions exist concurrently, and the opens belong to the client.
    let root = first.root();
    let deny = ShareDeny::Both;
    let access = ShareAccess::Both;
    let open = Open { deny, access, ..opening(root, Path::new(&["file"])) };
    assert_eq!(first.outcome(&Request::Open(open)), Some(Status::Ok));
    let mut other = Rogue::connect(&fixture.address(far()));
    assert_ne!(other.log_in_as(b"other", WireOptions::default()).client, one.client);
    assert_eq!(other.outcome(&Request::Open(open)), Some(Status::ShareDenied));
    second.root();
    // It has restarted. The state of the previous incarnation and its sessions end when the new one
    // sends a request. A connect alone may be a late one of an earlier incarnation.
    let (mut third, three) = life(&fixture, 2);
    assert_ne!(three.client, one.client);
    assert_eq!(other.outcome(&Request::Open(open)), Some(Status::ShareDenied));
    third.root();
    assert_eq!(other.outcome(&Request::Open(open)), Some(Status::Ok));
    first.ends();
    second.ends();
    third.root();
}

#[test]
fn a_name_of_somebody_elses_is_in_use() {
    let probe = Fixture::new();
    let file = probe.root().join("passwords");
    let mut passwords = dafs_server::PasswordFile::default();
    let nobody = dafs_types::Credentials::plain(4321, 4321).unwrap();
    passwords.set("mallory", nobody, "secret").unwrap();
    passwords.save(&file).unwrap();
    let fixture = Fixture::with(|config| config.password_file = Some(file));
    let (mut honest, _) = life(&fixture, 1);
    for verifier in [1, 2].map(|byte| Verifier([byte; 8])) {
        let mut thief = Rogue::connect(&fixture.address(far()));
        let login = Request::ClientConnectAuth(ClientConnectAuth {
            options: WireOptions::default(),
            fence_id: "",
            client_string: b"client",
            verifier,
            authentication: AuthRequest::Text { identity: "mallory", password: "secret" },
        });
        thief.request(0, 0, &login);
        assert_eq!(status_of(&thief.answer().unwrap()), Status::ClidInUse);
    }
    honest.root();
}
