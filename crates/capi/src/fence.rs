//! Fences: who may still reach a file or a file system.
//!
//! Invariant: when a change has returned, nothing of those it leaves out changes the object any
//! more.

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

/// Changes who may reach a file, or the file system that a path is in: `object` is DAP_FENCE_FILE
/// or DAP_FENCE_FILE_SYSTEM, `change` one of DAP_FENCE_SET, DAP_FENCE_ADD and DAP_FENCE_REMOVE, and
/// there are `count` names at `fence_ids`, such as were given to dap_connect. Returns when the
/// change holds: whatever those who are left out had under way has ended.
///
/// Returns 0, or a negative error number: -EPERM unless this user owns the file, or is trusted;
/// -EINVAL to remove names where there is no fence, or all of them.
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
                return Err(Failure::invalid(format!("change of fence {other} means nothing")));
            }
        };
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller's promise.
        let (path, pointers) = unsafe {
            (session.path(path, "path")?, check::array(fence_ids, count, NAMES_MAX, "fence_ids")?)
        };
        let mut names = Vec::with_capacity(count);
        for pointer in pointers {
            // SAFETY: the caller's promise.
            names.push(unsafe { check::text(*pointer, "one of fence_ids")? });
        }
        session.ask(async |session| {
            session.set_fence_async(&path, object, access, update, &names).await
        })
    })
}

/// Puts the names of those who may reach a file, or the file system that a path is in, into
/// `buffer`, each with a NUL at its end, if all of them fit. Everybody may if there are none.
///
/// Returns the bytes that they take, or a negative error number: -ERANGE if they take more than
/// `size`.
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
        // SAFETY: the caller's promise.
        let path = unsafe { session.path(path, "path")? };
        let names = session.ask(async |session| session.fencing_list_async(&path, object).await)?;
        let bytes: Vec<u8> =
            names.iter().flat_map(|name| name.bytes().chain(std::iter::once(0))).collect();
        if bytes.len() > size {
            let text = format!("the names take {} bytes, and there are {size}", bytes.len());
            return Err(Failure::new(libc::ERANGE, text));
        }
        if !bytes.is_empty() {
            check::place(buffer, "buffer")?;
            // SAFETY: they fit into what the caller has promised.
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
        other => Err(Failure::invalid(format!("object of fence {other} means nothing"))),
    }
}

/// Most names of one call.
const NAMES_MAX: usize = 4096;
