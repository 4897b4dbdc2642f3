//! Tests sessions that reconnect with their credentials: with tickets, and with the users they act
//! for.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dafs_client::{
    ActFor, AuthType, Client, ClientConfig, ClientError, CredentialSource, OpenOptions, Recovery,
    RecoveryOptions, Session, SessionEvent, SessionOptions, Status,
};
use dafs_server::{KerberosConfig, Peers, ServerConfig};
use dafs_store::local::Squash;

use super::kerberos::{by_kerberos, kerberos_config, populate, serve};
use super::{open_to_all, owner, try_connect};
use crate::fixture::{Fixture, Transport, await_that, transports};
use crate::realm::{Realm, scenario, scenario_in};
use crate::reconnect::proxy::Proxy;

type Events = Rc<RefCell<Vec<SessionEvent>>>;

/// Records the events of a session from now on.
fn watched(session: &Session) -> Events {
    let events = Events::default();
    let heard = events.clone();
    session.on_event(move |event| heard.borrow_mut().push(event.clone()));
    events
}

fn recovered(events: &Events) -> Option<SessionEvent> {
    let is_it = |event: &&SessionEvent| matches!(event, SessionEvent::Recovered { .. });
    events.borrow().iter().rev().find(is_it).cloned()
}

/// Restarts the same server at the same addresses, with a journal.
fn restarted(fixture: Fixture, change: impl FnOnce(&mut ServerConfig)) -> Fixture {
    let listen = fixture.addresses().to_vec();
    fixture.journaled_with(|config| {
        config.listen = listen;
        change(config);
    })
}

fn with_keys(realm: &Realm, keytab: PathBuf) -> impl Fn(&mut ServerConfig) {
    let config: KerberosConfig = kerberos_config(keytab);
    let passwords = realm.path("passwords");
    move |server| {
        server.kerberos = Some(config.clone());
        server.password_file = Some(passwords.clone());
    }
}

#[test]
fn a_session_by_ticket_outlives_its_connection() {
    let name = "auth::returning::a_session_by_ticket_outlives_its_connection";
    scenario(name, |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        open_to_all(&fixture, "");
        let proxy = Proxy::before(&fixture.address(Transport::Tcp));
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = by_kerberos(CredentialSource::Default);
        let session = client.connect_to(&proxy.address, &options).unwrap();
        let events = watched(&session);
        let file = session.open("/kept", &OpenOptions::write()).unwrap();
        file.write_at(b"before", 0).unwrap();
        let before = session.identity().unwrap();
        proxy.cut();
        file.append(b" and after").unwrap();
        let Some(SessionEvent::Recovered { server_restarted: false, lost: 0, .. }) =
            recovered(&events)
        else {
            panic!("{:?}", events.borrow());
        };
        let after = session.identity().unwrap();
        assert_eq!((after.method, after.server), (AuthType::Gss, before.server));
        session.renew().unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::read(fixture.local("kept")).unwrap(), b"before and after");
    });
}

/// A client without a ticket after the connection is lost can get one within the recovery time.
#[test]
fn a_session_waits_for_a_ticket_that_is_missing() {
    let name = "auth::returning::a_session_waits_for_a_ticket_that_is_missing";
    scenario(name, |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        let proxy = Proxy::before(&fixture.address(Transport::Tcp));
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = by_kerberos(CredentialSource::Default);
        let session = client.connect_to(&proxy.address, &options).unwrap();
        let cache = realm.path("default.cache");
        let away = realm.path("away.cache");
        std::fs::rename(&cache, &away).unwrap();
        let events = watched(&session);
        proxy.cut();
        let attempts = || {
            let is_it = |event: &&SessionEvent| matches!(event, SessionEvent::Reconnecting { .. });
            events.borrow().iter().filter(is_it).count()
        };
        while attempts() < 3 {
            assert!(recovered(&events).is_none());
            client.process_events(Some(Duration::from_millis(50)));
        }
        std::fs::rename(&away, &cache).unwrap();
        session.ping().unwrap();
        assert!(recovered(&events).is_some());

        // The ticket of another user does not suffice, and finally the reason is reported.
        let brief = RecoveryOptions::default().give_up_after(Duration::ZERO);
        let options = options.recovery(Recovery::On(brief));
        let session = client.connect_to(&proxy.address, &options).unwrap();
        realm.ticket("bob", "builder", &cache, &[]);
        proxy.cut();
        match session.ping().unwrap_err() {
            ClientError::SessionEnded { reason, .. } => {
                assert!(reason.contains("another principal uses this client's name"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_session_by_ticket_outlives_its_server() {
    scenario("auth::returning::a_session_by_ticket_outlives_its_server", |realm| {
        let keytab = populate(realm);
        let change = with_keys(realm, keytab.clone());
        let mut fixture = restarted(serve(realm, keytab, |_| {}), &change);
        open_to_all(&fixture, "");
        for transport in transports() {
            let options = by_kerberos(CredentialSource::Default);
            let session = try_connect(&fixture, transport, &options).unwrap();
            let events = watched(&session);
            let name = format!("kept-{transport:?}");
            let file = session.open(format!("/{name}"), &OpenOptions::write()).unwrap();
            file.write_at(b"before", 0).unwrap();
            file.commit().unwrap();
            fixture = restarted(fixture, &change);
            file.append(b" and after").unwrap();
            let Some(SessionEvent::Recovered { server_restarted: true, reclaimed: 1, .. }) =
                recovered(&events)
            else {
                panic!("{:?}", events.borrow());
            };
            file.close().unwrap();
            assert_eq!(std::fs::read(fixture.local(&name)).unwrap(), b"before and after");
        }
    });
}

/// Requests and chains only notice a pause.
#[test]
fn a_session_outlives_its_ticket_by_itself() {
    let name = "auth::returning::a_session_outlives_its_ticket_by_itself";
    scenario_in(name, "clockskew = 8", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        open_to_all(&fixture, "");
        let cache = realm.path("default.cache");
        // On a busy machine the ticket may expire before it is used.
        let (session, file) = (0..10)
            .find_map(|_| {
                realm.ticket("alice", "wonderland", &cache, &["-l", "3s"]);
                let options = by_kerberos(CredentialSource::Default);
                let session = try_connect(&fixture, Transport::Tcp, &options).ok()?;
                let file = session.open("/kept", &OpenOptions::write()).ok()?;
                Some((session, file))
            })
            .unwrap();
        let events = watched(&session);
        realm.ticket("alice", "wonderland", &cache, &[]);
        let mut bytes = 0;
        await_that("the first ticket runs out", || {
            file.append(b"x").unwrap();
            bytes += 1;
            recovered(&events).is_some()
        });
        session.chain().create_dir("more", 0o755).run().unwrap();
        assert!(session.identity().unwrap().time_left().unwrap() > Duration::from_secs(3600));
        file.close().unwrap();
        assert_eq!(std::fs::metadata(fixture.local("kept")).unwrap().len(), bytes);
    });
}

/// The back-control channel authenticates with a token of its own, and reconnects with the session.
#[test]
fn a_session_by_ticket_is_told_of_its_batches() {
    scenario("auth::returning::a_session_by_ticket_is_told_of_its_batches", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        open_to_all(&fixture, "");
        for transport in transports() {
            let options = by_kerberos(CredentialSource::Default);
            let session = try_connect(&fixture, transport, &options).unwrap();
            session.listen().unwrap();
        }
        let proxy = Proxy::before(&fixture.address(Transport::Tcp));
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = by_kerberos(CredentialSource::Default);
        let session = client.connect_to(&proxy.address, &options).unwrap();
        let file = session.open("/batched", &OpenOptions::write()).unwrap();
        for round in 0..3_u64 {
            let bytes = client.allocate(5).unwrap();
            bytes.write(0, b"batch");
            let bytes = bytes.slice(0, 5).unwrap();
            let batch = session.batch().write(&file, round * 5, bytes);
            let ends = batch.submit().unwrap().wait();
            assert!(ends.iter().all(Result::is_ok), "{ends:?}");
            proxy.cut();
        }
        file.close().unwrap();
        assert_eq!(std::fs::read(fixture.local("batched")).unwrap(), b"batchbatchbatch");
    });
}

/// Configures the server to trust this user and anonymous clients, or not to.
fn trusting(does: bool) -> impl Fn(&mut ServerConfig) {
    move |config| {
        let uid = rustix::process::getuid().as_raw();
        let principals = vec![format!("uid:{uid}").parse().unwrap(), "anonymous".parse().unwrap()];
        let peers = Peers { principals, ..Peers::default() };
        config.access.trusted = if does { vec![peers] } else { Vec::new() };
        config.access.squash = Some(Squash::Root);
    }
}

#[test]
fn who_acts_for_others_does_so_after_a_restart() {
    if !dafs_tests::is_root() {
        return;
    }
    for transport in transports() {
        let mut fixture = restarted(Fixture::new(), trusting(true));
        open_to_all(&fixture, "");
        let session = try_connect(&fixture, transport, &SessionOptions::default()).unwrap();
        let events = watched(&session);
        let whom = |uid| ActFor::Id { uid, gid: uid, groups: &[] };
        // The order differs from that in which they are registered again, and one was released.
        let [first, second, gone] =
            [5001, 5002, 5003].map(|uid| session.register_credentials(whom(uid)).unwrap());
        session.release_credentials(gone).unwrap();
        let acting = session.acting_for(second);
        // Only its owner can open it.
        let private = OpenOptions::write().mode(0o600);
        let file = acting.open("/private", &private).unwrap();
        file.write_at(b"mine", 0).unwrap();
        file.commit().unwrap();
        fixture = restarted(fixture, trusting(true));
        acting.open("/of-second", &OpenOptions::write()).unwrap();
        session.acting_for(first).open("/of-first", &OpenOptions::write()).unwrap();
        let refused = session.acting_for(gone).open("/of-none", &OpenOptions::write());
        assert_eq!(refused.err().unwrap().status(), Some(Status::NoCreds));
        assert_eq!(owner(&fixture.local("of-first")), 5001);
        assert_eq!(owner(&fixture.local("of-second")), 5002);
        // It was reclaimed as the user who opened it.
        file.write_at(b"more", 4).unwrap();
        match recovered(&events) {
            Some(SessionEvent::Recovered {
                reclaimed: 1, lost: 0, credentials_lost: 0, ..
            }) => {}
            other => panic!("{other:?}"),
        }
        // A chain that was built before a restart runs as its user after it.
        let chain = acting.chain().create_dir("of-chain", 0o755);
        fixture = restarted(fixture, trusting(true));
        chain.run().unwrap();
        assert_eq!(owner(&fixture.local("of-chain")), 5002);
        // A server that no longer trusts the client refuses the request, and reports why.
        let fixture = restarted(fixture, trusting(false));
        let refused = acting.open("/of-second", &OpenOptions::read()).err().unwrap();
        assert_eq!(refused.status(), Some(Status::NoCreds));
        match recovered(&events) {
            Some(SessionEvent::Recovered { credentials_lost: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(!session.identity().unwrap().trusted);
        drop(fixture);
    }
}
