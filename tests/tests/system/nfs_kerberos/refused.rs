//! What a server refuses: wrong numbers, forged and altered calls, contexts that have ended, and
//! flavors that an export does not accept.

use std::sync::Arc;

use dafs_client::CredentialSource;
use dafs_dat::Address;
use dafs_gss::{Protection, Step};
use dafs_nfs_suite::fault::{Fault, GARBAGE_ARGS};
use dafs_nfs_suite::nfs3::Nfs3;
use dafs_nfs_suite::nfs4::ops;
use dafs_nfs_suite::nfs4::results::Body;
use dafs_nfs_suite::rpc::{Auth, Call, Connection, results_of};
use dafs_nfs_suite::xdr::{Get, Put};
use dafs_server::{Flavor, Server, ServerConfig};
use dafs_store::memory::{MemoryLimits, MemoryStore};

use super::client::{
    DESTROY, GSS, Kerberized, NFS, SERVICE, credential, denied, first_token, init_call, xid_of,
};
use super::{EACH, Session, call_3, export, mount, serve};
use crate::realm::scenario;

/// The states of authentication (RFC 5531 section 9, RFC 2203 section 4).
const BAD_CRED: u32 = 1;
const TOO_WEAK: u32 = 5;
const CRED_PROBLEM: u32 = 13;
const CTX_PROBLEM: u32 = 14;
/// Statuses of NFS version 4.
const WRONGSEC: u32 = 10_016;
const NULL: (u32, u32, u32) = (NFS, 3, 0);

/// Sends a record. Returns the outcome of its call, whose reply has the last sequence number.
fn send(client: &mut Kerberized, record: &[u8]) -> Result<Vec<u8>, Fault> {
    client.connection.send_record(record).unwrap();
    client.results(xid_of(record))
}

#[test]
fn a_call_that_is_repeated_or_too_old_is_dropped() {
    let name = "nfs_kerberos::refused::a_call_that_is_repeated_or_too_old_is_dropped";
    scenario(name, |realm| {
        let fixture = serve(realm);
        for protection in EACH {
            let mut client = Kerberized::default(fixture.nfs(), protection);
            let record = client.prepare(NULL, &[]);
            send(&mut client, &record).unwrap();
            let first = client.sequence;
            // Numbers may be left out, and come late.
            client.sequence += client.window;
            client.call(NULL, &[]).unwrap();
            let (latest, window) = (client.sequence, client.window);
            client.sequence = latest - 5;
            client.call(NULL, &[]).unwrap();
            // Repeated, used up, and older than the window.
            client.connection.send_record(&record).unwrap();
            for sequence in [latest, latest - window, first] {
                let xid = client.connection.xid();
                let record = client.encode(xid, sequence, 0, NULL, &[]);
                client.connection.send_record(&record).unwrap();
            }
            // Replies come in the order of such calls, so the next reply would be one of these.
            client.sequence = latest;
            let record = client.prepare(NULL, &[]);
            client.connection.send_record(&record).unwrap();
            let reply = client.connection.receive().unwrap();
            assert_eq!(xid_of(&reply), xid_of(&record), "the dropped calls have no reply");
            client.open(&reply, client.sequence).unwrap();
        }
    });
}

#[test]
fn numbers_of_a_context_are_used_up() {
    scenario("nfs_kerberos::refused::numbers_of_a_context_are_used_up", |realm| {
        let fixture = serve(realm);
        let mut client = Kerberized::default(fixture.nfs(), Protection::Integrity);
        client.sequence = 0x8000_0000 - 2;
        client.call(NULL, &[]).unwrap();
        assert_eq!(denied(client.call(NULL, &[])), CTX_PROBLEM);
        client.sequence = u32::MAX - 1;
        assert_eq!(denied(client.call(NULL, &[])), CTX_PROBLEM);
    });
}

#[test]
fn forged_and_altered_calls_are_not_executed() {
    scenario("nfs_kerberos::refused::forged_and_altered_calls_are_not_executed", |realm| {
        let fixture = serve(realm);
        let root = mount(&fixture, "/export").fh;
        for protection in EACH {
            let mut client = Kerberized::default(fixture.nfs(), protection);
            let arguments = Put::new().opaque(&root).0;
            let record = client.prepare((NFS, 3, 1), &arguments);
            // The header: another procedure, and another sequence number.
            for at in [23, 43] {
                let mut altered = record.clone();
                altered[at] ^= 2;
                assert_eq!(denied(send(&mut client, &altered)), CRED_PROBLEM, "byte {at}");
            }
            // The verifier of another call.
            let other = client.prepare((NFS, 3, 1), &arguments);
            let header = 24 + 8 + 20 + client.handle.len();
            let mixed = [&record[..header], &other[header..]].concat();
            client.sequence -= 1;
            assert_eq!(denied(send(&mut client, &mixed)), CRED_PROBLEM);
            // No verifier.
            let auth = Auth::Raw(GSS, credential(0, 100, 1, &client.handle));
            let call = Call::new(NFS, 3, 1, &auth, arguments.clone());
            assert_eq!(denied(client.connection.call(&call)), CRED_PROBLEM);
            // A handle that the server has not given.
            let auth = Auth::Raw(GSS, credential(0, 1, 1, &[7; 16]));
            let call = Call::new(NFS, 3, 1, &auth, arguments.clone());
            assert_eq!(denied(client.connection.call(&call)), CRED_PROBLEM);
            // The genuine call is still new.
            let results = send(&mut client, &record).unwrap();
            assert_eq!(results[..4], [0; 4]);
        }
    });
}

#[test]
fn altered_arguments_are_refused() {
    scenario("nfs_kerberos::refused::altered_arguments_are_refused", |realm| {
        let fixture = serve(realm);
        let root = mount(&fixture, "/export").fh;
        for protection in [Protection::Integrity, Protection::Privacy] {
            let mut client = Kerberized::default(fixture.nfs(), protection);
            for length in [100, 40_000] {
                // A short call is checked by the reactor, and a long one by a thread.
                let name = "n".repeat(length);
                let arguments = Put::new().opaque(&root).opaque(name).0;
                let mut record = client.prepare((NFS, 3, 3), &arguments);
                let end = record.len() - 100;
                record[end] ^= 1;
                let outcome = send(&mut client, &record);
                assert!(
                    matches!(&outcome, Err(Fault::NotDone { status: GARBAGE_ARGS, .. })),
                    "{outcome:?}"
                );
                // The number inside must be that of the header.
                client.sequence += 2;
                let (xid, sequence) = (client.connection.xid(), client.sequence);
                let inner = client.encode(xid, sequence - 1, 0, (NFS, 3, 1), &arguments);
                let outer = client.encode(xid, sequence, 0, (NFS, 3, 1), &arguments);
                let header = 24 + 8 + 20 + client.handle.len();
                let verifier =
                    8 + u32::from_be_bytes(outer[header + 4..header + 8].try_into().unwrap())
                        .next_multiple_of(4) as usize;
                let body = header + verifier;
                let record = [&outer[..body], &inner[body..]].concat();
                let outcome = send(&mut client, &record);
                assert!(
                    matches!(&outcome, Err(Fault::NotDone { status: GARBAGE_ARGS, .. })),
                    "{outcome:?}"
                );
            }
            client.call(NULL, &[]).unwrap();
        }
    });
}

#[test]
fn a_context_ends_when_its_client_says_so() {
    scenario("nfs_kerberos::refused::a_context_ends_when_its_client_says_so", |realm| {
        let fixture = serve(realm);
        for protection in EACH {
            let mut client = Kerberized::default(fixture.nfs(), protection);
            client.call(NULL, &[]).unwrap();
            // Only its client can end it.
            let auth = Auth::Raw(GSS, credential(DESTROY, 2, 1, &client.handle));
            let call = Call::new(NFS, 3, 0, &auth, Vec::new());
            assert_eq!(denied(client.connection.call(&call)), CRED_PROBLEM);
            client.call(NULL, &[]).unwrap();
            client.sequence += 1;
            let (xid, sequence) = (client.connection.xid(), client.sequence);
            let record = client.encode(xid, sequence, DESTROY, NULL, &[]);
            assert!(send(&mut client, &record).unwrap().is_empty());
            assert_eq!(denied(client.call(NULL, &[])), CRED_PROBLEM);
        }
    });
}

#[test]
fn tokens_that_are_none_create_no_context() {
    scenario("nfs_kerberos::refused::tokens_that_are_none_create_no_context", |realm| {
        let fixture = serve(realm);
        let mut connection = Connection::open(fixture.nfs()).unwrap();
        let (_, token) = first_token(&CredentialSource::Default);
        let mut altered = token.clone();
        let end = altered.len() - 20;
        altered[end] ^= 1;
        for token in [&b""[..], b"no token", &[0x60; 1000], &altered] {
            let xid = connection.send(&init_call(token)).unwrap();
            let reply = connection.reply(xid).unwrap();
            let mut get = Get(results_of(&reply).unwrap());
            assert!(get.opaque().unwrap().is_empty(), "no handle");
            assert_ne!(get.u32().unwrap(), 0, "a failure");
        }
        // A token creates one context.
        let results = |connection: &mut Connection| {
            let xid = connection.send(&init_call(&token)).unwrap();
            let reply = connection.reply(xid).unwrap();
            let mut get = Get(results_of(&reply).unwrap());
            let _handle = get.opaque().unwrap();
            get.u32().unwrap()
        };
        assert_eq!(results(&mut connection), 0);
        assert_ne!(results(&mut connection), 0, "the token was used before");
        // Contexts are created by NULL, and continued only if they were begun.
        let auth = Auth::Raw(GSS, credential(1, 0, 1, &[]));
        let call = Call::new(NFS, 3, 1, &auth, Put::new().opaque(&token).0);
        assert_eq!(denied(connection.call(&call)), BAD_CRED);
        let auth = Auth::Raw(GSS, credential(2, 0, 1, &[7; 16]));
        let call = Call::new(NFS, 3, 0, &auth, Put::new().opaque(&token).0);
        assert_eq!(denied(connection.call(&call)), CRED_PROBLEM);
    });
}

#[test]
fn every_context_has_a_handle_and_a_key_of_its_own() {
    scenario("nfs_kerberos::refused::every_context_has_a_handle_and_a_key_of_its_own", |realm| {
        let fixture = serve(realm);
        let mut clients: Vec<Kerberized> = (0..20)
            .map(|_| Kerberized::default(fixture.nfs(), Protection::Authentication))
            .collect();
        for client in &mut clients {
            client.call(NULL, &[]).unwrap();
        }
        let mut handles: Vec<_> = clients.iter().map(|client| client.handle.clone()).collect();
        handles.sort();
        handles.dedup();
        assert_eq!(handles.len(), 20, "every context has a handle of its own");
        // A context is not bound to its connection, but to its key.
        let (first, second) = clients.split_at_mut(1);
        std::mem::swap(&mut first[0].connection, &mut second[0].connection);
        first[0].call(NULL, &[]).unwrap();
        second[0].handle.clone_from(&first[0].handle);
        assert_eq!(denied(second[0].call(NULL, &[])), CRED_PROBLEM);
    });
}

#[test]
fn an_export_accepts_only_its_flavors_in_version_3() {
    scenario("nfs_kerberos::refused::an_export_accepts_only_its_flavors_in_version_3", |realm| {
        let fixture = serve(realm);
        let handles: Vec<_> = ["/export", "/readonly", "/squashed"]
            .iter()
            .map(|path| mount(&fixture, path))
            .collect();
        let flavors: Vec<_> = handles.iter().map(|mounted| mounted.flavors.clone()).collect();
        assert_eq!(flavors, [vec![390_003, 390_004, 390_005], vec![1], vec![390_005]]);
        let connection = Connection::open(fixture.nfs()).unwrap();
        let mut sys = Nfs3 { connection, auth: Auth::user(1000) };
        sys.getattr(&handles[1].fh).unwrap();
        assert_eq!(denied(sys.getattr(&handles[0].fh)), TOO_WEAK);
        assert_eq!(denied(sys.getattr(&handles[2].fh)), TOO_WEAK);
        for (protection, expected) in EACH.into_iter().zip([1, 1, 2]) {
            let mut client = Kerberized::default(fixture.nfs(), protection);
            let mut accepted = 0;
            for mounted in &handles {
                match call_3(&mut client, 1, Put::new().opaque(&mounted.fh)) {
                    Ok(results) => {
                        assert_eq!(results[..4], [0; 4]);
                        accepted += 1;
                    }
                    Err(fault) => assert_eq!(denied::<()>(Err(fault)), TOO_WEAK),
                }
            }
            assert_eq!(accepted, expected, "{protection:?}");
        }
    });
}

#[test]
fn an_export_accepts_only_its_flavors_in_version_4() {
    scenario("nfs_kerberos::refused::an_export_accepts_only_its_flavors_in_version_4", |realm| {
        let fixture = serve(realm);
        let client = Kerberized::default(fixture.nfs(), Protection::Integrity);
        let mut session = Session::start(client, b"owner");
        let secret = mount(&fixture, "/squashed").fh;
        let flavors = |session: &mut Session, ops: &[ops::Op]| {
            let reply = session.run(ops).all_ok().unwrap();
            match &reply.results.last().unwrap().body {
                Body::Flavors(flavors) => flavors.clone(),
                other => panic!("{other:?}"),
            }
        };
        let root = ops::putrootfh;
        let into = |name: &str| [root(), ops::lookup(name), ops::getfh()];
        session.run(&into("export")).all_ok().unwrap();
        assert_eq!(session.run(&into("squashed")).status, WRONGSEC);
        assert_eq!(session.run(&into("readonly")).status, WRONGSEC);
        assert_eq!(session.run(&[ops::putfh(&secret), ops::getfh()]).status, WRONGSEC);
        assert_eq!(flavors(&mut session, &[root(), ops::secinfo("export")]), [6, 6, 6]);
        assert_eq!(flavors(&mut session, &[root(), ops::secinfo("squashed")]), [6]);
        assert_eq!(flavors(&mut session, &[root(), ops::secinfo("readonly")]), [1]);
        let of_handle = [ops::putfh(&secret), ops::secinfo_no_name(0)];
        assert_eq!(flavors(&mut session, &of_handle), [6]);
        // The root of the exports can be used with each flavor that an export accepts.
        let of_root = [root(), ops::secinfo_no_name(0)];
        assert_eq!(flavors(&mut session, &of_root), [6, 6, 6, 1]);

        let client = Kerberized::default(fixture.nfs(), Protection::Privacy);
        let mut session = Session::start(client, b"private");
        session.run(&into("squashed")).all_ok().unwrap();
        session.run(&[ops::putfh(&secret), ops::getfh()]).all_ok().unwrap();
        assert_eq!(session.run(&into("readonly")).status, WRONGSEC);
    });
}

#[test]
fn a_server_without_a_key_for_nfs_does_not_start_with_such_exports() {
    let directory = tempfile::tempdir().unwrap();
    let listen = vec![Address::Shm(directory.path().join("socket"))];
    let mut config = ServerConfig { listen, ..ServerConfig::default() };
    crate::fixture::serve_nfs(&mut config, 0);
    config.access.nfs.exports = vec![export("export", &[Flavor::Krb5p])];
    let store = MemoryStore::new(MemoryLimits { bytes_max: 1 << 20, object_count_max: 10 });
    let error = Server::new(&config, Arc::new(store)).err().expect("it does not start").to_string();
    assert!(error.contains("nfs/HOST") && error.contains("--keytab"), "{error}");
}

/// A token for a service that is not NFS creates no context.
#[test]
fn a_ticket_for_another_service_creates_no_context() {
    scenario("nfs_kerberos::refused::a_ticket_for_another_service_creates_no_context", |realm| {
        let fixture = serve(realm);
        let library = dafs_gss::Library::load().unwrap();
        let source = CredentialSource::Default;
        let credential = dafs_gss::Credential::acquire(&library, &source).unwrap();
        let target = SERVICE.replace("nfs@", "dafs@").parse().unwrap();
        let initiator = dafs_gss::Initiator::new(credential.into(), &target).unwrap();
        let Step::Continue { token, .. } = initiator.without_order().step(None).unwrap() else {
            panic!("mutual authentication takes two tokens");
        };
        let mut connection = Connection::open(fixture.nfs()).unwrap();
        let xid = connection.send(&init_call(&token)).unwrap();
        let reply = connection.reply(xid).unwrap();
        let mut get = Get(results_of(&reply).unwrap());
        assert!(get.opaque().unwrap().is_empty());
        assert_ne!(get.u32().unwrap(), 0);
    });
}
