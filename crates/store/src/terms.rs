//! The terms on which a client may use an export.
//!
//! Invariant: terms only restrict. A read-only export stays read-only under any terms.

use dafs_types::Credentials;

use crate::local::Squash;

/// The terms on which one or more clients may access an export: whether they see it, whether they
/// may change it, and with which identity they act.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExportTerms {
    /// True if the export is visible to the client.
    pub is_visible: bool,
    /// True if changes to the export are refused.
    pub read_only: bool,
    /// Selects the identities that are replaced by [`ExportTerms::anonymous`].
    pub squash: Squash,
    /// The identity that replaces the identities that `squash` selects.
    pub anonymous: Credentials,
}

impl ExportTerms {
    /// Returns terms that restrict nothing: every client keeps its identity.
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
