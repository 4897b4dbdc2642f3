//! Byte-range locks (draft 4.4.1, 6.5.18 to 6.5.20).
//!
//! Invariant: two owners never have overlapping locks of which one is exclusive; what
//! broke is nobody's until it is repaired; what is being rolled back is locked to
//! everybody. No I/O, no clock, no randomness: calls and the time in, answers and
//! [`LockAction`]s out.
//!
//! # A lock's life
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
//! P is PERSIST, A is AUTORECOVERY. LOCKU and CLOSE end a held lock and make final what was
//! changed under it.
//!
//! # What the draft leaves open, and is decided here
//!
//! - **Mandatory or advisory** is the server's choice (RFC 3010 8); OPEN tells it by MLOCK.
//!   The description of READ ("if the file is locked the server will return LOCKED") has
//!   mandatory locks, and they are the default. Where they are advisory, broken ranges and
//!   running rollbacks are still kept from everybody, and writes by others under an
//!   auto-recovery lock are LOCKED: a rollback would undo them.
//! - **Broken locks** stand against reads and writes as a held lock of that mode would, as
//!   the draft says: a broken shared lock lets reads pass. They stand against their former
//!   owner, too.
//! - **Options** of own locks can be added by locking again and not taken away: LOCK_RANGE
//!   tells the client to unlock first. Pieces with different options are never joined.
//! - **Shared locks with AUTORECOVERY** are NOTSUPP. Nothing is changed under a shared lock
//!   alone, and a rollback would change data under the locks of others.
//! - **REPAIR** of what is merely breakable breaks it, and the answer is LOCK_BROKEN; so the
//!   draft says of whoever breaks a lock. Where nothing is broken, REPAIR is INVAL, which
//!   tells a repairer that somebody else was faster; so is a shared repair of an exclusive
//!   lock. A lock gained by REPAIR has PERSIST, asked or not. It takes over only the range
//!   asked for; the rest stays broken. RECLAIM and REPAIR never wait.
//! - **RECLAIM** of a lost lock is EXPIRED. It asks for just what was held: same owner, mode
//!   and options. Only a lock with options is to be had after the grace period.
//! - **ABORT** leaves the lock held, with nothing to undo. It is by range, as undo is.
//! - **LOCKU** ignores the mode, and may name what is not locked. Where undo is served for
//!   whole files alone, LOCKU and ABORT of part of such a lock are LOCK_RANGE.
//! - **CLOSE** unlocks (RFC 3010 8.9 allows it); it is no failure, so changes become final.
//! - **LOCKT** breaks nothing and sees no waiters.
//! - **Deadlock** has no status in the draft, nor in RFC 3010, where who waits polls for
//!   ever. RFC 3530 added NFS4ERR_DEADLOCK, 10045; the draft's numbers of that range are
//!   NFSv4's, so that number is used. See `circles` for which count.
//! - **Waiting.** Requests are served in order per file. A request without waiting is denied
//!   if an earlier waiter is in its way, though no lock is: else a stream of readers would
//!   starve a writer. The lock is kept for a waiter that is ready until it asks again or is
//!   silent too long (RFC 3010 8.3).
//! - **An own lock under rollback** is DELAY to its owner's LOCK and LOCKU.

mod action;
mod circles;
mod claims;
mod config;
mod failure;
mod interval;
mod io;
mod own;
mod owners;
mod range;
mod report;
mod request;
mod table;
mod waiters;
mod ways;

pub use action::{LockAction, LockId, LockRecord, RecordPhase, RollbackId};
pub use config::{AutoRecovery, LockConfig};
pub use failure::ForeignLocks;
pub use range::ByteRange;
pub use report::{LockCondition, LockCounters, LockEntry, WaiterEntry};
pub use request::{
    Claim, LockAnswer, LockAttributes, LockClient, LockConflict, LockError, LockMode, LockOwner,
    LockRequest, LockTestAnswer, OwnerName, Wait, WaiterId,
};
pub use table::LockTable;
