//! The fencing list of one object.
//!
//! Invariants:
//! - The identities are sorted, none is empty, and none occurs twice.
//! - Removing identities never empties a list that was not empty, because an empty list admits
//!   every session.

use dafs_ops::Fault;
use dafs_types::{FenceAccess, FenceUpdate, limits};

use crate::ConfigError;

/// A fence identity: the name that a session has given itself in `fence_id_string` (draft 4.4.4.1).
/// It is empty if the session has given itself no name. Cloning copies the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceId(Box<str>);

impl FenceId {
    /// Creates the fence identity of a session.
    ///
    /// # Errors
    /// INVAL if the text is longer than [`limits::FENCE_ID_BYTES_MAX`].
    pub fn new(text: &str) -> Result<Self, Fault> {
        if text.len() > limits::FENCE_ID_BYTES_MAX {
            return Err(Fault::Invalid);
        }
        Ok(Self(text.into()))
    }

    /// Returns the identity as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Limits on the fences of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceLimits {
    /// The maximum number of objects with a fencing list or with a pending change of the list. A
    /// list can be removed even beyond this limit.
    pub lists_max: u32,
    /// The maximum number of fence identities in one fencing list.
    pub ids_per_list_max: u32,
    /// The limit on the total number of bytes of the identities in all lists.
    pub bytes_max: u32,
    /// The maximum number of list changes that may be pending at one time.
    pub changes_max: u32,
}

impl Default for FenceLimits {
    fn default() -> Self {
        Self {
            lists_max: 4096,
            ids_per_list_max: limits::FENCE_IDS_MAX as u32,
            bytes_max: 4 << 20,
            changes_max: 16,
        }
    }
}

impl FenceLimits {
    /// Checks every limit.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first limit that is zero or greater than a message
    /// allows.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("fences.lists_max", self.lists_max, 1 << 20),
            ("fences.ids_per_list_max", self.ids_per_list_max, limits::FENCE_IDS_MAX as u32),
            ("fences.bytes_max", self.bytes_max, 1 << 30),
            // `leave` searches all pending changes, so their number must be small.
            ("fences.changes_max", self.changes_max, 256),
        ];
        match ranges.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            Some((name, ..)) => Err(ConfigError::OutOfRange(name)),
            None => Ok(()),
        }
    }
}

/// The fence identities that may access an object. An empty list admits every session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FenceList(Vec<FenceId>);

impl FenceList {
    /// Creates a list of these identities.
    ///
    /// # Errors
    /// INVAL if one of the identities is empty.
    pub(super) fn new(fence_ids: &[FenceId]) -> Result<Self, Fault> {
        let mut ids = fence_ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        match ids.first() {
            Some(first) if first.as_str().is_empty() => Err(Fault::Invalid),
            _ => Ok(Self(ids)),
        }
    }

    /// Returns the fence identities in sorted order.
    pub(super) fn ids(&self) -> &[FenceId] {
        &self.0
    }

    /// Returns true if the list admits every session.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the list admits a session with this fence identity.
    pub(super) fn allows(&self, fence_id: &FenceId) -> bool {
        self.is_open() || self.0.binary_search(fence_id).is_ok()
    }

    /// Returns the total number of bytes of the identities in the list.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|id| id.as_str().len()).sum()
    }

    /// Returns the list that results from a change, according to the table in `fences/mod.rs`.
    ///
    /// # Errors
    /// INVAL if the flags of the change contradict each other, or if no list can express the
    /// result.
    pub(super) fn after(
        &self,
        access: FenceAccess,
        update: FenceUpdate,
        fence_ids: &[FenceId],
    ) -> Result<Self, Fault> {
        let given = Self::new(fence_ids)?;
        match (access, update) {
            (FenceAccess::Allow, FenceUpdate::Overwrite) => Ok(given),
            (FenceAccess::Allow, FenceUpdate::Append) => Ok(self.with(given)),
            (FenceAccess::Deny, FenceUpdate::Append | FenceUpdate::Remove) => self.without(&given),
            (FenceAccess::Allow, FenceUpdate::Remove)
            | (FenceAccess::Deny, FenceUpdate::Overwrite) => Err(Fault::Invalid),
        }
    }

    fn with(&self, mut given: Self) -> Self {
        given.0.extend_from_slice(&self.0);
        given.0.sort_unstable();
        given.0.dedup();
        given
    }

    fn without(&self, given: &Self) -> Result<Self, Fault> {
        let absent = |id: &&FenceId| given.0.binary_search(id).is_err();
        let rest = Self(self.0.iter().filter(absent).cloned().collect());
        // Removing identities from an object without a list changes nothing.
        if rest.is_open() && !given.is_open() { Err(Fault::Invalid) } else { Ok(rest) }
    }
}

#[cfg(test)]
mod tests {
    use FenceAccess::{Allow, Deny};
    use FenceUpdate::{Append, Overwrite, Remove};

    use super::*;

    fn ids(text: &str) -> Vec<FenceId> {
        text.split_whitespace().map(|id| FenceId::new(id).unwrap()).collect()
    }

    fn after(list: &str, access: FenceAccess, update: FenceUpdate, given: &str) -> Option<String> {
        let list = FenceList::new(&ids(list)).unwrap();
        let after = list.after(access, update, &ids(given)).ok()?;
        Some(after.ids().iter().map(FenceId::as_str).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_six_kinds_of_change() {
        let rows = [
            ("", Allow, Overwrite, "b a b", Some("a b")),
            ("a b", Allow, Overwrite, "c", Some("c")),
            ("a b", Allow, Overwrite, "", Some("")),
            ("", Allow, Append, "a", Some("a")),
            ("b", Allow, Append, "a c b", Some("a b c")),
            ("b", Allow, Append, "", Some("b")),
            ("a b c", Deny, Remove, "b d", Some("a c")),
            ("a b c", Deny, Append, "b d", Some("a c")),
            ("a", Deny, Remove, "", Some("a")),
            ("", Deny, Remove, "", Some("")),
            // The result would admit no identity, or all but one. A list cannot express either.
            ("a", Deny, Remove, "a b", None),
            ("", Deny, Remove, "a", None),
            ("a", Allow, Remove, "a", None),
            ("a b", Deny, Overwrite, "a", None),
        ];
        for (list, access, update, given, expected) in rows {
            let found = after(list, access, update, given);
            assert_eq!(found.as_deref(), expected, "{list:?} {access:?} {update:?} {given:?}");
        }
    }

    #[test]
    fn a_session_without_identity_is_in_no_list() {
        let nobody = FenceId::default();
        assert!(FenceList::default().allows(&nobody));
        assert!(!FenceList::new(&ids("a")).unwrap().allows(&nobody));
        assert_eq!(FenceList::new(&[nobody]), Err(Fault::Invalid));
    }

    #[test]
    fn identities_are_as_long_as_a_session_may_give_them() {
        assert!(FenceId::new(&"x".repeat(limits::FENCE_ID_BYTES_MAX)).is_ok());
        assert_eq!(FenceId::new(&"x".repeat(limits::FENCE_ID_BYTES_MAX + 1)), Err(Fault::Invalid));
    }

    #[test]
    fn limits_are_ranges() {
        assert_eq!(FenceLimits::default().check(), Ok(()));
        let limits = FenceLimits { changes_max: 0, ..FenceLimits::default() };
        assert_eq!(limits.check(), Err(ConfigError::OutOfRange("fences.changes_max")));
        let limits = FenceLimits { ids_per_list_max: 257, ..FenceLimits::default() };
        assert_eq!(limits.check(), Err(ConfigError::OutOfRange("fences.ids_per_list_max")));
    }
}
