//! Other people's file servers and clients, to compare ours with: nfs-ganesha, and libnfs, its
//! client in user space.
//!
//! Invariant: nothing that ships needs this crate to do its work: benchmarks and tests start what
//! is here, find both programs at run time, and say what to install where there are none.
//!
//! ```no_run
//! use dafs_peers::{Ganesha, Request, flag};
//!
//! # fn main() -> Result<(), dafs_peers::PeerError> {
//! let server = Ganesha::start(std::path::Path::new("/srv/data"))?;
//! let mut nfs = server.mount()?;
//! let file = nfs.open("/file", flag::READ_WRITE | flag::CREATE, 0o644)?;
//! nfs.pwrite(file, 0, b"so much".to_vec())?;
//! // Or many at once: each is told by its ticket.
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
pub use nfs::{Answer, Attributes, Completion, FileId, Nfs, Range, Request, Ticket};

/// Why a peer cannot be had, or failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// A program or a library is not there, or the user may not start it.
    #[error("no nfs-ganesha to compare with: {what}; {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The server ended, or does not answer.
    #[error("nfs-ganesha is not ready after {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// How long it was waited for.
        seconds: u64,
        /// Its last words.
        log: String,
    },
    /// The directory cannot be served.
    #[error("nfs-ganesha cannot export {}: {why}", path.display())]
    Export {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A request failed.
    #[error("NFS: {what}: {said}")]
    Request {
        /// What was asked.
        what: &'static str,
        /// What libnfs says of it.
        said: String,
        /// The error's number, positive, as in `errno.h`.
        errno: i32,
    },
    /// A file's id that is of no open file.
    #[error("the file is not open")]
    NotOpen,
    /// A path or name with a NUL.
    #[error("a path contains a NUL")]
    Nul,
    /// A file or process of the host.
    #[error("{what}")]
    Host {
        /// What was done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl PeerError {
    /// Whether there is nothing to compare with on this host: a test skips, a benchmark goes
    /// on without.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Host { what: what.into(), source }
    }
}
