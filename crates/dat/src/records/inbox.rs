//! The queue of the records of one connection that were not handled yet.
//!
//! Invariant: the queue exceeds its limits by at most the records of one read from the socket.

use std::collections::VecDeque;

/// Complete records, in the order in which they have arrived.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    is_full: bool,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns true if the connection must not be read. After the queue was full, this is the case
    /// until half of it is handled.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns true if a record has at least this number of bytes.
    pub(super) fn has_records_of(&self, bytes: usize) -> bool {
        self.records.iter().any(|record| record.len() >= bytes)
    }

    pub(super) fn push(&mut self, record: Vec<u8>) {
        self.bytes += record.len();
        self.records.push_back(record);
        self.is_full |= self.bytes >= BYTES_MAX || self.records.len() >= RECORDS_MAX;
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let record = self.records.pop_front()?;
        self.bytes -= record.len();
        self.is_full &= self.bytes > BYTES_MAX / 2 || self.records.len() > RECORDS_MAX / 2;
        Some(record)
    }
}

/// The number of bytes and of records at which the queue is full.
const BYTES_MAX: usize = 256 << 10;
const RECORDS_MAX: usize = 256;
