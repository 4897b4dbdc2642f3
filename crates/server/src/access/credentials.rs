//! The identity that requests act for: that of the session, or one that a trusted client has
//! registered (draft 3.1.1, 6.2.8, 6.2.9).

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
    /// Looks the name up. This blocks.
    pub(crate) fn run(self) -> LookupDone {
        let Self { answer, lookup, name, users, kerberos } = self;
        let found = match name {
            CredentialName::User(name) => users.find(&name),
            CredentialName::Gss(name) => kerberos.and_then(|kerberos| kerberos.user_named(&name)),
        };
        LookupDone { answer, lookup, found }
    }

    /// The result if the job cannot be finished: no such user.
    pub(crate) fn failed(&self) -> LookupDone {
        LookupDone { answer: self.answer, lookup: self.lookup, found: None }
    }
}
