//! Tests of the messages of NFS and of the programs beside it: round trips of every type, messages
//! written by hand, and corpora.
//!
//! They are in one binary, because linking many takes longer than running them.

mod by_hand;
mod corpus;
mod nfs4_bytes;
mod nfs4_compounds;
mod nfs4_forms;
mod nfs4_tables;
mod round_trip;
mod tables;
