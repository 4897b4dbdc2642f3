//! TLS: authentication, the errors reported to each side, and the limits of hostile peers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dafs_dat::{
    Address, BreakReason, ClientCertificates, CompletionStatus, Domain, EndpointConfig, EndpointId,
    Event, Gather, Interface, InterfaceConfig, Operation, Peer, PendingId, Region, Rights,
    SendOptions, Signal, TlsConfigError, TlsFailure, TlsServer, TlsServerFiles, TlsTarget,
};
use dafs_memory::{Memory, Pages};
use dafs_types::Random;
use rcgen::{CertificateParams, SanType};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};

use crate::certificates::{Authority, server_of, target_of};
use crate::crowd::connect_from;
use crate::peer::HANG;

/// Two interfaces in one thread; one of them listens.
struct Scene {
    server: Interface,
    client: Interface,
    address: SocketAddr,
    events: Vec<Event>,
    told: Vec<Event>,
}

impl Scene {
    fn new(tls: Option<TlsServer>) -> Self {
        Self::with_timeout(tls, HANG)
    }

    fn with_timeout(tls: Option<TlsServer>, connect_timeout: Duration) -> Self {
        Self::with_config(tls, InterfaceConfig { connect_timeout, ..InterfaceConfig::default() })
    }

    fn with_config(tls: Option<TlsServer>, config: InterfaceConfig) -> Self {
        let mut server = Interface::new(InterfaceConfig { tls, ..config.clone() }).unwrap();
        let client = Interface::new(config).unwrap();
        let listener = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        let Some(Address::Tcp(address)) = server.listener_address(listener) else { panic!() };
        Self { server, client, address, events: Vec::new(), told: Vec::new() }
    }

    fn connect(&mut self, tls: Option<TlsTarget>) -> EndpointId {
        let config = EndpointConfig { tls, ..EndpointConfig::default() };
        self.client.connect(&Address::Tcp(self.address), Domain(0), &config, b"hello").unwrap()
    }

    fn turn(&mut self) {
        self.server.poll();
        self.client.poll();
        self.events.extend(std::iter::from_fn(|| self.server.next_event()));
        self.told.extend(std::iter::from_fn(|| self.client.next_event()));
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            let (events, told) = (&self.events, &self.told);
            assert!(begun.elapsed() < HANG, "waited in vain: {what}: {events:?} {told:?}");
            self.turn();
        }
    }

    fn requested(&mut self) -> (PendingId, Peer) {
        self.until("a request", |scene| scene.events.iter().find_map(request_of))
    }

    /// Waits for the end of the client's connection and returns its reason.
    fn refused(&mut self) -> BreakReason {
        self.until("the client's end", |scene| scene.told.iter().find_map(reason_of))
    }

    /// Waits for the end of the server's connection and returns its reason. Checks that there was
    /// no connection request.
    fn shut(&mut self) -> BreakReason {
        let reason = self.until("the server's end", |s| s.events.iter().find_map(reason_of));
        assert!(self.events.iter().all(|event| request_of(event).is_none()));
        for event in &self.events {
            let Event::Broken { endpoint, .. } = event else { continue };
            self.server.release(*endpoint);
        }
        assert_eq!(self.server.endpoint_count(), 0);
        reason
    }

    /// Establishes a connection and returns its two ends.
    fn joined(&mut self, tls: Option<TlsTarget>) -> (EndpointId, EndpointId) {
        let there = self.connect(tls);
        let (pending, _) = self.requested();
        let here = self.server.accept(pending, Domain(0), &EndpointConfig::default(), b"");
        self.until("both established", |scene| {
            let is = |events: &[Event]| {
                events.iter().any(|event| matches!(event, Event::Established { .. }))
            };
            (is(&scene.events) && is(&scene.told)).then_some(())
        });
        (there, here)
    }

    /// Returns a plain socket connected to the server.
    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }
}

fn request_of(event: &Event) -> Option<(PendingId, Peer)> {
    match event {
        Event::ConnectionRequest { pending, peer, .. } => Some((*pending, peer.clone())),
        _ => None,
    }
}

fn reason_of(event: &Event) -> Option<BreakReason> {
    match event {
        Event::Broken { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

fn optional(authority: &Authority, required: bool) -> TlsServer {
    let owner = authority.issue("server", &["localhost", "127.0.0.1"], |_| {});
    server_of(&owner, ClientCertificates::Optional(authority.file()), required)
}

fn assert_certificate(reason: &BreakReason, part: &str) {
    let is_so = matches!(reason, BreakReason::Tls(TlsFailure::Certificate(why))
        if why.contains(part));
    assert!(is_so, "{reason:?}");
}

fn assert_refused(reason: &BreakReason, part: &str) {
    let is_so = matches!(reason, BreakReason::Tls(TlsFailure::Refused(why)) if why.contains(part));
    assert!(is_so, "{reason:?}");
}

// ---- who gets in ----------------------------------------------------------------

#[test]
fn each_side_knows_the_other_by_its_certificate() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    let identity = authority.issue("ann", &["ann.example"], |params: &mut CertificateParams| {
        let uri = SanType::URI("spiffe://example/ann".try_into().unwrap());
        params.subject_alt_names.push(uri);
    });
    // The certificate is valid for the name and for the address.
    for name in ["localhost", "127.0.0.1"] {
        scene.events.clear();
        scene.connect(Some(target_of(&authority.file(), Some(identity.clone()), name)));
        let (pending, peer) = scene.requested();
        let identity = peer.certificate.expect("a certificate");
        assert_eq!(identity.common_name.as_deref(), Some("ann"));
        assert_eq!(identity.dns_names, ["ann.example"]);
        assert_eq!(identity.uris, ["spiffe://example/ann"]);
        scene.server.reject(pending, b"");
    }
}

#[test]
fn who_need_not_show_a_certificate_is_nobody() {
    let authority = Authority::new();
    let owner = authority.issue("box", &["localhost"], |_| {});
    let unasked = server_of(&owner, ClientCertificates::Unasked, false);
    for server in [optional(&authority, false), unasked] {
        let mut scene = Scene::new(Some(server));
        scene.connect(Some(target_of(&authority.file(), None, "localhost")));
        assert_eq!(scene.requested().1.certificate, None);
        // A client without TLS, where that is allowed, has no identity either.
        scene.events.clear();
        scene.connect(None);
        assert_eq!(scene.requested().1.certificate, None);
    }
}

#[test]
fn a_client_without_a_certificate_is_told_so() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    scene.connect(Some(target_of(&authority.file(), None, "localhost")));
    assert_certificate(&scene.shut(), "none");
    assert_refused(&scene.refused(), "requires a certificate");
}

#[test]
fn a_client_of_another_authority_is_told_so() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let stranger = other.issue("stranger", &["client.example"], |_| {});
    scene.connect(Some(target_of(&authority.file(), Some(stranger), "localhost")));
    assert_certificate(&scene.shut(), "UnknownIssuer");
    assert_refused(&scene.refused(), "authority");
}

#[test]
fn a_client_whose_certificate_has_expired_is_told_so() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    let old = authority.issue("old", &[], |params: &mut CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    scene.connect(Some(target_of(&authority.file(), Some(old), "localhost")));
    assert_certificate(&scene.shut(), "expired");
    assert_refused(&scene.refused(), "expired");
}

#[test]
fn a_server_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut scene = Scene::new(Some(authority.server(true)));
    scene.connect(Some(other.target()));
    assert_certificate(&scene.refused(), "UnknownIssuer");
    assert_refused(&scene.shut(), "authority");
}

#[test]
fn a_server_of_another_name_or_past_its_time_is_refused() {
    let authority = Authority::new();
    let late = |params: &mut CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    };
    let clients = || ClientCertificates::Unasked;
    let elsewhere = server_of(&authority.issue("e", &["elsewhere"], |_| {}), clients(), true);
    let expired = server_of(&authority.issue("x", &["localhost"], late), clients(), true);
    for (server, why) in [(elsewhere, "not valid for name"), (expired, "expired")] {
        let mut scene = Scene::new(Some(server));
        scene.connect(Some(target_of(&authority.file(), None, "localhost")));
        assert_certificate(&scene.refused(), why);
        scene.shut();
    }
}

// ---- TLS where there is none, and none where there must be ----------------------

#[test]
fn a_plain_client_is_told_that_tls_is_demanded() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    scene.connect(None);
    assert_eq!(scene.refused(), BreakReason::Tls(TlsFailure::Required));
    assert!(matches!(scene.shut(), BreakReason::PeerViolation(_)));
}

#[test]
fn a_plain_client_of_a_server_of_both_is_served() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(false)));
    scene.joined(None);
    scene.events.clear();
    scene.told.clear();
    scene.joined(Some(authority.target()));
}

#[test]
fn a_tls_client_of_a_plain_server_is_told_so() {
    let authority = Authority::new();
    let mut scene = Scene::new(None);
    scene.connect(Some(authority.target()));
    assert_eq!(scene.refused(), BreakReason::Tls(TlsFailure::NotSpoken));
    let BreakReason::PeerViolation(why) = scene.shut() else { panic!() };
    assert!(why.contains("TLS"), "{why}");
}

#[test]
fn a_server_that_just_hangs_up_or_says_something_else_speaks_no_tls() {
    let authority = Authority::new();
    for (answer, resets) in [(&b""[..], false), (b"", true), (b"HTTP/1.1 400\r\n\r\n", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Interface::new(InterfaceConfig::default()).unwrap();
        let config = EndpointConfig { tls: Some(authority.target()), ..EndpointConfig::default() };
        let address = Address::Tcp(listener.local_addr().unwrap());
        client.connect(&address, Domain(0), &config, b"").unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        client.poll();
        assert!(socket.read(&mut [0; 4096]).unwrap() > 100, "a ClientHello");
        socket.write_all(answer).unwrap();
        if resets {
            let now = Some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&socket, now).unwrap();
        }
        drop(socket);
        assert!(client.wait(1, Some(HANG)) > 0);
        let reason = client.next_event().as_ref().and_then(reason_of);
        assert_eq!(reason, Some(BreakReason::Tls(TlsFailure::NotSpoken)));
    }
}

// ---- spoken by hand -------------------------------------------------------------

/// A client with another implementation: the library's usual interface over a plain socket.
struct ByHand {
    connection: rustls::ClientConnection,
    socket: TcpStream,
}

impl ByHand {
    fn begin(
        scene: &Scene,
        authority: &Authority,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority.file()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = scene.socket();
        socket.set_nonblocking(true).unwrap();
        Self { connection, socket }
    }

    /// Sends and receives what is possible now.
    fn turn(&mut self) -> Result<(), rustls::Error> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.socket).is_err() {
                break;
            }
        }
        if let Ok(1..) = self.connection.read_tls(&mut self.socket) {
            self.connection.process_new_packets()?;
        }
        Ok(())
    }

    /// Returns a connection that the server has accepted.
    fn accepted(scene: &mut Scene, authority: &Authority) -> (Self, EndpointId) {
        let mut by_hand = Self::begin(scene, authority, &[&rustls::version::TLS13]);
        by_hand.connection.writer().write_all(&mpa_request()).unwrap();
        let pending = loop {
            by_hand.turn().unwrap();
            scene.turn();
            if let Some((pending, _)) = scene.events.iter().find_map(request_of) {
                break pending;
            }
        };
        let endpoint = scene.server.accept(pending, Domain(0), &EndpointConfig::default(), b"");
        let mut reply = [0; 24];
        while by_hand.connection.reader().read_exact(&mut reply).is_err() {
            scene.turn();
            by_hand.turn().unwrap();
        }
        assert!(reply.starts_with(b"MPA ID Rep Frame"));
        scene.events.clear();
        (by_hand, endpoint)
    }

    /// Sends bytes of the stream, each in a record of its own if `dribbles`.
    fn say(&mut self, bytes: &[u8], dribbles: bool) {
        for bytes in bytes.chunks(if dribbles { 1 } else { bytes.len() }) {
            self.connection.writer().write_all(bytes).unwrap();
            self.turn().unwrap();
        }
    }
}

/// Returns a request in enhanced form: 4 reads in each direction, client-server model.
fn mpa_request() -> Vec<u8> {
    [&b"MPA ID Req Frame"[..], &[0x10, 2, 0, 4, 0, 4, 0, 4]].concat()
}

#[test]
fn a_client_of_an_older_version_is_refused() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let mut by_hand = ByHand::begin(&scene, &authority, &[&rustls::version::TLS12]);
    let refused = loop {
        scene.turn();
        if let Err(error) = by_hand.turn() {
            break error;
        }
    };
    let alert = rustls::AlertDescription::ProtocolVersion;
    assert_eq!(refused, rustls::Error::AlertReceived(alert));
    assert!(matches!(scene.shut(), BreakReason::Tls(TlsFailure::Protocol(_))));
}

#[test]
fn both_sides_say_that_this_is_all() {
    let authority = Authority::new();
    // The server ends the connection.
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let (mut by_hand, endpoint) = ByHand::accepted(&mut scene, &authority);
    scene.server.disconnect(endpoint);
    let goodbye = loop {
        by_hand.turn().unwrap();
        match by_hand.connection.reader().read(&mut [0; 16]) {
            Ok(count) => break count,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    };
    assert_eq!(goodbye, 0, "an end in order");
    // The client ends the connection.
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let (mut by_hand, _) = ByHand::accepted(&mut scene, &authority);
    by_hand.connection.send_close_notify();
    by_hand.turn().unwrap();
    assert_eq!(scene.shut_by(), BreakReason::Peer);
    // The server replies, because the client has closed only its own direction.
    let goodbye = loop {
        by_hand.turn().unwrap();
        if let Ok(count) = by_hand.connection.reader().read(&mut [0; 16]) {
            break count;
        }
    };
    assert_eq!(goodbye, 0, "an end in order");
}

#[test]
fn an_end_without_that_word_is_none_of_the_peers() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let (by_hand, _) = ByHand::accepted(&mut scene, &authority);
    by_hand.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(scene.shut_by(), BreakReason::Tls(TlsFailure::Truncated));
}

impl Scene {
    /// Waits for the end of the server's established connection and returns its reason.
    fn shut_by(&mut self) -> BreakReason {
        self.until("the server's end", |scene| scene.events.iter().find_map(reason_of))
    }
}

#[test]
fn a_message_may_come_byte_by_byte_in_records_of_their_own() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let (mut by_hand, endpoint) = ByHand::accepted(&mut scene, &authority);
    let (memory, region) = local(&mut scene.server, 4096);
    for (sequence, dribbles) in [(1, true), (2, false), (3, true)] {
        scene.server.post_receive(endpoint, 7, &[region.local(0, 4096)]).unwrap();
        by_hand.say(&crate::peer::send(sequence, b"what is to be said"), dribbles);
        let done = scene.until("the message", |scene| {
            scene.events.iter().find_map(|event| match event {
                Event::Completion(done) => Some(*done),
                _ => None,
            })
        });
        assert_eq!((done.operation, done.length), (Operation::Receive, 18));
        assert_eq!(memory.to_vec(0, 18), b"what is to be said");
        scene.events.clear();
    }
}

#[test]
fn a_peer_that_breaks_the_stream_inside_is_told_and_parted_from() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let (mut by_hand, _) = ByHand::accepted(&mut scene, &authority);
    // No receive is posted, and the data that follows is never read.
    for sequence in 1..20 {
        by_hand.say(&crate::peer::send(sequence, &[7; 1000]), false);
    }
    assert_eq!(scene.shut_by(), BreakReason::ReceiverNotReady);
    let mut terminate = [0; 24];
    loop {
        by_hand.turn().unwrap();
        match by_hand.connection.reader().read(&mut terminate) {
            Ok(count) => {
                // A Terminate of RDMAP, on queue 2 of DDP.
                assert!(count > 8 && terminate[3] & 0xf == 7, "{terminate:?}");
                break;
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
}

#[test]
fn a_record_that_was_changed_on_its_way_ends_it() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let (mut by_hand, _) = ByHand::accepted(&mut scene, &authority);
    by_hand.connection.writer().write_all(&crate::peer::send(1, b"good")).unwrap();
    let mut record = Vec::new();
    by_hand.connection.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    by_hand.socket.write_all(&record).unwrap();
    assert!(matches!(scene.shut_by(), BreakReason::Tls(TlsFailure::Protocol(_))));
}

#[test]
fn garbage_ends_it() {
    let authority = Authority::new();
    let mut dice = Random::new(1);
    let hello = |rest: &[u8]| [&[0x16, 3, 1], rest].concat();
    for bytes in [
        hello(&[0, 4, 1, 0, 0, 0]),
        hello(&[0xff, 0xff, 1, 2, 3]),
        hello(&[0, 0]),
        [hello(&[0, 200]), dice.bytes(200)].concat(),
        // A hello that is never complete, in complete records.
        [hello(&[0x40, 0, 1, 0xff, 0xff, 0xff]), vec![0; 0x4000 - 4]].concat().repeat(8),
        dice.bytes(1000),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        let mut scene = Scene::new(Some(authority.server(true)));
        let mut socket = scene.socket();
        socket.write_all(&bytes).unwrap();
        let reason = scene.shut();
        let is_blamed = matches!(
            reason,
            BreakReason::Tls(TlsFailure::Protocol(_)) | BreakReason::PeerViolation(_)
        );
        assert!(is_blamed, "{reason:?}");
    }
}

#[test]
fn what_is_changed_anywhere_leads_to_no_request() {
    let authority = Authority::new();
    let server = optional(&authority, true);
    for seed in 0..CHANGES {
        let mut dice = Random::new(seed);
        // The server waits for the rest of a record whose length was increased.
        let time = Duration::from_millis(50);
        let mut scene = Scene::with_timeout(Some(server.clone()), time);
        let mut by_hand = ByHand::begin(&scene, &authority, &[&rustls::version::TLS13]);
        by_hand.connection.writer().write_all(&mpa_request()).unwrap();
        // The byte after this many bytes of the client is changed.
        let mut place = dice.below(700);
        let mut is_ignored = false;
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < HANG, "seed {seed}: nothing happens any more");
            let mut bytes = Vec::new();
            while by_hand.connection.wants_write() {
                by_hand.connection.write_tls(&mut bytes).unwrap();
            }
            if place < bytes.len() {
                // The version in a record's header must be ignored (RFC 8446 5.1).
                let within = |start: &usize| (1..3).contains(&(place - (*start).min(place)));
                is_ignored = records(&bytes).iter().any(within);
                bytes[place] ^= 1 << dice.below(8);
                place = usize::MAX;
            } else if place != usize::MAX {
                place -= bytes.len();
            }
            let _ = by_hand.socket.write_all(&bytes);
            scene.turn();
            let requested = scene.events.iter().any(|event| request_of(event).is_some());
            assert!(!requested || place != usize::MAX || is_ignored, "seed {seed}: believed");
            let ended = scene.events.iter().any(|event| reason_of(event).is_some());
            let refused = match by_hand.connection.read_tls(&mut by_hand.socket) {
                Ok(0) => true,
                Ok(_) => by_hand.connection.process_new_packets().is_err(),
                Err(_) => false,
            };
            if ended || refused || requested {
                break;
            }
        }
    }
}

/// Returns the positions of the records of a stream.
fn records(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some([_, _, _, high, low]) = bytes.get(at..at + 5) {
        starts.push(at);
        at += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    starts
}

#[test]
fn a_handshake_that_stops_anywhere_ends_with_its_time() {
    let authority = Authority::new();
    let server = optional(&authority, true);
    let mut hello = Vec::new();
    let mut scene = Scene::new(Some(server.clone()));
    let mut by_hand = ByHand::begin(&scene, &authority, &[&rustls::version::TLS13]);
    by_hand.connection.write_tls(&mut hello).unwrap();
    scene.turn();
    for cut in [0, 1, 4, 5, 6, hello.len() / 2, hello.len() - 1, hello.len()] {
        let mut scene = Scene::with_timeout(Some(server.clone()), Duration::from_millis(50));
        let mut socket = scene.socket();
        socket.write_all(&hello[..cut]).unwrap();
        let reason = scene.shut();
        assert!(matches!(reason, BreakReason::Unreachable(_)), "{cut}: {reason:?}");
    }
}

#[test]
fn a_slow_handshake_hinders_nobody() {
    let authority = Authority::new();
    let mut scene = Scene::new(Some(optional(&authority, true)));
    let mut slow = ByHand::begin(&scene, &authority, &[&rustls::version::TLS13]);
    let mut hello = Vec::new();
    slow.connection.write_tls(&mut hello).unwrap();
    let half = hello.len() / 2;
    for byte in &hello[..half] {
        slow.socket.write_all(&[*byte]).unwrap();
        scene.turn();
    }
    // Meanwhile another client connects and is served.
    scene.joined(Some(authority.target()));
    scene.events.clear();
    // The slow client is served, too, when it continues.
    for byte in &hello[half..] {
        slow.socket.write_all(&[*byte]).unwrap();
        scene.turn();
    }
    slow.connection.writer().write_all(&mpa_request()).unwrap();
    let begun = Instant::now();
    while scene.events.iter().find_map(request_of).is_none() {
        assert!(begun.elapsed() < HANG);
        slow.turn().unwrap();
        scene.turn();
    }
}

#[test]
fn halves_of_handshakes_take_up_no_more_than_their_share_of_memory() {
    const MOST: usize = 200 << 10;
    let authority = Authority::new();
    let config = InterfaceConfig {
        connect_timeout: HANG,
        unfinished_bytes_max: MOST,
        ..InterfaceConfig::default()
    };
    let mut scene = Scene::with_config(Some(optional(&authority, false)), config);
    // An honest, slow client from another address, which began before all the others.
    let mut slow = ByHand::begin(&scene, &authority, &[&rustls::version::TLS13]);
    let far = connect_from([127, 0, 0, 2], scene.address);
    let _silent = std::mem::replace(&mut slow.socket, far);
    slow.socket.set_nonblocking(true).unwrap();
    let mut hello = Vec::new();
    slow.connection.write_tls(&mut hello).unwrap();
    let (begin, end) = hello.split_at(hello.len() / 2);
    slow.socket.write_all(begin).unwrap();
    scene.turn();
    // Three quarters of the longest allowed handshake message.
    let record = [&[0x16, 3, 1, 0x40, 0][..], &[1, 0, 0xf0, 0], &[0; 0x4000 - 4]].concat();
    let more = [&[0x16, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let halves = [record, more.clone(), more].concat();
    let mut sockets = Vec::new();
    for _ in 0..3 * MOST / halves.len() {
        let mut socket = scene.socket();
        socket.write_all(&halves).unwrap();
        sockets.push(socket);
        scene.turn();
    }
    let begun = Instant::now();
    while scene.server.endpoint_count() - ended(&scene) > 2 + MOST / halves.len() {
        assert!(begun.elapsed() < HANG, "{:?}", scene.events);
        scene.turn();
    }
    let reasons: Vec<String> =
        scene.events.iter().filter_map(reason_of).map(|reason| reason.to_string()).collect();
    assert!(reasons.iter().all(|reason| reason.contains("occupy too much memory")), "{reasons:?}");
    slow.socket.write_all(end).unwrap();
    slow.connection.writer().write_all(&mpa_request()).unwrap();
    while scene.events.iter().find_map(request_of).is_none() {
        assert!(begun.elapsed() < HANG, "{:?}", scene.events);
        slow.turn().unwrap();
        scene.turn();
    }
}

/// Returns the number of connections that have ended and are not released.
fn ended(scene: &Scene) -> usize {
    scene.events.iter().filter_map(reason_of).count()
}

/// Returns a server with another implementation, which sends everything in short records and sends
/// tickets that the client did not request.
fn small_talker(authority: &Authority) -> rustls::ServerConnection {
    let (certificate, key) = authority.issue("talker", &["localhost"], |_| {});
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.max_fragment_size = Some(32);
    config.alpn_protocols = vec![b"iwarp".to_vec()];
    config.send_tls13_tickets = 2;
    rustls::ServerConnection::new(Arc::new(config)).unwrap()
}

/// Sends byte by byte to a client that sends whenever it may, and closes the connection after
/// `bytes_max` bytes. Returns the number of bytes.
fn talk(authority: &Authority, target: &TlsTarget, bytes_max: usize, accepts: bool) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Interface::new(InterfaceConfig::default()).unwrap();
    let config = EndpointConfig { tls: Some(target.clone()), ..EndpointConfig::default() };
    let address = Address::Tcp(listener.local_addr().unwrap());
    let endpoint = client.connect(&address, Domain(0), &config, b"").unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut server = small_talker(authority);
    let flags = if accepts { 0x10 } else { 0x30 };
    let reply = [&b"MPA ID Rep Frame"[..], &[flags, 2, 0, 4, 0x80, 4, 0x80, 4]].concat();
    let (mut said, mut has_replied, mut heard) = (0, false, Vec::new());
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < HANG, "after {said} bytes nothing happens any more");
        client.poll();
        let quiet = SendOptions { signal: Signal::OnError, invalidate: None };
        let _ = client.post_send(endpoint, 1, &[Gather::Bytes(b"x")], quiet);
        client.flush();
        while let Some(event) = client.next_event() {
            if let Event::Broken { .. } | Event::Rejected { .. } = event {
                return said;
            }
        }
        if let Ok(1..) = server.read_tls(&mut socket) {
            server.process_new_packets().unwrap();
        }
        let _ = server.reader().read_to_end(&mut heard);
        if heard.len() >= 24 && !has_replied {
            has_replied = true;
            server.writer().write_all(&reply).unwrap();
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        for byte in &bytes {
            if said == bytes_max {
                client.disconnect(endpoint);
                return said;
            }
            let _ = socket.write_all(&[*byte]);
            said += 1;
            client.poll();
        }
        if has_replied && bytes.is_empty() && heard.len() > 100 {
            client.disconnect(endpoint);
            return said;
        }
    }
}

#[test]
fn pieces_of_the_others_messages_may_lie_about_while_this_side_speaks() {
    let authority = Authority::new();
    let target = target_of(&authority.file(), None, "localhost");
    for accepts in [true, false] {
        let bytes = talk(&authority, &target, usize::MAX, accepts);
        assert!(bytes > 1000, "{bytes}");
        for cut in (0..bytes).step_by(61) {
            talk(&authority, &target, cut, accepts);
        }
    }
}

// ---- much of it -----------------------------------------------------------------

fn local(interface: &mut Interface, length: usize) -> (Memory, Region) {
    let memory = Memory::anonymous(length, Pages::Small).unwrap();
    let region = interface.register(&memory, Domain(0), Rights::REMOTE).unwrap();
    (memory, region)
}

impl Scene {
    fn completed(&mut self, server: usize, client: usize) {
        self.until("completions", |scene| {
            let count = |events: &[Event]| {
                let done = events.iter().filter(|event| match event {
                    Event::Completion(done) => {
                        assert_eq!(done.status, CompletionStatus::Success);
                        true
                    }
                    _ => false,
                });
                done.count()
            };
            (count(&scene.events) >= server && count(&scene.told) >= client).then_some(())
        });
    }
}

#[test]
fn sixteen_mebibytes_go_both_ways_at_once() {
    const LENGTH: usize = 16 << 20;
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    let (there, here) = scene.joined(Some(authority.target()));
    scene.events.clear();
    scene.told.clear();
    let mut dice = Random::new(7);
    let (ours, ours_region) = local(&mut scene.client, 2 * LENGTH);
    let (theirs, theirs_region) = local(&mut scene.server, 2 * LENGTH);
    let bytes = [dice.bytes(LENGTH), dice.bytes(LENGTH)];
    ours.write(0, &bytes[0]);
    theirs.write(0, &bytes[1]);
    let (at, length) = (LENGTH as u64, LENGTH as u32);
    // The client writes all of the server's memory, and then reads all of it.
    let from = [ours_region.local(0, length)];
    let to = theirs_region.remote(at, length);
    scene.client.post_rdma_write(there, 1, &from, to, Signal::Always).unwrap();
    let into = [ours_region.local(at, length)];
    scene.client.post_rdma_read(there, 2, &into, theirs_region.remote(0, length)).unwrap();
    // A message after them shows that the write is complete.
    scene.server.post_receive(here, 3, &[theirs_region.local(0, 16)]).unwrap();
    let done = [Gather::Bytes(b"done")];
    scene.completed(0, 2);
    scene.client.post_send(there, 4, &done, SendOptions::default()).unwrap();
    scene.completed(1, 3);
    assert!(theirs.to_vec(LENGTH, LENGTH) == bytes[0], "what was written");
    assert!(ours.to_vec(LENGTH, LENGTH) == bytes[1], "what was read");
}

#[test]
fn many_small_writes_and_messages_keep_their_order() {
    const COUNT: u64 = 5000;
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    let (there, here) = scene.joined(Some(authority.target()));
    let (ours, ours_region) = local(&mut scene.client, COUNT as usize * 8);
    let (theirs, theirs_region) = local(&mut scene.server, COUNT as usize * 8);
    let (inbox, inbox_region) = local(&mut scene.server, COUNT as usize * 8);
    let bytes = Random::new(9).bytes(COUNT as usize * 8);
    ours.write(0, &bytes);
    let quiet = SendOptions { signal: Signal::OnError, invalidate: None };
    for first in (0..COUNT).step_by(100) {
        scene.events.clear();
        for index in first..first + 100 {
            let slot = inbox_region.local(index * 8, 8);
            scene.server.post_receive(here, index, &[slot]).unwrap();
            let (from, to) = (ours_region.local(index * 8, 8), theirs_region.remote(index * 8, 8));
            scene.client.post_rdma_write(there, 0, &[from], to, Signal::OnError).unwrap();
            let gather = [Gather::Segment(from)];
            scene.client.post_send(there, 0, &gather, quiet).unwrap();
            if index % 7 == 0 {
                scene.client.flush();
            }
        }
        scene.completed(100, 0);
    }
    assert!(theirs.to_vec(0, bytes.len()) == bytes);
    assert!(inbox.to_vec(0, bytes.len()) == bytes);
}

#[test]
fn who_does_not_read_holds_up_nobody_and_gets_all_later() {
    const LENGTH: usize = 8 << 20;
    let authority = Authority::new();
    let mut scene = Scene::new(Some(authority.server(true)));
    let (there, here) = scene.joined(Some(authority.target()));
    scene.events.clear();
    scene.told.clear();
    let (theirs, theirs_region) = local(&mut scene.server, LENGTH);
    let (ours, ours_region) = local(&mut scene.client, LENGTH);
    let bytes = Random::new(11).bytes(LENGTH);
    theirs.write(0, &bytes);
    // An acceptor may send only after it has received a frame.
    scene.server.post_receive(here, 1, &[theirs_region.local(0, 0)]).unwrap();
    scene.client.post_send(there, 1, &[], SendOptions::default()).unwrap();
    scene.completed(1, 1);
    let (from, to) = (theirs_region.local(0, LENGTH as u32), ours_region.remote(0, LENGTH as u32));
    scene.server.post_rdma_write(here, 2, &[from], to, Signal::Always).unwrap();
    // More than the sockets hold: the transfer is incomplete, but the server's turns end.
    for _ in 0..100 {
        scene.server.poll();
    }
    assert_eq!(scene.server.event_count(), 0);
    scene.completed(2, 1);
    scene.client.post_send(there, 3, &[], SendOptions::default()).ok();
    scene.until("all of it", |_| (ours.to_vec(LENGTH - 8, 8) == bytes[LENGTH - 8..]).then_some(()));
    assert!(ours.to_vec(0, LENGTH) == bytes);
}

/// The number of handshakes with one changed byte.
const CHANGES: u64 = 150;

// ---- configuration --------------------------------------------------------------

#[test]
fn a_key_that_is_not_the_certificates_is_refused() {
    let authority = Authority::new();
    let (certificate, _) = authority.issue("one", &["localhost"], |_| {});
    let (_, key) = authority.issue("two", &["localhost"], |_| {});
    let clients = ClientCertificates::Unasked;
    let files = TlsServerFiles { certificate, key, clients, required: true };
    let error = TlsServer::load(&files).unwrap_err();
    assert!(matches!(error, TlsConfigError::Pair { .. }), "{error}");
}

#[test]
fn a_name_that_no_certificate_can_bear_is_refused() {
    let authority = Authority::new();
    let files = dafs_dat::TlsClientFiles::new(authority.file());
    let client = dafs_dat::TlsClient::load(&files).unwrap();
    assert!(matches!(client.target("not a name"), Err(TlsConfigError::Name(_))));
}
