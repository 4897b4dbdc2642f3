//! Files that hold secrets: passwords, keys, keytabs.
//!
//! Invariant: a secret is used only if nobody but its owner, root and a group that root chose can
//! read it, and nobody but its owner can change it. There is one rule for all of them; private keys
//! of TLS are judged by the same one in `dat`, which knows nothing of this crate.

/// Why a file's secret is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExposedSecret {
    /// It belongs to somebody else, who may change it.
    #[error("it belongs to user {0}, who could change it; it must belong to this user or to root")]
    Owner(u32),
    /// Others can read or change it.
    #[error("mode {0:03o} lets others at it; chmod 600 it (640 if root owns it)")]
    Mode(u32),
}

/// Whether a file of this owner and mode may hold a secret of `user`'s. As PostgreSQL and others
/// judge: what is this user's own is nobody else's affair; root may share it with a group.
///
/// # Errors
/// [`ExposedSecret`]: why not.
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
