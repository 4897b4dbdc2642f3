//! Credentials that a session registers with its server, so that it may act for others.
//!
//! Invariant: no two credentials that are registered now have the same number.

use dafs_wire::messages::ReleaseCred;
use dafs_wire::{Request, Response};

use crate::acting::{ActFor, Registered, Whom};
use crate::error::Result;
use crate::refusal::done;
use crate::session::Session;

impl Session {
    /// Has the server keep credentials. A server that has restarted is asked for them again
    /// when the session comes back.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless the client is trusted ([`crate::Identity::trusted`]); RESOURCE
    /// beyond the agreed number; INVAL for nobody the server knows.
    pub fn register_credentials(&self, whom: ActFor<'_>) -> Result<Registered> {
        let whom = Whom::from(whom);
        // A handle counts for the life of the server that gave it.
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

    /// Has the server forget credentials. What was opened with them stays open.
    ///
    /// # Errors
    /// CRHAND_CONFLICT while requests run with them; NO_CREDS if there are none.
    pub fn release_credentials(&self, whom: Registered) -> Result<()> {
        let handle = self.shared.borrow().sessions[self.key].standing.registered.handle(whom);
        let request = Request::ReleaseCred(ReleaseCred { handle });
        self.call(&request, |status, _| done("RELEASE_CRED", status))?;
        let registered = &mut self.shared.borrow_mut().sessions[self.key].standing.registered;
        registered.remove(whom);
        Ok(())
    }

    /// The same session, acting for somebody it has registered. Requests for anybody else end
    /// with NO_CREDS.
    #[must_use]
    pub fn acting_for(&self, whom: Registered) -> Session {
        let mut session = self.clone();
        session.acting = Some(whom);
        session
    }
}
