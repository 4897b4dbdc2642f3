//! The handles that a request names, in the form that the store gives them now.
//!
//! Invariant: whatever compares handles, or keeps something by them, sees the present form
//! alone, whenever the client or the journal got theirs. So requests are decoded here and
//! nowhere else.

use dafs_store::Store;
use dafs_types::FileHandle;
use dafs_wire::messages::OpenTarget;
use dafs_wire::{ByteOrder, DecodeError, Request, RequestHeader, decode_arguments};

/// Decodes a request.
#[inline(always)]
pub(crate) fn decode<'m>(
    store: &dyn Store,
    order: ByteOrder,
    header: &RequestHeader,
    message: &'m [u8],
) -> Result<Request<'m>, DecodeError> {
    // Changed where it is: a request is a few cache lines, and a copy of it shows in a read.
    let mut decoded = decode_arguments(order, header, message);
    match &mut decoded {
        Ok(Request::ReadDirect(read)) if !is_unusual(&read.file) => {}
        Ok(Request::WriteDirect(write)) if !is_unusual(&write.file) => {}
        Ok(request) => renew_all(store, request),
        Err(_) => {}
    }
    decoded
}

/// Brings one handle into its present form.
#[inline]
pub(crate) fn renew(store: &dyn Store, handle: &mut FileHandle) {
    if is_unusual(handle)
        && let Some(renewed) = store.renewed(handle)
    {
        *handle = renewed;
    }
}

#[inline(never)]
fn renew_all(store: &dyn Store, request: &mut Request<'_>) {
    named(request).into_iter().flatten().for_each(|handle| renew(store, handle));
}

/// Whether the store must be asked. A server that stands alone gives out handles of node 0.
#[inline(always)]
fn is_unusual(handle: &FileHandle) -> bool {
    handle.birth_node() != 0
}

/// The handles among a request's arguments, but those of a batch's transfers.
pub(crate) fn named<'r>(request: &'r mut Request<'_>) -> [Option<&'r mut FileHandle>; 2] {
    let file = match request {
        Request::Access(r) => &mut r.file,
        Request::AppendDirect(r) => &mut r.file,
        Request::AppendInline(r) => &mut r.file,
        Request::CacheHint(r) => &mut r.file,
        Request::Close(r) => &mut r.file,
        Request::Commit(r) => &mut r.file,
        Request::Create(r) => &mut r.directory,
        Request::GetAttrDirect(r) => &mut r.file,
        Request::GetAttrInline(r) | Request::GetFsAttr(r) => &mut r.file,
        Request::Link(r) => return [Some(&mut r.source), Some(&mut r.directory)],
        Request::Lock(r) => &mut r.file,
        Request::LockT(r) => &mut r.file,
        Request::LockU(r) => &mut r.file,
        Request::Lookup(r) => &mut r.directory,
        Request::LookupP(r) | Request::OpenAttr(r) | Request::ReadLinkInline(r) => &mut r.file,
        Request::Verify(r) | Request::NVerify(r) => &mut r.file,
        Request::Open(r) => match &mut r.target {
            OpenTarget::Null { directory, .. }
            | OpenTarget::DelegateCurrent { directory, .. }
            | OpenTarget::DelegatePrevious { directory, .. }
            | OpenTarget::CreateUnlinked { directory } => directory,
            OpenTarget::Previous { file, .. } => file,
        },
        Request::OpenDowngrade(r) => &mut r.file,
        Request::ReadDirDirect(r) => &mut r.directory,
        Request::ReadDirInline(r) => &mut r.directory,
        Request::ReadDirect(r) => &mut r.file,
        Request::ReadInline(r) => &mut r.file,
        Request::ReadLinkDirect(r) => &mut r.file,
        Request::Remove(r) => &mut r.directory,
        Request::Rename(r) => return [Some(&mut r.source), Some(&mut r.target)],
        Request::SetAttrDirect(r) => &mut r.file,
        Request::SetAttrInline(r) => &mut r.file,
        Request::WriteDirect(r) => &mut r.file,
        Request::WriteInline(r) => &mut r.file,
        Request::GetFencingList(r) => &mut r.file,
        Request::SetFencingList(r) => &mut r.file,
        Request::GetRootHandle(_)
        | Request::BatchSubmit(_)
        | Request::HurryUp(_)
        | Request::ClientAuth(_)
        | Request::ClientConnect(_)
        | Request::ClientConnectAuth(_)
        | Request::ConnectBind(_)
        | Request::Disconnect(_)
        | Request::RegisterCred(_)
        | Request::ReleaseCred(_)
        | Request::SecInfo(_)
        | Request::ServerAuth(_)
        | Request::CheckResponse(_)
        | Request::FetchResponse(_)
        | Request::DiscardResponses(_)
        | Request::DelegReturn(_)
        | Request::DelegPurge(_)
        | Request::Null(_)
        | Request::BcGetAttr(_)
        | Request::BcNull(_)
        | Request::BcRecall(_)
        | Request::BcLockReady(_)
        | Request::BcBatchCompletion(_) => return [None, None],
    };
    [Some(file), None]
}
