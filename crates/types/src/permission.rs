//! POSIX permission bits: determines the access that an identity has to an object.

use crate::{AccessMask, Credentials, ObjectType};

/// The bit for read permission, in the three bits of a mode for one class of users.
pub const READ: u32 = 4;
/// The bit for write permission, in the three bits of a mode for one class of users.
pub const WRITE: u32 = 2;
/// The bit for execute permission; for a directory, the permission to search the directory.
pub const EXECUTE: u32 = 1;

/// Returns the permission bits (read, write, execute) that `who` has on an object with this owner,
/// group and mode.
///
/// User 0 may read and write every object, search every directory, and execute a file that any user
/// may execute.
#[must_use]
pub fn granted(who: &Credentials, kind: ObjectType, uid: u32, gid: u32, mode: u32) -> u32 {
    if who.is_superuser() {
        let executable = kind == ObjectType::Directory || mode & 0o111 != 0;
        return READ | WRITE | if executable { EXECUTE } else { 0 };
    }
    let class = if who.uid() == uid {
        mode >> 6
    } else if who.in_group(gid) {
        mode >> 3
    } else {
        mode
    };
    class & 7
}

/// Returns true if all of the `wanted` bits are granted.
#[must_use]
pub fn allows(
    who: &Credentials,
    kind: ObjectType,
    uid: u32,
    gid: u32,
    mode: u32,
    wanted: u32,
) -> bool {
    granted(who, kind, uid, gid, mode) & wanted == wanted
}

/// Returns true if a directory's sticky bit forbids `who` to remove an entry that belongs to
/// `entry_uid`.
#[must_use]
pub fn sticky_forbids(who: &Credentials, dir_mode: u32, dir_uid: u32, entry_uid: u32) -> bool {
    dir_mode & 0o1000 != 0 && !who.is_superuser() && who.uid() != dir_uid && who.uid() != entry_uid
}

/// Returns the access rights that the permission bits grant, for the reply to ACCESS.
#[must_use]
pub fn access_mask(
    who: &Credentials,
    kind: ObjectType,
    uid: u32,
    gid: u32,
    mode: u32,
) -> AccessMask {
    access_of(kind, granted(who, kind, uid, gid, mode))
}

/// Returns the protocol's access rights that these permission bits (read, write, execute) grant on
/// an object of this kind.
#[must_use]
pub fn access_of(kind: ObjectType, bits: u32) -> AccessMask {
    let mut mask = AccessMask::default();
    if bits & READ != 0 {
        mask = mask | AccessMask::READ;
    }
    if bits & WRITE != 0 {
        mask = mask | AccessMask::MODIFY | AccessMask::EXTEND;
        if kind == ObjectType::Directory {
            mask = mask | AccessMask::DELETE;
        }
    }
    if bits & EXECUTE != 0 {
        mask = mask
            | if kind == ObjectType::Directory { AccessMask::LOOKUP } else { AccessMask::EXECUTE };
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32) -> Credentials {
        Credentials::new(uid, gid, [50, 60]).unwrap()
    }

    #[test]
    fn the_most_specific_class_decides_alone() {
        let owner = user(1, 9);
        assert_eq!(granted(&owner, ObjectType::Regular, 1, 9, 0o077), 0);
        assert_eq!(granted(&user(2, 9), ObjectType::Regular, 1, 9, 0o057), READ | EXECUTE);
        assert_eq!(granted(&user(2, 8), ObjectType::Regular, 1, 60, 0o040), READ);
        assert_eq!(granted(&user(2, 8), ObjectType::Regular, 1, 9, 0o772), WRITE);
    }

    #[test]
    fn the_superuser_needs_one_execute_bit_for_files_only() {
        let root = Credentials::superuser();
        assert_eq!(granted(&root, ObjectType::Regular, 1, 1, 0), READ | WRITE);
        assert_eq!(granted(&root, ObjectType::Directory, 1, 1, 0), 7);
    }

    #[test]
    fn sticky_spares_owner_of_entry_and_of_directory() {
        assert!(sticky_forbids(&user(3, 3), 0o1777, 1, 2));
        assert!(!sticky_forbids(&user(2, 3), 0o1777, 1, 2));
        assert!(!sticky_forbids(&user(1, 3), 0o1777, 1, 2));
        assert!(!sticky_forbids(&user(3, 3), 0o777, 1, 2));
    }
}
