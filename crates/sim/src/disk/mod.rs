//! A store that can lose power, for crashes in a simulation.
//!
//! It is a model of a journaling file system on a local disk. The state that processes see is in
//! memory. The state that a crash leaves depends on what was synced, and on random choices.
//!
//! **Metadata** (objects, names, attributes, sizes, block maps) is a sequence of operations. Each
//! call of [`Store`] that changes something is one operation; a write that extends a file or fills
//! a hole is one operation for each 4 KiB block. A power failure leaves a prefix of the sequence,
//! as ext4, xfs and btrfs do. [`Store::sync`] and [`File::sync`] of an object write all operations
//! up to the last one that touched it. With `data_only` they write all operations up to the last
//! one that is needed to find its data: its creation, and changes of its size or its blocks.
//!
//! **Data.** [`File::sync`] writes all blocks of a file to the disk; [`Store::sync`] writes none. A
//! power failure leaves a block that was written since its last sync either in its old version on
//! the disk, in the version that processes saw, or as a mix of the two in sectors of 512 bytes. If
//! a file is longer than its data, the rest is zeros. A block that was freed is not reused, so no
//! file ever shows another file's bytes. Data that was removed by a truncation reappears only if
//! the truncation itself is lost. Even then, the block in which the truncated file ended may keep
//! its zeros.
//!
//! **The process.** [`CrashStore::kill`] loses only objects without a name. The kernel continues,
//! and a later power failure may lose what the kernel has not written. After a kill or a power
//! failure, every earlier [`File`] returns `Stale`. Handles, file numbers and
//! [`dafs_store::FileKey`]s stay valid. If a crash undoes the creation of an object, the object's
//! number is never used again, so that its handle is stale.
//!
//! The modules: `tree` has the metadata and its changes, `edit` an operation that is being
//! prepared, `platter` the data, `journal` the state between memory and disk, `ops` and `file` the
//! calls of the traits, and `fault` the I/O errors.
//!
//! Invariant: nothing here reads a clock or depends on the order of a hash table. The same calls
//! with the same random numbers have the same results.
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

/// A file system on a disk that can lose power. Clones of this value share one disk: the test keeps
/// one clone and gives others to servers. See the [module](self).
#[derive(Clone)]
pub struct CrashStore {
    disk: Arc<Mutex<Disk>>,
}

/// The numbers of operations and blocks that a power failure has kept and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The number of pending operations that have reached the disk.
    pub operations_kept: u64,
    /// The number of pending operations that were lost.
    pub operations_lost: u64,
    /// The number of unsynced blocks that have reached the disk completely. Such a block belongs to
    /// no file if the operation that added the block to a file is lost.
    pub blocks_kept: u64,
    /// The number of unsynced blocks that were lost.
    pub blocks_lost: u64,
    /// The number of unsynced blocks of which some sectors may have reached the disk.
    pub blocks_torn: u64,
}

/// The numbers of operations and blocks that a power failure could lose now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The number of unwritten operations on metadata.
    pub operations: usize,
    /// The number of unwritten blocks of 4 KiB.
    pub blocks: usize,
}

impl CrashStore {
    /// Creates an empty file system, whose root belongs to the superuser and has mode 0755. Calls
    /// that would exceed the limits fail with `NoSpace`.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(limits))) }
    }

    /// Sets the time for the time stamps of later changes. Two changes never have the same stamp:
    /// if the time does not advance, stamps advance by a nanosecond each.
    pub fn set_time(&self, now: Moment) {
        self.disk().set_time(now);
    }

    /// Injects an error, which takes effect in a later operation of its kind.
    pub fn inject(&self, fault: Fault) {
        self.disk().faults.push(fault);
    }

    /// Returns the number of injected errors that have not taken effect yet.
    #[must_use]
    pub fn faults_waiting(&self) -> usize {
        self.disk().faults.len()
    }

    /// Drops injected errors that have not taken effect yet.
    pub fn clear_faults(&self) {
        self.disk().faults.clear();
    }

    /// Returns the operations and blocks that a power failure could lose now.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.disk().pending()
    }

    /// Makes the kernel write some dirty data to the disk, as a real kernel does now and then. The
    /// driver of the simulation decides when.
    pub fn settle(&self, random: &mut Random) {
        self.disk().settle(random);
    }

    /// Ends the process that used the store; the kernel continues.
    pub fn kill(&self) {
        self.disk().kill();
    }

    /// Simulates a power failure and a restart of the machine.
    pub fn power_loss(&self, random: &mut Random) -> Loss {
        self.disk().power_loss(random)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

/// Locks the disk, even after a panic of another thread, because every operation on the disk is
/// complete before a call can panic.
fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}
