//! The options for opening a file.

use dafs_types::{DeleteDisposition, ShareAccess, ShareDeny, ShareKey};

use crate::setters::setters;

/// The options for opening a file.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The access requested by this open.
    pub access: ShareAccess,
    /// The access that other opens are denied until this open is closed.
    pub deny: ShareDeny,
    /// True to create the file if it does not exist.
    pub create: bool,
    /// True to create the file, and to fail if it exists.
    pub create_new: bool,
    /// True to truncate the file to zero bytes.
    pub truncate: bool,
    /// The mode bits of a new file.
    pub mode: u32,
    /// The user and group id of a new file; `None` for those of the session's user. Only the
    /// superuser may choose another user; other users may only choose one of their own groups.
    pub owner: Option<(u32, u32)>,
    /// The share key of this open: other opens of the file must present the same key.
    pub key: Option<ShareKey>,
    /// Controls whether the file's name may be removed until this open is closed.
    pub delete_disposition: DeleteDisposition,
}

setters! { OpenOptions:
    access: ShareAccess,
    deny: ShareDeny,
    create: bool,
    create_new: bool,
    truncate: bool,
    mode: u32,
    owner: Option<(u32, u32)>,
    key: Option<ShareKey>,
    delete_disposition: DeleteDisposition,
}

impl OpenOptions {
    /// Creates options for reading an existing file.
    #[must_use]
    pub fn read() -> Self {
        Self {
            access: ShareAccess::Read,
            deny: ShareDeny::None,
            create: false,
            create_new: false,
            truncate: false,
            mode: 0o644,
            owner: None,
            key: None,
            delete_disposition: DeleteDisposition::DontCare,
        }
    }

    /// Creates options for reading and writing a file, which is created if it does not exist.
    #[must_use]
    pub fn write() -> Self {
        Self { access: ShareAccess::Both, create: true, ..Self::read() }
    }

    pub(crate) fn creates(&self) -> bool {
        self.create || self.create_new
    }

    /// Returns true if the size must be set by a separate request after the open, because an OPEN
    /// that does not create a file carries no attributes.
    pub(crate) fn truncates_later(&self) -> bool {
        self.truncate && !self.creates()
    }
}
