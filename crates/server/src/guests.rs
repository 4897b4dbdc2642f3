//! Callers that are not DAFS connections, such as users of NFS clients.
//!
//! Like a request of a DAFS connection, a request of a guest carries an endpoint id, so that tasks,
//! locks and fencing lists treat both in the same way. The result of a guest's request is not sent
//! over the network interface. Instead, the code of the guest's protocol takes the result from
//! [`GuestResults`] and encodes the reply.

pub(crate) mod table;

use std::collections::VecDeque;

use dafs_files::delegations::Told;
use dafs_files::outcome::Outcome;
use dafs_journal::RecordNumber;
use smallvec::SmallVec;

use crate::moving::transfer::Cookie;
use crate::reply_to::ReplyTo;

/// The results of requests of guests, in the order in which the requests ended.
#[derive(Debug, Default)]
pub(crate) struct GuestResults {
    ended: VecDeque<(ReplyTo, GuestResult)>,
    /// True if a lock that a guest waits for may be granted.
    is_lock_ready: bool,
}

/// The result of one request of a guest.
#[derive(Debug)]
pub(crate) enum GuestResult {
    /// The outcome of an operation.
    Outcome(Outcome),
    /// The bytes of a read, which stay pinned in the cache until the loan ends.
    Read(GuestRead),
    /// The record that a reply waits for is durable.
    Durable,
    /// The names that a call wants to change may be free now. The call must be started again.
    Free,
    /// The intent of the call is durable; this is the number of its record. The call must be
    /// executed now.
    Intended(RecordNumber),
    /// What the holder of a delegation has reported about its file. The call must continue with it.
    Told(Told),
}

/// The bytes that a read of a guest has found.
#[derive(Debug)]
pub(crate) struct GuestRead {
    /// The ranges of the cache's arena, each an offset and a length in bytes.
    pub pieces: SmallVec<[(u64, u32); 4]>,
    /// True if the file ends after these bytes.
    pub is_end: bool,
    /// Identifies the loan of the pieces. The loan must be ended when the pieces have been sent.
    pub cookie: Cookie,
}

impl GuestRead {
    /// Returns the number of bytes found.
    pub(crate) fn length(&self) -> u32 {
        self.pieces.iter().map(|(_, length)| *length).sum()
    }
}

impl GuestResults {
    /// Adds the result of a request.
    pub(crate) fn push(&mut self, to: ReplyTo, result: GuestResult) {
        self.ended.push_back((to, result));
    }

    /// Removes and returns the oldest result.
    pub(crate) fn pop(&mut self) -> Option<(ReplyTo, GuestResult)> {
        self.ended.pop_front()
    }

    /// Returns true if a result waits to be taken, or a lock may be granted.
    pub(crate) fn is_any(&self) -> bool {
        !self.ended.is_empty() || self.is_lock_ready
    }

    /// Records that a lock that a guest waits for may be granted.
    pub(crate) fn note_lock_ready(&mut self) {
        self.is_lock_ready = true;
    }

    /// Returns true if [`GuestResults::note_lock_ready`] was called since the last call of this
    /// function.
    pub(crate) fn take_ready(&mut self) -> bool {
        std::mem::take(&mut self.is_lock_ready)
    }
}
