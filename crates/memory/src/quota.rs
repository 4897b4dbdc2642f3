//! The quota of a user on a file system, as the kernel reports it.
//!
//! Invariant: the kernel writes only the structure passed to it. No maintained crate has
//! `quotactl_fd` with a safe signature, so the call is in this crate, with the other system calls
//! that need `unsafe`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A user's quota on one file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The limit in bytes that is never exceeded; `None` if there is no such limit.
    pub hard: Option<u64>,
    /// The limit in bytes that may be exceeded only for some time; `None` if there is no such
    /// limit.
    pub soft: Option<u64>,
    /// The number of bytes that the user's files occupy now.
    pub used: u64,
}

impl Quota {
    /// Returns the quota of a user on the file system of `object`, for which an `O_PATH` descriptor
    /// suffices.
    ///
    /// # Errors
    /// `ESRCH` if quotas are off; `ENOSYS` or another error if the file system has no quotas;
    /// `EPERM` for another user's quota without the privilege.
    pub fn of_user(object: BorrowedFd<'_>, uid: u32) -> io::Result<Self> {
        // SAFETY: the structure consists of integers, for which zeros are valid.
        let mut raw: libc::dqblk = unsafe { std::mem::zeroed() };
        let command = libc::QCMD(libc::Q_GETQUOTA, libc::USRQUOTA);
        // SAFETY: for this command the third argument is a number, and the fourth points to a
        // `struct if_dqblk`, the same as `libc::dqblk`. The kernel writes only this structure,
        // which lives during the call.
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

/// The unit of the limits in bytes (`QIF_DQBLKSIZE`). The kernel reports the space in use in bytes.
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
