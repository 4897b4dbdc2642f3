//! Helpers for tests of locks.

use dafs_filer::FileKey;
use dafs_filer::locks::*;
use dafs_types::*;

pub(crate) const FILE: FileKey = FileKey(1);
pub(crate) const END: u64 = u64::MAX;
pub(crate) const PLAIN: LockAttributes = LockAttributes::PLAIN;
pub(crate) const P: LockAttributes = LockAttributes { persist: true, ..LockAttributes::PLAIN };
pub(crate) const A: LockAttributes =
    LockAttributes { auto_recovery: true, ..LockAttributes::PLAIN };
pub(crate) const PA: LockAttributes =
    LockAttributes { persist: true, auto_recovery: true, advisory: false };
pub(crate) use LockMode::{Read, Write};

/// The bytes `first..=last`.
pub(crate) fn ends(first: u64, last: u64) -> ByteRange {
    ByteRange::from_ends(first, last).unwrap()
}

/// A configuration with all options, and small limits.
pub(crate) fn config() -> LockConfig {
    LockConfig { persistent: true, auto_recovery: AutoRecovery::Ranges, ..LockConfig::default() }
}

/// An owner of a client; clients and owners have names of one letter.
pub(crate) fn owner(client: u8, name: &'static str) -> LockOwner<'static> {
    life(client, 0, name)
}

/// Like [`owner`], in some incarnation of the client: id, verifier and state id differ between
/// incarnations.
pub(crate) fn life(client: u8, life: u8, name: &'static str) -> LockOwner<'static> {
    const NAMES: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let client_name = &NAMES[usize::from(client)..][..1];
    let id = u64::from(client) * 10 + u64::from(life);
    LockOwner {
        client: LockClient {
            id: ClientId(id),
            name: client_name,
            principal: client_name,
            verifier: Verifier([life; 8]),
        },
        owner: name.as_bytes(),
        state: StateId(id * 1000 + u64::from(name.as_bytes()[0])),
    }
}

/// A request for the bytes `first..=last` of [`FILE`].
pub(crate) fn request(mode: LockMode, first: u64, last: u64) -> LockRequest {
    LockRequest {
        file: FILE,
        offset: first,
        length: ends(first, last).length(),
        mode,
        attributes: PLAIN,
        claim: Claim::New,
        wait: Wait::No,
    }
}

pub(crate) fn with(attributes: LockAttributes, request: LockRequest) -> LockRequest {
    LockRequest { attributes, ..request }
}

pub(crate) fn claiming(claim: Claim, request: LockRequest) -> LockRequest {
    LockRequest { claim, ..request }
}

pub(crate) fn polling(waiter: u64, request: LockRequest) -> LockRequest {
    LockRequest { wait: Wait::Poll(WaiterId(waiter)), ..request }
}

pub(crate) fn parked(waiter: u64, request: LockRequest) -> LockRequest {
    LockRequest { wait: Wait::Parked(WaiterId(waiter)), ..request }
}

pub(crate) fn conflict(
    owner: &LockOwner<'_>,
    mode: LockMode,
    first: u64,
    last: u64,
) -> LockConflict {
    LockConflict {
        client: owner.client.id,
        owner: Box::from(owner.owner),
        range: ends(first, last),
        mode,
    }
}

pub(crate) fn denied(by: &LockOwner<'_>, mode: LockMode, first: u64, last: u64) -> LockReply {
    LockReply::Denied(conflict(by, mode, first, last))
}

pub(crate) fn broken(by: &LockOwner<'_>, mode: LockMode, first: u64, last: u64) -> LockReply {
    LockReply::Broken(conflict(by, mode, first, last))
}

/// A record as the table should write it.
pub(crate) fn record(
    id: u64,
    owner: &LockOwner<'_>,
    attributes: LockAttributes,
    range: ByteRange,
    phase: RecordPhase,
) -> LockRecord {
    LockRecord {
        id: LockId(id),
        file: FILE,
        client: owner.client.id,
        client_name: Box::from(owner.client.name),
        principal: Box::from(owner.client.principal),
        verifier: owner.client.verifier,
        owner: Box::from(owner.owner),
        range,
        mode: Write,
        attributes,
        phase,
    }
}

pub(crate) fn write(record: LockRecord) -> LockAction {
    LockAction::WriteRecord(Box::new(record))
}

pub(crate) fn remove(id: u64) -> LockAction {
    LockAction::RemoveRecord(LockId(id))
}

pub(crate) fn keep_undo(first: u64, last: u64) -> LockAction {
    LockAction::KeepUndo { file: FILE, range: ends(first, last) }
}

pub(crate) fn drop_undo(first: u64, last: u64) -> LockAction {
    LockAction::DropUndo { file: FILE, range: ends(first, last) }
}

pub(crate) fn roll_back(rollback: u64, first: u64, last: u64) -> LockAction {
    LockAction::Rollback { rollback: RollbackId(rollback), file: FILE, range: ends(first, last) }
}

pub(crate) fn ready(waiter: u64) -> LockAction {
    LockAction::Ready { waiter: WaiterId(waiter), file: FILE }
}

pub(crate) fn gone(waiter: u64) -> LockAction {
    LockAction::WaiterGone { waiter: WaiterId(waiter) }
}

pub(crate) const T0: Moment = Moment(0);

/// A table and the actions of its last call.
pub(crate) struct Bench {
    pub table: LockTable,
}

impl Bench {
    pub(crate) fn new(config: LockConfig) -> Self {
        config.check().unwrap();
        Self { table: LockTable::new(config) }
    }

    pub(crate) fn actions(&mut self) -> Vec<LockAction> {
        std::iter::from_fn(|| self.table.poll_action()).collect()
    }

    /// Takes a lock that must be granted without any action.
    pub(crate) fn take(&mut self, owner: &LockOwner<'_>, request: LockRequest) {
        assert_eq!(self.table.lock(owner, &request, T0), Ok(LockReply::Granted), "{request:?}");
        self.actions();
    }

    pub(crate) fn ask(&mut self, owner: &LockOwner<'_>, request: LockRequest) -> LockReply {
        self.table.lock(owner, &request, T0).unwrap()
    }

    pub(crate) fn refused(&mut self, owner: &LockOwner<'_>, request: LockRequest) -> LockError {
        let error = self.table.lock(owner, &request, T0).unwrap_err();
        assert_eq!(self.actions(), []);
        error
    }

    pub(crate) fn unlock(&mut self, owner: &LockOwner<'_>, first: u64, last: u64) {
        let length = ends(first, last).length();
        self.table.unlock(owner.name(), FILE, first, length, T0).unwrap();
    }

    /// Returns all locks as (client, owner, first, last, mode, condition), in order.
    pub(crate) fn held(&self) -> Vec<(u64, String, u64, u64, LockMode, LockCondition)> {
        let show = |entry: LockEntry<'_>| {
            let owner = String::from_utf8_lossy(entry.owner).into_owned();
            let LockEntry { range, mode, condition, .. } = entry;
            (entry.client.0, owner, range.first(), range.last(), mode, condition)
        };
        let mut held: Vec<_> = self.table.locks().map(show).collect();
        held.sort_by_key(|entry| (entry.2, entry.0, entry.1.clone()));
        held
    }

    /// Checks that the table is empty.
    pub(crate) fn assert_empty(&self) {
        let left = self.table.counters();
        let gauges = [left.locks, left.waiters, left.files, left.owners, left.clients];
        assert_eq!((gauges, left.rollbacks_running), ([0; 5], 0));
        assert!(self.table.is_empty());
    }
}
