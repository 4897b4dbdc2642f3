//! Sizes that the parts of a client agree on.
//!
//! Invariant: a slot of an inbox holds the longest answer that a session has agreed to.

use std::time::Duration;

use dafs_dat::Domain;

/// The protection domain of everything a client registers.
pub(crate) const DOMAIN: Domain = Domain(0);

/// Bytes of one inbox slot: room for any response that was negotiated.
pub(crate) const SLOT_BYTES: usize = 4096 + 512;

/// Inbox slots beyond one for each credit.
pub(crate) const SPARE_SLOTS: u16 = 8;

/// Longest time between two looks for servers that are silent.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_secs(5);
