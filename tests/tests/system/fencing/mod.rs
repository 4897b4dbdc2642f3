//! Tests fencing: which clients are admitted, which are excluded, and which may change that.
//! `draining` tests requests in flight. `stress` tests everything concurrently, with random seeds.

mod draining;
mod stress;

use dafs_client::{
    AccessMask, ClientError, FenceAccess, FenceObject, FenceUpdate, Login, OpenOptions, Session,
    SessionOptions, Status,
};
use dafs_memory::{Memory, Pages};
use dafs_server::PasswordFile;
use dafs_types::{
    CacheHint, CachePattern, CookieVerifier, Credentials, FileHandle, ReaddirCookie, RemoveMode,
    ShareAccess, ShareDeny, Stability, StateId, Verifier,
};
use dafs_wire::messages::*;
use dafs_wire::{
    AttributeBitmap, ByteOrder, Checksum, DirectBuffer, DirectBuffers, FileAttributeBlock, Path,
    Request,
};

use crate::fixture::{Fixture, Transport, any, far, over_each, transports};
use crate::rogue::{Rogue, opening};

pub(crate) fn status<T>(result: Result<T, ClientError>) -> Option<Status> {
    result.err().and_then(|error| error.status())
}

/// Returns session options with a fence identity.
pub(crate) fn named(fence_id: &str) -> SessionOptions {
    SessionOptions::default().fence_id(fence_id.into())
}

/// Replaces the list.
pub(crate) fn set(session: &Session, path: &str, object: FenceObject, ids: &[&str]) {
    session.set_fence(path, object, FenceAccess::Allow, FenceUpdate::Overwrite, ids).unwrap();
}

pub(crate) fn set_file(session: &Session, path: &str, ids: &[&str]) {
    set(session, path, FenceObject::File, ids);
}

/// Returns the first request of a client with a fence identity.
pub(crate) fn login(fence_id: &'static str, options: SessionOptions_) -> Request<'static> {
    Request::ClientConnectAuth(ClientConnectAuth {
        options,
        fence_id,
        client_string: fence_id.as_bytes(),
        verifier: Verifier([7; 8]),
        authentication: AuthRequest::None,
    })
}

/// The session options of the wire format.
pub(crate) type SessionOptions_ = dafs_wire::messages::SessionOptions;

fn rogue(fixture: &Fixture, transport: Transport, fence_id: &'static str) -> Rogue {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    rogue.request(0, 0, &login(fence_id, SessionOptions_::default()));
    assert_eq!(rogue.status(), Some(Status::Ok));
    rogue
}

/// Starts a server whose superuser has a password, for operations of trusted clients.
fn with_superuser() -> (Fixture, SessionOptions) {
    let passwords = tempfile::NamedTempFile::new().unwrap();
    let mut file = PasswordFile::default();
    file.set("root", Credentials::superuser(), "secret").unwrap();
    file.save(passwords.path()).unwrap();
    let fixture = Fixture::with(|config| {
        config.password_file = Some(passwords.path().to_owned());
        // A client without a password is another user, even if the tests run as root.
        config.sessions.authentication.anonymous = Some(Credentials::plain(4711, 4711).unwrap());
    });
    let login = Login::Password { user: "root".into(), password: "secret".into() };
    (fixture, SessionOptions::default().login(login))
}

#[test]
fn a_list_lets_in_whom_it_names_and_nobody_else() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"content").unwrap();
        let (_, owner) = fixture.connect(transport);
        let (_, a) = fixture.connect_with(transport, &named("a"));
        let (_, b) = fixture.connect_with(transport, &named("b"));
        let files: Vec<_> =
            [&a, &b].map(|s| s.open("/file", &OpenOptions::write()).unwrap()).into();
        assert_eq!(owner.fencing_list("/file", FenceObject::File).unwrap(), [""; 0]);
        set_file(&owner, "/file", &["a"]);
        assert_eq!(owner.fencing_list("/file", FenceObject::File).unwrap(), ["a"]);
        files[0].write_at(b"by a", 0).unwrap();
        assert_eq!(status(files[1].write_at(b"by b", 0)), Some(Status::Access));
        assert_eq!(status(files[1].read_at(&mut [0; 4], 0)), Some(Status::Access));
        assert_eq!(status(b.metadata("/file")), Some(Status::Access));
        // A client without an identity is in no list, not even the owner.
        assert_eq!(status(owner.open("/file", &OpenOptions::read())), Some(Status::Access));
        // Other files are not affected.
        b.open("/other", &OpenOptions::write()).unwrap();
        let change = |access, update, ids: &[&str]| {
            owner.set_fence("/file", FenceObject::File, access, update, ids)
        };
        change(FenceAccess::Allow, FenceUpdate::Append, &["b", "c"]).unwrap();
        // The open from before the fence is still valid.
        files[1].write_at(b"by b", 0).unwrap();
        change(FenceAccess::Deny, FenceUpdate::Remove, &["a"]).unwrap();
        assert_eq!(status(files[0].write_at(b"by a", 0)), Some(Status::Access));
        let left = change(FenceAccess::Deny, FenceUpdate::Remove, &["b", "c"]);
        assert_eq!(status(left), Some(Status::Inval), "nobody would be left");
        assert_eq!(owner.fencing_list("/file", FenceObject::File).unwrap(), ["b", "c"]);
        set_file(&owner, "/file", &[]);
        files[0].write_at(b"by a", 0).unwrap();
        let content = std::iter::from_fn(|| Some(std::fs::read(fixture.local("file")).unwrap()));
        drop(files);
        assert!(content.take(3).all(|content| content.len() == 7));
    });
}

/// Returns every request that names a handle, for one file and its directory.
fn requests<'a>(
    (root, file, state): (FileHandle, FileHandle, StateId),
    buffer: DirectBuffer,
    attributes: FileAttributeBlock<'a>,
    names: &'a [&'a str],
    buffers: &'a [DirectBuffer],
) -> Vec<(Request<'a>, Touches)> {
    use Touches::{Both, Directory, File};
    let (offset, length, hint) = (0, 8, CacheHint(0));
    let (stability, checksum) = (Stability::FileSync, Checksum::NONE);
    let wanted = AttributeBitmap(0xf);
    let buffers = DirectBuffers::from(buffers);
    let data = InlineData::Here(b"intruder");
    let placement = Placement::Packed;
    let (cookie, verifier) = (ReaddirCookie(0), CookieVerifier::default());
    let (names_bytes, result_bytes_max) = (1000, 1000);
    let pattern = CachePattern::WillNeed;
    let (access, deny) = (ShareAccess::Read, ShareDeny::None);
    let lock = LockType::Write;
    let directory = root;
    let path = Path::new(names);
    let object = NewObject::Directory;
    let copy = CopyRange {
        source: file,
        file,
        source_state: state,
        state,
        source_offset: 0,
        offset: 100,
        length: 8,
    };
    vec![
        (Request::Access(Access { file, access: AccessMask::READ }), File),
        (Request::Allocate(FileRange { file, state, offset, length: 8 }), File),
        (Request::Deallocate(FileRange { file, state, offset, length: 8 }), File),
        (Request::Seek(Seek { file, state, offset, hole: true }), File),
        (Request::CloneRange(copy), File),
        (Request::CopyRange(copy), File),
        (Request::CacheHint(CacheHintRequest { file, offset, length, pattern, hint }), File),
        (Request::Commit(Commit { file, offset, length: 0 }), File),
        (Request::GetAttrInline(GetAttributes { file, wanted }), File),
        (Request::GetAttrDirect(GetAttributesDirect { file, wanted, buffer }), File),
        (Request::GetFsAttr(GetAttributes { file, wanted }), File),
        (Request::Link(Link { source: file, directory, name: "link" }), Both),
        (Request::Open(opening(directory, path)), Both),
        (Request::OpenDowngrade(OpenDowngrade { file, state, access, deny, key: None }), File),
        (Request::OpenAttr(OneHandle { file }), File),
        (Request::ReadInline(ReadInline { file, state, offset, length, hint }), File),
        (Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers }), File),
        (Request::ReadLinkInline(OneHandle { file }), File),
        (Request::ReadLinkDirect(ReadLinkDirect { file, buffer }), File),
        (
            Request::WriteInline(WriteInline {
                file,
                state,
                offset,
                stability,
                hint,
                placement,
                data,
            }),
            File,
        ),
        (
            Request::WriteDirect(WriteDirect {
                file,
                state,
                offset,
                length,
                stability,
                hint,
                checksum,
                buffers,
            }),
            File,
        ),
        (
            Request::AppendInline(AppendInline { file, state, stability, hint, placement, data }),
            File,
        ),
        (
            Request::AppendDirect(AppendDirect {
                file,
                state,
                stability,
                length,
                hint,
                checksum,
                buffer,
            }),
            File,
        ),
        (Request::SetAttrInline(SetAttributesInline { file, state, attributes }), File),
        (Request::SetAttrDirect(SetAttributesDirect { file, state, checksum, buffer }), File),
        (Request::Verify(Verify { file, attributes }), File),
        (Request::NVerify(Verify { file, attributes }), File),
        (
            Request::Lock(Lock {
                file,
                lock_type: lock,
                options: LockOptions::default(),
                state,
                offset,
                length: 8,
            }),
            File,
        ),
        (Request::LockT(LockTest { file, lock_type: lock, owner: b"x", offset, length: 8 }), File),
        (Request::LockU(Unlock { file, lock_type: lock, state, offset, length: 8 }), File),
        (Request::Remove(Remove { directory, name: "file", mode: RemoveMode::Unchecked }), Both),
        (
            Request::Rename(Rename {
                source: directory,
                target: directory,
                old_name: "file",
                new_name: "moved",
            }),
            Both,
        ),
        (
            Request::Rename(Rename {
                source: directory,
                target: directory,
                old_name: "other",
                new_name: "file",
            }),
            Both,
        ),
        (Request::Close(Close { file, state }), File),
        (Request::Create(Create { directory, name: "new", object, attributes }), Directory),
        (Request::Lookup(Lookup { directory, path }), Directory),
        (Request::LookupP(OneHandle { file: directory }), Directory),
        (
            Request::ReadDirInline(ReadDirectory {
                directory,
                cookie,
                verifier,
                names_bytes,
                result_bytes_max,
                wanted,
            }),
            Directory,
        ),
        (
            Request::ReadDirDirect(ReadDirectoryDirect {
                directory,
                cookie,
                verifier,
                names_bytes,
                result_bytes_max,
                wanted,
                buffers,
            }),
            Directory,
        ),
    ]
}

/// Whether a request is affected by a fence around the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touches {
    File,
    Both,
    Directory,
}

#[test]
fn whatever_names_or_finds_a_fenced_object_is_refused() {
    for transport in transports() {
        let (fixture, superuser) = with_superuser();
        std::fs::write(fixture.local("file"), b"original").unwrap();
        std::fs::write(fixture.local("other"), b"another one").unwrap();
        for name in ["file", "other", "."] {
            let path = fixture.local(name);
            std::os::unix::fs::chown(&path, Some(4711), Some(4711)).unwrap_or_default();
        }
        let (_, trusted) = fixture.connect_with(transport, &superuser);
        for object in [FenceObject::File, FenceObject::FileSystem] {
            let mut b = rogue(&fixture, transport, "b");
            let root = b.root();
            let (file, state) = b.open("file");
            let memory = Memory::shared(4096, Pages::Small).unwrap();
            let region = b.expose(&memory);
            let buffer = b.buffer(&region, 0, 1000);
            let buffers = [buffer];
            let mut room = [0; 64];
            let none = dafs_types::SetAttributes { size: Some(0), ..Default::default() };
            let attributes =
                FileAttributeBlock::encode_set(ByteOrder::NATIVE, &none, &mut room).unwrap();
            set(&trusted, "/file", object, &["a"]);
            let asked = (root, file, state);
            for (request, touches) in requests(asked, buffer, attributes, &["file"], &buffers) {
                if object == FenceObject::FileSystem || touches != Touches::Directory {
                    let found = b.outcome(&request);
                    assert_eq!(found, Some(Status::Access), "{object:?} {request:?}");
                }
            }
            // It may make the requests that are needed to be admitted again, if its user may.
            b.root();
            let ask = Request::GetFencingList(GetFencingList { file });
            let answer = b.outcome(&ask).unwrap();
            assert!(matches!(answer, Status::Ok | Status::NotAuthorized), "{answer:?}");
            drop(b);
            set(&trusted, "/", object, &[]);
            // A fence around one file can be removed from that file.
            if object == FenceObject::File {
                set(&trusted, "/file", object, &[]);
            }
            assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"original");
            assert!(!fixture.local("moved").exists() && !fixture.local("link").exists());
            assert!(!fixture.local("new").exists() && fixture.local("other").exists());
        }
    }
}

#[test]
fn owners_fence_files_and_trusted_clients_all() {
    for transport in transports() {
        let (fixture, superuser) = with_superuser();
        std::fs::write(fixture.local("file"), b"content").unwrap();
        let (_, trusted) = fixture.connect_with(transport, &superuser);
        // Over shared memory this is the tests' own user, as the kernel reports.
        let nobody = match transport {
            Transport::Tcp | Transport::Verbs => named("x"),
            Transport::Shm => {
                set(&trusted, "/", FenceObject::FileSystem, &["z"]);
                set(&trusted, "/", FenceObject::FileSystem, &[]);
                continue;
            }
        };
        let (_, session) = fixture.connect_with(transport, &nobody);
        for object in [FenceObject::File, FenceObject::FileSystem] {
            let refused = session.fencing_list("/file", object);
            assert_eq!(status(refused), Some(Status::NotAuthorized));
            let (access, update) = (FenceAccess::Allow, FenceUpdate::Overwrite);
            let refused = session.set_fence("/file", object, access, update, &["x"]);
            assert_eq!(status(refused), Some(Status::NotAuthorized));
        }
        set(&trusted, "/", FenceObject::FileSystem, &["y"]);
        set_file(&trusted, "/", &["x", "y"]);
        assert_eq!(trusted.fencing_list("/", FenceObject::FileSystem).unwrap(), ["y"]);
        assert_eq!(trusted.fencing_list("/", FenceObject::File).unwrap(), ["x", "y"]);
        // Both fences must admit it.
        assert_eq!(status(session.metadata("/")), Some(Status::Access));
        // A fence can be removed from outside, because its root is reachable.
        set(&trusted, "/", FenceObject::FileSystem, &[]);
        session.metadata("/").unwrap();
    }
}

#[test]
fn lists_survive_the_server_with_a_journal_and_end_without_one() {
    let fixture = Fixture::with_journal();
    std::fs::write(fixture.local("file"), b"content").unwrap();
    std::fs::write(fixture.local("lifted"), b"content").unwrap();
    let (_, owner) = fixture.connect(far());
    set_file(&owner, "/file", &["a", "b"]);
    set_file(&owner, "/lifted", &["a"]);
    set_file(&owner, "/lifted", &[]);
    let (access, update) = (FenceAccess::Deny, FenceUpdate::Remove);
    owner.set_fence("/file", FenceObject::File, access, update, &["b"]).unwrap();
    // Twice: the second time, the fences are read from a checkpoint.
    let mut fixture = fixture;
    for _ in 0..2 {
        fixture = fixture.journaled();
        let (_, b) = fixture.connect_with(far(), &named("b"));
        assert_eq!(status(b.open("/file", &OpenOptions::read())), Some(Status::Access));
        b.open("/lifted", &OpenOptions::read()).unwrap().close().unwrap();
        let (_, a) = fixture.connect_with(any(), &named("a"));
        a.open("/file", &OpenOptions::read()).unwrap().close().unwrap();
        assert_eq!(a.fencing_list("/file", FenceObject::File).unwrap(), ["a"]);
        a.disconnect().unwrap();
        b.disconnect().unwrap();
    }
    let (directory, _) = fixture.stop();
    let fixture = Fixture::again(directory);
    let (_, b) = fixture.connect_with(far(), &named("b"));
    b.open("/file", &OpenOptions::read()).unwrap();
}

#[test]
fn a_removed_file_takes_its_list_along() {
    over_each(|fixture, transport| {
        let (_, a) = fixture.connect_with(transport, &named("a"));
        for is_open in [false, true] {
            let file = a.open("/file", &OpenOptions::write()).unwrap();
            set_file(&a, "/file", &["a"]);
            let (_, b) = fixture.connect_with(transport, &named("b"));
            assert_eq!(status(b.remove("/file")), Some(Status::Access));
            if is_open {
                a.remove("/file").unwrap();
                file.write_at(b"still here", 0).unwrap();
                file.close().unwrap();
            } else {
                file.close().unwrap();
                a.remove("/file").unwrap();
            }
            b.open("/file", &OpenOptions::write()).unwrap().close().unwrap();
            b.remove("/file").unwrap();
        }
    });
}
