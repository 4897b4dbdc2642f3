//! The reasons why RDMA verbs are not available.

/// The reason why RDMA verbs are not available on this host. Other transports do not need them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsUnavailable {
    /// A library cannot be loaded.
    #[error("RDMA verbs need {file}, which cannot be loaded: install {package}")]
    Missing {
        /// The file name of the library.
        file: &'static str,
        /// The name of the package that contains the library.
        package: &'static str,
        /// The error of the loader.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A library lacks a function that every version of rdma-core has.
    #[error("{file} has no {function}: RDMA verbs need rdma-core")]
    TooOld {
        /// The file name of the library.
        file: &'static str,
        /// The name of the missing function.
        function: &'static str,
        /// The error of the loader.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel offers no RDMA device or connection manager.
    #[error(
        "this host has no usable RDMA device: load the device's driver and the module rdma_ucm; \
         `dafs doctor` lists the devices"
    )]
    NoDevice {
        /// The error that the system reported.
        source: std::io::Error,
    },
    /// This build of the library does not contain the provider `verbs`.
    #[error(
        "this program was built without RDMA verbs: build it with the feature `verbs` of \
         dafs-client (or of dafs-dat)"
    )]
    NotBuilt,
}
