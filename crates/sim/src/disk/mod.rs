//! A store that can lose power, for crashes that a simulation makes.
//!
//! It is a model of a journaling file system on a local disk. What processes see is in
//! memory; what a crash leaves is decided by what was synced, and by chance.
//!
//! **Metadata** (objects, names, attributes, sizes, which block is whose) is a sequence of
//! operations. Each call of [`Store`] that changes something is one; a write that grows a
//! file or fills a hole is one for each 4 KiB block. A power loss leaves a prefix of the
//! sequence, as ext4, xfs and btrfs do. [`Store::sync`] and [`File::sync`] of an object make
//! sure of all operations up to the last that touched it; with `data_only`, up to the last
//! that its data could not be found without: its creation, and changes of its size or its
//! blocks.
//!
//! **Data.** [`File::sync`] brings all blocks of a file to the disk; [`Store::sync`] none.
//! A block written since is left as it was on the disk, as processes saw it, or as a mix of
//! the two in sectors of 512 bytes. Where a file is longer than its data there are zeros:
//! a block that was given up is not used again, so that nothing shows another file's bytes.
//! What a cut took away comes back only if the cut itself is lost, and the block that the
//! cut went through may have its zeros even then.
//!
//! **The process.** After [`CrashStore::kill`] nothing is lost but objects without a name;
//! the kernel goes on, and what it has not written a later power loss may take. After
//! either, every [`File`] of before says `Stale`. Handles, file numbers and
//! [`dafs_store::FileKey`]s stay what they were; the number of an object that a crash undid
//! is never used again, so that its handle is stale.
//!
//! By file: `tree` is the metadata and its changes, `edit` an operation in the making,
//! `platter` the data, `journal` what is between memory and disk, `ops` and `file` the
//! calls, `fault` what goes wrong without a crash.
//!
//! Invariant: nothing here looks at a clock or depends on the order of a hash table. The
//! same calls with the same random numbers have the same results.
//!
//! [`Store`]: dafs_store::Store
//! [`Store::sync`]: dafs_store::Store::sync
//! [`File`]: dafs_store::File
//! [`File::sync`]: dafs_store::File::sync

mod edit;
mod fault;
mod file;
mod journal;
mod ops;
mod platter;
mod tree;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dafs_store::memory::MemoryLimits;
use dafs_types::{Moment, Random};

pub use fault::{Fault, FaultEffect, FaultOn};
use journal::Disk;

/// A file system on a disk that can lose power. Clones are the same one: its owner keeps
/// one, and gives others to servers. See the [module](self).
#[derive(Clone)]
pub struct CrashStore {
    disk: Arc<Mutex<Disk>>,
}

/// What a power loss left and what it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Pending operations that have reached the disk.
    pub operations_kept: u64,
    /// Pending operations that have not.
    pub operations_lost: u64,
    /// Unsynced blocks that have reached the disk whole. They are still no part of a file
    /// if the operation that gave them to it is lost.
    pub blocks_kept: u64,
    /// Unsynced blocks that have not.
    pub blocks_lost: u64,
    /// Unsynced blocks of which some sectors may have.
    pub blocks_torn: u64,
}

/// What a power loss could take now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Operations on metadata.
    pub operations: usize,
    /// Blocks of 4 KiB.
    pub blocks: usize,
}

impl CrashStore {
    /// An empty file system whose root belongs to the superuser with mode 0755. What would
    /// exceed the limits gets `NoSpace`.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(limits))) }
    }

    /// The time that changes are stamped with from now on. Two changes never carry the same
    /// stamp: where the clock stands still, stamps go on by a nanosecond each.
    pub fn set_time(&self, now: Moment) {
        self.disk().set_time(now);
    }

    /// Has an error wait for its operation.
    pub fn inject(&self, fault: Fault) {
        self.disk().faults.push(fault);
    }

    /// Errors that have not struck yet.
    #[must_use]
    pub fn faults_waiting(&self) -> usize {
        self.disk().faults.len()
    }

    /// Drops errors that have not struck yet.
    pub fn clear_faults(&self) {
        self.disk().faults.clear();
    }

    /// What a power loss could take now.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.disk().pending()
    }

    /// The kernel writes back some of what is pending, as it does now and then. Whoever
    /// drives a simulation says when.
    pub fn settle(&self, random: &mut Random) {
        self.disk().settle(random);
    }

    /// The process that used the store died; the kernel did not.
    pub fn kill(&self) {
        self.disk().kill();
    }

    /// The machine lost power and is up again.
    pub fn power_loss(&self, random: &mut Random) -> Loss {
        self.disk().power_loss(random)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

/// Every operation is complete before a call can panic.
fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}
