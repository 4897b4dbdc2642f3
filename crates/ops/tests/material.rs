//! Values of every kind, from which operations and outcomes are built.

use std::borrow::Cow;

use dafs_ops::*;
use dafs_types::{
    AccessMask, Ace, AceFlags, AceKind, AceRights, CacheHint, CachePattern, ChangeInfo, ClientId,
    CookieVerifier, DeleteDisposition, DeviceNumber, FenceAccess, FenceObject, FenceUpdate,
    FileAttributes, FileHandle, FileSystemAttributes, FsHandle, ObjectType, ReaddirCookie,
    RemoveMode, SetTime, ShareAccess, ShareDeny, ShareKey, SpaceLimit, Stability, StateId,
    Timestamp, Verifier,
};
use proptest::prelude::*;

type Settings = dafs_types::SetAttributes;

/// Values from which one of everything can be built.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    pub handles: [FileHandle; 2],
    pub names: Vec<Vec<u8>>,
    pub texts: [String; 2],
    pub w: u32,
    pub a: u64,
    pub b: u64,
    pub flag: bool,
    pub bytes: [u8; 8],
    pub settings: Settings,
    pub choice: usize,
}

fn pick<T: Copy>(all: &[T], choice: usize) -> T {
    all[choice % all.len()]
}

prop_compose! {
    fn time()(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Server), time().prop_map(SetTime::Client)]
}

prop_compose! {
    fn ace()(kind in prop::sample::select(AceKind::ALL), flags: u32, rights: u32, who: String) -> Ace {
        Ace { kind, flags: AceFlags(flags), rights: AceRights(rights), who }
    }
}

prop_compose! {
    fn settings()(
        mode: Option<u32>,
        size: Option<u64>,
        time_access in prop::option::of(set_time()),
        time_modify in prop::option::of(set_time()),
        acl in prop::option::of(prop::collection::vec(ace(), 0..3)),
        mime_type: Option<String>,
        owner: Option<String>,
        owner_group: Option<String>,
    ) -> Settings {
        Settings { mode, size, time_access, time_modify, acl, mime_type, owner, owner_group }
    }
}

prop_compose! {
    /// Generates arbitrary material.
    pub fn material()(
        handles: [[u8; 32]; 4],
        names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 3..6),
        texts: [String; 2],
        w: u32,
        a: u64,
        b: u64,
        flag: bool,
        bytes: [u8; 8],
        settings in settings(),
        choice: usize,
    ) -> Material {
        let join = |one: [u8; 32], other: [u8; 32]| {
            let mut handle = [0; 64];
            handle[..32].copy_from_slice(&one);
            handle[32..].copy_from_slice(&other);
            FileHandle(handle)
        };
        let handles = [join(handles[0], handles[1]), join(handles[2], handles[3])];
        Material { handles, names, texts, w, a, b, flag, bytes, settings, choice }
    }
}

impl Material {
    /// Returns its names as a path.
    pub(crate) fn slices(&self) -> Vec<&[u8]> {
        self.names.iter().map(Vec::as_slice).collect()
    }

    /// Returns one operation of every row, and of every variant inside rows.
    pub(crate) fn operations<'m>(&'m self, slices: &'m [&'m [u8]]) -> Vec<Operation<'m>> {
        let ([file, directory], path) = (self.handles, Names::new(slices));
        let (name, other) = (slices[0], slices[1]);
        let state = StateId(self.a);
        let (offset, length) = (self.a, self.b);
        let (access, deny) =
            (pick(ShareAccess::ALL, self.choice), pick(ShareDeny::ALL, self.choice));
        let key = self.flag.then_some(ShareKey(self.b));
        let stability = pick(Stability::ALL, self.choice);
        let hint = CacheHint(self.w);
        let mode = pick(&[LockMode::Read, LockMode::Write], self.choice);
        let device = DeviceNumber { major: self.a, minor: self.b };
        let extras = Extras { named_attributes: self.flag, acl: !self.flag, mime_type: self.flag };
        let attributes = self.settings.clone();
        let one = OneFile { file };
        let span = LockSpan { file, state, offset, length };
        let mut all = vec![
            Operation::Root(Empty {}),
            Operation::Lookup(Lookup { directory, path }),
            Operation::LookupParent(one),
            Operation::Close(Close { file, state }),
            Operation::Downgrade(Downgrade { file, state, access, deny, key }),
            Operation::Link(Link { source: file, directory, name }),
            Operation::Remove(Remove { directory, name, mode: pick(RemoveMode::ALL, self.choice) }),
            Operation::Rename(Rename {
                source: directory,
                target: file,
                old_name: name,
                new_name: other,
            }),
            Operation::List(List {
                directory,
                cookie: ReaddirCookie(self.a),
                verifier: CookieVerifier(self.bytes),
                entry_count_max: self.w,
                name_bytes_max: self.w,
                wanted: self.flag.then_some(extras),
            }),
            Operation::ReadLink(one),
            Operation::Attributes(Attributes { file, extras }),
            Operation::SetAttributes(SetAttributes { file, state, attributes: attributes.clone() }),
            Operation::FsAttributes(one),
            Operation::Access(Access { file, access: AccessMask(self.w) }),
            Operation::OpenAttributes(one),
            Operation::Append(Append { file, state, length: self.w, stability, hint }),
            Operation::Commit(Commit { file, offset, length }),
            Operation::Hint(Hint {
                file,
                offset,
                length,
                pattern: pick(CachePattern::ALL, self.choice),
                hint,
            }),
            Operation::TestLock(TestLock { file, owner: name, mode, offset, length }),
            Operation::Unlock(span),
            Operation::Abort(span),
            Operation::FenceList(one),
            Operation::Fence(Fence {
                file,
                object: pick(FenceObject::ALL, self.choice),
                access: pick(FenceAccess::ALL, self.choice),
                update: pick(FenceUpdate::ALL, self.choice),
                fence_ids: path,
            }),
            Operation::ReturnDelegation(ReturnDelegation { state }),
            Operation::PurgeDelegations(Empty {}),
            Operation::Allocate(FileRange { file, state, offset, length }),
            Operation::Deallocate(FileRange { file, state, offset, length }),
            Operation::GetXattr(Xattr { file, name }),
            Operation::RemoveXattr(Xattr { file, name }),
            Operation::ListXattrs(ListXattrs {
                file,
                cookie: self.a,
                count_max: self.w,
                name_bytes_max: self.w,
            }),
        ];
        let copy = CopyRange {
            source: directory,
            file,
            source_state: state,
            state: StateId(self.b),
            source_offset: self.b,
            offset,
            length,
        };
        all.extend([Operation::Clone(copy), Operation::Copy(copy)]);
        for what in [SeekFor::Data, SeekFor::Hole] {
            all.push(Operation::Seek(Seek { file, state, offset, what }));
        }
        for mode in [XattrMode::Either, XattrMode::Create, XattrMode::Replace] {
            all.push(Operation::SetXattr(SetXattr { file, name, value: other, mode }));
        }
        for claim in [LockClaim::New, LockClaim::Reclaim, LockClaim::Repair] {
            let (persist, auto_recovery, waits) = (self.flag, !self.flag, self.flag);
            all.push(Operation::Lock(Lock {
                file,
                state,
                mode,
                offset,
                length,
                claim,
                persist,
                auto_recovery,
                waits,
            }));
        }
        for node in [
            NewNode::Directory,
            NewNode::SymbolicLink { text: other },
            NewNode::Fifo,
            NewNode::Socket,
            NewNode::BlockDevice { device },
            NewNode::CharacterDevice { device },
        ] {
            let attributes = attributes.clone();
            all.push(Operation::CreateNode(CreateNode { directory, name, node, attributes }));
        }
        let claims = [
            Claim::Null { path },
            Claim::Previous,
            Claim::DelegateCurrent { path, state },
            Claim::DelegatePrevious { path },
            Claim::CreateUnlinked,
        ];
        let creations = [
            Creation::NoCreate,
            Creation::Unchecked { attributes: attributes.clone() },
            Creation::Guarded { attributes: attributes.clone() },
            Creation::Exclusive { verifier: Verifier(self.bytes) },
            Creation::ExclusiveWithAttributes { verifier: Verifier(self.bytes), attributes },
        ];
        for claim in claims {
            for creation in creations.clone() {
                all.push(Operation::Open(Open {
                    from: directory,
                    claim,
                    creation,
                    disposition: pick(DeleteDisposition::ALL, self.choice),
                    owner: other,
                    access,
                    deny,
                    key,
                }));
            }
        }
        all
    }

    /// Returns one outcome of every row, and of every variant inside rows.
    pub(crate) fn outcomes(&self) -> Vec<Outcome<'_>> {
        let done = self.done().into_iter().map(Ok);
        done.chain(self.refusals().into_iter().map(Err)).collect()
    }

    fn done(&self) -> Vec<Done<'_>> {
        let file = self.handles[0];
        let before_after = |atomic| ChangeInfo { before: self.a, after: self.b, atomic };
        let directory = before_after(self.flag);
        let verifier = Verifier(self.bytes);
        let committed = pick(Stability::ALL, self.choice);
        let mut all = vec![
            Done::NOTHING,
            Done::Object(OneFile { file }),
            Done::Walked(Walked { file, component_count: self.w }),
            Done::Created(Created { file, directory }),
            Done::Changed(Changed { directory }),
            Done::Renamed(Renamed { source: directory, target: before_after(!self.flag) }),
            Done::Page(Page {
                entries: self.names.iter().map(|name| self.entry(name)).collect(),
                verifier: CookieVerifier(self.bytes),
                is_end: self.flag,
            }),
            Done::Text(Text { text: Cow::Borrowed(&self.names[0]) }),
            Done::Attributes(self.attributes()),
            Done::Set(Set { set: AttributeSet(self.a) }),
            Done::FsAttributes(self.fs_attributes()),
            Done::Granted(Granted { supported: AccessMask(self.w), access: AccessMask(!self.w) }),
            Done::Written(Written { length: self.w, committed, verifier }),
            Done::Appended(Appended { offset: self.a, committed, verifier }),
            Done::Committed(Committed { verifier }),
            Done::FenceIds(FenceIds { fence_ids: self.texts.to_vec() }),
            Done::Sought(Sought { offset: self.a, is_end: self.flag }),
            Done::Copied(Copied { length: self.b, committed, verifier }),
            Done::XattrValue(XattrValue { value: Cow::Borrowed(&self.names[1]) }),
            Done::XattrChanged(XattrChanged { change: directory }),
            Done::XattrNames(XattrNames {
                names: self.names.iter().map(|name| Cow::Borrowed(name.as_slice())).collect(),
                cookie: self.a,
                is_end: self.flag,
            }),
        ];
        let delegation =
            |delegated| Some(Delegation { state: StateId(self.b), recall: self.flag, delegated });
        let write = |limit| delegation(Delegated::Write { limit });
        for delegation in [
            None,
            delegation(Delegated::Read),
            write(SpaceLimit::Size(self.a)),
            write(SpaceLimit::Blocks { count: self.w, block_bytes: 512 }),
        ] {
            all.push(Done::Opened(Opened {
                file,
                state: StateId(self.a),
                directory,
                component_count: self.w,
                mandatory_locks: self.flag,
                delegation,
            }));
        }
        all
    }

    fn refusals(&self) -> Vec<Refusal<'_>> {
        let mut faults = Fault::ALL.to_vec();
        faults.extend([Fault::Unavailable(self.w as u16), Fault::Front(self.w)]);
        let conflict = Conflict {
            client: ClientId(self.a),
            owner: Cow::Borrowed(&self.names[0]),
            offset: self.a,
            length: self.b,
            mode: pick(&[LockMode::Read, LockMode::Write], self.choice),
        };
        let reached = Walked { file: self.handles[1], component_count: self.w };
        let partials = [
            Partial::Nothing,
            Partial::Walked { reached },
            Partial::Set { set: AttributeSet(self.b) },
            Partial::Conflict { conflict },
        ];
        let partials = partials.iter().cycle();
        faults
            .into_iter()
            .zip(partials)
            .map(|(fault, partial)| Refusal { fault, partial: partial.clone() })
            .collect()
    }

    fn entry<'m>(&'m self, name: &'m [u8]) -> Entry<'m> {
        let attributes = self.attributes();
        Entry { cookie: ReaddirCookie(self.a), name: Cow::Borrowed(name), attributes }
    }

    fn attributes(&self) -> FileAttributes {
        let time = Some(Timestamp { seconds: self.a as i64, nanoseconds: self.w });
        let usual = FileAttributes { file_id: Some(self.b), ..FileAttributes::default() };
        if self.flag {
            return usual;
        }
        FileAttributes {
            named_attributes: Some(self.choice.is_multiple_of(2)),
            object_type: Some(pick(ObjectType::ALL, self.choice)),
            mode: self.settings.mode,
            link_count: Some(self.w),
            change: Some(self.a),
            size: self.settings.size,
            space_used: Some(self.b),
            time_access: time,
            time_create: time,
            time_delta: None,
            time_metadata: time,
            time_modify: time,
            raw_device: Some(DeviceNumber { major: self.b, minor: self.a }),
            file_handle: Some(self.handles[1]),
            acl: self.settings.acl.clone(),
            mime_type: self.settings.mime_type.clone(),
            owner: self.settings.owner.clone(),
            owner_group: Some(self.texts[0].clone()),
            ..usual
        }
    }

    fn fs_attributes(&self) -> FileSystemAttributes {
        let usual = FileSystemAttributes {
            link_support: Some(self.flag),
            lease_time: Some(self.w),
            handle_expire_type: Some(0),
            ..FileSystemAttributes::default()
        };
        if self.flag {
            return usual;
        }
        FileSystemAttributes {
            symlink_support: Some(true),
            max_name: Some(self.w),
            files_free: Some(self.a),
            space_total: Some(self.b),
            fs_handle: Some(FsHandle([9; 16])),
            preferred_io_size: Some(self.w),
            ..usual
        }
    }
}
