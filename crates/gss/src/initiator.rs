//! The client's side: a user's or machine's tickets, and an initiator for each connection.
//!
//! Invariant: nothing is established with a server that has not proven itself, and no
//! credential is ever delegated to it.

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

/// Most tokens that are made for one context. Kerberos V needs one and reads one.
const STEPS_MAX: u32 = 4;

/// What is asked for. Replay and sequence are for messages that are protected later; the
/// draft does without them, for it protects none (see `docs/decisions/0012-kerberos.md`).
const WANTED: u32 = flag::MUTUAL | flag::REPLAY | flag::SEQUENCE | flag::INTEGRITY | flag::PRIVACY;

/// Where a client's tickets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CredentialSource {
    /// What `kinit` and login have left for this user (`KRB5CCNAME`).
    #[default]
    Default,
    /// A cache in Kerberos' writing: `FILE:/path`, `KEYRING:...`, or the path of a file.
    Cache(OsString),
    /// A client keytab, for machines and daemons: tickets are got with the key when they are
    /// needed, and kept in the memory of the process, where all that name the same keytab
    /// and principal share them.
    Keytab {
        /// The file.
        file: PathBuf,
        /// Whose key to use; `None` is the first in the file.
        principal: Option<Principal>,
    },
}

/// A client's tickets. Many initiators share one.
pub struct Credential {
    handle: CredentialHandle,
}

impl Credential {
    /// Finds the tickets, or gets them. Blocks: reads files, and with a keytab talks to a
    /// key distribution centre.
    ///
    /// # Errors
    /// [`Reason::CredentialMissing`] without a ticket; with a keytab also what the centre
    /// says: [`Reason::ClientRefused`], [`Reason::ClientUnknown`],
    /// [`Reason::CentreUnreachable`] and others. Whether tickets have expired turns out when
    /// they are used.
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

/// One connection's way to being authenticated.
pub struct Initiator {
    credential: Arc<Credential>,
    target: Name,
    handle: ContextHandle,
    bindings: Option<Vec<u8>>,
    steps: u32,
}

impl Initiator {
    /// Prepares to authenticate to a service.
    ///
    /// # Errors
    /// [`Reason::NameMalformed`] if the library cannot read its name.
    pub fn new(credential: Arc<Credential>, target: &ServiceName) -> Result<Self, GssError> {
        let library = credential.handle.library();
        let target = Name::of_service(library, target)?;
        let handle = ContextHandle::new(library);
        Ok(Self { credential, target, handle, bindings: None, steps: 0 })
    }

    /// Binds the context to something both sides know of this connection alone. A server
    /// that binds to something else refuses it; one that binds to nothing does not care.
    #[must_use]
    pub fn bound_to(self, connection: &[u8]) -> Self {
        Self { bindings: Some(connection.to_vec()), ..self }
    }

    /// Makes the first token (`None`), or takes one of the server. Blocks: the first step
    /// talks to a key distribution centre unless the service's ticket is cached already.
    ///
    /// # Errors
    /// The attempt is over, whatever it is; [`GssError::reason`] tells why. What a server's
    /// refusal says is not signed and no proof of anything.
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
            self.handle.initiate(credential, &self.target, WANTED, token, bindings, ACTION)?;
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
