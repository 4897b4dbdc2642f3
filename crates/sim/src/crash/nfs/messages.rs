//! The requests of NFS members as compounds, and the decoding of their results.
//!
//! Invariant: a decoded reply contains only data that the server has sent.

use dafs_nfs_wire::nfs4::attributes::{number, parse_fattr};
use dafs_nfs_wire::nfs4::data::{CommitArgs, ReadArgs, WriteArgs};
use dafs_nfs_wire::nfs4::directory::{
    CreateArgs, CreateKind, ReadDirArgs, ReadDirDone, RenameArgs, SetAttrArgs,
};
use dafs_nfs_wire::nfs4::open::{
    CloseArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny,
};
use dafs_nfs_wire::nfs4::types::{ClientId, Stability as WireStability, StateOwner, Verifier};
use dafs_nfs_wire::nfs4::{
    Answer, Attributes, Bitmap, NFS4, Operation, Reply as Result4, ReplyReader, StateId,
    Status as Status4,
};
use dafs_nfs_wire::rpc::{self, Auth, AuthSys, Call, ReplyBody, flavor};
use dafs_nfs_wire::xdr::{Inline, Opaque, Payload, Reader, Writer, Xdr};
use dafs_types::{FileHandle, Stability, Status};

use crate::crash::log::{PAGE_RECORDS, RECORD_BYTES, stamped};
use crate::crash::requests::{CELL_BYTES, File, MemberRequest, Reply, SIZE_BASE};
use crate::operation::{Name, NameOperation};

/// The handles that requests name.
pub(super) struct Handles<'a> {
    pub directories: &'a [FileHandle],
    /// The handles of [`File::ALL`].
    pub files: &'a [FileHandle],
    /// The handle of the file to link.
    pub file: FileHandle,
}

/// Encodes a call of COMPOUND from a function that writes the operations and returns their number.
pub(super) fn compound(xid: u32, operations: impl FnOnce(&mut Writer) -> u32) -> Vec<u8> {
    let mut credential = Writer::new();
    let (machine_name, gids) = (Opaque(b"member".as_slice()), Inline::default());
    AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids }.encode(&mut credential);
    let credential = Auth { flavor: flavor::SYS, body: Opaque(credential.bytes()) };
    let mut writer = Writer::new();
    let (program, version, procedure) = (NFS4.number, NFS4.version, COMPOUND);
    let (verifier, header) = (Auth::NONE, [].as_slice());
    let call = Call { xid, program, version, procedure, credential, verifier, header };
    rpc::encode_call(&call, &mut writer);
    // The header of the compound: no tag, minor version 1, and the number of operations.
    writer.count(0, 0);
    writer.u32(1);
    let count = writer.reserve();
    let written = operations(&mut writer);
    writer.patch(count, written);
    writer.bytes().to_vec()
}

/// Encodes the operations of a request. Returns their number.
pub(super) fn encode(ask: &MemberRequest, handles: &Handles<'_>, writer: &mut Writer) -> u32 {
    let mut count = 0;
    let mut push = |operation: Operation<'_>| {
        operation.encode(writer);
        count += 1;
    };
    let at = |file: File| Operation::PutFh(Opaque(&handles.files[file as usize].0));
    let (anonymous, cell) = (StateId::default(), CELL_BYTES as u64);
    match ask {
        MemberRequest::Names { operation, is_file } => {
            encode_names(operation, *is_file, handles, &mut push);
        }
        MemberRequest::Write { id, run, stability, .. } => {
            let bytes = stamped(*id, usize::from(run.count) * CELL_BYTES);
            let stability = match stability {
                Stability::Unstable => WireStability::Unstable,
                Stability::DataSync => WireStability::DataSync,
                Stability::FileSync => WireStability::FileSync,
            };
            let (offset, data) = (u64::from(run.first) * cell, Payload::Here(&bytes));
            push(at(run.file));
            push(Operation::Write(WriteArgs { state: anonymous, offset, stability, data }));
        }
        MemberRequest::Commit { file } => {
            push(at(*file));
            push(Operation::Commit(CommitArgs::default()));
        }
        MemberRequest::Read { run } => {
            let (offset, count) = (u64::from(run.first) * cell, u32::from(run.count));
            let count = count * CELL_BYTES as u32;
            push(at(run.file));
            push(Operation::Read(ReadArgs { state: anonymous, offset, count }));
        }
        MemberRequest::ReadLog { from } => {
            let count = PAGE_RECORDS as u32 * RECORD_BYTES as u32;
            let offset = from * RECORD_BYTES as u64;
            push(at(File::Log));
            push(Operation::Read(ReadArgs { state: anonymous, offset, count }));
        }
        MemberRequest::SetSize { id } => {
            let size = Some(SIZE_BASE + id);
            let bytes = bytes_of(&Attributes { size, ..Attributes::default() });
            let attributes = parse_fattr(&bytes).unwrap_or_default();
            push(at(File::Data));
            push(Operation::SetAttr(SetAttrArgs { state: anonymous, attributes }));
        }
        _ => {
            push(at(File::Data));
            push(Operation::GetAttr(Bitmap::of(&[number::size])));
        }
    }
    debug_assert_eq!(count, count_of(ask), "{ask:?}");
    count
}

fn encode_names(
    operation: &NameOperation,
    is_file: bool,
    handles: &Handles<'_>,
    push: &mut dyn FnMut(Operation<'_>),
) {
    let directory = |at: u8| handles.directories[usize::from(at)].0;
    let put = |name: &Name, push: &mut dyn FnMut(Operation<'_>)| {
        push(Operation::PutFh(Opaque(&directory(name.directory))));
    };
    match operation {
        NameOperation::Create { name, .. } => {
            put(name, push);
            push_creation(&name.bytes(), is_file, push);
        }
        NameOperation::Open { name } | NameOperation::Lookup { name } => {
            put(name, push);
            push(Operation::Lookup(Opaque(&name.bytes())));
            push(Operation::GetFh);
        }
        NameOperation::Remove { name } => {
            put(name, push);
            push(Operation::Remove(Opaque(&name.bytes())));
        }
        NameOperation::Rename { from, to } => {
            put(from, push);
            push(Operation::SaveFh);
            put(to, push);
            let (old_name, new_name) = (from.bytes(), to.bytes());
            push(Operation::Rename(RenameArgs {
                old_name: Opaque(&old_name),
                new_name: Opaque(&new_name),
            }));
        }
        NameOperation::Link { name, .. } => {
            push(Operation::PutFh(Opaque(&handles.file.0)));
            push(Operation::SaveFh);
            put(name, push);
            push(Operation::Link(Opaque(&name.bytes())));
        }
        NameOperation::List { directory: at } => {
            push(Operation::PutFh(Opaque(&directory(*at))));
            push(Operation::ReadDir(ReadDirArgs {
                cookie: 0,
                verifier: Verifier::default(),
                names_bytes: 1024,
                bytes_max: 2048,
                attributes: Bitmap::of(&[number::filehandle]),
            }));
        }
        NameOperation::Links { .. } => {
            push(Operation::PutFh(Opaque(&handles.file.0)));
            push(Operation::GetAttr(Bitmap::of(&[number::numlinks])));
        }
    }
}

/// Encodes the creation of a file, which is closed again, or of a symbolic link.
fn push_creation(name: &[u8], is_file: bool, push: &mut dyn FnMut(Operation<'_>)) {
    if !is_file {
        let kind = CreateKind::SymbolicLink(Opaque(b"nowhere"));
        let none = bytes_of(&Attributes::default());
        let attributes = parse_fattr(&none).unwrap_or_default();
        push(Operation::Create(CreateArgs { kind, name: Opaque(name), attributes }));
        return push(Operation::GetFh);
    }
    let bytes = bytes_of(&Attributes { mode: Some(0o644), ..Attributes::default() });
    let attributes = parse_fattr(&bytes).unwrap_or_default();
    push(Operation::Open(OpenArgs {
        sequence: 0,
        access: ShareAccess::BOTH.with(ShareAccess::WANT_NO_DELEG),
        deny: ShareDeny::NONE,
        owner: StateOwner { client: ClientId(0), owner: Opaque(b"owner") },
        how: OpenHow::Create(CreateHow::Guarded(attributes)),
        claim: OpenClaim::Name(Opaque(name)),
    }));
    push(Operation::GetFh);
    push(Operation::Close(CloseArgs { sequence: 0, state: CURRENT }));
}

fn bytes_of(attributes: &Attributes<'_>) -> Vec<u8> {
    attributes.to_bytes().unwrap_or_default()
}

/// The results of a compound.
pub(super) type Answers<'b> = ReplyReader<'b, Operation<'b>>;

/// Returns the xid of a reply and the results of its compound.
pub(super) fn results(record: &[u8]) -> Result<(u32, Answers<'_>), String> {
    let failed = |error| format!("a reply cannot be decoded: {error}");
    let mut reader = Reader::new(record);
    let head = rpc::Reply::decode(&mut reader).map_err(failed)?;
    match head.body {
        ReplyBody::Accepted(accepted) if accepted.outcome == rpc::Outcome::Success => {}
        other => return Err(format!("a call was refused: {other:?}")),
    }
    Ok((head.xid, ReplyReader::new(reader).map_err(failed)?))
}

/// Returns the next result; `None` after the last one.
pub(super) fn next<'b>(answers: &mut Answers<'b>) -> Result<Option<Answer<'b>>, String> {
    let answer = answers.next_answer().transpose();
    answer.map_err(|error| format!("a result cannot be decoded: {error}"))
}

/// What the results say about a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    Reply(Reply),
    /// The request was not executed; it may be sent again later as a new one.
    Later,
    /// The request was not reached, because one before it has failed.
    Unreached,
}

/// Returns the number of operations of a request.
fn count_of(ask: &MemberRequest) -> u32 {
    use NameOperation::{Create, Link, Links, List, Lookup, Open, Remove, Rename};
    match ask {
        MemberRequest::Names { operation: Create { .. }, is_file: true } => 4,
        MemberRequest::Names { operation, .. } => match operation {
            Create { .. } | Open { .. } | Lookup { .. } => 3,
            Rename { .. } | Link { .. } => 4,
            Remove { .. } | List { .. } | Links { .. } => 2,
        },
        _ => 2,
    }
}

/// Decodes the results of a request.
pub(super) fn reply_of(ask: &MemberRequest, answers: &mut Answers<'_>) -> Result<Told, String> {
    let mut reply = Reply::Done;
    for _ in 0..count_of(ask) {
        let Some(answer) = next(answers)? else {
            return Ok(Told::Unreached);
        };
        let status = answer.status();
        match (&answer, status) {
            // The file exists, even if the server that has opened it was killed.
            (Answer::Close(_), Status4::StaleStateId | Status4::BadStateId) => break,
            (_, Status4::Ok) => {}
            (_, Status4::Delay) => return Ok(Told::Later),
            (_, status) => return Ok(Told::Reply(Reply::Status(status_of(status)?))),
        }
        if let Some(value) = value_of(ask, &answer)? {
            reply = value;
        }
    }
    Ok(Told::Reply(reply))
}

/// Returns the value in a result. `None` if the result has none that the checker needs.
fn value_of(ask: &MemberRequest, answer: &Answer<'_>) -> Result<Option<Reply>, String> {
    Ok(Some(match answer {
        Answer::GetFh(Result4::Ok(handle)) => {
            let handle = handle.0.try_into().map_err(|_| "a handle has another length")?;
            Reply::File(FileHandle(handle), dafs_types::StateId::ANONYMOUS)
        }
        Answer::Read(Result4::Ok(read)) => match read.data {
            Payload::Here([]) if !read.is_end => return Err("a READ has found nothing".into()),
            Payload::Here(bytes) if read.is_end => Reply::Bytes(bytes.to_vec()),
            Payload::Here(bytes) => Reply::FirstBytes(bytes.to_vec()),
            Payload::Elsewhere(_) => return Err("a READ has no data".into()),
        },
        Answer::Write(Result4::Ok(done)) => {
            Reply::Written(done.count, dafs_types::Verifier(done.verifier.0))
        }
        Answer::Commit(Result4::Ok(verifier)) => {
            Reply::Written(0, dafs_types::Verifier(verifier.0))
        }
        Answer::GetAttr(Result4::Ok(found)) => {
            let found = found.decode().map_err(|error| error.to_string())?;
            Reply::Size(found.size.ok_or("no size")?)
        }
        Answer::ReadDir(Result4::Ok(listing)) => Reply::Names(names_of(ask, listing)?),
        _ => return Ok(None),
    }))
}

/// Returns the names and handles in a listing, sorted by name.
fn names_of(
    ask: &MemberRequest,
    listing: &ReadDirDone<'_>,
) -> Result<Vec<(Name, FileHandle)>, String> {
    let directory = match ask {
        MemberRequest::Names { operation: NameOperation::List { directory }, .. } => *directory,
        _ => 0,
    };
    if !listing.is_end {
        return Err("a directory does not fit its page".into());
    }
    let mut names = Vec::new();
    for entry in listing.entries.iter() {
        let found = entry.attributes.decode().map_err(|error| error.to_string())?;
        let handle = found.filehandle.and_then(|handle| handle.0.try_into().ok());
        let name = name_of(directory, entry.name.0);
        let (name, handle) = name.zip(handle).ok_or("an unexpected entry")?;
        names.push((name, FileHandle(handle)));
    }
    names.sort_unstable_by_key(|(name, _)| *name);
    Ok(names)
}

fn name_of(directory: u8, bytes: &[u8]) -> Option<Name> {
    Name::parse(directory, &dafs_types::names::to_wire(bytes))
}

/// Returns the status of the checker for a status of NFS.
fn status_of(status: Status4) -> Result<Status, String> {
    Ok(match status {
        Status4::NoEnt => Status::NoEnt,
        Status4::Exist => Status::Exist,
        Status4::Stale => Status::Stale,
        Status4::Access => Status::Access,
        Status4::Grace => Status::Grace,
        Status4::Locked => Status::Locked,
        other => return Err(format!("an operation got {other:?}")),
    })
}

/// The special state id that stands for the one that the previous operation has returned.
const CURRENT: StateId = StateId { sequence: 1, other: [0; 12] };
/// The number of the procedure COMPOUND.
const COMPOUND: u32 = 1;
