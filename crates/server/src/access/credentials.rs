//! Whom requests act for: the session's own identity, or one that a trusted client has
//! registered (draft 3.1.1, 6.2.8, 6.2.9).

use std::sync::Arc;

use dafs_sessions::{CredentialLookup, CredentialName};
use dafs_types::Credentials;

use crate::access::gss::Kerberos;
use crate::access::users::Users;
use crate::reply_to::ReplyTo;

/// A name to be looked up.
pub(crate) struct LookupJob {
    pub answer: ReplyTo,
    pub lookup: CredentialLookup,
    pub name: CredentialName,
    pub users: Users,
    pub kerberos: Option<Arc<Kerberos>>,
}

/// What came of it.
pub(crate) struct LookupDone {
    pub answer: ReplyTo,
    pub lookup: CredentialLookup,
    pub found: Option<Credentials>,
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
