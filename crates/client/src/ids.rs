//! The keys of a client's sessions.
//!
//! Invariant: the key of a session that has left is never valid again.

use dafs_base::Key;

/// A tag type for the keys of sessions.
#[derive(Debug)]
pub(crate) enum SessionTag {}

/// Names a session in a client's table.
pub(crate) type SessionKey = Key<SessionTag>;
