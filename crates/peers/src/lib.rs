//! Other file servers and clients, for comparison: nfs-ganesha, a file server, and libnfs, an NFS
//! client in user space.
//!
//! Invariant: no shipped program needs this crate to do its work. Benchmarks and tests look
//! for nfs-ganesha and libnfs at run time, and report what to install if one is missing.
//!
//! ```no_run
//! use dafs_peers::{Ganesha, Request, flag};
//!
//! # fn main() -> Result<(), dafs_peers::PeerError> {
//! let server = Ganesha::start(std::path::Path::new("/srv/data"))?;
//! let mut nfs = server.mount()?;
//! let file = nfs.open("/file", flag::READ_WRITE | flag::CREATE, 0o644)?;
//! nfs.pwrite(file, 0, b"so much".to_vec())?;
//! // Several requests can be in flight; each completion carries its ticket.
//! let ticket = nfs.submit(Request::Read { file, offset: 0, buffer: vec![0; 7] })?;
//! let completion = nfs.wait()?;
//! assert_eq!(completion.ticket, ticket);
//! # Ok(())
//! # }
//! ```

mod calls;
mod ganesha;
mod library;
mod nfs;

use std::path::PathBuf;

pub use ganesha::{Entrance, Ganesha};
pub use library::flag;
pub use nfs::{Attributes, Completion, FileId, Nfs, Range, Reply, Request, Ticket};

/// The reason why a peer is missing or failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// A program or a library is missing, or the user may not start it.
    #[error("no nfs-ganesha to compare with: {what}; {remedy}")]
    Missing {
        /// The missing program or library.
        what: String,
        /// The action with which the user can make it available.
        remedy: &'static str,
    },
    /// The server ended, or does not respond.
    #[error("nfs-ganesha is not ready after {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// The number of seconds for which the caller waited.
        seconds: u64,
        /// The last lines of the server's log.
        log: String,
    },
    /// The directory cannot be exported.
    #[error("nfs-ganesha cannot export {}: {why}", path.display())]
    Export {
        /// The path of the directory.
        path: PathBuf,
        /// The reason, as text.
        why: &'static str,
    },
    /// A request failed.
    #[error("NFS: {what}: {message}")]
    Request {
        /// The kind of request.
        what: &'static str,
        /// The error text of libnfs.
        message: String,
        /// The error number, positive, as in `errno.h`.
        errno: i32,
    },
    /// A file id that names no open file.
    #[error("the file is not open")]
    NotOpen,
    /// A path or name that contains a NUL.
    #[error("a path contains a NUL")]
    Nul,
    /// A file or process operation on the host failed.
    #[error("{what}")]
    Host {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl PeerError {
    /// Returns true if this host lacks the peer. A test is then skipped, and a benchmark runs
    /// without the peer.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Host { what: what.into(), source }
    }
}
