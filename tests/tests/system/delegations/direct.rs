//! Tests files that clients on the server's host read directly.

use std::fs::{File as SystemFile, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dafs_client::{
    ActFor, Client, ClientConfig, FenceAccess, FenceObject, FenceUpdate, File, LockKind,
    LockOptions, Login, OpenOptions, Recovery, Session, SessionOptions,
};
use dafs_server::{ExportRules, OneTimeUser, PartialTerms, Peers};
use dafs_types::{ShareAccess, StateId, Status};
use dafs_wire::messages::HandOver;
use dafs_wire::{ByteOrder, Procedure, Request, Response, decode_response};

use super::holder::{Held, Holder, lively, open_delegated};
use crate::fixture::{Ending, Fixture, Transport, await_that, pattern};
use crate::rogue::{Rogue, status_of};

/// The number of recalls from a reader that continues to read.
const RECALLS: u64 = 10_000;
const PAGE: usize = 4096;

fn options() -> SessionOptions {
    SessionOptions::default().delegations(true)
}

/// Opens the file until this process reads it directly.
fn open(session: &Session, name: &str) -> File {
    for _ in 0..10_000 {
        let file = session.open(name, &OpenOptions::read()).unwrap();
        let before = session.direct_reads();
        for _ in 0..3 {
            file.read_at(&mut [0], 0).unwrap();
        }
        if session.direct_reads() > before {
            return file;
        }
        file.close().unwrap();
    }
    panic!("the file is not handed over");
}

fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(read);
    bytes
}

/// Makes a page that contains its version everywhere.
fn page(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(PAGE / 8)
}

fn versions(page: &[u8]) -> impl Iterator<Item = u64> + '_ {
    page.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The shared state of a reader and a writer.
#[derive(Default)]
struct Race {
    /// The newest version whose write was answered.
    acknowledged: AtomicU64,
    /// The last version that the reader has read directly.
    shown: AtomicU64,
    is_over: AtomicBool,
}

impl Race {
    /// Opens the file and reads it directly as long as possible, and once more when that fails:
    /// until it was recalled.
    fn read_until_recalled(&self, session: &Session, mapped: bool) {
        let file = session.open("file", &OpenOptions::read()).unwrap();
        let mapping = mapped.then(|| file.map());
        let (mut bytes, mut was_direct) = (vec![0; PAGE], false);
        for vain in 0.. {
            let (acknowledged, before) =
                (self.acknowledged.load(Ordering::SeqCst), session.direct_reads());
            let length = match &mapping {
                Some(mapping) => mapping.read_at(&mut bytes, 0),
                None => file.read_at(&mut bytes, 0),
            };
            assert_eq!(length.unwrap(), PAGE);
            let is_direct = session.direct_reads() > before;
            let (oldest, newest) =
                (versions(&bytes).min().unwrap(), versions(&bytes).max().unwrap());
            assert!(
                oldest >= acknowledged,
                "{oldest} was read, though {acknowledged} was answered (direct: {is_direct})"
            );
            if is_direct {
                assert_eq!(oldest, newest, "nobody may write meanwhile");
                self.shown.store(newest, Ordering::SeqCst);
            }
            let is_done = was_direct && !is_direct || self.is_over.load(Ordering::SeqCst);
            if is_done || !is_direct && vain > 3 {
                break;
            }
            was_direct |= is_direct;
        }
        file.close().unwrap();
    }

    /// Waits until the reader reads the last version, and writes the next.
    fn write(&self, session: &Session, version: u64) {
        await_that("the reader reads by itself", || {
            self.shown.load(Ordering::SeqCst) + 1 == version || self.is_over.load(Ordering::SeqCst)
        });
        let write = OpenOptions::read().access(ShareAccess::Write);
        let file = session.open("file", &write).unwrap();
        file.write_at(&page(version), 0).unwrap();
        self.acknowledged.store(version, Ordering::SeqCst);
        file.close().unwrap();
    }
}

#[test]
fn no_read_that_begins_behind_a_recall_is_answered_by_the_old_way() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), page(0)).unwrap();
    let race = Race::default();
    std::thread::scope(|scope| {
        let _ending = Ending(&race.is_over);
        let reader = scope.spawn(|| {
            let _ending = Ending(&race.is_over);
            let (_client, session) = fixture.connect_with(Transport::Shm, &options());
            let mut mapped = false;
            while !race.is_over.load(Ordering::SeqCst) {
                race.read_until_recalled(&session, mapped);
                mapped = !mapped;
            }
            session.direct_reads()
        });
        let (_client, session) = fixture.connect_with(Transport::Shm, &SessionOptions::default());
        // The reader may sometimes have closed the file itself.
        for version in 1..=RECALLS + RECALLS / 50 {
            race.write(&session, version);
            if version % 1000 == 0 {
                fixture.goes_on();
            }
        }
        race.is_over.store(true, Ordering::SeqCst);
        let reads = reader.join().unwrap();
        assert!(reads >= RECALLS, "{reads} direct reads");
    });
    let recalled = fixture.stop().1.delegations.recalled;
    assert!(recalled >= RECALLS, "{recalled} recalls");
}

#[test]
fn what_was_written_and_not_flushed_is_read_and_so_are_own_changes() {
    let fixture = Fixture::with(lively(|_| {}));
    let (_client, session) = fixture.connect_with(Transport::Shm, &options());
    let content = pattern(300_000, 3);
    // A session that could read through it would have a write delegation.
    let write = OpenOptions::write().access(ShareAccess::Write);
    let writer = session.open("file", &write).unwrap();
    writer.write_at(&content, 0).unwrap();
    let file = open(&session, "file");
    let before = session.direct_reads();
    assert_eq!(read(&file, 0, 400_000), content);
    assert_eq!(read(&file, 299_990, 100), content[299_990..]);
    assert_eq!(read(&file, 300_000, 100), b"");
    assert_eq!(session.direct_reads(), before + 3);
    // Writes of this session are in the server's cache first, so the read goes to the server.
    writer.write_at(b"newer", 100).unwrap();
    assert_eq!(read(&file, 100, 5), b"newer");
    for round in 0..100u8 {
        writer.write_at(&[round], 7).unwrap();
        assert_eq!(read(&file, 7, 1), [round]);
        assert_eq!(file.map().read_at(&mut [0; 10], 0).unwrap(), 10);
        assert_eq!(read(&file, 7, 1), [round]);
    }
    writer.set_len(10).unwrap();
    assert_eq!(read(&file, 0, 100).len(), 10);
}

#[test]
fn a_mapped_file_that_a_local_process_cuts_is_read_as_it_is_then() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), pattern(100_000, 3)).unwrap();
    let (_client, session) = fixture.connect_with(Transport::Shm, &options());
    let file = open(&session, "file");
    let mapping = file.map();
    assert!(mapping.is_mapped());
    let mut bytes = [0; 100];
    assert_eq!(mapping.read_at(&mut bytes, 50_000).unwrap(), 100);
    assert_eq!(bytes[..], pattern(100_000, 3)[50_000..50_100]);
    let local = SystemFile::options().write(true).open(fixture.local("file")).unwrap();
    local.set_len(20_000).unwrap();
    assert_eq!(mapping.read_at(&mut bytes, 50_000).unwrap(), 0);
    assert_eq!(mapping.read_at(&mut bytes, 19_950).unwrap(), 50);
    // An append by a local process is visible, too.
    local.write_all_at(b"more", 20_000).unwrap();
    assert_eq!(mapping.read_at(&mut bytes, 19_950).unwrap(), 54);
    assert_eq!(&bytes[50..54], b"more");
}

#[test]
fn a_client_whose_server_is_gone_reads_by_itself_no_more() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"content").unwrap();
    let options = options().recovery(Recovery::Off);
    let (_client, session) = fixture.connect_with(Transport::Shm, &options);
    let file = open(&session, "file");
    let stopped = fixture.stop();
    await_that("a read fails", || file.read_at(&mut [0; 7], 0).is_err());
    drop(stopped);
}

#[test]
fn a_client_that_does_not_want_files_asks_for_none() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"content").unwrap();
    let options = options().direct_reads(false);
    let (_client, session) = fixture.connect_with(Transport::Shm, &options);
    let file = open_delegated(&session, "file", &OpenOptions::read());
    for _ in 0..100 {
        assert_eq!(read(&file, 0, 10), b"content");
    }
    assert!(!file.map().is_mapped());
    assert_eq!(session.direct_reads(), 0);
}

// ---- a client that ignores the rules ------------------------------------------------

/// Requests the descriptor for a delegation.
fn ask(rogue: &mut Rogue, held: Held) -> Result<u64, Status> {
    let (delegation, _) = held.delegation.unwrap();
    ask_for(rogue, HandOver { file: held.file, state: held.state, delegation })
}

fn ask_for(rogue: &mut Rogue, request: HandOver) -> Result<u64, Status> {
    let bytes = rogue.ask(&Request::HandOver(request)).unwrap();
    match decode_response(ByteOrder::NATIVE, Procedure::HandOver, &bytes).unwrap().1 {
        Response::HandOver(result) => Ok(result.token),
        _ => Err(status_of(&bytes)),
    }
}

fn take(rogue: &mut Rogue, name: u64) -> Option<OwnedFd> {
    let endpoint = rogue.endpoint;
    rogue.interface.take_handed_over(endpoint, name)
}

fn holder(fixture: &Fixture) -> Holder {
    Holder::new(fixture, Transport::Shm, b"holder")
}

#[test]
fn who_ignores_a_recall_sees_the_file_he_was_given_and_does_nothing_to_it() {
    let fixture = Fixture::with(|config| {
        lively(|policy| policy.recall_timeout = Duration::from_millis(300))(config);
        config.filer.lease = Duration::from_millis(300);
    });
    for name in ["file", "other"] {
        std::fs::write(fixture.local(name), name).unwrap();
    }
    let mut holder = holder(&fixture);
    let held = holder.hold("file", ShareAccess::Read);
    let name = ask(&mut holder.rogue, held).unwrap();
    let file = SystemFile::from(take(&mut holder.rogue, name).unwrap());
    assert!(take(&mut holder.rogue, name).is_none(), "it comes once");
    let now = |file: &SystemFile| {
        let mut bytes = [0; 100];
        let length = file.read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(now(&file), "file");
    // It is read-only, whatever the server may do.
    assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY);
    // Other clients continue when its time is over.
    let (_client, session) = fixture.connect(Transport::Shm);
    let write = OpenOptions::read().access(ShareAccess::Write);
    let writer = session.open("file", &write).unwrap();
    writer.write_at(b"changed", 0).unwrap();
    writer.close().unwrap();
    assert_eq!(now(&file), "changed", "as any local process sees it");
    assert_eq!(ask(&mut holder.rogue, held), Err(Status::Expired));
    // Another file with the same name is another file.
    session.rename("other", "file").unwrap();
    assert_eq!(now(&file), "changed");
    assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"other");
}

#[test]
fn a_descriptor_opens_nothing_to_a_user_that_the_server_refuses() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::with_two_exports(|config| {
        lively(|_| {})(config);
        let terms = PartialTerms { read_only: Some(true), ..PartialTerms::default() };
        let clients = vec![(Peers::default(), terms)];
        let name = "pub".to_owned();
        config.access.exports = vec![ExportRules { name, clients, ..ExportRules::default() }];
    });
    let open_to = |path: &str, mode| {
        std::fs::set_permissions(fixture.root().join(path), Permissions::from_mode(mode)).unwrap();
    };
    open_to("", 0o711);
    open_to("socket", 0o777);
    // Owner, mode, and result: in a read-only export no user must be able to write through it.
    let cases = [
        ("home/others", 0, 0o644, Ok(())),
        ("home/own", OTHER, 0o644, Ok(())),
        ("pub/others", 0, 0o644, Ok(())),
        ("pub/own", OTHER, 0o444, Err(Status::Access)),
        ("pub/open", 0, 0o666, Err(Status::Access)),
    ];
    for (path, owner, mode, _) in cases {
        let local = fixture.local(path);
        std::fs::write(&local, path).unwrap();
        chown(&local, Some(owner), None).unwrap();
        std::fs::set_permissions(&local, Permissions::from_mode(mode)).unwrap();
    }
    let other = || {
        let user = rustix::process::Uid::from_raw(OTHER);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut holder = holder(&fixture);
        for (path, owner, _, gets) in cases {
            let held = hold_at(&mut holder, path);
            let got = ask(&mut holder.rogue, held);
            assert_eq!(got.map(drop), gets, "{path}");
            let Ok(name) = got else { continue };
            let file = take(&mut holder.rogue, name).unwrap();
            // Through the descriptor, the kernel grants what the file's mode grants.
            let again = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
            let written = SystemFile::options().write(true).open(again);
            assert_eq!(written.is_ok(), owner == OTHER, "{path}: {written:?}");
        }
    };
    std::thread::scope(|scope| scope.spawn(other).join().unwrap());
}

/// A user other than that of this process.
const OTHER: u32 = 70_007;

fn hold_at(holder: &mut Holder, path: &str) -> Held {
    let names: Vec<&str> = path.split('/').collect();
    for _ in 0..10_000 {
        let target = dafs_wire::messages::OpenTarget::Null {
            directory: holder.rogue.root(),
            path: dafs_wire::Path::new(&names),
        };
        let deny = dafs_types::ShareDeny::None;
        let held = holder.try_target(target, ShareAccess::Read, deny).unwrap();
        if held.delegation.is_some() {
            return held;
        }
        std::thread::yield_now();
    }
    panic!("no delegation of {path}");
}

#[test]
fn who_has_no_right_to_a_file_itself_gets_none() {
    let fixture = Fixture::with(|config| {
        lively(|_| {})(config);
        config.filer.locks.mandatory = true;
    });
    for name in ["file", "written"] {
        std::fs::write(fixture.local(name), name).unwrap();
    }
    // Over a network no descriptor can be passed.
    let mut far = Holder::new(&fixture, Transport::Tcp, b"far");
    let held = far.hold("file", ShareAccess::Read);
    assert_eq!(ask(&mut far.rogue, held), Err(Status::NotSupp));
    // A session that may write holds another kind of delegation.
    let mut holder = holder(&fixture);
    let written = holder.hold("written", ShareAccess::Both);
    assert_eq!(ask(&mut holder.rogue, written), Err(Status::Inval));
    // Neither a state id that is no open, nor one of another client.
    let near = holder.hold("file", ShareAccess::Read);
    let (delegation, _) = near.delegation.unwrap();
    let (file, state) = (near.file, near.state);
    for (request, status) in [
        (HandOver { file, state: delegation, delegation }, Status::BadStateId),
        (HandOver { file, state: StateId::ANONYMOUS, delegation }, Status::BadStateId),
        (HandOver { file: written.file, state, delegation }, Status::BadStateId),
        (HandOver { file, state, delegation: held.delegation.unwrap().0 }, Status::BadStateId),
        (HandOver { file, state: held.state, delegation }, Status::BadStateId),
        (HandOver { file, state, delegation: written.delegation.unwrap().0 }, Status::BadStateId),
    ] {
        assert_eq!(ask_for(&mut holder.rogue, request), Err(status), "{request:?}");
    }
    let name = ask(&mut holder.rogue, near).unwrap();
    assert!(take(&mut holder.rogue, name).is_some());
    // Nor after the end of either.
    assert_eq!(holder.give_back(delegation), Status::Ok);
    assert!(ask(&mut holder.rogue, near).is_err());
}

#[test]
fn sessions_that_are_not_whom_the_kernel_saw_connect_read_as_ever() {
    let secret = "a password that nobody guesses, of 256 bits and more";
    let user = OneTimeUser::new("guest", crate::fixture::me(), secret).unwrap();
    let fixture = Fixture::with(|config| {
        lively(|_| {})(config);
        config.one_time_user = Some(user);
        let uid = rustix::process::getuid().as_raw();
        let principals = vec![format!("uid:{uid}").parse().unwrap()];
        config.access.trusted = vec![Peers { principals, ..Peers::default() }];
    });
    std::fs::write(fixture.local("file"), b"content").unwrap();
    let reads = |session: &Session| {
        let file = session.open("file", &OpenOptions::read()).unwrap();
        for _ in 0..20 {
            assert_eq!(read(&file, 0, 10), b"content");
            let _ = file.map().read_at(&mut [0], 0).unwrap();
        }
        session.direct_reads()
    };
    let login = Login::Password { user: "guest".into(), password: secret.into() };
    let named = options().login(login);
    let (_client, session) = fixture.connect_with(Transport::Shm, &named);
    assert_eq!(reads(&session), 0);
    let (_client, session) = fixture.connect_with(Transport::Tcp, &options());
    assert_eq!(reads(&session), 0);
    let (_client, session) = fixture.connect_with(Transport::Shm, &options());
    let act = ActFor::Id { uid: 5001, gid: 5001, groups: &[] };
    let acting = session.acting_for(session.register_credentials(act).unwrap());
    if rustix::process::geteuid().is_root() {
        assert_eq!(reads(&acting), 0);
    } else {
        dafs_tests::skip_part("only root can act as another user");
    }
    assert_eq!(read(&open(&session, "file"), 0, 10), b"content");
    assert!(session.direct_reads() > 0);
}

#[test]
fn a_server_that_hands_nothing_over_is_asked_once() {
    let fixture = Fixture::with(|config| {
        lively(|_| {})(config);
        config.direct_reads = false;
    });
    std::fs::write(fixture.local("file"), b"content").unwrap();
    let (_client, session) = fixture.connect_with(Transport::Shm, &options());
    let file = open_delegated(&session, "file", &OpenOptions::read());
    for _ in 0..1000 {
        assert_eq!(read(&file, 0, 10), b"content");
    }
    assert!(!file.map().is_mapped() && session.direct_reads() == 0);
    drop((file, session));
    let requests = fixture.stop().1.requests;
    assert!(requests < 100, "{requests} requests");
}

// ---- fences and locks -----------------------------------------------------------------

#[test]
fn a_file_with_a_fencing_list_is_read_by_the_server_alone() {
    for object in [FenceObject::File, FenceObject::FileSystem] {
        let fixture = Fixture::with(|config| {
            lively(|_| {})(config);
            config.patience.fence = Duration::from_millis(50);
        });
        std::fs::write(fixture.local("file"), b"content").unwrap();
        std::fs::write(fixture.local("silent"), b"content").unwrap();
        let client = Client::new(ClientConfig::default()).unwrap();
        let member = |name: &str| {
            let options = options().fence_id(name.into());
            client.connect_to(&fixture.address(Transport::Shm), &options).unwrap()
        };
        let [first, second] = [member("first"), member("second")];
        let file = open(&first, "file");
        let mut silent = holder(&fixture);
        let held = silent.hold("silent", ShareAccess::Read);
        let name = ask(&mut silent.rogue, held).unwrap();
        assert!(take(&mut silent.rogue, name).is_some());
        let fence = |path: &str, ids: &[&str]| {
            second
                .set_fence(path, object, FenceAccess::Allow, FenceUpdate::Overwrite, ids)
                .unwrap();
        };
        fence("file", &["first", "second"]);
        let before = first.direct_reads();
        for _ in 0..100 {
            assert_eq!(read(&file, 0, 10), b"content");
            assert_eq!(file.map().read_at(&mut [0], 0).unwrap(), 1);
        }
        assert_eq!(first.direct_reads(), before, "{object:?}");
        // A client that the list excludes and that does not return the file loses its connection.
        if object == FenceObject::File {
            fence("silent", &["first", "second"]);
        }
        silent.rogue.ends();
        // After the fence is removed, everything is as before.
        file.close().unwrap();
        fence("file", &[]);
        let file = open(&first, "file");
        assert_eq!(read(&file, 0, 10), b"content");
    }
}

#[test]
fn a_mandatory_lock_of_ones_own_keeps_other_opens_from_the_file_itself() {
    let fixture = Fixture::with(|config| {
        lively(|_| {})(config);
        config.filer.locks.mandatory = true;
    });
    std::fs::write(fixture.local("file"), b"content").unwrap();
    let (_client, session) = fixture.connect_with(Transport::Shm, &options());
    let file = open(&session, "file");
    let other = session.open("file", &OpenOptions::write()).unwrap();
    let lock = other.try_lock(LockKind::Exclusive, 0, u64::MAX, LockOptions::default()).unwrap();
    assert!(lock.is_none());
    let before = session.direct_reads();
    for _ in 0..100 {
        let _ = file.read_at(&mut [0], 0);
    }
    assert_eq!(session.direct_reads(), before);
    other.unlock(0, u64::MAX).unwrap();
    file.close().unwrap();
    assert_eq!(read(&open(&session, "file"), 0, 10), b"content");
}

// ---- limits ---------------------------------------------------------------------------

#[test]
fn a_session_has_so_many_files_and_no_more() {
    let fixture = Fixture::with(lively(|_| {}));
    let mut holder = holder(&fixture);
    let mut all = Vec::new();
    for number in 0..=FILES_MAX {
        let name = format!("file{number}");
        std::fs::write(fixture.local(&name), b"content").unwrap();
        let held = holder.hold(&name, ShareAccess::Read);
        let asked = ask(&mut holder.rogue, held);
        if number == FILES_MAX {
            assert_eq!(asked, Err(Status::Resource));
        } else {
            assert!(take(&mut holder.rogue, asked.unwrap()).is_some());
        }
        all.push(held);
    }
    let (first, last) = (all[0], all[FILES_MAX]);
    assert_eq!(holder.give_back(first.delegation.unwrap().0), Status::Ok);
    let name = ask(&mut holder.rogue, last).unwrap();
    assert!(take(&mut holder.rogue, name).is_some());
}

/// The maximum number of files for one session.
const FILES_MAX: usize = 256;
