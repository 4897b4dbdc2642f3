//! The protection of a client's state by the credential of its machine (SP4_MACH_CRED).

use dafs_client::CredentialSource;
use dafs_gss::Protection;
use dafs_nfs_suite::nfs4::ops::{self, Claim, How};
use dafs_nfs_suite::nfs4::{self, Reply};
use dafs_nfs_suite::status;

use super::client::Kerberized;
use super::{Session, compound, exchange, serve, tickets};
use crate::fixture::Fixture;
use crate::realm::{Realm, scenario};

const OWNER: &[u8] = b"a protected client";
/// The direction of a connection for requests and callbacks.
const BOTH: u32 = 3;

fn protected() -> ops::Op {
    let enforce = [
        ops::BIND_CONN_TO_SESSION,
        ops::EXCHANGE_ID,
        ops::CREATE_SESSION,
        ops::DESTROY_SESSION,
        ops::DESTROY_CLIENTID,
    ];
    let allow = [ops::CLOSE, ops::LOCKU, ops::DELEGRETURN, ops::FREE_STATEID, ops::WRITE];
    ops::exchange_id_protected(*b"instance", OWNER, &enforce, &allow)
}

/// Connects with the credential of the client's machine.
fn machine(fixture: &Fixture, source: &CredentialSource, protection: Protection) -> Kerberized {
    Kerberized::connect(fixture.nfs(), source, protection)
}

fn source(realm: &Realm) -> CredentialSource {
    tickets(realm, "host/client.dafs.test", "machine")
}

fn status_of(client: &mut Kerberized, op: ops::Op) -> u32 {
    compound(client, &[op]).status
}

/// Calls operations in a session on another connection than its own.
fn run(client: &mut Kerberized, id: [u8; 16], slot: u32, number: u32, ops: &[ops::Op]) -> Reply {
    let sequence = ops::sequence(id, number, slot, slot, false);
    compound(client, &[&[sequence], ops].concat())
}

#[test]
fn only_the_machine_manages_sessions_and_connections() {
    let name = "nfs_kerberos::machine::only_the_machine_manages_sessions_and_connections";
    scenario(name, |realm| {
        let (fixture, source) = (serve(realm), source(realm));
        // What asks for the protection must have it itself.
        let mut plain = machine(&fixture, &source, Protection::Authentication);
        assert_eq!(status_of(&mut plain, protected()), status::INVAL);

        let mut client = machine(&fixture, &source, Protection::Integrity);
        let found = exchange(&mut client, &protected());
        let [enforced, allowed] = found.protected.clone().expect("SP4_MACH_CRED is granted");
        assert!(enforced.contains(&ops::BIND_CONN_TO_SESSION) && enforced.len() == 5);
        assert!(allowed.contains(&ops::CLOSE) && !allowed.contains(&ops::WRITE), "{allowed:?}");
        let session = Session::of(client, &found);

        let mut alice = Kerberized::default(fixture.nfs(), Protection::Privacy);
        for other in [&mut alice, &mut plain] {
            // A connection is not bound to the session by its first request.
            let unbound = run(other, session.id, 1, 1, &[]).status;
            assert_eq!(unbound, status::CONN_NOT_BOUND_TO_SESSION);
            for op in [
                ops::bind_conn(session.id, BOTH),
                ops::destroy_session(session.id),
                ops::create_session(found.id, 2, 0, ops::Channel::FORE, ops::Channel::BACK),
                ops::destroy_clientid(found.id),
            ] {
                let number = op.number;
                assert_eq!(status_of(other, op), status::WRONG_CRED, "{}", ops::name(number));
            }
        }
        assert_eq!(
            status_of(&mut plain, ops::exchange_id(*b"instance", OWNER, 0)),
            status::WRONG_CRED
        );

        let mut second = machine(&fixture, &source, Protection::Privacy);
        assert_eq!(status_of(&mut second, ops::bind_conn(session.id, BOTH)), 0);
        assert_eq!(run(&mut second, session.id, 1, 1, &[]).status, 0);
        assert_eq!(status_of(&mut second, ops::destroy_session(session.id)), 0);
        assert_eq!(status_of(&mut second, ops::destroy_clientid(found.id)), 0);
    });
}

#[test]
fn the_machine_closes_what_a_user_has_opened() {
    let name = "nfs_kerberos::machine::the_machine_closes_what_a_user_has_opened";
    scenario(name, |realm| {
        let (fixture, source) = (serve(realm), source(realm));
        let mut client = machine(&fixture, &source, Protection::Integrity);
        let found = exchange(&mut client, &protected());
        let mut session = Session::of(client, &found);

        // A connection that the machine has bound is used by two contexts.
        let mut alice = Kerberized::default(fixture.nfs(), Protection::Integrity);
        std::mem::swap(&mut alice.connection, &mut session.client.connection);
        let how = How::Unchecked(nfs4::attributes::Set::new().mode(0o600));
        let open = ops::open(b"owner", 3, 0, &how, &Claim::Name(b"private".to_vec()));
        let path = [ops::putrootfh(), ops::lookup("export"), open, ops::getfh()];
        let opened = run(&mut alice, session.id, 1, 1, &path).all_ok().unwrap();
        let (state, file) = (opened.state(3).unwrap(), opened.fh(4).unwrap());
        std::mem::swap(&mut alice.connection, &mut session.client.connection);

        // The tickets of the user may be gone, but the machine can end the open.
        session.run(&[ops::putfh(&file), ops::close(state)]).all_ok().unwrap();
        let again = session.run(&[ops::putfh(&file), ops::close(state)]).status;
        assert_eq!(again, status::BAD_STATEID);
    });
}
