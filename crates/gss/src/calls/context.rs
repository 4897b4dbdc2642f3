//! A security context of the library, from its first token on.
//!
//! Invariant: one thread at a time uses a context, because every use takes `&mut`. `Drop` deletes
//! it, even if it is incomplete. Results longer than the limit are refused.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::{CredentialHandle, Input, Name, OUTPUT_BYTES_MAX, Output};
use crate::error::{DISORDER, GssError, Reason, is_failure};
use crate::library::Library;
use crate::raw::{self, BufferDescriptor, ChannelBindings, Handle};

/// The bit of a major status that requests another token from the peer.
const CONTINUE_NEEDED: u32 = 1;

/// A context, complete or not.
pub(crate) struct ContextHandle {
    library: Arc<Library>,
    raw: Handle,
}

// SAFETY: the library ties only the texts of errors to threads. A context is used by one thread at
// a time, because it is not `Sync` and its uses take `&mut`.
unsafe impl Send for ContextHandle {}

/// The result of processing a token.
pub(crate) struct Turn {
    /// True if another token from the peer is needed.
    pub(crate) continues: bool,
    /// The bytes to send to the peer, possibly empty.
    pub(crate) token: Vec<u8>,
    /// The services of the context ([`raw::flag`]), which are final if no further token is needed.
    pub(crate) flags: u32,
    /// The lifetime in seconds, or [`raw::INDEFINITE`].
    pub(crate) lifetime: u32,
}

/// Channel bindings, in memory that a call can read.
struct Bindings {
    data: Input,
    raw: ChannelBindings,
}

impl Bindings {
    fn new(data: &[u8]) -> Self {
        // Addresses are left unspecified, because address translation may change them on the way.
        let raw = ChannelBindings {
            initiator_type: 0,
            initiator: BufferDescriptor::EMPTY,
            acceptor_type: 0,
            acceptor: BufferDescriptor::EMPTY,
            application: BufferDescriptor::EMPTY,
        };
        Self { data: Input::new(data), raw }
    }

    fn pointer(bindings: &mut Option<Self>) -> *const ChannelBindings {
        let Some(Self { data, raw }) = bindings else { return ptr::null() };
        data.descriptor();
        raw.application = BufferDescriptor { length: data.raw.length, value: data.raw.value };
        &raw const *raw
    }
}

impl ContextHandle {
    /// Creates a context without any token.
    pub(crate) fn new(library: &Arc<Library>) -> Self {
        Self { library: Arc::clone(library), raw: ptr::null_mut() }
    }

    /// Processes a token of an initiator.
    pub(crate) fn accept(
        &mut self,
        credential: &CredentialHandle,
        token: &[u8],
        bindings: Option<&[u8]>,
        action: &'static str,
    ) -> Result<Turn, GssError> {
        let mut token = Input::new(token);
        let mut bindings = bindings.map(Bindings::new);
        let mut output = Output::new(&self.library);
        let (mut minor, mut flags, mut lifetime) = (0, 0, 0);
        // SAFETY: the context is null or belongs to this library, and the credential belongs to
        // this library. The other pointers refer to live local variables, or are null because the
        // peer's name (requested later), the mechanism and delegated credentials are not needed.
        let major = unsafe {
            (self.library.functions.gss_accept_sec_context)(
                &raw mut minor,
                &raw mut self.raw,
                credential.raw,
                token.descriptor(),
                Bindings::pointer(&mut bindings),
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut output.raw,
                &raw mut flags,
                &raw mut lifetime,
                ptr::null_mut(),
            )
        };
        turn(&self.library, action, (major, minor), &output, (flags, lifetime))
    }

    /// Makes a token for an acceptor, in response to one of its tokens if there is one.
    pub(crate) fn initiate(
        &mut self,
        credential: &CredentialHandle,
        target: &Name,
        wanted: u32,
        token: Option<&[u8]>,
        bindings: Option<&[u8]>,
        action: &'static str,
    ) -> Result<Turn, GssError> {
        let mut token = token.map(Input::new);
        let mut bindings = bindings.map(Bindings::new);
        let mut output = Output::new(&self.library);
        let (mut minor, mut flags, mut lifetime) = (0, 0, 0);
        // SAFETY: the context is null or belongs to this library. Credential and target belong to
        // this library, and the mechanism is a static. The other pointers refer to live local
        // variables, or are null: no token yet, no bindings, no interest in the mechanism.
        let major = unsafe {
            (self.library.functions.gss_init_sec_context)(
                &raw mut minor,
                credential.raw,
                &raw mut self.raw,
                target.raw,
                &raw const raw::KERBEROS,
                wanted,
                0,
                Bindings::pointer(&mut bindings),
                token.as_mut().map_or(ptr::null_mut(), Input::descriptor),
                ptr::null_mut(),
                &raw mut output.raw,
                &raw mut flags,
                &raw mut lifetime,
            )
        };
        turn(&self.library, action, (major, minor), &output, (flags, lifetime))
    }

    /// Returns the names of both sides: initiator and acceptor.
    pub(crate) fn parties(&self, action: &'static str) -> Result<(String, String), GssError> {
        let (mut initiator, mut acceptor) = (Name::none(&self.library), Name::none(&self.library));
        let mut minor = 0;
        // SAFETY: the context belongs to this library. The names are null, and the call replaces
        // them by new ones. The other results are not requested.
        let major = unsafe {
            (self.library.functions.gss_inquire_context)(
                &raw mut minor,
                self.raw,
                &raw mut initiator.raw,
                &raw mut acceptor.raw,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if is_failure(major) {
            return Err(self.library.failure(action, major, minor));
        }
        Ok((initiator.display()?, acceptor.display()?))
    }

    /// Signs a message, and encrypts it if `hide` is true.
    pub(crate) fn wrap(&mut self, hide: bool, message: &[u8]) -> Result<Vec<u8>, GssError> {
        const ACTION: &str = "cannot protect a message";
        let mut message = Input::new(message);
        let mut output = Output::new(&self.library);
        let (mut minor, mut hidden) = (0, 0);
        // SAFETY: the context belongs to this library. The other pointers refer to live local
        // variables.
        let major = unsafe {
            (self.library.functions.gss_wrap)(
                &raw mut minor,
                self.raw,
                c_int::from(hide),
                0,
                message.descriptor(),
                &raw mut hidden,
                &raw mut output.raw,
            )
        };
        if major != 0 {
            return Err(self.library.failure(ACTION, major, minor));
        }
        if hide && hidden == 0 {
            return Err(GssError::found(ACTION, Reason::NotProtected));
        }
        output.copy(OUTPUT_BYTES_MAX).ok_or_else(|| GssError::found(ACTION, Reason::Other))
    }

    /// Opens a message that the peer has wrapped. Returns the message, and true if it was
    /// encrypted. `is_ordered` is true if a repeated or reordered message is refused.
    pub(crate) fn unwrap(
        &mut self,
        token: &[u8],
        is_ordered: bool,
    ) -> Result<(Vec<u8>, bool), GssError> {
        const ACTION: &str = "cannot open a protected message";
        let bytes_max = token.len();
        let mut token = Input::new(token);
        let mut output = Output::new(&self.library);
        let (mut minor, mut hidden) = (0, 0);
        // SAFETY: the context belongs to this library. The other pointers refer to live local
        // variables, or are null because the quality of protection is not requested.
        let major = unsafe {
            (self.library.functions.gss_unwrap)(
                &raw mut minor,
                self.raw,
                token.descriptor(),
                &raw mut output.raw,
                &raw mut hidden,
                ptr::null_mut(),
            )
        };
        if !is_genuine(major, is_ordered) {
            return Err(of_message(self.library.failure(ACTION, major, minor)));
        }
        let message = output.copy(bytes_max);
        let message = message.ok_or_else(|| GssError::found(ACTION, Reason::TokenDefective))?;
        Ok((message, hidden != 0))
    }

    /// Returns a signature for a message.
    pub(crate) fn get_mic(&mut self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        const ACTION: &str = "cannot sign a message";
        let mut message = Input::new(message);
        let mut output = Output::new(&self.library);
        let mut minor = 0;
        // SAFETY: the context belongs to this library. The other pointers refer to live local
        // variables.
        let major = unsafe {
            (self.library.functions.gss_get_mic)(
                &raw mut minor,
                self.raw,
                0,
                message.descriptor(),
                &raw mut output.raw,
            )
        };
        if major != 0 {
            return Err(self.library.failure(ACTION, major, minor));
        }
        output.copy(OUTPUT_BYTES_MAX).ok_or_else(|| GssError::found(ACTION, Reason::Other))
    }

    /// Checks the peer's signature of a message. `is_ordered` is true if a repeated or reordered
    /// message is refused.
    pub(crate) fn verify_mic(
        &mut self,
        message: &[u8],
        mic: &[u8],
        is_ordered: bool,
    ) -> Result<(), GssError> {
        let (mut message, mut mic) = (Input::new(message), Input::new(mic));
        let mut minor = 0;
        // SAFETY: the context belongs to this library. The other pointers refer to live local
        // variables, or are null because the quality of protection is not requested.
        let major = unsafe {
            (self.library.functions.gss_verify_mic)(
                &raw mut minor,
                self.raw,
                message.descriptor(),
                mic.descriptor(),
                ptr::null_mut(),
            )
        };
        if is_genuine(major, is_ordered) {
            return Ok(());
        }
        Err(of_message(self.library.failure("cannot verify a signature", major, minor)))
    }
}

/// True if the status says that the peer has made a message. A message that was received before or
/// out of order has bits of its own, which count only if the order matters.
const fn is_genuine(major: u32, is_ordered: bool) -> bool {
    let ignored = if is_ordered { 0 } else { DISORDER };
    major & !ignored == 0
}

/// Replaces the reason of an error within an established context: both sides have the key, so a
/// message that does not match the key was altered.
fn of_message(error: GssError) -> GssError {
    match error.reason() {
        Reason::WrongKey => error.with_reason(Reason::Altered),
        _ => error,
    }
}

/// Checks the result of one step. For bytes that are not a token, the mechanism returns "continue"
/// and a code of its own; this function reports them as an error.
fn turn(
    library: &Library,
    action: &'static str,
    (major, minor): (u32, u32),
    output: &Output<'_>,
    (flags, lifetime): (u32, u32),
) -> Result<Turn, GssError> {
    let token = output.copy(crate::TOKEN_BYTES_MAX);
    let continues = major & CONTINUE_NEEDED != 0;
    if is_failure(major) || major & DISORDER != 0 || (continues && minor != 0) {
        let error = library.failure(action, major, minor);
        return Err(error.with_reply(token.unwrap_or_default()));
    }
    let token = token.ok_or_else(|| GssError::found(action, Reason::TokenTooLong))?;
    Ok(Turn { continues, token, flags, lifetime })
}

impl Drop for ContextHandle {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let mut minor = 0;
            // SAFETY: the context belongs to this library, and only this call deletes it. Null says
            // that no token for the peer is requested (RFC 2744 5.9).
            unsafe {
                (self.library.functions.gss_delete_sec_context)(
                    &raw mut minor,
                    &raw mut self.raw,
                    ptr::null_mut(),
                )
            };
        }
    }
}
