//! Strands: pieces of batches on their way between the cache and a client's memory.
//!
//! Invariant: a strand holds its file, and whatever it has pinned or prepared, until every
//! transfer that it posted is over; then its piece is given back.
//!
//! What is read for an asynchronous batch goes over the back-control channel, before the notice:
//! only on one connection does what was written come before the message behind it. For a
//! synchronous one it goes over the operation channel, before the answer.

mod steps;

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::IoKind;
use dafs_files::reading::Reading;
use dafs_files::under_way::Reach;
use dafs_files::undo::seen::UndoSeen;
use dafs_files::writing::Part;
use dafs_sessions::Piece;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Pin, WriteToken};
use dafs_types::{CacheHint, SequenceNumber, SessionId, StreamId};

use crate::moving::transfer::Staging;
use crate::reply_to::ReplyTo;

/// A piece of a batch under way.
#[derive(Debug)]
pub struct Strand {
    /// `None` once it was given back.
    piece: Option<Piece>,
    kind: IoKind,
    session: SessionId,
    /// The connection that what is read goes over.
    pub(crate) over: EndpointId,
    pub file: CachedFile,
    pub offset: u64,
    pub length: u32,
    borrowed: bool,
    hint: CacheHint,
    done: u32,
    /// All that can be read is posted.
    is_whole: bool,
    pub transfers_left: u32,
    pub transfer_failed: bool,
    /// What it has posted of a read, and not let go yet.
    shown: Shown,
    /// Undo that was kept when it began.
    pub undo_seen: UndoSeen,
    /// The room being written to.
    pub token: Option<WriteToken>,
    /// The bytes to be written, where they are here already, and where they begin.
    data: Option<(Arc<[u8]>, usize)>,
    /// Whether what was written is stable, once that is known.
    stable: Option<Result<(), StoreError>>,
    /// It counts as work of the disk.
    is_in_flight: bool,
}

/// What the transport reads from for a strand.
#[derive(Debug, Default)]
struct Shown {
    /// Bytes of it.
    posted: u32,
    pins: Vec<Pin>,
    /// The same, where it has a checksum.
    staged: Vec<Staging>,
}

impl Strand {
    /// Whether it reads, so that others may read meanwhile.
    pub fn is_read(&self) -> bool {
        self.kind == IoKind::Read
    }

    /// Bytes of the transfers that it waits for.
    pub fn bytes_moving(&self) -> u32 {
        self.token.as_ref().map_or(self.shown.posted, |token| token.length())
    }

    /// What it may yet do to its file.
    pub fn reach(&self) -> Reach {
        let changes = (!self.is_read()).then_some(self.undo_seen);
        Reach::of(self.file, (self.offset, self.length), changes)
    }

    /// What of a read is left.
    fn reading(&self) -> Reading {
        let Self { file, offset, length, done, hint, borrowed, .. } = *self;
        Reading { file, offset, length, done, hint, borrowed }
    }

    /// What of a write is left.
    fn part(&self) -> Part {
        let place = self.offset + u64::from(self.done);
        Part { file: self.file, place, left: self.length - self.done }
    }

    /// What was written is stable, or is not.
    pub fn note_stable(&mut self, result: Result<(), StoreError>) {
        self.stable = Some(result);
    }
}

/// Whose a strand is, in the form of where an answer would go; it has none of its own.
fn answer_to(operation: EndpointId) -> ReplyTo {
    ReplyTo::new(operation, StreamId(0), SequenceNumber(0))
}
