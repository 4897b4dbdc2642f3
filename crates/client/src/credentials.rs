//! Registers credentials with the server, so that a session can impersonate other users.
//!
//! Invariant: no two sets of credentials that are registered at the same time have the same number.

use dafs_wire::messages::ReleaseCred;
use dafs_wire::{Request, Response};

use crate::error::Result;
use crate::impersonation::{ActFor, Impersonated, RegisteredCredentials};
use crate::refusal::done;
use crate::session::Session;

impl Session {
    /// Registers a user's credentials with the server, for use with [`Session::acting_for`]. When
    /// the session reconnects to a restarted server, it registers the credentials again.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless the client is trusted ([`crate::Identity::trusted`]); RESOURCE if more
    /// are registered than the server granted to the session; INVAL if the server does not know the
    /// user.
    pub fn register_credentials(&self, whom: ActFor<'_>) -> Result<RegisteredCredentials> {
        let whom = Impersonated::from(whom);
        // The server incarnation that gave out the handle has assigned this client id; the handle
        // is valid only there.
        let client = self.shared.borrow().sessions[self.key].standing.client;
        let handle = self.call(&whom.request(), |status, response| match response {
            Response::RegisterCred(result) => Ok(result.handle),
            _ => done("REGISTER_CRED", status)
                .and_then(|()| Err(self.protocol_error("REGISTER_CRED"))),
        })?;
        let mut core = self.shared.borrow_mut();
        let number = core.sessions.next_registered();
        core.sessions[self.key].standing.registered.add(number, whom, handle, client);
        Ok(number)
    }

    /// Removes registered credentials from the server. Files that were opened with them stay open.
    ///
    /// # Errors
    /// CRHAND_CONFLICT while requests run with them; NO_CREDS if they are not registered.
    pub fn release_credentials(&self, whom: RegisteredCredentials) -> Result<()> {
        let handle = self.shared.borrow().sessions[self.key].standing.registered.handle(whom);
        let request = Request::ReleaseCred(ReleaseCred { handle });
        self.call(&request, |status, _| done("RELEASE_CRED", status))?;
        let registered = &mut self.shared.borrow_mut().sessions[self.key].standing.registered;
        registered.remove(whom);
        Ok(())
    }

    /// Returns a handle of the same session whose requests use these registered credentials. If the
    /// credentials are not registered in this session, requests fail with NO_CREDS.
    #[must_use]
    pub fn acting_for(&self, whom: RegisteredCredentials) -> Session {
        let mut session = self.clone();
        session.acting = Some(whom);
        session
    }
}
