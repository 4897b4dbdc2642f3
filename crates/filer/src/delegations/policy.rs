//! The policy for granting delegations, and the amount by which the holder of a write delegation
//! may let its file grow.
//!
//! Invariant: the growth promised to all write delegations of a file system, in total, never
//! exceeds the space that was free when the most recent of these delegations was granted.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dafs_types::{FsHandle, Moment, SpaceLimit};

use super::slots::SLOTS_LIMIT;
use crate::{ConfigError, FileKey};

/// Limits and policies of delegations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationPolicy {
    /// True if OPEN may grant delegations. If false, only delegations that are reclaimed after a
    /// restart are granted.
    pub enabled: bool,
    /// The limit on the number of delegations of all clients, in total.
    pub total_max: u32,
    /// The maximum number of delegations of one client.
    pub per_client_max: u32,
    /// The maximum number of read delegations of one file.
    pub per_file_max: u32,
    /// The maximum number of requests that may wait for the return of delegations.
    pub waiters_max: u32,
    /// The time that a client has to return a delegation. It is never less than the lease, which is
    /// the default: a client that cannot be reached does not know before the end of its lease that
    /// it has lost the delegation.
    pub recall_timeout: Duration,
    /// The time between two attempts to recall a delegation. A recall is repeated if the client was
    /// not reached or did not know the delegation.
    pub recall_retry: Duration,
    /// The time after a recall during which no client gets a delegation of the same file. This
    /// keeps the delegation of a shared file from moving back and forth between clients.
    pub quiet: Duration,
    /// The maximum number of files for which the time of a recent recall is recorded. Beyond this
    /// limit the oldest entries are removed.
    pub quiet_files_max: u32,
    /// How long the delegations of a restarted client are kept, so that the client can claim them.
    /// Zero drops them immediately.
    pub recovery: Duration,
    /// The largest number of bytes that a file may grow by under a write delegation.
    pub growth_bytes_max: u64,
    /// The block size, in bytes, in which the promised growth is reported to the client; 0 if the
    /// promise is reported as a maximum file size.
    pub growth_block_bytes: u32,
}

impl Default for DelegationPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            total_max: 64 * 1024,
            per_client_max: 16 * 1024,
            per_file_max: 256,
            waiters_max: 4096,
            recall_timeout: Duration::ZERO,
            recall_retry: Duration::from_secs(1),
            quiet: Duration::from_secs(30),
            quiet_files_max: 16 * 1024,
            recovery: Duration::ZERO,
            growth_bytes_max: 1 << 30,
            growth_block_bytes: 0,
        }
    }
}

impl DelegationPolicy {
    /// Checks every limit.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first limit that is zero or too large for the table.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("delegations.total_max", self.total_max, SLOTS_LIMIT),
            ("delegations.per_client_max", self.per_client_max, SLOTS_LIMIT),
            // Each check of a request against delegations searches the file's list, so the list
            // must be short.
            ("delegations.per_file_max", self.per_file_max, 4096),
            ("delegations.waiters_max", self.waiters_max, 1 << 20),
            ("delegations.quiet_files_max", self.quiet_files_max, 1 << 20),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::OutOfRange(name));
            }
        }
        // With a zero delay, each retry would immediately cause the next one.
        if self.recall_retry.is_zero() {
            return Err(ConfigError::OutOfRange("delegations.recall_retry"));
        }
        Ok(())
    }
}

/// The files of which a delegation was recalled a short time ago, oldest recall first.
#[derive(Debug, Default)]
pub(super) struct QuietFiles {
    until: BTreeMap<FileKey, Moment>,
    order: VecDeque<(Moment, FileKey)>,
}

impl QuietFiles {
    /// Returns true if a delegation of the file was recalled so recently that none may be granted.
    pub(super) fn is_quiet(&self, file: FileKey, now: Moment) -> bool {
        self.until.get(&file).is_some_and(|&until| now < until)
    }

    /// Records that a delegation of the file was recalled, so that none is granted before `until`.
    /// At most `most` files are recorded.
    pub(super) fn note(&mut self, file: FileKey, until: Moment, most: u32) {
        self.until.insert(file, until);
        self.order.push_back((until, file));
        while self.order.len() > most as usize {
            self.forget_first();
        }
    }

    /// Removes the entries of files whose quiet time has ended.
    pub(super) fn expire(&mut self, now: Moment) {
        while self.order.front().is_some_and(|&(until, _)| until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((until, file)) = self.order.pop_front()
            && self.until.get(&file) == Some(&until)
        {
            self.until.remove(&file);
        }
    }
}

/// The number of bytes of growth promised to write delegations, by file system.
#[derive(Debug, Default)]
pub(super) struct Promises(BTreeMap<[u8; 16], u64>);

impl Promises {
    /// Promises growth to a write delegation, and returns the number of bytes promised. The number
    /// is limited by `policy` and by the free space that is not promised yet. If the policy
    /// promises blocks, the number is a multiple of the block size. If the number is 0, the holder
    /// may only overwrite existing data.
    pub(super) fn make(&mut self, policy: &DelegationPolicy, fs: FsHandle, space: u64) -> u64 {
        let promised = self.0.get(&fs.0).copied().unwrap_or(0);
        let growth = policy.growth_bytes_max.min(space.saturating_sub(promised));
        let growth = match u64::from(policy.growth_block_bytes) {
            0 => growth,
            block => (growth / block).min(u64::from(u32::MAX)) * block,
        };
        if growth != 0 {
            self.0.insert(fs.0, promised + growth);
        }
        growth
    }

    /// Withdraws a promise of `growth` bytes.
    pub(super) fn end(&mut self, fs: FsHandle, growth: u64) {
        if let Some(promised) = self.0.get_mut(&fs.0) {
            *promised -= growth;
            if *promised == 0 {
                self.0.remove(&fs.0);
            }
        }
    }

    /// Returns the number of bytes promised, summed over all file systems.
    pub(super) fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, promised| sum.saturating_add(*promised))
    }
}

/// Converts a promise to the form in which the reply to OPEN reports it.
pub(super) fn limit_of(policy: &DelegationPolicy, size: u64, growth: u64) -> SpaceLimit {
    match policy.growth_block_bytes {
        0 => SpaceLimit::Size(size.saturating_add(growth)),
        block_bytes => {
            let count = growth / u64::from(block_bytes);
            SpaceLimit::Blocks { count: u32::try_from(count).unwrap_or(u32::MAX), block_bytes }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FS: FsHandle = FsHandle([1; 16]);

    #[test]
    fn promises_never_exceed_what_is_free() {
        let policy = DelegationPolicy { growth_bytes_max: 100, ..DelegationPolicy::default() };
        let mut promises = Promises::default();
        let made = [(); 3].map(|()| promises.make(&policy, FS, 250));
        assert_eq!(made, [100, 100, 50]);
        assert_eq!(promises.make(&policy, FS, 250), 0);
        assert_eq!(promises.make(&policy, FsHandle([2; 16]), 30), 30);
        assert_eq!(promises.total(), 280);
        promises.end(FS, 100);
        // The promised space exceeds the free space, so nothing more is promised.
        assert_eq!(promises.make(&policy, FS, 120), 0);
        assert_eq!(promises.make(&policy, FS, 160), 10);
    }

    #[test]
    fn a_limit_is_a_size_or_whole_blocks() {
        let policy = DelegationPolicy::default();
        assert_eq!(limit_of(&policy, 10, 5), SpaceLimit::Size(15));
        assert_eq!(limit_of(&policy, u64::MAX, 5), SpaceLimit::Size(u64::MAX));
        let policy = DelegationPolicy {
            growth_block_bytes: 8,
            growth_bytes_max: 30,
            ..DelegationPolicy::default()
        };
        let growth = Promises::default().make(&policy, FS, 1000);
        assert_eq!(growth, 24);
        let expected = SpaceLimit::Blocks { count: 3, block_bytes: 8 };
        assert_eq!(limit_of(&policy, 10, growth), expected);
    }

    #[test]
    fn limits_are_ranges() {
        assert_eq!(DelegationPolicy::default().check(), Ok(()));
        let policy = DelegationPolicy { per_file_max: 0, ..DelegationPolicy::default() };
        assert_eq!(policy.check(), Err(ConfigError::OutOfRange("delegations.per_file_max")));
        let policy =
            DelegationPolicy { recall_retry: Duration::ZERO, ..DelegationPolicy::default() };
        assert_eq!(policy.check(), Err(ConfigError::OutOfRange("delegations.recall_retry")));
    }
}
