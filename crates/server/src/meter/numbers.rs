//! Types for the statistics of requests, as returned by inspection.

use dafs_types::Status;
use dafs_wire::{Procedure, Response};

use super::histogram::Histogram;
use crate::access::authorize::TransportKind;

/// Counters of the traffic over a session or transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of requests to which a reply was sent.
    pub requests: u64,
    /// The number of file bytes that clients have read.
    pub read_bytes: u64,
    /// The number of file bytes that clients have written.
    pub written_bytes: u64,
}

/// The statistics of one procedure since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureNumbers {
    /// The procedure. `None` for requests with an unknown procedure number.
    pub procedure: Option<Procedure>,
    /// The number of requests to which a reply was sent, including failed requests.
    pub requests: u64,
    /// The failure statuses of requests, each with the number of requests that failed with it.
    pub failures: Vec<(Status, u64)>,
    /// The number of file bytes that the requests read or wrote.
    pub bytes: u64,
    /// The times from arrival to reply. The counts add up to `requests` minus the most recent
    /// requests, which are added when the next request is timed.
    pub times: Histogram,
}

/// The number of file bytes that a request has read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Nothing,
    Read(u32),
    Written(u32),
}

impl Moved {
    /// Extracts the number of bytes from the results of a request. The results of APPEND do not
    /// contain the number.
    #[inline]
    pub(crate) fn by(response: &Response<'_>) -> Self {
        match response {
            Response::ReadDirect(results) => Self::Read(results.length),
            Response::ReadInline(results) => {
                Self::Read(u32::try_from(results.data.len()).unwrap_or(u32::MAX))
            }
            Response::WriteDirect(results) | Response::WriteInline(results) => {
                Self::Written(results.length)
            }
            _ => Self::Nothing,
        }
    }

    #[inline]
    pub(crate) fn length(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Read(length) | Self::Written(length) => length,
        }
    }
}

/// The statistics of one transport since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportNumbers {
    /// The transport that these statistics describe.
    pub transport: TransportKind,
    /// The number of connections that are open now.
    pub connections: usize,
    /// The traffic of all connections since the start, including ended connections.
    pub traffic: Traffic,
}
