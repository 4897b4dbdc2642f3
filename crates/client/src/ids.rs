//! How the parts of a client name its sessions.
//!
//! Invariant: the key of a session that has left names nothing.

use dafs_base::Key;

/// What the keys of sessions are named after.
#[derive(Debug)]
pub(crate) enum SessionTag {}

/// A session of a client's table.
pub(crate) type SessionKey = Key<SessionTag>;
