//! Who asks: an identity, and what it sees of the exports.
//!
//! Invariant: an identity and the terms on which it enters the exports go together, whoever
//! it is; a request has the same from its start to its end.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use dafs_filer::Party;
use dafs_store::local::Squash;
use dafs_store::{ExportTerms, Store};
use dafs_types::Credentials;

/// The store as some clients see it.
pub struct View {
    /// The store, on their terms.
    pub store: Arc<dyn Store>,
    /// Whose identity does not count, in a store that knows no terms, and who they are then.
    squash: Option<(Squash, Credentials)>,
}

/// Whoever asks for something.
pub struct Asker {
    /// In whose name they ask.
    pub credentials: Credentials,
    view: Arc<View>,
}

/// Who asks for an operation: in whose name, and as which client.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose rights count, and what they see of the exports.
    pub who: Arc<Asker>,
    /// As whom the filer knows them.
    pub party: Party,
}

impl Deref for Caller {
    type Target = Asker;

    fn deref(&self) -> &Asker {
        &self.who
    }
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
    pub fn acting_for(&self, other: &Credentials) -> Self {
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
