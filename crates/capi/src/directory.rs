//! Reads directories.
//!
//! Invariant: a listing shows the entries that the directory had when it was opened.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

use crate::check;
use crate::connect::SessionObject;
use crate::failure::{counted, done};
use crate::handles;
use crate::names::{attributes_of, name_text};
use crate::types::{dap_attributes, dap_directory, dap_entry, dap_session};

/// A directory listing.
pub(crate) struct DirectoryObject(Mutex<Listing>);

struct Listing {
    entries: Vec<(CString, Option<dap_attributes>)>,
    next: usize,
}

/// Reads the directory at a path, with the attributes of its entries.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_opendir(
    session: *mut dap_session,
    path: *const c_char,
    directory: *mut *mut dap_directory,
) -> c_int {
    done(|| {
        check::place(directory, "directory")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { session.path(path, "path")? };
        let found = session.ask(async |session| {
            let handle = session.resolve_async(&path, true).await?;
            session.list_async(handle, &path).await
        })?;
        let mut entries = Vec::with_capacity(found.len());
        for entry in &found {
            entries.push((name_text(&entry.name)?, entry.metadata.as_ref().map(attributes_of)));
        }
        let object = DirectoryObject(Mutex::new(Listing { entries, next: 0 }));
        let handle = handles::insert(Arc::new(object))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(directory, handle, "directory") }
    })
}

/// Stores the next entry of a directory in `entry`. Entries come in the server's order, without "."
/// and "..".
///
/// Returns 1, or 0 if there are no more entries, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_readdir(
    directory: *mut dap_directory,
    entry: *mut dap_entry,
) -> c_int {
    let next = || {
        check::place(entry, "entry")?;
        let object: Arc<DirectoryObject> = handles::get(directory)?;
        let mut listing = object.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, attributes)) = listing.entries.get(listing.next) else { return Ok(0) };
        let found = dap_entry {
            name: name.as_ptr(),
            attributes: attributes.unwrap_or_default(),
            has_attributes: u32::from(attributes.is_some()),
            reserved: 0,
        };
        listing.next += 1;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(entry, found, "entry")? };
        Ok(1)
    };
    // The result is zero, one or an error number, which fits in a C int.
    counted(next) as c_int
}

/// Releases a directory listing.
///
/// Returns 0, or -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_closedir(directory: *mut dap_directory) -> c_int {
    done(|| handles::remove::<DirectoryObject, _>(directory).map(drop))
}
