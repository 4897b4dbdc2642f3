//! What is shown of requests: numbers, by what they are about.

use dafs_types::Status;
use dafs_wire::{Procedure, Response};

use super::histogram::Histogram;
use crate::access::authorize::TransportKind;

/// What came over something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of files that clients have read.
    pub read_bytes: u64,
    /// Bytes of files that clients have written.
    pub written_bytes: u64,
}

/// What requests of one procedure have come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureNumbers {
    /// Which; `None` for numbers that no procedure has.
    pub procedure: Option<Procedure>,
    /// Requests answered, however.
    pub requests: u64,
    /// Those of them that failed, by what they were told.
    pub failures: Vec<(Status, u64)>,
    /// Bytes of files that they moved.
    pub bytes: u64,
    /// How long they took, from arrival to answer. Sums to `requests` but for those that the next
    /// one timed will stand for.
    pub times: Histogram,
}

/// Bytes of a file that a request has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Nothing,
    Read(u32),
    Written(u32),
}

impl Moved {
    /// What results say. Those of APPEND do not.
    #[inline]
    pub fn by(response: &Response<'_>) -> Self {
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
    pub fn length(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Read(length) | Self::Written(length) => length,
        }
    }
}

/// A transport's connections and what came over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportNumbers {
    /// Which.
    pub transport: TransportKind,
    /// Connections now.
    pub connections: usize,
    /// Since the start, over all there were.
    pub traffic: Traffic,
}
