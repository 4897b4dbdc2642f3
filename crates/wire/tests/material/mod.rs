//! Arbitrary contents for every message.
//!
//! Invariant: `requests` and `responses` contain at least one of every procedure and one of every
//! arm of every union.

use std::collections::BTreeSet;

use dafs_types::attributes::DeviceNumber;
use dafs_types::{
    AccessMask, Ace, AceFlags, AceKind, AceRights, AuthType, CacheHint, CachePattern, ChangeInfo,
    ClientId, CookieVerifier, CredHandle, DeleteDisposition, FileAttributes, FileHandle,
    FileSystemAttributes, FsHandle, ObjectType, ReaddirCookie, RemoveMode, RequestId, RmrContext,
    RmrTarget, SequenceNumber, SessionId, SetAttributes, SetTime, ShareAccess, ShareDeny, ShareKey,
    Stability, StateId, Status, StreamId, Timestamp, Verifier,
};
use dafs_wire::attributes::{file, file_system};
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::*;
use dafs_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Owned contents that messages borrow.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    pub a: u64,
    pub b: u64,
    pub w: u32,
    pub flag: bool,
    pub handle: FileHandle,
    pub name: String,
    pub other_name: String,
    pub path: Vec<String>,
    pub blob: Vec<u8>,
    pub data: Vec<u8>,
    pub buffers: Vec<DirectBuffer>,
    pub chunks: Vec<FileChunk>,
    pub groups: Vec<u32>,
    pub fences: Vec<String>,
    pub file: FileAttributes,
    pub system: FileSystemAttributes,
    pub set: SetAttributes,
}

fn name() -> impl Strategy<Value = String> {
    "[a-zäß☃. ]{1,40}"
}

fn time() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of(
        (any::<i64>(), 0..1_000_000_000u32)
            .prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds }),
    )
}

fn acl() -> impl Strategy<Value = Option<Vec<Ace>>> {
    let kind = prop_oneof![
        Just(AceKind::Allow),
        Just(AceKind::Deny),
        Just(AceKind::Audit),
        Just(AceKind::Alarm)
    ];
    let who = prop_oneof!["[A-Z]{5,8}@", "[0-9]{1,10}", "[a-zß☃]{0,20}"];
    let entry = (kind, any::<u32>(), any::<u32>(), who).prop_map(|(kind, flags, rights, who)| {
        Ace { kind, flags: AceFlags(flags), rights: AceRights(rights), who }
    });
    proptest::option::of(vec(entry, 0..6))
}

fn mime_type() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("([a-z]{1,9}/[a-z.+-]{1,30})?")
}

fn set_time() -> impl Strategy<Value = Option<SetTime>> {
    (any::<bool>(), time()).prop_map(|(server, time)| {
        if server { Some(SetTime::Server) } else { time.map(SetTime::Client) }
    })
}

fn file_attributes() -> impl Strategy<Value = FileAttributes> {
    let words = any::<(Option<bool>, Option<u32>, Option<u32>, Option<u64>, Option<u64>)>();
    let longs = any::<(Option<u64>, Option<u64>, Option<(u64, u64)>, Option<[u8; 32]>)>();
    let times = (time(), time(), time(), time(), time());
    let names = (proptest::option::of(name()), proptest::option::of(name()), 1..10u32);
    let lists = (acl(), mime_type());
    (words, longs, times, names, lists).prop_map(|(words, longs, times, names, lists)| {
        FileAttributes {
            named_attributes: words.0,
            object_type: ObjectType::from_number(names.2),
            mode: words.1,
            link_count: words.2,
            change: words.3,
            size: words.4,
            file_id: longs.0,
            space_used: longs.1,
            time_access: times.0,
            time_create: times.1,
            time_delta: times.2,
            time_metadata: times.3,
            time_modify: times.4,
            raw_device: longs.2.map(|(major, minor)| DeviceNumber { major, minor }),
            file_handle: longs.3.map(|half| {
                let mut handle = [0; 64];
                handle[16..48].copy_from_slice(&half);
                FileHandle(handle)
            }),
            acl: lists.0,
            mime_type: lists.1,
            owner: names.0,
            owner_group: names.1,
        }
    })
}

fn system_attributes() -> impl Strategy<Value = FileSystemAttributes> {
    let flags = any::<[Option<bool>; 9]>();
    (flags, any::<[Option<u32>; 7]>(), any::<[Option<u64>; 15]>(), any::<Option<[u8; 16]>>())
        .prop_map(|(flags, words, longs, handle)| FileSystemAttributes {
            link_support: flags[0],
            symlink_support: flags[1],
            can_set_time: flags[2],
            case_insensitive: flags[3],
            case_preserving: flags[4],
            chown_restricted: flags[5],
            homogeneous: flags[6],
            no_trunc: flags[7],
            unique_handle: flags[8],
            lease_time: words[0],
            rd_attr_error: words[1],
            max_link: words[2],
            max_name: words[3],
            preferred_io_size: words[4],
            handle_expire_type: words[5],
            supported_file_attributes: longs[0],
            supported_fs_attributes: longs[1],
            files_available: longs[2],
            files_free: longs[3],
            files_total: longs[4],
            max_file_size: longs[5],
            max_read: longs[6],
            max_write: longs[7],
            space_available: longs[8],
            space_free: longs[9],
            space_total: longs[10],
            max_append: longs[11],
            acl_support: words[6],
            quota_hard: longs[12],
            quota_soft: longs[13],
            quota_used: longs[14],
            fs_handle: handle.map(FsHandle),
        })
}

fn set_attributes() -> impl Strategy<Value = SetAttributes> {
    let owners = (proptest::option::of(name()), proptest::option::of(name()));
    let lists = (acl(), mime_type());
    (any::<(Option<u32>, Option<u64>)>(), set_time(), set_time(), lists, owners).prop_map(
        |((mode, size), time_access, time_modify, (acl, mime_type), (owner, owner_group))| {
            SetAttributes {
                acl,
                mime_type,
                mode,
                size,
                time_access,
                time_modify,
                owner,
                owner_group,
            }
        },
    )
}

pub(crate) fn material() -> impl Strategy<Value = Material> {
    let buffer = any::<(u64, u32, u32)>().prop_map(|(target, length, context)| DirectBuffer {
        target: RmrTarget(target),
        length,
        context: RmrContext(context),
    });
    let chunk = any::<(u64, u32, u32)>().prop_map(|(offset, length, hint)| FileChunk {
        offset,
        length,
        hint: CacheHint(hint),
    });
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>(), any::<[u8; 32]>());
    let names = (name(), name(), vec(name(), 1..6), vec(name(), 0..4));
    let blobs = (vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..90));
    let lists = (vec(buffer, 0..4), vec(chunk, 0..4), vec(any::<u32>(), 0..5));
    let attributes = (file_attributes(), system_attributes(), set_attributes());
    (numbers, names, blobs, lists, attributes).prop_map(|(n, names, blobs, lists, attributes)| {
        let mut handle = [9; 64];
        handle[..32].copy_from_slice(&n.4);
        Material {
            a: n.0,
            b: n.1,
            w: n.2,
            flag: n.3,
            handle: FileHandle(handle),
            name: names.0,
            other_name: names.1,
            path: names.2,
            fences: names.3,
            blob: blobs.0,
            data: blobs.1,
            buffers: lists.0,
            chunks: lists.1,
            groups: lists.2,
            file: attributes.0,
            system: attributes.1,
            set: attributes.2,
        }
    })
}

/// Borrowed values that must first be built from the material.
pub(crate) struct Prepared<'m> {
    m: &'m Material,
    path: Vec<&'m str>,
    fences: Vec<&'m str>,
    transfers: Vec<BatchRequest<'m>>,
    completions: Vec<Completion>,
    methods: Vec<AuthMethod<'m>>,
    file: FileAttributeBlock<'m>,
    set: FileAttributeBlock<'m>,
    system: FsAttributeBlock<'m>,
    entries: DirectoryEntries<'m>,
}

/// Buffers for values that are encoded in advance.
pub(crate) struct Scratch {
    file: Vec<u8>,
    set: Vec<u8>,
    system: Vec<u8>,
    entries: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        let block = vec![0xee; ATTRIBUTE_BYTES_MAX];
        Self { file: block.clone(), set: block.clone(), system: block, entries: vec![0xee; 4099] }
    }
}

pub(crate) fn prepare<'m>(
    m: &'m Material,
    order: ByteOrder,
    scratch: &'m mut Scratch,
) -> Prepared<'m> {
    let wanted = AttributeBitmap(m.a);
    let mut writer = ReaddirWriter::new(order, wanted, &mut scratch.entries).expect("room");
    for (index, name) in m.path.iter().enumerate() {
        let cookie = ReaddirCookie(3 + index as u64);
        assert!(writer.push(cookie, name, &m.file).expect("a good entry"));
    }
    let transfer = |direction, chunks: &'m [FileChunk]| BatchRequest {
        file: m.handle,
        request: RequestId(m.b),
        state: StateId(m.a),
        direction,
        chunks: chunks.into(),
        buffers: m.buffers.as_slice().into(),
        checksum: Checksum(m.w.to_le_bytes()),
    };
    let completion = |index: usize| Completion {
        request: RequestId(index as u64),
        status: Status::ALL[index * 7 % Status::ALL.len()],
        length: m.w,
        checksum: Checksum(m.w.to_le_bytes()),
    };
    let gss = AuthMethod::Gss { oid: &m.blob, quality: m.w, service: GssService::Privacy };
    Prepared {
        m,
        path: m.path.iter().map(String::as_str).collect(),
        fences: m.fences.iter().map(String::as_str).collect(),
        transfers: vec![
            transfer(TransferDirection::Read, &m.chunks),
            transfer(TransferDirection::Write, &[]),
        ],
        completions: (0..m.path.len()).map(completion).collect(),
        methods: vec![AuthMethod::None, gss, AuthMethod::Text, AuthMethod::Default],
        file: FileAttributeBlock::encode_file(order, wanted, &m.file, &mut scratch.file)
            .expect("attributes fit"),
        set: FileAttributeBlock::encode_set(order, &m.set, &mut scratch.set).expect("they fit"),
        system: FsAttributeBlock::encode_fs(
            order,
            file_system::bits::ALL,
            &m.system,
            &mut scratch.system,
        )
        .expect("attributes fit"),
        entries: writer.finish(),
    }
}

impl Prepared<'_> {
    fn options(&self) -> SessionOptions {
        SessionOptions {
            checksums: self.m.flag,
            response_cache: !self.m.flag,
            credentials_max: self.m.w,
            request_bytes_max: 1,
            response_bytes_max: 2,
            requests_max: 3,
            inline_write_header_bytes: 4,
            back_control_channel: true,
            rdma_read_channel: self.m.flag,
        }
    }

    fn change(&self) -> ChangeInfo {
        ChangeInfo { before: self.m.a, after: self.m.b, atomic: self.m.flag }
    }

    fn authentications(&self) -> [AuthRequest<'_>; 4] {
        let token = self.m.blob.as_slice();
        let (procedure, service) = (GssProcedure::Continue, GssService::Integrity);
        [
            AuthRequest::None,
            AuthRequest::Default,
            AuthRequest::Text { identity: &self.m.name, password: &self.m.other_name },
            AuthRequest::Gss { procedure, service, token },
        ]
    }

    fn authentication_results(&self) -> [AuthResult<'_>; 4] {
        let gss = AuthResult::Gss { major: self.m.w, minor: 7, token: &self.m.blob };
        [AuthResult::None, AuthResult::Text, AuthResult::Default, gss]
    }

    /// Returns one request of every procedure and every arm.
    pub(crate) fn requests(&self) -> Vec<Request<'_>> {
        let mut all = self.session_requests();
        all.extend(self.object_requests());
        all.extend(self.data_requests());
        all.extend(self.open_requests());
        all.extend(self.lock_requests());
        assert_all(all.iter().map(Request::procedure));
        all
    }

    fn session_requests(&self) -> Vec<Request<'_>> {
        let m = self.m;
        let session = SessionId(m.a);
        let (fence_id, client_string) = (m.name.as_str(), m.blob.as_slice());
        let (options, verifier) = (self.options(), Verifier(m.b.to_le_bytes()));
        let cached = CachedResponse {
            session,
            stream: StreamId(m.w as u16),
            sequence: SequenceNumber(m.a as u16),
            procedure: m.w,
        };
        let groups = m.groups.as_slice().into();
        let mut all = vec![
            Request::ClientConnect(ClientConnect { options, fence_id, client_string, verifier }),
            Request::Disconnect(Empty),
            Request::ReleaseCred(ReleaseCred { handle: CredHandle(m.w) }),
            Request::SecInfo(Empty),
            Request::CheckResponse(cached),
            Request::FetchResponse(cached),
            Request::DiscardResponses(DiscardResponses { session }),
            Request::GetFencingList(GetFencingList { file: m.handle }),
            Request::SetFencingList(SetFencingList {
                file: m.handle,
                object: FenceObject::FileSystem,
                access: FenceAccess::Deny,
                update: FenceUpdate::Remove,
                fence_ids: self.fences.as_slice().into(),
            }),
        ];
        for authentication in self.authentications() {
            all.push(Request::ClientAuth(ClientAuth { authentication }));
            all.push(Request::ClientConnectAuth(ClientConnectAuth {
                options,
                fence_id,
                client_string,
                verifier,
                authentication,
            }));
            all.push(Request::ConnectBind(ConnectBind {
                session,
                channel_use: if m.flag { ChannelUse::BackControl } else { ChannelUse::RdmaRead },
                request_bytes_max: m.w,
                response_bytes_max: 5,
                requests_max: 6,
                authentication,
            }));
        }
        for auth_type in [AuthType::None, AuthType::Text, AuthType::Gss, AuthType::Default] {
            all.push(Request::ServerAuth(ServerAuth { auth_type }));
        }
        for credentials in [
            CredentialData::Name(&m.name),
            CredentialData::Id { uid: m.w, gid: 4, groups },
            CredentialData::Gss(&m.blob),
            CredentialData::Default,
        ] {
            all.push(Request::RegisterCred(RegisterCred { credentials }));
        }
        all
    }

    fn object_requests(&self) -> Vec<Request<'_>> {
        let m = self.m;
        let (file, wanted, name) = (m.handle, AttributeBitmap(m.a), m.name.as_str());
        let (directory, state) = (file, StateId(m.b));
        let buffer = m.buffers.first().copied().unwrap_or_default();
        let checksum = Checksum(m.w.to_le_bytes());
        let device = DeviceNumber { major: m.a, minor: m.b };
        let verify = Verify { file, attributes: self.file };
        let get = GetAttributes { file, wanted };
        let range = FileRange { file, state, offset: m.a, length: m.b };
        let copy = CopyRange {
            source: file,
            file: directory,
            source_state: StateId(m.a),
            state,
            source_offset: m.b,
            offset: m.a,
            length: m.w.into(),
        };
        let mut all = vec![
            Request::Access(Access { file, access: AccessMask(m.w) }),
            Request::CacheHint(CacheHintRequest {
                file,
                offset: m.a,
                length: m.w,
                pattern: CachePattern::WillNeed,
                hint: CacheHint(m.w),
            }),
            Request::GetFsAttr(get),
            Request::GetRootHandle(Empty),
            Request::GetAttrInline(get),
            Request::GetAttrDirect(GetAttributesDirect { file, wanted, buffer }),
            Request::Link(Link { source: file, directory, name }),
            Request::Lookup(Lookup { directory, path: Path::new(&self.path) }),
            Request::LookupP(OneHandle { file }),
            Request::Null(Empty),
            Request::Channels(Empty),
            Request::Allocate(range),
            Request::Deallocate(range),
            Request::Seek(Seek { file, state, offset: m.a, hole: m.w.is_multiple_of(2) }),
            Request::CloneRange(copy),
            Request::CopyRange(copy),
            Request::NVerify(verify),
            Request::Verify(verify),
            Request::OpenAttr(OneHandle { file }),
            Request::ReadLinkInline(OneHandle { file }),
            Request::ReadLinkDirect(ReadLinkDirect { file, buffer }),
            Request::Remove(Remove { directory, name, mode: RemoveMode::CheckOpen }),
            Request::Rename(Rename {
                source: file,
                target: directory,
                old_name: name,
                new_name: &m.other_name,
            }),
            Request::SetAttrInline(SetAttributesInline { file, state, attributes: self.set }),
            Request::SetAttrDirect(SetAttributesDirect { file, state, checksum, buffer }),
            Request::BcGetAttr(get),
            Request::BcNull(Empty),
            Request::BcRecall(Recall { file, state, truncate: m.flag }),
            Request::BcLockReady(LockReady { file, state, offset: m.a, length: m.b }),
        ];
        for object in [
            NewObject::Directory,
            NewObject::BlockDevice(device),
            NewObject::CharacterDevice(device),
            NewObject::SymbolicLink(&m.blob),
            NewObject::Socket,
            NewObject::Fifo,
        ] {
            all.push(Request::Create(Create { directory, name, object, attributes: self.set }));
        }
        all
    }

    fn data_requests(&self) -> Vec<Request<'_>> {
        let m = self.m;
        let (file, state, hint) = (m.handle, StateId(m.a), CacheHint(m.w));
        let (offset, length) = (m.b, m.w);
        let buffers = m.buffers.as_slice().into();
        let checksum = Checksum(m.w.to_le_bytes());
        let buffer = m.buffers.first().copied().unwrap_or_default();
        let data = InlineData::Here(&m.data);
        let verifier = CookieVerifier(m.b.to_le_bytes());
        let (stability, wanted) = (Stability::DataSync, AttributeBitmap(m.b));
        let cookie = ReaddirCookie(m.a);
        let (directory, names_bytes, result_bytes_max) = (file, 8, m.w);
        let mut all = vec![
            Request::ReadInline(ReadInline { file, state, offset, length, hint }),
            Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers }),
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
            Request::AppendDirect(AppendDirect {
                file,
                state,
                stability,
                length,
                hint,
                checksum,
                buffer,
            }),
            Request::Commit(Commit { file, offset, length }),
            Request::ReadDirInline(ReadDirectory {
                directory,
                cookie,
                verifier,
                names_bytes,
                result_bytes_max,
                wanted,
            }),
            Request::ReadDirDirect(ReadDirectoryDirect {
                directory,
                cookie,
                verifier,
                names_bytes,
                result_bytes_max,
                wanted,
                buffers,
            }),
            Request::BatchSubmit(BatchSubmit {
                requests: self.transfers.as_slice().into(),
                window_us: m.w,
                completion_count: 9,
                synchronous: m.flag,
            }),
            Request::HurryUp(HurryUp { request: RequestId(m.a) }),
            Request::BcBatchCompletion(Completions {
                completions: self.completions.as_slice().into(),
            }),
        ];
        for placement in [Placement::Packed, Placement::Padded { header_bytes: 256 }] {
            all.push(Request::WriteInline(WriteInline {
                file,
                state,
                offset,
                stability: Stability::Unstable,
                hint,
                placement,
                data,
            }));
            all.push(Request::AppendInline(AppendInline {
                file,
                state,
                stability: Stability::FileSync,
                hint,
                placement,
                data,
            }));
        }
        all
    }

    fn open_requests(&self) -> Vec<Request<'_>> {
        let m = self.m;
        let (directory, path, state) = (m.handle, Path::new(&self.path), StateId(m.a));
        let open = |target, creation| {
            Request::Open(Open {
                target,
                creation,
                delete_disposition: DeleteDisposition::Deny,
                owner: &m.blob,
                access: ShareAccess::Both,
                deny: ShareDeny::Write,
                key: m.flag.then_some(ShareKey(m.b)),
            })
        };
        let mut all: Vec<_> = [
            OpenTarget::Null { directory, path },
            OpenTarget::Previous { file: directory, delegation: DelegationType::Write },
            OpenTarget::DelegateCurrent { directory, path, state },
            OpenTarget::DelegatePrevious { directory, path },
            OpenTarget::CreateUnlinked { directory },
        ]
        .into_iter()
        .flat_map(|target| {
            [
                OpenCreation::NoCreate,
                OpenCreation::Unchecked(self.set),
                OpenCreation::Guarded(self.set),
                OpenCreation::Exclusive(Verifier(m.b.to_le_bytes())),
            ]
            .map(|creation| open(target, creation))
        })
        .collect();
        all.push(Request::OpenDowngrade(OpenDowngrade {
            file: directory,
            state,
            access: ShareAccess::Read,
            deny: ShareDeny::None,
            key: m.flag.then_some(ShareKey(m.b)),
        }));
        all.push(Request::Close(Close { file: directory, state }));
        all.push(Request::HandOver(HandOver { file: directory, state, delegation: StateId(m.a) }));
        all.push(Request::DelegReturn(DelegReturn { state }));
        all.push(Request::DelegPurge(Empty));
        all
    }

    fn lock_requests(&self) -> Vec<Request<'_>> {
        let m = self.m;
        let (file, state, offset, length) = (m.handle, StateId(m.a), m.b, u64::MAX);
        let options = LockOptions::from_bits(m.w & 15).expect("known bits");
        let mut all = Vec::new();
        for &lock_type in LockType::ALL {
            all.push(Request::Lock(Lock { file, lock_type, options, state, offset, length }));
            all.push(Request::LockT(LockTest { file, lock_type, owner: &m.blob, offset, length }));
            all.push(Request::LockU(Unlock { file, lock_type, state, offset, length }));
        }
        all
    }

    /// Returns one reply of every procedure and every arm, each with its status.
    pub(crate) fn responses(&self) -> Vec<(Status, Procedure, Response<'_>)> {
        let mut all = self.session_responses();
        all.extend(self.file_responses());
        let mut all: Vec<_> = all
            .into_iter()
            .map(|response| (Status::Ok, response.procedure().expect("results"), response))
            .collect();
        all.extend(self.lock_responses());
        assert_all(all.iter().map(|(_, procedure, _)| *procedure));
        for &procedure in Procedure::ALL {
            all.push((Status::NoPartialInfo, procedure, Response::Failed));
        }
        all
    }

    fn session_responses(&self) -> Vec<Response<'_>> {
        let m = self.m;
        let (session, client, options) = (SessionId(m.a), ClientId(m.b), self.options());
        let mut all = vec![
            Response::ClientConnect(ClientConnectResult { session, client, options }),
            Response::Disconnect(Empty),
            Response::RegisterCred(RegisterCredResult { handle: CredHandle(m.w) }),
            Response::ReleaseCred(Empty),
            Response::SecInfo(SecurityMethods { methods: self.methods.as_slice().into() }),
            Response::CheckResponse(Empty),
            Response::FetchResponse(FetchedResults { bytes: &m.data }),
            Response::DiscardResponses(Empty),
            Response::GetFencingList(FencingList { fence_ids: self.fences.as_slice().into() }),
            Response::SetFencingList(Empty),
        ];
        for authentication in self.authentication_results() {
            let trusted = m.flag;
            all.push(Response::ClientAuth(ClientAuthResult { authentication, trusted }));
            all.push(Response::ClientConnectAuth(ClientConnectAuthResult {
                session,
                client,
                options,
                authentication,
                trusted,
            }));
            all.push(Response::ConnectBind(ConnectBindResult {
                request_bytes_max: m.w,
                response_bytes_max: 1,
                requests_max: 2,
                authentication,
                trusted,
            }));
        }
        for proof in [
            ServerProof::None,
            ServerProof::Gss,
            ServerProof::Default,
            ServerProof::Text { identity: &m.name, password: &m.other_name },
        ] {
            all.push(Response::ServerAuth(ServerAuthResult { proof }));
        }
        all
    }

    fn file_responses(&self) -> Vec<Response<'_>> {
        let m = self.m;
        let (file, directory) = (m.handle, self.change());
        let checksum = Checksum(m.w.to_le_bytes());
        let verifier = Verifier(m.b.to_le_bytes());
        let written = WriteResult { length: m.w, committed: Stability::FileSync, verifier };
        let appended = AppendResult { offset: m.a, verifier, committed: Stability::DataSync };
        let set = SetAttributesResult { set: AttributeBitmap(m.a) };
        let cookies = CookieVerifier(m.a.to_le_bytes());
        let attributes = self.file;
        let mut all = vec![
            Response::Access(AccessResult { supported: AccessMask(1), access: AccessMask(m.w) }),
            Response::CacheHint(Empty),
            Response::Close(Empty),
            Response::Commit(CommitResult { verifier }),
            Response::Create(CreateResult { file, directory }),
            Response::DelegPurge(Empty),
            Response::HandOver(HandOverResult { token: self.m.a }),
            Response::Channels(ChannelsResult { count: m.w }),
            Response::Allocate(Empty),
            Response::Deallocate(Empty),
            Response::Seek(SeekResult { offset: m.a, end_of_file: m.w.is_multiple_of(2) }),
            Response::CloneRange(Empty),
            Response::CopyRange(CopyResult {
                length: m.a,
                verifier,
                committed: Stability::Unstable,
            }),
            Response::DelegReturn(Empty),
            Response::GetFsAttr(FsAttributesResult { attributes: self.system }),
            Response::GetRootHandle(OneHandle { file }),
            Response::GetAttrInline(FileAttributesResult { attributes }),
            Response::GetAttrDirect(DirectResult { checksum }),
            Response::Link(DirectoryChanged { directory }),
            Response::LockU(Empty),
            Response::Lookup(LookupResult { file, component_count: m.w }),
            Response::LookupP(OneHandle { file }),
            Response::Null(Empty),
            Response::NVerify(Empty),
            Response::OpenDowngrade(Empty),
            Response::OpenAttr(OneHandle { file }),
            Response::ReadInline(ReadInlineResult {
                end_of_file: m.flag,
                data: InlineData::Here(&m.data),
            }),
            Response::ReadDirect(ReadDirectResult { end_of_file: m.flag, length: m.w, checksum }),
            Response::ReadDirInline(ReadDirectoryResult {
                verifier: cookies,
                end_of_directory: m.flag,
                entries: self.entries,
            }),
            Response::ReadDirDirect(ReadDirectoryDirectResult {
                verifier: cookies,
                end_of_directory: m.flag,
                checksum,
            }),
            Response::ReadLinkInline(LinkTextResult { text: &m.blob }),
            Response::ReadLinkDirect(DirectResult { checksum }),
            Response::Remove(DirectoryChanged { directory }),
            Response::Rename(RenameResult { source: directory, target: directory }),
            Response::SetAttrInline(set),
            Response::SetAttrDirect(set),
            Response::Verify(Empty),
            Response::BatchSubmit(Completions { completions: self.completions.as_slice().into() }),
            Response::WriteInline(written),
            Response::WriteDirect(written),
            Response::BcGetAttr(FileAttributesResult { attributes }),
            Response::BcNull(Empty),
            Response::BcRecall(Empty),
            Response::BcLockReady(Empty),
            Response::BcBatchCompletion(Empty),
            Response::AppendInline(appended),
            Response::AppendDirect(appended),
            Response::HurryUp(Empty),
        ];
        let (state, recall) = (StateId(m.a), m.flag);
        let entry = AccessEntry { entry_type: 1, flags: m.w, mask: 3, who: &m.name };
        let blocks = SpaceLimit::Blocks { count: m.w, block_bytes: 512 };
        for delegation in [
            Delegation::None,
            Delegation::Read { state, recall, entry },
            Delegation::Write { state, recall, limit: SpaceLimit::Size(m.b), entry },
            Delegation::Write { state, recall, limit: blocks, entry },
        ] {
            all.push(Response::Open(OpenResult {
                file,
                state,
                directory,
                component_count: m.w,
                flags: OpenFlags(m.w),
                delegation,
            }));
        }
        all
    }

    fn lock_responses(&self) -> Vec<(Status, Procedure, Response<'_>)> {
        let m = self.m;
        let conflict = Some(LockConflict {
            client: ClientId(m.a),
            owner: &m.blob,
            offset: m.b,
            length: m.a,
            lock_type: LockType::Write,
        });
        let (free, held) = (LockResult { conflict: None }, LockResult { conflict });
        vec![
            (Status::Ok, Procedure::Lock, Response::Lock(free)),
            (Status::Denied, Procedure::Lock, Response::Lock(held)),
            (Status::Ok, Procedure::LockT, Response::LockT(free)),
            (Status::LockBroken, Procedure::LockT, Response::LockT(held)),
        ]
    }
}

fn assert_all(procedures: impl Iterator<Item = Procedure>) {
    let seen: BTreeSet<_> = procedures.collect();
    let missing: Vec<_> = Procedure::ALL.iter().filter(|one| !seen.contains(one)).collect();
    assert!(missing.is_empty(), "no message of {missing:?}");
    let _ = file::bits::MANDATORY;
}
