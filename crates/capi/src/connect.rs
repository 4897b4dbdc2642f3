//! Sessions: connects, queries and disconnects.
//!
//! Invariant: paths without a leading slash are relative to the path in the session's URL.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Duration;

use dafs_client::{
    Location, Recovery, RecoveryOptions, Session, SessionOptions, TlsClient, TlsClientFiles,
    TransportChoice, Umask,
};
use dafs_share::{Entered, Held};

use crate::authenticate;
use crate::check;
use crate::client::ClientObject;
use crate::failure::{Failure, Result, counted, done};
use crate::handles;
use crate::types::{
    DAP_CONNECT_CHECKSUMS, DAP_CONNECT_CRC, DAP_CONNECT_DELEGATIONS, DAP_CONNECT_NO_RECOVERY,
    DAP_CONNECT_RESPONSE_CACHE, DAP_CONNECT_SHARED_MEMORY, DAP_CONNECT_TCP, dap_client,
    dap_connect_options, dap_session,
};

/// A session with its server.
pub(crate) struct SessionObject {
    pub client: Arc<ClientObject>,
    session: Held<Session>,
    /// The directory to which relative paths are resolved.
    base: OsString,
    /// True if read data may be cached, so that reads check the client's cache first.
    pub keeps_reads: bool,
}

impl SessionObject {
    /// Returns the session. The caller holds the client's lock.
    pub(crate) fn session<'a>(&'a self, entered: &'a Entered<'_>) -> &'a Session {
        self.session.get(entered)
    }

    /// Runs requests on the session. While they wait, other threads can use the client.
    pub(crate) fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Session) -> std::result::Result<T, dafs_client::ClientError>,
    ) -> Result<T> {
        let inside = async |entered: &Entered<'_>| question(self.session(entered)).await;
        // SAFETY: the results of these requests are numbers and texts, not client objects.
        let answer = unsafe { self.client.shared.run(inside)? };
        Ok(answer?)
    }

    /// Converts a path from C to one that starts at the server's root.
    ///
    /// # Safety
    /// As for [`check::text`].
    pub(crate) unsafe fn path<'a>(
        &self,
        path: *const c_char,
        what: &str,
    ) -> Result<Cow<'a, OsStr>> {
        // SAFETY: the caller guarantees that its pointers are valid.
        let path = unsafe { check::path(path, what)? };
        if path.is_empty() {
            return Err(Failure::new(libc::ENOENT, format!("{what} is empty")));
        }
        Ok(match path.as_bytes().first() {
            Some(b'/') => Cow::Borrowed(path),
            _ => {
                Cow::Owned(OsString::from_vec([self.base.as_bytes(), path.as_bytes()].join(&b'/')))
            }
        })
    }
}

/// Connects to the server of a URL: dafs://[user[:password]@]host[:port]/path, dafs+tls://...,
/// dafs+verbs://... or dafs+shm:///socket!/path. A server on this host is reached over shared
/// memory automatically. Calls of the session take absolute paths, which start at the server's
/// root. Paths without a leading slash are relative to the path of the URL. `client` and `options`
/// may be NULL.
///
/// A session that loses its connection reconnects automatically, and operations in flight continue:
/// callers only notice a pause. If the session cannot reconnect in time, it ends, and all its calls
/// fail with -ECONNRESET.
///
/// Returns 0, or a negative error number: -EINVAL for an invalid URL or invalid options,
/// -ECONNREFUSED if no server listens there or the host name is unknown, another number of
/// connect(2) such as -ETIMEDOUT or -EHOSTUNREACH, -EACCES or -EPERM if the server refuses this
/// program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_connect(
    client: *mut dap_client,
    url: *const c_char,
    options: *const dap_connect_options,
    session: *mut *mut dap_session,
) -> c_int {
    done(|| {
        check::place(session, "session")?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let (url, given) = unsafe { (check::path(url, "url")?, check::options(options)?) };
        let location = Location::parse(url).map_err(|error| Failure::invalid(error.to_string()))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let options = unsafe { session_options(&given)? };
        let client = handles::client(client)?;
        let connected = authenticate::connect(&client, &location, options, &given)?;
        let mut base = location.path.as_bytes();
        while let [rest @ .., b'/'] = base {
            base = rest;
        }
        let base = OsStr::from_bytes(base).to_owned();
        let keeps_reads = given.flags & DAP_CONNECT_DELEGATIONS != 0;
        let object = SessionObject { client, session: connected, base, keeps_reads };
        let handle = handles::insert(Arc::new(object))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(session, handle, "session") }
    })
}

/// Converts the options of a session, without its login.
///
/// # Safety
/// Each text is NULL or ends with a NUL.
unsafe fn session_options(given: &dap_connect_options) -> Result<SessionOptions> {
    const KNOWN: u32 = DAP_CONNECT_SHARED_MEMORY
        | DAP_CONNECT_TCP
        | DAP_CONNECT_CHECKSUMS
        | DAP_CONNECT_CRC
        | DAP_CONNECT_NO_RECOVERY
        | DAP_CONNECT_RESPONSE_CACHE
        | DAP_CONNECT_DELEGATIONS;
    check::flags(given.flags, KNOWN, "flags of dap_connect_options")?;
    let has = |flag| given.flags & flag != 0;
    let transport = match (has(DAP_CONNECT_SHARED_MEMORY), has(DAP_CONNECT_TCP)) {
        (false, false) => TransportChoice::Automatic,
        (true, false) => TransportChoice::SharedMemory,
        (false, true) => TransportChoice::Tcp,
        (true, true) => {
            let text = "DAP_CONNECT_SHARED_MEMORY and DAP_CONNECT_TCP exclude each other";
            return Err(Failure::invalid(text));
        }
    };
    let mut options = SessionOptions::default()
        .transport(transport)
        .recovery(match has(DAP_CONNECT_NO_RECOVERY) {
            true => Recovery::Off,
            false => Recovery::On(recovery(given)?),
        })
        .checksums(has(DAP_CONNECT_CHECKSUMS))
        .crc(has(DAP_CONNECT_CRC))
        .response_cache(has(DAP_CONNECT_RESPONSE_CACHE))
        .delegations(has(DAP_CONNECT_DELEGATIONS))
        .umask(Umask::Process);
    if given.credits != 0 {
        let text = || format!("credits {} exceeds the limit of {}", given.credits, u16::MAX);
        options.credits = u16::try_from(given.credits).map_err(|_| Failure::invalid(text()))?;
    }
    if given.answer_timeout_ms != 0 {
        options.answer_timeout = check::timeout(given.answer_timeout_ms, "answer_timeout_ms")?;
    }
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe {
        let text = |pointer, what| check::optional_text(pointer, what);
        options.client_name = text(given.client_name, "client_name")?.unwrap_or("").to_owned();
        options.fence_id = text(given.fence_id, "fence_id")?.unwrap_or("").to_owned();
        options.tls_name = text(given.tls_name, "tls_name")?.map(str::to_owned);
        options.tls = tls(given)?;
    }
    Ok(options)
}

fn recovery(given: &dap_connect_options) -> Result<RecoveryOptions> {
    let mut recovery = RecoveryOptions::default();
    if given.recovery_timeout_ms != 0 {
        let limit = check::timeout(given.recovery_timeout_ms, "recovery_timeout_ms")?;
        recovery.give_up_after = limit.unwrap_or(FOREVER);
    }
    Ok(recovery)
}

/// Returns the TLS settings of a session; `None` if none are given.
///
/// # Safety
/// Each text is NULL or ends with a NUL.
unsafe fn tls(given: &dap_connect_options) -> Result<Option<TlsClient>> {
    // SAFETY: the caller guarantees that its pointers are valid.
    let (authorities, certificate, key) = unsafe {
        (
            check::optional_text(given.tls_authorities, "tls_authorities")?,
            check::optional_text(given.tls_certificate, "tls_certificate")?,
            check::optional_text(given.tls_key, "tls_key")?,
        )
    };
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        _ => return Err(Failure::invalid("tls_certificate and tls_key must be given together")),
    };
    let Some(authorities) = authorities else {
        return match identity {
            Some(_) => Err(Failure::invalid("tls_certificate needs tls_authorities")),
            None => Ok(None),
        };
    };
    let files = TlsClientFiles::new(authorities).identity(identity);
    let loaded = TlsClient::load(&files);
    loaded.map(Some).map_err(|error| {
        let source = std::error::Error::source(&error);
        let text = format!("{error}{}", source.map(|s| format!(": {s}")).unwrap_or_default());
        // The file may be missing, or may not be read.
        let system = source.and_then(|source| source.downcast_ref::<std::io::Error>());
        let errno = system.and_then(std::io::Error::raw_os_error);
        Failure::new(errno.unwrap_or(libc::EINVAL), text)
    })
}

/// Ends a session and disconnects. Open files of the session are closed; operations in flight fail.
/// The handle becomes invalid whatever is returned. Handles of files and of other objects of the
/// session must still be released.
///
/// Returns 0, or a negative error number: -ECONNRESET if the session had already ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_disconnect(session: *mut dap_session) -> c_int {
    done(|| {
        let object = handles::remove::<SessionObject, _>(session)?;
        object.ask(async |session| session.clone().disconnect_async().await)
    })
}

/// Sends an empty request and waits for its reply, to check that the connection works.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_ping(session: *mut dap_session) -> c_int {
    done(|| {
        handles::get::<SessionObject, _>(session)?.ask(async |session| session.ping_async().await)
    })
}

/// Stores the address of the server that the session uses in `buffer`, such as tcp:127.0.0.1:2050
/// or shm:/run/dafs/2050.sock. The text is truncated to `size` bytes, including a NUL at its end.
/// The address may change when the session reconnects.
///
/// Returns the length of the whole address without the NUL, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_session_address(
    session: *mut dap_session,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    counted(|| {
        let object = handles::get::<SessionObject, _>(session)?;
        let address = object.ask(async |session| Ok(session.address().to_string()))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { put_text(address.as_bytes(), buffer, size, "buffer") }
    })
}

/// Copies a text to a buffer, truncated to `size` bytes, including a NUL at its end. Returns the
/// length of the whole text.
///
/// # Safety
/// `buffer` is NULL or has room for `size` bytes.
pub(crate) unsafe fn put_text(
    text: &[u8],
    buffer: *mut c_char,
    size: usize,
    what: &str,
) -> Result<u64> {
    if size > 0 {
        check::place(buffer, what)?;
        let length = text.len().min(size - 1);
        // SAFETY: `length` plus one is at most `size`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), length);
            buffer.add(length).write(0);
        }
    }
    Ok(text.len() as u64)
}

/// A time that is practically unlimited, and short enough that no sum overflows.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
