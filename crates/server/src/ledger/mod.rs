//! The handling of DAFS requests in the journal (`docs/decisions/0014-exactly-once.md`): the
//! records about requests, the requests that wait for records, and recovery at the start. The
//! records about clients and files are in [`dafs_files::ledger`].
//!
//! Invariant: the meaning of a record never changes. The invariants of [`dafs_files::ledger`] hold
//! here too.

mod gate;
mod legacy;
mod names;
mod record;
pub(crate) mod recovery;
pub(crate) mod requests;
mod verdict;
