//! The ways in which a call can end without its result.

use crate::nfs3::Wcc;
use crate::status;

/// A call without its result.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The procedure or operation has failed with a status.
    #[error("{what} fails with {}", status::name(*status))]
    Status {
        /// The name of the procedure or operation.
        what: String,
        /// The status in the reply.
        status: u32,
        /// The attributes that came with the status, in the order of the reply.
        wcc: Vec<Wcc>,
    },
    /// RPC accepted the call, but did not call the procedure.
    #[error("RPC answers {} {detail:?}", accept_name(*status))]
    NotDone {
        /// The accept status: 1 PROG_UNAVAIL to 5 SYSTEM_ERR.
        status: u32,
        /// The numbers that follow: the versions of PROG_MISMATCH.
        detail: Vec<u32>,
    },
    /// RPC denied the call.
    #[error("RPC denies the call: {status} {detail:?}")]
    Denied {
        /// The reject status: 0 RPC_MISMATCH, 1 AUTH_ERROR.
        status: u32,
        /// The numbers that follow: versions, or the reason.
        detail: Vec<u32>,
    },
    /// The server has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// The server has not answered.
    #[error("the server has not answered for {0} seconds")]
    Hangs(u64),
    /// The reply does not have the form that its specification gives it.
    #[error("the reply {0}")]
    Reply(String),
    /// A call of the operating system has failed.
    #[error("{0}")]
    Host(#[from] std::io::Error),
}

/// Returns the name of an accept status of RPC.
#[must_use]
pub const fn accept_name(status: u32) -> &'static str {
    match status {
        0 => "SUCCESS",
        1 => "PROG_UNAVAIL",
        2 => "PROG_MISMATCH",
        3 => "PROC_UNAVAIL",
        4 => "GARBAGE_ARGS",
        5 => "SYSTEM_ERR",
        _ => "an unknown status",
    }
}
