//! Tests Kerberos end to end: a KDC, a server with a keytab, clients with and without tickets.
//!
//! Each case runs in a separate process with its own realm. Without the KDC's programs, the tests
//! pass with a message, unless `DAFS_REQUIRE_KDC=1`.

use std::path::PathBuf;

use dafs_client::{
    AuthType, ClientError, CredentialSource, Login, OpenOptions, Recovery, SessionOptions, Status,
    Tickets,
};
use dafs_gss::ServiceOptions;
use dafs_server::{ConnectRule, KerberosConfig, Peers, ServerConfig};

use super::{open_to_all, owner, passwords, try_connect};
use crate::fixture::{Fixture, Transport, await_that, transports};
use crate::realm::{Realm, scenario, scenario_in};

/// The service as clients name it.
pub(super) const SERVICE: &str = "dafs@server.dafs.test";
pub(super) const ALICE: u32 = 5001;
const BOB: u32 = 5002;

/// Fills a realm with alice, who has a ticket, bob, carol and a service.
pub(super) fn populate(realm: &Realm) -> PathBuf {
    let keytab = realm.path("service.keytab");
    realm.administer(&format!(
        "addprinc -pw wonderland alice\naddprinc -pw builder bob\naddprinc -pw unmapped carol\n\
         addprinc -randkey dafs/server.dafs.test\nktadd -k {} dafs/server.dafs.test\n",
        keytab.display()
    ));
    realm.ticket("alice", "wonderland", &realm.path("default.cache"), &[]);
    keytab
}

/// Starts a server with the keytab. Alice is mapped by the configuration and bob by the host's
/// rules. Carol is not mapped to a local user.
pub(super) fn serve(
    realm: &Realm,
    keytab: PathBuf,
    change: impl FnOnce(&mut ServerConfig),
) -> Fixture {
    let file = realm.path("passwords");
    passwords(&file, &[("wonder", ALICE), ("bob", BOB), ("admin", 0)]);
    Fixture::with(|config| {
        config.password_file = Some(file);
        config.kerberos = Some(kerberos_config(keytab));
        change(config);
    })
}

pub(super) fn kerberos_config(keytab: PathBuf) -> KerberosConfig {
    let name = Some(SERVICE.parse().unwrap());
    KerberosConfig {
        service: ServiceOptions { name, keytab: Some(keytab), replay_cache: None },
        users: [("alice@DAFS.TEST".to_owned(), "wonder".to_owned())].into(),
        ..KerberosConfig::default()
    }
}

pub(super) fn by_kerberos(source: CredentialSource) -> SessionOptions {
    let tickets = Tickets::default().service(Some(SERVICE.parse().unwrap())).source(source);
    SessionOptions::default().login(Login::Kerberos(tickets))
}

/// Returns options with a user's ticket, which is obtained with a password.
fn with_ticket(realm: &Realm, who: &str, password: &str) -> SessionOptions {
    let cache = realm.path(&format!("{who}.cache"));
    realm.ticket(who, password, &cache, &[]);
    by_kerberos(CredentialSource::Cache(cache.into()))
}

fn automatic() -> SessionOptions {
    let host = "server.dafs.test".to_owned();
    SessionOptions::default().login(Login::Automatic).host(host)
}

/// Returns the status and the text of a refused Kerberos login.
#[track_caller]
fn told(outcome: Result<dafs_client::Session, ClientError>) -> (Option<Status>, String) {
    match outcome.err() {
        Some(ClientError::Kerberos { reason, status, .. }) => {
            println!("{reason}");
            (status, reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ticket_opens_a_session() {
    scenario("auth::kerberos::a_ticket_opens_a_session", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        open_to_all(&fixture, "");
        for transport in transports() {
            let options = by_kerberos(CredentialSource::Default);
            let session = try_connect(&fixture, transport, &options).unwrap();
            let identity = session.identity().unwrap();
            assert_eq!(identity.method, AuthType::Gss);
            let service = "dafs/server.dafs.test@DAFS.TEST";
            assert_eq!(identity.server.as_deref(), Some(service));
            assert!(identity.time_left().unwrap() > std::time::Duration::from_secs(3600));
            if rustix::process::geteuid().is_root() {
                let name = format!("by-alice-{transport:?}");
                session.open(format!("/{name}"), &OpenOptions::write()).unwrap();
                assert_eq!(owner(&fixture.local(&name)), ALICE);
            }
            // The same again, with the service ticket in the cache.
            session.renew().unwrap();
            session.ping().unwrap();
        }
        let options = with_ticket(realm, "bob", "builder");
        let session = try_connect(&fixture, Transport::Tcp, &options).unwrap();
        if rustix::process::geteuid().is_root() {
            session.open("/by-bob", &OpenOptions::write()).unwrap();
            assert_eq!(owner(&fixture.local("by-bob")), BOB);
        } else {
            dafs_tests::skip_part("only root can make files of others");
        }
    });
}

#[test]
fn checksums_hold_from_the_first_token_on() {
    scenario("auth::kerberos::checksums_hold_from_the_first_token_on", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        open_to_all(&fixture, "");
        for transport in transports() {
            let options = by_kerberos(CredentialSource::Default).checksums(true);
            try_connect(&fixture, transport, &options).unwrap().ping().unwrap();
        }
    });
}

#[test]
fn the_best_way_is_found() {
    scenario("auth::kerberos::the_best_way_is_found", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        let far = try_connect(&fixture, Transport::Tcp, &automatic()).unwrap();
        let identity = far.identity().unwrap();
        assert_eq!(identity.method, AuthType::Gss, "{:?}", identity.passed_over);
        assert!(identity.offered.contains(&AuthType::Text));
        // The kernel vouches for a local user.
        let near = try_connect(&fixture, Transport::Shm, &automatic()).unwrap();
        assert_eq!(near.identity().unwrap().method, AuthType::None);
        // Without a ticket, the client says so and connects anonymously.
        std::fs::remove_file(realm.path("default.cache")).unwrap();
        let far = try_connect(&fixture, Transport::Tcp, &automatic()).unwrap();
        let identity = far.identity().unwrap();
        assert_eq!(identity.method, AuthType::None);
        let reasons = identity.passed_over.join("; ");
        assert!(reasons.contains("kerberos: ") && reasons.contains("kinit"), "{reasons}");
        assert!(reasons.contains("password: "), "{reasons}");
        let (status, reason) =
            told(try_connect(&fixture, Transport::Tcp, &by_kerberos(CredentialSource::Default)));
        assert!(status.is_none() && reason.contains("kinit"), "{reason}");
    });
}

#[test]
fn nobody_is_let_in_where_no_way_fits() {
    scenario("auth::kerberos::nobody_is_let_in_where_no_way_fits", |realm| {
        let fixture =
            serve(realm, populate(realm), |config| config.sessions.authentication.anonymous = None);
        std::fs::remove_file(realm.path("default.cache")).unwrap();
        match try_connect(&fixture, Transport::Tcp, &automatic()).err() {
            Some(ClientError::NoLogin { reasons, .. }) => assert_eq!(reasons.len(), 3),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_server_without_a_keytab_offers_none() {
    scenario("auth::kerberos::a_server_without_a_keytab_offers_none", |realm| {
        populate(realm);
        let fixture = Fixture::new();
        let session = try_connect(&fixture, Transport::Tcp, &automatic()).unwrap();
        let identity = session.identity().unwrap();
        assert_eq!(identity.method, AuthType::None);
        assert!(identity.passed_over[0].contains("keytab"), "{:?}", identity.passed_over);
        let options = by_kerberos(CredentialSource::Default);
        let (status, reason) = told(try_connect(&fixture, Transport::Tcp, &options));
        assert_eq!(status, Some(Status::NotSupp));
        assert!(reason.contains("does not offer"), "{reason}");
        // A server with a missing keytab does not start.
        let (none, store) = (
            realm.path("none.keytab"),
            dafs_store::memory::MemoryLimits { bytes_max: 1 << 20, object_count_max: 10 },
        );
        let service = ServiceOptions { keytab: Some(none), ..ServiceOptions::default() };
        let kerberos = Some(KerberosConfig { service, ..KerberosConfig::default() });
        let config = ServerConfig { kerberos, ..ServerConfig::default() };
        let store = std::sync::Arc::new(dafs_store::memory::MemoryStore::new(store));
        let error = dafs_server::Server::new(&config, store).err().unwrap();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            text += &format!(": {next}");
            cause = next.source();
        }
        assert!(text.contains("ktadd") && text.contains("keytab"), "{text}");
    });
}

#[test]
fn who_is_nobody_here_is_told_what_is_missing() {
    scenario("auth::kerberos::who_is_nobody_here_is_told_what_is_missing", |realm| {
        let fixture = serve(realm, populate(realm), |config| {
            let users = &mut config.kerberos.as_mut().unwrap().users;
            users.insert("bob@DAFS.TEST".to_owned(), "admin".to_owned());
        });
        // By the host's rules carol is the local user carol, who does not exist. Bob would be user
        // 0.
        for (who, password) in [("carol", "unmapped"), ("bob", "builder")] {
            let options = with_ticket(realm, who, password);
            let (status, reason) = told(try_connect(&fixture, Transport::Tcp, &options));
            assert_eq!(status, Some(Status::NotAuthorized));
            assert!(reason.contains("no user or no rule for you"), "{reason}");
        }
    });
}

#[test]
fn root_by_ticket_must_be_allowed() {
    scenario("auth::kerberos::root_by_ticket_must_be_allowed", |realm| {
        let fixture = serve(realm, populate(realm), |config| {
            let kerberos = config.kerberos.as_mut().unwrap();
            kerberos.users.insert("bob@DAFS.TEST".to_owned(), "admin".to_owned());
            kerberos.superuser = true;
            kerberos.host_rules = false;
        });
        let bob = with_ticket(realm, "bob", "builder");
        try_connect(&fixture, Transport::Tcp, &bob).unwrap();
        // Without the host's rules, carol is not even looked up.
        let carol = with_ticket(realm, "carol", "unmapped");
        let (status, _) = told(try_connect(&fixture, Transport::Tcp, &carol));
        assert_eq!(status, Some(Status::NotAuthorized));
    });
}

#[test]
fn a_principal_can_be_kept_out_and_trusted() {
    scenario("auth::kerberos::a_principal_can_be_kept_out_and_trusted", |realm| {
        let named =
            |name: &str| Peers { principals: vec![name.parse().unwrap()], ..Peers::default() };
        let fixture = serve(realm, populate(realm), |config| {
            config.access.connect = vec![
                ConnectRule { allow: false, peers: named("kerberos:bob@DAFS.TEST") },
                ConnectRule { allow: true, peers: named("kerberos:*@DAFS.TEST") },
            ];
            config.access.trusted = vec![named("kerberos:alice@DAFS.TEST")];
        });
        let alice = by_kerberos(CredentialSource::Default);
        let session = try_connect(&fixture, Transport::Tcp, &alice).unwrap();
        assert!(session.identity().unwrap().trusted);
        let bob = dafs_client::ActFor::Principal("bob@DAFS.TEST");
        session.register_credentials(bob).unwrap();
        let carol = dafs_client::ActFor::Principal("carol@DAFS.TEST");
        let refused = session.register_credentials(carol).err().unwrap();
        assert_eq!(refused.status(), Some(Status::Inval));
        let bob = with_ticket(realm, "bob", "builder");
        let (status, reason) = told(try_connect(&fixture, Transport::Tcp, &bob));
        assert_eq!(status, Some(Status::NotAuthorized));
        assert!(reason.contains("its log"), "{reason}");
        let error = try_connect(&fixture, Transport::Tcp, &SessionOptions::default());
        assert_eq!(error.err().unwrap().status(), Some(Status::NotAuthorized));
    });
}

#[test]
fn a_wrong_key_is_told_from_an_unknown_client() {
    scenario("auth::kerberos::a_wrong_key_is_told_from_an_unknown_client", |realm| {
        let keytab = populate(realm);
        realm.administer("modprinc +requires_preauth bob\n");
        realm.forge_key(&realm.path("bob.keytab"), "bob@DAFS.TEST", 1, "not his password");
        realm.forge_key(&realm.path("eve.keytab"), "eve@DAFS.TEST", 1, "anything");
        let fixture = serve(realm, keytab, |_| {});
        for (file, expected) in
            [("bob.keytab", "password or key is wrong"), ("eve.keytab", "does not know the client")]
        {
            let source = CredentialSource::Keytab { file: realm.path(file), principal: None };
            let (status, reason) =
                told(try_connect(&fixture, Transport::Tcp, &by_kerberos(source)));
            assert!(status.is_none() && reason.contains(expected), "{reason}");
        }
    });
}

/// The session of a short-lived ticket ends, and is renewed with a fresh ticket.
#[test]
fn a_session_outlives_its_ticket_if_it_is_renewed() {
    let name = "auth::kerberos::a_session_outlives_its_ticket_if_it_is_renewed";
    // A ticket is also valid for the allowed clock skew. On a busy machine, the same time may pass
    // between making a token and checking it.
    scenario_in(name, "clockskew = 8", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        let cache = realm.path("default.cache");
        // On a busy machine the ticket may expire before it is used.
        let session = (0..10)
            .find_map(|_| {
                realm.ticket("alice", "wonderland", &cache, &["-l", "3s"]);
                let options = by_kerberos(CredentialSource::Default);
                // With recovery, the session would reconnect with any ticket that exists.
                let options = options.recovery(Recovery::Off);
                try_connect(&fixture, Transport::Tcp, &options).ok()
            })
            .unwrap();
        let client = session.client();
        await_that("the ticket runs out", || {
            client.process_events(Some(std::time::Duration::from_millis(50)));
            match session.ping() {
                Ok(()) => false,
                Err(error) => error.status() == Some(Status::NotAuthenticated),
            }
        });
        let stale = session.renew().err().unwrap();
        assert!(stale.to_string().contains("expired"), "{stale}");
        // Another principal cannot take over the session.
        realm.ticket("bob", "builder", &cache, &[]);
        let other = session.renew().err().unwrap();
        assert_eq!(other.status(), Some(Status::NotAuthorized), "{other}");
        realm.ticket("alice", "wonderland", &cache, &[]);
        session.renew().unwrap();
        session.ping().unwrap();
    });
}

#[test]
fn a_ticket_that_ran_out_is_not_used() {
    let name = "auth::kerberos::a_ticket_that_ran_out_is_not_used";
    scenario_in(name, "clockskew = 1", |realm| {
        let fixture = serve(realm, populate(realm), |_| {});
        let cache = realm.path("default.cache");
        realm.ticket("alice", "wonderland", &cache, &["-l", "1s"]);
        await_that("the ticket runs out", || {
            std::thread::yield_now();
            let options = by_kerberos(CredentialSource::Default);
            match try_connect(&fixture, Transport::Tcp, &options).err() {
                Some(ClientError::Kerberos { reason, .. }) => reason.contains("has expired"),
                _ => false,
            }
        });
    });
}
