//! Safe functions for the C library: buffers, names, credentials, and the texts of errors.
//!
//! Invariants:
//!
//! - An object that the library created is released once, by `Drop`.
//! - The bytes that the library reads are copied to separate memory for each call ([`Input`]),
//!   because some releases of the library overwrite the bytes that they unwrap.
//! - The text of an error is fetched on the thread of the failed call, before any other call on
//!   that thread: the library keeps the text per thread.
#![allow(unsafe_code)]

mod context;

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

pub(crate) use context::{ContextHandle, Turn};

use crate::error::{GssError, Reason, is_failure};
use crate::library::Library;
use crate::name::ServiceName;
use crate::raw::{self, BufferDescriptor, Handle, Oid};
use crate::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX, TOKEN_BYTES_MAX};

/// The greatest number of bytes accepted from the library: a protected message and its protection.
const OUTPUT_BYTES_MAX: usize = MESSAGE_BYTES_MAX + TOKEN_BYTES_MAX;
/// The stand-in numbers that MIT's library assigns to codes that two mechanisms share, including 0.
/// They have no meaning outside the process.
const STAND_INS: std::ops::Range<u32> = 100_001..101_000;
/// The greatest number of lines of text fetched for one status.
const STATUS_LINES_MAX: usize = 4;

/// Bytes for the library, in memory that it may write.
struct Input {
    bytes: Vec<u8>,
    raw: BufferDescriptor,
}

impl Input {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), raw: BufferDescriptor::EMPTY }
    }

    /// Returns the descriptor for a call. The descriptor is valid until `self` is moved or dropped.
    fn descriptor(&mut self) -> *mut BufferDescriptor {
        self.raw =
            BufferDescriptor { length: self.bytes.len(), value: self.bytes.as_mut_ptr().cast() };
        &raw mut self.raw
    }
}

/// Bytes from the library, released on drop.
struct Output<'l> {
    library: &'l Library,
    raw: BufferDescriptor,
}

impl<'l> Output<'l> {
    fn new(library: &'l Library) -> Self {
        Self { library, raw: BufferDescriptor::EMPTY }
    }

    /// Returns a copy, or `None` if the length that the library reports is impossible, as in
    /// releases where a forged token made it miscount (CVE-2024-37370).
    fn copy(&self, bytes_max: usize) -> Option<Vec<u8>> {
        if self.raw.value.is_null() || self.raw.length == 0 {
            return Some(Vec::new());
        }
        if self.raw.length > bytes_max {
            return None;
        }
        // SAFETY: after a call, the descriptor is empty or contains the address and number of
        // bytes, which belong to the caller until they are released. The number is plausible.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.raw.value.cast::<u8>(), self.raw.length) };
        Some(bytes.to_vec())
    }

    fn text(&self) -> Option<String> {
        String::from_utf8(self.copy(NAME_BYTES_MAX)?).ok().filter(|text| !text.is_empty())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the descriptor is empty or was filled by this library, and only this call
        // releases it.
        unsafe { (self.library.functions.gss_release_buffer)(&raw mut minor, &raw mut self.raw) };
    }
}

impl Library {
    /// Returns the error of a call that has just failed on this thread.
    fn failure(&self, action: &'static str, major: u32, minor: u32) -> GssError {
        let said = match minor {
            0 => String::new(),
            _ => self.status_text(minor, raw::STATUS_MINOR),
        };
        let is_silent = said.is_empty() || said == "Success";
        let details = if is_silent { self.status_text(major, raw::STATUS_MAJOR) } else { said };
        let minor = if STAND_INS.contains(&minor) { 0 } else { minor };
        GssError::reported(action, major, minor, details)
    }

    fn status_text(&self, status: u32, kind: c_int) -> String {
        let mut lines = Vec::new();
        let mut next = 0;
        while lines.len() < STATUS_LINES_MAX {
            let mut minor = 0;
            let mut line = Output::new(self);
            // SAFETY: the pointers refer to live local variables, the mechanism to a static.
            let major = unsafe {
                (self.functions.gss_display_status)(
                    &raw mut minor,
                    status,
                    kind,
                    &raw const raw::KERBEROS,
                    &raw mut next,
                    &raw mut line.raw,
                )
            };
            if is_failure(major) {
                break;
            }
            let bytes = line.copy(NAME_BYTES_MAX).unwrap_or_default();
            lines.push(String::from_utf8_lossy(&bytes).into_owned());
            if next == 0 {
                break;
            }
        }
        lines.join("; ")
    }
}

/// A name in the library's internal form.
pub(crate) struct Name {
    library: Arc<Library>,
    raw: Handle,
}

// SAFETY: the library ties only the texts of errors to threads. A name is used by one thread at a
// time, because it is not `Sync`.
unsafe impl Send for Name {}

impl Name {
    /// Converts text of the given form to a name.
    pub(crate) fn import(
        library: &Arc<Library>,
        text: &str,
        form: &'static Oid,
    ) -> Result<Self, GssError> {
        let mut name = Self::none(library);
        let mut text = Input::new(text.as_bytes());
        let mut minor = 0;
        // SAFETY: the pointers refer to live local variables, the form to a static. The name is
        // null, and the call replaces it by a new one.
        let major = unsafe {
            (library.functions.gss_import_name)(
                &raw mut minor,
                text.descriptor(),
                &raw const *form,
                &raw mut name.raw,
            )
        };
        if is_failure(major) {
            return Err(library.failure("cannot read the name", major, minor));
        }
        Ok(name)
    }

    /// Converts the name of a service.
    pub(crate) fn of_service(
        library: &Arc<Library>,
        service: &ServiceName,
    ) -> Result<Self, GssError> {
        let form = if service.is_principal() { &raw::PRINCIPAL } else { &raw::HOST_BASED };
        Self::import(library, service.text(), form)
    }

    /// Creates an empty name, for a call to fill.
    fn none(library: &Arc<Library>) -> Self {
        Self { library: Arc::clone(library), raw: ptr::null_mut() }
    }

    /// Returns the name in Kerberos' notation. The conversion never loses information, so that two
    /// different names never have the same text.
    fn display(&self) -> Result<String, GssError> {
        const ACTION: &str = "cannot write the peer's name";
        if self.raw.is_null() {
            return Err(GssError::found(ACTION, Reason::Anonymous));
        }
        let mut minor = 0;
        let mut text = Output::new(&self.library);
        // SAFETY: the name belongs to this library. The other pointers refer to live local
        // variables, or are null to say that the form is not requested.
        let major = unsafe {
            (self.library.functions.gss_display_name)(
                &raw mut minor,
                self.raw,
                &raw mut text.raw,
                ptr::null_mut(),
            )
        };
        if is_failure(major) {
            return Err(self.library.failure(ACTION, major, minor));
        }
        text.text().ok_or_else(|| GssError::found(ACTION, Reason::NameMalformed))
    }

    /// Returns the local user for this name.
    pub(crate) fn local_name(&self) -> Result<String, GssError> {
        const ACTION: &str = "cannot find the local user of the principal";
        let mut minor = 0;
        let mut text = Output::new(&self.library);
        // SAFETY: as in `display`; the mechanism is a static.
        let major = unsafe {
            (self.library.functions.gss_localname)(
                &raw mut minor,
                self.raw,
                &raw const raw::KERBEROS,
                &raw mut text.raw,
            )
        };
        if is_failure(major) {
            return Err(self.library.failure(ACTION, major, minor));
        }
        text.text().ok_or_else(|| GssError::found(ACTION, Reason::NameMalformed))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let mut minor = 0;
            // SAFETY: the name belongs to this library, and only this call releases it.
            unsafe { (self.library.functions.gss_release_name)(&raw mut minor, &raw mut self.raw) };
        }
    }
}

/// The use of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Initiate,
    Accept,
}

/// The locations of keys and tickets, in the library's notation: kind and location.
#[derive(Default)]
pub(crate) struct Places(Vec<(&'static CStr, CString)>);

impl Places {
    /// Adds a location. Fails for a path with a NUL, because no file can have such a path.
    pub(crate) fn add(&mut self, kind: &'static CStr, place: Vec<u8>) -> Result<(), GssError> {
        let place = CString::new(place).map_err(|_| {
            GssError::found("cannot name the place of a credential", Reason::NameMalformed)
        })?;
        self.0.push((kind, place));
        Ok(())
    }
}

/// Returns a location in the library's notation: type, colon, and path.
pub(crate) fn place_of(kind: &str, file: &Path) -> Vec<u8> {
    [kind.as_bytes(), b":", file.as_os_str().as_bytes()].concat()
}

/// Keys or tickets of Kerberos V.
pub(crate) struct CredentialHandle {
    library: Arc<Library>,
    raw: Handle,
}

// SAFETY: the library ties only the texts of errors to threads.
unsafe impl Send for CredentialHandle {}
// SAFETY: the mechanism locks a credential for each use (`krb5_gss_cred_id_rec.lock`), and the
// surrounding structure is not written between acquisition and release.
unsafe impl Sync for CredentialHandle {}

impl CredentialHandle {
    /// Acquires a credential, for any principal if `name` is `None`.
    pub(crate) fn acquire(
        library: &Arc<Library>,
        name: Option<&Name>,
        usage: Usage,
        places: &Places,
    ) -> Result<Self, GssError> {
        let mut credential = Self { library: Arc::clone(library), raw: ptr::null_mut() };
        let (usage, action) = match usage {
            Usage::Initiate => (raw::USAGE_INITIATE, "cannot use the client's credential"),
            Usage::Accept => (raw::USAGE_ACCEPT, "cannot use the keytab"),
        };
        let entries: Vec<raw::StoreEntry> = places
            .0
            .iter()
            .map(|(kind, place)| raw::StoreEntry { key: kind.as_ptr(), value: place.as_ptr() })
            .collect();
        let store = raw::Store { count: entries.len() as u32, entries: entries.as_ptr() };
        let mechanisms = raw::OidSet { count: 1, elements: &raw const raw::KERBEROS };
        let mut minor = 0;
        // SAFETY: every pointer refers to a live local variable or a static, and `places` keeps
        // everything that the store points to. Null means no name, no interest in the acquired
        // mechanisms, or the default store. The handle is null, and the call replaces it.
        let major = unsafe {
            (library.functions.gss_acquire_cred_from)(
                &raw mut minor,
                name.map_or(ptr::null_mut(), |name| name.raw),
                raw::INDEFINITE,
                &raw const mechanisms,
                usage,
                if entries.is_empty() { ptr::null() } else { &raw const store },
                &raw mut credential.raw,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if is_failure(major) {
            return Err(library.failure(action, major, minor));
        }
        Ok(credential)
    }

    pub(crate) fn library(&self) -> &Arc<Library> {
        &self.library
    }
}

impl Drop for CredentialHandle {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let mut minor = 0;
            // SAFETY: the credential belongs to this library, and only this call releases it.
            unsafe { (self.library.functions.gss_release_cred)(&raw mut minor, &raw mut self.raw) };
        }
    }
}
