//! What `stat` shows of an object.
//!
//! Invariant: the same object is shown alike by every face: type bits, owner and group by
//! number, blocks of 512 bytes.

use std::cell::RefCell;
use std::collections::HashMap;

use dafs_client::{Metadata, ObjectType, Timestamp};

/// The fields of `struct stat` but the device the file is on, which each face has its own of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Number, unique in the export.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Best size of transfers, in bytes.
    pub block_bytes: u32,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of data.
    pub modified: Timestamp,
    /// Last change of anything.
    pub changed: Timestamp,
}

impl Stat {
    /// What is shown of an object.
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

/// The `S_IFMT` bits of a type.
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

/// Numbers of users and groups, by the text a server has them in. What was looked up once is
/// kept: a system's accounts seldom change, and `ls -l` asks for the same again and again.
#[derive(Debug, Default)]
pub struct Names {
    users: RefCell<HashMap<String, u32>>,
    groups: RefCell<HashMap<String, u32>>,
}

impl Names {
    /// The user; "nobody" for one that this system does not know.
    #[must_use]
    pub fn uid(&self, text: &str) -> u32 {
        known(&self.users, text, |name| {
            Some(nix::unistd::User::from_name(name).ok()??.uid.as_raw())
        })
    }

    /// The group; "nogroup" for one that this system does not know.
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
    // `name@domain`, as servers of NFS's kind say it.
    let name = text.split('@').next().unwrap_or(text);
    let number = look_up(name).unwrap_or(NOBODY);
    table.borrow_mut().insert(text.to_owned(), number);
    number
}

/// Whom no number is known of.
const NOBODY: u32 = 65_534;
/// Best size of transfers.
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
