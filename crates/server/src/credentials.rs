//! Whom requests act for: the session's own identity, or one that a trusted client has
//! registered (draft 3.1.1, 6.2.8, 6.2.9).
//!
//! Invariant: an identity and the terms on which it enters the exports go together, whoever
//! it is; a request has the same from its start to its end.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use dafs_filer::{CredentialLookup, CredentialName, Registration};
use dafs_store::local::Squash;
use dafs_store::{ExportTerms, Store};
use dafs_types::{Credentials, Status};
use dafs_wire::Response;
use dafs_wire::messages::{Empty, RegisterCred, RegisterCredResult, ReleaseCred};

use crate::gss::Kerberos;
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::task::Answer;
use crate::users::Users;

/// The store as some clients see it.
pub(crate) struct View {
    pub store: Arc<dyn Store>,
    /// Whose identity does not count, in a store that knows no terms, and who they are then.
    squash: Option<(Squash, Credentials)>,
}

/// Whoever asks for something.
pub(crate) struct Asker {
    pub credentials: Credentials,
    view: Arc<View>,
}

/// A name to be looked up.
pub(crate) struct LookupJob {
    pub answer: Answer,
    pub lookup: CredentialLookup,
    pub name: CredentialName,
    pub users: Users,
    pub kerberos: Option<Arc<Kerberos>>,
}

/// What came of it.
pub(crate) struct LookupDone {
    answer: Answer,
    lookup: CredentialLookup,
    found: Option<Credentials>,
}

impl View {
    /// The whole store, as it is.
    pub fn whole(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, squash: None })
    }

    /// A store on terms.
    pub fn new(store: &Arc<dyn Store>, terms: &[ExportTerms]) -> Arc<Self> {
        match store.on_terms(terms) {
            Some(store) => Self::whole(store),
            None => {
                let only = terms.first().map(|terms| (terms.squash, terms.anonymous.clone()));
                Arc::new(Self { store: store.clone(), squash: only })
            }
        }
    }
}

impl Asker {
    /// Somebody who comes in by a view.
    pub fn new(who: Credentials, view: &Arc<View>) -> Self {
        let credentials = match &view.squash {
            Some((squash, anonymous)) => squash.apply(&who, anonymous).into_owned(),
            None => who,
        };
        Self { credentials, view: view.clone() }
    }

    /// The store as they see it.
    pub fn store(&self) -> &dyn Store {
        &*self.view.store
    }

    /// Somebody else in the same place.
    fn acting_for(&self, other: &Credentials) -> Self {
        Self::new(other.clone(), &self.view)
    }
}

impl Deref for Asker {
    type Target = Credentials;

    fn deref(&self) -> &Credentials {
        &self.credentials
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.credentials.fmt(out)
    }
}

impl LookupJob {
    /// Looks. Blocks.
    pub fn run(self) -> LookupDone {
        let Self { answer, lookup, name, users, kerberos } = self;
        let found = match name {
            CredentialName::User(name) => users.find(&name),
            CredentialName::Gss(name) => kerberos.and_then(|kerberos| kerberos.user_named(&name)),
        };
        LookupDone { answer, lookup, found }
    }

    /// What it comes to if it cannot be finished: the name is nobody's.
    pub fn failed(&self) -> LookupDone {
        LookupDone { answer: self.answer, lookup: self.lookup, found: None }
    }
}

impl Reactor {
    /// Who a request acts as, and where.
    #[inline]
    pub(crate) fn who(&self, answer: Answer) -> Arc<Asker> {
        match self.channels.get(answer.endpoint) {
            Some(channel) if !answer.is_acting => channel.who.clone(),
            Some(channel) => match self.filer.acting_for(channel.id, answer.stream) {
                Some(other) => Arc::new(channel.who.acting_for(other)),
                None => Arc::new(channel.who.acting_for(&Credentials::nobody())),
            },
            None => Arc::new(Asker::new(Credentials::nobody(), &self.whole_view)),
        }
    }

    pub(crate) fn register_credentials(
        &mut self,
        answer: Answer,
        request: &RegisterCred<'_>,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        match self.filer.register_credentials(id, &request.credentials)? {
            Registration::Done(handle) => {
                self.reply(answer, &Response::RegisterCred(RegisterCredResult { handle }));
            }
            Registration::LookUp(lookup, name) => {
                let users = Users::new(self.passwords.clone());
                let kerberos = self.kerberos.clone();
                let job = LookupJob { answer, lookup, name, users, kerberos };
                self.submit_lookup(Job::Lookup(Box::new(job)));
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
    }

    pub(crate) fn release_credentials(
        &mut self,
        answer: Answer,
        request: &ReleaseCred,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.release_credentials(id, request.handle)?;
        self.reply(answer, &Response::ReleaseCred(Empty));
        Ok(())
    }
}
