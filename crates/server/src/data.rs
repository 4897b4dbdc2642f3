//! The common parts of READ and WRITE in the reactor: parking requests, resuming them, and starting
//! jobs. The operations on files are in [`dafs_files`].
//!
//! Invariant: the transport reads only from pinned cache blocks and writes only into cache space
//! whose token is held. Pins and tokens are released even if the connection breaks.

mod stepping;

use dafs_files::left::{GrantTask, RemainingWork};
use dafs_files::outcome::{Ended, Now, Outcome};
use dafs_files::under_way::UnderWay;
use dafs_ops::Fault;
use dafs_types::Status;
use dafs_wire::{Checksum, DirectBuffers};

use crate::task::{Buffers, Wait};

/// The result of executing one step of a task.
pub(crate) enum Step {
    /// The task is finished with this outcome.
    Done(Outcome),
    /// A READ has finished: its bytes are in the client's memory already, or will be before the
    /// reply arrives.
    Read { length: u32, is_end: bool, checksum: Checksum },
    /// A file's descriptor was sent to the client. The integer identifies the descriptor in the
    /// reply.
    HandedOver(u64),
    /// The task is finished, and its reply, if it has one, was sent.
    Silent,
    /// The task ends without a reply, because its connection is closing.
    Broken,
    /// The task must be parked until this event.
    Wait(Wait),
    /// The task is replaced by this other work, which continues the request.
    Become(Box<RemainingWork>),
}

impl Step {
    pub(crate) fn failed(why: impl Into<Fault>) -> Self {
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

/// Grants a lock after the transfers of other owners in its range have ended. Only then is the
/// reply sent to the lock's owner.
fn step_grant(task: &GrantTask, under_way: &UnderWay) -> Step {
    match task.waits(under_way) {
        true => Step::Wait(Wait::Room),
        false => Now::done(Ended::Locked, task.after).into(),
    }
}

/// The maximum number of blocks that the reactor itself reads in one step, if the blocks are in the
/// page cache.
const FILLS_IN_PLACE_MAX: usize = 4;
