//! Statistics of requests, as shown to others.

use dafs_types::Status;
use dafs_wire::{Procedure, Response};

use super::histogram::Histogram;
use crate::access::authorize::TransportKind;

/// Counters of the traffic over a session or transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of answered requests.
    pub requests: u64,
    /// The number of file bytes that clients have read.
    pub read_bytes: u64,
    /// The number of file bytes that clients have written.
    pub written_bytes: u64,
}

/// The statistics of one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureNumbers {
    /// The procedure; `None` for all unknown numbers.
    pub procedure: Option<Procedure>,
    /// The number of answered requests, failed ones included.
    pub requests: u64,
    /// The number of failed requests for each status.
    pub failures: Vec<(Status, u64)>,
    /// The number of file bytes that the requests moved.
    pub bytes: u64,
    /// The times from arrival to reply. The counts add up to `requests`, except for the most recent
    /// requests, which the next timed one will stand for.
    pub times: Histogram,
}

/// The file bytes that a request has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Nothing,
    Read(u32),
    Written(u32),
}

impl Moved {
    /// The number that the results contain. Those of APPEND contain none.
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

/// The statistics of one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportNumbers {
    /// The transport that is counted.
    pub transport: TransportKind,
    /// The number of current connections.
    pub connections: usize,
    /// The traffic of all connections since the start.
    pub traffic: Traffic,
}
