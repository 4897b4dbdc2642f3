//! Properties of a request that follow from its content alone.
//!
//! Invariant: a request that is not listed counts as a change of data or attributes.
//! [`is_repeatable`] lists the requests that must not be repeated, so every new request must be
//! checked against it.

use dafs_types::{CreateMode, FileHandle};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{LockType, Open, OpenCreation, OpenTarget};
use dafs_wire::{ByteOrder, Procedure, ReplayClass, Request, RequestHeader};

use crate::path::unwired;

/// Returns true if the reply usually arrives sooner than the thread could sleep and wake, because
/// the server waits neither for a disk nor for other clients.
pub(crate) fn is_quick(request: &Request<'_>) -> bool {
    match request {
        Request::Open(open) => open.creation.mode() == CreateMode::NoCreate,
        Request::Create(_)
        | Request::Link(_)
        | Request::Remove(_)
        | Request::Rename(_)
        | Request::SetAttrInline(_)
        | Request::SetAttrDirect(_)
        | Request::AppendInline(_)
        | Request::AppendDirect(_)
        | Request::Commit(_)
        | Request::Allocate(_)
        | Request::Deallocate(_)
        | Request::Seek(_)
        | Request::CloneRange(_)
        | Request::CopyRange(_)
        | Request::Lock(_)
        | Request::BatchSubmit(_)
        | Request::SetFencingList(_)
        | Request::Disconnect(_)
        | Request::ClientConnect(_)
        | Request::ClientConnectAuth(_)
        | Request::ClientAuth(_)
        | Request::ServerAuth(_) => false,
        _ => true,
    }
}

/// The cached data that a request may invalidate.
pub(crate) enum Changed<'r> {
    Nothing,
    File(&'r FileHandle),
    Anything,
}

pub(crate) fn changed_by<'r>(request: &'r Request<'_>) -> Changed<'r> {
    match request {
        Request::SetAttrInline(r) => Changed::File(&r.file),
        Request::SetAttrDirect(r) => Changed::File(&r.file),
        Request::AppendInline(r) => Changed::File(&r.file),
        Request::AppendDirect(r) => Changed::File(&r.file),
        Request::WriteInline(r) => Changed::File(&r.file),
        Request::WriteDirect(r) => Changed::File(&r.file),
        Request::Link(r) => Changed::File(&r.source),
        Request::Allocate(r) | Request::Deallocate(r) => Changed::File(&r.file),
        Request::CloneRange(r) | Request::CopyRange(r) => Changed::File(&r.file),
        Request::Open(r) if r.creation.mode() == CreateMode::NoCreate => Changed::Nothing,
        Request::Lock(r) if r.lock_type != LockType::Abort => Changed::Nothing,
        request if is_harmless(request.procedure()) => Changed::Nothing,
        _ => Changed::Anything,
    }
}

/// Returns true if a request of this procedure can change neither the data nor the attributes of a
/// file. OPEN is not harmless, because it may truncate a file. LOCK is not harmless either, because
/// it may roll back writes.
pub(crate) fn is_harmless(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Null
            | Procedure::Access
            | Procedure::Channels
            | Procedure::CacheHint
            | Procedure::Close
            | Procedure::Commit
            | Procedure::DelegReturn
            | Procedure::DelegPurge
            | Procedure::GetAttrInline
            | Procedure::GetAttrDirect
            | Procedure::GetFsAttr
            | Procedure::GetRootHandle
            | Procedure::HandOver
            | Procedure::LockT
            | Procedure::LockU
            | Procedure::Lookup
            | Procedure::LookupP
            | Procedure::ReadInline
            | Procedure::ReadDirect
            | Procedure::ReadDirInline
            | Procedure::ReadDirDirect
            | Procedure::ReadLinkInline
            | Procedure::ReadLinkDirect
            | Procedure::Seek
            | Procedure::Verify
            | Procedure::NVerify
    )
}

/// Returns true if the server keeps the results of this procedure for a client that reconnects.
pub(crate) fn is_kept(procedure: Procedure) -> bool {
    match procedure.replay_class() {
        ReplayClass::Always | ReplayClass::WhenComplete => true,
        ReplayClass::Never | ReplayClass::OnRequest => false,
    }
}

/// Returns true if a request that may have been executed can safely be sent again.
pub(crate) fn is_repeatable(request: &Request<'_>) -> bool {
    match request {
        Request::Open(open) => is_repeatable_open(open),
        // Setting the size again would undo a change of the size that another client has made
        // since.
        Request::SetAttrInline(set) => !set.attributes.included().contains(bits::OBJECT_SIZE),
        Request::SetAttrDirect(_)
        | Request::Create(_)
        | Request::Link(_)
        | Request::Remove(_)
        | Request::Rename(_)
        | Request::AppendInline(_)
        | Request::AppendDirect(_) => false,
        // All other requests read, write the same bytes to the same range, or leave opens and locks
        // in the requested state.
        _ => true,
    }
}

pub(crate) fn is_repeatable_open(open: &Open<'_>) -> bool {
    match open.creation {
        OpenCreation::NoCreate | OpenCreation::Exclusive(_) => true,
        OpenCreation::Unchecked(attributes) => {
            let truncates = attributes.included().contains(bits::OBJECT_SIZE);
            !truncates || matches!(open.target, OpenTarget::CreateUnlinked { .. })
        }
        OpenCreation::Guarded(_) => matches!(open.target, OpenTarget::CreateUnlinked { .. }),
    }
}

pub(crate) fn describe(request: &Request<'_>) -> String {
    let procedure = request.procedure().name();
    match request {
        Request::Create(create) => format!("{procedure} of {:?}", unwired(create.name)),
        Request::Remove(remove) => format!("{procedure} of {:?}", unwired(remove.name)),
        Request::Link(link) => format!("{procedure} of {:?}", unwired(link.name)),
        Request::Rename(rename) => {
            let (old, new) = (unwired(rename.old_name), unwired(rename.new_name));
            format!("{procedure} of {old:?} to {new:?}")
        }
        Request::Open(Open { target: OpenTarget::Null { path, .. }, .. }) => {
            let names: Vec<&str> = path.iter().collect();
            format!("{procedure} of {:?}", unwired(&names.join("/")))
        }
        _ => procedure.to_owned(),
    }
}

/// Returns the procedure of an encoded request.
pub(crate) fn procedure_of(message: &[u8]) -> Option<Procedure> {
    let header = RequestHeader::decode(ByteOrder::NATIVE, message).ok()?;
    Procedure::from_number(header.procedure)
}

/// Reads a 32-bit count or offset at byte `at` of an encoded request.
pub(crate) fn word_at(message: &[u8], at: usize) -> Option<usize> {
    let bytes = message.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_ne_bytes(bytes)).ok()
}
