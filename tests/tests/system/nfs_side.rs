//! The programs beside NFS version 3: locks, notices of restarts, quotas.

use std::net::UdpSocket;

use dafs_client::{Client, ClientConfig, File, LockKind, LockOptions, OpenOptions, SessionOptions};
use dafs_nfs_suite::bench::Bench;
use dafs_nfs_suite::nfs3::{self, How, Sattr};
use dafs_nfs_suite::nfs4::ops::{self, Locker, lock_type};
use dafs_nfs_suite::nlm::status::{BLOCKED, DENIED, GRACE, GRANTED, STALE};
use dafs_nfs_suite::nlm::{Listener, Lock, MONITOR, Nlm, PROGRAM, STATE};
use dafs_nfs_suite::rpc::{Auth, Call, results_of};
use dafs_nfs_suite::status as nfs;
use dafs_nfs_suite::suite::Protocol;
use dafs_nfs_suite::xdr::{Get, Put};

use crate::fixture::{Fixture, HANG, Transport, await_that};
use crate::nfs::target;

const PLAIN: LockOptions = LockOptions::from_bits(0).unwrap();
const END: u64 = u64::MAX;
/// The length of the attributes of version 3.
const ATTRIBUTES_BYTES: usize = 84;

/// A server, and a client of version 3 with a file that all tests lock.
struct Place {
    fixture: Fixture,
    bench: Bench,
    fh: Vec<u8>,
}

impl Place {
    /// `None` if the test does not run as root.
    fn new(fixture: Fixture) -> Option<Self> {
        if !dafs_tests::is_root() {
            return None;
        }
        let mut bench = Bench::new(&target(&fixture), 1, Protocol::Nfs41).unwrap();
        let fh = bench.file_with_mode("f", 0o666).unwrap();
        Some(Self { fixture, bench, fh })
    }

    fn host(&self, name: &str) -> Nlm {
        Nlm::open(self.fixture.nfs(), name).unwrap()
    }

    fn lock(&self, process: u32, is_exclusive: bool, offset: u64, length: u64) -> Lock {
        Lock { fh: self.fh.clone(), process, is_exclusive, offset, length }
    }

    /// Opens the file by a DAFS client.
    fn dafs(&self) -> (File, Client) {
        let client = Client::new(ClientConfig::default()).unwrap();
        let address = self.fixture.address(Transport::Tcp);
        let session = client.connect_to(&address, &SessionOptions::default()).unwrap();
        let path = format!("/export/{}/f", self.bench.name);
        (session.open(&path, &OpenOptions::write()).unwrap(), client)
    }
}

fn place() -> Option<Place> {
    Place::new(Fixture::for_nfs())
}

#[test]
fn locks_of_version_3_dafs_and_version_4_clients_exclude_each_other() {
    let Some(mut place) = place() else { return };
    let mut ann = place.host("ann");
    let (bob, _client) = place.dafs();
    let mut cat = place.bench.session().unwrap();
    let (open, fh) = cat.opened("f").unwrap();

    // A lock by NLM keeps out the two others.
    let anns = place.lock(5, true, 10, 10);
    assert_eq!(ann.lock(&anns, false, false).unwrap(), GRANTED);
    let holder = bob.try_lock(LockKind::Shared, 0, END, PLAIN).unwrap().unwrap();
    assert_eq!((holder.kind, holder.offset, holder.length), (LockKind::Exclusive, 10, 10));
    let cats = |offset| {
        ops::lock(lock_type::WRITE, false, offset, 10, &Locker::New(open, b"cat".to_vec()))
    };
    cat.fails(&[nfs::DENIED], &[ops::putfh(&fh), cats(15)]).unwrap();

    // Locks of the two others keep out NLM.
    assert_eq!(bob.try_lock(LockKind::Exclusive, 30, 10, PLAIN).unwrap(), None);
    cat.ok(&[ops::putfh(&fh), cats(50)]).unwrap();
    for offset in [35, 55] {
        assert_eq!(ann.lock(&place.lock(5, false, offset, 1), false, false).unwrap(), DENIED);
        let holder = ann.test(&place.lock(5, false, offset, 1)).unwrap().unwrap_err();
        assert!(holder.is_exclusive && holder.process == 0, "{holder:?}");
        assert_eq!((holder.offset, holder.length), (offset / 10 * 10, 10));
    }

    // The locks are advisory: a DAFS client may write below a lock of NLM.
    bob.write_at(b"x", 15).unwrap();
    // What NLM has unlocked is free for the others.
    assert_eq!(ann.unlock(&place.lock(5, true, 0, 0)).unwrap(), GRANTED);
    assert_eq!(bob.try_lock(LockKind::Shared, 10, 10, PLAIN).unwrap(), None);
}

#[test]
fn processes_and_hosts_exclude_each_other_in_all_versions() {
    let Some(place) = place() else { return };
    let (mut ann, mut bob) = (place.host("ann"), place.host("bob"));
    bob.version = 3;
    assert_eq!(ann.lock(&place.lock(1, true, 0, 10), false, false).unwrap(), GRANTED);
    assert_eq!(ann.lock(&place.lock(1, true, 5, 10), false, false).unwrap(), GRANTED, "her own");
    assert_eq!(ann.lock(&place.lock(2, false, 9, 1), false, false).unwrap(), DENIED);
    assert_eq!(bob.lock(&place.lock(1, false, 14, 0), false, false).unwrap(), DENIED);
    let holder = bob.test(&place.lock(1, false, 14, 0)).unwrap().unwrap_err();
    assert_eq!((holder.process, &holder.owner[..]), (1, &b"1@ann"[..]));
    assert_eq!((holder.offset, holder.length), (0, 15));
    assert_eq!(bob.lock(&place.lock(1, false, 15, 0), false, false).unwrap(), GRANTED);
    assert_eq!(ann.unlock(&place.lock(1, true, 0, 10)).unwrap(), GRANTED);
    assert_eq!(bob.test(&place.lock(1, true, 0, 10)).unwrap(), Ok(GRANTED));
    assert!(bob.test(&place.lock(1, true, 10, 1)).unwrap().is_err());
    let forged = Lock { fh: vec![7; 64], ..place.lock(1, true, 0, 1) };
    let status = ann.lock(&forged, false, false).unwrap();
    assert_eq!(status, STALE);
    let call = Call::new(PROGRAM, 2, 1, &Auth::user(0), Vec::new());
    assert!(ann.connection.call(&call).is_err(), "there is no version 2");
}

#[test]
fn a_lock_that_a_client_waits_for_is_granted_by_a_call() {
    let listener = Listener::open().unwrap();
    let port = listener.port().unwrap();
    let fixture = Fixture::for_nfs_with(tempfile::tempdir().unwrap(), |nfs| {
        nfs.rpcbind_port = port;
    });
    let Some(place) = Place::new(fixture) else { return };
    let mut ann = place.host("ann");
    let (bob, _client) = place.dafs();
    assert_eq!(bob.try_lock(LockKind::Exclusive, 0, 10, PLAIN).unwrap(), None);
    // Two processes wait for the same range. The third gives up.
    let wanted = [1, 2, 3].map(|process| place.lock(process, false, 0, 5));
    for lock in &wanted {
        assert_eq!(ann.lock(lock, true, false).unwrap(), BLOCKED);
    }
    assert_eq!(ann.cancel(&wanted[2]).unwrap(), GRANTED);
    assert_eq!(ann.cancel(&wanted[2]).unwrap(), DENIED);
    bob.unlock(0, END).unwrap();
    let mut granted = Vec::new();
    for _ in 0..2 {
        let called = listener.next(|called| {
            let cookie = Get(&called.arguments).opaque().unwrap();
            Put::new().opaque(cookie).u32(GRANTED).0
        });
        let called = called.unwrap();
        assert_eq!((called.program, called.version, called.procedure), (PROGRAM, 4, 5));
        let mut get = Get(&called.arguments);
        get.opaque().unwrap();
        assert!(!get.bool().unwrap());
        assert_eq!(get.opaque().unwrap(), b"ann");
        assert_eq!(get.opaque().unwrap(), place.fh);
        get.opaque().unwrap();
        granted.push(get.u32().unwrap());
    }
    granted.sort_unstable();
    assert_eq!(granted, [1, 2]);
    assert!(bob.try_lock(LockKind::Exclusive, 0, 1, PLAIN).unwrap().is_some());

    // The server releases a granted lock that the client does not want any more.
    assert_eq!(ann.lock(&place.lock(4, true, 0, 5), true, false).unwrap(), BLOCKED);
    for process in [1, 2] {
        assert_eq!(ann.unlock(&place.lock(process, true, 0, 0)).unwrap(), GRANTED);
    }
    let deny = |called: &dafs_nfs_suite::nlm::Called| {
        Put::new().opaque(Get(&called.arguments).opaque().unwrap()).u32(DENIED).0
    };
    listener.next(deny).unwrap();
    await_that("the refused lock is released", || {
        bob.try_lock(LockKind::Exclusive, 0, 10, PLAIN).unwrap().is_none()
    });
}

#[test]
fn an_asynchronous_call_is_answered_by_a_call() {
    let listener = Listener::open().unwrap();
    let port = listener.port().unwrap();
    let fixture = Fixture::for_nfs_with(tempfile::tempdir().unwrap(), |nfs| {
        nfs.rpcbind_port = port;
    });
    let Some(place) = Place::new(fixture) else { return };
    let mut ann = place.host("ann");
    let arguments = ann.lock_arguments(&place.lock(1, true, 0, 0), false, false);
    assert!(ann.raw(7, arguments).unwrap().is_empty());
    let called = listener.next(|_| Vec::new()).unwrap();
    assert_eq!((called.program, called.procedure), (PROGRAM, 12));
    assert_eq!(called.arguments, Put::new().opaque(b"cookie").u32(GRANTED).0);
    let holder = place.host("bob").test(&place.lock(1, true, 0, 0)).unwrap().unwrap_err();
    assert_eq!((holder.process, holder.length), (1, 0));
}

#[test]
fn a_host_that_restarts_loses_its_locks_and_no_other_does() {
    let Some(place) = place() else { return };
    let (mut ann, mut bob) = (place.host("ann.example"), place.host("bob"));
    let (anns, bobs) = (place.lock(1, true, 0, 10), place.lock(1, true, 10, 10));
    let is_held = |lock: &Lock| place.host("eve").test(lock).unwrap().is_err();
    assert_eq!(ann.lock(&anns, false, false).unwrap(), GRANTED);
    assert_eq!(bob.lock(&bobs, false, false).unwrap(), GRANTED);
    ann.notify("eve", STATE + 2).unwrap();
    // This notice is about the start after which Ann has taken her lock.
    ann.notify("ann", STATE).unwrap();
    assert!(is_held(&anns) && is_held(&bobs));
    ann.notify("ann", STATE + 2).unwrap();
    assert!(!is_held(&anns) && is_held(&bobs));
    bob.free_all("bob").unwrap();
    assert!(!is_held(&bobs));
    assert_eq!(ann.lock(&anns, false, false).unwrap(), GRANTED, "she may begin again");
}

#[test]
fn a_share_reservation_excludes_those_of_others() {
    let Some(place) = place() else { return };
    let (mut ann, mut bob) = (place.host("ann"), place.host("bob"));
    let (read, write) = (1, 2);
    // The opens for locks are opens, too.
    assert_eq!(bob.lock(&place.lock(1, true, 0, 0), false, false).unwrap(), GRANTED);
    assert_eq!(ann.share(&place.fh, "word", write, read).unwrap(), DENIED);
    assert_eq!(bob.unlock(&place.lock(1, true, 0, 0)).unwrap(), GRANTED);
    assert_eq!(ann.share(&place.fh, "word", write, read).unwrap(), GRANTED);
    assert_eq!(bob.share(&place.fh, "word", 0, write).unwrap(), DENIED);
    assert_eq!(bob.share(&place.fh, "word", 0, read).unwrap(), GRANTED);
    assert_eq!(ann.unshare(&place.fh, "word").unwrap(), GRANTED);
    assert_eq!(bob.share(&place.fh, "word", 0, write).unwrap(), GRANTED);
    assert_eq!(ann.unshare(&place.fh, "word").unwrap(), GRANTED, "a repeated call");
}

#[test]
fn a_host_reclaims_its_locks_after_a_restart_of_the_server() {
    let Some(place) = place() else { return };
    let mut ann = place.host("ann");
    let (anns, bobs) = (place.lock(1, true, 0, 10), place.lock(1, true, 10, 10));
    assert_eq!(ann.lock(&anns, false, true).unwrap(), GRACE, "there is no grace period");
    assert_eq!(ann.lock(&anns, false, false).unwrap(), GRANTED);
    let (directory, _) = place.fixture.stop();
    let listener = Listener::open().unwrap();
    let port = listener.port().unwrap();
    let fixture = Fixture::for_nfs_with(directory, |nfs| nfs.rpcbind_port = port);
    let called = listener.next(|_| Vec::new()).unwrap();
    assert_eq!((called.program, called.version, called.procedure), (MONITOR, 1, 6));
    let host = |name| Nlm::open(fixture.nfs(), name).unwrap();
    assert_eq!(host("bob").lock(&bobs, false, false).unwrap(), GRACE);
    assert_eq!(host("ann").lock(&bobs, false, false).unwrap(), GRACE);
    assert_eq!(host("ann").lock(&anns, false, true).unwrap(), GRANTED);
    assert_eq!(host("ann").unlock(&anns).unwrap(), GRANTED);
}

#[test]
fn nobody_has_a_quota() {
    let Some(place) = place() else { return };
    let mut ann = place.host("ann");
    for (version, arguments) in
        [(1, Put::new().opaque("/export").u32(0)), (2, Put::new().opaque("/export").u32(0).u32(0))]
    {
        let call = Call::new(100_011, version, 1, &Auth::user(0), arguments.0);
        let results = ann.connection.call(&call).unwrap();
        assert_eq!(results, [0, 0, 0, 2], "version {version}");
    }
}

/// A list of entries, each with its kind, its id and its permissions.
type Entries = Vec<(u32, u32, u32)>;

fn put_list(put: Put, entries: &Entries) -> Put {
    put.u32(entries.len() as u32)
        .list(entries, |put, (kind, id, permissions)| put.u32(*kind).u32(*id).u32(*permissions))
}

/// Gets the access list and the default list of an object by NFSACL.
fn lists(ann: &mut Nlm, fh: &[u8]) -> (Entries, Entries) {
    let call = Call::new(100_227, 3, 1, &ann.auth, Put::new().opaque(fh).u32(15).0);
    let results = ann.connection.call(&call).unwrap();
    let mut get = Get(&results);
    assert_eq!(get.u32().unwrap(), 0);
    assert!(get.option(nfs3::attr).unwrap().is_some());
    assert_eq!(get.u32().unwrap(), 15);
    let mut list = || {
        let count = get.u32().unwrap();
        let entries = get.list(|get| Ok((get.u32()?, get.u32()?, get.u32()?))).unwrap();
        assert_eq!(entries.len(), count as usize);
        entries
    };
    let lists = (list(), list());
    get.finish().unwrap();
    lists
}

/// Sets both lists of an object by NFSACL. Returns the status.
fn set_lists(ann: &mut Nlm, fh: &[u8], (access, default): (&Entries, &Entries)) -> u32 {
    let put = put_list(put_list(Put::new().opaque(fh).u32(15), access), default);
    let results = ann.connection.call(&Call::new(100_227, 3, 2, &ann.auth, put.0)).unwrap();
    Get(&results).u32().unwrap()
}

#[test]
fn access_control_lists_are_set_and_shown_by_nfsacl() {
    let Some(mut place) = place() else { return };
    let mut ann = place.host("ann");
    let plain = vec![(1, 0, 6), (4, 0, 6), (0x10, 0, 6), (0x20, 0, 6)];
    assert_eq!(lists(&mut ann, &place.fh), (plain.clone(), Vec::new()));
    let (wanted, none) = (
        vec![(1, 0, 6), (2, 1000, 4), (4, 0, 4), (8, 2000, 6), (0x10, 0, 6), (0x20, 0, 0)],
        Vec::new(),
    );
    let status = set_lists(&mut ann, &place.fh, (&wanted, &none));
    if status == nfs::NOTSUPP {
        return dafs_tests::skip("the file system keeps no access control lists");
    }
    assert_eq!(status, 0);
    assert_eq!(lists(&mut ann, &place.fh), (wanted.clone(), none.clone()));
    // The list decides: user 1000 may read, others may not.
    assert!(place.bench.user(1000).unwrap().read(&place.fh, 0, 1).is_ok());
    assert!(place.bench.user(1001).unwrap().read(&place.fh, 0, 1).is_err());
    // The mask takes permissions away.
    let masked = vec![(1, 0, 6), (2, 1000, 7), (4, 0, 7), (0x10, 0, 4), (0x20, 0, 0)];
    assert_eq!(set_lists(&mut ann, &place.fh, (&masked, &none)), 0);
    let left = vec![(1, 0, 6), (2, 1000, 4), (4, 0, 4), (0x10, 0, 4), (0x20, 0, 0)];
    assert_eq!(lists(&mut ann, &place.fh), (left, none.clone()));
    // A directory has a default list, too. A file has none.
    let directory = place.bench.sub("d", 0o755).unwrap();
    let of_directory = lists(&mut ann, &directory).0;
    let default: Entries = wanted.iter().map(|(kind, id, it)| (kind | 0x1000, *id, *it)).collect();
    assert_eq!(set_lists(&mut ann, &directory, (&of_directory, &default)), 0);
    assert_eq!(lists(&mut ann, &directory), (of_directory, default.clone()));
    assert_eq!(set_lists(&mut ann, &place.fh, (&masked, &default)), nfs::INVAL);
    let double = [&wanted[..], &wanted[..1]].concat();
    assert_eq!(set_lists(&mut ann, &place.fh, (&double, &none)), nfs::INVAL);
}

#[test]
fn version_3_and_its_side_programs_are_served_by_udp() {
    let Some(mut place) = place() else { return };
    place.bench.c.write(&place.fh, 0, 2, &[7; 60_000]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket.connect(place.fixture.nfs()).unwrap();
    let call = |program, version, procedure, arguments: Put| {
        let call = Call::new(program, version, procedure, &Auth::user(0), arguments.0);
        socket.send(&call.encode(procedure)).unwrap();
        let mut reply = vec![0; 1 << 16];
        let length = socket.recv(&mut reply).unwrap();
        assert_eq!(Get(&reply).u32().unwrap(), procedure);
        results_of(&reply[..length]).map(<[u8]>::to_vec)
    };
    assert!(call(100_003, 3, 0, Put::new()).unwrap().is_empty());
    let attributes = call(100_003, 3, 1, Put::new().opaque(&place.fh)).unwrap();
    assert_eq!(attributes[..4], [0; 4]);
    // A READ, whose bytes come from the cache.
    let read = call(100_003, 3, 6, Put::new().opaque(&place.fh).u64(0).u32(60_000)).unwrap();
    assert!(read.ends_with(&[7; 60_000]));
    let mounted = call(100_005, 3, 1, Put::new().opaque("/export")).unwrap();
    assert_eq!(mounted[..4], [0; 4]);
    let ann = place.host("ann");
    let lock = ann.lock_arguments(&place.lock(1, true, 0, 0), false, false);
    assert_eq!(call(PROGRAM, 4, 2, lock).unwrap(), Put::new().opaque("cookie").u32(GRANTED).0);
    assert!(call(100_003, 4, 1, Put::new()).is_err(), "version 4 needs connections");
    // FSINFO offers no more than fits a datagram, and a READ of more returns so much.
    let limits = call(100_003, 3, 19, Put::new().opaque(&place.fh)).unwrap();
    let mut limits = Get(&limits);
    assert_eq!((limits.u32().unwrap(), limits.u32().unwrap()), (0, 1));
    limits.raw(ATTRIBUTES_BYTES).unwrap();
    let sizes = [(); 7].map(|()| limits.u32().unwrap());
    let most = 60 << 10;
    assert_eq!(sizes, [most, most, 4096, most, most, 4096, most]);
    place.bench.c.write(&place.fh, 0, 2, &[8; 100_000]).unwrap();
    let read = call(100_003, 3, 6, Put::new().opaque(&place.fh).u64(0).u32(100_000)).unwrap();
    let data = Put::new().u32(most).u32(0).opaque([8; 60 << 10]).0;
    assert_eq!(read[8 + ATTRIBUTES_BYTES..], data[..]);
    let over_tcp = place.bench.c.fsinfo(&place.fh).unwrap();
    assert_eq!((over_tcp.rtmax, over_tcp.wtmax), (1 << 20, 1 << 20));
    // A listing is a page that fits, too.
    let directory = place.bench.sub("many", 0o755).unwrap();
    for number in 0..400 {
        let name = format!("{number:0>200}");
        place.bench.c.create(&directory, name, How::Unchecked(Sattr::default())).unwrap();
    }
    for (procedure, sizes) in [(16, &[1 << 20][..]), (17, &[1 << 20, 1 << 20])] {
        let asked = Put::new().opaque(&directory).u64(0).u64(0);
        let asked = sizes.iter().fold(asked, |put, size| put.u32(*size));
        let page = call(100_003, 3, procedure, asked).unwrap();
        assert_eq!(page[..4], [0; 4]);
        assert!((40 << 10..=60 << 10).contains(&page.len()), "{}", page.len());
        assert!(page.ends_with(&[0; 8]), "the page is not the last one");
    }
    // What is no call gets no reply.
    socket.send(b"abc").unwrap();
    socket.send(b"not a call").unwrap();
    assert!(call(100_003, 3, 0, Put::new()).unwrap().is_empty());
}
