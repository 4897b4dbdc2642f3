//! The requests that a recovering session sends.
//!
//! Invariant: a question names its subject by an index into the
//! [`RecoveryProgress`](super::progress::RecoveryProgress).

use crate::held_locks::HeldLock;
use crate::opens::Reclaim;

/// A request that recovery sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// CLIENT_CONNECT_AUTH, which connects and authenticates at once.
    ConnectAuth,
    /// CLIENT_CONNECT, for a client that authenticates by Kerberos.
    Connect,
    /// CLIENT_AUTH, with a token.
    Authenticate,
    /// Ends the old connection; the reply means that nothing of the old session runs any more.
    EndOldSession,
    /// Asks for the result of this interrupted request.
    Fetch(usize),
    /// After a reply DELAY, GRACE or NOT_AUTHENTICATED: asks whether that is the stored result or
    /// the status of the question.
    Check(usize),
    /// Registers these credentials again.
    RegisterCredentials(usize),
    Reclaim(usize, Reclaim),
    /// Requests this lock of a reclaimed open again.
    Relock(usize, HeldLock),
    /// A request whose reply is ignored.
    Ignore,
}
