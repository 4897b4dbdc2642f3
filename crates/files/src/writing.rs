//! Writing: where in the cache the bytes of a file go, and how stable they are to be.
//!
//! Invariant: room is handed out with a token, which comes back once, whether the bytes have
//! arrived or not; an append has the end of its file from before it knows its place until its
//! bytes are in the cache, or its outcome is in the journal.

use dafs_filer::{IoKind, Party};
use dafs_memory::Memory;
use dafs_ops::{Append, Fault, Written};
use dafs_store::StoreError;
use dafs_store::cache::{Cache, CachedFile, FillJob, Prepared, Progress, Span, Spans, WriteToken};
use dafs_types::{CacheHint, FileHandle, Stability, StateId, Verifier, limits};

use crate::Files;
use crate::io::{IoFile, check_range};
use crate::left::{CommitTask, Left, Then};
use crate::needs::Need;
use crate::outcome::{Ended, Now, Outcome};
use crate::under_way::Reach;
use crate::undo::seen::UndoSeen;

/// A write or append, as far as it has come.
#[derive(Debug)]
pub struct Writing {
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes it is.
    pub length: u32,
    /// How many of them are done.
    pub done: u32,
    /// How stable they are to be.
    pub stability: Stability,
    /// The room that is being filled.
    pub token: Option<WriteToken>,
    /// Whether it goes to the end of the file.
    pub is_append: bool,
    /// The append has its place at the end of the file, which nobody else may take.
    pub has_place: bool,
    /// That is in the journal.
    pub has_intent: bool,
    /// The file is open for this request alone.
    pub borrowed: bool,
    /// Undo that was kept when it was let in.
    pub undo_seen: UndoSeen,
}

impl Writing {
    /// A write that has not begun.
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

    /// An append that has not begun.
    pub fn append(io: IoFile, length: u32, stability: Stability) -> Self {
        Self { is_append: true, ..Self::new(io, 0, length, stability) }
    }

    /// What is left of it.
    pub fn part(&self) -> Part {
        let place = self.offset + u64::from(self.done);
        Part { file: self.file, place, left: self.length - self.done }
    }

    /// What it may yet change.
    pub fn reach(&self) -> Reach {
        let changes = Some(self.undo_seen);
        match self.is_append && !self.has_place {
            true => Reach { file: self.file, range: None, changes },
            false => Reach::of(self.file, (self.offset, self.length), changes),
        }
    }
}

/// Part of a file.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// Where it begins.
    pub place: u64,
    /// How many bytes it is.
    pub left: u32,
}

/// Whether there is room for a write.
#[derive(Debug)]
pub enum Room {
    /// The spans are to be filled; then the token is given back by [`Files::filled`].
    Ready(WriteToken),
    /// Not yet: this comes first.
    Needs(Need),
    /// It cannot be written, or an earlier write was lost of which the writer hears now.
    Failed(StoreError),
}

impl Files<'_> {
    /// Asks for room for part of a file.
    pub fn room(&mut self, by: Option<Party>, part: Part, spans: &mut Spans) -> Room {
        let Part { file, place, left } = part;
        let mut jobs = Vec::new();
        let found = self.cache.prepare_write(file, place, left, spans, &mut jobs);
        self.room_found(by, part, (found, jobs), spans)
    }

    /// As [`Files::room`], with what the cache has said already.
    pub fn room_found(
        &mut self,
        by: Option<Party>,
        part: Part,
        (mut found, mut jobs): (Prepared, Vec<FillJob>),
        spans: &mut Spans,
    ) -> Room {
        let Part { file, place, left } = part;
        if let Prepared::Lost(_) = found {
            // If it is the writer who hears of that there is none; else others do.
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

    /// Takes room back that was handed out: its bytes are there, or never will be.
    pub fn filled(&mut self, token: WriteToken, has_arrived: bool) -> Progress {
        match has_arrived {
            true => self.cache.write_done(token, self.now),
            false => self.cache.write_abort(token, self.now),
        }
    }

    /// All bytes of a write are in the cache: it is done, or they are to be made stable first. The
    /// caller lets go of the end of the file that an append still has.
    pub fn finish_write(&mut self, by: Option<Party>, writing: &mut Writing) -> Now<Outcome> {
        let &mut Writing { file, offset, length, stability, borrowed, .. } = writing;
        if stability == Stability::Unstable {
            return Now::Done(Outcome::done(Ended::Written(self.written(length, stability))));
        }
        let listener = self.listener_of(by, file);
        let ticket = self.cache.commit_begin(file, offset, u64::from(length), stability, listener);
        let then = match writing.is_append {
            true => {
                // What the journal says of its place is to hold until its outcome is known.
                let has_place = writing.has_place && writing.has_intent;
                writing.has_place &= !has_place;
                Then::Appended { offset, stability, has_place }
            }
            false => Then::Written { length, stability },
        };
        Now::later(Left::Commit(CommitTask { ticket, file, borrowed, then }))
    }

    /// What a write has done.
    #[inline]
    pub fn written(&self, length: u32, committed: Stability) -> Written {
        Written { length, committed, verifier: self.verifier() }
    }

    /// What changes when data that is not stable may have been lost.
    #[inline]
    pub fn verifier(&self) -> Verifier {
        verifier_of(self.boot, self.cache)
    }

    // ---- appends --------------------------------------------------------------------

    /// Whether locks let an append through: it may end up anywhere behind the present end.
    pub fn check_end_locks(&mut self, state: StateId, handle: &FileHandle) -> Result<(), Fault> {
        let end = self.cache.find(handle).map_or(0, |file| self.cache.size(file));
        let reach = (end, limits::FILE_OFFSET_MAX - end);
        self.check_locks(state, handle, reach, IoKind::Write)
    }

    /// Takes the place at the end of the file for an append. False if another has it.
    pub fn claim_end(&mut self, writing: &mut Writing) -> bool {
        if !self.ends.take(writing.file) {
            return false;
        }
        writing.offset = self.cache.size(writing.file);
        if check_range(writing.offset, writing.length).is_err() {
            // Answered as a write that cannot be prepared would be.
            writing.offset = limits::FILE_OFFSET_MAX - u64::from(writing.length);
        }
        writing.has_place = true;
        true
    }

    /// Lets the next append of a file have its end.
    pub fn leave_end(&mut self, file: CachedFile) -> Progress {
        self.ends.leave(file);
        Progress { file, error: None }
    }

    /// An append that has its place, as the journal is to know it.
    pub fn intended_append(&self, writing: &Writing) -> Append {
        Append {
            file: self.cache.handle(writing.file),
            // By the time it is asked what became of it, there is no state to speak of.
            state: StateId::ANONYMOUS,
            length: writing.length,
            stability: writing.stability,
            hint: CacheHint(0),
        }
    }
}

/// Puts bytes into room that was handed out.
pub fn copy_in(arena: &Memory, bytes: &[u8], spans: &[Span]) {
    let mut from = 0;
    for span in spans {
        let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
        let to = from + span.length as usize;
        arena.write(offset, &bytes[from..to]);
        from = to;
    }
}

/// What tells clients that unstable data may have been lost: it changes at a restart, and after a
/// write error has made the cache give data up.
#[inline]
pub fn verifier_of(boot: u64, cache: &Cache) -> Verifier {
    Verifier((boot ^ cache.loss_count()).to_le_bytes())
}
