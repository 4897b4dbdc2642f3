//! What a session that recovers asks of its server.
//!
//! Invariant: a question names what it is about by its number in the rescue that asks it.

use crate::held::HeldLock;
use crate::opens::Reclaim;

/// What is asked on the way back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Greet,
    /// The same, of a client that proves itself by tickets.
    Meet,
    /// This token proves who the client is.
    Prove,
    /// Nothing of the old session runs any more, when this is answered.
    Part,
    /// What became of this stranded request?
    Fetch(usize),
    /// The answer to that was DELAY, GRACE or NOT_AUTHENTICATED: its own, or that of the
    /// request?
    Check(usize),
    /// These credentials are to be there again.
    Enlist(usize),
    Reclaim(usize, Reclaim),
    /// Its open is there again; this lock of it is to be, too.
    Relock(usize, HeldLock),
    /// Its answer is of no interest.
    Tidy,
}
