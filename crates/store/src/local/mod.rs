//! Directories of this machine, served in place.
//!
//! Invariant: every system call that takes a name takes one component, relative to
//! a descriptor of an object that was proved to lie beneath an export, and follows
//! no symbolic link.

use std::path::PathBuf;

/// One exported directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name in the virtual root, and part of its file-system handle: a renamed
    /// export makes its handles stale.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether changes are refused.
    pub read_only: bool,
}

/// How a [`LocalStore`] works.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// What is served. One: its root is the root. Several: a virtual directory lists
    /// them.
    pub exports: Vec<Export>,
    /// Where the key that seals handles is kept (made with mode 0600). Handles stay
    /// valid as long as this directory does.
    pub state_directory: PathBuf,
    /// Most descriptors kept open for handles in recent use; lowered to a quarter of
    /// what the process may open.
    pub descriptor_count_max: usize,
    /// Use the kernel's handles where privilege allows. Off in tests of the other way.
    pub kernel_handles: bool,
    /// Make each change of a name durable before answering (fsync of the directory).
    pub durable_names: bool,
    /// Most directory entries looked at in search of an object whose handle came from
    /// before a restart, without kernel handles.
    pub search_entry_count_max: usize,
}

impl LocalConfig {
    /// One export with everything else as usual.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, state_directory: impl Into<PathBuf>) -> Self {
        Self {
            exports: vec![Export {
                name: "export".to_owned(),
                path: path.into(),
                read_only: false,
            }],
            state_directory: state_directory.into(),
            descriptor_count_max: DESCRIPTOR_COUNT_MAX,
            kernel_handles: true,
            durable_names: false,
            search_entry_count_max: SEARCH_ENTRY_COUNT_MAX,
        }
    }
}

/// Why a [`LocalStore`] could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// A path could not be used.
    #[error("{path}: {cause}")]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// Exported directories of this machine. See the [module](self).
pub struct LocalStore;

impl LocalStore {
    /// Opens the exports, and reads the key from the state directory or makes it.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(_config: &LocalConfig) -> std::result::Result<Self, StartError> {
        todo!()
    }
}

/// Usual value of [`LocalConfig::descriptor_count_max`].
pub const DESCRIPTOR_COUNT_MAX: usize = 16_384;
/// Usual value of [`LocalConfig::search_entry_count_max`].
pub const SEARCH_ENTRY_COUNT_MAX: usize = 1_000_000;
