//! Contexts that are established.

use std::sync::Arc;
use std::time::Duration;

use dafs_gss::{
    Acceptor, Credential, CredentialSource, Initiator, Principal, Service, ServiceOptions,
};

use crate::parties::{
    SERVICE, answer, call, client, close, library, meet, opened, populate, service,
};
use crate::realm::{Realm, scenario};

#[test]
fn both_sides_know_each_other() {
    scenario("establish::both_sides_know_each_other", |realm| {
        let keytab = populate(realm);
        let (ours, theirs) = meet(&client(), &service(&keytab));
        assert_eq!(theirs.peer().as_str(), "alice@DAFS.TEST");
        assert_eq!(ours.peer().as_str(), "dafs/server.dafs.test@DAFS.TEST");
        // One day, plus the allowed clock skew of five minutes.
        let day = Duration::from_secs(24 * 3600);
        assert!(!ours.lifetime().is_zero() && ours.lifetime() <= day);
        assert!(theirs.lifetime() > ours.lifetime());
        assert!(theirs.lifetime() <= day + Duration::from_secs(300));
    });
}

#[test]
fn a_key_is_a_ticket() {
    scenario("establish::a_key_is_a_ticket", |realm| {
        let keytab = populate(realm);
        let service = service(&keytab);
        let file = realm.path("host.keytab");
        realm.administer(&format!(
            "addprinc -randkey host/client.dafs.test\naddprinc -randkey backup\n\
             ktadd -k {0} host/client.dafs.test\nktadd -k {0} backup\n",
            file.display()
        ));
        for (principal, expected) in [
            (None, "host/client.dafs.test@DAFS.TEST"),
            (Some("backup@DAFS.TEST"), "backup@DAFS.TEST"),
        ] {
            let principal = principal.map(|name| Principal::new(name).unwrap());
            let source = CredentialSource::Keytab { file: file.clone(), principal };
            let credential = Arc::new(Credential::acquire(&library(), &source).unwrap());
            let (_, theirs) = meet(&credential, &service);
            assert_eq!(theirs.peer().as_str(), expected);
        }
        // Alice's cache is unchanged.
        let (_, theirs) = meet(&client(), &service);
        assert_eq!(theirs.peer().as_str(), "alice@DAFS.TEST");
    });
}

#[test]
fn a_cache_can_be_named() {
    scenario("establish::a_cache_can_be_named", |realm| {
        let keytab = populate(realm);
        realm.administer("addprinc -pw glass bob\n");
        let cache = realm.path("bob.cache");
        realm.ticket("bob", "glass", &cache, &[]);
        let source = CredentialSource::Cache(cache.into());
        let bob = Arc::new(Credential::acquire(&library(), &source).unwrap());
        let (_, theirs) = meet(&bob, &service(&keytab));
        assert_eq!(theirs.peer().as_str(), "bob@DAFS.TEST");
    });
}

#[test]
fn a_service_may_have_many_names() {
    scenario("establish::a_service_may_have_many_names", |realm| {
        let keytab = populate(realm);
        realm.administer(&format!(
            "addprinc -randkey dafs/other.dafs.test\nktadd -k {} dafs/other.dafs.test\n",
            keytab.display()
        ));
        let options = ServiceOptions { keytab: Some(keytab), ..ServiceOptions::default() };
        let service = Arc::new(Service::acquire(&library(), &options).unwrap());
        for target in [SERVICE, "dafs@other.dafs.test", "dafs/other.dafs.test@DAFS.TEST"] {
            let (initiator, token) = call(&client(), target).unwrap();
            let (_, reply) = answer(Acceptor::new(Arc::clone(&service)), &token).unwrap();
            close(initiator, &reply).unwrap();
        }
    });
}

#[test]
fn keys_can_change_under_a_service() {
    scenario("establish::keys_can_change_under_a_service", |realm| {
        let keytab = populate(realm);
        let service = service(&keytab);
        meet(&client(), &service);
        realm.administer(&format!("ktadd -k {} dafs/server.dafs.test\n", keytab.display()));
        // The old ticket works with the old key, and a new one with the new key.
        meet(&client(), &service);
        realm.ticket("alice", "wonderland", &realm.path("default.cache"), &[]);
        meet(&client(), &service);
    });
}

fn bound(client_side: Option<&[u8]>, realm: &Realm) -> bool {
    let mut initiator = Initiator::new(client(), &SERVICE.parse().unwrap()).unwrap();
    if let Some(data) = client_side {
        initiator = initiator.bound_to(data);
    }
    let (initiator, token) = opened(initiator).unwrap();
    let acceptor = Acceptor::new(service(&realm.path("service.keytab"))).bound_to(b"channel 1");
    let (context, reply) = answer(acceptor, &token).unwrap();
    close(initiator, &reply).unwrap();
    context.is_bound()
}

#[test]
fn a_context_can_be_bound_to_a_connection() {
    scenario("establish::a_context_can_be_bound_to_a_connection", |realm| {
        populate(realm);
        assert!(bound(Some(b"channel 1"), realm));
        assert!(!bound(None, realm), "who binds nothing is told apart");
    });
}

#[test]
fn one_service_serves_many_threads() {
    scenario("establish::one_service_serves_many_threads", |realm| {
        let keytab = populate(realm);
        let (client, service) = (client(), service(&keytab));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let (mut ours, mut theirs) = meet(&client, &service);
                        let mic = ours.get_mic(b"of this thread").unwrap();
                        theirs.verify_mic(b"of this thread", &mic).unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn a_half_made_context_moves_between_threads() {
    scenario("establish::a_half_made_context_moves_between_threads", |realm| {
        let keytab = populate(realm);
        let (client, service) = (client(), service(&keytab));
        let (initiator, token) = call(&client, SERVICE).unwrap();
        let acceptor = Acceptor::new(service);
        let accepting = std::thread::spawn(move || answer(acceptor, &token).unwrap());
        let (theirs, reply) = accepting.join().unwrap();
        let ours = std::thread::spawn(move || close(initiator, &reply).unwrap()).join().unwrap();
        drop(ours);
        assert_eq!(theirs.peer().as_str(), "alice@DAFS.TEST");
    });
}

#[test]
fn principals_have_local_names() {
    scenario("establish::principals_have_local_names", |_| {
        let library = library();
        let local = |name: &str| library.local_name(&Principal::new(name).unwrap());
        assert_eq!(local("alice@DAFS.TEST"), Ok(Some("alice".to_owned())));
        assert_eq!(local("alice@NOWHERE.TEST"), Ok(None));
        assert_eq!(local("host/client.dafs.test@DAFS.TEST"), Ok(None));
        assert!(local("a@b@c").is_err());
    });
}
