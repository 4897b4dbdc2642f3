//! Tests password guessing: it neither delays other clients nor locks out a user.

use std::net::Ipv4Addr;

use dafs_client::{Client, ClientConfig, Login, OpenOptions, SessionOptions};
use dafs_server::ServerConfig;
use dafs_types::{AuthType, Status};
use dafs_wire::Request;
use dafs_wire::messages::{ClientConnectAuth, Empty};

use super::{passwords, try_connect};
use crate::fixture::{Fixture, HANG, Transport};
use crate::hostile::tcp::Wire;
use crate::rogue::{Rogue, encoded, login_by_password};

/// A hash that no password matches, and that takes seconds to check.
const DEAR: &str = "$argon2id$v=19$m=19456,t=300,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A hash that no password matches, and that is checked at once.
const CHEAP: &str = "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
/// The number of users with such a hash: `user0` and so on.
const CHEAP_COUNT: usize = 102;

/// Starts a server with the users `ann` and `bob`, whose passwords are their names, `slow`, and
/// others whose passwords are unknown.
fn fixture() -> Fixture {
    fixture_with(|_| {})
}

/// Does the same with changes to the configuration.
fn fixture_with(change: impl FnOnce(&mut ServerConfig)) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    passwords(&file, &[("ann", 0), ("bob", 0)]);
    let mut users = std::fs::read_to_string(&file).unwrap();
    users.push_str(&format!("slow:1:1::{DEAR}\n"));
    users.extend((0..CHEAP_COUNT).map(|number| format!("user{number}:1:1::{CHEAP}\n")));
    std::fs::write(&file, users).unwrap();
    Fixture::with(|config| {
        config.password_file = Some(file);
        change(config);
    })
}

fn as_user(user: &str, password: &str) -> SessionOptions {
    let login = Login::Password { user: user.into(), password: password.into() };
    SessionOptions::default().login(login)
}

#[test]
fn passwords_are_not_asked_for_where_nobody_has_one() {
    for file in [None, Some("# nobody yet\n")] {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Fixture::with(|config| {
            if let Some(text) = file {
                let path = directory.path().join("passwords");
                std::fs::write(&path, text).unwrap();
                let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                std::fs::set_permissions(&path, own).unwrap();
                config.password_file = Some(path);
            }
        });
        for transport in [Transport::Shm, Transport::Tcp] {
            let refused = try_connect(&fixture, transport, &as_user("ann", "ann")).err().unwrap();
            assert_eq!(refused.status(), Some(Status::NotSupp), "{refused}");
            let client = Client::new(ClientConfig::default()).unwrap();
            let options = SessionOptions::default().login(Login::Automatic);
            let session = client.connect_to(&fixture.address(transport), &options).unwrap();
            let offered = session.identity().unwrap().offered;
            assert!(!offered.contains(&AuthType::Text), "{offered:?}");
        }
    }
}

#[test]
fn whoever_works_or_comes_from_elsewhere_waits_for_no_guesses() {
    let fixture = fixture();
    let (_client, session) = fixture.connect(Transport::Shm);
    let mut guessers: Vec<_> = (0..12)
        .map(|_| {
            let mut rogue = Rogue::connect(&fixture.address(Transport::Tcp));
            rogue.request(0, 0, &login_by_password("slow", "guess"));
            rogue
        })
        .collect();
    // When the server replies to a later client, it has received all of that.
    let (_other, other) = fixture.connect(Transport::Tcp);
    other.ping().unwrap();
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    for round in 0..20 {
        file.write_at(&[round; 5000], 0).unwrap();
        file.commit().unwrap();
    }
    file.close().unwrap();
    let elsewhere = try_connect(&fixture, Transport::Shm, &as_user("ann", "ann")).unwrap();
    elsewhere.ping().unwrap();
    let answered = guessers.iter_mut().filter_map(|rogue| rogue.has_answer().then_some(())).count();
    assert_eq!(answered, 0, "a guess was checked first: nothing is shown");
}

#[test]
fn who_has_logged_in_from_a_place_does_not_wait_for_guesses_of_others_there() {
    let fixture = fixture_with(|config| config.sessions.authentication.timeout = HANG);
    let address = fixture.address(Transport::Tcp);
    let login = |user: &str, password: &str| encoded(0, 0, &login_by_password(user, password));
    let ask =
        |user: &str, password: &str| Wire::connect(&address, false).ask(&login(user, password));
    assert_eq!(ask("ann", "ann"), Status::Ok);
    for number in 0..22 {
        assert_eq!(ask(&format!("user{number}"), "guess"), Status::NotAuthorized);
    }
    // More guesses than may wait from one address. By now each check is delayed by a second or two.
    let guessers: Vec<_> = (22..CHEAP_COUNT)
        .map(|number| {
            let mut wire = Wire::connect(&address, false);
            wire.message(&login(&format!("user{number}"), "guess"));
            wire
        })
        .collect();
    assert_eq!(ask("ann", "ann"), Status::Ok);
    let waiting = guessers.iter().filter(|wire| !wire.has_heard()).count();
    assert!(waiting > 30, "she has waited for the guesses: {waiting} are left");
}

#[test]
fn guesses_are_slowed_and_lock_nobody_else_out() {
    let fixture = fixture();
    let address = fixture.address(Transport::Tcp);
    let guess = |user: &str, password: &str, source: Ipv4Addr| {
        let mut wire = Wire::open_from(&address, source).stand(false);
        wire.ask(&encoded(0, 0, &login_by_password(user, password)))
    };
    let (near, far) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    for round in 0..5 {
        assert_eq!(guess("ann", "wrong", near), Status::NotAuthorized, "{round}");
    }
    // Checks from one address run one after the other: without a delay hers would be first.
    let mut slowed = Rogue::connect(&address);
    let Request::ClientConnectAuth(login) = login_by_password("ann", "ann") else { panic!() };
    let login = ClientConnectAuth { client_string: b"slowed", ..login };
    slowed.request(0, 0, &Request::ClientConnectAuth(login));
    assert_eq!(guess("bob", "bob", near), Status::Ok, "a neighbour of the guesser");
    assert!(!slowed.has_answer(), "another guess was checked at once");
    assert_eq!(guess("ann", "ann", far), Status::Ok, "she comes from elsewhere");
    assert_eq!(slowed.status(), Some(Status::Ok), "she is herself, if a little later");
    let mut local = Rogue::logged_in(&fixture.address(Transport::Shm));
    assert_eq!(local.outcome(&Request::Null(Empty)), Some(Status::Ok));
}
