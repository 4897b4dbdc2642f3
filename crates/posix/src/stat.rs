//! The contents of `stat` for an object.
//!
//! Invariant: every interface reports the same type bits, numeric owner and group, and blocks of
//! 512 bytes for the same object.

use std::cell::RefCell;
use std::collections::HashMap;

use dafs_client::{Metadata, ObjectType, Timestamp};

/// The fields of `struct stat`, except the device, which each interface chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The inode number, unique in the export.
    pub ino: u64,
    /// The type and permission bits.
    pub mode: u32,
    /// The number of hard links.
    pub links: u32,
    /// The user id of the owner.
    pub uid: u32,
    /// The id of the group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u64,
    /// The allocated storage in blocks of 512 bytes.
    pub blocks: u64,
    /// The preferred transfer size in bytes.
    pub block_bytes: u32,
    /// The time of the last read.
    pub accessed: Timestamp,
    /// The time of the last change of data.
    pub modified: Timestamp,
    /// The time of the last change of data or attributes.
    pub changed: Timestamp,
}

impl Stat {
    /// Returns the fields for an object.
    #[must_use]
    pub fn of(metadata: &Metadata, names: &Names) -> Self {
        Self {
            ino: metadata.file_id,
            mode: type_bits(metadata.kind) | metadata.mode & 0o7777,
            links: metadata.link_count,
            uid: names.uid(&metadata.owner),
            gid: names.gid(&metadata.owner_group),
            size: metadata.size,
            blocks: metadata.space_used.div_ceil(512),
            block_bytes: BLOCK_BYTES,
            accessed: metadata.time_access,
            modified: metadata.time_modify,
            changed: metadata.time_metadata,
        }
    }
}

/// Returns the `S_IFMT` bits of a type.
#[must_use]
pub fn type_bits(kind: ObjectType) -> u32 {
    match kind {
        ObjectType::Fifo => 0o010_000,
        ObjectType::CharacterDevice => 0o020_000,
        ObjectType::Directory | ObjectType::AttributeDirectory => 0o040_000,
        ObjectType::BlockDevice => 0o060_000,
        ObjectType::Regular | ObjectType::NamedAttribute => 0o100_000,
        ObjectType::SymbolicLink => 0o120_000,
        ObjectType::Socket => 0o140_000,
    }
}

/// Maps the names of users and groups that a server sends to numbers of this system. Results are
/// cached, because accounts rarely change and `ls -l` repeats the same queries.
#[derive(Debug, Default)]
pub struct Names {
    users: RefCell<HashMap<String, u32>>,
    groups: RefCell<HashMap<String, u32>>,
}

impl Names {
    /// Returns the user id for a user name of the server, or that of "nobody" if this system does
    /// not know the user.
    #[must_use]
    pub fn uid(&self, text: &str) -> u32 {
        known(&self.users, text, |name| {
            Some(nix::unistd::User::from_name(name).ok()??.uid.as_raw())
        })
    }

    /// Returns the group id for a group name of the server, or that of "nogroup" if this system
    /// does not know the group.
    #[must_use]
    pub fn gid(&self, text: &str) -> u32 {
        known(&self.groups, text, |name| {
            Some(nix::unistd::Group::from_name(name).ok()??.gid.as_raw())
        })
    }
}

fn known(
    table: &RefCell<HashMap<String, u32>>,
    text: &str,
    look_up: impl FnOnce(&str) -> Option<u32>,
) -> u32 {
    if let Ok(number) = text.parse() {
        return number;
    }
    if let Some(number) = table.borrow().get(text) {
        return *number;
    }
    // The form `name@domain`, as used by NFS.
    let name = text.split('@').next().unwrap_or(text);
    let number = look_up(name).unwrap_or(NOBODY);
    table.borrow_mut().insert(text.to_owned(), number);
    number
}

/// The number for unknown users and groups.
const NOBODY: u32 = 65_534;
/// The preferred transfer size in bytes.
const BLOCK_BYTES: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are_and_names_are_looked_up() {
        let names = Names::default();
        assert_eq!(names.uid("1234"), 1234);
        assert_eq!(names.uid("root"), 0);
        assert_eq!(names.gid("root@example.org"), 0);
        assert_eq!(names.uid("no such user at all"), NOBODY);
    }

    #[test]
    fn every_type_has_its_bits() {
        assert_eq!(type_bits(ObjectType::Directory), 0o040_000);
        assert_eq!(type_bits(ObjectType::Regular), 0o100_000);
        assert_eq!(type_bits(ObjectType::SymbolicLink), 0o120_000);
    }
}
