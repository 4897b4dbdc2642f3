//! The requests that a recovering session sends.
//!
//! Invariant: a [`Question`] names the request, open, or credentials that it is about by an index
//! into the [`RecoveryProgress`](super::progress::RecoveryProgress).

use crate::held_locks::HeldLock;
use crate::opens::Reclaim;

/// A request that a recovering session sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// CLIENT_CONNECT_AUTH, which connects and authenticates in one request.
    ConnectAuth,
    /// CLIENT_CONNECT, for a client that authenticates by Kerberos.
    Connect,
    /// CLIENT_AUTH, which carries a Kerberos token.
    Authenticate,
    /// Ends the old connection; the reply means that no request of the old session is running any
    /// more.
    EndOldSession,
    /// Requests the result of the interrupted request with this index.
    Fetch(usize),
    /// Follows a reply with the status DELAY, GRACE or NOT_AUTHENTICATED to [`Question::Fetch`]:
    /// asks whether that status is the stored result of the interrupted request, or concerned only
    /// the fetch.
    Check(usize),
    /// Registers the credentials with this index again.
    RegisterCredentials(usize),
    Reclaim(usize, Reclaim),
    /// Requests this lock again, under the reclaimed open with this index.
    Relock(usize, HeldLock),
    /// A request whose reply is ignored.
    Ignore,
}
