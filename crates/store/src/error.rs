//! The errors of stores.
//!
//! Invariant: every error of the operating system maps to exactly one [`StoreError`], and each
//! [`StoreError`] to exactly one protocol status. The code that maps a [`StoreError`] lists every
//! variant.

use dafs_ops::Fault;
use dafs_types::Status;
use rustix::io::Errno;

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The reason why a store refused a call or failed. The type is small and `Copy`, because write
/// errors are kept with the file until they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// Only the owner or the superuser may perform this operation.
    #[error("operation not permitted")]
    NotPermitted,
    /// The name does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The device failed.
    #[error("input/output error")]
    Io,
    /// The device does not exist.
    #[error("no such device or address")]
    NoDevice,
    /// The permission bits or the access control list forbid the access.
    #[error("permission denied")]
    Access,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// The objects are on different file systems or in different exports.
    #[error("not on the same file system")]
    CrossDevice,
    /// The object must be a directory but is not.
    #[error("not a directory")]
    NotDirectory,
    /// The object must not be a directory but is one.
    #[error("is a directory")]
    IsDirectory,
    /// An argument is invalid.
    #[error("invalid argument")]
    Invalid,
    /// The range exceeds the largest file offset or the caller's file size limit.
    #[error("file too large")]
    TooBig,
    /// The file system has no free space or no free inode.
    #[error("no space left")]
    NoSpace,
    /// The export or its file system is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The object has as many links as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The name has more than 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller's quota is used up.
    #[error("quota exceeded")]
    Quota,
    /// The handle was valid, but its object was removed or has left the export.
    #[error("stale file handle")]
    Stale,
    /// This server did not issue the handle, which is malformed or forged.
    #[error("malformed or forged file handle")]
    BadHandle,
    /// The directory cookie or its verifier belongs to another directory listing.
    #[error("directory cookie no longer valid")]
    BadCookie,
    /// The store or its file system does not support the operation.
    #[error("not supported")]
    NotSupported,
    /// This type of object cannot be created or opened here.
    #[error("object type not supported here")]
    BadType,
    /// The operation is not possible now. The caller should try again later.
    #[error("busy, try later")]
    Busy,
    /// The search for the object was incomplete, because some directories could not be read. The
    /// caller should try again later.
    #[error("the search for it could not read all directories, try later")]
    Unseen,
    /// There are no free descriptors, or there is no free memory.
    #[error("server out of resources")]
    Resource,
    /// The object is a symbolic link. The server does not follow links; only clients do.
    #[error("is a symbolic link")]
    IsSymlink,
    /// The buffer has no room for even one directory entry.
    #[error("buffer too small for the reply")]
    TooSmall,
    /// The object has no extended attribute with this name.
    #[error("no such extended attribute")]
    NoXattr,
    /// The value of an extended attribute is too long for the file system.
    #[error("extended attribute too big")]
    XattrTooBig,
    /// An internal error of the server: a state that should be impossible.
    #[error("server fault")]
    Fault,
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotPermitted => Self::NotPermitted,
            StoreError::NotFound => Self::NotFound,
            StoreError::Io => Self::Io,
            StoreError::NoDevice => Self::NoDevice,
            StoreError::Access => Self::Access,
            StoreError::Exists => Self::Exists,
            StoreError::CrossDevice => Self::CrossDevice,
            StoreError::NotDirectory => Self::NotDirectory,
            StoreError::IsDirectory => Self::IsDirectory,
            StoreError::Invalid => Self::Invalid,
            StoreError::TooBig => Self::TooBig,
            StoreError::NoSpace => Self::NoSpace,
            StoreError::ReadOnly => Self::ReadOnly,
            StoreError::TooManyLinks => Self::TooManyLinks,
            StoreError::NameTooLong => Self::NameTooLong,
            StoreError::NotEmpty => Self::NotEmpty,
            StoreError::Quota => Self::Quota,
            StoreError::Stale => Self::Stale,
            StoreError::BadHandle => Self::BadHandle,
            StoreError::BadCookie => Self::BadCookie,
            StoreError::NotSupported => Self::NotSupported,
            StoreError::BadType => Self::BadType,
            StoreError::Busy | StoreError::Unseen => Self::Busy,
            StoreError::Resource => Self::Resource,
            StoreError::IsSymlink => Self::IsSymlink,
            StoreError::TooSmall => Self::TooSmall,
            StoreError::NoXattr => Self::NoXattr,
            StoreError::XattrTooBig => Self::XattrTooBig,
            StoreError::Fault => Self::Broken,
        }
    }
}

/// Converts the error to a protocol status, for code that reports DAFS statuses.
impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        Fault::from(error).into()
    }
}

impl From<Errno> for StoreError {
    /// Converts an error number of the kernel. Error numbers that no call of a store can return
    /// become I/O errors.
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::NotPermitted,
            Errno::NOENT => Self::NotFound,
            Errno::NXIO | Errno::NODEV => Self::NoDevice,
            Errno::ACCESS => Self::Access,
            Errno::EXIST => Self::Exists,
            Errno::XDEV => Self::CrossDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::INVAL => Self::Invalid,
            Errno::FBIG | Errno::OVERFLOW => Self::TooBig,
            Errno::NOSPC => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::Quota,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NotSupported,
            Errno::BUSY | Errno::TXTBSY | Errno::AGAIN => Self::Busy,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Resource,
            Errno::LOOP => Self::IsSymlink,
            _ => Self::Io,
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(number), _) => Errno::from_raw_os_error(number).into(),
            (None, std::io::ErrorKind::WriteZero) => Self::NoSpace,
            (None, _) => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_keep_their_meaning_up_to_the_status() {
        for (errno, status) in [
            (Errno::NOSPC, Status::NoSpc),
            (Errno::NOTEMPTY, Status::NotEmpty),
            (Errno::STALE, Status::Stale),
            (Errno::DQUOT, Status::DQuot),
            (Errno::BADMSG, Status::Io),
            (Errno::IO, Status::Io),
            (Errno::NXIO, Status::Nxio),
            (Errno::NODEV, Status::Nxio),
            (Errno::MLINK, Status::MLink),
            (Errno::ROFS, Status::RoFs),
            (Errno::XDEV, Status::XDev),
        ] {
            assert_eq!(Status::from(StoreError::from(errno)), status);
            let io = std::io::Error::from(errno);
            assert_eq!(Status::from(StoreError::from(io)), status);
        }
        assert_eq!(Status::from(StoreError::Fault), Status::ServerFault);
    }
}
