//! The operation READ_PLUS of version 4.2, which returns holes by their place and length.
//!
//! A file that occupies less space than its size may have holes. The holes of the range are listed
//! first, and then the data between them is read, one part after the other. A range with more holes
//! than a reply should contain is returned with its last part as data.
//!
//! Invariants:
//! - After a failure, the result consists of the parts before it, which a client may get alone.
//! - A hole uses no memory of the cache.
//! - The rights are checked again before each part is read.

use dafs_filer::IoKind;
use dafs_files::io::check_range;
use dafs_files::outcome::{Ended, Now};
use dafs_files::reading::Reading;
use dafs_nfs_wire::nfs4::data::{DataPart, HolePart, Part, ReadArgs, ReadPlusDone};
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};
use dafs_nfs_wire::xdr::{List, PAYLOADS_MAX, Payload};
use dafs_ops::FileRange;
use dafs_store::cache::HOLES_MAX;
use dafs_types::CacheHint;

use super::attributes::TRANSFER_BYTES_MAX;
use super::compound::Service;
use super::convert;
use super::fault::{Result, not_done};
use super::read_plan::{Found, ReadPlus, Taken};
use super::waiting::{Awaits, Did};
use crate::guests::GuestResult;
use crate::task::{Task, Work};

impl Service<'_, '_, '_> {
    pub(super) fn read_plus(&mut self, asked: &ReadArgs) -> Result<Did> {
        let payloads_left = PAYLOADS_MAX - self.c.reads.len().min(PAYLOADS_MAX);
        if payloads_left == 0 {
            return Err(Status::RepTooBig);
        }
        let (file, found, space_used) = self.regular_file_and_space()?;
        let state = self.io_state(&asked.state, &file)?;
        let room = self.desk.writer.room();
        // With little room, the result is one part.
        let may_list = space_used < found.size
            && payloads_left >= DATA_PARTS_MAX
            && room >= ROOM_FOR_PARTS
            && asked.count > 0;
        let head_bytes = if may_list { HEAD_BYTES_MAX } else { HEAD_BYTES + PART_BYTES };
        let room = room.saturating_sub(head_bytes) as u64;
        let count = asked.count.min(TRANSFER_BYTES_MAX);
        check_range(asked.offset, count).map_err(|_| Status::Inval)?;
        let wanted = asked.offset..asked.offset + u64::from(count);
        let mut reading = ReadPlus::new(file, state, wanted, room);
        if !may_list {
            reading.plan_one_part();
            return self.read_next_part(Box::new(reading));
        }
        let (by, length) = (self.by()?, u64::from(count));
        let ask = FileRange { file, state, offset: asked.offset, length };
        let started = self.reactor.files().list_holes(&by, &ask);
        match started.map_err(|why| not_done(self.reactor, why))? {
            Now::Done(outcome) => {
                let Ok(Ended::Listed(holes)) = outcome.result else {
                    return Err(convert::failure_of(&outcome));
                };
                reading.plan(&holes);
                self.read_next_part(Box::new(reading))
            }
            Now::Later(left) => {
                let to = self.wait_for(Awaits::ReadPlus(Box::new(reading)));
                self.reactor.start(Task::new(to, Work::from(*left)));
                Ok(Did::Later)
            }
        }
    }

    /// Continues a READ_PLUS after the list of its holes or the read of one of its parts.
    pub(super) fn go_on_reading(
        &mut self,
        mut reading: Box<ReadPlus>,
        result: GuestResult,
    ) -> Result<Did> {
        let outcome = match result {
            GuestResult::Read(found) => {
                return match reading.take(found) {
                    Taken::Part => self.read_next_part(reading),
                    Taken::Last => self.end_read_plus(*reading),
                    Taken::Nothing(cookie) => {
                        self.reactor.on_loan_done(cookie);
                        self.end_read_plus(*reading)
                    }
                };
            }
            GuestResult::Outcome(outcome) => outcome,
            GuestResult::Durable
            | GuestResult::Free
            | GuestResult::Intended(_)
            | GuestResult::Told(_) => {
                return self.fail_read_plus(*reading, Status::ServerFault);
            }
        };
        self.c.after = self.c.after.max(outcome.after);
        match outcome.result {
            Ok(Ended::Listed(holes)) => {
                reading.plan(&holes);
                self.read_next_part(reading)
            }
            _ => self.fail_read_plus(*reading, convert::failure_of(&outcome)),
        }
    }

    /// Starts to read the next part that is not a hole. Writes the result if there is none.
    fn read_next_part(&mut self, mut reading: Box<ReadPlus>) -> Result<Did> {
        let Some(part) = reading.next_to_read() else { return self.end_read_plus(*reading) };
        let length = u32::try_from(part.end - part.start).unwrap_or(u32::MAX);
        let (file, state) = reading.source();
        match self.file_for(&file, state, IoKind::Read, (part.start, length)) {
            Ok(io) => {
                let to = self.wait_for(Awaits::ReadPlus(reading));
                let read = Reading::new(io, part.start, length, CacheHint(0));
                self.reactor.read_for_guest(to, read);
                Ok(Did::Later)
            }
            Err(status) => self.fail_read_plus(*reading, status),
        }
    }

    /// Writes the parts before a failure. Fails if there are none.
    fn fail_read_plus(&mut self, mut reading: ReadPlus, status: Status) -> Result<Did> {
        match reading.cut_short() {
            true => self.end_read_plus(reading),
            false => Err(status),
        }
    }

    fn end_read_plus(&mut self, reading: ReadPlus) -> Result<Did> {
        let (parts, is_end) = reading.result();
        let shown = parts.iter().map(|part| match part {
            Found::Data(offset, read) => {
                let data = Payload::Elsewhere(read.length() as usize);
                Part::Data(DataPart { offset: *offset, data })
            }
            Found::Hole(hole) => {
                Part::Hole(HolePart { offset: hole.start, length: hole.end - hole.start })
            }
        });
        let done = ReadPlusDone { is_end, parts: List(shown.collect()) };
        self.push(&Answer::ReadPlus(Reply::Ok(done)))?;
        for part in parts {
            if let Found::Data(_, read) = part {
                self.c.reads.push(read);
            }
        }
        Ok(Did::Written)
    }
}

/// The maximum number of parts with data: before, between and after the holes.
const DATA_PARTS_MAX: usize = HOLES_MAX + 1;
/// The number of bytes of the result of a READ_PLUS without its parts: operation number, status,
/// end-of-file flag and number of parts.
const HEAD_BYTES: usize = 16;
/// The maximum number of bytes of a part without its data: type, offset, length and padding.
const PART_BYTES: usize = 20;
/// The maximum number of bytes of a result without its data.
const HEAD_BYTES_MAX: usize = HEAD_BYTES + (DATA_PARTS_MAX + HOLES_MAX) * PART_BYTES;
/// The number of bytes that must be free in the reply, so that holes are listed.
const ROOM_FOR_PARTS: usize = 4 * HEAD_BYTES_MAX;
const _: () = assert!(DATA_PARTS_MAX <= PAYLOADS_MAX);
