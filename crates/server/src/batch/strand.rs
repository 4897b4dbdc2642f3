//! Strands: transfers of batches between the cache and a client's memory.
//!
//! Invariant: a strand holds its file, and everything it has pinned or prepared, until every
//! transfer that it posted is done. Then it reports its piece back.
//!
//! A read of an asynchronous batch goes over the back-control channel, before the notice. Only on
//! one connection do written bytes arrive before the message that follows them. A read of a
//! synchronous batch goes over the operation channel, before the reply.

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

/// A transfer of a batch in progress.
#[derive(Debug)]
pub(crate) struct Strand {
    /// The scheduler's piece; `None` once it was reported back.
    piece: Option<Piece>,
    kind: IoKind,
    session: SessionId,
    /// The connection that bytes of a read go over.
    pub(crate) over: EndpointId,
    pub file: CachedFile,
    pub offset: u64,
    pub length: u32,
    borrowed: bool,
    hint: CacheHint,
    done: u32,
    /// True if everything that can be read is posted.
    is_whole: bool,
    pub transfers_left: u32,
    pub transfer_failed: bool,
    /// The memory of a read that the transport may still read from.
    lent: LentMemory,
    /// The state of undo when the strand started.
    pub undo_seen: UndoSeen,
    /// The room being written to.
    pub token: Option<WriteToken>,
    /// The bytes to write, if they are fetched already, and the offset of the first one.
    data: Option<(Arc<[u8]>, usize)>,
    /// The result of making the bytes stable, once it is known.
    stable: Option<Result<(), StoreError>>,
    /// True if the strand counts as work of the disk.
    is_in_flight: bool,
}

/// The memory that the transport reads from for a strand.
#[derive(Debug, Default)]
struct LentMemory {
    /// The number of bytes posted.
    posted: u32,
    pins: Vec<Pin>,
    /// Copies, in a session with checksums.
    staged: Vec<Staging>,
}

impl Strand {
    /// Returns true for a read, during which others may read too.
    pub(crate) fn is_read(&self) -> bool {
        self.kind == IoKind::Read
    }

    /// The number of bytes of the transfers that the strand waits for.
    pub(crate) fn bytes_moving(&self) -> u32 {
        self.token.as_ref().map_or(self.lent.posted, |token| token.length())
    }

    /// The range of its file that the strand may still access.
    pub(crate) fn reach(&self) -> Reach {
        let changes = (!self.is_read()).then_some(self.undo_seen);
        Reach::of(self.file, (self.offset, self.length), changes)
    }

    /// The rest of a read.
    fn reading(&self) -> Reading {
        let Self { file, offset, length, done, hint, borrowed, .. } = *self;
        Reading { file, offset, length, done, hint, borrowed }
    }

    /// The rest of a write.
    fn part(&self) -> Part {
        let place = self.offset + u64::from(self.done);
        Part { file: self.file, place, left: self.length - self.done }
    }

    /// Notes whether the written bytes are stable.
    pub(crate) fn note_stable(&mut self, result: Result<(), StoreError>) {
        self.stable = Some(result);
    }
}

/// Names the connection of a strand in the form of a reply's destination. A strand has no reply of
/// its own.
fn answer_to(operation: EndpointId) -> ReplyTo {
    ReplyTo::new(operation, StreamId(0), SequenceNumber(0))
}
