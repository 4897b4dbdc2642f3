//! Acting for others, as a trusted client may (draft 3.1.1, 6.2.8).
//!
//! Invariant: a session that acts for somebody names them in each of its requests but those
//! that move data through an open file or close it: an open is the client's own, and what may
//! be done with it was judged when it was made.

use dafs_types::CredHandle;
use dafs_wire::messages::{CredentialData, RegisterCred, ReleaseCred};
use dafs_wire::{Request, Response};

use crate::error::Result;
use crate::session::Session;
use crate::typed::done;

/// Credentials that the server keeps for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registered(pub(crate) CredHandle);

/// Somebody to act for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActFor<'a> {
    /// A user, by the name the server knows.
    User(&'a str),
    /// POSIX numbers.
    Id {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Supplementary groups.
        groups: &'a [u32],
    },
    /// A principal of Kerberos.
    Principal(&'a str),
    /// Whomever the server takes for nobody.
    Default,
}

impl Session {
    /// Has the server keep credentials, for all sessions of this client.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless the client is trusted ([`crate::Identity::trusted`]); RESOURCE
    /// beyond the agreed number; INVAL for nobody the server knows.
    pub fn register_credentials(&self, whom: ActFor<'_>) -> Result<Registered> {
        let credentials = match whom {
            ActFor::User(name) => CredentialData::Name(name),
            ActFor::Id { uid, gid, groups } => {
                CredentialData::Id { uid, gid, groups: groups.into() }
            }
            ActFor::Principal(name) => CredentialData::Gss(name.as_bytes()),
            ActFor::Default => CredentialData::Default,
        };
        let request = Request::RegisterCred(RegisterCred { credentials });
        self.call(&request, |status, response| match response {
            Response::RegisterCred(result) => Ok(Registered(result.handle)),
            _ => done("REGISTER_CRED", status)
                .and_then(|()| Err(self.protocol_error("REGISTER_CRED"))),
        })
    }

    /// Has the server forget credentials. What was opened with them stays open.
    ///
    /// # Errors
    /// CRHAND_CONFLICT while requests run with them; NO_CREDS if there are none.
    pub fn release_credentials(&self, whom: Registered) -> Result<()> {
        let request = Request::ReleaseCred(ReleaseCred { handle: whom.0 });
        self.call(&request, |status, _| done("RELEASE_CRED", status))
    }

    /// The same session, acting for somebody.
    #[must_use]
    pub fn acting_for(&self, whom: Registered) -> Session {
        let mut session = self.clone();
        session.acting = whom.0;
        session
    }
}
