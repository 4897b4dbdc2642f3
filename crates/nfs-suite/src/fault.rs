//! The ways in which a call can fail to return results.

use crate::nfs3::Wcc;
use crate::status;

/// The reason why a call has no results.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The procedure or operation has failed with a status.
    #[error("{what} fails with {}", status::name(*status))]
    Status {
        /// The name of the procedure or operation.
        what: String,
        /// The status in the reply.
        status: u32,
        /// The attributes in the reply, in their order.
        wcc: Vec<Wcc>,
    },
    /// The server accepted the call at the level of RPC, but did not execute the procedure.
    #[error("RPC answers {} {detail:?}", accept_name(*status))]
    NotDone {
        /// The accept status, from 1 (PROG_UNAVAIL) to 5 (SYSTEM_ERR).
        status: u32,
        /// The numbers after the status: for PROG_MISMATCH, the lowest and the highest supported
        /// version.
        detail: Vec<u32>,
    },
    /// The server denied the call at the level of RPC.
    #[error("RPC denies the call: {status} {detail:?}")]
    Denied {
        /// The reject status: 0 for RPC_MISMATCH, 1 for AUTH_ERROR.
        status: u32,
        /// The numbers after the status: for RPC_MISMATCH the supported versions, for AUTH_ERROR
        /// the reason.
        detail: Vec<u32>,
    },
    /// The server has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// The server has not replied within the time limit.
    #[error("the server has not answered for {0} seconds")]
    Hangs(u64),
    /// The reply is not valid; the text says why.
    #[error("the reply {0}")]
    Reply(String),
    /// A call of the operating system has failed.
    #[error("the operating system refuses a call")]
    Host(#[from] std::io::Error),
}

/// The accept status of RPC for a program that the server does not have.
pub const PROG_UNAVAIL: u32 = 1;
/// The accept status of RPC for a version that the program does not have.
pub const PROG_MISMATCH: u32 = 2;
/// The accept status of RPC for a procedure that the program does not have.
pub const PROC_UNAVAIL: u32 = 3;
/// The accept status of RPC for arguments that cannot be decoded.
pub const GARBAGE_ARGS: u32 = 4;

/// Returns the name of an accept status of RPC.
#[must_use]
pub const fn accept_name(status: u32) -> &'static str {
    match status {
        0 => "SUCCESS",
        PROG_UNAVAIL => "PROG_UNAVAIL",
        PROG_MISMATCH => "PROG_MISMATCH",
        PROC_UNAVAIL => "PROC_UNAVAIL",
        GARBAGE_ARGS => "GARBAGE_ARGS",
        5 => "SYSTEM_ERR",
        _ => "an unknown status",
    }
}
