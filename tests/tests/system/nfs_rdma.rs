//! NFS clients over RDMA (iWARP over TCP): the conformance suite, bulk data in chunks, and clients
//! that name memory which is not theirs.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dafs_dat::Address;
use dafs_nfs_suite::bench::Target;
use dafs_nfs_suite::cases;
use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::{How, Nfs3, Sattr};
use dafs_nfs_suite::rpc::{Auth, Call, Connection as Stream, results_of};
use dafs_nfs_suite::suite::{self, Protocol, Verdict};
use dafs_rpcrdma::header::{
    Body, Chunk, Chunks, Handle, Message, ReadSegment, Segment, TransportError, Xid, decode, encode,
};
use dafs_rpcrdma_client::{Bridge, ConnectError, Connection, Received};
use dafs_server::{NfsRules, NfsTransport};

use crate::fixture::{Fixture, await_that, me, pattern};
use crate::nfs::target;

/// Starts a server that also serves NFS clients over RDMA.
fn fixture() -> Fixture {
    Fixture::for_nfs_with(tempfile::tempdir().unwrap(), |config| config.rdma = vec![anywhere()])
}

/// Returns an address of iWARP over TCP, on a port that the system chooses.
pub(crate) fn anywhere() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// Runs the cases of a protocol over RDMA. All must pass, or be known to fail.
fn run(protocol: Protocol) {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = fixture();
    let bridge = Bridge::start(fixture.nfs_rdma()).unwrap();
    let target = Target { nfs: bridge.address(), ..target(&fixture) };
    let filter = std::env::var("DAFS_NFS_FILTER").unwrap_or_default();
    let mut cases = cases::all();
    cases.retain(|case| case.protocol == protocol && case.matches(&filter));
    cases.retain(|case| case.name != TWICE);
    let counts = suite::run_all(&cases, &target, |case, verdict| {
        fixture.goes_on();
        if let Verdict::Failed(text) = verdict {
            eprintln!("FAILED   {case}\n         {text}");
        }
    });
    eprintln!("{} passed, {} left out", counts.passed, counts.skipped.len());
    assert!(counts.passed > 0 && counts.failed.is_empty(), "{} cases fail", counts.failed.len());
}

#[test]
fn nfs_3_over_rdma_is_as_its_standard_says() {
    run(Protocol::Nfs3);
}

#[test]
fn nfs_4_1_over_rdma_is_as_its_standard_says() {
    run(Protocol::Nfs41);
}

#[test]
fn nfs_4_2_over_rdma_is_as_its_standard_says() {
    run(Protocol::Nfs42);
}

/// Returns a client of version 3 over RDMA that is the user of this process, and the handle of an
/// export.
fn client(fixture: &Fixture, bridge: &Bridge) -> (Nfs3, Vec<u8>) {
    let auth = Auth::user(me().uid());
    let connection = Stream::open(fixture.nfs()).unwrap();
    let mounted = Mount { connection, auth: auth.clone() }.mnt("/export").unwrap();
    (Nfs3 { connection: Stream::open(bridge.address()).unwrap(), auth }, mounted.fh)
}

#[test]
fn data_of_every_size_travels_in_chunks() {
    let fixture = fixture();
    let bridge = Bridge::start(fixture.nfs_rdma()).unwrap();
    let (mut nfs, root) = client(&fixture, &bridge);
    for length in [1, 2, 3, 4, 1000, 3000, 4093, 4096, 65_537, 1 << 20] {
        let name = format!("file-{length}");
        let file = nfs.create(&root, &name, How::Guarded(Sattr::mode(0o644))).unwrap().fh.unwrap();
        let data = pattern(length, 7);
        let written = nfs.write(&file, 0, 2, &data).unwrap();
        assert_eq!(written.count as usize, length);
        assert_eq!(std::fs::read(fixture.local(&name)).unwrap(), data, "{length} bytes");
        let read = nfs.read(&file, 0, 1 << 20).unwrap();
        assert!(read.data == data && read.eof, "{length} bytes");
        let middle = nfs.read(&file, 1, length as u32 / 2).unwrap();
        assert_eq!(middle.data, data[1..][..length / 2], "{length} bytes");
    }
    await_that("the connections are shown by transport", || {
        let found = fixture.look();
        let machine = found.nfs.clients.iter().find(|machine| machine.read_bytes > 1 << 20);
        machine.is_some_and(|machine| {
            let connections = machine.connections;
            (connections.over(NfsTransport::Rdma), connections.over(NfsTransport::Udp)) == (1, 0)
        })
    });
}

#[test]
fn long_listings_and_links_travel_in_chunks() {
    let fixture = fixture();
    let bridge = Bridge::start(fixture.nfs_rdma()).unwrap();
    let (mut nfs, root) = client(&fixture, &bridge);
    let long = "a-long-name-".repeat(20);
    for number in 0..300 {
        std::fs::write(fixture.local(&format!("{long}{number}")), "").unwrap();
    }
    let listed = nfs.readdirplus(&root, 0, [0; 8], (1 << 20, 1 << 20)).unwrap();
    assert!(listed.entries.len() >= 300, "{} entries", listed.entries.len());
    let text = "x".repeat(4000);
    let link = nfs.symlink(&root, "link", &text, Sattr::default()).unwrap().fh.unwrap();
    assert_eq!(nfs.readlink(&link).unwrap().1, text.as_bytes());
}

/// Each segment but the last is short, so that a reply fills many of them.
#[test]
fn replies_fill_chunks_of_many_segments() {
    let fixture = fixture();
    let bridge = Bridge::start_with(fixture.nfs_rdma(), 60).unwrap();
    let (mut nfs, root) = client(&fixture, &bridge);
    let data = pattern(100_000, 3);
    std::fs::write(fixture.local("file"), &data).unwrap();
    let file = nfs.lookup(&root, "file").unwrap().fh;
    for (offset, count) in [(0, 100_000), (77, 6_001), (99_000, 5_000)] {
        let read = nfs.read(&file, offset, count).unwrap();
        let start = offset as usize;
        let end = (start + count as usize).min(data.len());
        assert!(read.data == data[start..end], "{count} bytes at {offset}");
    }
    // The text and the names are in the encoded bytes of the reply.
    let text = "x".repeat(4000);
    let link = nfs.symlink(&root, "link", &text, Sattr::default()).unwrap().fh.unwrap();
    assert_eq!(nfs.readlink(&link).unwrap().1, text.as_bytes());
    for number in 0..300 {
        std::fs::write(fixture.local(&format!("a-name-{number}")), "").unwrap();
    }
    let listed = nfs.readdirplus(&root, 0, [0; 8], (1 << 16, 1 << 16)).unwrap();
    assert!(listed.entries.len() >= 300, "{} entries", listed.entries.len());
}

#[test]
fn a_client_that_no_rule_lets_in_cannot_connect() {
    let fixture = Fixture::for_nfs_as(tempfile::tempdir().unwrap(), |config| {
        config.access.nfs = NfsRules::for_all(vec!["192.0.2.0/24".parse().unwrap()], true);
        config.nfs.as_mut().unwrap().rdma = vec![anywhere()];
    });
    let refused = Connection::open(&fixture.nfs_rdma(), PATIENCE);
    assert!(matches!(refused, Err(ConnectError::Refused(_))), "{refused:?}");
}

/// Sends a call with chunks as they are, and returns what arrives.
fn answer(server: &Address, chunks: Chunks, rpc: &[u8]) -> Option<Received> {
    let mut connection = Connection::open(server, PATIENCE).unwrap();
    let xid = Xid(u32::from_be_bytes(*rpc.first_chunk().unwrap()));
    let mut message = Vec::new();
    encode(&Message { xid, credits: 1, body: Body::Message { chunks, rpc } }, &mut message);
    connection.send_raw(&message).unwrap();
    connection.receive(PATIENCE)
}

/// Memory that no client has registered.
fn no_memory(length: u32) -> Segment {
    Segment { handle: Handle(0x1234_5678), length, offset: 0 }
}

#[test]
fn a_client_that_names_memory_which_it_does_not_have_harms_only_itself() {
    let fixture = fixture();
    let bridge = Bridge::start(fixture.nfs_rdma()).unwrap();
    let (mut nfs, root) = client(&fixture, &bridge);
    let file = nfs.create(&root, "file", How::Guarded(Sattr::mode(0o644))).unwrap().fh.unwrap();
    nfs.write(&file, 0, 2, &pattern(100_000, 1)).unwrap();

    // The reply of a READ is written to memory that is not there.
    let arguments = dafs_nfs_suite::xdr::Put::new().opaque(&file).u64(0).u32(65_536);
    let read = nfs.prepare(6, arguments).encode(77);
    let writes = vec![Chunk(vec![no_memory(65_536)])];
    let ended = answer(&fixture.nfs_rdma(), Chunks { writes, ..Chunks::default() }, &read);
    assert!(matches!(ended, Some(Received::Ended(_))), "{ended:?}");

    // The data of a WRITE is read from memory that is not there.
    let arguments = dafs_nfs_suite::xdr::Put::new().opaque(&file).u64(0).u32(65_536).u32(2);
    let write = nfs.prepare(7, arguments.u32(65_536)).encode(78);
    let position = u32::try_from(write.len()).unwrap();
    let reads = vec![ReadSegment { position, segment: no_memory(65_536) }];
    let ended = answer(&fixture.nfs_rdma(), Chunks { reads, ..Chunks::default() }, &write);
    assert!(matches!(ended, Some(Received::Ended(_))), "{ended:?}");

    assert_eq!(nfs.read(&file, 0, 100_000).unwrap().data, pattern(100_000, 1));
}

#[test]
fn chunks_that_are_not_allowed_are_refused_and_the_connection_goes_on() {
    let fixture = fixture();
    let mut connection = Connection::open(&fixture.nfs_rdma(), PATIENCE).unwrap();
    let null = |xid| Call::new(100_003, 3, 0, &Auth::None, Vec::new()).encode(xid);
    // A Read chunk where NULL has no data, a READ without enough room, and a header that is cut.
    let reads = vec![ReadSegment { position: 40, segment: no_memory(0) }];
    let cut = Chunks { writes: vec![Chunk(vec![no_memory(4); 2])], ..Chunks::default() };
    let mut messages = Vec::new();
    for (xid, chunks) in [(1, Chunks { reads, ..Chunks::default() }), (2, cut)] {
        let (mut message, rpc) = (Vec::new(), null(xid));
        let body = Body::Message { chunks, rpc: &rpc };
        encode(&Message { xid: Xid(xid), credits: 1, body }, &mut message);
        messages.push(message);
    }
    messages[1].truncate(48);
    for (message, xid) in messages.iter().zip([1, 2]) {
        connection.send_raw(message).unwrap();
        // The client's end does not know these calls, so their errors are looked at here.
        let error = connection.receive_raw(PATIENCE).unwrap();
        let error = decode(&error).unwrap();
        assert_eq!((error.xid, error.body), (Xid(xid), Body::Error(TransportError::Chunk)));
    }
    connection.call(&null(3)).unwrap();
    match connection.receive(PATIENCE) {
        Some(Received::Reply(reply)) => assert_eq!(results_of(&reply).unwrap(), b""),
        other => panic!("{other:?}"),
    }
}

/// A case that sends a call twice on one connection, which a client must not do over RDMA: the
/// identifier tells to which call a reply and its memory belong.
const TWICE: &str = "a repeat that arrives before the first reply is not done twice";
const PATIENCE: Duration = Duration::from_secs(20);
