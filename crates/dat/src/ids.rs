//! Names of the things an [`crate::Interface`] owns. Each carries a generation, so
//! that a name kept too long is refused instead of meaning something else.

/// One connection, from before it is established until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl EndpointId {
    /// A dense index, reused after release; for the caller's own tables.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// One listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u32);

/// An inbound connection that waits for accept or reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PendingId(pub(crate) EndpointId);

/// A protection domain: an endpoint reaches only regions of its own domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domain(pub u32);

/// Names a registered region on this side, in scatter/gather lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

impl LocalKey {
    /// In the key of a region that only an [`Inbox`](crate::Inbox) may use.
    pub(crate) const PRIVATE: u32 = 1 << 31;
    /// In the key of memory that is lent ([`crate::own`]): the rest is a device's number. No
    /// region of a table has it.
    const LENT: u32 = 1 << 30;

    pub(crate) const fn lent_to(device: u64) -> Self {
        Self(Self::LENT | (device as u32 & (Self::LENT - 1)))
    }

    #[inline]
    pub(crate) const fn is_lent(self) -> bool {
        self.0 & (Self::LENT | Self::PRIVATE) == Self::LENT
    }

    #[inline]
    pub(crate) const fn is_private(self) -> bool {
        self.0 & Self::PRIVATE != 0
    }
}

/// Names a registered region to the peer (steering tag, region handle).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);
