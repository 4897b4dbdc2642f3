//! Access control lists of the protocol (draft 6.1.4). Entries are ordered. Whether a user has a
//! right is decided by the first entry that applies to the user and mentions the right.
//!
//! Invariant: an entry has the same meaning on client and server. The store determines which lists
//! it can keep (`docs/spec/acl.md`).

use crate::file::wire_enum;

wire_enum! {
    /// The effect of an entry (`acetype` in the draft). Note that an alarm is 4 here, but 3 in
    /// NFSv4.
    AceKind {
        /// Grants the rights of the entry.
        Allow = 0,
        /// Denies the rights of the entry.
        Deny = 1,
        /// Requests a log entry when the rights are used.
        Audit = 2,
        /// Requests an alarm when the rights are used.
        Alarm = 4,
    }
}

/// One entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ace {
    /// The effect of the entry.
    pub kind: AceKind,
    /// Flags that control inheritance, and the flag that says that `who` is a group.
    pub flags: AceFlags,
    /// The rights that the entry grants, denies or watches.
    pub rights: AceRights,
    /// The user or group: [`OWNER`], [`GROUP`], [`EVERYONE`], or a decimal number.
    pub who: String,
}

/// The name in `who` that means the owner of the object.
pub const OWNER: &str = "OWNER@";
/// The name in `who` that means the group of the object.
pub const GROUP: &str = "GROUP@";
/// The name in `who` that means all users, including the owner and the group.
pub const EVERYONE: &str = "EVERYONE@";

/// The flags of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AceFlags(pub u32);

impl AceFlags {
    /// Set if new files in the directory inherit the entry.
    pub const FILE_INHERIT: Self = Self(1);
    /// Set if new directories in the directory inherit the entry and pass it on.
    pub const DIRECTORY_INHERIT: Self = Self(2);
    /// Set if objects that inherit the entry do not pass it on.
    pub const NO_PROPAGATE: Self = Self(4);
    /// Set if the entry does not apply to the directory itself.
    pub const INHERIT_ONLY: Self = Self(8);
    /// Set if an audit or alarm entry applies when the access succeeds.
    pub const SUCCESS: Self = Self(0x10);
    /// Set if an audit or alarm entry applies when the access fails.
    pub const FAILURE: Self = Self(0x20);
    /// Set if `who` names a group, not a user.
    pub const IDENTIFIER_GROUP: Self = Self(0x40);
    /// The flags of an entry in the default list of a directory, which applies only to objects
    /// created in the directory.
    pub const INHERITED: Self = Self(1 | 2 | 8);

    /// Returns true if all flags in `others` are set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// The access rights of an entry, as in NFSv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AceRights(pub u32);

impl AceRights {
    /// The right to read the data, or to list a directory.
    pub const READ_DATA: Self = Self(1);
    /// The right to write the data, or to add files to the directory.
    pub const WRITE_DATA: Self = Self(2);
    /// The right to append data to a file, or to add directories to the directory.
    pub const APPEND_DATA: Self = Self(4);
    /// The right to read the named attributes.
    pub const READ_NAMED_ATTRS: Self = Self(8);
    /// The right to write the named attributes.
    pub const WRITE_NAMED_ATTRS: Self = Self(0x10);
    /// The right to execute a file, or to look up names in a directory.
    pub const EXECUTE: Self = Self(0x20);
    /// The right to remove entries from a directory.
    pub const DELETE_CHILD: Self = Self(0x40);
    /// The right to read the object's attributes.
    pub const READ_ATTRIBUTES: Self = Self(0x80);
    /// The right to set the object's attributes.
    pub const WRITE_ATTRIBUTES: Self = Self(0x100);
    /// The right to remove the object itself.
    pub const DELETE: Self = Self(0x1_0000);
    /// The right to read the access control list.
    pub const READ_ACL: Self = Self(0x2_0000);
    /// The right to set the access control list.
    pub const WRITE_ACL: Self = Self(0x4_0000);
    /// The right to change the object's owner.
    pub const WRITE_OWNER: Self = Self(0x8_0000);
    /// The right to access the object with synchronous I/O.
    pub const SYNCHRONIZE: Self = Self(0x10_0000);
    /// All defined rights together.
    pub const ALL: Self = Self(0x1f_01ff);

    /// Returns true if all rights in `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Returns the rights that are in this set but not in `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}
