//! The requests that a recovering session sends.
//!
//! Invariant: a question names its subject by an index into the rescue that asks it.

use crate::held::HeldLock;
use crate::opens::Reclaim;

/// A request that recovery sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Greet,
    /// CLIENT_CONNECT, for a client that authenticates by Kerberos.
    Meet,
    /// CLIENT_AUTH, with a token.
    Prove,
    /// Ends the old connection; the reply means that nothing of the old session runs any more.
    Part,
    /// Asks for the result of this interrupted request.
    Fetch(usize),
    /// After a reply DELAY, GRACE or NOT_AUTHENTICATED: asks whether that is the stored result or
    /// the status of the question.
    Check(usize),
    /// Registers these credentials again.
    Enlist(usize),
    Reclaim(usize, Reclaim),
    /// Requests this lock of a reclaimed open again.
    Relock(usize, HeldLock),
    /// A request whose reply is ignored.
    Tidy,
}
