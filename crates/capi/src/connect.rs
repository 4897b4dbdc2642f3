//! Sessions: connecting, asking, leaving.
//!
//! Invariant: paths that do not begin with a slash begin at the path of the session's URL.

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

/// A session.
pub(crate) struct SessionObject {
    pub client: Arc<ClientObject>,
    session: Held<Session>,
    /// Where relative paths begin.
    base: OsString,
    /// What is read may be kept, so that reads ask the client first.
    pub keeps_reads: bool,
}

impl SessionObject {
    /// The session, for whoever is inside.
    pub fn session<'a>(&'a self, entered: &'a Entered<'_>) -> &'a Session {
        self.session.get(entered)
    }

    /// Asks the server something. Others come and go meanwhile.
    pub fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Session) -> std::result::Result<T, dafs_client::ClientError>,
    ) -> Result<T> {
        let inside = async |entered: &Entered<'_>| question(self.session(entered)).await;
        // SAFETY: nothing of the client's is in the answers that are asked for here, which are
        // numbers and texts.
        let answer = unsafe { self.client.shared.run(inside)? };
        Ok(answer?)
    }

    /// A path from C, from the server's root.
    ///
    /// # Safety
    /// As [`check::text`].
    pub unsafe fn path<'a>(&self, path: *const c_char, what: &str) -> Result<Cow<'a, OsStr>> {
        // SAFETY: the caller's promise.
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
/// memory by itself. Calls of the session take paths from the server's root; those that do not
/// begin with a slash begin at the path of the URL. `client` and `options` may be NULL.
///
/// A session that loses its connection comes back by itself, and what is under way goes on:
/// whoever waits notices a pause. If it does not come back in time it ends, and everything fails
/// with -ECONNRESET.
///
/// Returns 0, or a negative error number: -EINVAL for a URL or options that mean nothing,
/// -ECONNREFUSED if no server is there, -EACCES or -EPERM if it keeps this program out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_connect(
    client: *mut dap_client,
    url: *const c_char,
    options: *const dap_connect_options,
    session: *mut *mut dap_session,
) -> c_int {
    done(|| {
        check::place(session, "session")?;
        // SAFETY: the caller's promise.
        let (url, given) = unsafe { (check::path(url, "url")?, check::options(options)?) };
        let location = Location::parse(url).map_err(|error| Failure::invalid(error.to_string()))?;
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        unsafe { check::put(session, handle, "session") }
    })
}

/// What C asks a session to be, but for its identity.
///
/// # Safety
/// The texts are NULL, or end with a NUL.
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
    let mut options = SessionOptions {
        transport,
        recovery: match has(DAP_CONNECT_NO_RECOVERY) {
            true => Recovery::Off,
            false => Recovery::On(recovery(given)?),
        },
        checksums: has(DAP_CONNECT_CHECKSUMS),
        crc: has(DAP_CONNECT_CRC),
        response_cache: has(DAP_CONNECT_RESPONSE_CACHE),
        delegations: has(DAP_CONNECT_DELEGATIONS),
        umask: Umask::OfProcess,
        ..SessionOptions::default()
    };
    if given.credits != 0 {
        let text = || format!("credits {} are more than {}", given.credits, u16::MAX);
        options.credits = u16::try_from(given.credits).map_err(|_| Failure::invalid(text()))?;
    }
    if given.answer_timeout_ms != 0 {
        options.answer_timeout = check::timeout(given.answer_timeout_ms, "answer_timeout_ms")?;
    }
    // SAFETY: the caller's promise.
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

/// # Safety
/// The texts are NULL, or end with a NUL.
unsafe fn tls(given: &dap_connect_options) -> Result<Option<TlsClient>> {
    // SAFETY: the caller's promise.
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
        _ => return Err(Failure::invalid("tls_certificate and tls_key go together")),
    };
    let Some(authorities) = authorities else {
        return match identity {
            Some(_) => Err(Failure::invalid("tls_certificate is of no use without authorities")),
            None => Ok(None),
        };
    };
    let files = TlsClientFiles { authorities: authorities.into(), identity };
    let loaded = TlsClient::load(&files);
    loaded.map(Some).map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Failure::invalid(format!("{error}{}", source.unwrap_or_default()))
    })
}

/// Leaves in order. Files of the session that are open are closed; operations under way fail. The
/// handle is gone whatever is returned; files, and whatever else is the session's, have theirs
/// still to be given back.
///
/// Returns 0, or a negative error number: -ECONNRESET if the session had ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_disconnect(session: *mut dap_session) -> c_int {
    done(|| {
        let object = handles::remove::<SessionObject, _>(session)?;
        object.ask(async |session| session.clone().disconnect_async().await)
    })
}

/// Asks the server for nothing, which says that both are there.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_ping(session: *mut dap_session) -> c_int {
    done(|| {
        handles::get::<SessionObject, _>(session)?.ask(async |session| session.ping_async().await)
    })
}

/// Puts the transport address in use into `buffer`, such as tcp:127.0.0.1:2050 or
/// shm:/run/dafs/2050.sock, as much as fits, with a NUL at its end. After a loss of the connection
/// it may be another than before.
///
/// Returns the length it has without the NUL, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_session_address(
    session: *mut dap_session,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    counted(|| {
        let object = handles::get::<SessionObject, _>(session)?;
        let address = object.ask(async |session| Ok(session.address().to_string()))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(address.as_bytes(), buffer, size, "buffer") }
    })
}

/// Puts as much of a text as fits, with a NUL at its end. Its whole length.
///
/// # Safety
/// `size` bytes can be written at `buffer`, unless it is NULL.
pub(crate) unsafe fn put_text(
    text: &[u8],
    buffer: *mut c_char,
    size: usize,
    what: &str,
) -> Result<u64> {
    if size > 0 {
        check::place(buffer, what)?;
        let length = text.len().min(size - 1);
        // SAFETY: `length` and one more are at most `size`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), length);
            buffer.add(length).write(0);
        }
    }
    Ok(text.len() as u64)
}

/// As good as for ever, and nothing overflows.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
