//! Writes: reserves space in the cache for the bytes of a file, and makes the bytes stable.
//!
//! Invariants:
//! - Cache space is reserved with a token, which is returned once, whether or not the bytes
//!   arrived.
//! - An append reserves the end of its file before its offset is known, and gives up the
//!   reservation when its bytes are in the cache or its outcome is in the journal.

use dafs_filer::{IoKind, Party};
use dafs_memory::Memory;
use dafs_ops::{Append, Fault, Written};
use dafs_store::StoreError;
use dafs_store::cache::{Cache, CachedFile, FillJob, Prepared, Progress, Span, Spans, WriteToken};
use dafs_types::{CacheHint, FileHandle, Stability, StateId, Verifier, limits};

use crate::Files;
use crate::io::{IoFile, check_range};
use crate::left::{CommitTask, RemainingWork, Then};
use crate::needs::Need;
use crate::outcome::{Ended, Now, Outcome};
use crate::under_way::Reach;
use crate::undo::seen::UndoSeen;

/// The state of a write or append.
#[derive(Debug)]
pub struct Writing {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The file offset of the first byte. For an append, it is not known until the append has
    /// reserved the end of the file.
    pub offset: u64,
    /// The total number of bytes to write.
    pub length: u32,
    /// The number of bytes that are in the cache so far.
    pub done: u32,
    /// The stability that the client requested.
    pub stability: Stability,
    /// The token of the cache space that is being filled.
    pub token: Option<WriteToken>,
    /// True for an append, false for a write.
    pub is_append: bool,
    /// True if the append has reserved the end of the file.
    pub has_place: bool,
    /// True if the append's offset was recorded in the journal.
    pub has_intent: bool,
    /// True if the server has opened the file for this request only.
    pub borrowed: bool,
    /// The state of undo data at the time when the request was checked.
    pub undo_seen: UndoSeen,
}

impl Writing {
    /// Creates a write that has not started.
    pub fn new(io: IoFile, offset: u64, length: u32, stability: Stability) -> Self {
        Self {
            file: io.file,
            offset,
            length,
            done: 0,
            stability,
            token: None,
            is_append: false,
            has_place: false,
            has_intent: false,
            borrowed: io.borrowed,
            undo_seen: io.undo_seen,
        }
    }

    /// Creates an append that has not started.
    pub fn append(io: IoFile, length: u32, stability: Stability) -> Self {
        Self { is_append: true, ..Self::new(io, 0, length, stability) }
    }

    /// Returns the part of the file that is still to be written.
    pub fn part(&self) -> Part {
        let place = self.offset + u64::from(self.done);
        Part { file: self.file, place, left: self.length - self.done }
    }

    /// Returns the range of the file that the write may still change.
    pub fn reach(&self) -> Reach {
        let changes = Some(self.undo_seen);
        match self.is_append && !self.has_place {
            true => Reach { file: self.file, range: None, changes },
            false => Reach::of(self.file, (self.offset, self.length), changes),
        }
    }
}

/// A range of a file that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The file offset of the first byte.
    pub place: u64,
    /// The number of bytes in the range.
    pub left: u32,
}

/// The cache's reply to a request for space.
#[derive(Debug)]
pub enum Room {
    /// The spans can be filled now. Afterwards the token must be returned with [`Files::filled`].
    Ready(WriteToken),
    /// There is no space yet. The [`Need`] must be satisfied first.
    Needs(Need),
    /// The write fails, because of this error. It may be the error of an earlier write that was
    /// lost.
    Failed(StoreError),
}

impl Files<'_> {
    /// Requests cache space for a range of a file.
    pub fn room(&mut self, by: Option<Party>, part: Part, spans: &mut Spans) -> Room {
        let Part { file, place, left } = part;
        let mut jobs = Vec::new();
        let found = self.cache.prepare_write(file, place, left, spans, &mut jobs);
        self.room_found(by, part, (found, jobs), spans)
    }

    /// Handles the cache's reply to a request for space. See [`Files::room`].
    pub fn room_found(
        &mut self,
        by: Option<Party>,
        part: Part,
        (mut found, mut jobs): (Prepared, Vec<FillJob>),
        spans: &mut Spans,
    ) -> Room {
        let Part { file, place, left } = part;
        if let Prepared::Lost(_) = found {
            // If the loss was not reported to this writer yet, the writer gets the error instead of
            // space. Otherwise the loss is left for other clients.
            found = match self.take_loss(by, file) {
                Some(error) => Prepared::Failed(error),
                None => self.cache.prepare_write_anyhow(file, place, left, spans, &mut jobs),
            };
        }
        match found {
            Prepared::Ready(token) => Room::Ready(token),
            Prepared::Fill => Room::Needs(Need::Fills(file, jobs)),
            Prepared::Wait => Room::Needs(Need::Progress(file)),
            Prepared::Pressure => Room::Needs(Need::Room),
            Prepared::Lost(error) | Prepared::Failed(error) => Room::Failed(error),
        }
    }

    /// Returns cache space to the cache. `has_arrived` is true if the space was filled.
    pub fn filled(&mut self, token: WriteToken, has_arrived: bool) -> Progress {
        match has_arrived {
            true => self.cache.write_done(token, self.now),
            false => self.cache.write_abort(token, self.now),
        }
    }

    /// Finishes a write whose bytes are all in the cache. Returns its outcome, or the commit that
    /// must make the bytes stable first. If an append still has reserved the end of its file, the
    /// caller must give up the reservation.
    pub fn finish_write(&mut self, by: Option<Party>, writing: &mut Writing) -> Now<Outcome> {
        let &mut Writing { file, offset, length, stability, borrowed, .. } = writing;
        if stability == Stability::Unstable {
            return Now::Done(Outcome::done(Ended::Written(self.written(length, stability))));
        }
        let listener = self.listener_of(by, file);
        let ticket = self.cache.commit_begin(file, offset, u64::from(length), stability, listener);
        let then = match writing.is_append {
            true => {
                // The next append must not use the end of the file until this append's outcome is
                // known, because the journaled offset must stay valid.
                let has_place = writing.has_place && writing.has_intent;
                writing.has_place &= !has_place;
                Then::Appended { offset, stability, has_place }
            }
            false => Then::Written { length, stability },
        };
        Now::later(RemainingWork::Commit(CommitTask { ticket, file, borrowed, then }))
    }

    /// Returns the results of a write of `length` bytes.
    #[inline]
    pub fn written(&self, length: u32, committed: Stability) -> Written {
        Written { length, committed, verifier: self.verifier() }
    }

    /// Returns the write verifier, which changes when unstable data may have been lost.
    #[inline]
    pub fn verifier(&self) -> Verifier {
        verifier_of(self.boot, self.cache)
    }

    // ---- appends --------------------------------------------------------------------

    /// Checks whether locks allow an append, which may write at any offset after the present end of
    /// the file.
    pub fn check_end_locks(&mut self, state: StateId, handle: &FileHandle) -> Result<(), Fault> {
        let end = self.cache.find(handle).map_or(0, |file| self.cache.size(file));
        let reach = (end, limits::FILE_OFFSET_MAX - end);
        self.check_locks(state, handle, reach, IoKind::Write)
    }

    /// Reserves the end of the file for an append. Returns false if another append has reserved it.
    pub fn claim_end(&mut self, writing: &mut Writing) -> bool {
        if !self.ends.take(writing.file) {
            return false;
        }
        writing.offset = self.cache.size(writing.file);
        if check_range(writing.offset, writing.length).is_err() {
            // At this offset the append fails with the error of a write for which no space can be
            // reserved.
            writing.offset = limits::FILE_OFFSET_MAX - u64::from(writing.length);
        }
        writing.has_place = true;
        true
    }

    /// Gives up the reservation of a file's end, so that the next append can reserve it.
    pub fn leave_end(&mut self, file: CachedFile) -> Progress {
        self.ends.leave(file);
        Progress { file, error: None }
    }

    /// Returns the operation to journal for an append. The append's offset must be known.
    pub fn intended_append(&self, writing: &Writing) -> Append {
        Append {
            file: self.cache.handle(writing.file),
            // The state id would be invalid by the time recovery reads the record.
            state: StateId::ANONYMOUS,
            length: writing.length,
            stability: writing.stability,
            hint: CacheHint(0),
        }
    }
}

/// Copies bytes into reserved cache space.
pub fn copy_in(arena: &Memory, bytes: &[u8], spans: &[Span]) {
    let mut from = 0;
    for span in spans {
        let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
        let to = from + span.length as usize;
        arena.write(offset, &bytes[from..to]);
        from = to;
    }
}

/// Returns the write verifier, by which clients detect the loss of unstable data. The verifier
/// changes at a restart of the server, and when the cache drops data after a write error.
#[inline]
pub fn verifier_of(boot: u64, cache: &Cache) -> Verifier {
    Verifier((boot ^ cache.loss_count()).to_le_bytes())
}
