//! What can go wrong, and how callers of `object_store` are told.
//!
//! Invariant: the source of an error is the client's error where there is one, so that a caller can
//! downcast it and ask for its status.

use dafs_client::{ClientError, Status};
use object_store::path::Path;

/// The name of this store in errors of `object_store`.
pub(crate) const STORE: &str = "DAFS";

/// Why this store refused something by itself. It is the source of an [`object_store::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A part of a path begins with the prefix that this store keeps for its temporary files.
    #[error("a path part must not begin with .dafs-object-store-, which names temporary files")]
    ReservedName,
    /// The empty path, which names the root of the store and no object.
    #[error("the empty path names no object")]
    EmptyPath,
    /// The path leads to something that is no regular file.
    #[error("this is a directory, a symbolic link or a special file, and no object")]
    NotAnObject,
    /// The object is not the version that the caller named.
    #[error("the object's e_tag is {found}, and not {wanted}")]
    Changed {
        /// The e_tag that the caller named.
        wanted: String,
        /// The e_tag that the object has.
        found: String,
    },
    /// The object that a caller wants to update does not exist.
    #[error("there is no object to update")]
    NothingToUpdate,
    /// An update must name the e_tag of the version that it replaces.
    #[error("an update needs the e_tag of the version to replace")]
    NoTag,
    /// The store keeps one version of each object.
    #[error("this store keeps no versions: name an e_tag instead")]
    NoVersions,
    /// Another program has cut the file while it was read.
    #[error("the object became shorter while it was read")]
    Cut,
    /// An upload was completed before all its parts were written.
    #[error("{missing} bytes of the upload's parts were not written: wait for all parts first")]
    PartsMissing {
        /// Bytes that are missing.
        missing: u64,
    },
    /// An upload was used after it was completed or aborted, or after the session was lost.
    #[error("the upload is over")]
    UploadOver,
    /// Other clients changed the same object each time that this one tried.
    #[error("gave up after {attempts} attempts: other clients change this object all the time")]
    Contended {
        /// Attempts that were made.
        attempts: u32,
    },
    /// The driver thread has ended.
    #[error("the store's driver thread has ended")]
    Stopped,
    /// An open file that the store has lost with its session.
    #[error("the file was closed when the session ended: ask again")]
    FileGone,
}

/// Why an operation on a driver thread failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Client(ClientError),
    /// There is no such object.
    Missing(ClientError),
    /// There is one already.
    Exists(ClientError),
    /// The object is there for all to see, but is perhaps not on stable storage.
    Visible(ClientError),
    /// The session of an open file has ended.
    Ended(ClientError),
    Precondition(StoreError),
    Refused(StoreError),
    Store(object_store::Error),
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<object_store::Error> for Fault {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// What a failure means to an operation on an object that must exist.
    pub(crate) fn of_existing(error: ClientError) -> Self {
        match error.status() {
            // A path that leads over something else than directories leads to no object. Neither
            // does one that ends at a directory or a link.
            Some(
                Status::NoEnt
                | Status::NotDir
                | Status::IsDir
                | Status::Symlink
                | Status::BadType
                | Status::XDev,
            ) => Self::Missing(error),
            _ => Self::Client(error),
        }
    }

    pub(crate) fn client_error(&self) -> Option<&ClientError> {
        match self {
            Self::Client(error)
            | Self::Missing(error)
            | Self::Exists(error)
            | Self::Visible(error) => Some(error),
            Self::Ended(_) | Self::Precondition(_) | Self::Refused(_) | Self::Store(_) => None,
        }
    }

    /// The same failure of an operation on a file that was opened before.
    pub(crate) fn of_open(self) -> Self {
        match self {
            Self::Client(error @ ClientError::SessionEnded { .. }) => Self::Ended(error),
            other => other,
        }
    }

    /// The same failure of an operation on an object that must exist.
    pub(crate) fn existing(self) -> Self {
        match self {
            Self::Client(error) => Self::of_existing(error),
            other => other,
        }
    }

    pub(crate) fn status(&self) -> Option<Status> {
        self.client_error().and_then(ClientError::status)
    }

    /// The error for a caller who asked for something at `path`.
    pub(crate) fn at(self, path: &Path) -> object_store::Error {
        let path = path.to_string();
        match self {
            Self::Missing(error) => object_store::Error::NotFound { path, source: Box::new(error) },
            Self::Exists(error) => {
                object_store::Error::AlreadyExists { path, source: Box::new(error) }
            }
            Self::Precondition(error) => {
                object_store::Error::Precondition { path, source: Box::new(error) }
            }
            Self::Visible(error) | Self::Ended(error) => generic(error),
            Self::Refused(error) => generic(error),
            Self::Store(error) => error,
            Self::Client(error) => {
                let is_identity = matches!(
                    error,
                    ClientError::Login { .. }
                        | ClientError::Kerberos { .. }
                        | ClientError::NoLogin { .. }
                );
                match error.status() {
                    _ if is_identity => {
                        object_store::Error::Unauthenticated { path, source: Box::new(error) }
                    }
                    Some(Status::NotAuthenticated | Status::NotAuthorized | Status::NoCreds) => {
                        object_store::Error::Unauthenticated { path, source: Box::new(error) }
                    }
                    Some(Status::Access | Status::Perm | Status::RoFs) => {
                        object_store::Error::PermissionDenied { path, source: Box::new(error) }
                    }
                    Some(Status::NotSupp) => {
                        object_store::Error::NotSupported { source: Box::new(error) }
                    }
                    _ => generic(error),
                }
            }
        }
    }
}

/// An error that fits no variant of `object_store`'s.
pub(crate) fn generic(
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> object_store::Error {
    object_store::Error::Generic { store: STORE, source: source.into() }
}

/// The same error about the whole path. Members of chains name a part of it.
pub(crate) fn about(error: ClientError, path: &str) -> ClientError {
    match error {
        ClientError::Status { status, .. } => ClientError::Status { what: path.to_owned(), status },
        other => other,
    }
}
