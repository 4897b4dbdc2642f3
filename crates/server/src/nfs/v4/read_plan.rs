//! The parts of a READ_PLUS: which are holes, and which must be read.
//!
//! Invariant: the parts of a result are contiguous and begin at the offset that the client asked
//! for.

use std::collections::VecDeque;
use std::ops::Range;

use dafs_files::outcome::Holes;
use dafs_types::{FileHandle, StateId};

use crate::guests::GuestRead;
use crate::moving::transfer::Cookie;

/// A READ_PLUS in progress.
#[derive(Debug)]
pub(in crate::nfs) struct ReadPlus {
    file: FileHandle,
    /// The filer's state id with which the client reads.
    state: StateId,
    /// The range that the client wants to read.
    wanted: Range<u64>,
    /// The number of bytes of data for which the reply still has room.
    room: u64,
    /// The parts that are neither found nor read yet, in ascending order.
    left: VecDeque<Piece>,
    /// The parts of the result so far, and the bytes of those with data.
    parts: Vec<Found>,
    /// True if the file ends after the parts.
    is_end: bool,
}

/// A part of a range that must be read, or is known to be a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Data(Range<u64>),
    Hole(Range<u64>),
}

/// A part of the result.
#[derive(Debug)]
pub(super) enum Found {
    Data(u64, GuestRead),
    Hole(Range<u64>),
}

/// What [`ReadPlus::take`] did with the bytes that were read.
pub(super) enum Taken {
    /// They are a part of the result, and more parts may follow.
    Part,
    /// They are the last part.
    Last,
    /// There were none. The loan must be ended.
    Nothing(Cookie),
}

impl ReadPlus {
    /// Creates a READ_PLUS whose parts are not planned yet. `room` is the number of bytes of data
    /// for which the reply has room.
    pub(super) fn new(file: FileHandle, state: StateId, wanted: Range<u64>, room: u64) -> Self {
        let (left, parts, is_end) = (VecDeque::new(), Vec::new(), false);
        Self { file, state, wanted, room, left, parts, is_end }
    }

    /// Returns the file, and the filer's state id with which the client reads it.
    pub(super) fn source(&self) -> (FileHandle, StateId) {
        (self.file, self.state)
    }

    /// Returns the parts that were found, and whether the file ends after them.
    pub(super) fn result(self) -> (Vec<Found>, bool) {
        (self.parts, self.is_end)
    }

    /// Ends a READ_PLUS whose next part cannot be read. Returns false if it has no parts.
    pub(super) fn cut_short(&mut self) -> bool {
        self.is_end = false;
        !self.parts.is_empty()
    }

    /// Plans to read the whole range.
    pub(super) fn plan_one_part(&mut self) {
        self.plan_data(self.wanted.clone());
    }

    /// Divides the range into holes and data. The size of the file may have changed meanwhile.
    pub(super) fn plan(&mut self, holes: &Holes) {
        let end = self.wanted.end.min(holes.size);
        self.is_end = self.wanted.end >= holes.size;
        let mut at = self.wanted.start;
        for hole in &holes.holes {
            let (from, to) = (hole.start.clamp(at, end.max(at)), hole.end.clamp(at, end.max(at)));
            if from < to {
                if !self.plan_data(at..from) {
                    return;
                }
                self.left.push_back(Piece::Hole(from..to));
                at = to;
            }
        }
        self.plan_data(at..end);
    }

    /// Plans to read data. Returns false if the reply has no room for all of it, so that nothing
    /// after it can be planned.
    fn plan_data(&mut self, range: Range<u64>) -> bool {
        let length = range.end.saturating_sub(range.start);
        let part = length.min(self.room);
        if part > 0 || length == 0 && range == self.wanted {
            self.left.push_back(Piece::Data(range.start..range.start + part));
        }
        self.room -= part;
        self.is_end &= part == length;
        part == length
    }

    /// Moves the next holes to the result. Returns the part after them, which must be read. `None`
    /// if there is none.
    pub(super) fn next_to_read(&mut self) -> Option<Range<u64>> {
        loop {
            match self.left.pop_front()? {
                Piece::Hole(hole) => self.parts.push(Found::Hole(hole)),
                Piece::Data(range) => return Some(range),
            }
        }
    }

    /// Adds bytes that were read to the result.
    pub(super) fn take(&mut self, read: GuestRead) -> Taken {
        let offset = self.end();
        let is_whole = match self.left.front() {
            Some(Piece::Data(range) | Piece::Hole(range)) => {
                range.start == offset + u64::from(read.length())
            }
            None => true,
        };
        if read.length() == 0 {
            // The file has become shorter. If there are parts already, the client asks again.
            self.is_end = read.is_end && self.parts.is_empty();
            return Taken::Nothing(read.cookie);
        }
        let is_last = read.is_end || !is_whole || self.left.is_empty();
        if is_last {
            self.is_end = read.is_end;
        }
        self.parts.push(Found::Data(offset, read));
        if is_last { Taken::Last } else { Taken::Part }
    }

    /// Returns the offset behind the parts of the result.
    fn end(&self) -> u64 {
        match self.parts.last() {
            Some(Found::Data(offset, read)) => offset + u64::from(read.length()),
            Some(Found::Hole(hole)) => hole.end,
            None => self.wanted.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans a READ_PLUS of a range with these holes.
    fn planned(wanted: Range<u64>, room: u64, size: u64, holes: &[Range<u64>]) -> ReadPlus {
        let mut reading = ReadPlus::new(FileHandle::NULL, StateId::ANONYMOUS, wanted, room);
        reading.plan(&Holes { holes: holes.to_vec(), size });
        reading
    }

    #[test]
    fn a_plan_covers_the_range_up_to_the_end_of_the_file() {
        let plan = planned(100..1000, 10_000, 900, &[0..200, 300..400, 800..5000]);
        let pieces = [
            Piece::Hole(100..200),
            Piece::Data(200..300),
            Piece::Hole(300..400),
            Piece::Data(400..800),
            Piece::Hole(800..900),
        ];
        assert_eq!((plan.left, plan.is_end), (pieces.into(), true));
        let shorter = planned(100..1000, 10_000, 50, &[100..500, 500..1000]);
        assert_eq!((shorter.left, shorter.is_end), (VecDeque::new(), true));
        let longer = planned(100..1000, 10_000, 1001, &[]);
        assert_eq!((longer.left, longer.is_end), ([Piece::Data(100..1000)].into(), false));
    }

    #[test]
    fn a_plan_has_no_more_data_than_the_reply_has_room_for() {
        let plan = planned(0..1000, 150, 1000, &[100..200, 900..1000]);
        let pieces = [Piece::Data(0..100), Piece::Hole(100..200), Piece::Data(200..250)];
        assert_eq!((plan.left, plan.is_end), (pieces.into(), false));
    }
}
