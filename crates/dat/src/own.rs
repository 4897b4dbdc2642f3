//! Lends the application's own memory to a peer for the duration of a call.
//!
//! Invariants:
//!
//! - When [`Lender::lend`] or [`Lender::lend_mut`] returns or unwinds, no device accesses the
//!   memory for a peer. There is one exception: if the call ended normally and [`TrustedPeers`]
//!   guarantees the behaviour of the peers, the registration is kept.
//! - Lending gives no other code of this process access to the memory: it is in no table of
//!   regions, and only a device knows it.
//!
//! [`dafs_memory::registrations`] decides which registrations are kept and detects stale ones. See
//! also `docs/decisions/0020`.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dafs_memory::registrations::{Made, Purpose, Use, Wanted};
use dafs_memory::{CacheCounters, CacheLimits, RegistrationCache};

use crate::verbs::{ProtectionDomain, Registered, access_of};
use crate::{LocalKey, Region, RegisterError, Rights, Stag};

/// The way in which an interface gives a peer access to the application's own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnMemory {
    /// The bytes are copied through permanently registered memory.
    #[default]
    Copied,
    /// The memory is registered with a device for the duration of a call.
    Registered,
    /// The memory is registered with a device. The registration is kept until its space is needed
    /// for another or the memory at that address has been replaced.
    Cached(CacheLimits, TrustedPeers),
}

/// The guarantee that peers do not access memory after their reply: see [`TrustedPeers::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedPeers(());

impl TrustedPeers {
    /// Declares every peer that this process connects to through an RDMA device to be trusted.
    ///
    /// # Safety
    /// Memory named in a call stays accessible to the peer after the call has returned. The caller
    /// guarantees that no peer reads or writes such memory after it has sent its reply, and that no
    /// code returns [`Ended::InOrder`] for a call before the reply has arrived.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// The way in which a call with lent memory ended, with the result of the call.
#[derive(Debug)]
pub enum Ended<T> {
    /// The call ended normally: the peer has replied and no longer uses the memory.
    InOrder(T),
    /// The call ended in any other way: the peer may still be using the memory.
    Otherwise(T),
}

type Cache = Mutex<RegistrationCache<Registered>>;

/// An interface's registrations of the application's own memory.
pub(crate) struct OwnRegistrations {
    cache: Arc<Cache>,
    follows: bool,
}

/// Lends memory to the peer of one endpoint.
pub struct Lender {
    protection: Arc<ProtectionDomain>,
    cache: Arc<Cache>,
    /// True if devices may be asked to follow changes of the address space (on-demand paging).
    follows: bool,
}

impl OwnRegistrations {
    /// Returns a lender, or `None` if `rule` says that memory is copied instead.
    pub(crate) fn new(rule: OwnMemory) -> Option<Self> {
        let limits = match rule {
            OwnMemory::Copied => return None,
            OwnMemory::Registered => CacheLimits::default().entries_max(0),
            OwnMemory::Cached(limits, TrustedPeers(())) => limits,
        };
        let follows = limits.on_demand && limits.entries_max > 0;
        Some(Self { cache: Arc::new(Mutex::new(RegistrationCache::new(limits))), follows })
    }

    pub(crate) fn lender(&self, protection: &Arc<ProtectionDomain>) -> Lender {
        let (protection, cache) = (Arc::clone(protection), Arc::clone(&self.cache));
        Lender { protection, cache, follows: self.follows }
    }

    pub(crate) fn forget(&self, device: u64) {
        lock(&self.cache).forget_device(device);
    }

    pub(crate) fn counters(&self) -> CacheCounters {
        lock(&self.cache).counters()
    }
}

impl Lender {
    /// Lends memory that the peer may read while `call` runs. `call` gets the region, whose STag is
    /// valid for peers on the lender's device. The region cannot be used in scatter/gather lists of
    /// this side.
    ///
    /// # Errors
    /// [`RegisterError`] if the device does not register the memory.
    pub fn lend<T>(
        &self,
        bytes: &[u8],
        call: impl FnOnce(Region) -> Ended<T>,
    ) -> Result<T, RegisterError> {
        let rights = Rights { remote_read: true, remote_write: false };
        self.lend_range(bytes.as_ptr() as usize, bytes.len(), rights, call)
    }

    /// Lends memory that the peer may write while `call` runs. `call` gets the region, as with
    /// [`Lender::lend`].
    ///
    /// # Errors
    /// [`RegisterError`] if the device does not register the memory.
    pub fn lend_mut<T>(
        &self,
        bytes: &mut [u8],
        call: impl FnOnce(Region) -> Ended<T>,
    ) -> Result<T, RegisterError> {
        let rights = Rights { remote_read: false, remote_write: true };
        self.lend_range(bytes.as_mut_ptr() as usize, bytes.len(), rights, call)
    }

    /// Lends memory that the caller has borrowed with the given rights.
    fn lend_range<T>(
        &self,
        address: usize,
        length: usize,
        rights: Rights,
        call: impl FnOnce(Region) -> Ended<T>,
    ) -> Result<T, RegisterError> {
        let access = access_of(rights);
        let purpose = Purpose { device: self.protection.number, rights: access.cast_unsigned() };
        let wanted = Wanted { purpose, address, length };
        let failed = |source: &io::Error| {
            RegisterError::new(self.protection.device.name.clone(), length as u64, source)
        };
        let mut cache = lock(&self.cache);
        let of = cache.begin(wanted, || self.register(&wanted)).map_err(|e| failed(&e))?;
        let name = cache.registration(&of).map_or(0, Registered::rkey);
        drop(cache);
        let mut lent = Lent { cache: &self.cache, of: Some(of) };
        let (key, stag) = (LocalKey::lent_to(self.protection.number), Stag(name));
        let region = Region { key, stag, address: address as u64, length: length as u64 };
        match call(region) {
            Ended::InOrder(value) => {
                lent.give_back();
                Ok(value)
            }
            Ended::Otherwise(value) => Ok(value),
        }
    }

    fn register(&self, wanted: &Wanted) -> io::Result<Made<Registered>> {
        let Wanted { purpose, address, length } = *wanted;
        let (protection, access) = (&self.protection, purpose.rights.cast_signed());
        let refuses = &protection.refuses_on_demand;
        if self.follows && !refuses.load(Ordering::Relaxed) {
            // SAFETY: as for the call below.
            match unsafe { Registered::own(protection, address, length, access, true) } {
                Ok(registration) => return Ok(Made { registration, follows_memory: true }),
                Err(_) => refuses.store(true, Ordering::Relaxed),
            }
        }
        // SAFETY: the caller of `lend_range` has borrowed the memory, so it may be used as borrowed
        // until the call returns. A registration is kept longer only if the peers are trusted to
        // leave the memory alone, and it is revoked here before any other use.
        let registration = unsafe { Registered::own(protection, address, length, access, false) };
        registration.map(|registration| Made { registration, follows_memory: false })
    }
}

impl Region {
    /// Returns true if this region is memory lent to a device.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.key.is_lent()
    }
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lender").field("device", &self.protection.device.name).finish()
    }
}

/// Memory that is lent. Dropping it revokes the registration, unless the call has ended normally.
struct Lent<'l> {
    cache: &'l Cache,
    of: Option<Use>,
}

impl Lent<'_> {
    fn give_back(&mut self) {
        if let Some(of) = self.of.take() {
            lock(self.cache).end(of);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.of.take() {
            lock(self.cache).revoke(of);
        }
    }
}

fn lock(cache: &Cache) -> MutexGuard<'_, RegistrationCache<Registered>> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
