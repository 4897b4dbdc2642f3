//! Tests whether an NFS server conforms to its standards, by a table of test cases and by hostile
//! clients.
//!
//! The program does not depend on DAFS. It even has its own encodings, written from the RFCs, so
//! that a mistake in the server's codec cannot go unnoticed because the test makes the same
//! mistake.
//!
//! - `nfs-suite URL`: runs the test cases in [`cases`], by means of [`suite`].
//! - [`hostile`]: many clients that violate the protocol, while another client works normally.
//!
//! Invariant: each test case has its own connection and its own directory.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cases;
pub mod fault;
pub mod hostile;
pub mod mount;
pub mod nfs3;
pub mod nfs4;
pub mod nlm;
pub mod rpc;
pub mod status;
pub mod suite;
pub mod xdr;
