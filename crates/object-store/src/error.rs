//! The errors of the store, and their conversion to errors of `object_store`.
//!
//! Invariant: if an error comes from the client, the client's error is its source, so that a caller
//! can downcast the source and read its status.

use dafs_client::{ClientError, Status};
use object_store::path::Path;

/// The name of this store in errors of `object_store`.
pub(crate) const STORE: &str = "DAFS";

/// An error that the store itself detects. It is the source of an [`object_store::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A part of a path begins with the prefix that the store reserves for its temporary files.
    #[error("a path part must not begin with .dafs-object-store-, which names temporary files")]
    ReservedName,
    /// The path is empty: it names the root of the store, which is no object.
    #[error("the empty path names no object")]
    EmptyPath,
    /// The path leads to something other than a regular file.
    #[error("this is a directory, a symbolic link or a special file, and no object")]
    NotAnObject,
    /// The object is not the version that the caller requires.
    #[error("the object's e_tag is {found}, and not {wanted}")]
    Changed {
        /// The e_tag that the caller requires.
        wanted: String,
        /// The e_tag of the existing object.
        found: String,
    },
    /// The object to update does not exist.
    #[error("there is no object to update")]
    NothingToUpdate,
    /// The update does not name the e_tag of the version to replace.
    #[error("an update needs the e_tag of the version to replace")]
    NoTag,
    /// The caller named a version, but the store keeps only one version of each object.
    #[error("this store keeps no versions: name an e_tag instead")]
    NoVersions,
    /// Another program has truncated the file while it was read.
    #[error("the object became shorter while it was read")]
    Cut,
    /// The upload was completed before all its parts were written.
    #[error("{missing} bytes of the upload's parts were not written: wait for all parts first")]
    PartsMissing {
        /// The number of bytes that were not written.
        missing: u64,
    },
    /// The upload was used after it was completed or aborted, or after its session was lost.
    #[error("the upload is over")]
    UploadOver,
    /// Other clients changed the object during each attempt of this client.
    #[error("gave up after {attempts} attempts: other clients change this object all the time")]
    Contended {
        /// The number of attempts that were made.
        attempts: u32,
    },
    /// The driver thread of the connection has ended.
    #[error("the store's driver thread has ended")]
    Stopped,
    /// The open file was lost with its session.
    #[error("the file was closed when the session ended: ask again")]
    FileGone,
}

/// The reason why an operation on a driver thread failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Client(ClientError),
    /// The object does not exist.
    Missing(ClientError),
    /// The object exists already.
    Exists(ClientError),
    /// The object is visible to all clients, but may not be on stable storage.
    Visible(ClientError),
    /// The session that the open file belongs to has ended.
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
    /// Converts an error of an operation on an object that must exist.
    pub(crate) fn of_existing(error: ClientError) -> Self {
        match error.status() {
            // A path through something other than a directory leads to no object, and so does a
            // path that ends at a directory or a link.
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

    /// Converts the failure for an operation on a file that was opened before.
    pub(crate) fn of_open(self) -> Self {
        match self {
            Self::Client(error @ ClientError::SessionEnded { .. }) => Self::Ended(error),
            other => other,
        }
    }

    /// Converts the failure for an operation on an object that must exist.
    pub(crate) fn existing(self) -> Self {
        match self {
            Self::Client(error) => Self::of_existing(error),
            other => other,
        }
    }

    pub(crate) fn status(&self) -> Option<Status> {
        self.client_error().and_then(ClientError::status)
    }

    /// Converts the failure to an error of `object_store` for an operation on `path`.
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

/// Returns an error of `object_store` for which no specific variant exists.
pub(crate) fn generic(
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> object_store::Error {
    object_store::Error::Generic { store: STORE, source: source.into() }
}

/// Returns the error with the whole path. Errors of chains name only part of the path.
pub(crate) fn about(error: ClientError, path: &str) -> ClientError {
    match error {
        ClientError::Status { status, .. } => ClientError::Status { what: path.to_owned(), status },
        other => other,
    }
}
