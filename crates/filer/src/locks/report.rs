//! Counters and lists of locks for the operator.
//!
//! Invariant: a gauge equals the current number of entries in the table; a counter only rises.

use dafs_types::ClientId;

use super::action::{LockRecord, Phase};
use super::range::ByteRange;
use super::request::{Claim, LockAttributes, LockError, LockMode, LockReply, WaiterId};
use super::table::LockTable;
use crate::FileKey;

/// A copy of the lock table's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounters {
    /// Gauge: the number of locks, including broken locks.
    pub locks: u32,
    /// Gauge: the number of requests that wait for a lock.
    pub waiters: u32,
    /// Gauge: the number of files with locks or waiters.
    pub files: u32,
    /// Gauge: the number of owners with waiters or with locks, including broken locks.
    pub owners: u32,
    /// Gauge: the number of clients that have owners with locks or waiters.
    pub clients: u32,
    /// Gauge: the number of rollbacks that are running.
    pub rollbacks_running: u32,
    /// The number of LOCK requests that were granted.
    pub granted: u64,
    /// The number of LOCK requests that reclaimed a lock.
    pub reclaimed: u64,
    /// The number of LOCK requests that were denied and not queued.
    pub denied: u64,
    /// The number of LOCK requests that were queued, including repetitions by clients that poll.
    pub waited: u64,
    /// The number of LOCK requests that got the reply LOCK_BROKEN.
    pub answered_broken: u64,
    /// The number of LOCK requests refused because of a deadlock.
    pub deadlocks: u64,
    /// The number of LOCK requests refused because a limit was reached.
    pub resource: u64,
    /// The number of locks that were broken.
    pub broken: u64,
    /// The number of broken locks that were repaired.
    pub repaired: u64,
    /// The number of rollbacks that were started.
    pub rollbacks: u64,
    /// The number of waiters that lost their position because their clients were silent too long.
    pub waiters_expired: u64,
}

impl LockCounters {
    pub(super) fn count(&mut self, claim: Claim, answer: &Result<LockReply, LockError>) {
        let counter = match answer {
            Ok(LockReply::Granted) if claim == Claim::Reclaim => &mut self.reclaimed,
            Ok(LockReply::Granted) => &mut self.granted,
            Ok(LockReply::Denied(_)) => &mut self.denied,
            Ok(LockReply::Waiting { .. }) => &mut self.waited,
            Ok(LockReply::Broken(_)) => &mut self.answered_broken,
            Ok(LockReply::Deadlock(_)) => &mut self.deadlocks,
            Err(LockError::Resource) => &mut self.resource,
            Err(_) => return,
        };
        *counter += 1;
    }
}

/// The condition of a lock, for reports to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockCondition {
    /// The lock is held by its owner.
    Held,
    /// The lock is kept for a client that has not reclaimed it yet.
    Unclaimed,
    /// The client's lease has expired, so the next conflicting request breaks the lock.
    Breakable,
    /// The lock is broken, and must be repaired by a LOCK request with REPAIR.
    Broken,
    /// The changes under the lock are being rolled back.
    RollingBack,
}

/// A description of one lock for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEntry<'a> {
    /// The file that is locked.
    pub file: FileKey,
    /// The client of the owner that holds the lock, or that held it before it was broken.
    pub client: ClientId,
    /// The identity string of the client.
    pub client_name: &'a [u8],
    /// The owner that holds the lock, or that held it before it was broken, by the name that the
    /// client uses.
    pub owner: &'a [u8],
    /// The locked range of bytes.
    pub range: ByteRange,
    /// The mode of the lock: shared or exclusive.
    pub mode: LockMode,
    /// The options of the lock: PERSIST, AUTORECOVERY, or none.
    pub attributes: LockAttributes,
    /// The condition of the lock.
    pub condition: LockCondition,
}

/// A description of one waiting request for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterEntry<'a> {
    /// The id of the request, which the server assigned.
    pub waiter: WaiterId,
    /// The file that the request is to lock.
    pub file: FileKey,
    /// The client of the owner that waits.
    pub client: ClientId,
    /// The lock owner that waits, by the name that the client uses.
    pub owner: &'a [u8],
    /// The requested range of bytes.
    pub range: ByteRange,
    /// The requested mode: shared or exclusive.
    pub mode: LockMode,
    /// The number of requests that come before this one in the file's queue.
    pub position: u32,
    /// True if nothing blocks the request, so that the lock is reserved until the owner repeats the
    /// request.
    pub ready: bool,
    /// The owners that the request waits for, each owner once. Owners that hold locks come before
    /// owners that only wait.
    pub waits_for: Vec<(ClientId, &'a [u8])>,
}

impl LockTable {
    /// Returns the number of locks.
    pub(crate) fn count(&self) -> u32 {
        self.holds.len() as u32
    }

    /// Returns the number of locks of a client.
    pub(crate) fn count_of(&self, client: ClientId) -> u32 {
        self.registry.client(client).map_or(0, |client| client.holds)
    }

    /// Returns the present values of the counters and gauges.
    #[must_use]
    pub fn counters(&self) -> LockCounters {
        LockCounters {
            locks: self.count(),
            waiters: self.waiters.len() as u32,
            files: self.files.len() as u32,
            owners: self.registry.owner_count() as u32,
            clients: self.registry.client_count() as u32,
            rollbacks_running: self.rollbacks.len() as u32,
            ..self.counters
        }
    }

    /// Iterates over all locks, in no particular order.
    pub fn locks(&self) -> impl Iterator<Item = LockEntry<'_>> {
        self.holds.iter().map(|(_, hold)| {
            let owner = self.registry.owner(hold.owner);
            LockEntry {
                file: hold.file,
                client: owner.client,
                client_name: &self.registry.client_of(hold.owner).name,
                owner: &owner.name,
                range: hold.range,
                mode: hold.mode,
                attributes: hold.attributes,
                condition: match hold.phase {
                    Phase::Held => LockCondition::Held,
                    Phase::Survived => LockCondition::Unclaimed,
                    Phase::Breakable => LockCondition::Breakable,
                    Phase::Broken => LockCondition::Broken,
                    Phase::RollingBack { .. } => LockCondition::RollingBack,
                },
            }
        })
    }

    /// Iterates over all waiting requests, file by file, in the order of each file's queue.
    pub fn waiting_requests(&self) -> impl Iterator<Item = WaiterEntry<'_>> {
        let queues = self.queued.iter().flat_map(|file| self.files[file].queue.iter().enumerate());
        queues.map(|(position, &number)| {
            let waiter = &self.waiters[number];
            let owner = self.registry.owner(waiter.owner);
            WaiterEntry {
                waiter: waiter.id,
                file: waiter.file,
                client: owner.client,
                owner: &owner.name,
                range: waiter.piece.range,
                mode: waiter.piece.mode,
                position: position as u32,
                ready: waiter.ready,
                waits_for: self.awaited_owners(number),
            }
        })
    }

    /// Returns all records that stable storage must contain, ordered by id.
    #[must_use]
    pub fn records(&self) -> Vec<LockRecord> {
        let mut records: Vec<_> =
            self.holds.iter().filter_map(|(number, _)| self.record(number)).collect();
        records.sort_by_key(|record| record.id);
        records
    }
}
