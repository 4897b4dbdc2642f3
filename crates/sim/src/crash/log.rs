//! The checker of the log that all members append to.
//!
//! Invariants:
//! - A record whose append was acknowledged is at the position that the reply named, exactly once
//!   and permanently.
//! - A record that was reported as not appended is not in the log until it is appended again.
//! - After a fence has excluded the writer of a record, those records of this writer that reads
//!   have returned stay in the log, and no further records of this writer appear.

use std::collections::BTreeMap;

use super::cells::Tick;
use super::requests::MemberIndex;

/// The id of a record. The id 0 stands for the bytes that an append may leave after it was rolled
/// back.
pub(super) type RecordId = u64;

#[derive(Debug)]
struct Record {
    member: MemberIndex,
    /// The position in the log that the reply to the append named, counted in records. `None` if
    /// there was no reply.
    place: Option<u64>,
    answered: Option<Tick>,
    /// The moment at which the server reported that the record was not appended.
    absent: Option<Tick>,
    /// The moment at which a fencing list excluded the writer. `None` if none did.
    shut_out: Option<Tick>,
    /// The position at which a read returned the record after a fencing list had excluded its
    /// writer. The record must stay there.
    stays: Option<u64>,
}

/// The end of the log, as a read has found it.
#[derive(Debug)]
struct End {
    begin: Tick,
    end: Tick,
    place: u64,
}

/// The state of the log.
#[derive(Debug, Default)]
pub(super) struct Log {
    records: BTreeMap<RecordId, Record>,
    ends: Vec<End>,
    crashes: u64,
}

impl Log {
    /// Records that the append of a record begins, for the first time or again.
    pub(super) fn begin(&mut self, id: RecordId, member: MemberIndex) {
        let (place, answered, absent, shut_out, stays) = (None, None, None, None, None);
        let record = Record { member, place, answered, absent, shut_out, stays };
        self.records.insert(id, record);
    }

    pub(super) fn end(&mut self, id: RecordId, offset: u64, now: Tick) -> Result<(), String> {
        let Some(record) = self.records.get_mut(&id) else { return Ok(()) };
        if !offset.is_multiple_of(RECORD_BYTES as u64) {
            return Err(format!("record {id} was appended at {offset}"));
        }
        let place = offset / RECORD_BYTES as u64;
        if record.stays.is_some_and(|stays| stays != place) {
            return Err(format!("the reply says that record {id} is at {place}: {record:?}"));
        }
        (record.place, record.answered) = (Some(place), Some(now));
        let taken = self
            .records
            .iter()
            .find(|(other, record)| **other != id && record.place == Some(place));
        match taken {
            Some((other, _)) => Err(format!("records {id} and {other} are both at {place}")),
            None => Ok(()),
        }
    }

    /// Records that a record was not appended.
    pub(super) fn cancel(&mut self, id: RecordId, now: Tick) -> Result<(), String> {
        let Some(record) = self.records.get_mut(&id) else { return Ok(()) };
        record.absent = Some(now);
        match record.stays {
            Some(_) => {
                Err(format!("record {id} was seen after the fence but is missing: {record:?}"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn crash(&mut self) {
        self.crashes += 1;
    }

    /// Records that a fencing list has excluded these members.
    pub(super) fn shut_out(&mut self, is_out: impl Fn(MemberIndex) -> bool, now: Tick) {
        let open = self.records.values_mut().filter(|record| record.answered.is_none());
        for record in open.filter(|record| is_out(record.member) && record.absent.is_none()) {
            record.shut_out.get_or_insert(now);
        }
    }

    /// Records that these members may be admitted again. Records that they sent while they were
    /// excluded may still be appended.
    pub(super) fn let_in(&mut self, is_in: impl Fn(MemberIndex) -> bool) {
        let open = self.records.values_mut().filter(|record| record.answered.is_none());
        for record in open.filter(|record| is_in(record.member)) {
            record.shut_out = None;
        }
    }

    /// Checks a page of the log that was read, starting at a position.
    pub(super) fn see(
        &mut self,
        from: u64,
        bytes: &[u8],
        wanted: usize,
        begin: Tick,
        now: Tick,
    ) -> Result<(), String> {
        if !bytes.len().is_multiple_of(RECORD_BYTES) {
            return Err(format!("a partial record: {} bytes from {from} on", bytes.len()));
        }
        let mut found = BTreeMap::new();
        for (index, bytes) in bytes.chunks(RECORD_BYTES).enumerate() {
            let id = stamp_of(bytes).ok_or_else(|| format!("a torn record at {from}+{index}"))?;
            let place = from + index as u64;
            if id == 0 {
                if self.crashes == 0 {
                    return Err(format!("zeros at {place}, but no append was rolled back"));
                }
                continue;
            }
            if let Some(other) = found.insert(id, place) {
                return Err(format!("record {id} is at {other} and at {place}"));
            }
            self.see_one(id, place, begin)?;
        }
        let reached = from + (bytes.len() / RECORD_BYTES) as u64;
        let last = from + (wanted / RECORD_BYTES) as u64;
        let missing = self.records.iter().find(|(id, record)| {
            let answered = record.place.filter(|_| record.answered.is_some_and(|at| at < begin));
            let place = answered.or(record.stays.filter(|_| record.answered.is_none()));
            place.is_some_and(|place| {
                (from..last).contains(&place) && found.get(*id) != Some(&place)
            })
        });
        if let Some((id, record)) = missing {
            return Err(format!("record {id} is missing: {record:?}"));
        }
        if reached < last {
            self.ends.push(End { begin, end: now, place: reached });
        }
        Ok(())
    }

    fn see_one(&mut self, id: RecordId, place: u64, begin: Tick) -> Result<(), String> {
        let Some(record) = self.records.get_mut(&id) else {
            return Err(format!("record {id} at {place} is nobody's"));
        };
        if record.place.is_some_and(|answered| answered != place) {
            return Err(format!("record {id} is at {place}: {record:?}"));
        }
        if record.absent.is_some_and(|absent| absent < begin) {
            return Err(format!("record {id} is at {place}, but was not executed: {record:?}"));
        }
        if let Some(shut_out) = record.shut_out
            && shut_out < begin
        {
            let passed = self
                .ends
                .iter()
                .find(|end| end.begin > shut_out && end.end < begin && end.place <= place);
            if let Some(end) = passed {
                return Err(format!("record {id} appeared at {place} after {end:?}: {record:?}"));
            }
            record.stays = Some(place);
        }
        Ok(())
    }

    /// Returns the maximum number of pages of the log.
    pub(super) fn pages(&self) -> u64 {
        self.records.len() as u64 * 2 / PAGE_RECORDS + 1
    }
}

/// Returns the integer whose repetition the bytes of a cell or record are. `None` if they are not a
/// repetition of one integer.
pub(super) fn stamp_of(bytes: &[u8]) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
    let first = words.next()?.ok()?;
    words.all(|word| word.is_ok_and(|word| word == first)).then_some(first)
}

/// Returns `length` bytes that repeat an integer.
pub(super) fn stamped(number: u64, length: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(length / 8)
}

/// The size of a record in bytes.
pub(super) const RECORD_BYTES: usize = 64;
/// The number of records that one read returns.
pub(super) const PAGE_RECORDS: u64 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ids: &[u64]) -> Vec<u8> {
        ids.iter().flat_map(|id| stamped(*id, RECORD_BYTES)).collect()
    }

    const WANTED: usize = PAGE_RECORDS as usize * RECORD_BYTES;

    #[test]
    fn an_acknowledged_record_stays() {
        let mut log = Log::default();
        log.begin(7, 0);
        log.end(7, 64, 5).unwrap();
        log.begin(8, 0);
        assert!(log.see(0, &page(&[8, 7]), WANTED, 6, 7).is_ok());
        assert!(log.see(0, &page(&[7, 8]), WANTED, 8, 9).is_err());
        assert!(log.see(0, &page(&[8]), WANTED, 10, 11).is_err());
        assert!(log.see(0, &page(&[0, 7]), WANTED, 12, 13).is_err());
        log.crash();
        assert!(log.see(0, &page(&[0, 7]), WANTED, 14, 15).is_ok());
        assert!(log.see(0, &page(&[7, 7]), WANTED, 16, 17).is_err());
    }

    #[test]
    fn a_cancelled_record_is_not_there() {
        let mut log = Log::default();
        log.begin(7, 0);
        log.cancel(7, 5).unwrap();
        assert!(log.see(0, &page(&[7]), WANTED, 6, 7).is_err());
        log.begin(7, 0);
        assert!(log.see(0, &page(&[7]), WANTED, 8, 9).is_ok());
    }

    #[test]
    fn after_a_fence_no_record_appears_and_seen_records_stay() {
        let mut log = Log::default();
        log.begin(7, 1);
        log.begin(8, 1);
        log.shut_out(|_| true, 5);
        assert!(log.see(0, &page(&[7]), WANTED, 6, 7).is_ok());
        assert!(log.see(0, &page(&[7, 8]), WANTED, 8, 9).is_err());
        assert!(log.cancel(7, 10).is_err());
    }
}
