//! The caller of an operation: its identity, and its view of the exports.
//!
//! Invariant: an identity always goes together with the terms on which it sees the exports. Both
//! stay the same from the start of a request to its end.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use dafs_filer::Party;
use dafs_store::local::Squash;
use dafs_store::{ExportTerms, Store};
use dafs_types::Credentials;

/// A view of the store that some clients share.
pub struct View {
    /// The store, restricted to the terms of these clients.
    pub store: Arc<dyn Store>,
    /// For a store without terms: which identities are replaced, and by which identity.
    squash: Option<(Squash, Credentials)>,
}

/// The identity of a caller, and its view of the store.
pub struct Identity {
    /// The credentials that operations act with.
    pub credentials: Credentials,
    view: Arc<View>,
}

/// The caller of an operation: its identity, and its client.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The identity whose rights count, and its view of the exports.
    pub who: Arc<Identity>,
    /// The client and connection as the filer knows them.
    pub party: Party,
}

impl Deref for Caller {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.who
    }
}

impl View {
    /// The unrestricted view of the store.
    pub fn whole(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, squash: None })
    }

    /// The view of the store on these terms.
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
    /// A caller with these credentials that uses a view. The view may replace the credentials.
    pub fn new(who: Credentials, view: &Arc<View>) -> Self {
        let credentials = match &view.squash {
            Some((squash, anonymous)) => squash.apply(&who, anonymous).into_owned(),
            None => who,
        };
        Self { credentials, view: view.clone() }
    }

    /// The store as the caller sees it.
    pub fn store(&self) -> &dyn Store {
        &*self.view.store
    }

    /// The same view with the credentials of another user.
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
