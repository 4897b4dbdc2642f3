//! Sizes that several modules use.
//!
//! Invariant: an inbox slot is large enough for the longest reply that a session can agree to.

use std::time::Duration;

use dafs_dat::Domain;

/// The protection domain of all memory that a client registers.
pub(crate) const DOMAIN: Domain = Domain(0);

/// The size of an inbox slot in bytes: room for the longest reply that can be negotiated.
pub(crate) const SLOT_BYTES: usize = 4096 + 512;

/// The number of inbox slots in addition to one for each credit.
pub(crate) const SPARE_SLOTS: u16 = 8;

/// The longest time between two checks for silent servers.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_secs(5);
