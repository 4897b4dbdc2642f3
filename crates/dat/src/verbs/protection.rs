//! Protection domains of devices, and the memory registered with them.
//!
//! Invariant: a registration keeps its protection domain and its memory, whose pages stay pinned. A
//! device's context stays open as long as any object that was created with it (`anchor`).
//!
//! A region may be registered twice with a device: once for scatter/gather lists of this side, and
//! once under an STag for the peer. So the peer's STag can be withdrawn while work of this side
//! continues, and a region that no peer needs has no STag.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dafs_memory::{Memory, Pinned};

use super::library::Library;
use super::link::checked;
use super::raw;
use crate::own::OwnRegistrations;
use crate::region::RegionEntry;
use crate::{Domain, Rights, Stag};

/// A protection domain on one device, for one domain of an interface.
pub(crate) struct ProtectionDomain {
    library: Arc<Library>,
    context: NonNull<raw::Context>,
    pd: NonNull<raw::Pd>,
    /// The library's list of all devices, held because it keeps the devices' contexts open.
    anchor: NonNull<*mut raw::Context>,
    /// The number of this protection domain, unique within this process.
    pub number: u64,
    pub domain: Domain,
    pub device: DeviceFacts,
    /// True if the device has refused on-demand paging, which follows changes of the address space.
    pub refuses_on_demand: AtomicBool,
}

// SAFETY: any thread may make the library's calls, and this side never writes the structures that
// they take.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

/// The properties of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    pub name: String,
    pub is_iwarp: bool,
    pub requests_max: u32,
    pub entries_max: u32,
    pub sge_max: u32,
    /// The maximum number of RDMA reads by peers that the device can have in flight.
    pub reads_served_max: u8,
    /// The maximum number of RDMA reads by this side that the device can have in flight.
    pub reads_made_max: u8,
}

impl ProtectionDomain {
    pub(crate) fn new(
        library: &Arc<Library>,
        context: NonNull<raw::Context>,
        domain: Domain,
    ) -> io::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let device = facts(library, context)?;
        // SAFETY: the only argument is a pointer for a count, which may be null.
        let anchor = unsafe { (library.manager.rdma_get_devices)(std::ptr::null_mut()) };
        let anchor = NonNull::new(anchor).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the context is open, and the anchor keeps it open.
        let pd = NonNull::new(unsafe { (library.verbs.ibv_alloc_pd)(context.as_ptr()) });
        let Some(pd) = pd else {
            let error = io::Error::last_os_error();
            // SAFETY: the list is freed once.
            unsafe { (library.manager.rdma_free_devices)(anchor.as_ptr()) };
            return Err(error);
        };
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (library, refuses_on_demand) = (Arc::clone(library), AtomicBool::new(false));
        Ok(Self { library, context, pd, anchor, number, domain, device, refuses_on_demand })
    }

    pub(crate) fn raw(&self) -> *mut raw::Pd {
        self.pd.as_ptr()
    }

    pub(crate) fn context(&self) -> NonNull<raw::Context> {
        self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: both come from the library and are freed once. Everything created in the
        // protection domain holds a reference to it and is gone.
        unsafe {
            (self.library.verbs.ibv_dealloc_pd)(self.pd.as_ptr());
            (self.library.manager.rdma_free_devices)(self.anchor.as_ptr());
        }
    }
}

fn facts(library: &Library, context: NonNull<raw::Context>) -> io::Result<DeviceFacts> {
    // SAFETY: the structure has only integers, for which zeros are valid.
    let mut attributes: raw::DeviceAttributes = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open, and the attributes live during the call.
    checked(unsafe { (library.verbs.ibv_query_device)(context.as_ptr(), &raw mut attributes) })?;
    // SAFETY: an open context has a device, whose name ends with a zero byte.
    let (name, transport) = unsafe {
        let device = context.as_ref().device.as_ref().ok_or(io::ErrorKind::NotFound)?;
        (super::text(&device.name), device.transport_type)
    };
    let count = |value: c_int| u32::try_from(value).unwrap_or(0);
    let reads = |value: c_int| u8::try_from(value.clamp(0, READS_MAX)).unwrap_or(0);
    Ok(DeviceFacts {
        name,
        is_iwarp: transport == raw::TRANSPORT_IWARP,
        requests_max: count(attributes.qp_requests_max),
        entries_max: count(attributes.cq_entries_max),
        sge_max: count(attributes.sge_max),
        reads_served_max: reads(attributes.qp_reads_max),
        reads_made_max: reads(attributes.qp_initiator_reads_max),
    })
}

/// Memory that is registered with a device.
pub(crate) struct Registered {
    mr: NonNull<raw::Mr>,
    protection: Arc<ProtectionDomain>,
    /// A reference that keeps the memory in place; `None` for memory outside this process, and for
    /// the application's own memory.
    _pinned: Option<Pinned>,
}

// SAFETY: as for `ProtectionDomain`.
unsafe impl Send for Registered {}

impl Registered {
    /// Registers a range of a memory with a device.
    pub(crate) fn new(
        protection: &Arc<ProtectionDomain>,
        memory: &Memory,
        offset: usize,
        length: usize,
        access: c_int,
    ) -> io::Result<Self> {
        let pinned = memory.pin();
        let start: *mut c_void = memory.pointer(offset, length).cast();
        let register = protection.library.verbs.ibv_reg_mr;
        // SAFETY: `pointer` has checked that the range lies inside the memory, which lives as long
        // as the registration. No code borrows its bytes, because readers expect concurrent writes.
        let mr = unsafe { register(protection.raw(), start, length, access) };
        Self::made(protection, mr, Some(pinned))
    }

    /// Registers the application's own memory. With on-demand paging, in which the device follows
    /// changes of the address space, no page is pinned.
    ///
    /// # Safety
    /// Until this value is dropped, peers may use the memory with the given access.
    pub(crate) unsafe fn own(
        protection: &Arc<ProtectionDomain>,
        address: usize,
        length: usize,
        access: c_int,
        follows: bool,
    ) -> io::Result<Self> {
        let access = if follows { access | raw::access::ON_DEMAND } else { access };
        let register = protection.library.verbs.ibv_reg_mr;
        // SAFETY: the call looks up the pages and fails if there are none. The caller decides who
        // may use them.
        let mr = unsafe { register(protection.raw(), address as *mut c_void, length, access) };
        Self::made(protection, mr, None)
    }

    /// Registers a range of a dmabuf. The registration stays valid after the descriptor is closed.
    pub(crate) fn dmabuf(
        protection: &Arc<ProtectionDomain>,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        access: c_int,
    ) -> io::Result<Self> {
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        let register = protection.library.verbs.register_dmabuf().ok_or_else(unsupported)?;
        let fd = dmabuf.as_raw_fd();
        // SAFETY: the descriptor is open, and the dmabuf is not memory of this process.
        let mr = unsafe { register(protection.raw(), offset, length, offset, fd, access) };
        Self::made(protection, mr, None)
    }

    fn made(
        protection: &Arc<ProtectionDomain>,
        mr: *mut raw::Mr,
        pinned: Option<Pinned>,
    ) -> io::Result<Self> {
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { mr, protection: Arc::clone(protection), _pinned: pinned })
    }

    #[inline]
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the library's structure lives as long as `self`, and no code writes it.
        unsafe { self.mr.as_ref().lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref().rkey }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the memory is deregistered once, before it is freed. The protection domain is
        // alive.
        unsafe { (self.protection.library.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}

/// The registrations of one region with one protection domain.
struct Registration {
    protection: u64,
    /// The registration for scatter/gather lists of this side.
    local: Option<Registered>,
    /// The registration under the peer's STag.
    remote: Option<Registered>,
}

/// The protection domains of an interface, and the registrations of its regions.
#[derive(Default)]
pub(crate) struct Registrations {
    /// The registrations by slot of the region, which must be dropped before the protection
    /// domains.
    slots: Vec<Vec<Registration>>,
    /// The registrations of the application's own memory, which is in no slot.
    pub own: Option<OwnRegistrations>,
    domains: Vec<Arc<ProtectionDomain>>,
}

impl std::fmt::Debug for Registrations {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Registrations").field("domains", &self.domains.len()).finish()
    }
}

impl Registrations {
    /// Returns the protection domain that represents `domain` on a device, and creates it if there
    /// is none.
    pub(crate) fn domain(
        &mut self,
        library: &Arc<Library>,
        context: NonNull<raw::Context>,
        domain: Domain,
    ) -> io::Result<Arc<ProtectionDomain>> {
        let is_it = |p: &&Arc<ProtectionDomain>| p.context == context && p.domain == domain;
        if let Some(found) = self.domains.iter().find(is_it) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(ProtectionDomain::new(library, context, domain)?);
        self.domains.push(Arc::clone(&made));
        Ok(made)
    }

    /// Drops all registrations with a device that has been removed.
    pub(crate) fn forget(&mut self, context: NonNull<raw::Context>) {
        let is_gone = |p: &Arc<ProtectionDomain>| p.context == context;
        let gone: Vec<u64> = self.domains.iter().filter(|p| is_gone(p)).map(|p| p.number).collect();
        for slot in &mut self.slots {
            slot.retain(|registration| !gone.contains(&registration.protection));
        }
        if let Some(own) = &self.own {
            gone.iter().for_each(|number| own.forget(*number));
        }
        self.domains.retain(|p| !is_gone(p));
    }

    /// Drops the registrations of the region in a slot, because the region was deregistered.
    #[inline]
    pub(crate) fn clear(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.clear();
        }
    }

    /// Withdraws the STags of a region from all peers.
    pub(crate) fn revoke(&mut self, slot: usize) {
        for registration in self.slots.get_mut(slot).into_iter().flatten() {
            registration.remote = None;
        }
    }

    /// Returns the slot of the region that peers know by this STag.
    pub(crate) fn slot_named(&self, protection: &ProtectionDomain, name: u32) -> Option<usize> {
        self.slots.iter().position(|slot| {
            slot.iter().any(|registration| {
                registration.protection == protection.number
                    && registration.remote.as_ref().is_some_and(|remote| remote.rkey() == name)
            })
        })
    }

    /// Returns the key of a region for scatter/gather lists of this side. Registers the region when
    /// it is first used.
    #[inline]
    pub(crate) fn local(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        slot: usize,
        entry: &RegionEntry,
    ) -> io::Result<u32> {
        let known = self.find(protection.number, slot).and_then(|found| found.local.as_ref());
        if let Some(known) = known {
            return Ok(known.lkey());
        }
        self.register_local(protection, slot, entry)
    }

    #[cold]
    fn register_local(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        slot: usize,
        entry: &RegionEntry,
    ) -> io::Result<u32> {
        let (memory, access) = (&entry.memory, raw::access::LOCAL_WRITE);
        let made = Registered::new(protection, memory, 0, memory.length(), access)?;
        let lkey = made.lkey();
        self.place(protection.number, slot).local = Some(made);
        Ok(lkey)
    }

    /// Returns the peer's STag of a region. Registers the region if it has no STag yet.
    pub(crate) fn expose(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        slot: usize,
        entry: &RegionEntry,
    ) -> io::Result<Stag> {
        if let Some(name) = self.name(protection, slot) {
            return Ok(name);
        }
        let (memory, access) = (&entry.memory, access_of(entry.rights));
        let made = Registered::new(protection, memory, 0, memory.length(), access)?;
        let name = Stag(made.rkey());
        self.place(protection.number, slot).remote = Some(made);
        Ok(name)
    }

    /// Returns the peer's STag of a region, if the region has one.
    pub(crate) fn name(&self, protection: &ProtectionDomain, slot: usize) -> Option<Stag> {
        let found = self.find(protection.number, slot)?;
        found.remote.as_ref().map(|remote| Stag(remote.rkey()))
    }

    /// Adds the registration of memory outside this process.
    pub(crate) fn adopt(
        &mut self,
        protection: &ProtectionDomain,
        slot: usize,
        local: Registered,
        remote: Option<Registered>,
    ) {
        let place = self.place(protection.number, slot);
        (place.local, place.remote) = (Some(local), remote);
    }

    /// Returns true if a region is registered with a device.
    pub(crate) fn knows(&self, protection: &ProtectionDomain, slot: usize) -> bool {
        self.find(protection.number, slot).is_some()
    }

    #[inline]
    fn find(&self, protection: u64, slot: usize) -> Option<&Registration> {
        self.slots.get(slot)?.iter().find(|registration| registration.protection == protection)
    }

    fn place(&mut self, protection: u64, slot: usize) -> &mut Registration {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, Vec::new);
        }
        let slot = &mut self.slots[slot];
        let at = slot.iter().position(|r| r.protection == protection).unwrap_or_else(|| {
            slot.push(Registration { protection, local: None, remote: None });
            slot.len() - 1
        });
        &mut slot[at]
    }
}

/// Returns the access flags for a peer's rights. The flag for remote writes requires that for local
/// writes.
pub(crate) fn access_of(rights: Rights) -> c_int {
    use raw::access::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};
    let read = if rights.remote_read { REMOTE_READ } else { 0 };
    let write = if rights.remote_write { REMOTE_WRITE | LOCAL_WRITE } else { 0 };
    read | write
}

/// The maximum number of RDMA reads in flight on which both sides can agree. It is sent in one
/// byte, whose largest value has another meaning.
const READS_MAX: c_int = 254;
