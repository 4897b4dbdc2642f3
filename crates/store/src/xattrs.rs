//! Extended attributes of users: small values with names, beside the data of a file or directory.
//!
//! Invariant: names have no prefix here. A store that keeps the attributes in a file system adds
//! the prefix `user.`, so that no name reaches an attribute of the system.

use dafs_types::{Credentials, ObjectType};

use crate::attributes::Bits;
use crate::error::{Result, StoreError};

/// Part of the list of an object's extended attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrPage {
    /// The names, in the order of their cookies.
    pub names: Vec<Vec<u8>>,
    /// The cookie at which the list continues.
    pub cookie: u64,
    /// True if no names follow.
    pub is_end: bool,
}

/// The limits of one page of a list of extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrListRequest {
    /// The cookie at which the list continues; 0 starts it.
    pub cookie: u64,
    /// The maximum number of names.
    pub count_max: usize,
    /// The maximum number of bytes of all names. Each name counts as its length plus
    /// [`XATTR_NAME_EXTRA_BYTES`].
    pub name_bytes_max: usize,
}

impl XattrListRequest {
    /// Builds a page of names, each of which has a cookie. A cookie must depend on the name alone,
    /// so that a list can continue after other attributes were added or removed.
    ///
    /// # Errors
    /// `TooSmall` if not even one name fits.
    pub(crate) fn page(&self, names: impl Iterator<Item = (u64, Vec<u8>)>) -> Result<XattrPage> {
        let mut left: Vec<_> = names.filter(|(cookie, _)| *cookie > self.cookie).collect();
        left.sort_unstable();
        let mut page = XattrPage { names: Vec::new(), cookie: self.cookie, is_end: true };
        let mut room = self.name_bytes_max;
        for (cookie, name) in left {
            let bytes = name.len() + XATTR_NAME_EXTRA_BYTES;
            if page.names.len() >= self.count_max || bytes > room {
                page.is_end = false;
                break;
            }
            room -= bytes;
            page.cookie = cookie;
            page.names.push(name);
        }
        match page.names.is_empty() && !page.is_end {
            true => Err(StoreError::TooSmall),
            false => Ok(page),
        }
    }
}

/// Checks that a name can be the name of an extended attribute. Unlike the name of a file, it may
/// contain slashes.
pub(crate) fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(StoreError::Invalid);
    }
    if name.len() > XATTR_NAME_BYTES_MAX { Err(StoreError::NameTooLong) } else { Ok(()) }
}

/// Checks that an object may have extended attributes, and that the caller may change them as far
/// as its type says. Only the owner of a directory with the sticky bit may change those of the
/// directory, as for local users.
pub(crate) fn check_xattr_object(who: &Credentials, bits: Bits, changes: bool) -> Result<()> {
    if !matches!(bits.kind, ObjectType::Regular | ObjectType::Directory) {
        return Err(StoreError::NotSupported);
    }
    let is_sticky = bits.kind == ObjectType::Directory && bits.mode & 0o1000 != 0;
    let is_owner = who.is_superuser() || who.uid() == bits.uid;
    if changes && is_sticky && !is_owner { Err(StoreError::NotPermitted) } else { Ok(()) }
}

/// The maximum length in bytes of an attribute's name. Linux allows 255 with the prefix `user.`.
pub const XATTR_NAME_BYTES_MAX: usize = 250;
/// The maximum length in bytes of an attribute's value, as on Linux.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// The number of bytes by which a name counts more than its length in a list.
pub const XATTR_NAME_EXTRA_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_every_name_once() {
        let all: Vec<(u64, Vec<u8>)> =
            (1..40u64).map(|n| (n * 7 % 41 + 1, format!("name{n}").into_bytes())).collect();
        let (mut cookie, mut seen) = (0, Vec::new());
        loop {
            let request = XattrListRequest { cookie, count_max: 5, name_bytes_max: 50 };
            let page = request.page(all.iter().cloned()).unwrap();
            assert!(page.names.len() <= 3, "14 bytes each");
            seen.extend(page.names);
            cookie = page.cookie;
            if page.is_end {
                break;
            }
        }
        let mut expected: Vec<_> = all.iter().map(|(_, name)| name.clone()).collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
        let tiny = XattrListRequest { cookie: 0, count_max: 5, name_bytes_max: 9 };
        assert_eq!(tiny.page(all.into_iter()), Err(StoreError::TooSmall));
    }
}
