//! The records that a log contained when it was opened.
//!
//! Invariant: the records of the checkpoint come first, then the records that it does not replace.
//! All records are complete, in sequence and without gaps. Only one group is in memory at a time.

use super::scan::{Chain, Scanned, corrupt};
use super::{FLAG_CHECKPOINT, FLAG_END, LogError, RecordKind, RecordNumber};
use crate::group::{BLOCK_BYTES, Found, GroupRead, HEADER_BYTES};

/// The records that have survived, which can be read once. They must be read before the log makes a
/// checkpoint, which frees their segments.
pub struct Recovered {
    segments: Vec<Scanned>,
    phase: Phase,
    /// The index of the segment that is being read. The next field is the offset of the next group
    /// in it.
    segment: usize,
    position: u64,
    next_number: u64,
    group: GroupRead,
    /// The offset of the next frame in the group.
    next_frame: usize,
    /// The number of records that were read from the checkpoint so far.
    checkpoint_count: u64,
    below: u64,
    last: RecordNumber,
}

/// A record that has survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The origin of the record. Records of the checkpoint come before the records of the log.
    pub origin: Origin,
    /// The kind with which the record was appended.
    pub kind: RecordKind,
    /// The bytes that were appended as the record.
    pub bytes: &'a [u8],
}

/// The origin of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A checkpoint, which replaces all records before it.
    Checkpoint,
    /// The log. The record was appended with this number.
    Log(RecordNumber),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Checkpoint,
    Log,
}

impl Recovered {
    pub(super) fn new(chain: Chain) -> Self {
        let first = chain.segments.first().map(|segment| segment.header);
        let below = first.and_then(|header| header.checkpoint_below);
        let next = chain.segments.last().map_or(1, |segment| segment.next_record);
        let mut recovered = Self {
            segments: chain.segments,
            phase: Phase::Log,
            segment: 0,
            position: 0,
            next_number: 0,
            group: GroupRead::default(),
            next_frame: 0,
            checkpoint_count: 0,
            below: below.unwrap_or(0),
            last: RecordNumber(next - 1),
        };
        recovered.begin(if below.is_some() { Phase::Checkpoint } else { Phase::Log });
        recovered
    }

    /// Returns true if there is a checkpoint, whose records come before the others.
    #[must_use]
    pub fn has_checkpoint(&self) -> bool {
        self.below != 0
    }

    /// Returns the number of the last record that has survived; 0 if there is none.
    #[must_use]
    pub fn last(&self) -> RecordNumber {
        self.last
    }

    /// Returns the next record, or `None` after the last one.
    ///
    /// # Errors
    /// [`LogError::Storage`] if the storage fails; [`LogError::Corrupt`] if the storage returns
    /// other data than when the log was opened.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let Some((at, phase)) = self.advance()? else { return Ok(None) };
        let frame = self.group.frame_at(at).map(|(frame, _)| frame);
        Ok(frame.map(|frame| Record {
            origin: match phase {
                Phase::Checkpoint => Origin::Checkpoint,
                Phase::Log => Origin::Log(RecordNumber(frame.number)),
            },
            kind: RecordKind(frame.kind),
            bytes: frame.payload,
        }))
    }

    /// Finds the next frame to return.
    fn advance(&mut self) -> Result<Option<(usize, Phase)>, LogError> {
        loop {
            let at = self.next_frame;
            let Some((frame, next)) = self.group.frame_at(at) else {
                if self.read_group()? {
                    continue;
                }
                return match self.phase {
                    Phase::Log => Ok(None),
                    Phase::Checkpoint => Err(self.damage("the checkpoint has no end")),
                };
            };
            let (flags, number) = (frame.flags, frame.number);
            self.next_frame = next;
            let is_of_checkpoint = flags & FLAG_CHECKPOINT != 0;
            match self.phase {
                Phase::Log if !is_of_checkpoint && number >= self.below => {
                    return Ok(Some((at, Phase::Log)));
                }
                Phase::Checkpoint if is_of_checkpoint => {
                    if number != self.checkpoint_count {
                        return Err(self.damage("the checkpoint has a gap"));
                    }
                    if flags & FLAG_END == 0 {
                        self.checkpoint_count += 1;
                        return Ok(Some((at, Phase::Checkpoint)));
                    }
                    self.begin(Phase::Log);
                }
                Phase::Log | Phase::Checkpoint => (),
            }
        }
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.group = GroupRead::default();
        self.next_frame = HEADER_BYTES;
        self.enter(0);
    }

    fn enter(&mut self, segment: usize) {
        self.segment = segment;
        self.position = BLOCK_BYTES as u64;
        self.next_number = self.segments.get(segment).map_or(0, |s| s.header.first_record);
    }

    /// Reads the next group. Returns false if there is none.
    fn read_group(&mut self) -> Result<bool, LogError> {
        while self.segments.get(self.segment).is_some_and(|s| self.position >= s.end) {
            self.enter(self.segment + 1);
        }
        let Some(segment) = self.segments.get(self.segment) else { return Ok(false) };
        let (blob, lineage) = (&*segment.slot.blob, segment.header.lineage());
        let found = self.group.read(blob, lineage, self.position, segment.end, self.next_number)?;
        match found {
            Found::Nothing(what) => Err(self.damage(what)),
            Found::Group(length) => {
                let is_record = |flags: u16| flags & FLAG_CHECKPOINT == 0;
                let records = self.group.frames().filter(|frame| is_record(frame.flags)).count();
                self.next_number += records as u64;
                self.position += length;
                self.next_frame = HEADER_BYTES;
                Ok(true)
            }
        }
    }

    fn damage(&self, what: &'static str) -> LogError {
        let last = self.segments.len() - 1;
        corrupt(&self.segments[self.segment.min(last)].slot, self.position, what)
    }
}
