//! The first phase of recovery, which finds the valid segments and the end of each.
//!
//! Invariant: a torn end is accepted only where one is possible: after the last group of the newest
//! segment, if no later group proves that the torn data was once complete. Any other deviation from
//! the data that was written is an error.

use std::collections::{BTreeMap, BTreeSet};

use super::segment::{HEADER_BYTES, NoHeader, SegmentHeader};
use super::{FLAG_CHECKPOINT, FLAG_END, LogError, SLOT_PREFIX, Slot};
use crate::group::{BLOCK_BYTES, Found, GroupRead, find_later_group, lineage_at};
use crate::storage::{Storage, read_whole};

/// The blobs in the storage directory.
#[derive(Default)]
pub(super) struct Survey {
    /// The segments with a valid header, by number.
    pub segments: BTreeMap<u64, (Slot, SegmentHeader)>,
    /// The blobs without a header.
    pub blank: Vec<Slot>,
    /// The numbers in the names of all these blobs.
    pub slots: BTreeSet<u64>,
}

impl Survey {
    pub(super) fn make(storage: &dyn Storage) -> Result<Self, LogError> {
        let mut survey = Self::default();
        for name in storage.list()? {
            let Some(number) = name.number_behind(SLOT_PREFIX) else { continue };
            let blob = storage.open(&name)?;
            survey.slots.insert(number);
            let mut bytes = [0; HEADER_BYTES];
            let decoded = match read_whole(&*blob, 0, &mut bytes)? {
                true => SegmentHeader::decode(&bytes),
                false => Err(NoHeader::Absent),
            };
            let slot = Slot { name: name.clone(), blob };
            match decoded {
                Ok(header) => survey.add(slot, header)?,
                Err(NoHeader::Absent) => survey.blank.push(slot),
                Err(NoHeader::Version(version)) => {
                    return Err(LogError::Version { name, version });
                }
            }
        }
        Ok(survey)
    }

    fn add(&mut self, slot: Slot, header: SegmentHeader) -> Result<(), LogError> {
        if self.segments.values().any(|(_, other)| other.journal != header.journal) {
            return Err(LogError::Foreign { name: slot.name });
        }
        if self.segments.contains_key(&header.number) {
            return Err(corrupt(&slot, 0, "another file has the same segment number"));
        }
        if header.segment_bytes > slot.blob.length()? {
            return Err(corrupt(&slot, 0, "the file is shorter than its header says"));
        }
        self.segments.insert(header.number, (slot, header));
        Ok(())
    }

    /// Detects damaged headers. A blob without a header must not contain a group of the part of the
    /// journal that is still needed, because no group is written before its segment's header is
    /// complete.
    fn check_blanks(&self, oldest: u64) -> Result<(), LogError> {
        for slot in &self.blank {
            let Some(lineage) = lineage_at(&*slot.blob, BLOCK_BYTES as u64)? else { continue };
            let is_ours = match self.segments.values().next() {
                Some((_, header)) => header.journal.0 == lineage.stream && lineage.part >= oldest,
                None => true,
            };
            if is_ours {
                return Err(corrupt(slot, 0, "the segment's header is damaged"));
            }
        }
        Ok(())
    }
}

/// A valid segment.
pub(super) struct Scanned {
    pub slot: Slot,
    pub header: SegmentHeader,
    /// The offset at which the groups of the segment end.
    pub end: u64,
    /// The number of the record that follows the last record of the segment.
    pub next_record: u64,
    /// The total number of bytes of the segment's records.
    pub record_bytes: u64,
    /// The offset of the end of the last group that contains a record or the end of a checkpoint.
    /// `None` if there is no such group.
    useful_end: Option<u64>,
    /// The offset of the last group. `None` if the segment has no groups.
    pub last_group: Option<u64>,
    ends_checkpoint: bool,
}

/// All valid segments, oldest first. The first segment contains the beginning of the journal or of
/// a complete checkpoint.
pub(super) struct Chain {
    pub segments: Vec<Scanned>,
    /// True if no group follows the last group of the journal, so that nothing proves that the last
    /// group is durable.
    pub is_last_unproven: bool,
    /// A number above every segment number that was ever used.
    pub next_segment: u64,
}

/// Follows the links between segments, from the newest segment back to the segment at which
/// recovery starts.
pub(super) fn chain_of(survey: &Survey) -> Result<Chain, LogError> {
    let Some((&newest, _)) = survey.segments.last_key_value() else {
        survey.check_blanks(0)?;
        return Ok(Chain { segments: Vec::new(), is_last_unproven: false, next_segment: 1 });
    };
    let mut segments: Vec<Scanned> = Vec::new();
    let (mut number, mut missing_from) = (newest, None);
    loop {
        let Some((slot, header)) = survey.segments.get(&number) else {
            // Only the following segment knows the missing one.
            let (slot, _) = &survey.segments[&missing_from.unwrap_or(newest)];
            return Err(corrupt(slot, 32, "the preceding segment is missing"));
        };
        let scanned = scan(slot, header, segments.last())?;
        segments.push(scanned);
        if header.previous == 0 || is_whole_checkpoint(&segments) {
            break;
        }
        if header.previous >= number {
            return Err(corrupt(slot, 32, "the number of the preceding segment is wrong"));
        }
        missing_from = Some(number);
        number = header.previous;
    }
    segments.reverse();
    survey.check_blanks(segments[0].header.number)?;
    let is_last_unproven = drop_useless_tail(&mut segments);
    Ok(Chain { segments, is_last_unproven, next_segment: newest + 1 })
}

/// Returns true if the last of `segments`, which are ordered from newest to oldest, begins a
/// checkpoint whose end is present.
fn is_whole_checkpoint(segments: &[Scanned]) -> bool {
    let Some((first, later)) = segments.split_last() else { return false };
    let next_start = later.iter().rposition(|s| s.header.checkpoint_below.is_some());
    let own = &later[next_start.map_or(0, |index| index + 1)..];
    first.header.checkpoint_below.is_some()
        && (first.ends_checkpoint || own.iter().any(|segment| segment.ends_checkpoint))
}

/// Drops everything after the last record or the end of the checkpoint: chunks of incomplete
/// checkpoints, and segments that were started but not used. Returns true if the last group that
/// remains is also the last group of the journal.
fn drop_useless_tail(segments: &mut Vec<Scanned>) -> bool {
    let count = segments.len();
    while segments.len() > 1 && segments.last().is_some_and(|s| s.useful_end.is_none()) {
        segments.pop();
    }
    let is_newest = segments.len() == count;
    let Some(last) = segments.last_mut() else { return false };
    let useful_end = last.useful_end.unwrap_or(BLOCK_BYTES as u64);
    let is_last_group = useful_end == last.end && last.last_group.is_some();
    last.end = useful_end;
    is_newest && is_last_group
}

/// Reads all groups of a segment. `successor` is the segment after it, if there is one.
fn scan(
    slot: &Slot,
    header: &SegmentHeader,
    successor: Option<&Scanned>,
) -> Result<Scanned, LogError> {
    let limit = successor.map_or(header.segment_bytes, |next| next.header.previous_end);
    if limit > header.segment_bytes {
        return Err(corrupt(
            slot,
            limit,
            "the segment ends before the end recorded in the next one",
        ));
    }
    let mut scanned = Scanned {
        slot: slot.clone(),
        header: *header,
        end: BLOCK_BYTES as u64,
        next_record: header.first_record,
        record_bytes: 0,
        useful_end: None,
        last_group: None,
        ends_checkpoint: false,
    };
    let mut group = GroupRead::default();
    while scanned.end < limit {
        let (at, next) = (scanned.end, scanned.next_record);
        match group.read(&*slot.blob, header.lineage(), at, limit, next)? {
            Found::Group(length) => scanned.take_in(&group, length)?,
            Found::Nothing(what) if successor.is_some() => return Err(corrupt(slot, at, what)),
            Found::Nothing(what) => {
                let behind = at + BLOCK_BYTES as u64;
                let later = find_later_group(&*slot.blob, header.lineage(), behind, limit)?;
                match later {
                    Some(_) => return Err(corrupt(slot, at, what)),
                    None => break,
                }
            }
        }
    }
    if successor.is_some_and(|next| next.header.first_record != scanned.next_record) {
        return Err(corrupt(slot, scanned.end, "records are missing before the next segment"));
    }
    Ok(scanned)
}

impl Scanned {
    fn take_in(&mut self, group: &GroupRead, length: u64) -> Result<(), LogError> {
        let mut is_useful = false;
        for frame in group.frames() {
            if frame.flags & FLAG_CHECKPOINT == 0 {
                if frame.number != self.next_record {
                    return Err(corrupt(&self.slot, self.end, "a record is out of order"));
                }
                self.next_record += 1;
                self.record_bytes += frame.payload.len() as u64;
                is_useful = true;
            } else if frame.flags & FLAG_END != 0 {
                self.ends_checkpoint = true;
                is_useful = true;
            }
        }
        self.last_group = Some(self.end);
        self.end += length;
        if is_useful {
            self.useful_end = Some(self.end);
        }
        Ok(())
    }
}

pub(super) fn corrupt(slot: &Slot, offset: u64, what: &'static str) -> LogError {
    LogError::Corrupt { name: slot.name.clone(), offset, what }
}
