//! The names of blobs.
//!
//! Invariant: a name is one path component without special meaning on any file system: short ASCII
//! without a slash or a leading dot.

use std::fmt;
use std::sync::Arc;

/// The name of a blob: 1 to 64 characters of `a-z`, `0-9`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(Arc<str>);

impl BlobName {
    /// Creates a name. Returns `None` if the text is not a valid name.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let may = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = !name.is_empty() && name.len() <= LENGTH_MAX && name.bytes().all(may);
        is_name.then(|| Self(name.into()))
    }

    /// Creates a name from a prefix and a number. Such names sort in the order of their numbers.
    pub(crate) fn numbered(prefix: &str, number: u64) -> Self {
        Self(format!("{prefix}{number:016x}").into())
    }

    /// Returns the number that follows a prefix in this name. `None` if the name does not have the
    /// form that [`BlobName::numbered`] creates.
    pub(crate) fn number_behind(&self, prefix: &str) -> Option<u64> {
        let number = u64::from_str_radix(self.0.strip_prefix(prefix)?, 16).ok()?;
        (*self == Self::numbered(prefix, number)).then_some(number)
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The maximum length of a name in bytes, far below the limit of every file system.
const LENGTH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_plain_component() {
        for bad in ["", ".", "..", "a/b", "A", "a b", ".hidden", "ä", &"a".repeat(65)] {
            assert_eq!(BlobName::new(bad), None, "{bad}");
        }
        assert_eq!(BlobName::new("log-0").unwrap().as_str(), "log-0");
    }

    #[test]
    fn numbers_come_back_only_as_they_were_written() {
        let name = BlobName::numbered("log-", 0x2a);
        assert_eq!(name.number_behind("log-"), Some(0x2a));
        assert_eq!(name.number_behind("undo-"), None);
        assert_eq!(BlobName::new("log-2a").unwrap().number_behind("log-"), None);
    }
}
