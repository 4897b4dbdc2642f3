//! Tests rules: from where clients connect, as which users, and what they see.

use dafs_client::{Login, OpenOptions, SessionOptions, Status};
use dafs_server::{AccessRules, ConnectRule, ExportRules, PartialTerms, Peers, ServerConfig};
use dafs_store::local::Squash;
use dafs_types::{AuthType, Credentials};

use super::{open_to_all, owner, passwords, try_connect};
use crate::fixture::{Fixture, Transport, far, transports};

fn from(places: &[&str]) -> Peers {
    Peers { from: places.iter().map(|place| place.parse().unwrap()).collect(), ..Peers::default() }
}

fn far_ip() -> String {
    crate::fixture::far_ip().to_string()
}

fn named(principals: &[&str]) -> Peers {
    let principals = principals.iter().map(|name| name.parse().unwrap()).collect();
    Peers { principals, ..Peers::default() }
}

fn rule(allow: bool, peers: Peers) -> ConnectRule {
    ConnectRule { allow, peers }
}

fn with_rules(connect: Vec<ConnectRule>) -> Fixture {
    Fixture::with(|config| config.access.connect = connect)
}

fn password(user: &str, password: &str) -> SessionOptions {
    let (user, password) = (user.to_owned(), password.to_owned());
    SessionOptions::default().login(Login::Password { user, password })
}

#[test]
fn a_network_that_is_kept_out_cannot_connect() {
    let fixture = with_rules(vec![
        rule(false, from(&["127.0.0.0/8", &far_ip()])),
        rule(true, from(&["local"])),
    ]);
    let options = SessionOptions::default();
    try_connect(&fixture, Transport::Shm, &options).unwrap();
    let error = try_connect(&fixture, far(), &options).err().unwrap();
    assert!(error.to_string().contains("rules"), "{error}");
}

#[test]
fn who_is_not_mentioned_stays_out() {
    let fixture = with_rules(vec![rule(true, from(&[&far_ip()]))]);
    let options = SessionOptions::default();
    try_connect(&fixture, far(), &options).unwrap();
    assert!(try_connect(&fixture, Transport::Shm, &options).is_err());
}

#[test]
fn a_type_of_authentication_can_be_required() {
    let by_password = Peers { authentication: vec![AuthType::Text], ..Peers::default() };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    passwords(&file, &[("ann", 5001), ("eve", 5002)]);
    let fixture = Fixture::with(|config| {
        config.password_file = Some(file);
        config.access.connect = vec![rule(false, named(&["user:eve"])), rule(true, by_password)];
    });
    for transport in transports() {
        try_connect(&fixture, transport, &password("ann", "ann")).unwrap();
        for options in [SessionOptions::default(), password("eve", "eve")] {
            let error = try_connect(&fixture, transport, &options).err().unwrap();
            assert_eq!(error.status(), Some(Status::NotAuthorized));
            assert!(error.to_string().contains("its log"), "{error}");
        }
        let error = try_connect(&fixture, transport, &password("ann", "wrong")).err().unwrap();
        assert_eq!(error.status(), Some(Status::NotAuthorized));
    }
}

#[test]
fn exports_are_hidden_from_whom_they_are_not_for() {
    let fixture = Fixture::with_two_exports(|config| {
        let clients = vec![(from(&["local"]), PartialTerms::default())];
        let name = "home".to_owned();
        config.access.exports = vec![ExportRules { name, clients, ..ExportRules::default() }];
    });
    std::fs::write(fixture.local("home/secret"), b"for locals").unwrap();
    std::fs::write(fixture.local("pub/notice"), b"for all").unwrap();
    let options = SessionOptions::default();
    let near = try_connect(&fixture, Transport::Shm, &options).unwrap();
    let far = try_connect(&fixture, far(), &options).unwrap();
    let names = |session: &dafs_client::Session| {
        let mut names: Vec<_> =
            session.read_dir("/").unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&near), ["home", "pub"]);
    assert_eq!(names(&far), ["pub"]);
    far.open("/pub/notice", &OpenOptions::read()).unwrap();
    let error = far.open("/home/secret", &OpenOptions::read()).err().unwrap();
    assert_eq!(error.status(), Some(Status::NoEnt));
    // A handle from another session does not give access either, open or not.
    let secret = near.open("/home/secret", &OpenOptions::read()).unwrap();
    let stolen = far.opened(secret.handle(), secret.state(), "/home/secret");
    assert_eq!(stolen.metadata().err().unwrap().status(), Some(Status::Access));
    let parent = near.metadata("/home").unwrap();
    drop((stolen, parent));
}

#[test]
fn rules_for_what_is_not_served_are_refused() {
    let store = dafs_store::memory::MemoryStore::new(dafs_store::memory::MemoryLimits {
        bytes_max: 1 << 20,
        object_count_max: 10,
    });
    let store = std::sync::Arc::new(store);
    let start = |rules: ExportRules| {
        let access = AccessRules { exports: vec![rules], ..AccessRules::default() };
        let config = ServerConfig { access, ..ServerConfig::default() };
        dafs_server::Server::new(&config, store.clone()).err().unwrap().to_string()
    };
    let error = start(ExportRules { name: "hoem".to_owned(), ..ExportRules::default() });
    assert!(error.contains("\"hoem\"") && error.contains("export"), "{error}");
    let terms = PartialTerms { read_only: Some(true), ..PartialTerms::default() };
    let name = "export".to_owned();
    let error = start(ExportRules { name, terms, ..ExportRules::default() });
    assert!(error.contains("read-only"), "{error}");
}

#[test]
fn an_export_may_be_read_only_for_some() {
    let fixture = Fixture::with_two_exports(|config| {
        let read_only = PartialTerms { read_only: Some(true), ..PartialTerms::default() };
        let clients =
            vec![(from(&["local"]), PartialTerms::default()), (Peers::default(), read_only)];
        let name = "pub".to_owned();
        config.access.exports = vec![ExportRules { name, clients, ..ExportRules::default() }];
    });
    let options = SessionOptions::default();
    let near = try_connect(&fixture, Transport::Shm, &options).unwrap();
    let far = try_connect(&fixture, far(), &options).unwrap();
    near.open("/pub/file", &OpenOptions::write()).unwrap().close().unwrap();
    far.open("/pub/file", &OpenOptions::read()).unwrap();
    for result in [
        far.open("/pub/file", &OpenOptions::write()).map(|_| ()),
        far.remove("/pub/file"),
        far.create_dir("/pub/directory", 0o755),
    ] {
        assert_eq!(result.err().and_then(|error| error.status()), Some(Status::RoFs));
    }
    far.open("/home/file", &OpenOptions::write()).unwrap();
}

#[test]
fn root_of_elsewhere_is_nobody_unless_that_is_said() {
    if !dafs_tests::is_root() {
        return;
    }
    let someone = Credentials::plain(5007, 5007).unwrap();
    // The default, all users, and none.
    for (squash, far_owner, near_owner) in
        [(None, 65_534, 0), (Some(Squash::All), 5007, 5007), (Some(Squash::Nobody), 0, 0)]
    {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("passwords");
        passwords(&file, &[("toor", 0), ("ann", 5001)]);
        let fixture = Fixture::with(|config| {
            config.password_file = Some(file);
            config.access.squash = squash;
            if squash == Some(Squash::All) {
                config.access.anonymous = someone.clone();
            }
        });
        open_to_all(&fixture, "");
        let make = |transport, options: &SessionOptions, name: &str| {
            let session = try_connect(&fixture, transport, options).unwrap();
            session.open(format!("/{name}"), &OpenOptions::write()).unwrap().close().unwrap();
            owner(&fixture.local(name))
        };
        assert_eq!(make(far(), &password("toor", "toor"), "far"), far_owner);
        assert_eq!(make(Transport::Shm, &SessionOptions::default(), "near"), near_owner);
        let ann = if squash == Some(Squash::All) { 5007 } else { 5001 };
        assert_eq!(make(far(), &password("ann", "ann"), "ann"), ann);
    }
}
