//! On which terms somebody is let into an export.
//!
//! Invariant: terms take away and never give: an export that refuses changes to everybody
//! refuses them on any terms.

use dafs_types::Credentials;

use crate::local::Squash;

/// What one client, or many alike, may do in an export, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExportTerms {
    /// Whether it is there for them at all.
    pub is_visible: bool,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Who counts as [`ExportTerms::anonymous`].
    pub squash: Squash,
    /// Who they are then.
    pub anonymous: Credentials,
}

impl ExportTerms {
    /// Everybody may come as whom they are.
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
