//! Whom a request acts for, and identities that trusted clients register.

use std::sync::Arc;

use dafs_filer::{Party, Registration};
use dafs_types::{Credentials, Status};
use dafs_wire::Response;
use dafs_wire::messages::{Empty, RegisterCred, RegisterCredResult, ReleaseCred};

use super::{LookupDone, LookupJob};
use crate::caller::{Asker, Caller};
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;

impl Reactor {
    /// Who a request acts as, and where.
    #[inline]
    pub(crate) fn who(&self, answer: ReplyTo) -> Arc<Asker> {
        match self.channels.get(answer.endpoint) {
            Some(channel) if !answer.is_acting => channel.who.clone(),
            Some(channel) => match self.filer.acting_for(channel.id, answer.stream) {
                Some(other) => Arc::new(channel.who.acting_for(other)),
                None => Arc::new(channel.who.acting_for(&Credentials::nobody())),
            },
            None => Arc::new(self.entrance.stranger()),
        }
    }

    /// The same, with the client it is of.
    ///
    /// # Errors
    /// BAD_SESSION if the connection is gone.
    #[inline]
    pub(crate) fn caller(&self, to: ReplyTo) -> Result<Caller, Status> {
        let party = self.party_of(to)?;
        Ok(Caller { who: self.who(to), party })
    }

    /// As whom the filer knows whoever has sent a request.
    ///
    /// # Errors
    /// BAD_SESSION if its connection is gone.
    #[inline]
    pub(crate) fn party_of(&self, to: ReplyTo) -> Result<Party, Status> {
        Ok(self.channels.get(to.endpoint).ok_or(Status::BadSession)?.party)
    }

    pub(crate) fn register_credentials(
        &mut self,
        answer: ReplyTo,
        request: &RegisterCred<'_>,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        match self.filer.register_credentials(id, &request.credentials)? {
            Registration::Done(handle) => {
                self.reply(answer, &Response::RegisterCred(RegisterCredResult { handle }));
            }
            Registration::LookUp(lookup, name) => {
                let users = self.entrance.users();
                let kerberos = self.entrance.kerberos();
                let job = LookupJob { answer, lookup, name, users, kerberos };
                self.entrance.logins().submit_lookup(Job::Lookup(Box::new(job)));
                self.entrance.logins().give(&mut self.pool, self.life.now());
            }
        }
        Ok(())
    }

    /// A name has been looked up.
    pub(crate) fn on_looked_up(&mut self, done: LookupDone) {
        let LookupDone { answer, lookup, found } = done;
        match self.filer.credentials_looked_up(lookup, found) {
            Ok(handle) => {
                self.reply(answer, &Response::RegisterCred(RegisterCredResult { handle }));
            }
            Err(status) => self.fail(answer, status),
        }
        self.entrance.logins().end_lookup();
        self.entrance.logins().give(&mut self.pool, self.life.now());
    }

    pub(crate) fn release_credentials(
        &mut self,
        answer: ReplyTo,
        request: &ReleaseCred,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.release_credentials(id, request.handle)?;
        self.reply(answer, &Response::ReleaseCred(Empty));
        Ok(())
    }
}
