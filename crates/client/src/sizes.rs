//! Sizes that several modules use.
//!
//! Invariant: an inbox slot holds the longest reply that a session has agreed to.

use std::time::Duration;

use dafs_dat::Domain;

/// The protection domain of everything that a client registers.
pub(crate) const DOMAIN: Domain = Domain(0);

/// The size of an inbox slot: room for the longest reply that can be negotiated.
pub(crate) const SLOT_BYTES: usize = 4096 + 512;

/// The number of inbox slots in addition to one for each credit.
pub(crate) const SPARE_SLOTS: u16 = 8;

/// The longest time between two checks for silent servers.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_secs(5);
