//! Names of directory entries.
//!
//! Invariant: a name that passed [`check`] is a single component: it cannot lead to a parent, name
//! the directory itself, or be cut short by a terminator.

use dafs_types::limits::NAME_BYTES_MAX;

use crate::error::{Result, StoreError};

/// Checks that a name is a single component.
///
/// # Errors
/// `Invalid` for an empty name, `.`, `..` and names with `/` or NUL; `NameTooLong` beyond 255
/// bytes.
pub fn check(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(StoreError::NameTooLong);
    }
    let reserved = name.is_empty() || name == b"." || name == b"..";
    if reserved || name.iter().any(|byte| *byte == b'/' || *byte == 0) {
        return Err(StoreError::Invalid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_climb_or_cut_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"../x", b"a\0b"] {
            assert_eq!(check(name), Err(StoreError::Invalid), "{name:?}");
        }
        assert_eq!(check(&[b'a'; 256]), Err(StoreError::NameTooLong));
        assert_eq!(check(&[b'a'; 255]), Ok(()));
        assert_eq!(check(b"..."), Ok(()));
    }
}
