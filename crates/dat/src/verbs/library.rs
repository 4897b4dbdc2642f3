//! The system's RDMA libraries, found when they are first wanted.
//!
//! Invariant: once loaded they stay, for contexts of devices are theirs and shared by all of the
//! process; a failure to load is not remembered, so that they may be installed meanwhile.

use std::sync::{Arc, OnceLock};

use super::VerbsUnavailable;
use super::raw::{Manager, Verbs};

/// The loaded libraries; shared by everything that was made with them.
pub struct Library {
    pub verbs: Verbs,
    pub manager: Manager,
}

impl Library {
    /// Loads the libraries, or hands out those that are loaded. Reads files when it loads.
    pub fn load() -> Result<Arc<Self>, VerbsUnavailable> {
        static LOADED: OnceLock<Arc<Library>> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self { verbs: Verbs::load()?, manager: Manager::load()? });
        Ok(Arc::clone(LOADED.get_or_init(|| library)))
    }
}
