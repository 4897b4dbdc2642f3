//! Opens: share reservations, shared keys, delete disposition, last close
//! (draft 4.4.2, 6.5.24, 6.5.26, 6.5.33).
//!
//! Invariant: the counts of a file are the sums over its opens, and no two opens of
//! different owners ever stand against each other's deny mode or key.

mod share;
mod table;

pub(crate) use table::{ClientOpens, OpenTable};

use dafs_types::{DeleteDisposition, ShareAccess, ShareDeny, ShareKey, StateId};

/// The store's number for a file, stable while the file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// What OPEN asks for, once the name is resolved and permission is checked.
#[derive(Clone, Copy, Debug)]
pub struct OpenArguments<'a> {
    /// The file.
    pub file: FileKey,
    /// Lock owner, at most [`dafs_types::limits::OWNER_BYTES_MAX`] bytes.
    pub owner: &'a [u8],
    /// What the open will do.
    pub access: ShareAccess,
    /// What others may not do.
    pub deny: ShareDeny,
    /// Key that all keyed opens of the file must show; `None` bypasses the check.
    pub key: Option<ShareKey>,
    /// Whether REMOVE is refused while this open lasts.
    pub disposition: DeleteDisposition,
    /// Whether the file has no name (claim CREATE_UNLINKED).
    pub unlinked: bool,
    /// Held before a server restart (claim PREVIOUS).
    pub is_reclaim: bool,
}

impl<'a> OpenArguments<'a> {
    /// An open that keeps nobody from anything, of a file that has a name.
    #[must_use]
    pub fn plain(file: FileKey, owner: &'a [u8], access: ShareAccess) -> Self {
        Self {
            file,
            owner,
            access,
            deny: ShareDeny::None,
            key: None,
            disposition: DeleteDisposition::DontCare,
            unlinked: false,
            is_reclaim: false,
        }
    }
}

/// A granted open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Names this owner's open of this file.
    pub state_id: StateId,
    /// No other open of the file existed.
    pub first_of_file: bool,
    /// The owner had the file open already; one CLOSE ends both.
    pub reopened: bool,
}

/// An open that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The file.
    pub file: FileKey,
    /// The state id that ended.
    pub state_id: StateId,
    /// No open of the file is left.
    pub last_of_file: bool,
    /// The file has no name and this was its last open: delete it now.
    pub delete: bool,
}

/// What a request does to a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// READ.
    Read,
    /// WRITE, APPEND, SETATTR of the size.
    Write,
}

impl IoKind {
    const fn access_bit(self) -> u8 {
        match self {
            Self::Read => share::READ,
            Self::Write => share::WRITE,
        }
    }
}

/// What REMOVE (or a RENAME over the file) may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoveDecision {
    /// Nobody has the file open: name and data may go.
    Now,
    /// The name may go; the data stay until the last close. Once the last name is
    /// gone, tell the filer with `file_unlinked`.
    KeepDataUntilLastClose,
}
