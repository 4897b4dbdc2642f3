//! Opens: share reservations, shared keys, delete disposition and last close (draft 4.4.2, 6.5.24,
//! 6.5.26, 6.5.33).
//!
//! Invariants:
//! - The counts of a file are the sums over its opens.
//! - No two opens of different owners conflict in their modes or keys.

mod share;
mod table;

pub(crate) use table::{ClientOpens, OpenTable};

use dafs_types::{DeleteDisposition, ShareAccess, ShareDeny, ShareKey, StateId};

/// The store's key of a file. It does not change while the file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// The arguments of OPEN, which is called after the name was resolved and the permission was
/// checked.
#[derive(Clone, Copy, Debug)]
pub struct OpenArguments<'a> {
    /// The file to open.
    pub file: FileKey,
    /// The name of the open's owner, at most [`dafs_types::limits::OWNER_BYTES_MAX`] bytes.
    pub owner: &'a [u8],
    /// The access that the open requests.
    pub access: ShareAccess,
    /// The access that the open denies to other owners.
    pub deny: ShareDeny,
    /// The shared key. If an open of the file has a key, every other open with a key must present
    /// the same key. `None` bypasses this check.
    pub key: Option<ShareKey>,
    /// The disposition, which says whether REMOVE of the file is refused while this open exists.
    pub disposition: DeleteDisposition,
    /// True if the file has no name (claim CREATE_UNLINKED).
    pub unlinked: bool,
    /// True if the client held this open before a server restart (claim PREVIOUS).
    pub is_reclaim: bool,
}

impl<'a> OpenArguments<'a> {
    /// Creates the arguments for an open of a file that has a name. The open restricts no other
    /// client.
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

/// The result of a granted open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The state id of the owner's open of this file.
    pub state_id: StateId,
    /// True if the file had no other open.
    pub first_of_file: bool,
    /// True if the owner already had the file open. Both opens are then one, which one CLOSE ends.
    pub reopened: bool,
}

/// An open that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The file that was open.
    pub file: FileKey,
    /// The state id of the open that has ended.
    pub state_id: StateId,
    /// True if the file has no open left.
    pub last_of_file: bool,
    /// True if the server must delete the file now, because it has no name and this was its last
    /// open.
    pub delete: bool,
}

/// The direction of an access to a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// A READ of the file.
    Read,
    /// A WRITE, an APPEND, or a SETATTR of the size.
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

/// The decision about a REMOVE of a file's name, or a RENAME of another file to this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoveDecision {
    /// The file is not open, so its name and data may be removed.
    Now,
    /// The name may be removed, but the data must be kept until the last close. The server must
    /// call `file_unlinked` after the last name is removed.
    KeepDataUntilLastClose,
}
