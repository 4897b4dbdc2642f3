//! Access control lists of local file systems: POSIX draft lists, and the access that they give.
//!
//! Invariant: the access equals that of the "access check algorithm" in acl(5), which the kernel
//! implements. So a client has the same access through the server that its user has on the host.
//! There is one exception. If the mask of a list is empty, Linux ignores the list and gives the
//! named users the access of other users. This code gives the named users no access, as the list
//! says.

mod map;

use dafs_types::Credentials;

pub use map::{from_entries, to_entries};

/// A POSIX access control list. It holds the permission bits (read 4, write 2, execute 1) of the
/// owner, the group and others, and of named users and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixAcl {
    /// The permission bits of the owner.
    pub owner: u32,
    /// The named users, each by user id and permission bits.
    pub users: Vec<(u32, u32)>,
    /// The permission bits of the object's group.
    pub group: u32,
    /// The named groups, each by group id and permission bits.
    pub groups: Vec<(u32, u32)>,
    /// The mask: named users and all groups have at most these permission bits. Present if the list
    /// names a user or group.
    pub mask: Option<u32>,
    /// The permission bits of all other users.
    pub other: u32,
}

impl PosixAcl {
    /// Returns the list that is equivalent to the nine permission bits of a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        Self {
            owner: mode >> 6 & 7,
            users: Vec::new(),
            group: mode >> 3 & 7,
            groups: Vec::new(),
            mask: None,
            other: mode & 7,
        }
    }

    /// Returns true if the nine permission bits of a mode can express the whole list.
    pub(crate) fn is_mode(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// Returns the nine permission bits of the mode that corresponds to the list.
    pub(crate) fn mode(&self) -> u32 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// Applies a change of mode. If the list has a mask, the group bits of the mode replace the
    /// mask; otherwise they replace the group's bits.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        self.owner = mode >> 6 & 7;
        *self.mask.as_mut().unwrap_or(&mut self.group) = mode >> 3 & 7;
        self.other = mode & 7;
    }

    /// Returns the access list of a new object that is created with this mode in a directory whose
    /// default list is `self`.
    pub(crate) fn inherited(&self, mode: u32) -> Self {
        let mut list = self.clone();
        list.set_mode(self.mode() & mode);
        list
    }

    /// Returns these permission bits of an entry, limited by the mask.
    pub(crate) fn masked(&self, bits: u32) -> u32 {
        bits & self.mask.unwrap_or(7)
    }

    /// Returns true if a caller other than the superuser has all `wanted` bits on an object of this
    /// owner and group. A single entry must have all these bits, because the bits of two groups do
    /// not add up.
    pub(crate) fn allows(&self, who: &Credentials, uid: u32, gid: u32, wanted: u32) -> bool {
        let has = |bits: u32| bits & wanted == wanted;
        if who.uid() == uid {
            return has(self.owner);
        }
        if let Some((_, bits)) = self.users.iter().find(|(user, _)| *user == who.uid()) {
            return has(self.masked(*bits));
        }
        let own = who.in_group(gid).then_some(self.group);
        let named = self.groups.iter().filter(|(group, _)| who.in_group(*group));
        let mut found = own.into_iter().chain(named.map(|(_, bits)| *bits)).peekable();
        if found.peek().is_none() {
            return has(self.other);
        }
        found.any(|bits| has(self.masked(bits)))
    }

    /// Decodes the value of `system.posix_acl_access`; `None` if the value is malformed.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        let mut list = Self::of_mode(0);
        for [tag0, tag1, bits0, bits1, id @ ..] in entries {
            let bits = u32::from(u16::from_le_bytes([*bits0, *bits1])) & 7;
            let id = u32::from_le_bytes(*id);
            match u16::from_le_bytes([*tag0, *tag1]) {
                TAG_OWNER => list.owner = bits,
                TAG_USER => list.users.push((id, bits)),
                TAG_GROUP => list.group = bits,
                TAG_NAMED_GROUP => list.groups.push((id, bits)),
                TAG_MASK => list.mask = Some(bits),
                TAG_OTHER => list.other = bits,
                _ => return None,
            }
        }
        rest.is_empty().then_some(list)
    }

    /// Encodes the list as a value of `system.posix_acl_access`, with entries in order of tag and
    /// id.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, bits: u32, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend((bits as u16).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        let sorted = |list: &[(u32, u32)]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        put(TAG_OWNER, self.owner, NO_ID);
        sorted(&self.users).into_iter().for_each(|(id, bits)| put(TAG_USER, bits, id));
        put(TAG_GROUP, self.group, NO_ID);
        sorted(&self.groups).into_iter().for_each(|(id, bits)| put(TAG_NAMED_GROUP, bits, id));
        if let Some(mask) = self.mask {
            put(TAG_MASK, mask, NO_ID);
        }
        put(TAG_OTHER, self.other, NO_ID);
        bytes
    }
}

/// The access control lists of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// The list for access to the object.
    pub access: PosixAcl,
    /// The list for new objects in the directory; directories only.
    pub default: Option<PosixAcl>,
}

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const NO_ID: u32 = u32::MAX;
const TAG_OWNER: u16 = 1;
const TAG_USER: u16 = 2;
const TAG_GROUP: u16 = 4;
const TAG_NAMED_GROUP: u16 = 8;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Credentials {
        Credentials::new(uid, groups[0], &groups[1..]).unwrap()
    }

    fn list() -> PosixAcl {
        PosixAcl {
            owner: 6,
            users: vec![(7, 6), (5, 0)],
            group: 4,
            groups: vec![(50, 2), (40, 4)],
            mask: Some(6),
            other: 5,
        }
    }

    #[test]
    fn the_kernels_form_comes_back_in_its_order() {
        let bytes = list().encode();
        let again = PosixAcl::parse(&bytes).unwrap();
        assert_eq!(again.encode(), bytes);
        assert_eq!((again.users, again.groups), (vec![(5, 0), (7, 6)], vec![(40, 4), (50, 2)]));
        for cut in 0..bytes.len() {
            let whole = cut >= 4 && (cut - 4) % ENTRY_BYTES == 0;
            assert_eq!(PosixAcl::parse(&bytes[..cut]).is_some(), whole, "{cut}");
        }
    }

    #[test]
    fn the_first_class_that_fits_decides_and_groups_do_not_add_up() {
        let list = list();
        let allows = |uid, groups: &[u32], wanted| list.allows(&user(uid, groups), 1, 10, wanted);
        assert!(allows(1, &[99], 6) && !allows(1, &[40], 1));
        assert!(!allows(5, &[10, 40, 50], 4), "a named user has no groups");
        assert!(allows(7, &[99], 6) && !allows(7, &[99], 1), "nor the rights of others");
        assert!(allows(8, &[10], 4) && !allows(8, &[10], 1));
        assert!(allows(8, &[40, 50], 4) && allows(8, &[40, 50], 2) && !allows(8, &[40, 50], 6));
        assert!(allows(8, &[99], 5) && !allows(8, &[99], 2));
    }

    #[test]
    fn a_change_of_mode_moves_the_mask() {
        let mut list = list();
        assert_eq!(list.mode(), 0o665);
        assert_eq!(list.inherited(0o640).mode(), 0o640);
        assert_eq!(list.inherited(0o646).mode(), 0o644);
        list.set_mode(0o740);
        assert_eq!((list.group, list.mask, list.mode()), (4, Some(4), 0o740));
        assert!(list.allows(&user(7, &[99]), 1, 10, 4));
        assert!(!list.allows(&user(7, &[99]), 1, 10, 2), "the mask binds named users");
    }
}
