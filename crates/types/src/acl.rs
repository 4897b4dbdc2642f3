//! Access control lists as the protocol has them (draft 6.1.4): entries in order, of
//! which the first that mentions a right of the asker decides it.
//!
//! Invariant: an entry means the same on both sides; what a store can keep of a list is
//! the store's affair (`docs/spec/acl.md`).

use crate::file::wire_enum;

wire_enum! {
    /// What an entry does (draft: acetype; NFSv4 has 3 for an alarm).
    AceKind {
        /// Grants rights.
        Allow = 0,
        /// Refuses rights.
        Deny = 1,
        /// Has their use written down.
        Audit = 2,
        /// Has an alarm raised at their use.
        Alarm = 4,
    }
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ace {
    /// What it does.
    pub kind: AceKind,
    /// How it is inherited, and whether `who` is a group.
    pub flags: AceFlags,
    /// The rights in question.
    pub rights: AceRights,
    /// Whose: one of [`OWNER`], [`GROUP`] and [`EVERYONE`], or a decimal number.
    pub who: String,
}

/// The owner of the object.
pub const OWNER: &str = "OWNER@";
/// The group of the object.
pub const GROUP: &str = "GROUP@";
/// Everybody, owner and group included.
pub const EVERYONE: &str = "EVERYONE@";

/// Flags of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AceFlags(pub u32);

impl AceFlags {
    /// New files of the directory get the entry.
    pub const FILE_INHERIT: Self = Self(1);
    /// New directories get it, and pass it on.
    pub const DIRECTORY_INHERIT: Self = Self(2);
    /// Those that get it do not pass it on.
    pub const NO_PROPAGATE: Self = Self(4);
    /// It does not concern the directory itself.
    pub const INHERIT_ONLY: Self = Self(8);
    /// Audit and alarm: at success.
    pub const SUCCESS: Self = Self(0x10);
    /// Audit and alarm: at failure.
    pub const FAILURE: Self = Self(0x20);
    /// `who` is a group.
    pub const IDENTIFIER_GROUP: Self = Self(0x40);
    /// What makes an entry one of the default list of a directory.
    pub const INHERITED: Self = Self(1 | 2 | 8);

    /// Whether all of `others` are set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Rights of an entry; those of NFSv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AceRights(pub u32);

impl AceRights {
    /// Read data, or list a directory.
    pub const READ_DATA: Self = Self(1);
    /// Write data, or add files to a directory.
    pub const WRITE_DATA: Self = Self(2);
    /// Write behind the end, or add directories to a directory.
    pub const APPEND_DATA: Self = Self(4);
    /// Read named attributes.
    pub const READ_NAMED_ATTRS: Self = Self(8);
    /// Write named attributes.
    pub const WRITE_NAMED_ATTRS: Self = Self(0x10);
    /// Execute a file, or look names up in a directory.
    pub const EXECUTE: Self = Self(0x20);
    /// Remove entries of a directory.
    pub const DELETE_CHILD: Self = Self(0x40);
    /// Read the attributes.
    pub const READ_ATTRIBUTES: Self = Self(0x80);
    /// Set the attributes.
    pub const WRITE_ATTRIBUTES: Self = Self(0x100);
    /// Remove the object.
    pub const DELETE: Self = Self(0x1_0000);
    /// Read the list.
    pub const READ_ACL: Self = Self(0x2_0000);
    /// Set the list.
    pub const WRITE_ACL: Self = Self(0x4_0000);
    /// Change the owner.
    pub const WRITE_OWNER: Self = Self(0x8_0000);
    /// Use the object synchronously.
    pub const SYNCHRONIZE: Self = Self(0x10_0000);
    /// All that have a meaning.
    pub const ALL: Self = Self(0x1f_01ff);

    /// Whether all of `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// What is in both sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// What is in this set but not in `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}
