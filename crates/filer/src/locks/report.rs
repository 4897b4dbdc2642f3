//! Numbers and lists for the operator.
//!
//! Invariant: gauges equal what the table holds; counters only rise.

use dafs_types::ClientId;

use super::action::{LockRecord, Phase};
use super::range::ByteRange;
use super::request::{Claim, LockAnswer, LockAttributes, LockError, LockMode, WaiterId};
use super::table::LockTable;
use crate::FileKey;

/// A copy of the lock table's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounters {
    /// Gauge: locks, broken ones among them.
    pub locks: u32,
    /// Gauge: requests that wait.
    pub waiters: u32,
    /// Gauge: files with locks or waiters.
    pub files: u32,
    /// Gauge: owners with locks or waiters, or whose locks are broken.
    pub owners: u32,
    /// Gauge: clients of those owners.
    pub clients: u32,
    /// Gauge: rollbacks under way.
    pub rollbacks_running: u32,
    /// LOCK granted.
    pub granted: u64,
    /// LOCK granted to a reclaim.
    pub reclaimed: u64,
    /// LOCK denied, and not queued.
    pub denied: u64,
    /// LOCK queued, or asked again by a waiter.
    pub waited: u64,
    /// LOCK answered with LOCK_BROKEN.
    pub answered_broken: u64,
    /// LOCK refused because its owner would wait for itself.
    pub deadlocks: u64,
    /// LOCK refused because of a limit.
    pub resource: u64,
    /// Locks that broke.
    pub broken: u64,
    /// Broken locks that were repaired.
    pub repaired: u64,
    /// Rollbacks begun.
    pub rollbacks: u64,
    /// Waiters that lost their place by silence.
    pub waiters_expired: u64,
}

impl LockCounters {
    pub(super) fn count(&mut self, claim: Claim, answer: &Result<LockAnswer, LockError>) {
        let counter = match answer {
            Ok(LockAnswer::Granted) if claim == Claim::Reclaim => &mut self.reclaimed,
            Ok(LockAnswer::Granted) => &mut self.granted,
            Ok(LockAnswer::Denied(_)) => &mut self.denied,
            Ok(LockAnswer::Waiting { .. }) => &mut self.waited,
            Ok(LockAnswer::Broken(_)) => &mut self.answered_broken,
            Ok(LockAnswer::Deadlock(_)) => &mut self.deadlocks,
            Err(LockError::Resource) => &mut self.resource,
            Err(_) => return,
        };
        *counter += 1;
    }
}

/// Where a lock stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockCondition {
    /// Held.
    Held,
    /// Kept for a client that has not reclaimed it yet.
    Unclaimed,
    /// Its client's lease is over; the first who asks breaks it.
    Breakable,
    /// Broken; repair it.
    Broken,
    /// Its changes are being rolled back.
    RollingBack,
}

/// A lock, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEntry<'a> {
    /// The file.
    pub file: FileKey,
    /// Client of its owner, or of who had it.
    pub client: ClientId,
    /// The client's name.
    pub client_name: &'a [u8],
    /// Its owner, or who had it.
    pub owner: &'a [u8],
    /// What it covers.
    pub range: ByteRange,
    /// Its kind.
    pub mode: LockMode,
    /// Its options.
    pub attributes: LockAttributes,
    /// Where it stands.
    pub condition: LockCondition,
}

/// A request that waits, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterEntry<'a> {
    /// The driver's name for it.
    pub waiter: WaiterId,
    /// The file.
    pub file: FileKey,
    /// Client of its owner.
    pub client: ClientId,
    /// Its owner.
    pub owner: &'a [u8],
    /// What it asks for.
    pub range: ByteRange,
    /// What kind.
    pub mode: LockMode,
    /// Requests before it in the file's queue.
    pub position: u32,
    /// Nothing is in its way: the lock is kept until it asks again.
    pub ready: bool,
    /// Whom it waits for, each once, holders of locks first.
    pub waits_for: Vec<(ClientId, &'a [u8])>,
}

impl LockTable {
    /// The table's numbers.
    #[must_use]
    pub fn counters(&self) -> LockCounters {
        LockCounters {
            locks: self.holds.len() as u32,
            waiters: self.waiters.len() as u32,
            files: self.files.len() as u32,
            owners: self.registry.owner_count() as u32,
            clients: self.registry.client_count() as u32,
            rollbacks_running: self.rollbacks.len() as u32,
            ..self.counters
        }
    }

    /// All locks, in no particular order.
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

    /// All requests that wait, file by file in the order of their queues.
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

    /// Everything that has to be on stable storage, by id.
    #[must_use]
    pub fn records(&self) -> Vec<LockRecord> {
        let mut records: Vec<_> =
            self.holds.iter().filter_map(|(number, _)| self.record(number)).collect();
        records.sort_by_key(|record| record.id);
        records
    }
}
