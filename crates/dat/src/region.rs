//! Registered memory: the table that maps keys to bytes, with bounds and access rights.
//!
//! Invariant: a key leads to a region only while the region is registered. A slot is reused under a
//! new key byte, so that a stale key is refused.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dafs_memory::Memory;

use crate::verbs::raw::{Sge, access};
use crate::verbs::{ProtectionDomain, Registered, Registrations, access_of};
use crate::{Domain, LocalKey, PostError, Stag, sim};

/// The accesses that a peer may make to a region. The default is local use only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// True if the peer may read the region by RDMA.
    pub remote_read: bool,
    /// True if the peer may write the region by RDMA.
    pub remote_write: bool,
}

impl Rights {
    /// No access for the peer: the region is used only in local scatter/gather lists.
    pub const LOCAL: Rights = Rights { remote_read: false, remote_write: false };
    /// Read and write access for the peer.
    pub const REMOTE: Rights = Rights { remote_read: true, remote_write: true };

    /// Returns true if the peer may access the region in any way.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        self.remote_read || self.remote_write
    }
}

/// The way in which bytes reach a region over one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionPath {
    /// The peer has mapped the memory and copies directly to and from it.
    Mapped,
    /// The peer copies with `process_vm_readv` and `process_vm_writev`.
    ProcessVm,
    /// The bytes pass through the connection's ring, which costs one more copy on this side.
    Staged,
    /// The bytes pass through a network and are placed directly into the region.
    Network,
}

/// A registered range of memory, with its names on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The key by which scatter/gather lists of this side name the region.
    pub key: LocalKey,
    /// The STag by which the peer names the region.
    pub stag: Stag,
    /// The address of the region's first byte, as peers name it.
    pub address: u64,
    /// The length of the region in bytes.
    pub length: u64,
}

impl Region {
    /// Returns the `length` bytes at `offset` as a segment for scatter/gather lists of this side.
    #[must_use]
    pub fn local(&self, offset: u64, length: u32) -> LocalSegment {
        LocalSegment { key: self.key, offset, length }
    }

    /// Returns the `length` bytes at `offset` as a segment that the peer can name.
    #[must_use]
    pub fn remote(&self, offset: u64, length: u32) -> RemoteSegment {
        RemoteSegment { stag: self.stag, address: self.address.wrapping_add(offset), length }
    }
}

/// A range of a registered region on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSegment {
    /// The key of the region that contains the range.
    pub key: LocalKey,
    /// The position of the range in bytes from the start of the region.
    pub offset: u64,
    /// The length of the range in bytes.
    pub length: u32,
}

/// A range of the peer's memory, for RDMA operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// The STag by which the peer names its region.
    pub stag: Stag,
    /// The address of the first byte, as the peer names it.
    pub address: u64,
    /// The length of the range in bytes.
    pub length: u32,
}

/// A registered region as providers see it.
#[derive(Clone, Debug)]
pub(crate) struct RegionEntry {
    pub(crate) memory: Memory,
    pub(crate) region: Region,
    pub(crate) domain: Domain,
    pub(crate) rights: Rights,
    /// The dmabuf that contains the bytes, if they are not memory of this process; `memory` is then
    /// empty.
    pub(crate) dmabuf: Option<Arc<OwnedFd>>,
}

/// A range of a dmabuf, which usually is memory of another device.
#[derive(Clone, Copy, Debug)]
pub struct DmabufRange<'d> {
    /// The dmabuf's descriptor. The caller may close it after the registration, because the
    /// interface duplicates it.
    pub fd: BorrowedFd<'d>,
    /// The position of the range in the dmabuf in bytes.
    pub offset: u64,
    /// The length of the range in bytes.
    pub length: u64,
}

/// The reason why memory of a dmabuf could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum DmabufError {
    /// The endpoint's transport moves bytes with the processor, which cannot access a dmabuf.
    #[error("a dmabuf can be registered only with an RDMA device, and this connection uses none")]
    Transport,
    /// The endpoint is not connected, so it has no device.
    #[error("the endpoint is not connected: a dmabuf is registered with its device")]
    NotConnected,
    /// The region was not created by [`crate::Interface::register_dmabuf`], or it is deregistered.
    #[error("the region does not belong to a dmabuf, or it is no longer registered")]
    NoSuchRegion,
    /// The dmabuf's descriptor could not be duplicated.
    #[error("the dmabuf's descriptor cannot be duplicated")]
    Descriptor {
        /// The error that the system reported.
        source: std::io::Error,
    },
    /// The device refuses to register the dmabuf.
    #[error(
        "device {device} does not register this dmabuf; this needs a device and driver that \
         support dmabufs, such as mlx5 since Linux 5.12, and rdma-core 34"
    )]
    Device {
        /// The name of the device.
        device: String,
        /// The error that the system reported.
        source: std::io::Error,
    },
    /// The table of regions of the interface is full.
    #[error("the interface has no room for another region")]
    TableFull,
}

/// The reason why a device has not registered a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {device} does not register a region of {length} bytes: {what}; if the limit of locked \
     memory is too low, raise it (`ulimit -l`, LimitMEMLOCK= in systemd)"
)]
pub struct RegisterError {
    device: String,
    length: u64,
    what: String,
}

impl RegisterError {
    pub(crate) fn new(device: String, length: u64, source: &std::io::Error) -> Self {
        Self { device, length, what: source.to_string() }
    }
}

/// The reason why a peer's access to a region of this side is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessError {
    /// No region has this STag, or the region was invalidated.
    InvalidStag,
    /// The region does not belong to the connection's domain.
    WrongDomain,
    /// The requested range exceeds the region.
    Bounds,
    /// The region does not allow this access.
    Rights,
    /// The sum of address and length overflows.
    Wrap,
}

/// The registered regions of one interface.
#[derive(Debug, Default)]
pub(crate) struct RegionTable {
    slots: Vec<Option<RegionEntry>>,
    free: Vec<u32>,
    next_key: u8,
    /// The invalidated regions whose withdrawal has not been announced to the peers yet.
    revoked: Vec<RegionEntry>,
    /// The registrations of the regions with RDMA devices.
    pub(crate) devices: Registrations,
    /// The registrations of the regions with simulated devices.
    pub(crate) simulated: sim::Registrations,
}

impl RegionTable {
    pub(crate) fn insert(
        &mut self,
        memory: Memory,
        domain: Domain,
        rights: Rights,
        is_private: bool,
    ) -> Option<Region> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < REGIONS_MAX => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        self.next_key = self.next_key.wrapping_add(1);
        // The keys of slot 0 start at 1, so that no region has the name zero.
        let private = if is_private { LocalKey::PRIVATE } else { 0 };
        let number = (index << KEY_BITS) | u32::from(self.next_key.max(1)) | private;
        let region = Region {
            key: LocalKey(number),
            stag: Stag(number),
            address: memory.address(),
            length: memory.length() as u64,
        };
        let entry = RegionEntry { memory, region, domain, rights, dmabuf: None };
        self.slots[index as usize] = Some(entry);
        Some(region)
    }

    pub(crate) fn remove(&mut self, key: LocalKey) -> Option<RegionEntry> {
        let index = index_of(key.0);
        let slot = self.slots.get_mut(index as usize)?;
        if slot.as_ref()?.region.key != key {
            return None;
        }
        self.free.push(index);
        self.devices.clear(index as usize);
        self.simulated.clear(key);
        slot.take()
    }

    /// Returns the number of registered regions.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Removes the remote rights of a region (Send with Invalidate).
    pub(crate) fn invalidate(&mut self, stag: Stag, domain: Domain) -> Result<(), AccessError> {
        let entry = self
            .slots
            .get_mut(index_of(stag.0) as usize)
            .and_then(Option::as_mut)
            .filter(|entry| entry.region.stag == stag && entry.rights.is_remote())
            .ok_or(AccessError::InvalidStag)?;
        if entry.domain != domain {
            return Err(AccessError::WrongDomain);
        }
        self.revoked.push(entry.clone());
        entry.rights = Rights::LOCAL;
        self.devices.revoke(index_of(stag.0) as usize);
        Ok(())
    }

    /// Returns true if [`RegionTable::take_revoked`] would return regions.
    #[inline]
    pub(crate) fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Returns the regions invalidated since the previous call, with their former rights.
    pub(crate) fn take_revoked(&mut self) -> Vec<RegionEntry> {
        std::mem::take(&mut self.revoked)
    }

    #[inline]
    pub(crate) fn get(&self, key: LocalKey) -> Option<&RegionEntry> {
        self.slots.get(index_of(key.0) as usize)?.as_ref().filter(|entry| entry.region.key == key)
    }

    /// Checks a local segment and returns its memory and the offset in that memory.
    #[inline]
    pub(crate) fn local(
        &self,
        domain: Domain,
        segment: &LocalSegment,
    ) -> Result<(&Memory, usize), PostError> {
        let entry = self.get(segment.key).ok_or(PostError::BadSegment)?;
        let offset = usize::try_from(segment.offset).map_err(|_| PostError::BadSegment)?;
        if entry.domain != domain || !entry.memory.contains(offset, segment.length as usize) {
            return Err(PostError::BadSegment);
        }
        Ok((&entry.memory, offset))
    }

    /// Checks the domain and bounds of a local segment, whose memory may also be a dmabuf.
    #[inline]
    pub(crate) fn check(&self, domain: Domain, segment: &LocalSegment) -> Result<(), PostError> {
        let entry = self.get(segment.key).ok_or(PostError::BadSegment)?;
        let end = segment.offset.checked_add(u64::from(segment.length));
        let is_inside = end.is_some_and(|end| end <= entry.region.length);
        if entry.domain == domain && is_inside { Ok(()) } else { Err(PostError::BadSegment) }
    }

    /// Returns a local segment in the form that a device needs. Registers the region with the
    /// device when it is first used there.
    #[inline]
    pub(crate) fn device_piece(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        domain: Domain,
        segment: &LocalSegment,
    ) -> Result<Sge, PostError> {
        self.check(domain, segment)?;
        let slot = index_of(segment.key.0) as usize;
        let entry = self.slots[slot].as_ref().ok_or(PostError::BadSegment)?;
        let lkey = self
            .devices
            .local(protection, slot, entry)
            .map_err(|error| PostError::Registration(error.raw_os_error().unwrap_or(0)))?;
        let address = entry.region.address + segment.offset;
        Ok(Sge { address, length: segment.length, lkey })
    }

    /// Registers a region with a device, so that peers can access it there.
    pub(crate) fn expose_to_device(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        key: LocalKey,
    ) -> std::io::Result<()> {
        let slot = index_of(key.0) as usize;
        let entry = self.slots.get(slot).and_then(Option::as_ref);
        let Some(entry) = entry.filter(|e| e.region.key == key && e.rights.is_remote()) else {
            return Ok(());
        };
        if entry.dmabuf.is_some() {
            return Ok(());
        }
        self.devices.expose(protection, slot, entry).map(|_| ())
    }

    /// Returns the STag by which peers on a device know a region.
    pub(crate) fn device_name(&self, protection: &ProtectionDomain, key: LocalKey) -> Option<Stag> {
        let entry = self.get(key)?;
        self.devices.name(protection, index_of(entry.region.key.0) as usize)
    }

    /// Removes the remote rights of the region that peers on a device know by this STag.
    pub(crate) fn invalidate_on_device(
        &mut self,
        protection: &ProtectionDomain,
        name: Stag,
        domain: Domain,
    ) -> Result<Stag, AccessError> {
        let slot = self.devices.slot_named(protection, name.0).ok_or(AccessError::InvalidStag)?;
        let entry = self.slots[slot].as_ref().ok_or(AccessError::InvalidStag)?;
        let stag = entry.region.stag;
        self.invalidate(stag, domain).map(|()| stag)
    }

    /// Adds memory that does not belong to this process. The memory is not registered with a device
    /// yet.
    pub(crate) fn insert_dmabuf(
        &mut self,
        domain: Domain,
        dmabuf: DmabufRange<'_>,
        rights: Rights,
    ) -> Result<Region, DmabufError> {
        let fd =
            dmabuf.fd.try_clone_to_owned().map_err(|source| DmabufError::Descriptor { source })?;
        // The processor cannot access its bytes, so no other transport can use them.
        let nothing = Memory::from_heap(Box::default());
        let full = DmabufError::TableFull;
        let region = self.insert(nothing, domain, rights, false).ok_or(full)?;
        let (address, length) = (dmabuf.offset, dmabuf.length);
        let region = Region { address, length, ..region };
        if let Some(entry) = &mut self.slots[index_of(region.key.0) as usize] {
            (entry.region, entry.dmabuf) = (region, Some(Arc::new(fd)));
        }
        Ok(region)
    }

    /// Returns the dmabuf of a region, and the region itself.
    pub(crate) fn dmabuf(&self, key: LocalKey) -> Result<(&OwnedFd, &RegionEntry), DmabufError> {
        let entry = self.get(key).ok_or(DmabufError::NoSuchRegion)?;
        Ok((entry.dmabuf.as_deref().ok_or(DmabufError::NoSuchRegion)?, entry))
    }

    /// Registers a dmabuf with a device, unless it is registered there.
    pub(crate) fn dmabuf_to_device(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        key: LocalKey,
    ) -> Result<(), DmabufError> {
        let slot = index_of(key.0) as usize;
        let (fd, RegionEntry { region, rights, .. }) = self.dmabuf(key)?;
        if self.devices.knows(protection, slot) {
            return Ok(());
        }
        let length = usize::try_from(region.length).unwrap_or(usize::MAX);
        let register = |access| {
            Registered::dmabuf(protection, fd.as_fd(), region.address, length, access).map_err(
                |source| DmabufError::Device { device: protection.device.name.clone(), source },
            )
        };
        let local = register(access::LOCAL_WRITE)?;
        let remote = rights.is_remote().then(|| register(access_of(*rights))).transpose()?;
        self.devices.adopt(protection, slot, local, remote);
        Ok(())
    }

    /// Checks the bounds and rights of a range that a peer of `domain` names, and returns its
    /// memory and offset.
    #[inline]
    pub(crate) fn remote(
        &self,
        domain: Domain,
        stag: Stag,
        address: u64,
        length: u32,
        write: bool,
    ) -> Result<(&Memory, usize), AccessError> {
        let entry = self.check_remote(domain, LocalKey(stag.0), address, length, write)?;
        let offset = usize::try_from(address - entry.region.address).ok();
        let offset = offset.filter(|offset| entry.memory.contains(*offset, length as usize));
        Ok((&entry.memory, offset.ok_or(AccessError::Bounds)?))
    }

    /// Checks the bounds and rights of a range that a peer of `domain` names, and returns its
    /// region.
    #[inline]
    pub(crate) fn check_remote(
        &self,
        domain: Domain,
        key: LocalKey,
        address: u64,
        length: u32,
        write: bool,
    ) -> Result<&RegionEntry, AccessError> {
        let entry = self.get(key).ok_or(AccessError::InvalidStag)?;
        if entry.domain != domain {
            return Err(AccessError::WrongDomain);
        }
        if !entry.rights.is_remote() {
            return Err(AccessError::InvalidStag);
        }
        if address.checked_add(u64::from(length)).is_none() {
            return Err(AccessError::Wrap);
        }
        let offset = address.checked_sub(entry.region.address).ok_or(AccessError::Bounds)?;
        if offset.saturating_add(u64::from(length)) > entry.region.length {
            return Err(AccessError::Bounds);
        }
        let allowed = if write { entry.rights.remote_write } else { entry.rights.remote_read };
        if allowed { Ok(entry) } else { Err(AccessError::Rights) }
    }

    /// Returns every region that peers of `domain` can access as soon as they are connected.
    pub(crate) fn remote_of(&self, domain: Domain) -> impl Iterator<Item = &RegionEntry> {
        let is_reached = |entry: &&RegionEntry| entry.rights.is_remote() && entry.dmabuf.is_none();
        let of_domain = move |entry: &&RegionEntry| entry.domain == domain;
        self.slots.iter().flatten().filter(of_domain).filter(is_reached)
    }
}

#[inline]
const fn index_of(number: u32) -> u32 {
    (number & !LocalKey::PRIVATE) >> KEY_BITS
}

/// The maximum number of regions of one interface.
const REGIONS_MAX: usize = 1 << 16;
/// The number of low bits of a key that change when the key's slot is reused.
const KEY_BITS: u32 = 8;

#[cfg(test)]
mod tests {
    use dafs_memory::Pages;

    use super::*;

    fn table() -> (RegionTable, Region) {
        let mut table = RegionTable::default();
        let memory = Memory::anonymous(8192, Pages::Small).unwrap();
        let region = table.insert(memory, Domain(1), Rights::REMOTE, false).unwrap();
        (table, region)
    }

    #[test]
    fn a_peer_reaches_exactly_the_region() {
        let (table, region) = table();
        let at = |offset: u64, length| {
            table.remote(Domain(1), region.stag, region.address + offset, length, true).map(|r| r.1)
        };
        assert_eq!(at(0, 8192), Ok(0));
        assert_eq!(at(8191, 1), Ok(8191));
        assert_eq!(at(8192, 1), Err(AccessError::Bounds));
        assert_eq!(at(0, 8193), Err(AccessError::Bounds));
        let wrap = table.remote(Domain(1), region.stag, u64::MAX, 2, true).map(|r| r.1);
        assert_eq!(wrap, Err(AccessError::Wrap));
        let other = table.remote(Domain(2), region.stag, region.address, 1, true).map(|r| r.1);
        assert_eq!(other, Err(AccessError::WrongDomain));
    }

    #[test]
    fn a_reused_slot_has_another_name() {
        let (mut table, region) = table();
        table.remove(region.key).unwrap();
        let memory = Memory::anonymous(4096, Pages::Small).unwrap();
        let again = table.insert(memory, Domain(1), Rights::REMOTE, false).unwrap();
        assert_ne!(again.stag, region.stag);
        assert!(table.get(region.key).is_none());
    }

    #[test]
    fn an_invalidated_region_is_local_only() {
        let (mut table, region) = table();
        table.invalidate(region.stag, Domain(1)).unwrap();
        let access = table.remote(Domain(1), region.stag, region.address, 1, false).map(|r| r.1);
        assert_eq!(access, Err(AccessError::InvalidStag));
        assert!(table.local(Domain(1), &region.local(0, 10)).is_ok());
    }
}
