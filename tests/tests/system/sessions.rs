//! Tests sessions: logins, many sessions, and their ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_client::{
    Client, ClientConfig, ClientError, Login, OpenOptions, SessionOptions, Status, block_on,
};
use dafs_dat::{Domain, EndpointConfig, Event, Interface, InterfaceConfig};
use dafs_memory::{Memory, Pages};
use dafs_server::PasswordFile;

use crate::fixture::{Ending, Fixture, Transport, await_that, me, over_each, places, transports};

#[test]
fn passwords_are_checked_and_give_their_identity() {
    let probe = Fixture::new();
    let file = probe.root().join("passwords");
    let mut passwords = PasswordFile::default();
    passwords.set("ann", me(), "right").unwrap();
    passwords.save(&file).unwrap();
    for transport in transports() {
        let fixture = Fixture::with(|config| {
            config.password_file = Some(file.clone());
            config.sessions.authentication.anonymous = None;
        });
        let login = |password: &str| {
            SessionOptions::default()
                .login(Login::Password { user: "ann".into(), password: password.into() })
        };
        let (_, session) = fixture.connect_with(transport, &login("right"));
        session.ping().unwrap();
        let client = Client::new(ClientConfig::default()).unwrap();
        let refused = client.connect_to(&fixture.address(transport), &login("wrong"));
        let error = refused.err().unwrap();
        assert_eq!(error.status(), Some(Status::NotAuthorized), "{error}");
        assert!(error.to_string().contains("ann"), "{error}");
        if transport != Transport::Shm {
            let nobody = SessionOptions::default();
            let refused = client.connect_to(&fixture.address(transport), &nobody);
            assert!(refused.err().unwrap().status().is_some());
        }
    }
}

#[test]
fn a_hundred_sessions_share_one_client() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"shared").unwrap();
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = SessionOptions::default().credits(4);
        let sessions: Vec<_> = (0..100)
            .map(|_| client.connect_to(&fixture.address(transport), &options).unwrap())
            .collect();
        for session in &sessions {
            let file = session.open("/file", &OpenOptions::read()).unwrap();
            let mut bytes = [0; 6];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6);
            assert_eq!(&bytes, b"shared");
        }
        for session in sessions {
            session.disconnect().unwrap();
        }
    });
}

#[test]
fn the_end_of_a_session_releases_its_opens() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let (_, watcher) = fixture.connect(transport);
        let (client, session) = fixture.connect(transport);
        let deny = OpenOptions::read().deny(dafs_client::ShareDeny::Both);
        let file = session.open("/file", &deny).unwrap();
        assert!(watcher.open("/file", &OpenOptions::read()).is_err());
        session.disconnect().unwrap();
        // The server may notice the end only after the next request of another client.
        await_that("the file is free", || watcher.open("/file", &OpenOptions::read()).is_ok());
        assert!(matches!(file.close(), Err(ClientError::SessionEnded { .. })));
        drop(client);
    });
}

#[test]
fn nobody_there_is_said_with_what_to_do() {
    let client = Client::new(ClientConfig::default()).unwrap();
    let location = dafs_client::Location::parse("dafs://127.0.0.1:1/").unwrap();
    let error = client.connect(&location, &SessionOptions::default()).err().unwrap();
    assert!(error.to_string().contains("dafs serve"), "{error}");
    let refused = rustix::io::Errno::CONNREFUSED.raw_os_error();
    let number = |error: &ClientError| error.system_cause().unwrap().io_error().raw_os_error();
    assert_eq!((error.errno(), number(&error)), (refused, Some(refused)));
    let location = dafs_client::Location::parse("dafs+shm:///no/such/socket!/").unwrap();
    let error = client.connect(&location, &SessionOptions::default()).err().unwrap();
    assert!(error.to_string().contains("/no/such/socket"), "{error}");
    let missing = rustix::io::Errno::NOENT.raw_os_error();
    assert_eq!((error.errno(), number(&error)), (refused, Some(missing)));
    // Nobody may connect by TCP to this address, whatever networks there are.
    let location = dafs_client::Location::parse("dafs://255.255.255.255:1/").unwrap();
    let error = client.connect(&location, &SessionOptions::default()).err().unwrap();
    assert_eq!(Some(error.errno()), number(&error), "{error}");
    assert_ne!(error.errno(), refused, "{error}");
}

#[test]
fn credits_grow_with_demand_and_are_never_exceeded() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), vec![1; 1 << 20]).unwrap();
        let (client, session) = fixture.connect(transport);
        let first = session.credits();
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        let buffer = client.allocate(1 << 20).unwrap();
        let group = client.group();
        for round in 0..20u64 {
            for index in 0..256usize {
                let slice = buffer.slice(index * 4096, 4096).unwrap();
                session.submit_read(&file, (index * 4096) as u64, slice, group, round).unwrap();
            }
            client.wait(group, 256, None);
            while let Some(done) = client.next(group) {
                done.result.unwrap();
            }
        }
        assert!(session.credits() > first, "{first} stayed {}", session.credits());
    });
}

#[test]
fn a_thousand_tcp_sessions_stand_at_once() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).unwrap();
    let fixture = Fixture::new();
    std::fs::write(fixture.local("file"), b"shared").unwrap();
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = SessionOptions::default().credits(2);
    let address = fixture.address(Transport::Tcp);
    let sessions: Vec<_> =
        (0..1000).map(|_| client.connect_to(&address, &options).unwrap()).collect();
    for session in &sessions {
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        let mut bytes = [0; 6];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6);
    }
}

/// Over shared memory, the server never sleeps while a client sends requests continuously. Its
/// sockets are checked all the same.
#[test]
fn a_busy_neighbour_in_memory_does_not_starve_sockets() {
    let fixture = Fixture::new();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_done);
        scope.spawn(|| {
            let (_client, session) = fixture.connect(Transport::Shm);
            while !is_done.load(Ordering::Acquire) {
                session.ping().unwrap();
            }
        });
        let (_client, session) = fixture.connect(Transport::Tcp);
        (0..500).for_each(|_| session.ping().unwrap());
    });
}

/// Accepts connections and messages without replying, until `connections` have ended.
fn serve_in_silence(mut interface: Interface, connections: usize) {
    let inbox = Memory::anonymous(4096, Pages::Small).unwrap();
    let region = interface.register(&inbox, Domain(0), dafs_dat::Rights::LOCAL).unwrap();
    let mut ended = 0;
    while ended < connections {
        interface.wait(1, None);
        while let Some(event) = interface.next_event() {
            match event {
                Event::ConnectionRequest { pending, .. } => {
                    let config = EndpointConfig::default();
                    let endpoint = interface.accept(pending, Domain(0), &config, b"");
                    // It may have been given up already.
                    let _ = interface.post_receive(endpoint, 0, &[region.local(0, 4096)]);
                }
                Event::Broken { endpoint, .. } => {
                    interface.release(endpoint);
                    ended += 1;
                }
                Event::Completion(_) | Event::Established { .. } | Event::Rejected { .. } => {}
            }
        }
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    for transport in transports() {
        let address = places(directory.path(), 0).swap_remove(transport as usize);
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let listener = interface.listen(&address).unwrap();
        let address = interface.listener_address(listener).unwrap();
        let server = std::thread::spawn(move || serve_in_silence(interface, 2));
        let client = Client::new(ClientConfig::default()).unwrap();
        let answer_timeout = Some(Duration::from_millis(20));
        let options = SessionOptions::default().answer_timeout(answer_timeout);
        let waited = client.connect_to(&address, &options).err().unwrap();
        let connecting = client.connect_async(&address, &options).unwrap();
        let awaited = block_on(&client, connecting).err().unwrap();
        for error in [waited, awaited] {
            assert!(error.to_string().contains("no reply for 0.02 s"), "{error}");
        }
        server.join().unwrap();
    }
}
