//! What reads and writes share: which file, which state, parking and resuming.
//!
//! Invariant: bytes are posted from pinned pieces only, and written into spans whose
//! token is held; whatever happens to the connection, pins and tokens come back.

mod stepping;

use dafs_filer::IoKind;
use dafs_store::cache::CachedFile;
use dafs_types::{ShareAccess, Status, limits};
use dafs_wire::DirectBuffers;

use crate::outcome::{Ended, Now, Outcome};
use crate::task::{Buffers, Wait, Work};
use crate::undo::seen::UndoSeen;

/// How far a task got.
pub(crate) enum Step {
    /// It is over, and this came of it.
    Done(Outcome),
    /// It is over, and what there was to say has been said.
    Silent,
    /// It is over, since its connection is at its end.
    Broken,
    /// It goes on later.
    Wait(Wait),
    /// Something else is left to do.
    Become(Box<Work>),
}

impl Step {
    #[inline]
    pub fn done(ended: Ended) -> Self {
        Self::Done(Outcome::done(ended))
    }

    pub fn failed(why: impl Into<Status>) -> Self {
        Self::Done(Outcome::failed(why))
    }
}

impl From<Now<Outcome>> for Step {
    fn from(now: Now<Outcome>) -> Self {
        match now {
            Now::Done(outcome) => Self::Done(outcome),
            Now::Later(work) => Self::Become(work),
        }
    }
}

/// The file a request names, and whether it was opened for this request alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoFile {
    pub file: CachedFile,
    pub borrowed: bool,
    /// Undo that was kept when it was let in. What comes later is for others' changes.
    pub undo_seen: UndoSeen,
}

pub(crate) fn access_for(kind: IoKind) -> ShareAccess {
    match kind {
        IoKind::Read => ShareAccess::Read,
        IoKind::Write => ShareAccess::Write,
    }
}

#[inline]
pub(crate) fn check_range(offset: u64, length: u32) -> Result<(), Status> {
    if length > limits::TRANSFER_BYTES_MAX {
        return Err(Status::Inval);
    }
    match offset.checked_add(u64::from(length)) {
        Some(end) if end <= limits::FILE_OFFSET_MAX => Ok(()),
        _ => Err(Status::FBig),
    }
}

#[inline]
pub(crate) fn take_buffers(buffers: &DirectBuffers<'_>, length: u32) -> Result<Buffers, Status> {
    match buffers.len() {
        1 => {
            let buffer = buffers.get(0).ok_or(Status::Inval)?;
            if buffer.length < length { Err(Status::TooSmall) } else { Ok(Buffers::One(buffer)) }
        }
        0 if length == 0 => Ok(Buffers::Many(Box::default())),
        _ if buffers.total_bytes() < u64::from(length) => Err(Status::TooSmall),
        _ => Ok(Buffers::Many(buffers.iter().collect())),
    }
}

/// Fills few enough to be done by the reactor itself when the page cache has them.
const FILLS_IN_PLACE_MAX: usize = 4;
