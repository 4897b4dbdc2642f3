//! Sets attributes.
//!
//! Invariant: a call sets either all of its attributes or none.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use dafs_client::{SetAttributes, SetTime, Timestamp};

use crate::check;
use crate::connect::SessionObject;
use crate::failure::{Failure, Result, done};
use crate::file::FileObject;
use crate::handles;
use crate::types::{
    DAP_NO_FOLLOW, DAP_SET_ACCESSED, DAP_SET_ACCESSED_NOW, DAP_SET_GID, DAP_SET_MODE,
    DAP_SET_MODIFIED, DAP_SET_MODIFIED_NOW, DAP_SET_SIZE, DAP_SET_UID, dap_changes, dap_file,
    dap_session, dap_time,
};

/// Sets attributes of the object at a path. A symbolic link at the end of the path is followed,
/// unless the flags contain DAP_NO_FOLLOW.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_setattr(
    session: *mut dap_session,
    path: *const c_char,
    changes: *const dap_changes,
) -> c_int {
    done(|| {
        check::place(changes, "changes")?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let given = unsafe { check::options(changes)? };
        let attributes = attributes_to_set(&given, DAP_NO_FOLLOW)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { set(session, path, given.flags & DAP_NO_FOLLOW == 0, &attributes) }
    })
}

/// Sets attributes of an open file.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fsetattr(file: *mut dap_file, changes: *const dap_changes) -> c_int {
    done(|| {
        check::place(changes, "changes")?;
        let file: Arc<FileObject> = handles::get(file)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let given = unsafe { check::options(changes)? };
        let attributes = attributes_to_set(&given, 0)?;
        file.wait_for(async |file| file.set_attributes_async(&attributes).await)
    })
}

/// Sets the permissions of an object. A symbolic link is followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_chmod(
    session: *mut dap_session,
    path: *const c_char,
    mode: u32,
) -> c_int {
    done(|| {
        check::flags(mode, 0o7777, "mode")?;
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { set(session, path, true, &attributes) }
    })
}

/// Sets the owner and the group of an object. The value 4294967295, that is (uint32_t)-1, leaves
/// the owner or the group unchanged. A symbolic link is followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_chown(
    session: *mut dap_session,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    done(|| {
        let number = |id: u32| (id != u32::MAX).then(|| id.to_string());
        let attributes = SetAttributes {
            owner: number(uid),
            owner_group: number(gid),
            ..SetAttributes::default()
        };
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { set(session, path, true, &attributes) }
    })
}

/// Sets the times of the last read and of the last change of data of an object. NULL for a time
/// means the server's current time. A symbolic link is followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_utimens(
    session: *mut dap_session,
    path: *const c_char,
    accessed: *const dap_time,
    modified: *const dap_time,
) -> c_int {
    done(|| {
        let time = |pointer: *const dap_time, what| {
            if pointer.is_null() {
                return Ok(SetTime::Server);
            }
            check::place(pointer, what)?;
            // SAFETY: the caller guarantees that its pointers are valid.
            timestamp(unsafe { pointer.read() }, what)
        };
        let attributes = SetAttributes {
            time_access: Some(time(accessed, "accessed")?),
            time_modify: Some(time(modified, "modified")?),
            ..SetAttributes::default()
        };
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { set(session, path, true, &attributes) }
    })
}

/// Truncates or extends the file at a path. A symbolic link is followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_truncate(
    session: *mut dap_session,
    path: *const c_char,
    size: u64,
) -> c_int {
    done(|| {
        let attributes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { set(session, path, true, &attributes) }
    })
}

/// Sets attributes of the object at a path.
///
/// # Safety
/// As for [`check::text`].
unsafe fn set(
    session: *mut dap_session,
    path: *const c_char,
    follows: bool,
    attributes: &SetAttributes,
) -> Result<()> {
    let session: Arc<SessionObject> = handles::get(session)?;
    // SAFETY: the caller guarantees that its pointers are valid.
    let path = unsafe { session.path(path, "path")? };
    session.ask(async |session| {
        let handle = session.resolve_async(&path, follows).await?;
        session.set_attributes_async(handle, attributes, &path).await
    })
}

fn attributes_to_set(given: &dap_changes, more: u32) -> Result<SetAttributes> {
    const KNOWN: u32 = DAP_SET_MODE
        | DAP_SET_UID
        | DAP_SET_GID
        | DAP_SET_SIZE
        | DAP_SET_ACCESSED
        | DAP_SET_MODIFIED
        | DAP_SET_ACCESSED_NOW
        | DAP_SET_MODIFIED_NOW;
    check::flags(given.flags, KNOWN | more, "flags of dap_changes")?;
    let has = |flag| given.flags & flag != 0;
    if has(DAP_SET_MODE) {
        check::flags(given.mode, 0o7777, "mode of dap_changes")?;
    }
    let time = |flag, now, time, what| match (has(flag), has(now)) {
        (false, false) => Ok(None),
        (true, false) => timestamp(time, what).map(Some),
        (false, true) => Ok(Some(SetTime::Server)),
        (true, true) => {
            Err(Failure::invalid(format!("{what}: give either a time or the current time")))
        }
    };
    Ok(SetAttributes {
        mode: has(DAP_SET_MODE).then_some(given.mode),
        size: has(DAP_SET_SIZE).then_some(given.file_size),
        time_access: time(DAP_SET_ACCESSED, DAP_SET_ACCESSED_NOW, given.accessed, "accessed")?,
        time_modify: time(DAP_SET_MODIFIED, DAP_SET_MODIFIED_NOW, given.modified, "modified")?,
        owner: has(DAP_SET_UID).then(|| given.uid.to_string()),
        owner_group: has(DAP_SET_GID).then(|| given.gid.to_string()),
        ..SetAttributes::default()
    })
}

fn timestamp(time: dap_time, what: &str) -> Result<SetTime> {
    let dap_time { seconds, nanoseconds, .. } = time;
    if nanoseconds >= 1_000_000_000 {
        let text = format!("{what}: {nanoseconds} nanoseconds are not less than a second");
        return Err(Failure::invalid(text));
    }
    Ok(SetTime::Client(Timestamp { seconds, nanoseconds }))
}
