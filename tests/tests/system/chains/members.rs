//! Tests the members and flags of chains, message by message.

use dafs_memory::{Memory, Pages};
use dafs_types::{
    CacheHint, FileAttributes, FileHandle, RemoveMode, SetAttributes, Stability, StateId, Status,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{
    Close, Commit, Create, DelegReturn, Empty, GetAttributes, InlineData, Link, Lookup, NewObject,
    OneHandle, Open, OpenCreation, Placement, ReadDirect, ReadInline, ReadLinkDirect, Remove,
    Rename, SetAttributesInline, Verify, WriteInline,
};
use dafs_wire::{
    ByteOrder, ChainFlags, DirectBuffer, DirectBuffers, FileAttributeBlock, Path, Procedure,
    Request, Response,
};

use super::{B, Chainer, F, FB, FILE, NONE, NULL, SAVE, STATE, member, opened, results};
use crate::fixture::{Fixture, over_each, pattern, transports};
use crate::rogue::{opening, status_of};

/// A placeholder for an argument that a member takes from an earlier one.
const TAKEN: FileHandle = FileHandle([0xee; 64]);
const STALE: StateId = StateId(0x1234_5678_9abc);
const BROKEN: Status = Status::ChainBroken;
const FORM: Status = Status::ChainForm;

fn lookup<'a>(directory: FileHandle, names: &'a [&'a str]) -> Request<'a> {
    Request::Lookup(Lookup { directory, path: Path::new(names) })
}

fn read_inline(file: FileHandle, state: StateId, length: u32) -> Request<'static> {
    let (offset, hint) = (0, CacheHint::default());
    Request::ReadInline(ReadInline { file, state, offset, length, hint })
}

fn write(file: FileHandle, state: StateId, bytes: &[u8], stability: Stability) -> Request<'_> {
    Request::WriteInline(WriteInline {
        file,
        state,
        offset: 0,
        stability,
        hint: CacheHint::default(),
        placement: Placement::Packed,
        data: InlineData::Here(bytes),
    })
}

fn close(file: FileHandle, state: StateId) -> Request<'static> {
    Request::Close(Close { file, state })
}

fn size_of(file: FileHandle) -> Request<'static> {
    Request::GetAttrInline(GetAttributes { file, wanted: bits::OBJECT_SIZE })
}

fn nothing(buffer: &mut [u8; 64]) -> FileAttributeBlock<'_> {
    FileAttributeBlock::encode_set(ByteOrder::NATIVE, &SetAttributes::default(), buffer).unwrap()
}

fn directory<'a>(
    parent: FileHandle,
    name: &'a str,
    attributes: FileAttributeBlock<'a>,
) -> Request<'a> {
    Request::Create(Create { directory: parent, name, object: NewObject::Directory, attributes })
}

fn creating<'a>(
    directory: FileHandle,
    path: Path<'a>,
    attributes: FileAttributeBlock<'a>,
) -> Request<'a> {
    let creation = OpenCreation::Unchecked(attributes);
    Request::Open(Open { creation, ..opening(directory, path) })
}

fn bytes_of(answer: &[u8]) -> Vec<u8> {
    match results(Procedure::ReadInline, answer) {
        Response::ReadInline(read) => read.data.bytes().unwrap().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_opened_read_and_closed_in_one_chain() {
    over_each(|fixture, transport| {
        let content = pattern(3000, 1);
        std::fs::create_dir(fixture.local("d")).unwrap();
        std::fs::write(fixture.local("d/f"), &content).unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let memory = Memory::shared(1 << 16, Pages::Small).unwrap();
        let region = chainer.rogue.expose(&memory);
        let direct = [chainer.rogue.buffer(&region, 100, 3000)];
        let read_direct = Request::ReadDirect(ReadDirect {
            file: TAKEN,
            state: STALE,
            offset: 0,
            length: 3000,
            hint: CacheHint::default(),
            buffers: DirectBuffers::from(&direct[..]),
        });
        let both = FILE.with(STATE);
        for _ in 0..3 {
            let answers = chainer.succeed(&[
                (F, lookup(root, &["d"])),
                (FB.with(FILE), Request::Open(opening(TAKEN, Path::new(&["f"])))),
                (FB.with(both), read_inline(TAKEN, STALE, 1000)),
                (FB.with(both), read_direct),
                (FB.with(both), read_inline(TAKEN, STALE, 2000)),
                (B.with(both), close(TAKEN, STALE)),
            ]);
            assert_eq!(bytes_of(&answers[2]), content[..1000]);
            assert_eq!(bytes_of(&answers[4]), content[..2000]);
            assert_eq!(memory.to_vec(100, 3000), content);
            let (file, state) = opened(&answers[1]);
            assert_eq!(chainer.run(&[(NONE, close(file, state))]), [Status::OldStateId]);
        }
    });
}

#[test]
fn what_a_member_leaves_is_what_the_table_says() {
    over_each(|fixture, transport| {
        for name in ["a", "b", "c"] {
            std::fs::create_dir(fixture.local(name)).unwrap();
        }
        std::fs::write(fixture.local("a/f"), b"12345").unwrap();
        std::fs::write(fixture.local("c/f"), b"1").unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let take = |names: &'static [&'static str]| (B.with(FILE), lookup(TAKEN, names));
        let found = |answers: &[Vec<u8>]| match results(Procedure::Lookup, answers.last().unwrap())
        {
            Response::Lookup(found) => found.file,
            other => panic!("{other:?}"),
        };
        let mut find = |names: &'static [&'static str]| {
            let answers = chainer.succeed(&[(NONE, lookup(root, names))]);
            match results(Procedure::Lookup, &answers[0]) {
                Response::Lookup(found) => found.file,
                other => panic!("{other:?}"),
            }
        };
        let (a, b, c) = (find(&["a"]), find(&["b"]), find(&["c"]));
        let file = find(&["a", "f"]);
        let mut buffer = [0; 64];
        let block = nothing(&mut buffer);
        // GET_ROOT_HANDLE and LOOKUPP set the current handle; NULL keeps it.
        let last = [(F, Request::GetRootHandle(Empty)), (FB, NULL), take(&["a", "f"])];
        assert_eq!(found(&chainer.succeed(&last)), file);
        let parent = Request::LookupP(OneHandle { file: a });
        assert_eq!(found(&chainer.succeed(&[(F, parent), take(&["a", "f"])])), file);
        // CREATE leaves the new object as current, REMOVE its directory.
        let made = directory(root, "new", block);
        let below = directory(TAKEN, "below", block);
        chainer.succeed(&[(F, made), (B.with(FILE), below)]);
        assert!(fixture.local("new/below").is_dir());
        let gone = |name| {
            let mode = RemoveMode::Unchecked;
            Request::Remove(Remove { directory: TAKEN, name, mode })
        };
        let new = [
            (F, lookup(root, &["new"])),
            (FB.with(FILE), gone("below")),
            (FB.with(FILE), directory(TAKEN, "again", block)),
            (B.with(FILE), directory(TAKEN, "deeper", block)),
        ];
        chainer.succeed(&new);
        assert!(fixture.local("new/again/deeper").is_dir());
        // LINK and RENAME work in the target directory and leave it as current.
        let link = Request::Link(Link { source: file, directory: TAKEN, name: "linked" });
        let linked = [(F, lookup(root, &["b"])), (FB.with(FILE), link), take(&["linked"])];
        assert_eq!(found(&chainer.succeed(&linked)), file);
        let rename = Request::Rename(Rename {
            source: b,
            target: TAKEN,
            old_name: "linked",
            new_name: "moved",
        });
        let moved = [(F, lookup(root, &["c"])), (FB.with(FILE), rename), take(&["moved"])];
        assert_eq!(found(&chainer.succeed(&moved)), file);
        assert!(!fixture.local("b/linked").exists());
        // Without the flag, they leave what they name themselves.
        let back =
            Request::Rename(Rename { source: c, target: b, old_name: "moved", new_name: "back" });
        assert_eq!(found(&chainer.succeed(&[(F, back), take(&["back"])])), file);
        // A query leaves the queried object as current.
        let sizes = chainer.succeed(&[(F, size_of(file)), (B.with(FILE), size_of(TAKEN))]);
        let size = |bytes: &[u8]| match results(Procedure::GetAttrInline, bytes) {
            Response::GetAttrInline(result) => result.attributes.file().size,
            other => panic!("{other:?}"),
        };
        assert_eq!((size(&sizes[0]), size(&sizes[1])), (Some(5), Some(5)));
    });
}

#[test]
fn the_state_id_is_that_of_the_last_member_that_had_one() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("f"), b"before").unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let (file, state) = chainer.open("f");
        let taking = STATE;
        // From a WRITE that names it, across members without a state id and one with the special
        // one.
        let statuses = chainer.run(&[
            (F, write(file, state, b"after", Stability::Unstable)),
            (FB, NULL),
            (FB, lookup(root, &["f"])),
            (FB, write(file, StateId::ANONYMOUS, b"AFTER", Stability::Unstable)),
            (FB.with(taking), write(file, STALE, b"After", Stability::Unstable)),
            (FB.with(taking), close(file, STALE)),
            // It is still the last one, and no longer valid.
            (B.with(taking), write(file, STALE, b"late", Stability::Unstable)),
        ]);
        assert_eq!(statuses[..6], [Status::Ok; 6]);
        assert_eq!(statuses[6], Status::OldStateId);
        assert_eq!(std::fs::read(fixture.local("f")).unwrap(), b"Aftere");
        let unknown = [(F, NULL), (B.with(taking), close(file, state))];
        assert_eq!(chainer.run(&unknown), [Status::Ok, Status::BadStateId], "nobody left one");
        let unknown = [(F, NULL), (B.with(FILE), size_of(file))];
        assert_eq!(chainer.run(&unknown), [Status::Ok, Status::NoFileHandle]);
    });
}

#[test]
fn wherever_a_member_fails_those_before_are_done_and_those_behind_are_not() {
    over_each(|fixture, transport| {
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let mut buffer = [0; 64];
        let block = nothing(&mut buffer);
        const COUNT: usize = 6;
        for bad in 0..COUNT {
            std::fs::create_dir(fixture.local("there")).unwrap();
            let names: Vec<String> = (0..COUNT).map(|at| format!("m{bad}-{at}")).collect();
            let members: Vec<_> = (0..COUNT)
                .map(|at| {
                    let name = if at == bad { "there" } else { &names[at] };
                    let flags = match at {
                        0 => F,
                        last if last == COUNT - 1 => B,
                        _ => FB,
                    };
                    (flags, directory(root, name, block))
                })
                .collect();
            let statuses = chainer.run(&members);
            for (at, name) in names.iter().enumerate() {
                let wanted = match at.cmp(&bad) {
                    std::cmp::Ordering::Less => Status::Ok,
                    std::cmp::Ordering::Equal => Status::Exist,
                    std::cmp::Ordering::Greater => BROKEN,
                };
                assert_eq!(statuses[at], wanted, "member {at} of a chain with a bad {bad}");
                assert_eq!(fixture.local(name).exists(), at < bad);
            }
            std::fs::remove_dir(fixture.local("there")).unwrap();
        }
    });
}

/// What is wrong, the members, and the expected status of each.
type Case<'a> = (&'a str, &'a [(ChainFlags, Request<'a>)], &'a [Status]);

#[test]
fn malformed_chains_are_refused_member_by_member() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("f"), b"12345").unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let (file, state) = chainer.open("f");
        let ok = Status::Ok;
        let read = read_inline(file, state, 5);
        let overwrite = write(file, state, b"x", Stability::Unstable);
        let returned = Request::DelegReturn(DelegReturn { state });
        let read_link = {
            let buffer = DirectBuffer {
                target: dafs_types::RmrTarget(0),
                length: 8,
                context: dafs_types::RmrContext(0),
            };
            Request::ReadLinkDirect(ReadLinkDirect { file: TAKEN, buffer })
        };
        let cases: &[Case<'_>] = &[
            ("takes without BACK", &[(FILE, size_of(file))], &[FORM]),
            ("takes without BACK", &[(F.with(STATE), read)], &[FORM]),
            ("BACK without a chain", &[(B, NULL)], &[FORM]),
            ("BACK and FORWARD without a chain", &[(FB, NULL), (B, NULL)], &[FORM, BROKEN]),
            ("a stranger", &[(F, NULL), (NONE, NULL), (NONE, NULL)], &[ok, FORM, ok]),
            ("a stranger", &[(F, NULL), (NONE, NULL), (B, NULL)], &[ok, FORM, FORM]),
            ("a strange chain", &[(F, NULL), (F, NULL), (B, NULL)], &[ok, FORM, BROKEN]),
            ("SAVE at the end", &[(F, NULL), (B.with(SAVE), NULL)], &[ok, FORM]),
            ("SAVE of a read", &[(F.with(SAVE), read), (B, NULL)], &[FORM, BROKEN]),
            ("SAVE of a write", &[(F.with(SAVE), overwrite), (B, NULL)], &[FORM, BROKEN]),
            (
                "a special request",
                &[(F, NULL), (FB, Request::SecInfo(Empty)), (B, NULL)],
                &[ok, FORM, BROKEN],
            ),
            ("a special request", &[(F, Request::SecInfo(Empty)), (B, NULL)], &[FORM, BROKEN]),
            (
                "a write behind a read",
                &[(F, read), (FB, NULL), (FB, overwrite), (B, NULL)],
                &[ok, ok, FORM, BROKEN],
            ),
            (
                "nothing to take a handle for",
                &[(F, size_of(file)), (B.with(FILE), returned)],
                &[ok, FORM],
            ),
            (
                "nothing to take a state id for",
                &[(F, read), (B.with(STATE), size_of(file))],
                &[ok, FORM],
            ),
            (
                "fails by itself, and those behind it are not looked at",
                &[(F, lookup(root, &["none"])), (B.with(FILE), read_link)],
                &[Status::NoEnt, BROKEN],
            ),
        ];
        for (what, members, wanted) in cases {
            assert_eq!(chainer.run(members), *wanted, "{what}");
            // The announced members do not arrive.
            chainer.run(&[(NONE, NULL)]);
        }
        // An unknown flag.
        chainer.send_bytes(&[member(0, 9000, ChainFlags(0x40), &NULL)]);
        assert_eq!(status_of(&chainer.answers(1)[0]), FORM);
        assert_eq!(chainer.run(&[(NONE, NULL)]), [ok], "the session goes on");
        assert_eq!(std::fs::read(fixture.local("f")).unwrap(), b"12345");
    });
}

#[test]
fn guards_let_through_or_not() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("f"), b"12345").unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let (file, state) = chainer.open("f");
        let mut buffer = [0; 64];
        let full = FileAttributes { size: Some(5), ..FileAttributes::default() };
        let wanted = bits::OBJECT_SIZE;
        let attributes =
            FileAttributeBlock::encode_file(ByteOrder::NATIVE, wanted, &full, &mut buffer).unwrap();
        let verify = Verify { file, attributes };
        let overwrite = write(TAKEN, state, b"x", Stability::Unstable);
        let guarded = |guard| [(F.with(SAVE), guard), (B.with(FILE), overwrite)];
        let refused = chainer.run(&guarded(Request::NVerify(verify)));
        assert_eq!(refused, [Status::Same, BROKEN]);
        assert_eq!(chainer.run(&guarded(Request::Verify(verify))), [Status::Ok; 2]);
        let longer = write(file, state, b"123456", Stability::Unstable);
        chainer.succeed(&[(NONE, longer)]);
        let refused = chainer.run(&guarded(Request::Verify(verify)));
        assert_eq!(refused, [Status::NotSame, BROKEN]);
        assert_eq!(chainer.run(&guarded(Request::NVerify(verify))), [Status::Ok; 2]);
    });
}

#[test]
fn garbage_between_members_breaks_the_chain_and_nothing_else() {
    over_each(|fixture, transport| {
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let mut buffer = [0; 64];
        let block = nothing(&mut buffer);
        let made = |name: &str| member(0, 500, F, &directory(root, name, block));
        let after = |name: &str| member(2, 500, B, &directory(root, name, block));
        // An unassigned number, truncated arguments, another version.
        let mut unassigned = member(1, 500, FB, &NULL);
        unassigned[32..36].copy_from_slice(&107u32.to_ne_bytes());
        let mut cut = member(1, 501, FB, &Request::LookupP(OneHandle { file: root }));
        cut.truncate(56);
        cut[36..40].copy_from_slice(&56u32.to_ne_bytes());
        let mut version = member(1, 502, FB, &NULL);
        version[4..8].copy_from_slice(&9u32.to_ne_bytes());
        let wanted = [Status::NotSupp, Status::Inval, Status::IllegalProt];
        for (at, (garbage, wanted)) in
            [unassigned, cut, version].into_iter().zip(wanted).enumerate()
        {
            let (before, behind) = (format!("before{at}"), format!("behind{at}"));
            chainer.send_bytes(&[made(&before), garbage, after(&behind)]);
            let answers = chainer.answers(3);
            let statuses: Vec<_> = answers.iter().map(|bytes| status_of(bytes)).collect();
            assert_eq!(statuses, [Status::Ok, wanted, BROKEN], "garbage {at}");
            assert!(fixture.local(&before).exists() && !fixture.local(&behind).exists());
        }
        assert_eq!(chainer.run(&[(F, NULL), (B, NULL)]), [Status::Ok; 2]);
    });
}

#[test]
fn a_damaged_member_breaks_the_chain() {
    for transport in transports() {
        let fixture = Fixture::new();
        let mut rogue = crate::rogue::Rogue::logged_in_sealed(&fixture.address(transport));
        let mut send = |sequence: u16, flags, is_damaged: bool| {
            let mut bytes = member(0, sequence, flags, &NULL);
            dafs_wire::seal(&mut bytes, &[]);
            if is_damaged {
                bytes[16] ^= 1;
            }
            rogue.send(&bytes);
            rogue.status().unwrap()
        };
        let ok = Status::Ok;
        assert_eq!([send(1, F, false), send(2, B, false)], [ok, ok]);
        assert_eq!([send(3, F, false), send(4, FB, true)], [ok, Status::Chksum]);
        assert_eq!([send(5, FB, false), send(6, B, false)], [BROKEN, BROKEN]);
        // It may have been the last member. The next request must not be affected.
        assert_eq!([send(7, F, false), send(8, B, true)], [ok, Status::Chksum]);
        assert_eq!([send(9, NONE, false), send(10, F, false)], [ok, ok]);
        assert_eq!(send(11, B, false), ok);
    }
}

#[test]
fn members_wait_for_one_that_is_parked() {
    over_each(|fixture, transport| {
        let content = pattern(9 << 20, 3);
        std::fs::write(fixture.local("large"), &content).unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let root = chainer.root;
        let memory = Memory::shared(content.len(), Pages::Small).unwrap();
        let region = chainer.rogue.expose(&memory);
        let length = u32::try_from(content.len()).unwrap();
        let direct = [chainer.rogue.buffer(&region, 0, length)];
        let read = Request::ReadDirect(ReadDirect {
            file: TAKEN,
            state: STALE,
            offset: 0,
            length,
            hint: CacheHint::default(),
            buffers: DirectBuffers::from(&direct[..]),
        });
        let both = FILE.with(STATE);
        // Two chains at once, of which the first waits for the disk.
        let answers = chainer.succeed(&[
            (F, Request::Open(opening(root, Path::new(&["large"])))),
            (FB.with(both), read),
            (B.with(both), close(TAKEN, STALE)),
            (F, lookup(root, &["large"])),
            (B.with(FILE), size_of(TAKEN)),
        ]);
        assert_eq!(memory.to_vec(0, content.len()), content);
        let (file, state) = opened(&answers[0]);
        assert_eq!(chainer.run(&[(NONE, close(file, state))]), [Status::OldStateId]);
        // A sync always waits.
        let mut buffer = [0; 64];
        let block = nothing(&mut buffer);
        let sizes = chainer.succeed(&[
            (F, creating(root, Path::new(&["small"]), block)),
            (FB.with(both), write(TAKEN, STALE, b"123", Stability::FileSync)),
            (FB.with(both), write(TAKEN, STALE, b"12345", Stability::DataSync)),
            (FB.with(FILE), Request::Commit(Commit { file: TAKEN, offset: 0, length: 0 })),
            (FB.with(FILE), size_of(TAKEN)),
            (B.with(both), close(TAKEN, STALE)),
        ]);
        match results(Procedure::GetAttrInline, &sizes[4]) {
            Response::GetAttrInline(result) => {
                assert_eq!(result.attributes.file().size, Some(5));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn members_that_change_names_go_through_the_journal_one_behind_the_other() {
    for transport in transports() {
        let fixture = Fixture::with_journal();
        let mut chainer = Chainer::new(&fixture, transport);
        let root = chainer.root;
        let mut buffer = [0; 64];
        let block = nothing(&mut buffer);
        let both = FILE.with(STATE);
        let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let mut set = [0; 64];
        let set = FileAttributeBlock::encode_set(ByteOrder::NATIVE, &mode, &mut set).unwrap();
        let set = SetAttributesInline { file: TAKEN, state: StateId::ANONYMOUS, attributes: set };
        chainer.succeed(&[
            (F, directory(root, "d", block)),
            (FB.with(FILE), directory(TAKEN, "e", block)),
            (FB.with(FILE), creating(TAKEN, Path::new(&["f"]), block)),
            (FB.with(both), write(TAKEN, STALE, b"12345", Stability::Unstable)),
            (FB.with(FILE), Request::SetAttrInline(set)),
            (B.with(both), close(TAKEN, STALE)),
        ]);
        assert_eq!(std::fs::read(fixture.local("d/e/f")).unwrap(), b"12345");
        // One that fails at the first check, and one that needs no journal.
        let statuses = chainer.run(&[
            (F, lookup(root, &["d"])),
            (FB.with(FILE), directory(TAKEN, "e", block)),
            (B.with(FILE), directory(TAKEN, "g", block)),
        ]);
        assert_eq!(statuses, [Status::Ok, Status::Exist, BROKEN]);
        drop(chainer);
        let (_, stats) = fixture.stop();
        assert_eq!((stats.journaled_requests, stats.parked_requests), (0, 0));
    }
}
