//! Converts the handles of a request to the form that the store uses now.
//!
//! Invariant: all code that compares handles or uses them as keys sees only the form that the store
//! uses now, even if a client or the journal stored a handle long ago. So only this module decodes
//! requests.

use dafs_store::Store;
use dafs_types::FileHandle;
use dafs_wire::messages::OpenTarget;
use dafs_wire::{ByteOrder, DecodeError, Request, RequestHeader, decode_arguments};

/// Decodes a request and converts its handles.
#[inline(always)]
pub(crate) fn decode<'m>(
    store: &dyn Store,
    order: ByteOrder,
    header: &RequestHeader,
    message: &'m [u8],
) -> Result<Request<'m>, DecodeError> {
    let mut decoded = decode_arguments(order, header, message);
    renew_in(store, &mut decoded);
    decoded
}

/// Converts the handles of a decoded request in place. A request is several cache lines long, so
/// returning a copy would slow down a read measurably.
#[inline(always)]
pub(crate) fn renew_in(store: &dyn Store, decoded: &mut Result<Request<'_>, DecodeError>) {
    match decoded {
        Ok(Request::ReadDirect(read)) if !is_unusual(&read.file) => {}
        Ok(Request::WriteDirect(write)) if !is_unusual(&write.file) => {}
        Ok(Request::Close(close)) if !is_unusual(&close.file) => {}
        Ok(request) => renew_all(store, request),
        Err(_) => {}
    }
}

/// Converts a handle to the form that the store uses now.
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
    named_mut(request).into_iter().flatten().for_each(|handle| renew(store, handle));
}

/// Returns true if only the store can convert the handle. Handles with node number 0, which a
/// server without other nodes issues, need no conversion.
#[inline(always)]
fn is_unusual(handle: &FileHandle) -> bool {
    handle.birth_node() != 0
}

/// Lists, for each kind of request, the handles in its arguments; the handles of a batch's
/// transfers are not included. There is no other such list. `$to` says how each handle is accessed.
macro_rules! named_in {
    ($request:expr, $($to:tt)+) => {{
        let file = match $request {
            Request::Access(r) => $($to)+ r.file,
            Request::Allocate(r) | Request::Deallocate(r) => $($to)+ r.file,
            Request::AppendDirect(r) => $($to)+ r.file,
            Request::AppendInline(r) => $($to)+ r.file,
            Request::CacheHint(r) => $($to)+ r.file,
            Request::Close(r) => $($to)+ r.file,
            Request::Commit(r) => $($to)+ r.file,
            Request::Create(r) => $($to)+ r.directory,
            Request::GetAttrDirect(r) => $($to)+ r.file,
            Request::GetAttrInline(r) | Request::GetFsAttr(r) => $($to)+ r.file,
            Request::HandOver(r) => $($to)+ r.file,
            Request::Link(r) => return [Some($($to)+ r.source), Some($($to)+ r.directory)],
            Request::Lock(r) => $($to)+ r.file,
            Request::LockT(r) => $($to)+ r.file,
            Request::LockU(r) => $($to)+ r.file,
            Request::Lookup(r) => $($to)+ r.directory,
            Request::LookupP(r) => $($to)+ r.file,
            Request::OpenAttr(r) | Request::ReadLinkInline(r) => $($to)+ r.file,
            Request::Verify(r) | Request::NVerify(r) => $($to)+ r.file,
            Request::Open(r) => match $($to)+ r.target {
                OpenTarget::Null { directory, .. }
                | OpenTarget::DelegateCurrent { directory, .. }
                | OpenTarget::DelegatePrevious { directory, .. }
                | OpenTarget::CreateUnlinked { directory } => directory,
                OpenTarget::Previous { file, .. } => file,
            },
            Request::OpenDowngrade(r) => $($to)+ r.file,
            Request::ReadDirDirect(r) => $($to)+ r.directory,
            Request::ReadDirInline(r) => $($to)+ r.directory,
            Request::ReadDirect(r) => $($to)+ r.file,
            Request::ReadInline(r) => $($to)+ r.file,
            Request::ReadLinkDirect(r) => $($to)+ r.file,
            Request::Remove(r) => $($to)+ r.directory,
            Request::Rename(r) => return [Some($($to)+ r.source), Some($($to)+ r.target)],
            Request::CloneRange(r) | Request::CopyRange(r) => {
                return [Some($($to)+ r.source), Some($($to)+ r.file)];
            }
            Request::Seek(r) => $($to)+ r.file,
            Request::SetAttrDirect(r) => $($to)+ r.file,
            Request::SetAttrInline(r) => $($to)+ r.file,
            Request::WriteDirect(r) => $($to)+ r.file,
            Request::WriteInline(r) => $($to)+ r.file,
            Request::GetFencingList(r) => $($to)+ r.file,
            Request::SetFencingList(r) => $($to)+ r.file,
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
            | Request::Channels(_)
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
    }};
}

/// Returns the handles in a request's arguments, at most two.
pub(crate) fn named<'r>(request: &'r Request<'_>) -> [Option<&'r FileHandle>; 2] {
    named_in!(request, &)
}

fn named_mut<'r>(request: &'r mut Request<'_>) -> [Option<&'r mut FileHandle>; 2] {
    named_in!(request, &mut)
}
