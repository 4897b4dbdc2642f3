//! Operations on names, and attributes by path.
//!
//! Invariant: an error contains the requested path, as it starts from the server's root.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use dafs_client::{
    AccessMask, ClientError, Metadata, NewObject, ObjectType, Resolved, Session, SetAttributes,
    Status, Timestamp, shown_path,
};

use crate::check;
use crate::connect::{SessionObject, put_text};
use crate::failure::{Failure, counted, done};
use crate::handles;
use crate::types::{dap_attributes, dap_filesystem, dap_session, dap_time};

/// Stores the attributes of the object at a path in `attributes`. A symbolic link at the end of the
/// path is followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_stat(
    session: *mut dap_session,
    path: *const c_char,
    attributes: *mut dap_attributes,
) -> c_int {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { look(session, path, attributes, true) }
}

/// Stores the attributes of the object at a path in `attributes`. A symbolic link at the end of the
/// path is not followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_lstat(
    session: *mut dap_session,
    path: *const c_char,
    attributes: *mut dap_attributes,
) -> c_int {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { look(session, path, attributes, false) }
}

/// Stores the attributes of the object at a path.
///
/// # Safety
/// The pointers are valid for their types.
unsafe fn look(
    session: *mut dap_session,
    path: *const c_char,
    attributes: *mut dap_attributes,
    follows: bool,
) -> c_int {
    done(|| {
        check::place(attributes, "attributes")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        let found = session.ask(async |session| find(session, &path, follows).await)?;
        let found = attributes_of(&found);
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(attributes, found, "attributes") }
    })
}

/// Looks up a path and returns its attributes.
pub(crate) async fn find(
    session: &Session,
    path: &OsStr,
    follows: bool,
) -> Result<Metadata, ClientError> {
    let handle = session.resolve_async(path, follows).await?;
    session.metadata_async(handle, path).await
}

/// Converts attributes to C.
pub(crate) fn attributes_of(metadata: &Metadata) -> dap_attributes {
    let kind = match metadata.kind {
        ObjectType::Regular => libc::S_IFREG,
        ObjectType::Directory => libc::S_IFDIR,
        ObjectType::SymbolicLink => libc::S_IFLNK,
        ObjectType::BlockDevice => libc::S_IFBLK,
        ObjectType::CharacterDevice => libc::S_IFCHR,
        ObjectType::Socket => libc::S_IFSOCK,
        ObjectType::Fifo => libc::S_IFIFO,
        ObjectType::AttributeDirectory => libc::S_IFDIR,
        ObjectType::NamedAttribute => libc::S_IFREG,
    };
    dap_attributes {
        mode: kind | metadata.mode,
        link_count: metadata.link_count,
        uid: metadata.owner.parse().unwrap_or(u32::MAX),
        gid: metadata.owner_group.parse().unwrap_or(u32::MAX),
        size: metadata.size,
        space_used: metadata.space_used,
        file_id: metadata.file_id,
        change: metadata.change,
        accessed: time_of(metadata.time_access),
        modified: time_of(metadata.time_modify),
        changed: time_of(metadata.time_metadata),
    }
}

fn time_of(Timestamp { seconds, nanoseconds }: Timestamp) -> dap_time {
    dap_time { seconds, nanoseconds, reserved: 0 }
}

/// Checks the rights of this session to the object at a path. `wanted` is a combination of
/// DAP_ACCESS_...
///
/// Returns the subset of `wanted` that is granted, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_access(
    session: *mut dap_session,
    path: *const c_char,
    wanted: u32,
) -> c_int {
    returns_bits(|| {
        check::flags(wanted, AccessMask::ALL.0, "rights")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        let granted = session.ask(async |session| {
            let handle = session.resolve_async(&path, true).await?;
            session.access_async(handle, AccessMask(wanted), &path).await
        })?;
        Ok(u64::from(granted.0))
    })
}

fn returns_bits(body: impl FnOnce() -> crate::failure::Result<u64>) -> c_int {
    // The result is a set of a few bits or an error number, which fits in a C int.
    counted(body) as c_int
}

/// Stores information about the file system that contains a path in `filesystem`.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_statfs(
    session: *mut dap_session,
    path: *const c_char,
    filesystem: *mut dap_filesystem,
) -> c_int {
    done(|| {
        check::place(filesystem, "filesystem")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        let found = session.ask(async |session| {
            let handle = session.resolve_async(&path, true).await?;
            session.file_system_async(handle, &path).await
        })?;
        let told = dap_filesystem {
            space_total: found.space_total.unwrap_or(0),
            space_free: found.space_free.unwrap_or(0),
            space_available: found.space_available.unwrap_or(0),
            files_total: found.files_total.unwrap_or(0),
            files_free: found.files_free.unwrap_or(0),
            file_size_max: found.max_file_size.unwrap_or(0),
            name_bytes_max: found.max_name.unwrap_or(0),
            link_count_max: found.max_link.unwrap_or(0),
            lease_seconds: found.lease_time.unwrap_or(0),
            reserved: 0,
        };
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(filesystem, told, "filesystem") }
    })
}

/// Creates a directory.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_mkdir(
    session: *mut dap_session,
    path: *const c_char,
    mode: u32,
) -> c_int {
    done(|| {
        check::flags(mode, 0o7777, "mode")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        session.ask(async |session| {
            let parent = session.resolve_parent_async(&path).await?;
            let made = session.create_dir_in_async(parent.directory, &parent.name, &path, mode);
            made.await.map(drop)
        })
    })
}

/// Creates a named pipe.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_mkfifo(
    session: *mut dap_session,
    path: *const c_char,
    mode: u32,
) -> c_int {
    done(|| {
        check::flags(mode, 0o7777, "mode")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        session.ask(async |session| {
            let Resolved { directory, name } = session.resolve_parent_async(&path).await?;
            let wanted = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            let fifo = NewObject::Fifo;
            session.create_in_async(directory, &name, &path, fifo, &wanted).await.map(drop)
        })
    })
}

/// Removes the name of an object that is not a directory.
///
/// Returns 0, or a negative error number: -EISDIR for a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_unlink(session: *mut dap_session, path: *const c_char) -> c_int {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { remove(session, path, false) }
}

/// Removes an empty directory.
///
/// Returns 0, or a negative error number: -ENOTDIR for another object, -ENOTEMPTY if the directory
/// is not empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_rmdir(session: *mut dap_session, path: *const c_char) -> c_int {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { remove(session, path, true) }
}

/// Removes the name of a directory or of another object, as `wants_directory` says.
///
/// # Safety
/// As for [`check::text`].
unsafe fn remove(session: *mut dap_session, path: *const c_char, wants_directory: bool) -> c_int {
    done(|| {
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        session.ask(async |session| {
            // The server's REMOVE accepts directories and other objects, so check the type first.
            let found = find(session, &path, false).await?;
            let is_directory = found.kind == ObjectType::Directory;
            let refused =
                |status| Err(ClientError::Status { what: shown_path(&path).into_owned(), status });
            match (is_directory, wants_directory) {
                (true, false) => refused(Status::IsDir),
                (false, true) => refused(Status::NotDir),
                (true, true) | (false, false) => {
                    let parent = session.resolve_parent_async(&path).await?;
                    session.remove_in_async(parent.directory, &parent.name, &path).await
                }
            }
        })
    })
}

/// Renames an object. An existing object with the new name is replaced.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_rename(
    session: *mut dap_session,
    path: *const c_char,
    new_path: *const c_char,
) -> c_int {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe {
        with_two(session, path, new_path, async |session, path, new_path| {
            let from = session.resolve_parent_async(path).await?;
            let to = session.resolve_parent_async(new_path).await?;
            let (source, target) = ((from.directory, &*from.name), (to.directory, &*to.name));
            let what = format!("{} -> {}", shown_path(path), shown_path(new_path));
            session.rename_in_async(source, target, &what).await
        })
    }
}

/// Makes a hard link to the object at `path`. A symbolic link is not followed.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_link(
    session: *mut dap_session,
    path: *const c_char,
    new_path: *const c_char,
) -> c_int {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe {
        with_two(session, path, new_path, async |session, path, new_path| {
            let source = session.resolve_async(path, false).await?;
            let Resolved { directory, name } = session.resolve_parent_async(new_path).await?;
            let what = format!("{} -> {}", shown_path(path), shown_path(new_path));
            session.link_in_async(source, directory, &name, &what).await
        })
    }
}

/// Runs a request with two paths.
///
/// # Safety
/// As for [`check::text`], for both paths.
unsafe fn with_two(
    session: *mut dap_session,
    path: *const c_char,
    new_path: *const c_char,
    ask: impl AsyncFnOnce(&Session, &OsStr, &OsStr) -> Result<(), ClientError>,
) -> c_int {
    done(|| {
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let paths = unsafe { (session.path(path, "path")?, session.path(new_path, "new_path")?) };
        session.ask(async |session| ask(session, &paths.0, &paths.1).await)
    })
}

/// Makes a symbolic link at `path` with the text `text`.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_symlink(
    session: *mut dap_session,
    text: *const c_char,
    path: *const c_char,
) -> c_int {
    done(|| {
        check::place(text, "text")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees both texts. The text of a link may be any bytes.
        let (text, path) = unsafe { (std::ffi::CStr::from_ptr(text), session.path(path, "path")?) };
        session.ask(async |session| {
            let Resolved { directory, name } = session.resolve_parent_async(&path).await?;
            let made = session.symlink_in_async(directory, &name, &path, text.to_bytes());
            made.await.map(drop)
        })
    })
}

/// Stores the text of a symbolic link in `buffer`. The text is truncated to `size` bytes, including
/// a NUL at its end.
///
/// Returns the length of the whole text without the NUL, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_readlink(
    session: *mut dap_session,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    counted(|| {
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        let text = session.ask(async |session| {
            let link = session.resolve_async(&path, false).await?;
            session.read_link_async(link, &path).await
        })?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { put_text(&text, buffer, size, "buffer") }
    })
}

/// Converts a name of a directory listing to C. It cannot contain a NUL.
pub(crate) fn name_text(name: &OsStr) -> Result<std::ffi::CString, Failure> {
    std::ffi::CString::new(name.as_bytes())
        .map_err(|_| Failure::new(libc::EPROTO, format!("a name with a NUL: {name:?}")))
}
