//! The checker of files that are written in cells (units of `CELL_BYTES` bytes). For each cell, a
//! read must return the data of one write, but not data that a later write must have replaced.
//!
//! Invariant: each write has a window, the time in which it may take effect. The window ends with
//! the reply to the write, with the reply to a change of the fencing list that excluded its writer,
//! or at the moment after which the write can no longer be executed. A crash may undo writes that
//! were not committed.

use std::collections::BTreeMap;

use dafs_types::Verifier;

use super::requests::{CELL_BYTES, File, MemberIndex};

/// A moment in the order of all events that the checker sees.
pub(super) type Tick = u64;

/// The id of a write. The id 0 means the initial content.
pub(super) type WriteId = u64;

/// A range of adjacent cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellRange {
    pub file: File,
    pub first: u8,
    pub count: u8,
}

impl CellRange {
    pub(super) fn contains(&self, file: File, cell: u8) -> bool {
        self.file == file && (self.first..self.first + self.count).contains(&cell)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.file == other.file
            && self.first < other.first + other.count
            && other.first < self.first + self.count
    }

    /// Returns the cells in the first `length` bytes of this run.
    pub(super) fn first_of(&self, length: usize) -> Result<Self, String> {
        let (count, rest) = (length / CELL_BYTES, length % CELL_BYTES);
        match u8::try_from(count) {
            Ok(count @ 1..) if count <= self.count && rest == 0 => Ok(Self { count, ..*self }),
            _ => Err(format!("{length} bytes were read")),
        }
    }
}

#[derive(Debug)]
struct Write {
    member: MemberIndex,
    run: CellRange,
    begin: Tick,
    /// The moment at which the write's window ended. `None` while the window is open.
    end: Option<Tick>,
    is_acknowledged: bool,
    /// True if the reply says that the write was not executed.
    is_refused: bool,
    verifier: Option<Verifier>,
    /// True if the server has confirmed that the write survives a crash.
    is_durable: bool,
    /// The lock under which the write was made, if the server rolls back changes under that lock
    /// when its holder fails.
    transaction: Option<u64>,
    /// The moment after which no read may return the write's data. The reason is that the write was
    /// rolled back, or will be rolled back before other members are admitted. `None` if there is no
    /// such moment.
    undone: Option<Tick>,
    /// True if it is unknown whether the write was rolled back.
    is_unsure: bool,
    /// True if the window ended because a fencing list excluded the writer.
    is_shut_out: bool,
}

/// A value that a read has returned for a cell since the last crash.
#[derive(Clone, Copy, Debug)]
struct Seen {
    begin: Tick,
    end: Tick,
    id: WriteId,
}

/// The state of all cells.
#[derive(Debug, Default)]
pub(super) struct Cells {
    writes: BTreeMap<WriteId, Write>,
    seen: BTreeMap<(File, u8), Vec<Seen>>,
    crashes: Vec<Tick>,
}

impl Cells {
    pub(super) fn begin(&mut self, id: WriteId, member: MemberIndex, run: CellRange, now: Tick) {
        let write = Write {
            member,
            run,
            begin: now,
            end: None,
            is_acknowledged: false,
            is_refused: false,
            verifier: None,
            is_durable: false,
            transaction: None,
            undone: None,
            is_unsure: false,
            is_shut_out: false,
        };
        self.writes.insert(id, write);
    }

    /// Records the reply to a write. `is_stable` is true if the write survives all later crashes.
    pub(super) fn end(
        &mut self,
        id: WriteId,
        verifier: Option<Verifier>,
        is_stable: bool,
        now: Tick,
    ) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        write.end.get_or_insert(now);
        write.is_acknowledged = true;
        write.verifier = verifier;
        write.is_durable = is_stable;
    }

    /// Records that a write was made under a lock whose changes are rolled back if the lock's
    /// holder fails.
    pub(super) fn set_transaction(&mut self, id: WriteId, transaction: u64) {
        if let Some(write) = self.writes.get_mut(&id) {
            write.transaction = Some(transaction);
        }
    }

    fn of_transaction(&mut self, transaction: u64) -> impl Iterator<Item = &mut Write> {
        let writes = self.writes.values_mut();
        writes.filter(move |write| write.transaction == Some(transaction) && write.undone.is_none())
    }

    /// Records that the writes under a lock can no longer be rolled back, because a reply has said
    /// so.
    pub(super) fn make_final(&mut self, transaction: u64, now: Tick) {
        let of = |write: &Write| write.transaction == Some(transaction);
        let written: Vec<WriteId> = self.writes.iter().filter(|w| of(w.1)).map(|w| *w.0).collect();
        for id in written {
            // A write that an earlier crash has undone does not become durable.
            let lasts = self.writes.get(&id).is_some_and(|write| self.survives(write, now));
            if let Some(write) = self.writes.get_mut(&id) {
                write.is_durable |= write.is_acknowledged && lasts;
                write.transaction = None;
                write.is_unsure = false;
            }
        }
    }

    /// Records that the writes under a lock will be rolled back before other members are admitted.
    pub(super) fn undo(&mut self, transaction: u64, now: Tick) {
        for write in self.of_transaction(transaction) {
            write.end.get_or_insert(now);
            write.undone = Some(now);
        }
    }

    /// Records that it is unknown whether the writes under a lock are final or rolled back.
    pub(super) fn leave_open(&mut self, transaction: u64) {
        for write in self.of_transaction(transaction) {
            write.is_unsure = true;
        }
    }

    /// Records that a write can no longer take effect. It is unknown whether it took effect before.
    pub(super) fn close(&mut self, id: WriteId, now: Tick) {
        if let Some(write) = self.writes.get_mut(&id) {
            write.end.get_or_insert(now);
        }
    }

    /// Records that a write was refused before it began.
    pub(super) fn refuse(&mut self, id: WriteId, now: Tick) {
        self.close(id, now);
        if let Some(write) = self.writes.get_mut(&id) {
            write.is_refused = true;
        }
    }

    /// Records that these members can no longer change the file.
    pub(super) fn shut_out(&mut self, file: File, is_out: impl Fn(MemberIndex) -> bool, now: Tick) {
        let writes = self.writes.values_mut();
        for write in writes.filter(|write| write.run.file == file && is_out(write.member)) {
            if write.end.is_none() {
                (write.end, write.is_shut_out) = (Some(now), true);
            }
        }
    }

    /// Records that these members may be admitted again. Requests that they sent while they were
    /// excluded may still be executed.
    pub(super) fn let_in(&mut self, file: File, is_in: impl Fn(MemberIndex) -> bool) {
        let writes = self.writes.values_mut();
        for write in writes.filter(|write| write.run.file == file && is_in(write.member)) {
            if std::mem::take(&mut write.is_shut_out) && !write.is_acknowledged {
                write.end = None;
            }
        }
    }

    /// Records the reply to a COMMIT that began at `begin`.
    pub(super) fn commit(&mut self, file: File, verifier: Verifier, begin: Tick) {
        for write in self.writes.values_mut().filter(|write| write.run.file == file) {
            let was_answered = write.is_acknowledged && write.end.is_some_and(|end| end < begin);
            if was_answered && write.verifier == Some(verifier) {
                write.is_durable = true;
            }
        }
    }

    pub(super) fn crash(&mut self, now: Tick) {
        self.crashes.push(now);
        self.seen.clear();
        // No operation in flight can be executed after its server died. This holds for all members,
        // even if the next server admits them or a reply of the dead server arrives late.
        for write in self.writes.values_mut() {
            write.end.get_or_insert(now);
            write.is_shut_out = false;
        }
    }

    /// Records that a write without a reply is sent to the next server, which may execute it.
    pub(super) fn repeat(&mut self, id: WriteId) {
        if let Some(write) = self.writes.get_mut(&id).filter(|write| !write.is_acknowledged) {
            write.end = None;
        }
    }

    /// Returns true if a write has survived all crashes up to the moment `until`.
    fn survives(&self, write: &Write, until: Tick) -> bool {
        let Some(end) = write.end else { return false };
        // The write's window ends when its server ends, even if the reply arrives after that.
        write.is_durable || !self.crashes.iter().any(|crash| (end..until).contains(crash))
    }

    /// Checks that a read between the moment `begin` and now may have returned this write's data
    /// for a cell.
    pub(super) fn see(
        &mut self,
        file: File,
        cell: u8,
        id: WriteId,
        begin: Tick,
        now: Tick,
    ) -> Result<(), String> {
        let end = self.possible(file, cell, id, begin)?;
        let later = self.writes.iter().find(|(_, later)| {
            later.run.contains(file, cell)
                && later.is_acknowledged
                && later.undone.is_none()
                && !later.is_unsure
                && later.end.is_some_and(|end| end < begin)
                && end.is_some_and(|end| end < later.begin)
                && self.survives(later, now)
        });
        if let Some((other, later)) = later {
            return Err(format!(
                "cell {cell} of {file:?} shows write {id}, which write {other} has replaced: {:?}, \
                 then {later:?}",
                self.writes.get(&id)
            ));
        }
        let seen = self.seen.entry((file, cell)).or_default();
        let writes = &self.writes;
        let lasts =
            |id| writes.get(&id).is_none_or(|write| write.undone.is_none() && !write.is_unsure);
        let back = seen.iter().find(|seen| {
            seen.id != id
                && lasts(seen.id)
                && seen.end < begin
                && end.is_some_and(|end| end < seen.begin)
        });
        if let Some(seen) = back {
            return Err(format!(
                "cell {cell} of {file:?} shows write {id} ({:?}), which must have been replaced \
                 when {seen:?} was read",
                self.writes.get(&id)
            ));
        }
        seen.push(Seen { begin, end: now, id });
        Ok(())
    }

    /// Returns the end of a write's window. Fails if no read may return the write's data.
    fn possible(
        &self,
        file: File,
        cell: u8,
        id: WriteId,
        begin: Tick,
    ) -> Result<Option<Tick>, String> {
        if id == 0 {
            return Ok(Some(0));
        }
        match self.writes.get(&id) {
            Some(write) if write.undone.is_some_and(|undone| undone < begin) => Err(format!(
                "cell {cell} of {file:?} shows write {id}, which was rolled back: {write:?}"
            )),
            Some(write) if write.run.contains(file, cell) && !write.is_refused => {
                Ok(if write.is_unsure { None } else { write.end })
            }
            other => Err(format!(
                "cell {cell} of {file:?} shows write {id}, which cannot be there: {other:?}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: CellRange = CellRange { file: File::Data, first: 3, count: 2 };

    fn written(cells: &mut Cells, id: WriteId, begin: Tick, is_stable: bool) {
        cells.begin(id, 1, RUN, begin);
        cells.end(id, Some(Verifier([1; 8])), is_stable, begin + 1);
    }

    #[test]
    fn a_read_may_return_the_first_cells_and_whole_cells_only() {
        assert_eq!(RUN.first_of(2 * CELL_BYTES), Ok(RUN));
        assert_eq!(RUN.first_of(CELL_BYTES), Ok(CellRange { count: 1, ..RUN }));
        for length in [0, 1, CELL_BYTES + 1, 3 * CELL_BYTES] {
            assert!(RUN.first_of(length).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_write_replaces_the_one_before() {
        let mut cells = Cells::default();
        written(&mut cells, 5, 10, false);
        written(&mut cells, 6, 20, false);
        assert!(cells.see(File::Data, 3, 6, 30, 31).is_ok());
        assert!(cells.see(File::Data, 4, 5, 30, 31).is_err());
        assert!(cells.see(File::Data, 5, 5, 30, 31).is_err(), "the write was never in this cell");
        assert!(
            cells.see(File::Data, 4, 5, 15, 31).is_ok(),
            "the write was there when the read began"
        );
    }

    #[test]
    fn a_crash_loses_uncommitted_writes() {
        for (is_stable, commits) in [(true, false), (false, true), (false, false)] {
            let mut cells = Cells::default();
            written(&mut cells, 5, 10, is_stable);
            if commits {
                cells.commit(File::Data, Verifier([1; 8]), 12);
            }
            cells.crash(20);
            assert_eq!(cells.see(File::Data, 3, 0, 30, 31).is_err(), is_stable || commits);
            assert!(cells.see(File::Data, 4, 5, 30, 31).is_ok());
        }
    }

    #[test]
    fn a_rolled_back_write_is_not_seen_any_more() {
        let mut cells = Cells::default();
        written(&mut cells, 5, 10, true);
        cells.begin(6, 1, RUN, 20);
        cells.set_transaction(6, 1);
        cells.end(6, None, true, 21);
        assert!(cells.see(File::Data, 3, 6, 22, 23).is_ok());
        assert!(cells.see(File::Data, 3, 5, 24, 25).is_err());
        cells.undo(1, 26);
        assert!(cells.see(File::Data, 3, 6, 27, 28).is_err());
        assert!(cells.see(File::Data, 3, 0, 27, 28).is_err());
        assert!(cells.see(File::Data, 3, 5, 27, 28).is_ok());
    }

    #[test]
    fn a_member_that_is_shut_out_writes_nothing_more() {
        let mut cells = Cells::default();
        cells.begin(5, 1, RUN, 10);
        cells.shut_out(File::Data, |member| member == 1, 20);
        assert!(cells.see(File::Data, 3, 0, 30, 31).is_ok());
        assert!(cells.see(File::Data, 3, 5, 32, 33).is_err());
        assert!(cells.see(File::Data, 4, 5, 32, 33).is_ok(), "no read has seen the cell before");
    }

    #[test]
    fn a_crash_ends_the_writes_of_a_member_that_is_admitted_after_it() {
        for (is_stable, commits) in [(false, false), (true, false), (false, true)] {
            let mut cells = Cells::default();
            cells.begin(5, 1, RUN, 10);
            cells.shut_out(File::Data, |member| member == 1, 12);
            cells.crash(14);
            cells.let_in(File::Data, |member| member == 1);
            // The reply of the dead server was still on its way.
            cells.end(5, Some(Verifier([1; 8])), is_stable, 16);
            if commits {
                cells.commit(File::Data, Verifier([1; 8]), 13);
            }
            let is_lost = !is_stable && !commits;
            assert_eq!(cells.see(File::Data, 3, 0, 30, 31).is_ok(), is_lost);
            assert!(cells.see(File::Data, 4, 5, 30, 31).is_ok());
            if is_lost {
                assert!(
                    cells.see(File::Data, 3, 5, 32, 33).is_err(),
                    "the write does not come back"
                );
            }
        }
    }

    #[test]
    fn a_member_that_is_admitted_again_may_still_write() {
        let mut cells = Cells::default();
        cells.begin(5, 1, RUN, 10);
        cells.shut_out(File::Data, |member| member == 1, 12);
        cells.let_in(File::Data, |member| member == 1);
        assert!(cells.see(File::Data, 3, 0, 20, 21).is_ok());
        assert!(cells.see(File::Data, 3, 5, 22, 23).is_ok());
        cells.end(5, Some(Verifier([1; 8])), false, 24);
        assert!(cells.see(File::Data, 3, 0, 30, 31).is_err());
    }
}
