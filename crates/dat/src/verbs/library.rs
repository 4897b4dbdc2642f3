//! Loads the system's RDMA libraries when they are first needed.
//!
//! Invariant: loaded libraries stay loaded, because they own the device contexts, which the whole
//! process shares. A failure to load is not remembered, so that the libraries can be installed
//! later.

use std::sync::{Arc, OnceLock};

use super::VerbsUnavailable;
use super::raw::{Manager, Verbs};

/// The loaded libraries, shared by all objects that were created with them.
pub(crate) struct Library {
    pub verbs: Verbs,
    pub manager: Manager,
}

impl Library {
    /// Loads the libraries, or returns those already loaded. Loading reads files.
    pub(crate) fn load() -> Result<Arc<Self>, VerbsUnavailable> {
        static LOADED: OnceLock<Arc<Library>> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self { verbs: Verbs::load()?, manager: Manager::load()? });
        Ok(Arc::clone(LOADED.get_or_init(|| library)))
    }
}
