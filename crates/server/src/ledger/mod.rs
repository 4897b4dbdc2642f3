//! The way of requests of DAFS through the journal (`docs/decisions/0014-exactly-once.md`): what is
//! written down of them, who waits for it, and what a journal says at the start. What is written
//! down of clients and files is in [`dafs_files::ledger`].
//!
//! Invariant: as there; and what a record of a request means never changes.

mod gate;
mod legacy;
mod names;
mod record;
pub(crate) mod recovery;
pub(crate) mod requests;
mod verdict;
