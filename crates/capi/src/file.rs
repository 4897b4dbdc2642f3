//! Opens files, and queries open ones.
//!
//! Invariant: a file stays open as long as its handle is valid, or a call or an operation uses it.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use dafs_client::{
    CacheHint, CachePattern, ClientError, DeleteDisposition, File, OpenOptions, SetAttributes,
    ShareAccess, ShareDeny, ShareKey, shown_path,
};
use dafs_share::{Entered, Held};

use crate::check;
use crate::client::ClientObject;
use crate::connect::SessionObject;
use crate::failure::{Failure, Result, counted, done};
use crate::handles;
use crate::names::attributes_of;
use crate::types::{
    DAP_CREATE, DAP_DENY_READ, DAP_DENY_WRITE, DAP_EXCLUSIVE, DAP_KEEP_NAME, DAP_NAMELESS,
    DAP_READ, DAP_SHARE_KEY, DAP_TRUNCATE, DAP_WRITE, dap_attributes, dap_file, dap_open_options,
    dap_session,
};

/// An open file with its session.
pub(crate) struct FileObject {
    pub session: Arc<SessionObject>,
    pub file: Held<File>,
    /// The error of a short write that was not reported yet.
    kept: Mutex<Option<Failure>>,
}

impl FileObject {
    pub(crate) fn client(&self) -> &Arc<ClientObject> {
        &self.session.client
    }

    /// Keeps the error of a short write for the next call of `take_failure`, because the server may
    /// report lost data only once.
    pub(crate) fn keep_failure(&self, failure: Failure) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// Fails with the kept error, if there is one, and clears it.
    pub(crate) fn take_failure(&self) -> Result<()> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.map_or(Ok(()), Err)
    }

    /// Runs requests on the file. While they wait, other threads can use the client.
    pub(crate) fn wait_for<T>(
        &self,
        question: impl AsyncFnOnce(&File) -> std::result::Result<T, ClientError>,
    ) -> Result<T> {
        // SAFETY: the results of these requests are numbers and texts, not client objects.
        unsafe { self.run(async |file: &File, _: &Entered<'_>| Ok(question(file).await?)) }
    }

    /// Runs requests on the file with the client's blocking calls, which hold the client's lock.
    pub(crate) fn ask<T>(
        &self,
        question: impl FnOnce(&File) -> std::result::Result<T, ClientError>,
    ) -> Result<T> {
        // SAFETY: the results of these requests are numbers and texts, not client objects.
        unsafe { self.client().within(|entered| Ok(question(self.file.get(entered))?)) }
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let wanted = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.wait_for(async |file| file.set_attributes_async(&wanted).await)
    }

    /// Runs an asynchronous function with the file. While it waits, other threads can use the
    /// client.
    ///
    /// # Safety
    /// All client objects in the result are held.
    pub(crate) unsafe fn run<T>(
        &self,
        work: impl AsyncFnOnce(&File, &Entered<'_>) -> Result<T>,
    ) -> Result<T> {
        let shared = &self.client().shared;
        let inside = async |entered: &Entered<'_>| work(self.file.get(entered), entered).await;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { shared.run(inside)? }
    }
}

/// Opens a file. `flags` are DAP_READ, DAP_WRITE, DAP_CREATE, DAP_EXCLUSIVE, DAP_TRUNCATE and
/// DAP_NAMELESS; `mode` is the mode of a new file. `options` may be NULL. Symbolic links are
/// followed.
///
/// Returns 0, or a negative error number: -EINVAL for invalid flags or options, -ETXTBSY if a share
/// reservation of another open denies access, -EBUSY if other opens use another key, or an error of
/// open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_open(
    session: *mut dap_session,
    path: *const c_char,
    flags: u32,
    mode: u32,
    options: *const dap_open_options,
    file: *mut *mut dap_file,
) -> c_int {
    done(|| {
        check::place(file, "file")?;
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let (path, given) = unsafe { (session.path(path, "path")?, check::options(options)?) };
        let options = open_options(flags, mode, &given)?;
        let cache_hint = cache_hint(&given)?;
        let mut names = path.as_bytes().rsplit(|byte| *byte == b'/');
        let last = names.find(|name| !name.is_empty()).unwrap_or(b".");
        if flags & DAP_NAMELESS == 0 && matches!(last, b"." | b"..") {
            // The path is the root, which is a directory.
            let text = format!("{} is a directory", shown_path(&path));
            return Err(Failure::new(libc::EISDIR, text));
        }
        // SAFETY: the file is held.
        let opened = unsafe {
            if session.keeps_reads {
                session.client.within(|entered| {
                    session.session(entered).prepare_delegations();
                    Ok(())
                })?;
            }
            let open = async |entered: &Entered<'_>| -> Result<Held<File>> {
                let asked = session.session(entered);
                let opened = match flags & DAP_NAMELESS != 0 {
                    true => asked.create_unlinked_async(&path, &options).await?,
                    false => asked.open_async(&path, &options).await?,
                };
                if let Some((pattern, hint)) = cache_hint {
                    // Ignore an error: the open succeeds without the hint, too.
                    let _ = opened.hint_async(0, WHOLE, pattern, hint).await;
                }
                Ok(entered.hold(opened))
            };
            session.client.shared.run(open)??
        };
        let handle = handles::insert(Arc::new(FileObject {
            session,
            file: opened,
            kept: Mutex::default(),
        }))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(file, handle, "file") }
    })
}

fn open_options(flags: u32, mode: u32, given: &dap_open_options) -> Result<OpenOptions> {
    const KNOWN: u32 =
        DAP_READ | DAP_WRITE | DAP_CREATE | DAP_EXCLUSIVE | DAP_TRUNCATE | DAP_NAMELESS;
    const SHARING: u32 = DAP_DENY_READ | DAP_DENY_WRITE | DAP_SHARE_KEY | DAP_KEEP_NAME;
    check::flags(flags, KNOWN, "flags of dap_open")?;
    check::flags(mode, 0o7777, "mode")?;
    check::flags(given.sharing, SHARING, "sharing of dap_open_options")?;
    let has = |flag| flags & flag != 0;
    let access = ShareAccess::from_number(flags & (DAP_READ | DAP_WRITE));
    let access = access.ok_or_else(|| {
        Failure::invalid(format!("flags of dap_open {flags:#x}: neither DAP_READ nor DAP_WRITE"))
    })?;
    if has(DAP_TRUNCATE) && !access.writes() {
        return Err(Failure::invalid("flags of dap_open: DAP_TRUNCATE needs DAP_WRITE"));
    }
    let deny = given.sharing & (DAP_DENY_READ | DAP_DENY_WRITE);
    let keeps_name = given.sharing & DAP_KEEP_NAME != 0;
    Ok(OpenOptions::read()
        .access(access)
        .deny(ShareDeny::from_number(deny).unwrap_or(ShareDeny::Both))
        .create(has(DAP_CREATE) || has(DAP_NAMELESS))
        .create_new(has(DAP_EXCLUSIVE))
        .truncate(has(DAP_TRUNCATE))
        .mode(mode)
        .owner(None)
        .key((given.sharing & DAP_SHARE_KEY != 0).then_some(ShareKey(given.key)))
        .delete_disposition(match keeps_name {
            true => DeleteDisposition::Deny,
            false => DeleteDisposition::DontCare,
        }))
}

/// Returns the hint for the whole file, if there is one.
fn cache_hint(given: &dap_open_options) -> Result<Option<(CachePattern, CacheHint)>> {
    let hint = hint(given.pattern, given.hint)?;
    Ok((given.pattern != 0 || given.hint != 0).then_some(hint))
}

fn hint(pattern: u32, hint: u32) -> Result<(CachePattern, CacheHint)> {
    check::flags(hint, HINTS, "hint")?;
    let known = CachePattern::from_number(pattern);
    let wrong = || Failure::invalid(format!("pattern {pattern} is invalid"));
    Ok((known.ok_or_else(wrong)?, CacheHint(hint)))
}

/// Tells the server how a range will be used. `pattern` is one of DAP_PATTERN_..., `hint` is as in
/// dap_open_options, and `length` is below 4 GiB or DAP_TO_END.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_hint(
    file: *mut dap_file,
    offset: u64,
    length: u64,
    pattern: u32,
    hint: u32,
) -> c_int {
    done(|| {
        let file: Arc<FileObject> = handles::get(file)?;
        let (pattern, hint) = self::hint(pattern, hint)?;
        let length = u32::try_from(length).unwrap_or(WHOLE);
        file.wait_for(async |file| file.hint_async(offset, length, pattern, hint).await)
    })
}

/// Stores the attributes of an open file in `attributes`.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fstat(file: *mut dap_file, attributes: *mut dap_attributes) -> c_int {
    done(|| {
        check::place(attributes, "attributes")?;
        let file: Arc<FileObject> = handles::get(file)?;
        let found = match file.session.keeps_reads {
            // The attributes may be cached.
            true => file.ask(File::metadata)?,
            false => file.wait_for(async |file| {
                file.session().metadata_async(file.handle(), file.path()).await
            })?,
        };
        let found = attributes_of(&found);
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(attributes, found, "attributes") }
    })
}

/// Truncates or extends an open file.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_ftruncate(file: *mut dap_file, size: u64) -> c_int {
    done(|| handles::get::<FileObject, _>(file)?.set_size(size))
}

/// Flushes all written data of a file to stable storage.
///
/// Returns 0, or a negative error number: -EIO if the server has lost earlier data, or the error of
/// the most recent write if that write was short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fsync(file: *mut dap_file) -> c_int {
    done(|| {
        let object: Arc<FileObject> = handles::get(file)?;
        object.take_failure()?;
        // SAFETY: no client object leaves the closure.
        unsafe {
            object.run(async |file: &File, _: &Entered<'_>| {
                let committed = file.commit_async().await?;
                Ok(file.note_committed(committed.verifier)?)
            })
        }
    })
}

/// Appends to a file, atomically and durably. Appends of other clients at the same time do not
/// overlap the appended data. Stores the offset of the appended data in `offset`, unless that is
/// NULL.
///
/// Returns the number of bytes appended, which is always `length`, or a negative error number:
/// -EFBIG if `length` is more than the server appends in one request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_append(
    file: *mut dap_file,
    buffer: *const std::ffi::c_void,
    length: usize,
    offset: *mut u64,
) -> i64 {
    counted(|| {
        let file: Arc<FileObject> = handles::get(file)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let bytes = unsafe { check::array(buffer.cast::<u8>(), length, BYTES_MAX, "buffer")? };
        let at = file.ask(|file| file.append(bytes))?;
        if !offset.is_null() {
            // SAFETY: the caller guarantees that its pointers are valid.
            unsafe { check::put(offset, at, "offset")? };
        }
        Ok(length as u64)
    })
}

/// The length of a range without an end, as hints encode it.
const WHOLE: u32 = u32::MAX;
/// All valid bits of a hint.
const HINTS: u32 = 0x7f;
const BYTES_MAX: usize = isize::MAX as usize;
