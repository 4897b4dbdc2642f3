//! Byte-range locks (draft 4.4.1, 6.5.18 to 6.5.20).
//!
//! Invariants:
//! - Locks of two owners never overlap if one of them is exclusive.
//! - A broken lock belongs to no owner until it is repaired.
//! - A range that is being rolled back is locked for all owners.
//! - The module does no I/O and uses neither a clock nor random numbers: calls and the time are its
//!   input, replies and [`LockAction`]s its output.
//!
//! # The phases of a lock
//!
//! ```text
//!               client back, RECLAIM                           server restart
//!             ┌──────────────────────┐                 ┌──────────────────────────┐
//!             ▼     lease (P, P+A)   │                 ▼   grace over (P, P+A)    │
//! ─LOCK─►  Held ────────────────► Breakable ◄──── Survived ◄─────────────── on record
//!           │ ▲                      │              │   │
//!      ABORT│ │done      conflicting │              │   │grace over (A)
//!           ▼ │              request │              │   ▼
//!        rolling back                │              │  rolling back ─done─► gone
//!                                    ▼              │client restart
//!   client restart (P) ──────────► Broken ◄─────────┘
//!   client restart (P+A), break (P+A) ─► rolling back ─done─► Broken ─REPAIR─► Held
//!   lease or client restart (A) ───────► rolling back ─done─► gone
//!   lease or client restart (plain) ───────────────────────► gone
//! ```
//!
//! P is PERSIST, A is AUTORECOVERY. LOCKU and CLOSE end a held lock and make the changes under it
//! final.
//!
//! # Decisions where the draft is silent
//!
//! - **Mandatory or advisory** locks are the server's choice (RFC 3010 8); the MLOCK flag in the
//!   reply to OPEN reports it. The description of READ ("if the file is locked the server will
//!   return LOCKED") implies mandatory locks, so they are the default. If locks are advisory,
//!   broken ranges and ranges under rollback are still closed to all owners, and writes by other
//!   owners under an auto-recovery lock get LOCKED, because a rollback would undo them.
//! - **Broken locks** block reads and writes like a held lock of the same mode, as the draft says:
//!   a broken shared lock permits reads. Broken locks also block their former owner.
//! - **Options** of an owner's locks can be added by locking again, but not removed: LOCK_RANGE
//!   tells the client to unlock first. Pieces with different options are never joined.
//! - **Shared locks with AUTORECOVERY** get NOTSUPP. A shared lock alone permits no changes, and a
//!   rollback would change data under the locks of other owners.
//! - **REPAIR** of a lock that is only breakable breaks it, and the status is LOCK_BROKEN, as the
//!   draft defines for a request that breaks a lock. If nothing is broken, REPAIR gets INVAL, which
//!   tells the client that another client has already repaired the lock. A shared repair of an
//!   exclusive lock also gets INVAL. A lock obtained by REPAIR always has PERSIST. REPAIR takes
//!   over only the requested range; the rest stays broken. RECLAIM and REPAIR never wait.
//! - **RECLAIM** of a lost lock gets EXPIRED. The request must match the lost lock exactly in its
//!   owner, mode and options. After the grace period only a lock with options can be reclaimed.
//! - **ABORT** leaves the lock held, without undo data. It applies to a range, because undo data is
//!   kept for ranges.
//! - **LOCKU** ignores the mode, and its range may contain bytes that are not locked. If the server
//!   supports undo data for whole files only, LOCKU and ABORT of part of such a lock get
//!   LOCK_RANGE.
//! - **CLOSE** unlocks (RFC 3010 8.9 allows it). It is not a failure, so changes become final.
//! - **LOCKT** breaks nothing and ignores waiters.
//! - **Deadlock** has no status in the draft or in RFC 3010, where a waiting client polls forever.
//!   RFC 3530 added NFS4ERR_DEADLOCK, 10045. The draft's numbers in that range are those of NFSv4,
//!   so this server uses that number. The module `deadlocks` defines which cycles are deadlocks.
//! - **Waiting.** The requests for a file are served in the order of arrival. A request that does
//!   not wait is denied if an earlier waiter blocks it, even if no lock does; otherwise a stream of
//!   readers would starve a writer. When a waiter is ready, the lock is reserved for it until it
//!   repeats its request or has been silent too long (RFC 3010 8.3).
//! - **LOCK and LOCKU get DELAY** if a lock of the same owner is being rolled back in the range.

mod action;
mod claims;
mod config;
mod conflicts;
mod deadlocks;
mod failure;
mod interval;
mod io;
mod owners;
mod pieces;
mod range;
mod report;
mod request;
mod table;
mod waiters;
mod watches;

pub use action::{LockAction, LockId, LockRecord, RecordPhase, RollbackId};
pub use config::{AutoRecovery, LockConfig};
pub use failure::ForeignLocks;
pub use range::ByteRange;
pub use report::{LockCondition, LockCounters, LockEntry, WaiterEntry};
pub use request::{
    Claim, LockAttributes, LockClient, LockConflict, LockError, LockMode, LockOwner, LockReply,
    LockRequest, LockTestReply, OwnerName, Wait, WaiterId,
};
pub use table::LockTable;
pub use watches::LockWatch;
