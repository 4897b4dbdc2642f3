//! What is done once the answer is out, so that nobody waits for it: an open ends whose CLOSE
//! was answered, and the result of a plain WRITE is kept.
//!
//! Invariant: it is done before anything else is looked at, so that nobody can tell; and a
//! request whose result is kept this way is carried out and answered at once. One that turns
//! out to need more is begun before it waits ([`Reactor::keep_begun`]).

mod follow_up;

use dafs_filer::{ChannelId, FileKey, Filer, KeptSession, RequestName};
use dafs_types::{StateId, Status};
use dafs_wire::{HEADER_BYTES, Procedure, TRANSFER_ANSWER_BYTES};

use crate::reply_to::ReplyTo;

/// What waits for the answers to be out: one of each kind.
#[derive(Debug, Default)]
pub(crate) struct Afterwards {
    closing: Option<Closing>,
    keeping: Option<Keeping>,
    removed: Removals,
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
}

/// An open that ends.
#[derive(Debug)]
struct Closing {
    channel: ChannelId,
    state: StateId,
    key: FileKey,
}

/// The result of a WRITE that succeeded.
#[derive(Debug)]
pub(crate) struct Keeping {
    session: KeptSession,
    request: RequestName,
    octets: [u8; RESULT_BYTES],
}

impl Afterwards {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.closing.is_some() | self.keeping.is_some()
    }

    /// Has the store close what a removal has left open: the system frees the `held` octets then,
    /// which takes as long as a short request.
    pub fn close_removed(&mut self, held: u64) {
        if held <= SMALL_BYTES_MAX {
            self.removed.small += 1;
        } else {
            self.removed.has_large = true;
        }
    }

    /// Whether removed objects wait to be closed.
    #[inline]
    pub fn has_removed(&self) -> bool {
        self.removed.has_large | (self.removed.small > 0)
    }

    /// Has a result kept once the answers are out; one that waits already is kept now.
    #[inline]
    pub fn keep(&mut self, keeping: Keeping, filer: &mut Filer) {
        if let Some(before) = &self.keeping {
            before.keep(filer);
        }
        self.keeping = Some(keeping);
    }
}

impl Keeping {
    /// What is to be kept of an answer to a WRITE.
    #[inline]
    pub fn of(answer: ReplyTo, message: &[u8; TRANSFER_ANSWER_BYTES]) -> Self {
        let mut octets = [0; RESULT_BYTES];
        octets.copy_from_slice(&message[HEADER_BYTES..]);
        Self { session: answer.kept_later(), request: name_of_write(answer), octets }
    }

    #[inline]
    pub fn keep(&self, filer: &mut Filer) {
        filer.keep_whole(self.session, self.request, Status::Ok, &self.octets);
    }
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
