//! MPA start-up (RFC 5044 7.1, RFC 6581), byte by byte, with a real listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use dafs_dat::{
    Address, BreakReason, Domain, EndpointConfig, Event, Interface, InterfaceConfig, PendingId,
};

/// A listener, and a plain socket connected to it.
struct Scene {
    interface: Interface,
    socket: TcpStream,
}

impl Scene {
    fn new(connect_timeout: Duration) -> Self {
        let config = InterfaceConfig { connect_timeout, ..InterfaceConfig::default() };
        let mut interface = Interface::new(config).unwrap();
        let any = Address::Tcp(([127, 0, 0, 1], 0).into());
        let listener = interface.listen(&any).unwrap();
        let Some(Address::Tcp(address)) = interface.listener_address(listener) else { panic!() };
        let socket = TcpStream::connect(address).unwrap();
        Self { interface, socket }
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.interface.next_event() {
                return event;
            }
            assert!(self.interface.wait(1, Some(HANG)) > 0, "nothing happens any more");
        }
    }

    /// Sends bytes that must form a request. Returns the pending connection and the private data.
    fn requested(&mut self, bytes: &[u8]) -> (PendingId, Vec<u8>) {
        self.socket.write_all(bytes).unwrap();
        match self.event() {
            Event::ConnectionRequest { pending, private_data, .. } => {
                (pending, private_data.into())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Accepts the request and returns the reply.
    fn accepted(bytes: &[u8], config: &EndpointConfig, said: &[u8]) -> Vec<u8> {
        let mut scene = Self::new(HANG);
        let (pending, _) = scene.requested(bytes);
        scene.interface.accept(pending, Domain(0), config, said);
        assert!(matches!(scene.event(), Event::Established { .. }));
        scene.reply()
    }

    fn reply(&mut self) -> Vec<u8> {
        let mut reply = vec![0; 20];
        self.socket.read_exact(&mut reply).unwrap();
        let length = usize::from(u16::from_be_bytes([reply[18], reply[19]]));
        let mut private_data = vec![0; length];
        self.socket.read_exact(&mut private_data).unwrap();
        reply.extend(private_data);
        reply
    }

    /// True if the socket ends without any data before.
    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.socket.read_to_end(&mut rest);
        rest.is_empty() || read.is_err()
    }
}

fn request(rest: &[u8]) -> Vec<u8> {
    [b"MPA ID Req Frame", rest].concat()
}

fn reply(rest: &[u8]) -> Vec<u8> {
    [b"MPA ID Rep Frame", rest].concat()
}

fn deep(read_depth: u16) -> EndpointConfig {
    EndpointConfig { read_depth, ..EndpointConfig::default() }
}

#[test]
fn a_plain_request_has_a_plain_reply() {
    for revision in [0, 1] {
        let bytes = request(&[0, revision, 0, 5, b'h', b'e', b'l', b'l', b'o']);
        assert_eq!(Scene::new(HANG).requested(&bytes).1, b"hello");
        let said = Scene::accepted(&bytes, &deep(8), b"hi");
        assert_eq!(said, reply(&[0, revision, 0, 2, b'h', b'i']));
    }
}

#[test]
fn the_depths_of_both_sides_meet() {
    // `rping` on Linux siw: IRD 1, ORD 1, no ready-to-receive indication.
    let rping = request(&[0x10, 2, 0, 4, 0, 1, 0, 1]);
    let said = Scene::accepted(&rping, &deep(8), b"");
    assert_eq!(said[..20], reply(&[0x10, 2, 0, 4]));
    let [ird, ord] = depths(&said);
    assert!(ird >= 1 && ord <= 1, "IRD {ird}, ORD {ord}");
    // `mount -o proto=rdma`: IRD 128, ORD 0, followed by private data.
    let nfs = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
    let mount = request(&[&[0x10, 2, 0, 12, 0, 128, 0, 0][..], &nfs].concat());
    assert_eq!(Scene::new(HANG).requested(&mount).1, nfs);
    let [ird, ord] = depths(&Scene::accepted(&mount, &deep(16), b""));
    assert!(ord <= 16, "IRD {ird}, ORD {ord}");
    // Values that are not negotiated are left unchanged.
    let open = request(&[0x10, 2, 0, 4, 0x3f, 0xff, 0x3f, 0xff]);
    assert_eq!(depths(&Scene::accepted(&open, &deep(8), b"")), [0x3fff, 0x3fff]);
}

fn depths(reply: &[u8]) -> [u16; 2] {
    [20, 22].map(|at| u16::from_be_bytes([reply[at], reply[at + 1]]) & 0x3fff)
}

#[test]
fn a_wish_for_checksums_of_either_side_decides() {
    for (asked, wanted) in [(false, false), (false, true), (true, false), (true, true)] {
        let bytes = request(&[if asked { 0x50 } else { 0x10 }, 2, 0, 4, 0, 4, 0, 4]);
        let config = EndpointConfig { crc: wanted, ..EndpointConfig::default() };
        let said = Scene::accepted(&bytes, &config, b"");
        assert_eq!(said[16] & 0x40 != 0, asked || wanted, "{asked} {wanted}");
    }
}

#[test]
fn peer_to_peer_is_echoed_with_a_way_to_be_ready() {
    // The A bit, and both ready-to-receive bits for Write and Read.
    let bytes = request(&[0x10, 2, 0, 4, 0x80, 4, 0xc0, 4]);
    let said = Scene::accepted(&bytes, &deep(4), b"");
    assert_eq!(said[20] & 0x80, 0x80, "peer-to-peer");
    assert_eq!(said[22] & 0xc0, 0xc0, "ready by a Write or a Read");
}

#[test]
fn a_rejection_says_so() {
    let mut scene = Scene::new(HANG);
    let (pending, _) = scene.requested(&request(&[0x10, 2, 0, 4, 0, 4, 0, 4]));
    scene.interface.reject(pending, b"no");
    let said = scene.reply();
    assert_eq!(said[16] & 0x20, 0x20);
    assert!(said.ends_with(b"no"));
    assert!(scene.is_closed());
}

#[test]
fn what_is_no_request_is_closed() {
    let mut long = request(&[0x10, 2, 2, 1]);
    long.resize(20 + 513, 0);
    for bytes in [
        reply(&[0x10, 2, 0, 4, 0, 4, 0, 4]),
        request(&[0x10, 3, 0, 4, 0, 4, 0, 4]),
        request(&[0x10, 2, 0, 3, 0, 4, 0]),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        long,
    ] {
        let mut scene = Scene::new(HANG);
        scene.socket.write_all(&bytes).unwrap();
        let event = scene.event();
        let Event::Broken { endpoint, reason } = event else { panic!("{event:?}") };
        assert!(matches!(reason, BreakReason::PeerViolation(_)), "{reason:?}");
        scene.interface.release(endpoint);
        assert_eq!(scene.interface.endpoint_count(), 0);
        assert!(scene.is_closed());
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let bytes = request(&[0x10, 2, 0, 6, 0, 4, 0, 4, b'o', b'k']);
    let mut scene = Scene::new(HANG);
    scene.socket.set_nodelay(true).unwrap();
    let (last, first) = bytes.split_last().unwrap();
    for byte in first {
        scene.socket.write_all(&[*byte]).unwrap();
        assert_eq!(scene.interface.poll(), 0);
    }
    assert_eq!(scene.requested(&[*last]).1, b"ok");
}

#[test]
fn half_a_request_and_then_silence_ends_with_its_time() {
    let whole = request(&[0x10, 2, 0, 4, 0, 4, 0, 4]);
    for cut in [0, 1, 16, 20, whole.len() - 1] {
        let mut scene = Scene::new(Duration::from_millis(50));
        scene.socket.write_all(&whole[..cut]).unwrap();
        let event = scene.event();
        let Event::Broken { endpoint, reason } = event else { panic!("{event:?}") };
        assert!(matches!(reason, BreakReason::Unreachable(_)), "{reason:?}");
        let system = reason.system_error().and_then(|error| error.raw_os_error());
        assert_eq!(system, Some(rustix::io::Errno::TIMEDOUT.raw_os_error()), "{reason:?}");
        scene.interface.release(endpoint);
        assert_eq!(scene.interface.endpoint_count(), 0);
        assert!(scene.is_closed());
    }
}

#[test]
fn an_acceptor_is_silent_until_the_initiator_has_spoken() {
    let mut scene = Scene::new(HANG);
    let (pending, _) = scene.requested(&request(&[0x10, 2, 0, 4, 0, 4, 0, 4]));
    let endpoint = scene.interface.accept(pending, Domain(0), &deep(4), b"");
    let gather = [dafs_dat::Gather::Bytes(b"too early")];
    scene.interface.post_send(endpoint, 1, &gather, Default::default()).unwrap();
    scene.interface.flush();
    scene.reply();
    for _ in 0..100 {
        scene.interface.poll();
    }
    scene.socket.set_nonblocking(true).unwrap();
    let early = scene.socket.read(&mut [0]);
    assert_eq!(early.err().map(|e| e.kind()), Some(std::io::ErrorKind::WouldBlock));
}

/// A limit that only detects hanging. No test depends on time.
const HANG: Duration = Duration::from_secs(30);
