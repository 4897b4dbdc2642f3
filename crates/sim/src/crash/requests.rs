//! The requests of the members of the crash world, encoded for the protocol, and the decoding of
//! replies.
//!
//! Invariant: a decoded reply contains only data that the server has sent.

use dafs_types::{
    CacheHint, CookieVerifier, DeleteDisposition, FileHandle, ReaddirCookie, RemoveMode,
    SequenceNumber, SessionId, SetAttributes, ShareAccess, ShareDeny, ShareKey, Stability, StateId,
    Status, StreamId, Verifier,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{
    AppendInline, CachedResponse, Close, Commit, Create, DelegationType, DiscardResponses, Empty,
    FenceAccess, FenceObject, FenceUpdate, GetAttributes, InlineData, Link, Lock, LockOptions,
    LockType, Lookup, NewObject, Open, OpenCreation, OpenTarget, Placement, ReadDirectory,
    ReadInline, Remove, Rename, SetAttributesInline, SetFencingList, Unlock, WriteDirect,
    WriteInline,
};
use dafs_wire::{
    Array, ByteOrder, Checksum, DirectBuffer, DirectBuffers, EncodeError, FileAttributeBlock,
    HEADER_BYTES, Path, Procedure, Request, RequestHeader, Response, ResponseHeader,
    decode_response, encode_request,
};

use super::cells::{CellRange, WriteId};
use super::log::{PAGE_RECORDS, RECORD_BYTES, RecordId, stamped};
use crate::operation::{Name, NameOperation};
use crate::plan::SERVER_NODE;

/// The index of a member of the world.
pub(super) type MemberIndex = usize;

/// The files that exist in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum File {
    /// A file of cells that has a fencing list.
    Data,
    /// A file of cells in which locks are taken.
    Locked,
    /// A file of records that has a fencing list.
    Log,
    /// A file without content that members open with share reservations.
    Shared,
}

impl File {
    pub(super) const ALL: [Self; 4] = [Self::Data, Self::Locked, Self::Log, Self::Shared];
    /// The files that every member keeps open all the time.
    pub(super) const OPEN: [Self; 3] = [Self::Data, Self::Locked, Self::Log];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Locked => "locked",
            Self::Log => "log",
            Self::Shared => "shared",
        }
    }
}

/// A share reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub access: ShareAccess,
    pub deny: ShareDeny,
    pub key: Option<u64>,
}

/// A byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockRange {
    pub run: CellRange,
    pub writes: bool,
    pub persists: bool,
    /// True if changes under the lock are rolled back when its holder fails.
    pub recovers: bool,
}

/// A request of a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MemberRequest {
    /// An operation on names. If it creates an object, `is_file` is true for a file and false for a
    /// symbolic link.
    Names {
        operation: NameOperation,
        is_file: bool,
    },
    Append {
        id: RecordId,
    },
    Write {
        id: WriteId,
        run: CellRange,
        stability: Stability,
        is_direct: bool,
    },
    Commit {
        file: File,
    },
    Read {
        run: CellRange,
    },
    ReadLog {
        from: u64,
    },
    SetSize {
        id: WriteId,
    },
    Size,
    Lock {
        lock: LockRange,
        repairs: bool,
    },
    /// Unlocks the range of a lock.
    Unlock {
        holding: u64,
        run: CellRange,
    },
    /// Rolls back the changes under a lock.
    Abort {
        holding: u64,
        run: CellRange,
    },
    OpenShare {
        share: Share,
    },
    CloseShare {
        holding: u64,
    },
    /// Sets a fencing list that admits the given members.
    Fence {
        file: File,
        members: Vec<MemberIndex>,
    },
    /// Opens one of the files that every member keeps open.
    OpenBase {
        file: File,
    },
    /// Reclaims an open or lock after a restart of the server.
    Reclaim {
        holding: u64,
    },
    Fetch {
        session: SessionId,
        about: RequestRef,
    },
    Discard {
        session: SessionId,
    },
    Null,
    Leave,
}

/// Identifies a request of an earlier session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestRef {
    pub stream: u16,
    pub sequence: u16,
    pub procedure: Procedure,
}

impl MemberRequest {
    /// Returns true if the request changes something, so that its outcome must be queried.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Names { operation, .. } => operation.changes(),
            Self::Append { .. }
            | Self::Write { .. }
            | Self::SetSize { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::Abort { .. }
            | Self::OpenShare { .. }
            | Self::CloseShare { .. }
            | Self::Fence { .. }
            | Self::OpenBase { .. }
            | Self::Reclaim { .. } => true,
            Self::Commit { .. }
            | Self::Read { .. }
            | Self::ReadLog { .. }
            | Self::Size
            | Self::Fetch { .. }
            | Self::Discard { .. }
            | Self::Null
            | Self::Leave => false,
        }
    }

    /// Returns true if this reply shows that the server has durably recorded that the member has
    /// finished reclaiming. That is the case if the reply refuses a new request because of the
    /// grace period, or grants new state to the member.
    pub(super) fn settles(&self, reply: &Reply) -> bool {
        use crate::operation::NameOperation::{Create, Open, Remove, Rename};
        let is_refused = *reply == Reply::Status(Status::Grace);
        let has_state = matches!(reply, Reply::File(_, state) if *state != StateId::ANONYMOUS);
        match self {
            Self::Names { operation: Create { .. } | Open { .. }, .. }
            | Self::OpenShare { .. }
            | Self::OpenBase { .. } => is_refused || has_state,
            Self::Names { operation: Remove { .. } | Rename { .. }, .. } => is_refused,
            Self::Lock { .. } => is_refused || *reply == Reply::Done,
            _ => false,
        }
    }
}

/// The data that a request needs in addition to a [`MemberRequest`].
pub(super) struct Context<'a> {
    pub root: FileHandle,
    /// The number of DAFS members. Members with higher numbers are NFS clients.
    pub dafs_members: usize,
    pub directories: &'a [FileHandle],
    /// The handles of [`File::ALL`].
    pub files: &'a [FileHandle],
    /// The state id of the member's open of the file, or of the open or lock that the request
    /// concerns.
    pub state: StateId,
    /// The handle of the file to link, or of the file on which an open or lock is reclaimed.
    pub file: FileHandle,
    /// The lock owner for which the open was made.
    pub owner: u64,
    /// The open or lock that the request reclaims. `None` if it reclaims none.
    pub reclaims: Option<Reclaimed>,
    /// The buffer that contains the data of a direct write. `None` for other requests.
    pub buffer: Option<DirectBuffer>,
}

/// An open or lock that is reclaimed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reclaimed {
    Open(Share),
    Lock(LockRange),
}

impl Context<'_> {
    fn handle(&self, file: File) -> FileHandle {
        self.files[file as usize]
    }

    fn directory(&self, name: Name) -> FileHandle {
        self.directories[usize::from(name.directory)]
    }
}

/// Encodes a request.
pub(super) fn encode(
    header: &RequestHeader,
    ask: &MemberRequest,
    context: &Context<'_>,
) -> Result<(Procedure, Vec<u8>), EncodeError> {
    let write = |request: &Request<'_>| {
        let mut message = vec![0; MESSAGE_BYTES];
        let length = encode_request(ByteOrder::NATIVE, header, request, &mut message)?;
        message.truncate(length);
        Ok((request.procedure(), message))
    };
    match ask {
        MemberRequest::Names { operation, is_file } => {
            encode_names(operation, *is_file, context, write)
        }
        MemberRequest::Append { .. }
        | MemberRequest::Write { .. }
        | MemberRequest::Commit { .. }
        | MemberRequest::Read { .. }
        | MemberRequest::ReadLog { .. }
        | MemberRequest::SetSize { .. }
        | MemberRequest::Size => encode_content(ask, context, write),
        MemberRequest::Lock { .. } | MemberRequest::Unlock { .. } | MemberRequest::Abort { .. } => {
            encode_lock(ask, context, write)
        }
        MemberRequest::OpenShare { share } => {
            write(&Request::Open(open(context, by_name(context, &[File::Shared.name()]), *share)))
        }
        MemberRequest::OpenBase { file } => {
            write(&Request::Open(open(context, by_name(context, &[file.name()]), BASE)))
        }
        MemberRequest::CloseShare { .. } => {
            let (file, state) = (context.file, context.state);
            write(&Request::Close(Close { file, state }))
        }
        MemberRequest::Reclaim { .. } => encode_reclaim(context, write),
        MemberRequest::Fence { file, members } => {
            let name_of = |member: &MemberIndex| match *member < context.dafs_members {
                true => fence_id(*member),
                false => super::nfs::fence_id(SERVER_NODE + 1 + *member as u32),
            };
            let names: Vec<String> = members.iter().map(name_of).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            write(&Request::SetFencingList(SetFencingList {
                file: context.handle(*file),
                object: FenceObject::File,
                access: FenceAccess::Allow,
                update: FenceUpdate::Overwrite,
                fence_ids: Array::from(names.as_slice()),
            }))
        }
        MemberRequest::Fetch { session, about } => write(&Request::FetchResponse(CachedResponse {
            session: *session,
            stream: StreamId(about.stream),
            sequence: SequenceNumber(about.sequence),
            procedure: about.procedure.number(),
        })),
        MemberRequest::Discard { session } => {
            write(&Request::DiscardResponses(DiscardResponses { session: *session }))
        }
        MemberRequest::Null => write(&Request::Null(Empty)),
        MemberRequest::Leave => write(&Request::Disconnect(Empty)),
    }
}

type Encoded = Result<(Procedure, Vec<u8>), EncodeError>;

fn encode_content(
    ask: &MemberRequest,
    context: &Context<'_>,
    write: impl Fn(&Request<'_>) -> Encoded,
) -> Encoded {
    let mut attributes = [0; ATTRIBUTE_BYTES_MAX];
    let hint = CacheHint::default();
    match ask {
        MemberRequest::Append { id } => write(&Request::AppendInline(AppendInline {
            file: context.handle(File::Log),
            state: context.state,
            stability: Stability::DataSync,
            hint,
            placement: Placement::Packed,
            data: InlineData::Here(&stamped(*id, RECORD_BYTES)),
        })),
        MemberRequest::Write { .. } => encode_write(ask, context, write),
        MemberRequest::Commit { file } => {
            write(&Request::Commit(Commit { file: context.handle(*file), offset: 0, length: 0 }))
        }
        MemberRequest::Read { run } => write(&Request::ReadInline(ReadInline {
            file: context.handle(run.file),
            state: context.state,
            offset: u64::from(run.first) * CELL_BYTES as u64,
            length: u32::from(run.count) * CELL_BYTES as u32,
            hint,
        })),
        MemberRequest::ReadLog { from } => write(&Request::ReadInline(ReadInline {
            file: context.handle(File::Log),
            state: context.state,
            offset: from * RECORD_BYTES as u64,
            length: PAGE_RECORDS as u32 * RECORD_BYTES as u32,
            hint,
        })),
        MemberRequest::SetSize { id } => {
            let wanted = SetAttributes { size: Some(SIZE_BASE + id), ..SetAttributes::default() };
            let block =
                FileAttributeBlock::encode_set(ByteOrder::NATIVE, &wanted, &mut attributes)?;
            let (file, state) = (context.handle(File::Data), context.state);
            write(&Request::SetAttrInline(SetAttributesInline { file, state, attributes: block }))
        }
        MemberRequest::Size => {
            let (file, wanted) = (context.handle(File::Data), bits::OBJECT_SIZE);
            write(&Request::GetAttrInline(GetAttributes { file, wanted }))
        }
        _ => write(&Request::Null(Empty)),
    }
}

fn encode_names(
    operation: &NameOperation,
    is_file: bool,
    context: &Context<'_>,
    write: impl Fn(&Request<'_>) -> Encoded,
) -> Encoded {
    let mut attributes = [0; ATTRIBUTE_BYTES_MAX];
    match operation {
        NameOperation::Create { name, .. } => {
            let wanted = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
            let block =
                FileAttributeBlock::encode_set(ByteOrder::NATIVE, &wanted, &mut attributes)?;
            let (directory, text) = (context.directory(*name), name.text());
            if !is_file {
                let object = NewObject::SymbolicLink(b"nowhere");
                let none = SetAttributes::default();
                let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
                let attributes =
                    FileAttributeBlock::encode_set(ByteOrder::NATIVE, &none, &mut buffer)?;
                let create = Create { directory, name: &text, object, attributes };
                return write(&Request::Create(create));
            }
            let names = [text.as_str()];
            let target = OpenTarget::Null { directory, path: Path::new(&names) };
            let creation = OpenCreation::Guarded(block);
            write(&Request::Open(Open { creation, ..open(context, target, BASE) }))
        }
        NameOperation::Open { name } | NameOperation::Lookup { name } => {
            let (directory, text) = (context.directory(*name), name.text());
            let names = [text.as_str()];
            write(&Request::Lookup(Lookup { directory, path: Path::new(&names) }))
        }
        NameOperation::Remove { name } => write(&Request::Remove(Remove {
            directory: context.directory(*name),
            name: &name.text(),
            mode: RemoveMode::Unchecked,
        })),
        NameOperation::Rename { from, to } => write(&Request::Rename(Rename {
            source: context.directory(*from),
            target: context.directory(*to),
            old_name: &from.text(),
            new_name: &to.text(),
        })),
        NameOperation::Link { name, .. } => write(&Request::Link(Link {
            source: context.file,
            directory: context.directory(*name),
            name: &name.text(),
        })),
        NameOperation::List { directory } => write(&Request::ReadDirInline(ReadDirectory {
            directory: context.directories[usize::from(*directory)],
            cookie: ReaddirCookie(0),
            verifier: CookieVerifier::default(),
            names_bytes: 1024,
            result_bytes_max: 1800,
            wanted: bits::FILEHANDLE,
        })),
        NameOperation::Links { .. } => write(&Request::GetAttrInline(GetAttributes {
            file: context.file,
            wanted: bits::NUM_LINKS,
        })),
    }
}

fn encode_write(
    ask: &MemberRequest,
    context: &Context<'_>,
    write: impl Fn(&Request<'_>) -> Encoded,
) -> Encoded {
    let MemberRequest::Write { id, run, stability, .. } = ask else {
        return write(&Request::Null(Empty));
    };
    let (file, state, hint) = (context.handle(run.file), context.state, CacheHint::default());
    let offset = u64::from(run.first) * CELL_BYTES as u64;
    let length = usize::from(run.count) * CELL_BYTES;
    if let Some(buffer) = context.buffer {
        let buffers = [buffer];
        return write(&Request::WriteDirect(WriteDirect {
            file,
            state,
            offset,
            length: length as u32,
            stability: *stability,
            hint,
            checksum: Checksum::NONE,
            buffers: DirectBuffers::from(&buffers),
        }));
    }
    write(&Request::WriteInline(WriteInline {
        file,
        state,
        offset,
        stability: *stability,
        hint,
        placement: Placement::Packed,
        data: InlineData::Here(&stamped(*id, length)),
    }))
}

fn encode_lock(
    ask: &MemberRequest,
    context: &Context<'_>,
    write: impl Fn(&Request<'_>) -> Encoded,
) -> Encoded {
    let (file, state) = (context.handle(File::Locked), context.state);
    match ask {
        MemberRequest::Lock { lock, repairs } => {
            let options = if *repairs { LockOptions::REPAIR } else { NO_OPTIONS };
            write(&Request::Lock(lock_request(file, state, lock, options)))
        }
        MemberRequest::Unlock { run, .. } => {
            let (offset, length) = bytes_of(run);
            let lock_type = LockType::Write;
            write(&Request::LockU(Unlock { file, lock_type, state, offset, length }))
        }
        MemberRequest::Abort { run, .. } => {
            let (offset, length) = bytes_of(run);
            let (lock_type, options) = (LockType::Abort, NO_OPTIONS);
            write(&Request::Lock(Lock { file, lock_type, options, state, offset, length }))
        }
        _ => write(&Request::Null(Empty)),
    }
}

fn encode_reclaim(context: &Context<'_>, write: impl Fn(&Request<'_>) -> Encoded) -> Encoded {
    match context.reclaims {
        Some(Reclaimed::Open(share)) => {
            let (file, delegation) = (context.file, DelegationType::None);
            write(&Request::Open(open(context, OpenTarget::Previous { file, delegation }, share)))
        }
        Some(Reclaimed::Lock(lock)) => {
            let (file, state) = (context.file, context.state);
            write(&Request::Lock(lock_request(file, state, &lock, LockOptions::RECLAIM)))
        }
        None => write(&Request::Null(Empty)),
    }
}

fn lock_request(file: FileHandle, state: StateId, lock: &LockRange, options: LockOptions) -> Lock {
    let lock_type = if lock.writes { LockType::Write } else { LockType::Read };
    let options = if lock.persists { options.with(LockOptions::PERSIST) } else { options };
    let options = if lock.recovers { options.with(LockOptions::AUTO_RECOVERY) } else { options };
    let (offset, length) = bytes_of(&lock.run);
    Lock { file, lock_type, options, state, offset, length }
}

fn bytes_of(run: &CellRange) -> (u64, u64) {
    (u64::from(run.first) * CELL_BYTES as u64, u64::from(run.count) * CELL_BYTES as u64)
}

fn by_name<'a>(context: &Context<'_>, names: &'a [&'a str]) -> OpenTarget<'a> {
    OpenTarget::Null { directory: context.root, path: Path::new(names) }
}

fn open<'a>(context: &'a Context<'_>, target: OpenTarget<'a>, share: Share) -> Open<'a> {
    Open {
        target,
        creation: OpenCreation::NoCreate,
        delete_disposition: DeleteDisposition::DontCare,
        owner: owner_bytes(context.owner),
        access: share.access,
        deny: share.deny,
        key: share.key.map(ShareKey),
    }
}

/// Returns the name of a lock owner.
fn owner_bytes(owner: u64) -> &'static [u8] {
    &OWNERS[owner as usize % OWNERS.len()]
}

/// Returns the fence identity of a member.
pub(super) fn fence_id(member: MemberIndex) -> String {
    format!("member-{member}")
}

/// The contents of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Status(Status),
    Done,
    File(FileHandle, StateId),
    Names(Vec<(Name, FileHandle)>),
    Bytes(Vec<u8>),
    /// The first bytes of a read of NFS, which may return fewer than the client asked for. The file
    /// has more.
    FirstBytes(Vec<u8>),
    Written(u32, Verifier),
    Offset(u64),
    Size(u64),
}

/// Decodes the reply to a procedure.
pub(super) fn decode_reply(
    procedure: Procedure,
    directory: u8,
    message: &[u8],
) -> Result<(ResponseHeader, Reply), String> {
    let header = ResponseHeader::decode(ByteOrder::NATIVE, message).map_err(|e| e.to_string())?;
    if header.status != Status::Ok {
        return Ok((header, Reply::Status(header.status)));
    }
    if message.len() == HEADER_BYTES && procedure != Procedure::Null {
        // An empty result has nothing to decode.
        return Ok((header, Reply::Done));
    }
    let (_, response) = decode_response(ByteOrder::NATIVE, procedure, message)
        .map_err(|error| format!("the reply to {procedure:?} cannot be decoded: {error}"))?;
    let reply = match response {
        Response::Open(opened) => Reply::File(opened.file, opened.state),
        Response::Create(made) => Reply::File(made.file, StateId::ANONYMOUS),
        Response::Lookup(found) => Reply::File(found.file, StateId::ANONYMOUS),
        Response::ReadInline(read) => Reply::Bytes(read.data.bytes().unwrap_or(&[]).to_vec()),
        Response::WriteInline(done) | Response::WriteDirect(done) => {
            Reply::Written(done.length, done.verifier)
        }
        Response::Commit(done) => Reply::Written(0, done.verifier),
        Response::AppendInline(done) | Response::AppendDirect(done) => Reply::Offset(done.offset),
        Response::GetAttrInline(result) => {
            let attributes = result.attributes.file();
            Reply::Size(attributes.size.ok_or("no size")?)
        }
        Response::ReadDirInline(page) if !page.end_of_directory => {
            return Err("a directory does not fit its page".into());
        }
        Response::ReadDirInline(page) => {
            let mut names = Vec::new();
            for entry in page.entries.iter() {
                let entry = entry.map_err(|error| error.to_string())?;
                let name = Name::parse(directory, entry.name);
                let handle = entry.attributes.file().file_handle;
                names.push(name.zip(handle).ok_or("an unexpected entry")?);
            }
            names.sort_unstable_by_key(|(name, _)| *name);
            Reply::Names(names)
        }
        _ => Reply::Done,
    };
    Ok((header, reply))
}

/// The share reservation with which members open the files that they always keep open.
pub(super) const BASE: Share =
    Share { access: ShareAccess::Both, deny: ShareDeny::None, key: None };
/// The size of a cell in bytes. No cell crosses the boundary of a disk sector.
pub(super) const CELL_BYTES: usize = 256;
/// The number of cells in a file.
pub(super) const CELLS: u8 = 32;
/// The initial size in bytes of the files of cells. No size that is set later is smaller.
pub(super) const SIZE_BASE: u64 = CELLS as u64 * CELL_BYTES as u64;
/// The maximum length of a message in bytes, in either direction.
pub(super) const MESSAGE_BYTES: usize = 2048;
const NO_OPTIONS: LockOptions = match LockOptions::from_bits(0) {
    Some(options) => options,
    None => LockOptions::REPAIR,
};
static OWNERS: [[u8; 2]; 256] = {
    let mut names = [[0; 2]; 256];
    let mut at = 0;
    while at < names.len() {
        names[at] = [b'o', at as u8];
        at += 1;
    }
    names
};
