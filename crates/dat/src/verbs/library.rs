//! The system's RDMA libraries, found when they are first wanted.
//!
//! Invariant: once loaded they stay, for contexts of devices are theirs and shared by all of the
//! process; a failure to load is not remembered, so that they may be installed meanwhile.

use std::sync::{Arc, OnceLock};

use super::raw::{Manager, Verbs};

/// The loaded libraries; shared by everything that was made with them.
pub struct Library {
    pub verbs: Verbs,
    pub manager: Manager,
}

/// Why there is no RDMA through verbs on this host. No other transport depends on it.
#[derive(Debug, thiserror::Error)]
pub enum VerbsUnavailable {
    /// There is no library.
    #[error("RDMA by verbs needs {file}, which cannot be loaded: install {package}")]
    Missing {
        /// The file looked for.
        file: &'static str,
        /// Where it is found.
        package: &'static str,
        /// What the loader said.
        source: libloading::Error,
    },
    /// The library lacks what it has had since rdma-core began.
    #[error("{file} has no {function}: RDMA by verbs needs rdma-core")]
    TooOld {
        /// The file.
        file: &'static str,
        /// What is not there.
        function: &'static str,
        /// What the loader said.
        source: libloading::Error,
    },
    /// The kernel has nothing to connect with.
    #[error(
        "this host has no RDMA device that can be used: load the device's driver and the module \
         rdma_ucm; `dafs doctor` shows what is there"
    )]
    NoDevice {
        /// What the system said.
        source: std::io::Error,
    },
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
