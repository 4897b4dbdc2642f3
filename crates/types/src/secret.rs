//! Checks the owner and mode of files that contain secrets: passwords, keys, keytabs.
//!
//! Invariant: a secret is used only if no user except the file's owner, root and a group chosen by
//! root can read the file, and only its owner can change it. The same rule applies to all secrets.
//! The crate `dat` has its own copy of the rule for TLS private keys, because it does not import
//! this crate.

/// The reason why a file must not be used to hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExposedSecret {
    /// The file belongs to another user, who could change it.
    #[error("it belongs to user {0}, who could change it; it must belong to this user or to root")]
    Owner(u32),
    /// The file's mode allows other users to read or change it.
    #[error("mode {0:03o} gives others access; use chmod 600 (640 if root owns it)")]
    Mode(u32),
}

/// Checks whether a file with this owner and mode may contain a secret of `user`. The rule is that
/// of PostgreSQL and other programs: other users must have no access to a file of `user`; a file of
/// root may be readable by a group.
///
/// # Errors
/// [`ExposedSecret`] with the reason.
pub const fn check_secret(owner: u32, mode: u32, user: u32) -> Result<(), ExposedSecret> {
    let mode = mode & 0o777;
    if owner != user && owner != 0 {
        return Err(ExposedSecret::Owner(owner));
    }
    let forbidden = if owner == 0 { 0o037 } else { 0o077 };
    if mode & forbidden != 0 {
        return Err(ExposedSecret::Mode(mode));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_owners_and_root_may_share_it_with_a_group() {
        assert_eq!(check_secret(7, 0o100_600, 7), Ok(()));
        assert_eq!(check_secret(7, 0o400, 7), Ok(()));
        assert_eq!(check_secret(0, 0o640, 7), Ok(()));
        assert_eq!(check_secret(0, 0o600, 0), Ok(()));
        for mode in [0o640, 0o620, 0o604, 0o602, 0o777] {
            assert_eq!(check_secret(7, mode, 7), Err(ExposedSecret::Mode(mode)));
        }
        for mode in [0o660, 0o644, 0o650, 0o606] {
            assert_eq!(check_secret(0, mode, 7), Err(ExposedSecret::Mode(mode)));
        }
        assert_eq!(check_secret(8, 0o600, 7), Err(ExposedSecret::Owner(8)));
        assert_eq!(check_secret(8, 0o600, 0), Err(ExposedSecret::Owner(8)));
    }
}
