//! Helpers for tests of locks.

use dafs_filer::FileKey;
use dafs_filer::locks::*;
use dafs_types::*;

pub const FILE: FileKey = FileKey(1);
pub const END: u64 = u64::MAX;
pub const PLAIN: LockAttributes = LockAttributes::PLAIN;
pub const P: LockAttributes = LockAttributes { persist: true, auto_recovery: false };
pub const A: LockAttributes = LockAttributes { persist: false, auto_recovery: true };
pub const PA: LockAttributes = LockAttributes { persist: true, auto_recovery: true };
pub use LockMode::{Read, Write};

/// The bytes `first..=last`.
pub fn ends(first: u64, last: u64) -> ByteRange {
    ByteRange::from_ends(first, last).unwrap()
}

/// A configuration with all options, and small limits.
pub fn config() -> LockConfig {
    LockConfig { persistent: true, auto_recovery: AutoRecovery::Ranges, ..LockConfig::default() }
}

/// An owner of a client; clients and owners have names of one letter.
pub fn owner(client: u8, name: &'static str) -> LockOwner<'static> {
    life(client, 0, name)
}

/// Like [`owner`], in some incarnation of the client: id, verifier and state id differ between
/// incarnations.
pub fn life(client: u8, life: u8, name: &'static str) -> LockOwner<'static> {
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
pub fn request(mode: LockMode, first: u64, last: u64) -> LockRequest {
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

pub fn with(attributes: LockAttributes, request: LockRequest) -> LockRequest {
    LockRequest { attributes, ..request }
}

pub fn claiming(claim: Claim, request: LockRequest) -> LockRequest {
    LockRequest { claim, ..request }
}

pub fn polling(waiter: u64, request: LockRequest) -> LockRequest {
    LockRequest { wait: Wait::Poll(WaiterId(waiter)), ..request }
}

pub fn parked(waiter: u64, request: LockRequest) -> LockRequest {
    LockRequest { wait: Wait::Parked(WaiterId(waiter)), ..request }
}

pub fn conflict(owner: &LockOwner<'_>, mode: LockMode, first: u64, last: u64) -> LockConflict {
    LockConflict {
        client: owner.client.id,
        owner: Box::from(owner.owner),
        range: ends(first, last),
        mode,
    }
}

pub fn denied(by: &LockOwner<'_>, mode: LockMode, first: u64, last: u64) -> LockReply {
    LockReply::Denied(conflict(by, mode, first, last))
}

pub fn broken(by: &LockOwner<'_>, mode: LockMode, first: u64, last: u64) -> LockReply {
    LockReply::Broken(conflict(by, mode, first, last))
}

/// A record as the table should write it.
pub fn record(
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

pub fn write(record: LockRecord) -> LockAction {
    LockAction::WriteRecord(Box::new(record))
}

pub fn remove(id: u64) -> LockAction {
    LockAction::RemoveRecord(LockId(id))
}

pub fn keep_undo(first: u64, last: u64) -> LockAction {
    LockAction::KeepUndo { file: FILE, range: ends(first, last) }
}

pub fn drop_undo(first: u64, last: u64) -> LockAction {
    LockAction::DropUndo { file: FILE, range: ends(first, last) }
}

pub fn roll_back(rollback: u64, first: u64, last: u64) -> LockAction {
    LockAction::Rollback { rollback: RollbackId(rollback), file: FILE, range: ends(first, last) }
}

pub fn ready(waiter: u64) -> LockAction {
    LockAction::Ready { waiter: WaiterId(waiter), file: FILE }
}

pub fn gone(waiter: u64) -> LockAction {
    LockAction::WaiterGone { waiter: WaiterId(waiter) }
}

pub const T0: Moment = Moment(0);

/// A table and the actions of its last call.
pub struct Bench {
    pub table: LockTable,
}

impl Bench {
    pub fn new(config: LockConfig) -> Self {
        config.check().unwrap();
        Self { table: LockTable::new(config) }
    }

    pub fn actions(&mut self) -> Vec<LockAction> {
        std::iter::from_fn(|| self.table.poll_action()).collect()
    }

    /// Takes a lock that must be granted without any action.
    pub fn take(&mut self, owner: &LockOwner<'_>, request: LockRequest) {
        assert_eq!(self.table.lock(owner, &request, T0), Ok(LockReply::Granted), "{request:?}");
        self.actions();
    }

    pub fn ask(&mut self, owner: &LockOwner<'_>, request: LockRequest) -> LockReply {
        self.table.lock(owner, &request, T0).unwrap()
    }

    pub fn refused(&mut self, owner: &LockOwner<'_>, request: LockRequest) -> LockError {
        let error = self.table.lock(owner, &request, T0).unwrap_err();
        assert_eq!(self.actions(), []);
        error
    }

    pub fn unlock(&mut self, owner: &LockOwner<'_>, first: u64, last: u64) {
        let length = ends(first, last).length();
        self.table.unlock(owner.name(), FILE, first, length, T0).unwrap();
    }

    /// Returns all locks as (client, owner, first, last, mode, condition), in order.
    pub fn held(&self) -> Vec<(u64, String, u64, u64, LockMode, LockCondition)> {
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
    pub fn assert_empty(&self) {
        let left = self.table.counters();
        let gauges = [left.locks, left.waiters, left.files, left.owners, left.clients];
        assert_eq!((gauges, left.rollbacks_running), ([0; 5], 0));
        assert!(self.table.is_empty());
    }
}
