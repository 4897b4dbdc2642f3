//! Connections that carry records and start TLS, over real sockets of the loopback interface. The
//! client is the usual interface of the TLS library.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dafs_dat::records::{LinkId, Part, RecordEvent, Records, RecordsConfig};
use dafs_dat::{CertificateIdentity, ClientCertificates, TlsFailure, TlsServer};
use dafs_memory::{Memory, Pages};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{AlertDescription, ClientConfig, ClientConnection, StreamOwned};

use crate::certificates::{Authority, server_of};
use crate::records::{PATIENCE, config, listening, next, opened, read_record, record};

/// A server of records, and the certificates of both sides.
struct Scene {
    records: Records,
    address: SocketAddr,
    authority: Authority,
    tls: TlsServer,
}

impl Scene {
    fn new(config: RecordsConfig) -> Self {
        let authority = Authority::new();
        let owner = authority.issue("server", &["localhost"], |_| {});
        let tls = server_of(&owner, ClientCertificates::Optional(authority.file()), false);
        let (records, address) = listening(config);
        Self { records, address, authority, tls }
    }

    /// Connects a client and starts TLS on its connection.
    fn started(&mut self) -> (TcpStream, LinkId) {
        let (mut socket, link) = self.connected();
        socket.write_all(&record(b"start")).unwrap();
        assert_eq!(self.record(), b"start");
        self.records.start_tls(link, &self.tls, b"go on");
        assert_eq!(read_record(&mut socket), b"go on");
        (socket, link)
    }

    fn connected(&mut self) -> (TcpStream, LinkId) {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let link = opened(&mut self.records);
        (socket, link)
    }

    /// Completes the handshake of a client. Returns the identity that it has proved.
    fn secured(&mut self, client: &mut Client) -> Option<CertificateIdentity> {
        let Self { records, .. } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| client.flush().unwrap());
            match next(records) {
                RecordEvent::Secured { certificate, .. } => certificate,
                other => panic!("{other:?}"),
            }
        })
    }

    /// Returns a client that has done its handshake, without a certificate.
    fn talking(&mut self) -> (Client, LinkId) {
        let (socket, link) = self.started();
        let mut client = client(socket, ours(&self.authority, None));
        assert_eq!(self.secured(&mut client), None);
        (client, link)
    }

    fn record(&mut self) -> Vec<u8> {
        match next(&mut self.records) {
            RecordEvent::Record { bytes, .. } => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the connection is closed. Returns the reason, and why TLS has failed.
    fn closed(&mut self, link: LinkId) -> (&'static str, Option<TlsFailure>) {
        let mut why = None;
        loop {
            match next(&mut self.records) {
                RecordEvent::Closed { link: ended, reason } if ended == link => {
                    return (reason, why);
                }
                RecordEvent::TlsFailed { link: of, failure } if of == link => why = Some(failure),
                other => panic!("{other:?}"),
            }
        }
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Returns the configuration of a client that trusts an authority.
fn ours(authority: &Authority, identity: Option<(PathBuf, PathBuf)>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
                .unwrap()
        }
    };
    config.alpn_protocols = vec![b"sunrpc".to_vec()];
    config
}

fn client(socket: TcpStream, config: ClientConfig) -> Client {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index / 7) as u8 ^ index as u8 ^ seed).collect()
}

#[test]
fn records_and_replies_are_the_same_over_tls() {
    let mut scene = Scene::new(config());
    let ann = scene.authority.issue("ann", &["ann.example"], |_| {});
    let (socket, link) = scene.started();
    let mut client = client(socket, ours(&scene.authority, Some(ann)));
    let identity = scene.secured(&mut client).expect("a certificate");
    assert_eq!(identity.common_name.as_deref(), Some("ann"));
    assert_eq!(client.conn.alpn_protocol(), Some(&b"sunrpc"[..]));
    assert!(scene.records.is_tls(link));

    // Records of 1 MiB less a header, and replies from memory, 32 of them at once.
    let memory = Memory::anonymous(1 << 20, Pages::Small).unwrap();
    memory.write(0, &pattern(1 << 20, 9));
    let call = |number: u8| pattern((1 << 20) - 200 * usize::from(number), number);
    let talker = std::thread::spawn(move || {
        for number in 0..32 {
            client.write_all(&record(&call(number))).unwrap();
            if number == 16 {
                client.conn.refresh_traffic_keys().unwrap();
            }
        }
        let expected = [b"head".to_vec(), pattern(1 << 20, 9), b"tail".to_vec()].concat();
        for _ in 0..32 {
            assert!(read_record(&mut client) == expected);
        }
    });
    let (mut calls, mut sent) = (0, Vec::new());
    while sent.len() < 32 {
        match next(&mut scene.records) {
            RecordEvent::Record { bytes, .. } => {
                assert!(bytes == call(calls), "record {calls}");
                let length = 1 << 20;
                let parts = [
                    Part::Bytes(b"head"),
                    Part::Memory { memory: &memory, offset: 0, length },
                    Part::Bytes(b"tail"),
                ];
                scene.records.send(link, parts, [u64::from(calls)]);
                scene.records.recycle(bytes);
                calls += 1;
            }
            RecordEvent::Sent { cookie } => sent.push(cookie),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sent, (0..32).collect::<Vec<_>>());
    // The client closes the connection when it has all replies.
    assert_eq!(scene.closed(link), ("the peer closed the connection", None));
    talker.join().unwrap();
    assert_eq!(scene.records.unsent_total(), 0);
}

#[test]
fn records_before_the_end_of_tls_are_delivered() {
    let mut scene = Scene::new(config());
    let (mut client, link) = scene.talking();
    client.write_all(&[record(b"one"), record(b"two")].concat()).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(scene.record(), b"one");
    assert_eq!(scene.record(), b"two");
    assert_eq!(scene.closed(link), ("the peer closed the connection", None));
    // This side closes TLS in the regular way, too.
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn bytes_that_do_not_wait_for_tls_end_the_connection() {
    let mut scene = Scene::new(config());
    for more in [record(b"a whole record"), record(b"a part of a record")[..9].to_vec()] {
        let (mut socket, link) = scene.connected();
        socket.write_all(&[record(b"start"), more].concat()).unwrap();
        assert_eq!(scene.record(), b"start");
        scene.records.start_tls(link, &scene.tls, b"go on");
        let (reason, failure) = scene.closed(link);
        assert!(reason.contains("did not wait") && failure.is_none(), "{reason} {failure:?}");
    }
    // A record without TLS, during the handshake or after it.
    let (mut socket, link) = scene.started();
    socket.write_all(&record(b"plain")).unwrap();
    assert!(matches!(scene.closed(link).1, Some(TlsFailure::Protocol(_))));
    let (mut client, link) = scene.talking();
    client.sock.write_all(&record(b"plain")).unwrap();
    assert!(matches!(scene.closed(link).1, Some(TlsFailure::Protocol(_))));
    assert_eq!(scene.records.connection_count(), 0);
}

#[test]
fn garbage_instead_of_a_handshake_is_answered_with_an_alert() {
    let mut scene = Scene::new(config());
    // A record of another type, and one that is too long for TLS.
    for garbage in [[0x17, 3, 3, 0, 5], [0x16, 3, 1, 0xff, 0xff]] {
        let (mut socket, link) = scene.started();
        socket.write_all(&[&garbage[..], &[7; 200]].concat()).unwrap();
        let (reason, failure) = scene.closed(link);
        assert_eq!(reason, "TLS has failed");
        assert!(matches!(failure, Some(TlsFailure::Protocol(_))), "{failure:?}");
        let mut alert = [0; 7];
        socket.read_exact(&mut alert).unwrap();
        assert_eq!((alert[0], alert[5]), (0x15, 2), "a fatal alert");
        assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0);
    }
}

#[test]
fn only_tls_1_3_for_rpc_with_a_known_authority_is_accepted() {
    let mut scene = Scene::new(config());
    let mut refusal = |config: ClientConfig| {
        let (socket, link) = scene.started();
        let mut client = client(socket, config);
        let reader = std::thread::spawn(move || {
            client.flush().and_then(|()| client.read(&mut [0; 1]).map(drop)).unwrap_err()
        });
        let (reason, failure) = scene.closed(link);
        assert_eq!(reason, "TLS has failed");
        let error = reader.join().unwrap();
        let error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match error {
            Some(rustls::Error::AlertReceived(alert)) => (*alert, failure.unwrap()),
            other => panic!("{other:?}"),
        }
    };
    let (authority, other) = (Authority::new(), Authority::new());
    let mut iwarp = ours(&authority, None);
    iwarp.alpn_protocols = vec![b"iwarp".to_vec()];
    assert_eq!(refusal(iwarp).0, AlertDescription::NoApplicationProtocol);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    assert_eq!(refusal(old).0, AlertDescription::ProtocolVersion);
    let stranger = other.issue("stranger", &[], |_| {});
    let config = ours(&scene.authority, Some(stranger));
    let (socket, link) = scene.started();
    let mut client = client(socket, config);
    let reader = std::thread::spawn(move || client.flush().map(|()| client.read(&mut [0; 1])));
    let (_, failure) = scene.closed(link);
    assert!(matches!(failure, Some(TlsFailure::Certificate(_))), "{failure:?}");
    drop(reader.join().unwrap());
}

#[test]
fn a_handshake_that_stalls_ends_and_makes_room_for_others() {
    let mut scene = Scene::new(RecordsConfig { handshakes_per_address_max: 2, ..config() });
    let (mut silent, first) = scene.started();
    let (mut halting, second) = scene.started();
    // The beginning of a record: it would never be complete.
    halting.write_all(&[0x16, 3, 1, 1, 0, 1]).unwrap();
    scene.records.wait(Duration::from_millis(1));

    // A third handshake must wait, and the connection ends.
    let (mut third, link) = scene.connected();
    third.write_all(&record(b"start")).unwrap();
    assert_eq!(scene.record(), b"start");
    scene.records.start_tls(link, &scene.tls, b"go on");
    assert!(scene.closed(link).0.contains("too many TLS handshakes"));
    assert_eq!(third.read(&mut [0; 1]).unwrap(), 0);

    scene.records.tick();
    assert_eq!(scene.records.connection_count(), 2);
    scene.records.tick_at(scene.records.now() + PATIENCE + Duration::from_secs(1));
    for link in [first, second] {
        assert_eq!(scene.closed(link), ("the TLS handshake takes too long", None));
    }
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    // There is room for two again. A handshake that is done does not count.
    let _talking = [scene.talking(), scene.talking(), scene.talking()];
}

#[test]
fn a_peer_that_does_not_read_keeps_few_sealed_bytes() {
    let mut scene = Scene::new(config());
    let (client, link) = scene.talking();
    let memory = Memory::anonymous(32 << 20, Pages::Small).unwrap();
    let part = Part::Memory { memory: &memory, offset: 0, length: 32 << 20 };
    scene.records.send(link, [part], [1]);
    scene.records.flush();
    let unsent = scene.records.unsent(link);
    assert!(unsent > 0, "the peer reads nothing, so the kernel takes only a part");
    for _ in 0..8 {
        scene.records.wait(Duration::from_millis(1));
    }
    assert!(scene.records.unsent(link) <= unsent);
    assert_eq!(scene.records.unsent_total(), scene.records.unsent(link));
    drop(client);
    let mut is_sent = false;
    loop {
        match next(&mut scene.records) {
            RecordEvent::Sent { cookie: 1 } => is_sent = true,
            RecordEvent::Closed { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(is_sent);
    assert_eq!(scene.records.unsent_total(), 0);
}

#[test]
fn replies_wait_for_the_end_of_the_handshake() {
    let mut scene = Scene::new(config());
    let (socket, link) = scene.started();
    scene.records.send(link, [Part::Bytes(b"early")], [5]);
    scene.records.wait(Duration::from_millis(1));
    assert_eq!(scene.records.unsent(link), 9, "nothing is sent before");
    let mut client = client(socket, ours(&scene.authority, None));
    scene.secured(&mut client);
    assert!(matches!(next(&mut scene.records), RecordEvent::Sent { cookie: 5 }));
    assert_eq!(read_record(&mut client), b"early");
}
