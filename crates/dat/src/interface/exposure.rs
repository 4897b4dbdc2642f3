//! Whose memory peers may reach: a type says it, not a habit.
//!
//! DAFS' design is that of reads and writes by the server: it moves the data, into and out of
//! memory that clients expose, and exposes none itself. A [`ServingInterface`] cannot:
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
//! // A server has no such thing.
//! server.register(&memory, Domain(0), Rights::REMOTE);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Invariant: regions with remote rights are made, and memory is lent, here alone, by interfaces
//! that [`Exposes`] marks.

use std::io;

use dafs_memory::{CacheCounters, Memory};

use super::{Interface, InterfaceConfig};
use crate::own::{Lender, OwnMemory, OwnRegistrations};
use crate::region::{DmabufError, DmabufRange};
use crate::{BreakReason, Domain, EndpointId, LocalKey, Region, Rights, Stag};

/// Marks an interface whose peers may reach what it registers for them.
#[derive(Debug)]
pub enum Exposes {}

/// Marks an interface whose peers reach no memory of it.
#[derive(Debug)]
pub enum Guards {}

/// The interface of a side that serves: peers reach no memory of it.
pub type ServingInterface = Interface<Guards>;

impl Interface {
    /// An interface with nothing in it.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new(config: InterfaceConfig) -> io::Result<Self> {
        Self::empty(config)
    }

    /// Registers memory for one domain. `None` if the table is full.
    pub fn register(&mut self, memory: &Memory, domain: Domain, rights: Rights) -> Option<Region> {
        let region = self.regions.insert(memory.clone(), domain, rights, false)?;
        if rights.is_remote() {
            for endpoint in self.established_of(domain) {
                self.expose(endpoint, region.key);
            }
        }
        Some(region)
    }

    /// Registers memory behind a dmabuf with the device of an endpoint, for endpoints of the
    /// same domain on that device; [`Interface::reach_dmabuf`] registers it with further
    /// devices. The processor never touches it; other transports refuse it.
    ///
    /// # Errors
    /// [`DmabufError`], for one if the endpoint is not of [`crate::verbs`].
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

    /// Registers a dmabuf with the device of this endpoint too, unless the device knows it: where
    /// connections go through several, or one has taken another's place.
    ///
    /// # Errors
    /// As [`Interface::register_dmabuf`]; the region stays as it was.
    pub fn reach_dmabuf(&mut self, endpoint: EndpointId, key: LocalKey) -> Result<(), DmabufError> {
        let (connection, mut context) = self.lend(endpoint).ok_or(DmabufError::NotConnected)?;
        connection.reach_dmabuf(&mut context, key)
    }

    /// Whether peers may know regions by other names than this side does. False as long as no
    /// transport was used whose devices choose the names.
    #[must_use]
    #[inline]
    pub fn names_regions(&self) -> bool {
        self.names_regions
    }

    /// What the peer of an endpoint calls the region that this side calls so. The same name, if
    /// the peer knows it by no other, or there is no such region.
    #[must_use]
    #[inline]
    pub fn name_for(&mut self, endpoint: EndpointId, stag: Stag) -> Stag {
        if !self.names_regions {
            return stag;
        }
        let found = self.regions.get(LocalKey(stag.0)).map(|entry| entry.region);
        found.map_or(stag, |region| self.name(endpoint, &region))
    }

    /// Why a connection has ended whose end is queued as an event: work that is posted meanwhile
    /// is told no more than that it is not connected.
    #[must_use]
    pub fn end_of(&self, endpoint: EndpointId) -> Option<&BreakReason> {
        self.events.end_of(endpoint)
    }

    /// What becomes of memory of the application's own, from now on. What was kept of it is let
    /// go.
    pub fn set_own_memory(&mut self, rule: OwnMemory) {
        self.regions.devices.own = OwnRegistrations::new(rule);
    }

    /// Lends memory to the peer of an endpoint. `None` if nothing is lent, or not over this
    /// transport, or not while it is not connected.
    #[must_use]
    pub fn lender(&self, endpoint: EndpointId) -> Option<Lender> {
        let own = self.regions.devices.own.as_ref()?;
        self.connection_of(endpoint)?.protection().map(|protection| own.lender(protection))
    }

    /// Whether memory that is lent has a name for the peer of an endpoint.
    #[must_use]
    pub fn reaches_lent(&self, endpoint: EndpointId, region: &Region) -> bool {
        let connection = self.connection_of(endpoint);
        let protection = connection.and_then(|connection| connection.protection());
        protection.is_some_and(|p| region.key == LocalKey::lent_to(p.number))
    }

    /// What has been kept of the application's own memory.
    #[must_use]
    pub fn own_memory_counters(&self) -> CacheCounters {
        self.regions.devices.own.as_ref().map(OwnRegistrations::counters).unwrap_or_default()
    }
}

impl ServingInterface {
    /// An interface with nothing in it, by which no memory can be exposed.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn serving(config: InterfaceConfig) -> io::Result<Self> {
        Self::empty(config)
    }

    /// Registers memory for one domain, for lists of this side alone. `None` if the table is
    /// full.
    pub fn register_local(&mut self, memory: &Memory, domain: Domain) -> Option<Region> {
        self.regions.insert(memory.clone(), domain, Rights::LOCAL, false)
    }
}
