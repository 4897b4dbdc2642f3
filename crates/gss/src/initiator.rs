//! The client's side: the tickets of a user or machine, and an initiator for each connection.
//!
//! Invariant: no context is established with a server that has not proved its identity, and no
//! credential is ever delegated to a server.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use crate::calls::{ContextHandle, CredentialHandle, Name, Places, Usage, place_of};
use crate::context::{Context, Side, Step};
use crate::error::{GssError, Reason};
use crate::frame::{self, Kind};
use crate::library::Library;
use crate::name::{Principal, ServiceName};
use crate::raw::{PRINCIPAL, flag};

const ACTION: &str = "cannot authenticate to the server";

/// The greatest number of tokens made for one context. Kerberos V makes one and reads one.
const STEPS_MAX: u32 = 4;

/// The requested services. Replay and sequence detection apply only to later protected messages.
/// The draft works without them, because it protects no messages (see
/// `docs/decisions/0012-kerberos.md`).
const WANTED: u32 = flag::MUTUAL | flag::REPLAY | flag::SEQUENCE | flag::INTEGRITY | flag::PRIVACY;

/// The source of a client's tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CredentialSource {
    /// The tickets that `kinit` or login have stored for this user (`KRB5CCNAME`).
    #[default]
    Default,
    /// A cache in Kerberos' notation: `FILE:/path`, `KEYRING:...`, or the path of a file.
    Cache(OsString),
    /// A client keytab, for machines and daemons. Tickets are obtained with the key when they are
    /// needed. They are kept in the process's memory and shared by all credentials with the same
    /// keytab and principal.
    Keytab {
        /// The path of the keytab.
        file: PathBuf,
        /// The principal whose key is used; `None` means the first in the file.
        principal: Option<Principal>,
    },
}

/// A client's tickets. Many initiators share them.
pub struct Credential {
    handle: CredentialHandle,
}

impl Credential {
    /// Finds or obtains the tickets. Blocks: it reads files and, with a keytab, communicates with a
    /// key distribution center.
    ///
    /// # Errors
    /// [`Reason::CredentialMissing`] without a ticket. With a keytab also the errors of the center:
    /// [`Reason::ClientRefused`], [`Reason::ClientUnknown`], [`Reason::CentreUnreachable`] and
    /// others. An expired ticket is detected only when it is used.
    pub fn acquire(library: &Arc<Library>, source: &CredentialSource) -> Result<Self, GssError> {
        let mut places = Places::default();
        let mut name = None;
        match source {
            CredentialSource::Default => {}
            CredentialSource::Cache(cache) => {
                places.add(c"ccache", cache.as_bytes().to_vec())?;
            }
            CredentialSource::Keytab { file, principal } => {
                places.add(c"client_keytab", place_of("FILE", file))?;
                let mut memory = OsString::from("MEMORY:dafs:").into_vec();
                if let Some(principal) = principal {
                    name = Some(Name::import(library, principal.as_str(), &PRINCIPAL)?);
                    memory.extend_from_slice(principal.as_str().as_bytes());
                }
                memory.push(b':');
                memory.extend_from_slice(file.as_os_str().as_bytes());
                places.add(c"ccache", memory)?;
            }
        }
        let handle = CredentialHandle::acquire(library, name.as_ref(), Usage::Initiate, &places)?;
        Ok(Self { handle })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credential").finish_non_exhaustive()
    }
}

/// The authentication of this side on one connection.
pub struct Initiator {
    credential: Arc<Credential>,
    target: Name,
    handle: ContextHandle,
    bindings: Option<Vec<u8>>,
    /// The flags that the context must have.
    wanted: u32,
    steps: u32,
}

impl Initiator {
    /// Prepares to authenticate to a service.
    ///
    /// # Errors
    /// [`Reason::NameMalformed`] if the library cannot parse the service's name.
    pub fn new(credential: Arc<Credential>, target: &ServiceName) -> Result<Self, GssError> {
        let library = credential.handle.library();
        let target = Name::of_service(library, target)?;
        let handle = ContextHandle::new(library);
        Ok(Self { credential, target, handle, bindings: None, wanted: WANTED, steps: 0 })
    }

    /// Binds the context to data that only the two sides of this connection know. A server that
    /// binds to other data refuses the context. A server that does not bind ignores the data.
    #[must_use]
    pub fn bound_to(self, connection: &[u8]) -> Self {
        Self { bindings: Some(connection.to_vec()), ..self }
    }

    /// Does not ask for the detection of repeated and reordered messages. The context must then be
    /// used [without order](Context::without_order).
    #[must_use]
    pub fn without_order(self) -> Self {
        Self { wanted: self.wanted & !(flag::REPLAY | flag::SEQUENCE), ..self }
    }

    /// Makes the first token if `token` is `None`, or processes a token of the server. Blocks: the
    /// first step communicates with a key distribution center unless the service's ticket is
    /// cached.
    ///
    /// # Errors
    /// Any error ends the attempt. [`GssError::reason`] says why. A refusal by the server is not
    /// signed and so proves nothing.
    pub fn step(mut self, token: Option<&[u8]>) -> Result<Step<Self>, GssError> {
        if token.is_none() != (self.steps == 0) || self.steps >= STEPS_MAX {
            return Err(GssError::found(ACTION, Reason::TokenDefective));
        }
        if let Some(token) = token {
            frame::check(token, &[Kind::Reply, Kind::Refusal])
                .map_err(|reason| GssError::found(ACTION, reason))?;
        }
        self.steps += 1;
        let (credential, bindings) = (&self.credential.handle, self.bindings.as_deref());
        let turn =
            self.handle.initiate(credential, &self.target, self.wanted, token, bindings, ACTION)?;
        if !turn.continues {
            let context = Context::establish(self.handle, &turn, Side::Acceptor, ACTION)?;
            let token = Some(turn.token).filter(|token| !token.is_empty());
            return Ok(Step::Done { context, token });
        }
        if turn.token.is_empty() {
            return Err(GssError::found(ACTION, Reason::TokenDefective));
        }
        Ok(Step::Continue { party: self, token: turn.token })
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Initiator").field("steps", &self.steps).finish_non_exhaustive()
    }
}
