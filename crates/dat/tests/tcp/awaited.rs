//! A wait for expected replies ends like any other wait, whatever the peer does instead.

use std::io::Write;
use std::time::{Duration, Instant};

use dafs_dat::{
    Address, BreakReason, Domain, EndpointConfig, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Region, Rights, SendOptions, Signal, WaitPolicy,
};
use dafs_memory::{Memory, Pages};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::peer::{ANSWER, HANG, Scene, send};

/// Returns a scene with one request for a block in flight.
fn asked(config: InterfaceConfig) -> Scene {
    let mut scene = Scene::new(config, BLOCK_BYTES);
    scene.expect(0, BLOCK_BYTES as u32);
    let options = SendOptions { signal: Signal::OnError, invalidate: None };
    scene.interface.post_send(scene.endpoint, 1, &[Gather::Bytes(b"?")], options).unwrap();
    scene.interface.flush();
    scene
}

/// Returns configurations that poll the socket for long, and that sleep at once.
fn configs() -> [InterfaceConfig; 2] {
    [HANG, Duration::ZERO].map(|spin_max| {
        let wait = WaitPolicy { spin_max };
        InterfaceConfig { wait, ..InterfaceConfig::default() }
    })
}

#[test]
fn an_answer_ends_it() {
    for config in configs() {
        let mut scene = asked(config);
        let bytes = vec![7; BLOCK_BYTES];
        let mut stream = scene.write(0, &bytes, 1000);
        stream.extend(send(1, ANSWER));
        scene.socket.write_all(&stream).unwrap();
        scene.assert_received(ANSWER.len() as u32);
        assert!(scene.memory.to_vec(0, BLOCK_BYTES) == bytes);
    }
}

#[test]
fn what_takes_long_is_asked_for_only_where_spins_are_long() {
    for (wait, asks) in [(WaitPolicy { spin_max: HANG }, true), (WaitPolicy::default(), false)] {
        let config = InterfaceConfig { wait, ..InterfaceConfig::default() };
        let mut scene = Scene::new(config, BLOCK_BYTES);
        scene.receive();
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        scene.interface.post_send(scene.endpoint, 1, &[Gather::Bytes(b"?")], options).unwrap();
        scene.interface.await_alone(false);
        scene.interface.flush();
        scene.socket.write_all(&send(1, ANSWER)).unwrap();
        assert_eq!(scene.interface.wait(1, Some(HANG)), 1);
        assert_eq!(scene.interface.has_slept(), !asks);
        scene.assert_received(ANSWER.len() as u32);
    }
}

#[test]
fn less_than_was_foretold_ends_it() {
    for config in configs() {
        let mut scene = asked(config);
        let half = vec![7; BLOCK_BYTES / 2];
        let mut stream = scene.write(0, &half, 1000);
        stream.extend(send(1, b"failed"));
        scene.socket.write_all(&stream).unwrap();
        scene.assert_received(6);
        assert!(scene.memory.to_vec(0, half.len()) == half);
    }
}

#[test]
fn the_descriptor_tells_of_less_than_was_foretold() {
    for config in configs() {
        let mut scene = asked(config);
        assert_eq!(scene.interface.wait(1, Some(SHORT)), 0);
        assert!(scene.interface.arm());
        scene.socket.write_all(&send(1, b"failed")).unwrap();
        let mut descriptors = [PollFd::from_borrowed_fd(scene.interface.as_fd(), PollFlags::IN)];
        let hang = Timespec { tv_sec: HANG.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut descriptors, Some(&hang)), Ok(1));
        scene.assert_received(6);
    }
}

#[test]
fn a_look_finds_less_than_was_foretold() {
    for config in configs() {
        let mut scene = asked(config);
        assert_eq!(scene.interface.wait(1, Some(SHORT)), 0);
        scene.socket.write_all(&send(1, b"failed")).unwrap();
        let start = Instant::now();
        while scene.interface.poll() == 0 {
            assert!(start.elapsed() < HANG, "no look finds it");
        }
        scene.assert_received(6);
    }
}

#[test]
fn its_time_ends_it() {
    for config in configs() {
        let mut scene = asked(config);
        assert_eq!(scene.interface.wait(1, Some(Duration::ZERO)), 0);
        assert_eq!(scene.interface.wait(1, Some(SHORT)), 0);
    }
}

#[test]
fn the_end_of_the_connection_ends_it() {
    for config in configs() {
        let mut scene = asked(config);
        scene.socket.shutdown(std::net::Shutdown::Both).unwrap();
        loop {
            match scene.next() {
                Event::Completion(_) => {}
                Event::Broken { reason: BreakReason::Peer, .. } => break,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns a client connected to `server`, which has receives for 20 of its messages.
fn visitor(server: &mut Interface, inbox: &Region, address: &Address) -> (Interface, EndpointId) {
    let mut client = Interface::new(InterfaceConfig::default()).unwrap();
    let config = EndpointConfig::default();
    let endpoint = client.connect(address, Domain(0), &config, b"").unwrap();
    while !matches!(client.next_event(), Some(Event::Established { .. })) {
        client.poll();
        server.poll();
        if let Some(Event::ConnectionRequest { pending, .. }) = server.next_event() {
            let endpoint = server.accept(pending, Domain(0), &config, b"");
            for _ in 0..20 {
                server.post_receive(endpoint, 0, &[inbox.local(0, 64)]).unwrap();
            }
        }
    }
    (client, endpoint)
}

/// Sends one message from a client to `server`, whose wait it ends.
fn say(client: &mut Interface, endpoint: EndpointId, server: &mut Interface) -> EndpointId {
    let options = SendOptions { signal: Signal::OnError, invalidate: None };
    client.post_send(endpoint, 1, &[Gather::Bytes(b"?")], options).unwrap();
    client.flush();
    assert!(server.wait(1, Some(HANG)) > 0, "nothing happens any more");
    match server.next_event() {
        Some(Event::Completion(done)) => done.endpoint,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_asks_one_by_one_does_not_hide_another() {
    let wait = WaitPolicy { spin_max: HANG };
    let mut server =
        Interface::new(InterfaceConfig { wait, ..InterfaceConfig::default() }).unwrap();
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let listener = server.listen(&any).unwrap();
    let address = server.listener_address(listener).unwrap();
    let memory = Memory::anonymous(4096, Pages::Small).unwrap();
    let inbox = server.register(&memory, Domain(0), Rights::LOCAL).unwrap();
    let mut clients = [(); 2].map(|()| visitor(&mut server, &inbox, &address));
    server.poll();
    while server.next_event().is_some() {}
    let mut seen = Vec::new();
    for turn in [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1] {
        let (client, endpoint) = &mut clients[turn];
        let from = say(client, *endpoint, &mut server);
        // The server replies, so that it awaits this peer's next message.
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        server.post_send(from, 2, &[Gather::Bytes(b"!")], options).unwrap();
        server.flush();
        seen.push((turn, from));
    }
    let (first, second) = (seen[0].1, seen[8].1);
    assert!(first != second);
    assert!(seen.iter().all(|(turn, from)| *from == [first, second][*turn]));
}

#[test]
fn a_waker_ends_it() {
    for config in configs() {
        let mut scene = asked(config);
        let waker = scene.interface.waker();
        let thread = std::thread::spawn(move || waker.wake());
        assert_eq!(scene.interface.wait(1, Some(HANG)), 0);
        thread.join().unwrap();
    }
}

/// Small enough for the socket to accept completely while the peer does not read.
const BLOCK_BYTES: usize = 64 << 10;
const SHORT: Duration = Duration::from_millis(2);
