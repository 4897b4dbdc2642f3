//! What a user may still store, as the kernel counts it.
//!
//! Invariant: the kernel writes only the one structure handed to it. No maintained crate
//! has `quotactl_fd` behind a safe signature, so it is here, with the other system calls
//! that need `unsafe`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A user's quota on one file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Never more than this; `None` without such a limit.
    pub hard: Option<u64>,
    /// More than this only for a while; `None` without such a limit.
    pub soft: Option<u64>,
    /// Used now.
    pub used: u64,
}

impl Quota {
    /// The quota of a user on the file system that `object` is on (`O_PATH` will do).
    ///
    /// # Errors
    /// `ESRCH` where quotas are off, `ENOSYS` and others where there are none, `EPERM` for
    /// another user's without privilege.
    pub fn of_user(object: BorrowedFd<'_>, uid: u32) -> io::Result<Self> {
        // SAFETY: a structure of integers, for which zeros are values.
        let mut raw: libc::dqblk = unsafe { std::mem::zeroed() };
        let command = libc::QCMD(libc::Q_GETQUOTA, libc::USRQUOTA);
        // SAFETY: for this command the kernel takes a number as third argument and writes
        // one `struct if_dqblk`, which `libc::dqblk` is, to the fourth; it lives for the
        // call, and nothing else is read or written.
        let result = unsafe {
            libc::syscall(
                libc::SYS_quotactl_fd,
                object.as_raw_fd(),
                command,
                uid,
                std::ptr::from_mut(&mut raw),
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let has = |what| raw.dqb_valid & what != 0;
        let limit = |blocks: u64| {
            let is_set = has(libc::QIF_BLIMITS) && blocks != 0;
            is_set.then(|| blocks.saturating_mul(LIMIT_BLOCK_BYTES))
        };
        if !has(libc::QIF_SPACE) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(Self {
            hard: limit(raw.dqb_bhardlimit),
            soft: limit(raw.dqb_bsoftlimit),
            used: raw.dqb_curspace,
        })
    }
}

/// Unit of the limits (`QIF_DQBLKSIZE`); space in use is in bytes.
const LIMIT_BLOCK_BYTES: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_has_no_quotas_says_so() {
        let processes = std::fs::File::open("/proc").unwrap();
        assert!(Quota::of_user(processes.as_fd(), 1).is_err());
    }
}
