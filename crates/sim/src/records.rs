//! The model that checks the file to which all clients append records concurrently.
//!
//! Invariant: every acknowledged record is at the position that its reply named, exactly once. If
//! the connection of an append broke, its record is in the file once or not at all. The file
//! contains nothing else.

use std::collections::BTreeMap;

use dafs_types::Entropy;

use crate::operation::OperationNumber;
use dafs_types::Random;

/// The records and their positions.
#[derive(Debug, Default)]
pub(crate) struct Records {
    appends: BTreeMap<OperationNumber, Record>,
    /// The offset at which the acknowledged records end.
    reached: u64,
}

#[derive(Debug)]
struct Record {
    length: u32,
    offset: Option<u64>,
    /// True if the record cannot be appended any more.
    is_over: bool,
}

/// Returns the bytes of a record: the number of its operation, its length, and then bytes derived
/// from both.
pub(crate) fn record(number: OperationNumber, length: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend_from_slice(&number.0.to_le_bytes());
    bytes.extend_from_slice(&u64::from(length).to_le_bytes());
    let seed = Random::new(number.0).next_u64();
    bytes.extend(Random::new(seed).bytes(length as usize - HEAD_BYTES));
    bytes
}

impl Records {
    pub(crate) fn begin(&mut self, number: OperationNumber, length: u32) {
        self.appends.insert(number, Record { length, offset: None, is_over: false });
    }

    /// Records that an append was acknowledged.
    pub(crate) fn end(&mut self, number: OperationNumber, offset: u64) {
        if let Some(record) = self.appends.get_mut(&number) {
            record.offset = Some(offset);
            record.is_over = true;
            self.reached = self.reached.max(offset + u64::from(record.length));
        }
    }

    /// Records that an append can no longer be executed.
    pub(crate) fn settle(&mut self, number: OperationNumber) {
        if let Some(record) = self.appends.get_mut(&number) {
            record.is_over = true;
        }
    }

    /// Returns the offset at which the acknowledged records end.
    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    /// Checks a read that began at the start of the file. `reached` bytes of records were
    /// acknowledged before the read.
    pub(crate) fn see(&self, bytes: &[u8], wanted: u32, reached: u64) -> Result<(), String> {
        let least = reached.min(u64::from(wanted));
        if (bytes.len() as u64) < least {
            return Err(format!("{} bytes of records instead of at least {least}", bytes.len()));
        }
        let mut at = 0;
        let mut found = BTreeMap::new();
        while bytes.len() - at >= HEAD_BYTES {
            let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
            let (Ok(number), Ok(length)) = (word(at), word(at + 8)) else { break };
            let number = OperationNumber(number);
            let known = self.appends.get(&number).filter(|r| u64::from(r.length) == length);
            let Some(known) = known else {
                return Err(format!("no record begins at {at}: operation {number:?}, {length}"));
            };
            if known.offset.is_some_and(|offset| offset != at as u64) {
                return Err(format!("{number:?} is at {at}, acknowledged as {known:?}"));
            }
            let expected = record(number, known.length);
            let here = expected.len().min(bytes.len() - at);
            if bytes[at..at + here] != expected[..here] {
                return Err(format!("the record of {number:?} at {at} is damaged"));
            }
            if found.insert(number, at).is_some() {
                return Err(format!("{number:?} occurs twice"));
            }
            at += here;
        }
        let is_missing = |(number, record): &(&OperationNumber, &Record)| {
            record.offset.is_some_and(|offset| {
                offset + (HEAD_BYTES as u64) <= bytes.len() as u64 && !found.contains_key(number)
            })
        };
        match self.appends.iter().find(is_missing) {
            Some((number, record)) => Err(format!("{number:?} is missing: {record:?}")),
            None => Ok(()),
        }
    }
}

/// The length in bytes of the beginning of a record, which contains the operation's number and the
/// record's length. It is the length of the shortest record.
pub(crate) const HEAD_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_records_must_be_at_their_position() {
        let mut records = Records::default();
        let (one, two) = (OperationNumber(1), OperationNumber(2));
        records.begin(one, 20);
        records.begin(two, 30);
        records.end(two, 0);
        let (first, second) = (record(one, 20), record(two, 30));
        let both = [second.clone(), first.clone()].concat();
        assert!(records.see(&both, 100, 30).is_ok());
        assert!(records.see(&second, 100, 30).is_ok());
        assert!(records.see(&[first, second.clone()].concat(), 100, 30).is_err());
        assert!(records.see(&[second.clone(), second.clone()].concat(), 100, 30).is_err());
        assert!(records.see(&second[..29], 100, 30).is_err());
    }
}
