//! Why the provider cannot be used on a host, or in a build.

/// Why there is no RDMA through verbs on this host. No other transport depends on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsUnavailable {
    /// There is no library.
    #[error("RDMA by verbs needs {file}, which cannot be loaded: install {package}")]
    Missing {
        /// The file looked for.
        file: &'static str,
        /// Where it is found.
        package: &'static str,
        /// What the loader said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The library lacks what it has had since rdma-core began.
    #[error("{file} has no {function}: RDMA by verbs needs rdma-core")]
    TooOld {
        /// The file.
        file: &'static str,
        /// What is not there.
        function: &'static str,
        /// What the loader said.
        source: Box<dyn std::error::Error + Send + Sync>,
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
    /// This build of the library has no such provider.
    #[error(
        "this program was built without RDMA by verbs: build it with the feature `verbs` of \
         dafs-client (or of dafs-dat)"
    )]
    NotBuilt,
}
