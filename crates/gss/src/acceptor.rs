//! The server's side: a service with its keys, and an acceptor for each connection.
//!
//! Invariant: a token is accepted once, ever: every credential has a replay cache, and no
//! option turns it off.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::calls::{ContextHandle, CredentialHandle, Name, Places, Usage, place_of};
use crate::context::{Context, Side, Step};
use crate::error::{GssError, Reason};
use crate::frame::{self, Kind};
use crate::library::Library;
use crate::name::ServiceName;

const ACTION: &str = "cannot accept the client's token";

/// Most tokens that are taken for one context. Kerberos V needs one.
const STEPS_MAX: u32 = 4;

/// What a service is and where its things are. The default is what the system has
/// configured: any key of the default keytab.
#[derive(Clone, Debug, Default)]
pub struct ServiceOptions {
    /// The service to be. `None` accepts tickets for every key in the keytab, as for a
    /// server with several names; use that with a keytab of the server's own only.
    pub name: Option<ServiceName>,
    /// The keytab; `None` is the system's (`/etc/krb5.keytab`, which root alone can read).
    /// It is read again for each token, so that keys can be changed under a running server.
    pub keytab: Option<PathBuf>,
    /// The file of the replay cache; `None` is the system's. Only a server that shares
    /// neither keys nor clock with others has reason to name one. Needs MIT krb5 1.18.
    pub replay_cache: Option<PathBuf>,
}

/// A service with its keys. Many acceptors share one.
pub struct Service {
    credential: CredentialHandle,
}

impl Service {
    /// Finds the service's keys. Blocks: reads files, and may ask a name server about the
    /// service's host.
    ///
    /// # Errors
    /// [`Reason::CredentialMissing`] if the keytab cannot be read or has no such key.
    pub fn acquire(library: &Arc<Library>, options: &ServiceOptions) -> Result<Self, GssError> {
        let name = options.name.as_ref().map(|name| Name::of_service(library, name)).transpose()?;
        let mut places = Places::default();
        if let Some(keytab) = &options.keytab {
            places.add(c"keytab", place_of("FILE", keytab))?;
        }
        if let Some(file) = &options.replay_cache {
            places.add(c"rcache", place_of("file2", file))?;
        }
        let credential = CredentialHandle::acquire(library, name.as_ref(), Usage::Accept, &places)?;
        Ok(Self { credential })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").finish_non_exhaustive()
    }
}

/// One client's way to being authenticated.
pub struct Acceptor {
    service: Arc<Service>,
    handle: ContextHandle,
    bindings: Option<Vec<u8>>,
    steps: u32,
}

impl Acceptor {
    /// Waits for a client's first token.
    #[must_use]
    pub fn new(service: Arc<Service>) -> Self {
        let handle = ContextHandle::new(service.credential.library());
        Self { service, handle, bindings: None, steps: 0 }
    }

    /// Binds the context to something both sides know of this connection alone (channel
    /// bindings, RFC 2743 1.1.6). A client that binds to something else is refused; whether
    /// it bound at all, [`Context::is_bound`] tells.
    #[must_use]
    pub fn bound_to(self, connection: &[u8]) -> Self {
        Self { bindings: Some(connection.to_vec()), ..self }
    }

    /// Takes a token of the client. Blocks: reads the keytab, locks and writes the replay
    /// cache, and takes its turn at the [`Service`].
    ///
    /// Kerberos V is done after one token.
    ///
    /// # Errors
    /// The attempt is over, whatever it is; [`GssError::reason`] tells why, and
    /// [`GssError::reply`] is what the client may be told.
    pub fn step(mut self, token: &[u8]) -> Result<Step<Self>, GssError> {
        let due: &[Kind] = if self.steps == 0 { &[Kind::Request] } else { &[Kind::Reply] };
        frame::check(token, due).map_err(|reason| GssError::found(ACTION, reason))?;
        self.steps += 1;
        let bindings = self.bindings.as_deref();
        let turn = self
            .handle
            .accept(&self.service.credential, token, bindings, ACTION)
            .map_err(undecoded)?;
        if !turn.continues {
            let context = Context::establish(self.handle, &turn, Side::Initiator, ACTION)?;
            let token = Some(turn.token).filter(|token| !token.is_empty());
            return Ok(Step::Done { context, token });
        }
        if self.steps >= STEPS_MAX || turn.token.is_empty() {
            return Err(GssError::found(ACTION, Reason::TokenDefective));
        }
        Ok(Step::Continue { party: self, token: turn.token })
    }
}

/// The mechanism gives no code where it cannot decode what is in the frame.
fn undecoded(error: GssError) -> GssError {
    if error.reason() == Reason::Other && error.minor() == 0 {
        error.with_reason(Reason::TokenDefective).without_details()
    } else {
        error
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Acceptor").field("steps", &self.steps).finish_non_exhaustive()
    }
}
