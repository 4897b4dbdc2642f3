//! Work that is deferred until the replies of the current event are sent, so that no client waits
//! for it: the end of an open after the reply to CLOSE, and the storing of a plain WRITE's result.
//!
//! Invariants:
//! - Deferred work is done before the next event is handled, so no client can observe the delay.
//! - A request whose result is stored this way is executed in one step, and its reply is sent in
//!   the same step. A request that turns out to take longer is first registered in its session like
//!   any other request ([`keep_begun`]).

use std::collections::VecDeque;
use std::sync::Arc;

use dafs_dat::ServingInterface;
use dafs_filer::{ClientKey, FileKey};
use dafs_files::Notice;
use dafs_sessions::{KeptSession, RequestName, Sessions};
use dafs_store::Store;
use dafs_types::{FileHandle, Moment, StateId, Status};
use dafs_wire::{HEADER_BYTES, Procedure, TRANSFER_ANSWER_BYTES};

use crate::pool::jobs::{Job, Pool};
use crate::reply_to::ReplyTo;

/// The deferred work: at most one open to end, at most one result to store, the notices, and the
/// removed objects to close.
#[derive(Default)]
pub(crate) struct Afterwards {
    closing: Option<Closing>,
    keeping: Option<Keeping>,
    removed: Removals,
    /// Notices for the reactor from the operations on files.
    notices: VecDeque<Notice>,
}

/// The removed objects that the store must still close.
#[derive(Debug, Default)]
struct Removals {
    /// The number of small objects, which occupy so little space that they may be freed late.
    small: usize,
    /// True if there is an object that is not small.
    has_large: bool,
    /// True while a worker thread closes removed objects.
    is_under_way: bool,
    /// The time of the last call that asked the store which objects local processes have removed.
    looked: Moment,
}

/// An open that ends after the reply to its CLOSE is sent.
#[derive(Debug)]
pub(crate) struct Closing {
    pub client: ClientKey,
    pub state: StateId,
    pub key: FileKey,
}

/// The result of a successful WRITE that waits to be stored.
#[derive(Debug)]
pub(crate) struct Keeping {
    session: KeptSession,
    request: RequestName,
    bytes: [u8; RESULT_BYTES],
}

impl Afterwards {
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.closing.is_some() | self.keeping.is_some()
    }

    /// Schedules the close of a removed object that occupies `held` bytes. The close is deferred
    /// because the system frees the bytes during the close, which takes as long as a short request.
    pub(crate) fn close_removed(&mut self, held: u64) {
        if held <= SMALL_BYTES_MAX {
            self.removed.small += 1;
        } else {
            self.removed.has_large = true;
        }
    }

    /// Returns the queue into which operations on files put notices.
    #[inline]
    pub(crate) fn notices(&mut self) -> &mut VecDeque<Notice> {
        &mut self.notices
    }

    /// Removes and returns the next notice.
    #[inline]
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Returns true if the queue of notices is empty.
    #[inline]
    pub(crate) fn has_no_notices(&self) -> bool {
        self.notices.is_empty()
    }

    /// Returns the objects that, since the last call, local processes have removed or the store has
    /// closed. The caller releases the objects' space in the cache and on disk.
    pub(crate) fn release_removed(&mut self, store: &dyn Store, now: Moment) -> Vec<FileHandle> {
        let before = std::mem::replace(&mut self.removed.looked, now);
        let gone = store.release_removed(now.since(before));
        self.removed.small += gone.len();
        gone
    }

    /// Closes removed objects at the end of a turn. Large objects are given to a worker thread
    /// immediately, so that their space becomes free soon. A single small object is closed by the
    /// reactor itself. While more requests arrive, small objects are collected until there are
    /// enough to wake a worker thread.
    #[inline]
    pub(crate) fn close_removed_by(
        &mut self,
        interface: &mut ServingInterface,
        pool: &mut Pool,
        store: &Arc<dyn Store>,
    ) {
        if !self.has_removed() {
            return;
        }
        let removed = &mut self.removed;
        if removed.has_large || removed.small == 1 && !pool.helps() {
            (removed.small, removed.has_large) = (0, false);
            interface.flush();
            store.close_removed();
        } else if removed.small >= SMALL_COUNT {
            self.close_small(pool, store);
        }
    }

    /// Closes the small removed objects on a worker thread, even if there are only a few.
    pub(crate) fn close_small(&mut self, pool: &mut Pool, store: &Arc<dyn Store>) {
        let removed = &mut self.removed;
        if removed.small > 0 && !removed.is_under_way {
            (removed.small, removed.is_under_way) = (0, true);
            pool.submit(Job::CloseRemoved(store.clone()));
        }
    }

    /// Records that a worker thread has finished closing removed objects.
    pub(crate) fn on_removed_closed(&mut self) {
        self.removed.is_under_way = false;
    }

    /// Schedules the end of an open. The caller makes sure that no other end is pending.
    pub(crate) fn close(&mut self, closing: Closing) {
        self.closing = Some(closing);
    }

    /// Removes and returns the open that must end.
    #[inline]
    pub(crate) fn take_closing(&mut self) -> Option<Closing> {
        self.closing.take()
    }

    /// Stores the result of a WRITE in its session, if a result is pending.
    #[inline]
    pub(crate) fn keep_up(&mut self, sessions: &mut Sessions) {
        // The result is read in place: copying it right after it was written would stall on store
        // forwarding.
        if let Some(keeping) = &self.keeping {
            keeping.keep(sessions);
            self.keeping = None;
        }
    }

    /// Returns true if there are removed objects to close.
    #[inline]
    pub(crate) fn has_removed(&self) -> bool {
        self.removed.has_large | (self.removed.small > 0)
    }

    /// Schedules a result to be stored after the replies are sent. A result that is already pending
    /// is stored now.
    #[inline]
    pub(crate) fn keep(&mut self, keeping: Keeping, sessions: &mut Sessions) {
        if let Some(before) = &self.keeping {
            before.keep(sessions);
        }
        self.keeping = Some(keeping);
    }
}

impl Keeping {
    /// Extracts the fields of a reply to a WRITE that must be stored.
    #[inline]
    pub(crate) fn of(answer: ReplyTo, message: &[u8; TRANSFER_ANSWER_BYTES]) -> Self {
        let mut bytes = [0; RESULT_BYTES];
        bytes.copy_from_slice(&message[HEADER_BYTES..]);
        Self { session: answer.kept_later(), request: name_of_write(answer), bytes }
    }

    #[inline]
    pub(crate) fn keep(&self, sessions: &mut Sessions) {
        sessions.keep_finished(self.session, self.request, Status::Ok, &self.bytes);
    }
}

/// Registers a WRITE in its session like any other request, because it cannot finish in one step
/// and its result can no longer be stored after the reply.
#[inline]
pub(crate) fn keep_begun(sessions: &mut Sessions, answer: ReplyTo) -> ReplyTo {
    let session = answer.kept_later();
    if !session.is_some() {
        return answer;
    }
    sessions.begin_request(session, name_of_write(answer));
    let mut answer = answer;
    answer.keep_in(session);
    answer
}

fn name_of_write(answer: ReplyTo) -> RequestName {
    let (stream, sequence) = (answer.stream, answer.sequence);
    RequestName { stream, sequence, procedure: Procedure::WriteDirect.number() }
}

const RESULT_BYTES: usize = TRANSFER_ANSWER_BYTES - HEADER_BYTES;
/// The size limit of a small removed object, in bytes. Its space may stay occupied for a while
/// after no process can see it.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// The number of small removed objects at which a worker thread is woken to close them.
const SMALL_COUNT: usize = 16;
