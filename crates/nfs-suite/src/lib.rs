//! Checks an NFS server against its standards, with a table of cases and with hostile clients.
//!
//! The program knows nothing of DAFS. It also has encodings of its own, written from the RFCs, so
//! that a mistake in the server's codec cannot hide behind the same mistake here.
//!
//! - `nfs-suite URL`: the cases of [`cases`], which [`suite`] runs.
//! - [`hostile`]: clients that break rules in large numbers, while another client works.
//!
//! Invariant: a case gets a connection and a directory of its own.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cases;
pub mod fault;
pub mod hostile;
pub mod mount;
pub mod nfs3;
pub mod rpc;
pub mod status;
pub mod suite;
pub mod xdr;
