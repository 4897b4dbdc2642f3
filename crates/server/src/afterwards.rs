//! What is done once the answer is out, so that nobody waits for it: an open ends whose CLOSE
//! was answered, and the result of a plain WRITE is kept.
//!
//! Invariant: it is done before anything else is looked at, so that nobody can tell; and a
//! request whose result is kept this way is carried out and answered at once. One that turns
//! out to need more is begun before it waits ([`keep_begun`]).

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

/// What waits for the answers to be out: one of each kind.
#[derive(Default)]
pub(crate) struct Afterwards {
    closing: Option<Closing>,
    keeping: Option<Keeping>,
    removed: Removals,
    /// What operations have asked for on the way.
    notices: VecDeque<Notice>,
}

/// What the store is to close: objects that were removed.
#[derive(Debug, Default)]
struct Removals {
    /// How many hold so little that it does not matter when it is freed.
    small: usize,
    /// Whether another holds more.
    has_large: bool,
    /// Whether a thread of the pool is closing some.
    is_under_way: bool,
    /// When the store was last asked what was removed beside us.
    looked: Moment,
}

/// An open that ends.
#[derive(Debug)]
pub(crate) struct Closing {
    pub client: ClientKey,
    pub state: StateId,
    pub key: FileKey,
}

/// The result of a WRITE that succeeded.
#[derive(Debug)]
pub(crate) struct Keeping {
    session: KeptSession,
    request: RequestName,
    bytes: [u8; RESULT_BYTES],
}

impl Afterwards {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.closing.is_some() | self.keeping.is_some()
    }

    /// Has the store close what a removal has left open: the system frees the `held` bytes then,
    /// which takes as long as a short request.
    pub fn close_removed(&mut self, held: u64) {
        if held <= SMALL_BYTES_MAX {
            self.removed.small += 1;
        } else {
            self.removed.has_large = true;
        }
    }

    /// What operations have asked for on the way is put there.
    #[inline]
    pub fn notices(&mut self) -> &mut VecDeque<Notice> {
        &mut self.notices
    }

    /// The next thing that an operation has asked for.
    #[inline]
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Whether no operation has asked for anything more.
    #[inline]
    pub fn has_no_notices(&self) -> bool {
        self.notices.is_empty()
    }

    /// What local processes have removed, or the store has closed, since it was last asked: it
    /// takes no room any more, on disk or in the cache.
    pub fn let_go_of_removed(&mut self, store: &dyn Store, now: Moment) -> Vec<FileHandle> {
        let before = std::mem::replace(&mut self.removed.looked, now);
        let gone = store.let_go_of_removed(now.since(before));
        self.removed.small += gone.len();
        gone
    }

    /// Has removed objects closed, at the end of a turn: large ones before anybody can miss the
    /// room, and a single small one. While others ask at the same time, that is left to another
    /// thread, which is woken for many at once.
    #[inline]
    pub fn close_removed_by(
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

    /// Has small removed objects closed, however few there are.
    pub fn close_small(&mut self, pool: &mut Pool, store: &Arc<dyn Store>) {
        let removed = &mut self.removed;
        if removed.small > 0 && !removed.is_under_way {
            (removed.small, removed.is_under_way) = (0, true);
            pool.submit(Job::CloseRemoved(store.clone()));
        }
    }

    /// A thread of the pool has closed what it was to close.
    pub fn on_removed_closed(&mut self) {
        self.removed.is_under_way = false;
    }

    /// An open ends once the answer is out. None waits for that yet.
    pub fn close(&mut self, closing: Closing) {
        self.closing = Some(closing);
    }

    /// The open that is to end.
    #[inline]
    pub fn take_closing(&mut self) -> Option<Closing> {
        self.closing.take()
    }

    /// Keeps what is to be kept.
    #[inline]
    pub fn keep_up(&mut self, sessions: &mut Sessions) {
        // Where it is: a copy would wait for what was stored just now.
        if let Some(keeping) = &self.keeping {
            keeping.keep(sessions);
            self.keeping = None;
        }
    }

    /// Whether removed objects wait to be closed.
    #[inline]
    pub fn has_removed(&self) -> bool {
        self.removed.has_large | (self.removed.small > 0)
    }

    /// Has a result kept once the answers are out; one that waits already is kept now.
    #[inline]
    pub fn keep(&mut self, keeping: Keeping, sessions: &mut Sessions) {
        if let Some(before) = &self.keeping {
            before.keep(sessions);
        }
        self.keeping = Some(keeping);
    }
}

impl Keeping {
    /// What is to be kept of an answer to a WRITE.
    #[inline]
    pub fn of(answer: ReplyTo, message: &[u8; TRANSFER_ANSWER_BYTES]) -> Self {
        let mut bytes = [0; RESULT_BYTES];
        bytes.copy_from_slice(&message[HEADER_BYTES..]);
        Self { session: answer.kept_later(), request: name_of_write(answer), bytes }
    }

    #[inline]
    pub fn keep(&self, sessions: &mut Sessions) {
        sessions.keep_whole(self.session, self.request, Status::Ok, &self.bytes);
    }
}

/// A WRITE whose result was to be kept afterwards is not over at once: it is under way from here
/// on, as any request is.
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
/// What a removed object may hold for some time, when nobody can see it any more.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Small removed objects that are worth waking a thread.
const SMALL_COUNT: usize = 16;
