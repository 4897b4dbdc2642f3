//! Names of the things an [`crate::Interface`] owns. Each carries a generation, so
//! that a name kept too long is refused instead of meaning something else.

use std::fmt;

/// One connection, from before it is established until it is released.
///
/// It says which interface it belongs to: [`EndpointId::owner`]. An interface of another owner
/// treats it as a connection that does not exist.
///
/// It is one word, not two halves. Halves that are stored one by one and then loaded as one word
/// make the processor wait until everything stored before has reached its cache, and that may be
/// a ring whose cache lines the peer's core holds. That took 50 nanoseconds at each look at a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(
    /// From above: owner, index, generation. [`INDEX_BITS`] tells where.
    u64,
);

/// Owners that a process can have: see [`InterfaceConfig::owner`](crate::InterfaceConfig::owner).
pub const OWNERS_MAX: usize = 16;

impl EndpointId {
    /// Endpoints that one interface can have.
    pub(crate) const COUNT_MAX: usize = 1 << INDEX_BITS;

    /// The first endpoint in a slot of an interface. The owner is below [`OWNERS_MAX`], and the
    /// index below [`EndpointId::COUNT_MAX`].
    pub(crate) const fn first(owner: u8, index: u32) -> Self {
        assert!((owner as usize) < OWNERS_MAX && (index as usize) < Self::COUNT_MAX);
        Self::from_bits((owner as u32) << INDEX_BITS | index, 1)
    }

    /// The next endpoint in the same slot. No generation is 0.
    pub(crate) fn next(self) -> Self {
        let (place, generation) = self.to_bits();
        Self::from_bits(place, generation.wrapping_add(1).max(1))
    }

    /// A dense index within its interface, reused after release; for the caller's own tables.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        self.slot() as usize
    }

    /// Whose endpoint it is: the `owner` of the interface that made it.
    #[must_use]
    #[inline]
    pub fn owner(self) -> usize {
        (self.0 >> (INDEX_BITS + u32::BITS)) as usize
    }

    /// [`EndpointId::index`], as an interface's own lists have it.
    #[inline]
    pub(crate) const fn slot(self) -> u32 {
        (self.0 >> u32::BITS) as u32 & INDEX_MASK
    }

    /// Owner and index in [`EndpointId::PLACE_BITS`] bits, and the generation.
    pub(crate) const fn to_bits(self) -> (u32, u32) {
        ((self.0 >> u32::BITS) as u32, self.0 as u32)
    }

    pub(crate) const fn from_bits(place: u32, generation: u32) -> Self {
        Self((place as u64) << u32::BITS | generation as u64)
    }

    /// Bits of owner and index together.
    pub(crate) const PLACE_BITS: u32 = INDEX_BITS + OWNERS_MAX.ilog2();
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, index, generation) = (self.owner(), self.index(), self.to_bits().1);
        write!(f, "EndpointId {{ owner: {owner}, index: {index}, generation: {generation} }}")
    }
}

/// Bits of an index: over a million endpoints for each owner.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

const _: () = assert!(OWNERS_MAX.is_power_of_two() && size_of::<EndpointId>() == 8);

/// One listening address, of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) owner: u8,
    pub(crate) index: u32,
}

impl ListenerId {
    /// The first listener of an interface that is alone.
    pub(crate) const FIRST: Self = Self { owner: 0, index: 0 };
}

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
