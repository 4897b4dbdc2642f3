//! The identifiers of the objects that an [`crate::Interface`] owns. Each contains a generation, so
//! that a stale identifier is refused instead of naming another object.

use std::fmt;

/// The identifier of one connection, from before the connection is established until it is
/// released.
///
/// It contains the number of its interface, see [`EndpointId::owner`]. An interface with another
/// number treats it as the identifier of a connection that does not exist.
///
/// The identifier is stored as one word, not as two halves. If two halves are stored separately and
/// then loaded as one word, the processor waits until all earlier stores have reached its cache,
/// possibly including stores to a ring whose cache lines the peer's core holds. That took 50
/// nanoseconds at each poll of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(
    /// From the highest bits: owner, index, generation. See [`INDEX_BITS`].
    u64,
);

/// The maximum number of interfaces in a process. Each has its own
/// [owner](crate::InterfaceConfig::owner) number, which is below this value.
pub const OWNERS_MAX: usize = 16;

impl EndpointId {
    /// The maximum number of endpoints of one interface.
    pub(crate) const COUNT_MAX: usize = 1 << INDEX_BITS;

    /// Returns the first endpoint in a slot of an interface. `owner` must be below [`OWNERS_MAX`],
    /// and `index` below [`EndpointId::COUNT_MAX`].
    pub(crate) const fn first(owner: u8, index: u32) -> Self {
        assert!((owner as usize) < OWNERS_MAX && (index as usize) < Self::COUNT_MAX);
        Self::from_bits((owner as u32) << INDEX_BITS | index, 1)
    }

    /// Returns an identifier for a caller that is not a connection of an interface, so that the
    /// caller's own tables can hold both. No interface may have this `owner`, and no generation is
    /// 0.
    ///
    /// # Panics
    /// Panics if `owner` is not below [`OWNERS_MAX`], or if `index` is a million or more.
    #[must_use]
    pub const fn outside(owner: u8, index: u32, generation: u32) -> Self {
        let first = Self::first(owner, index);
        Self::from_bits(first.to_bits().0, generation)
    }

    /// Returns the next endpoint in the same slot. No generation is 0.
    pub(crate) fn next(self) -> Self {
        let (place, generation) = self.to_bits();
        Self::from_bits(place, generation.wrapping_add(1).max(1))
    }

    /// Returns an index within the interface, for the caller's own tables. Indexes are small and
    /// are reused after a release.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        self.slot() as usize
    }

    /// Returns the owner number of the interface that created this endpoint.
    #[must_use]
    #[inline]
    pub fn owner(self) -> usize {
        (self.0 >> (INDEX_BITS + u32::BITS)) as usize
    }

    /// Returns [`EndpointId::index`] as `u32`, the type that the interface's own lists use.
    #[inline]
    pub(crate) const fn slot(self) -> u32 {
        (self.0 >> u32::BITS) as u32 & INDEX_MASK
    }

    /// Returns the owner and the index in [`EndpointId::PLACE_BITS`] bits, and the generation.
    pub(crate) const fn to_bits(self) -> (u32, u32) {
        ((self.0 >> u32::BITS) as u32, self.0 as u32)
    }

    pub(crate) const fn from_bits(place: u32, generation: u32) -> Self {
        Self((place as u64) << u32::BITS | generation as u64)
    }

    /// The number of bits of owner and index together.
    pub(crate) const PLACE_BITS: u32 = INDEX_BITS + OWNERS_MAX.ilog2();
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, index, generation) = (self.owner(), self.index(), self.to_bits().1);
        write!(f, "EndpointId {{ owner: {owner}, index: {index}, generation: {generation} }}")
    }
}

/// The number of bits of an index, sufficient for over a million endpoints per owner.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

const _: () = assert!(OWNERS_MAX.is_power_of_two() && size_of::<EndpointId>() == 8);

/// The identifier of one listener of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) owner: u8,
    pub(crate) index: u32,
}

impl ListenerId {
    /// The first listener of the interface with owner 0.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) const FIRST: Self = Self { owner: 0, index: 0 };
}

/// The identifier of an inbound connection that waits to be accepted or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PendingId(pub(crate) EndpointId);

impl PendingId {
    /// Returns the endpoint of the connection, which events name before and after it is accepted.
    #[must_use]
    pub fn endpoint(self) -> EndpointId {
        self.0
    }
}

/// A protection domain: peers of an endpoint can access only regions of the endpoint's domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domain(pub u32);

/// The key by which this side names a registered region in scatter/gather lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

impl LocalKey {
    /// The bit that marks the key of a region that only an [`Inbox`](crate::Inbox) may use.
    pub(crate) const PRIVATE: u32 = 1 << 31;
    /// The bit that marks the key of lent memory ([`crate::own`]); the other bits are a device's
    /// number. No key of a region in a table has this bit.
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

/// A steering tag: the name by which the peer refers to a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);
