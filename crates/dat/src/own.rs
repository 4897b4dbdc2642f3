//! The application's own memory, lent to a peer for as long as a call takes.
//!
//! Invariant: when [`Lender::lend`] or [`Lender::lend_mut`] returns or unwinds, no device touches
//! the memory for a peer, unless the call was over in order and [`TrustedPeers`] vouch for the
//! rest: only then a registration is kept. No other code of this process gets at the memory by
//! what is lent: it is in no table of regions, and only a device knows it.
//!
//! What is kept, and how it is found out that it is out of date, is
//! [`dafs_memory::registrations`]' business; see also `docs/decisions/0020`.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dafs_memory::registrations::{Made, Purpose, Use, Wanted};
use dafs_memory::{CacheCounters, CacheLimits, RegistrationCache};

use crate::verbs::{ProtectionDomain, Registered, access_of};
use crate::{LocalKey, Region, RegisterError, Rights, Stag};

/// What becomes of memory of the application's own that a peer is to read or write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnMemory {
    /// It is copied, through memory that is registered for good.
    #[default]
    Copied,
    /// A device is told of it for as long as a call takes.
    Registered,
    /// A device is told of it, and not told otherwise until others need the room or it is other
    /// memory.
    Cached(CacheLimits, TrustedPeers),
}

/// Somebody has vouched for the peers: see [`TrustedPeers::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedPeers(());

impl TrustedPeers {
    /// Vouches for every peer that this process connects to by an RDMA device.
    ///
    /// # Safety
    /// What a peer was told of stays within its reach after the call that told it. None may read
    /// or write such memory when its answer is out; and nobody may say that a call is over in
    /// order before that.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// How a call with lent memory ended.
#[derive(Debug)]
pub enum Ended<T> {
    /// In order: the peer has answered, and is done with the memory.
    InOrder(T),
    /// In another way: the peer may be at work on the memory.
    Otherwise(T),
}

type Cache = Mutex<RegistrationCache<Registered>>;

/// The registrations of an interface's own memory.
pub struct OwnRegistrations {
    cache: Arc<Cache>,
    follows: bool,
}

/// Lends memory to the peer of one endpoint.
pub struct Lender {
    protection: Arc<ProtectionDomain>,
    cache: Arc<Cache>,
    /// Devices are asked to follow what becomes of the memory.
    follows: bool,
}

impl OwnRegistrations {
    /// `None` if nothing is lent.
    pub(crate) fn new(rule: OwnMemory) -> Option<Self> {
        let limits = match rule {
            OwnMemory::Copied => return None,
            OwnMemory::Registered => CacheLimits { entries_max: 0, ..CacheLimits::default() },
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
    /// Lends memory that the peer may read, while `call` runs. The region has a name for peers on
    /// the lender's device, and is nothing to this side's lists.
    ///
    /// # Errors
    /// If the device does not register it.
    pub fn lend<T>(
        &self,
        bytes: &[u8],
        call: impl FnOnce(Region) -> Ended<T>,
    ) -> Result<T, RegisterError> {
        let rights = Rights { remote_read: true, remote_write: false };
        self.lend_range(bytes.as_ptr() as usize, bytes.len(), rights, call)
    }

    /// Lends memory that the peer may write, while `call` runs.
    ///
    /// # Errors
    /// If the device does not register it.
    pub fn lend_mut<T>(
        &self,
        bytes: &mut [u8],
        call: impl FnOnce(Region) -> Ended<T>,
    ) -> Result<T, RegisterError> {
        let rights = Rights { remote_read: false, remote_write: true };
        self.lend_range(bytes.as_mut_ptr() as usize, bytes.len(), rights, call)
    }

    /// The memory is borrowed by the caller, with these rights.
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
            // SAFETY: as below.
            match unsafe { Registered::own(protection, address, length, access, true) } {
                Ok(registration) => return Ok(Made { registration, follows_memory: true }),
                Err(_) => refuses.store(true, Ordering::Relaxed),
            }
        }
        // SAFETY: the caller of `lend_range` has borrowed the memory, so that it may be used as it
        // says until the call is over; what is kept longer is kept because the peers are
        // trusted to leave it alone, and is taken back here before any other use.
        let registration = unsafe { Registered::own(protection, address, length, access, false) };
        registration.map(|registration| Made { registration, follows_memory: false })
    }
}

impl Region {
    /// Whether it is lent to devices, by whichever connection.
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

/// Memory that is lent; taken back by force if it is not given back.
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
