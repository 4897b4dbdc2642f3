//! Calls of NLM that wait.

use std::net::IpAddr;

use dafs_journal::RecordNumber;

use super::messages::Results;

/// A call of NLM that waits for an operation or for a journal record.
#[derive(Debug)]
pub(in crate::nfs) struct Pending {
    pub(super) reply: Reply,
    /// The results. `None` until the operation has ended.
    pub(super) results: Option<Results>,
    pub(super) after: RecordNumber,
}

/// What the reply to a call contains beside the results.
#[derive(Debug)]
pub(super) struct Reply {
    pub address: IpAddr,
    pub version: u32,
    pub cookie: Box<[u8]>,
    /// The procedure of the client that takes the results, if the reply does not contain them.
    pub returns_by: Option<u32>,
}
