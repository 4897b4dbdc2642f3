//! Authentication types, and the identity that permission checks use.

/// The authentication types of the draft (3.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AuthType {
    /// No proof of identity.
    None = 0,
    /// A user name and a password in clear text.
    Text = 1,
    /// Tokens of GSS-API.
    Gss = 2,
    /// The default of the server.
    Default = 3,
}

impl AuthType {
    /// Returns the type that has this number in messages. `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Text),
            2 => Some(Self::Gss),
            3 => Some(Self::Default),
            _ => None,
        }
    }
}

/// A POSIX identity: a user id, a primary group and supplementary groups.
///
/// None of the ids is [`NO_ID`]. System calls interpret that value as "leave unchanged", so an
/// object that is given to such a user would still belong to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    uid: u32,
    gid: u32,
    /// The supplementary groups, sorted and without duplicates.
    groups: Box<[u32]>,
}

impl Credentials {
    /// Creates an identity from a user, a primary group and supplementary groups in any order.
    ///
    /// # Errors
    /// [`NoSuchId`] if one of the ids is [`NO_ID`].
    pub fn new(uid: u32, gid: u32, groups: impl Into<Vec<u32>>) -> Result<Self, NoSuchId> {
        let mut groups = groups.into();
        if uid == NO_ID || gid == NO_ID || groups.contains(&NO_ID) {
            return Err(NoSuchId);
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(Self { uid, gid, groups: groups.into() })
    }

    /// Creates an identity without supplementary groups.
    ///
    /// # Errors
    /// [`NoSuchId`] if one of the ids is [`NO_ID`].
    pub fn plain(uid: u32, gid: u32) -> Result<Self, NoSuchId> {
        Self::new(uid, gid, Vec::new())
    }

    /// Returns the identity of an unauthenticated user (65534:65534).
    #[must_use]
    pub fn nobody() -> Self {
        Self { uid: 65_534, gid: 65_534, groups: Box::default() }
    }

    /// Returns the identity of user 0, who passes every permission check.
    #[must_use]
    pub fn superuser() -> Self {
        Self { uid: 0, gid: 0, groups: Box::default() }
    }

    /// Returns the user id.
    #[inline]
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the id of the primary group.
    #[inline]
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the ids of the supplementary groups, sorted.
    #[inline]
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Returns true if this is user 0.
    #[must_use]
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// Returns true if `gid` is the primary or a supplementary group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }

    /// Returns a copy of this identity in which the primary group of `other` takes the place of the
    /// group `gid`, wherever that group occurs.
    #[must_use]
    pub fn with_group_of(&self, gid: u32, other: &Self) -> Self {
        let mapped = |group: u32| if group == gid { other.gid } else { group };
        let mut groups: Vec<u32> = self.groups.iter().map(|group| mapped(*group)).collect();
        groups.sort_unstable();
        groups.dedup();
        Self { uid: self.uid, gid: mapped(self.gid), groups: groups.into() }
    }
}

/// A value that is not the id of any user or group, because system calls interpret it as "leave
/// unchanged".
pub const NO_ID: u32 = u32::MAX;

/// The error that [`NO_ID`] was given as a user or group id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{NO_ID} (-1) is not a valid user or group id; use another number")]
pub struct NoSuchId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_stands_for_none_is_no_identity() {
        for (uid, gid, groups) in [(NO_ID, 1, vec![]), (1, NO_ID, vec![]), (1, 1, vec![2, NO_ID])] {
            assert_eq!(Credentials::new(uid, gid, groups), Err(NoSuchId));
        }
        let who = Credentials::new(1, 2, [9, 7, 9]).unwrap();
        assert_eq!((who.uid(), who.gid(), who.groups()), (1, 2, &[7, 9][..]));
        assert!(who.in_group(7) && who.in_group(2) && !who.in_group(1));
    }

    #[test]
    fn a_group_gives_way_to_anothers() {
        let who = Credentials::new(5, 0, [0, 7]).unwrap();
        let mapped = who.with_group_of(0, &Credentials::nobody());
        assert_eq!(mapped, Credentials::new(5, 65_534, [7, 65_534]).unwrap());
    }
}
