//! Honest sides that cannot authenticate, and the reasons reported.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dafs_gss::{
    Acceptor, Credential, CredentialSource, GssError, Initiator, Principal, Reason, Service,
    ServiceOptions,
};

use crate::parties::{
    SERVICE, answer, call, client, close, library, opened, populate, reason, service,
};
use crate::realm::{Realm, scenario, scenario_in};

/// Returns the reason why a service refuses a client's token.
fn outcome(service: Arc<Service>) -> Reason {
    let (_, token) = call(&client(), SERVICE).unwrap();
    reason(answer(Acceptor::new(service), &token))
}

#[test]
fn a_server_with_another_key() {
    scenario("refuse::a_server_with_another_key", |realm| {
        populate(realm);
        let forged = realm.path("forged.keytab");
        realm.forge_key(&forged, "dafs/server.dafs.test", 2, "not the key");
        assert_eq!(outcome(service(&forged)), Reason::WrongKey);
    });
}

#[test]
fn a_server_with_an_old_key() {
    scenario("refuse::a_server_with_an_old_key", |realm| {
        let keytab = populate(realm);
        realm.administer("cpw -randkey dafs/server.dafs.test\n");
        assert_eq!(outcome(service(&keytab)), Reason::KeyMissing);
    });
}

#[test]
fn a_server_without_a_key() {
    scenario("refuse::a_server_without_a_key", |realm| {
        let keytab = populate(realm);
        let acquire = |name: Option<&str>, keytab: Option<PathBuf>| {
            let name = name.map(|name| name.parse().unwrap());
            let options = ServiceOptions { name, keytab, replay_cache: None };
            reason(Service::acquire(&library(), &options))
        };
        let none = realm.path("none.keytab");
        assert_eq!(acquire(Some(SERVICE), Some(none.clone())), Reason::CredentialMissing);
        assert_eq!(acquire(None, Some(none)), Reason::CredentialMissing);
        assert_eq!(acquire(None, None), Reason::CredentialMissing, "the default keytab");
        let other = Some("dafs@other.dafs.test");
        assert_eq!(acquire(other, Some(keytab.clone())), Reason::CredentialMissing);
        std::fs::write(&keytab, b"no keytab at all").unwrap();
        assert_ne!(acquire(Some(SERVICE), Some(keytab.clone())), Reason::TokenDefective);
        let with_nul = PathBuf::from("a\0b");
        assert_eq!(acquire(None, Some(with_nul)), Reason::NameMalformed);
    });
}

#[test]
fn a_ticket_for_another_service() {
    scenario("refuse::a_ticket_for_another_service", |realm| {
        let keytab = populate(realm);
        realm.administer(&format!(
            "addprinc -randkey nfs/server.dafs.test\nktadd -k {} nfs/server.dafs.test\n\
             addprinc -randkey web/server.dafs.test\n",
            keytab.display()
        ));
        for target in ["nfs@server.dafs.test", "web@server.dafs.test"] {
            let (_, token) = call(&client(), target).unwrap();
            let refusal = reason(answer(Acceptor::new(service(&keytab)), &token));
            assert_eq!(refusal, Reason::WrongService, "{target}");
        }
        let unknown = reason(call(&client(), "dafs@elsewhere.dafs.test"));
        assert_eq!(unknown, Reason::ServiceUnknown);
    });
}

#[test]
fn a_client_that_was_refused_is_told_why() {
    scenario("refuse::a_client_that_was_refused_is_told_why", |realm| {
        let service = service(&populate(realm));
        let (initiator, token) = call(&client(), SERVICE).unwrap();
        answer(Acceptor::new(Arc::clone(&service)), &token).unwrap();
        let refusal = answer(Acceptor::new(service), &token).unwrap_err();
        let told = reason(close(initiator, refusal.reply().unwrap()));
        assert_eq!(told, Reason::Replayed);
    });
}

#[test]
fn a_connection_the_token_was_not_made_for() {
    scenario("refuse::a_connection_the_token_was_not_made_for", |realm| {
        let service = service(&populate(realm));
        let initiator = Initiator::new(client(), &SERVICE.parse().unwrap()).unwrap();
        let (_, token) = opened(initiator.bound_to(b"channel 1")).unwrap();
        let acceptor = Acceptor::new(service).bound_to(b"channel 2");
        assert_eq!(reason(answer(acceptor, &token)), Reason::BindingsDiffer);
    });
}

fn with_key(realm: &Realm, file: &str, principal: &str) -> Result<Credential, GssError> {
    let file = realm.path(file);
    let principal = Some(Principal::new(principal).unwrap());
    Credential::acquire(&library(), &CredentialSource::Keytab { file, principal })
}

#[test]
fn a_client_without_credentials() {
    scenario("refuse::a_client_without_credentials", |realm| {
        populate(realm);
        realm.administer("addprinc +requires_preauth -pw glass bob\n");
        realm.forge_key(&realm.path("bob.keytab"), "bob@DAFS.TEST", 1, "not glass");
        realm.forge_key(&realm.path("eve.keytab"), "eve@DAFS.TEST", 1, "anything");
        realm.forge_key(&realm.path("far.keytab"), "bob@NOWHERE.TEST", 1, "anything");
        let keyed = |file, principal| reason(with_key(realm, file, principal));
        assert_eq!(keyed("bob.keytab", "bob@DAFS.TEST"), Reason::ClientRefused);
        assert_eq!(keyed("eve.keytab", "eve@DAFS.TEST"), Reason::ClientUnknown);
        assert_eq!(keyed("far.keytab", "bob@NOWHERE.TEST"), Reason::CentreUnreachable);
        assert_eq!(keyed("bob.keytab", "eve@DAFS.TEST"), Reason::CredentialMissing);
        assert_eq!(keyed("none.keytab", "bob@DAFS.TEST"), Reason::CredentialMissing);
        let empty = CredentialSource::Cache(realm.path("none.cache").into());
        assert_eq!(reason(Credential::acquire(&library(), &empty)), Reason::CredentialMissing);
        std::fs::remove_file(realm.path("default.cache")).unwrap();
        let nothing = Credential::acquire(&library(), &CredentialSource::Default);
        assert_eq!(reason(nothing), Reason::CredentialMissing);
    });
}

/// Returns a token of alice, whose ticket lasts only seconds. On a busy machine it may expire
/// before it is used.
fn short_lived(realm: &Realm) -> Vec<u8> {
    for _ in 0..10 {
        realm.ticket("alice", "wonderland", &realm.path("default.cache"), &["-l", "3s"]);
        match call(&client(), SERVICE) {
            Ok((_, token)) => return token,
            Err(error) => println!("{error}"),
        }
    }
    panic!("no ticket lasted long enough to be used");
}

/// Watches a ticket expire, as seen by `klist` and a server. Each check uses a new replay cache,
/// because the token is the same.
#[test]
fn a_ticket_that_ran_out() {
    let name = "refuse::a_ticket_that_ran_out";
    scenario_in(name, "clockskew = 1", |realm| {
        let keytab = populate(realm);
        let token = short_lived(realm);
        let begun = Instant::now();
        loop {
            let is_good = realm.holds_good(&realm.path("default.cache"));
            let cache = realm.path("look.rcache");
            let options = ServiceOptions {
                name: None,
                keytab: Some(keytab.clone()),
                replay_cache: Some(cache.clone()),
            };
            let service = Arc::new(Service::acquire(&library(), &options).unwrap());
            match answer(Acceptor::new(service), &token) {
                Ok(_) => {}
                // The request itself becomes too old before the ticket does.
                Err(error) if error.reason() == Reason::ClockSkew => {}
                Err(error) if error.reason() == Reason::Expired => {
                    assert!(!is_good, "it is refused before its time");
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the ticket does not run out");
            std::fs::remove_file(&cache).unwrap();
        }
        // The client does not try with it either.
        let late = Credential::acquire(&library(), &CredentialSource::Default)
            .and_then(|credential| call(&Arc::new(credential), SERVICE));
        assert_eq!(reason(late), Reason::Expired);
    });
}
