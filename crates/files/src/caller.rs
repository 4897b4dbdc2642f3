//! The caller of an operation: its identity, and its view of the exports.
//!
//! Invariant: an identity is always combined with the terms on which it sees the exports. Neither
//! changes during a request.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use dafs_filer::Party;
use dafs_store::local::Squash;
use dafs_store::{ExportTerms, Store};
use dafs_types::Credentials;

/// A view of the store that clients with the same terms share.
pub struct View {
    /// The store, restricted to the terms of these clients.
    pub store: Arc<dyn Store>,
    /// The squash rule and the identity that replaces squashed identities, for a store that does
    /// not apply terms itself. `None` if the store applies them.
    squash: Option<(Squash, Credentials)>,
}

/// The identity of a caller, and its view of the store.
pub struct Identity {
    /// The credentials with which operations access the store.
    pub credentials: Credentials,
    view: Arc<View>,
}

/// The caller of an operation: its identity, and its client.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The identity whose permissions are checked, with its view of the exports.
    pub who: Arc<Identity>,
    /// The ids of the client and the session, by which the filer knows the caller.
    pub party: Party,
}

impl Deref for Caller {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.who
    }
}

impl View {
    /// Creates the view of the whole store, without restrictions.
    pub fn whole(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, squash: None })
    }

    /// Creates the view of the store on these terms.
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

impl Identity {
    /// Creates an identity with these credentials and a view. If the view squashes the credentials,
    /// the identity gets the replacing credentials in their place.
    pub fn new(who: Credentials, view: &Arc<View>) -> Self {
        let credentials = match &view.squash {
            Some((squash, anonymous)) => squash.apply(&who, anonymous).into_owned(),
            None => who,
        };
        Self { credentials, view: view.clone() }
    }

    /// Returns the store, restricted to the caller's view.
    pub fn store(&self) -> &dyn Store {
        &*self.view.store
    }

    /// Returns an identity with the same view and the credentials of another user.
    pub fn acting_for(&self, other: &Credentials) -> Self {
        Self::new(other.clone(), &self.view)
    }
}

impl Deref for Identity {
    type Target = Credentials;

    fn deref(&self) -> &Credentials {
        &self.credentials
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.credentials.fmt(out)
    }
}
