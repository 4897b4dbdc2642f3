//! The server's side: a service with its keys, and an acceptor for each connection.
//!
//! Invariant: a token is accepted only once. Every credential has a replay cache, and no option
//! disables it.

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

/// The greatest number of tokens accepted for one context. Kerberos V needs one.
const STEPS_MAX: u32 = 4;

/// The name of a service, its keytab and its replay cache. The default is the system's
/// configuration: any key in the default keytab.
#[derive(Clone, Debug, Default)]
pub struct ServiceOptions {
    /// The name of the service. `None` accepts tickets for every key in the keytab, for a server
    /// with several names. Use that only with a keytab that no other service shares.
    pub name: Option<ServiceName>,
    /// The path of the keytab; `None` means the system's (`/etc/krb5.keytab`, which only root can
    /// read). The keytab is read again for each token, so keys can be changed under a running
    /// server.
    pub keytab: Option<PathBuf>,
    /// The path of the replay cache; `None` means the system's. Set it only for a server that
    /// shares neither keys nor clock with other servers. Needs MIT krb5 1.18.
    pub replay_cache: Option<PathBuf>,
}

/// A service with its keys. Many acceptors share it.
pub struct Service {
    credential: CredentialHandle,
}

impl Service {
    /// Finds the service's keys. Blocks: it reads files and may ask a name server about the
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

/// The authentication of one client, on one connection.
pub struct Acceptor {
    service: Arc<Service>,
    handle: ContextHandle,
    bindings: Option<Vec<u8>>,
    steps: u32,
}

impl Acceptor {
    /// Creates an acceptor that waits for a client's first token.
    #[must_use]
    pub fn new(service: Arc<Service>) -> Self {
        let handle = ContextHandle::new(service.credential.library());
        Self { service, handle, bindings: None, steps: 0 }
    }

    /// Binds the context to data that only the two sides of this connection know (channel bindings,
    /// RFC 2743 1.1.6). A client that binds to other data is refused. A client that binds to none
    /// is accepted; [`Context::is_bound`] is then false.
    #[must_use]
    pub fn bound_to(self, connection: &[u8]) -> Self {
        Self { bindings: Some(connection.to_vec()), ..self }
    }

    /// Processes a token of the client. Blocks: it reads the keytab, locks and writes the replay
    /// cache, and waits for other steps on the same [`Service`].
    ///
    /// Kerberos V completes after one token.
    ///
    /// # Errors
    /// Any error ends the attempt. [`GssError::reason`] says why, and [`GssError::reply`] is what
    /// the client may be sent.
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

/// Replaces the reason of an error that has no code: the mechanism returns no code if it cannot
/// decode the contents of the frame.
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
