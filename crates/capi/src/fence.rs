//! Fences, which limit the clients that may access a file or a file system.
//!
//! Invariant: when a change has returned, requests of clients that the fence excludes can no longer
//! change the object.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use dafs_client::{FenceAccess, FenceObject, FenceUpdate};

use crate::check;
use crate::connect::SessionObject;
use crate::failure::{Failure, Result, counted, done};
use crate::handles;
use crate::types::{
    DAP_FENCE_ADD, DAP_FENCE_FILE, DAP_FENCE_FILE_SYSTEM, DAP_FENCE_REMOVE, DAP_FENCE_SET,
    dap_session,
};

/// Changes the list of clients that may access a file, or the file system that contains a path.
/// `object` is DAP_FENCE_FILE or DAP_FENCE_FILE_SYSTEM, `change` is DAP_FENCE_SET, DAP_FENCE_ADD or
/// DAP_FENCE_REMOVE, and `fence_ids` points to `count` names, as given to dap_connect. Returns when
/// the change is in force and all requests in flight of excluded clients have ended.
///
/// Returns 0, or a negative error number: -EPERM unless this user owns the file or is trusted;
/// -EINVAL for DAP_FENCE_REMOVE if there is no fence, or if no name would remain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fence(
    session: *mut dap_session,
    path: *const c_char,
    object: u32,
    change: u32,
    fence_ids: *const *const c_char,
    count: usize,
) -> c_int {
    done(|| {
        let object = object_of(object)?;
        let (access, update) = match change {
            DAP_FENCE_SET => (FenceAccess::Allow, FenceUpdate::Overwrite),
            DAP_FENCE_ADD => (FenceAccess::Allow, FenceUpdate::Append),
            DAP_FENCE_REMOVE => (FenceAccess::Deny, FenceUpdate::Remove),
            other => {
                return Err(Failure::invalid(format!("fence change {other} is invalid")));
            }
        };
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let (path, pointers) = unsafe {
            (session.path(path, "path")?, check::array(fence_ids, count, NAMES_MAX, "fence_ids")?)
        };
        let mut names = Vec::with_capacity(count);
        for pointer in pointers {
            // SAFETY: the caller guarantees that its pointers are valid.
            names.push(unsafe { check::text(*pointer, "one of fence_ids")? });
        }
        session.ask(async |session| {
            session.set_fence_async(&path, object, access, update, &names).await
        })
    })
}

/// Stores the names of the clients that may access a file, or the file system that contains a path,
/// in `buffer`, each with a NUL at its end, if all of them fit. An empty list means that there is
/// no fence, so that all clients may access the object.
///
/// Returns the size of the list in bytes, or a negative error number: -ERANGE if the list is larger
/// than `size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fence_list(
    session: *mut dap_session,
    path: *const c_char,
    object: u32,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    counted(|| {
        let object = object_of(object)?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        let names = session.ask(async |session| session.fencing_list_async(&path, object).await)?;
        let bytes: Vec<u8> =
            names.iter().flat_map(|name| name.bytes().chain(std::iter::once(0))).collect();
        if bytes.len() > size {
            let text = format!("the names need {} bytes, but the buffer has {size}", bytes.len());
            return Err(Failure::new(libc::ERANGE, text));
        }
        if !bytes.is_empty() {
            check::place(buffer, "buffer")?;
            // SAFETY: the list fits into the buffer that the caller guarantees.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
            }
        }
        Ok(bytes.len() as u64)
    })
}

fn object_of(object: u32) -> Result<FenceObject> {
    match object {
        DAP_FENCE_FILE => Ok(FenceObject::File),
        DAP_FENCE_FILE_SYSTEM => Ok(FenceObject::FileSystem),
        other => Err(Failure::invalid(format!("fence object {other} is invalid"))),
    }
}

/// The maximum number of names in a call.
const NAMES_MAX: usize = 4096;
