//! Determines the identity that a request acts for: the identity of the session, or an identity
//! that a trusted client has registered (draft 3.1.1, 6.2.8, 6.2.9).

use std::sync::Arc;

use dafs_sessions::{CredentialLookup, CredentialName};
use dafs_types::Credentials;

use crate::access::gss::Kerberos;
use crate::access::users::Users;
use crate::reply_to::ReplyTo;

/// A job that looks up a user name.
pub(crate) struct LookupJob {
    pub answer: ReplyTo,
    pub lookup: CredentialLookup,
    pub name: CredentialName,
    pub users: Users,
    pub kerberos: Option<Arc<Kerberos>>,
}

/// The result of a [`LookupJob`].
pub(crate) struct LookupDone {
    pub answer: ReplyTo,
    pub lookup: CredentialLookup,
    pub found: Option<Credentials>,
}

impl LookupJob {
    /// Looks the name up. The lookup may block, so a pool thread calls this.
    pub(crate) fn run(self) -> LookupDone {
        let Self { answer, lookup, name, users, kerberos } = self;
        let found = match name {
            CredentialName::User(name) => users.find(&name),
            CredentialName::Gss(name) => kerberos.and_then(|kerberos| kerberos.user_named(&name)),
        };
        LookupDone { answer, lookup, found }
    }

    /// Returns the result "no such user", for a job that could not be completed.
    pub(crate) fn failed(&self) -> LookupDone {
        LookupDone { answer: self.answer, lookup: self.lookup, found: None }
    }
}
