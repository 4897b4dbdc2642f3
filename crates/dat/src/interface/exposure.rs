//! The type parameter of an interface determines whether peers may access memory of this side, so
//! that the compiler checks this.
//!
//! In DAFS the server moves the data: it reads and writes memory that clients expose, and exposes
//! none itself. A [`ServingInterface`] cannot expose memory:
//!
//! ```
//! use dafs_dat::{Domain, Interface, InterfaceConfig, ServingInterface};
//! use dafs_memory::{Memory, Pages};
//!
//! let mut server: ServingInterface = Interface::serving(InterfaceConfig::default())?;
//! let memory = Memory::anonymous(4096, Pages::Small)?;
//! assert!(server.register_local(&memory, Domain(0)).is_some());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! ```compile_fail,E0599
//! use dafs_dat::{Domain, Interface, InterfaceConfig, Rights, ServingInterface};
//! use dafs_memory::{Memory, Pages};
//!
//! let mut server: ServingInterface = Interface::serving(InterfaceConfig::default())?;
//! let memory = Memory::anonymous(4096, Pages::Small)?;
//! // A serving interface has no such method.
//! server.register(&memory, Domain(0), Rights::REMOTE);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Invariant: only this module creates regions with remote rights and lends memory, and only for
//! interfaces marked by [`Exposes`].

use std::io;

use dafs_memory::{CacheCounters, Memory};

use super::{Interface, InterfaceConfig};
use crate::own::{Lender, OwnMemory, OwnRegistrations};
use crate::region::{DmabufError, DmabufRange};
use crate::{BreakReason, Domain, EndpointId, LocalKey, Region, Rights, Stag};

/// Marks an interface whose peers may access the memory that the interface registers for them.
#[derive(Debug)]
pub enum Exposes {}

/// Marks an interface whose peers cannot access any of its memory.
#[derive(Debug)]
pub enum Guards {}

/// The interface of a server. Its peers cannot access any of its memory.
pub type ServingInterface = Interface<Guards>;

impl Interface {
    /// Creates an interface without listeners, endpoints or regions.
    ///
    /// # Errors
    /// An I/O error if `config` exceeds its limits or the system has no descriptor left.
    pub fn new(config: InterfaceConfig) -> io::Result<Self> {
        Self::empty(config)
    }

    /// Registers memory for one domain, with the given rights for peers. Returns `None` if the
    /// table of regions is full.
    pub fn register(&mut self, memory: &Memory, domain: Domain, rights: Rights) -> Option<Region> {
        let region = self.regions.insert(memory.clone(), domain, rights, false)?;
        if rights.is_remote() {
            for endpoint in self.established_of(domain) {
                self.expose(endpoint, region.key);
            }
        }
        Some(region)
    }

    /// Registers memory of a dmabuf with the device of an endpoint, for endpoints of the same
    /// domain on that device. [`Interface::reach_dmabuf`] registers the region with further
    /// devices. The processor never accesses this memory, and other transports refuse the region.
    ///
    /// # Errors
    /// [`DmabufError`], for example if the endpoint does not belong to [`crate::verbs`].
    pub fn register_dmabuf(
        &mut self,
        endpoint: EndpointId,
        dmabuf: DmabufRange<'_>,
        rights: Rights,
    ) -> Result<Region, DmabufError> {
        let domain = self.lend(endpoint).ok_or(DmabufError::NotConnected)?.1.domain;
        let region = self.regions.insert_dmabuf(domain, dmabuf, rights)?;
        let reached = self.reach_dmabuf(endpoint, region.key);
        if reached.is_err() {
            self.regions.remove(region.key);
        }
        reached.map(|()| region)
    }

    /// Registers the dmabuf of a region with the device of this endpoint, unless it is registered
    /// there. This is needed if connections use several devices, or if a connection has moved to
    /// another device.
    ///
    /// # Errors
    /// The errors of [`Interface::register_dmabuf`]. After an error the region is unchanged.
    pub fn reach_dmabuf(&mut self, endpoint: EndpointId, key: LocalKey) -> Result<(), DmabufError> {
        let (connection, mut context) = self.lend(endpoint).ok_or(DmabufError::NotConnected)?;
        connection.reach_dmabuf(&mut context, key)
    }

    /// Returns true if a peer may know a region by another STag than this side does. This is false
    /// until a transport is used whose devices choose STags.
    #[must_use]
    #[inline]
    pub fn names_regions(&self) -> bool {
        self.names_regions
    }

    /// Returns the STag by which the peer of an endpoint knows the region that this side names
    /// `stag`. Returns `stag` itself if the peer uses the same STag, or if there is no such region.
    #[must_use]
    #[inline]
    pub fn name_for(&mut self, endpoint: EndpointId, stag: Stag) -> Stag {
        if !self.names_regions {
            return stag;
        }
        let found = self.regions.get(LocalKey(stag.0)).map(|entry| entry.region);
        found.map_or(stag, |region| self.name(endpoint, &region))
    }

    /// Returns the reason why a connection has ended, if the event that reports it is still queued.
    /// A post to such a connection only returns that the endpoint is not connected.
    #[must_use]
    pub fn end_of(&self, endpoint: EndpointId) -> Option<&BreakReason> {
        self.events.end_of(endpoint)
    }

    /// Sets how the application's own memory is used from now on, and drops the existing
    /// registrations of such memory.
    pub fn set_own_memory(&mut self, rule: OwnMemory) {
        self.regions.devices.own = OwnRegistrations::new(rule);
    }

    /// Returns the object that lends memory to the peer of an endpoint. Returns `None` if the
    /// interface lends no memory, the transport does not support it, or the endpoint is not
    /// connected.
    #[must_use]
    pub fn lender(&self, endpoint: EndpointId) -> Option<Lender> {
        let own = self.regions.devices.own.as_ref()?;
        self.connection_of(endpoint)?.protection().map(|protection| own.lender(protection))
    }

    /// Returns true if the peer of an endpoint can access this lent region.
    #[must_use]
    pub fn reaches_lent(&self, endpoint: EndpointId, region: &Region) -> bool {
        let connection = self.connection_of(endpoint);
        let protection = connection.and_then(|connection| connection.protection());
        protection.is_some_and(|p| region.key == LocalKey::lent_to(p.number))
    }

    /// Returns the counters of the cache of registrations of the application's own memory.
    #[must_use]
    pub fn own_memory_counters(&self) -> CacheCounters {
        self.regions.devices.own.as_ref().map(OwnRegistrations::counters).unwrap_or_default()
    }
}

impl ServingInterface {
    /// Creates an interface without listeners, endpoints or regions, which cannot expose memory.
    ///
    /// # Errors
    /// An I/O error if `config` exceeds its limits or the system has no descriptor left.
    pub fn serving(config: InterfaceConfig) -> io::Result<Self> {
        Self::empty(config)
    }

    /// Registers memory for one domain, for scatter/gather lists of this side only. Returns `None`
    /// if the table of regions is full.
    pub fn register_local(&mut self, memory: &Memory, domain: Domain) -> Option<Region> {
        self.regions.insert(memory.clone(), domain, Rights::LOCAL, false)
    }
}
