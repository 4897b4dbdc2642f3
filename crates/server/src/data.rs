//! What reads and writes share on their way to clients: parking, resuming, and jobs. What is done
//! to files is in [`dafs_files`].
//!
//! Invariant: bytes are posted from pinned pieces only, and written into spans whose
//! token is held; whatever happens to the connection, pins and tokens come back.

mod stepping;

use dafs_files::left::{GrantTask, Left};
use dafs_files::outcome::{Ended, Now, Outcome};
use dafs_files::under_way::UnderWay;
use dafs_ops::Fault;
use dafs_types::Status;
use dafs_wire::{Checksum, DirectBuffers};

use crate::task::{Buffers, Wait};

/// How far a task got.
pub(crate) enum Step {
    /// It is over, and this came of it.
    Done(Outcome),
    /// A read is over: its bytes are with the client, or on their way before the answer.
    Read { length: u32, is_end: bool, checksum: Checksum },
    /// A file went to its reader, under this name.
    HandedOver(u64),
    /// It is over, and what there was to say has been said.
    Silent,
    /// It is over, since its connection is at its end.
    Broken,
    /// It goes on later.
    Wait(Wait),
    /// Something else is left to do.
    Become(Box<Left>),
}

impl Step {
    pub fn failed(why: impl Into<Fault>) -> Self {
        Self::Done(Outcome::failed(why))
    }
}

impl From<Now<Outcome>> for Step {
    fn from(now: Now<Outcome>) -> Self {
        match now {
            Now::Done(outcome) => Self::Done(outcome),
            Now::Later(left) => Self::Become(left),
        }
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

/// A lock is granted; its owner learns of it when nobody else's transfers are under way
/// in its range any more.
fn step_grant(task: &GrantTask, under_way: &UnderWay) -> Step {
    match task.waits(under_way) {
        true => Step::Wait(Wait::Room),
        false => Now::done(Ended::Locked, task.after).into(),
    }
}

/// Fills few enough to be done by the reactor itself when the page cache has them.
const FILLS_IN_PLACE_MAX: usize = 4;
