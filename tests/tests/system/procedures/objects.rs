//! Tests objects, their names and attributes (draft 6.1.5, 6.1.6, 6.5).

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use dafs_memory::{Memory, Pages};
use dafs_types::attributes::DeviceNumber;
use dafs_types::{
    AccessMask, CookieVerifier, FileHandle, ObjectType, ReaddirCookie, SetAttributes, SetTime,
    StateId, Status, Timestamp,
};
use dafs_wire::attributes::{file, file_system};
use dafs_wire::messages::{
    Access, Create, GetAttributes, GetAttributesDirect, Link, NewObject, OneHandle, ReadDirectory,
    ReadDirectoryDirect, ReadLinkDirect, Rename, SetAttributesDirect, SetAttributesInline,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, Checksum, DirectBuffers, DirectoryEntries, FileAttributeBlock,
    Request, parse_link_text,
};

use super::{found, walk};
use crate::fixture::{Fixture, await_that, far, over_each};
use crate::rogue::{Rogue, status_of};

#[test]
fn a_walk_says_how_far_it_got() {
    over_each(|fixture, transport| {
        std::fs::create_dir_all(fixture.local("a/b")).unwrap();
        std::fs::write(fixture.local("a/b/file"), b"x").unwrap();
        std::os::unix::fs::symlink("b", fixture.local("a/link")).unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let root = rogue.root();
        let (status, b, count) = walk(&mut rogue, &["a", "b"]);
        assert_eq!((status, count), (Status::Ok, 2));
        let (status, file, count) = walk(&mut rogue, &["a", "b", "file"]);
        assert_eq!((status, count), (Status::Ok, 3));
        assert_eq!(walk(&mut rogue, &["a", "b", "none", "x"]), (Status::NoEnt, b, 2));
        assert_eq!(walk(&mut rogue, &["none"]), (Status::NoEnt, root, 0));
        let (status, _, count) = walk(&mut rogue, &["a", "b", "file", "x"]);
        assert_eq!((status, count), (Status::NotDir, 3));
        // A link is found but not followed, which the client does.
        let (status, link, count) = walk(&mut rogue, &["a", "link"]);
        assert_eq!((status, count), (Status::Ok, 2));
        let (status, reached, count) = walk(&mut rogue, &["a", "link", "file"]);
        assert_eq!((status, reached, count), (Status::Symlink, link, 2));
        let parent = Request::LookupP(OneHandle { file: b });
        let answer = rogue.ask(&parent).unwrap();
        assert_eq!(found!(LookupP, &answer).file, walk(&mut rogue, &["a"]).1);
        for (file, expected) in [(root, Status::NoEnt), (file, Status::NotDir)] {
            let parent = Request::LookupP(OneHandle { file });
            assert_eq!(rogue.outcome(&parent), Some(expected));
        }
    });
}

#[test]
fn each_right_is_told_by_itself() {
    over_each(|fixture, transport| {
        std::fs::create_dir(fixture.local("d")).unwrap();
        std::fs::write(fixture.local("f"), b"x").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let file_write = AccessMask::MODIFY | AccessMask::EXTEND;
        let directory_write = file_write | AccessMask::DELETE;
        let is_root = rustix::process::getuid().is_root();
        for (name, mode, given) in [
            ("f", 0o400, AccessMask::READ),
            ("f", 0o200, file_write),
            ("f", 0o100, AccessMask::EXECUTE),
            ("d", 0o400, AccessMask::READ),
            ("d", 0o200, directory_write),
            ("d", 0o100, AccessMask::LOOKUP),
        ] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(fixture.local(name), mode).unwrap();
            let (_, file, _) = walk(&mut rogue, &[name]);
            // The superuser has all rights except to execute what no user may execute.
            let everything = if name == "d" {
                AccessMask::READ | directory_write | AccessMask::LOOKUP
            } else {
                AccessMask::READ | file_write | (given & AccessMask::EXECUTE)
            };
            let given = if is_root { everything } else { given };
            for wanted in (0..6).map(|bit| AccessMask(1 << bit)).chain([AccessMask::ALL]) {
                let request = Request::Access(Access { file, access: wanted });
                let answer = rogue.ask(&request).unwrap();
                let result = found!(Access, &answer);
                assert_eq!(result.supported, wanted);
                assert_eq!(result.access, given & wanted, "{name} {wanted:?}");
            }
        }
        // Bits without a meaning are not supported.
        let (_, file, _) = walk(&mut rogue, &["f"]);
        let request = Request::Access(Access { file, access: AccessMask(0xffc1) });
        let answer = rogue.ask(&request).unwrap();
        assert_eq!(found!(Access, &answer).supported, AccessMask::READ);
    });
}

/// All attributes with a layout: numbers 1 to 25.
const EVERY: AttributeBitmap = AttributeBitmap((1 << 25) - 1);
/// Attributes that local file systems do not store.
const MISSING: AttributeBitmap = file::bits::ARCHIVE
    .with(file::bits::HIDDEN)
    .with(file::bits::SYSTEM)
    .with(file::bits::TIME_BACKUP);

#[test]
fn every_attribute_is_told_or_said_to_be_missing() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), [1; 12_345]).unwrap();
        std::fs::hard_link(fixture.local("file"), fixture.local("same")).unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (_, file, _) = walk(&mut rogue, &["file"]);
        let request = Request::GetAttrInline(GetAttributes { file, wanted: EVERY });
        let answer = rogue.ask(&request).unwrap();
        let block = found!(GetAttrInline, &answer).attributes;
        // Each requested attribute has its place; a missing one has an unused place.
        assert_eq!(block.included(), EVERY);
        assert_eq!(block.valid().and(MISSING), AttributeBitmap::NONE);
        assert!(block.valid().contains(file::bits::MANDATORY));
        let told = block.file();
        let local = std::fs::metadata(fixture.local("file")).unwrap();
        assert_eq!(told.object_type, Some(ObjectType::Regular));
        assert_eq!((told.size, told.link_count), (Some(12_345), Some(2)));
        assert_eq!(told.mode, Some(local.mode() & 0o7777));
        assert_eq!((told.file_id, told.file_handle), (Some(local.ino()), Some(file)));
        assert_eq!(told.space_used, Some(local.blocks() * 512));
        let time = |seconds, nanoseconds: i64| {
            Some(Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap() })
        };
        assert_eq!(told.time_access, time(local.atime(), local.atime_nsec()));
        assert_eq!(told.time_modify, time(local.mtime(), local.mtime_nsec()));
        assert_eq!(told.time_metadata, time(local.ctime(), local.ctime_nsec()));
        assert!(told.change.is_some() && told.time_delta.is_some());
        assert!(told.owner.is_some() && told.owner_group.is_some());
        assert_eq!(told.named_attributes, Some(false));
        // Only requested attributes are returned.
        for number in 1..=25 {
            let wanted = AttributeBitmap::of(number);
            let request = Request::GetAttrInline(GetAttributes { file, wanted });
            let answer = rogue.ask(&request).unwrap();
            let one = found!(GetAttrInline, &answer).attributes;
            assert_eq!((one.included(), one.valid()), (wanted, wanted.and(block.valid())));
        }
    });
}

#[test]
fn every_attribute_of_a_file_system_is_told() {
    over_each(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let file = rogue.root();
        let wanted = file_system::bits::ALL;
        let answer = rogue.ask(&Request::GetFsAttr(GetAttributes { file, wanted })).unwrap();
        let block = found!(GetFsAttr, &answer).attributes;
        assert_eq!(block.included(), wanted);
        assert!(block.valid().contains(file_system::bits::MANDATORY));
        let told = block.file_system();
        let yes = Some(true);
        assert_eq!((told.link_support, told.symlink_support, told.can_set_time), (yes, yes, yes));
        assert_eq!((told.case_preserving, told.chown_restricted), (yes, yes));
        assert_eq!((told.homogeneous, told.no_trunc, told.unique_handle), (yes, yes, yes));
        assert_eq!((told.lease_time, told.rd_attr_error), (Some(90), Some(0)));
        assert!(told.case_insensitive.is_some() && told.acl_support.is_some());
        assert!(told.max_name >= Some(100) && told.max_file_size >= Some(1 << 40));
        assert!(told.max_read >= Some(1 << 20) && told.max_write >= Some(1 << 20));
        assert!(told.max_append >= Some(65_536) && told.preferred_io_size.is_some());
        assert!(told.files_total >= told.files_free && told.files_available.is_some());
        assert!(told.space_total >= told.space_free && told.space_available.is_some());
        assert_eq!(told.fs_handle, Some(file.fs()));
        assert_eq!(told.handle_expire_type, Some(0), "handles are persistent");
        let supported = AttributeBitmap(told.supported_file_attributes.unwrap());
        assert_eq!(supported, EVERY.without(MISSING));
        assert_eq!(told.supported_fs_attributes, Some(wanted.0));
        // There is no failover server to report.
        assert!(!block.valid().contains(AttributeBitmap::of(30)));
    });
}

/// Returns the change attribute in a reply.
fn change_of(answer: &[u8]) -> u64 {
    found!(GetAttrInline, answer).attributes.file().change.unwrap()
}

#[test]
fn attributes_go_through_memory_as_well() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), [1; 100]).unwrap();
        std::os::unix::fs::symlink("over/there", fixture.local("link")).unwrap();
        for sealed in [false, true] {
            let mut rogue = if sealed {
                Rogue::logged_in_sealed(&fixture.address(transport))
            } else {
                Rogue::logged_in(&fixture.address(transport))
            };
            let summed = |bytes: &[u8]| if sealed { Checksum::of(bytes) } else { Checksum::NONE };
            let memory = Memory::shared(16 << 10, Pages::Small).unwrap();
            let region = rogue.expose(&memory);
            let room = rogue.buffer(&region, 64, 8192);
            let (_, file, _) = walk(&mut rogue, &["file"]);
            let inline = Request::GetAttrInline(GetAttributes { file, wanted: EVERY });
            // Shortly after a change, the attribute still advances.
            let mut seen = 0;
            await_that("the change attribute stands", || {
                let answer = rogue.ask(&inline).unwrap();
                let last = std::mem::replace(&mut seen, change_of(&answer));
                last == seen
            });
            let answer = rogue.ask(&inline).unwrap();
            let expected = found!(GetAttrInline, &answer).attributes;
            let direct = GetAttributesDirect { file, wanted: EVERY, buffer: room };
            let direct_answer = rogue.ask(&Request::GetAttrDirect(direct)).unwrap();
            let bytes = memory.to_vec(64, expected.bytes().len());
            assert_eq!(bytes, expected.bytes());
            assert_eq!(found!(GetAttrDirect, &direct_answer).checksum, summed(&bytes));

            let (_, link, _) = walk(&mut rogue, &["link"]);
            let answer = rogue.ask(&Request::ReadLinkInline(OneHandle { file: link })).unwrap();
            assert_eq!(found!(ReadLinkInline, &answer).text, b"over/there");
            let request = ReadLinkDirect { file: link, buffer: room };
            let answer = rogue.ask(&Request::ReadLinkDirect(request)).unwrap();
            let checksum = found!(ReadLinkDirect, &answer).checksum;
            let bytes = memory.to_vec(64, 4 + 10);
            assert_eq!(parse_link_text(ByteOrder::NATIVE, &bytes).unwrap(), b"over/there");
            assert_eq!(checksum, summed(&bytes));
            let nothing = Request::ReadLinkInline(OneHandle { file });
            assert_eq!(rogue.outcome(&nothing), Some(Status::Inval), "it is no link");

            let mode = if sealed { 0o600 } else { 0o640 };
            let wanted =
                SetAttributes { mode: Some(mode), size: Some(7), ..SetAttributes::default() };
            let mut encoded = [0; 256];
            let block =
                FileAttributeBlock::encode_set(ByteOrder::NATIVE, &wanted, &mut encoded).unwrap();
            let bytes = block.bytes();
            memory.write(0, bytes);
            let buffer = rogue.buffer(&region, 0, u32::try_from(bytes.len()).unwrap());
            let (state, checksum) = (StateId::ANONYMOUS, summed(bytes));
            let set = SetAttributesDirect { file, state, checksum, buffer };
            if sealed {
                let wrong = SetAttributesDirect { checksum: Checksum::of(b"else"), ..set };
                let refused = rogue.outcome(&Request::SetAttrDirect(wrong));
                assert_eq!(refused, Some(Status::Chksum));
            }
            let answer = rogue.ask(&Request::SetAttrDirect(set)).unwrap();
            let bits = file::bits::MODE.with(file::bits::OBJECT_SIZE);
            assert_eq!(found!(SetAttrDirect, &answer).set, bits);
            let local = std::fs::metadata(fixture.local("file")).unwrap();
            assert_eq!((local.mode() & 0o7777, local.len()), (mode, 7));
        }
    });
}

#[test]
fn what_can_be_set_is_set_and_told_and_no_more() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (_, file, _) = walk(&mut rogue, &["file"]);
        let then = Timestamp { seconds: 1_000_000_000, nanoseconds: 250 };
        let uid = rustix::process::getuid().as_raw();
        let wanted = SetAttributes {
            mode: Some(0o604),
            size: Some(4096),
            time_access: Some(SetTime::Client(then)),
            time_modify: Some(SetTime::Server),
            owner: Some(uid.to_string()),
            ..SetAttributes::default()
        };
        let mut room = [0; 256];
        let attributes =
            FileAttributeBlock::encode_set(ByteOrder::NATIVE, &wanted, &mut room).unwrap();
        let state = StateId::ANONYMOUS;
        let set = SetAttributesInline { file, state, attributes };
        let answer = rogue.ask(&Request::SetAttrInline(set)).unwrap();
        assert_eq!(found!(SetAttrInline, &answer).set, attributes.valid());
        let local = std::fs::metadata(fixture.local("file")).unwrap();
        assert_eq!((local.mode() & 0o7777, local.len()), (0o604, 4096));
        assert_eq!((local.atime(), local.atime_nsec()), (1_000_000_000, 250));
        assert!(local.mtime() > then.seconds, "the server's time");
        assert_eq!(local.uid(), uid);
        // A block that sets an attribute which cannot be set: the link count.
        let told = dafs_types::FileAttributes {
            link_count: Some(3),
            ..dafs_types::FileAttributes::default()
        };
        let wanted = file::bits::NUM_LINKS;
        let attributes =
            FileAttributeBlock::encode_file(ByteOrder::NATIVE, wanted, &told, &mut room).unwrap();
        let set = SetAttributesInline { file, state, attributes };
        assert_eq!(rogue.outcome(&Request::SetAttrInline(set)), Some(Status::Inval));
    });
}

#[test]
fn every_type_of_object_is_made_and_told() {
    over_each(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let directory = rogue.root();
        let device = DeviceNumber { major: 1, minor: 3 };
        let mut objects = vec![
            ("directory", NewObject::Directory),
            ("link", NewObject::SymbolicLink(b"text")),
            ("socket", NewObject::Socket),
            ("fifo", NewObject::Fifo),
        ];
        if rustix::process::getuid().is_root() {
            objects.push(("character", NewObject::CharacterDevice(device)));
            objects.push(("block", NewObject::BlockDevice(device)));
        } else {
            dafs_tests::skip_part("only root can make devices");
        }
        for (name, object) in objects {
            let attributes = FileAttributeBlock::empty(ByteOrder::NATIVE);
            let create = Request::Create(Create { directory, name, object, attributes });
            let answer = rogue.ask(&create).unwrap();
            if status_of(&answer) == Status::Perm && name.len() >= 5 && object != NewObject::Fifo {
                // Containers may forbid even the superuser to create devices.
                let is_device =
                    matches!(object, NewObject::CharacterDevice(_) | NewObject::BlockDevice(_));
                assert!(is_device, "{name}");
                dafs_tests::skip_part("root may not make devices here");
                continue;
            }
            let made = found!(Create, &answer);
            assert_ne!(made.directory.before, made.directory.after);
            let wanted = file::bits::OBJECT_TYPE.with(file::bits::RAW_DEV);
            let ask = Request::GetAttrInline(GetAttributes { file: made.file, wanted });
            let answer = rogue.ask(&ask).unwrap();
            let told = found!(GetAttrInline, &answer).attributes.file();
            assert_eq!(told.object_type, Some(object.object_type()));
            let kind = std::fs::symlink_metadata(fixture.local(name)).unwrap().file_type();
            let is_right = match object {
                NewObject::Directory => kind.is_dir(),
                NewObject::SymbolicLink(_) => kind.is_symlink(),
                NewObject::Socket => kind.is_socket(),
                NewObject::Fifo => kind.is_fifo(),
                NewObject::CharacterDevice(_) => {
                    kind.is_char_device() && told.raw_device == Some(device)
                }
                NewObject::BlockDevice(_) => {
                    kind.is_block_device() && told.raw_device == Some(device)
                }
            };
            assert!(is_right, "{name}");
            assert_eq!(rogue.outcome(&create), Some(Status::Exist));
        }
    });
}

#[test]
fn changes_of_names_tell_what_they_did_to_directories() {
    over_each(|fixture, transport| {
        std::fs::create_dir(fixture.local("from")).unwrap();
        std::fs::create_dir(fixture.local("to")).unwrap();
        std::fs::write(fixture.local("from/a"), b"x").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (source, target) = (walk(&mut rogue, &["from"]).1, walk(&mut rogue, &["to"]).1);
        let (_, file, _) = walk(&mut rogue, &["from", "a"]);
        // Changes within one step of the file system's clock are not distinguished.
        let step = || {
            let probe = fixture.root().join("probe");
            let stamp = || {
                std::fs::write(&probe, b"x").unwrap();
                std::fs::metadata(&probe).unwrap().modified().unwrap()
            };
            let begun = stamp();
            await_that("the clock goes on", || stamp() != begun);
        };
        step();
        let link = Request::Link(Link { source: file, directory: target, name: "b" });
        let answer = rogue.ask(&link).unwrap();
        let change = found!(Link, &answer).directory;
        assert_ne!(change.before, change.after);
        step();
        let wanted = file::bits::CHANGE;
        let asked = Request::GetAttrInline(GetAttributes { file: target, wanted });
        let mut settled = 0;
        await_that("the change attribute stands", || {
            let answer = rogue.ask(&asked).unwrap();
            let last = std::mem::replace(&mut settled, change_of(&answer));
            last == settled
        });
        let rename = Rename { source, target, old_name: "a", new_name: "c" };
        let answer = rogue.ask(&Request::Rename(rename)).unwrap();
        let result = found!(Rename, &answer);
        assert_ne!(result.source.before, result.source.after);
        assert_ne!(result.target.before, result.target.after);
        assert!(settled >= change.after, "a number is never used again");
        assert_eq!(result.target.before, settled, "nothing came between");
        assert_eq!(walk(&mut rogue, &["to", "c"]).1, file);
        assert_eq!(rogue.outcome(&Request::Rename(rename)), Some(Status::NoEnt));
    });
}

fn listing(directory: FileHandle, cookie: u64, verifier: CookieVerifier) -> ReadDirectory {
    let wanted = file::bits::FILE_ID;
    let cookie = ReaddirCookie(cookie);
    let (names_bytes, result_bytes_max) = (400, 600);
    ReadDirectory { directory, cookie, verifier, names_bytes, result_bytes_max, wanted }
}

/// A byte that no name contains.
const UNTOUCHED: u8 = 0xee;

/// Returns the names and cookies of a page in order.
fn entries(entries: &DirectoryEntries<'_>) -> Vec<(String, u64)> {
    let of = |entry: dafs_wire::DirectoryEntry<'_>| {
        assert!(entry.attributes.file().file_id.is_some());
        (entry.name.to_owned(), entry.cookie.0)
    };
    entries.iter().map(|entry| of(entry.unwrap())).collect()
}

#[test]
fn a_directory_is_listed_page_by_page_either_way() {
    over_each(|fixture, transport| {
        std::fs::create_dir(fixture.local("d")).unwrap();
        let names: BTreeSet<String> = (0..40).map(|number| format!("entry-{number}")).collect();
        for name in &names {
            std::fs::write(fixture.local(&format!("d/{name}")), b"x").unwrap();
        }
        let mut rogue = Rogue::logged_in_sealed(&fixture.address(transport));
        let (_, directory, _) = walk(&mut rogue, &["d"]);
        let memory = Memory::shared(16 << 10, Pages::Small).unwrap();
        let region = rogue.expose(&memory);
        for is_direct in [false, true] {
            let (mut seen, mut pages) = (BTreeSet::new(), 0);
            let (mut cookie, mut verifier, mut is_end) = (0, CookieVerifier([0; 8]), false);
            while !is_end {
                let page = listing(directory, cookie, verifier);
                let listed = if is_direct {
                    memory.write(0, &[UNTOUCHED; 1024]);
                    // Into two adjacent pieces.
                    let buffers = [rogue.buffer(&region, 0, 304), rogue.buffer(&region, 304, 720)];
                    let request = ReadDirectoryDirect {
                        directory,
                        cookie: page.cookie,
                        verifier,
                        names_bytes: page.names_bytes,
                        result_bytes_max: page.result_bytes_max,
                        wanted: page.wanted,
                        buffers: DirectBuffers::from(&buffers[..]),
                    };
                    let answer = rogue.ask(&Request::ReadDirDirect(request)).unwrap();
                    let result = found!(ReadDirDirect, &answer);
                    (verifier, is_end) = (result.verifier, result.end_of_directory);
                    // A page ends with a name.
                    let mut bytes = memory.to_vec(0, 1024);
                    while bytes.last() == Some(&UNTOUCHED) {
                        bytes.pop();
                    }
                    assert!(bytes.len() <= 600);
                    let found = DirectoryEntries::parse(ByteOrder::NATIVE, &bytes).unwrap();
                    assert_eq!(result.checksum, Checksum::of(&bytes));
                    entries(&found)
                } else {
                    let answer = rogue.ask(&Request::ReadDirInline(page)).unwrap();
                    let result = found!(ReadDirInline, &answer);
                    (verifier, is_end) = (result.verifier, result.end_of_directory);
                    entries(&result.entries)
                };
                pages += 1;
                for (name, place) in listed {
                    assert!(place > 2, "0 to 2 are the protocol's own");
                    assert!(seen.insert(name), "listed twice");
                    cookie = place;
                }
            }
            // Without "." and "..", and without omissions.
            assert_eq!(seen, names);
            assert!(pages > 2);
        }
    });
}

#[test]
fn cookies_that_were_never_given_are_refused() {
    over_each(|fixture, transport| {
        for name in ["a", "b", "c"] {
            std::fs::write(fixture.local(name), b"x").unwrap();
        }
        std::fs::create_dir(fixture.local("d")).unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (root, other) = (rogue.root(), walk(&mut rogue, &["d"]).1);
        let answer =
            rogue.ask(&Request::ReadDirInline(listing(root, 0, CookieVerifier([0; 8])))).unwrap();
        let result = found!(ReadDirInline, &answer);
        let (verifier, (_, cookie)) = (result.verifier, entries(&result.entries)[0].clone());
        let mut list = |directory, cookie, verifier| {
            rogue.outcome(&Request::ReadDirInline(listing(directory, cookie, verifier))).unwrap()
        };
        assert_eq!(list(root, cookie, verifier), Status::Ok);
        assert_eq!(list(root, 1, verifier), Status::BadCookie);
        assert_eq!(list(root, 2, verifier), Status::BadCookie);
        assert_eq!(list(root, cookie, CookieVerifier([9; 8])), Status::BadCookie);
        assert_eq!(list(other, cookie, verifier), Status::BadCookie);
        // There is not enough space for a single entry.
        let page = ReadDirectory { result_bytes_max: 24, ..listing(root, 0, verifier) };
        let status = rogue.outcome(&Request::ReadDirInline(page)).unwrap();
        assert!([Status::TooSmall, Status::ReaddirNoSpc].contains(&status), "{status:?}");
        let file = walk(&mut rogue, &["a"]).1;
        let no_directory = Request::ReadDirInline(listing(file, 0, verifier));
        assert_eq!(rogue.outcome(&no_directory), Some(Status::NotDir));
    });
}

#[test]
fn attributes_without_a_layout_are_left_out() {
    let fixture = Fixture::new();
    let mut rogue = Rogue::logged_in(&fixture.address(far()));
    let file = rogue.root();
    let wanted = AttributeBitmap(u64::MAX);
    let answer = rogue.ask(&Request::GetAttrInline(GetAttributes { file, wanted })).unwrap();
    assert_eq!(found!(GetAttrInline, &answer).attributes.included(), EVERY);
    let answer = rogue.ask(&Request::GetFsAttr(GetAttributes { file, wanted })).unwrap();
    let included = found!(GetFsAttr, &answer).attributes.included();
    assert_eq!(included, file_system::bits::ALL);
}

#[test]
fn what_an_object_is_not_good_for_is_said() {
    over_each(|_, transport| {
        let fixture = Fixture::with_two_exports(|_| {});
        std::fs::write(fixture.local("home/file"), b"x").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (_, home, _) = walk(&mut rogue, &["home"]);
        let (_, public, _) = walk(&mut rogue, &["pub"]);
        let (_, file, _) = walk(&mut rogue, &["home", "file"]);
        let rename = Rename { source: home, target: public, old_name: "file", new_name: "file" };
        assert_eq!(rogue.outcome(&Request::Rename(rename)), Some(Status::XDev));
        let link = Link { source: file, directory: public, name: "file" };
        assert_eq!(rogue.outcome(&Request::Link(link)), Some(Status::XDev));
        let attributes = FileAttributeBlock::empty(ByteOrder::NATIVE);
        let object = NewObject::Fifo;
        let create = Create { directory: home, name: "fifo", object, attributes };
        assert_eq!(rogue.outcome(&Request::Create(create)), Some(Status::Ok));
        for (name, expected) in [("fifo", Status::BadType), ("none", Status::NoEnt)] {
            let names = [name];
            let open = crate::rogue::opening(home, dafs_wire::Path::new(&names));
            assert_eq!(rogue.outcome(&Request::Open(open)), Some(expected), "{name}");
        }
        let names = ["home"];
        let root = rogue.root();
        let open = crate::rogue::opening(root, dafs_wire::Path::new(&names));
        assert_eq!(rogue.outcome(&Request::Open(open)), Some(Status::IsDir));
    });
}
