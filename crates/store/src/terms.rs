//! The terms on which a client may use an export.
//!
//! Invariant: terms only restrict. An export that refuses all changes refuses them on any terms.

use dafs_types::Credentials;

use crate::local::Squash;

/// What a client, or many with the same terms, may do in an export, and with which identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExportTerms {
    /// True if the export is visible to them.
    pub is_visible: bool,
    /// True if changes are refused.
    pub read_only: bool,
    /// Which identities are replaced by [`ExportTerms::anonymous`].
    pub squash: Squash,
    /// The identity that replaces squashed ones.
    pub anonymous: Credentials,
}

impl ExportTerms {
    /// Terms that restrict nothing: every client keeps its identity.
    #[must_use]
    pub fn open() -> Self {
        Self {
            is_visible: true,
            read_only: false,
            squash: Squash::Nobody,
            anonymous: Credentials::nobody(),
        }
    }
}
