//! The keys of a client's sessions.
//!
//! Invariant: the key of a removed session never becomes valid again.

use dafs_base::Key;

/// A tag type for the keys of sessions.
#[derive(Debug)]
pub(crate) enum SessionTag {}

/// The key of a session in a client's table.
pub(crate) type SessionKey = Key<SessionTag>;
