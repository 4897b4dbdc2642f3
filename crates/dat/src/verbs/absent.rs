//! Replaces the provider `verbs` in a build without the feature `verbs`.
//!
//! Invariant: no device, registration or connection of this provider can be created, so code that
//! needs one never runs. Addresses of this provider are refused with
//! [`VerbsUnavailable::NotBuilt`].

mod unavailable;

use std::convert::Infallible;
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub use self::unavailable::VerbsUnavailable;
use crate::own::OwnRegistrations;
use crate::region::RegionEntry;
use crate::{Address, AddressError, EndpointConfig, ListenerId, Rights, Stag};

/// The types of the C libraries that the tables of regions use.
pub(crate) mod raw {
    /// The layout of the C `struct ibv_sge`.
    pub(crate) struct Sge {
        pub address: u64,
        pub length: u32,
        pub lkey: u32,
    }

    /// The access rights of a registration.
    pub(crate) mod access {
        pub(crate) const LOCAL_WRITE: std::ffi::c_int = 1;
    }
}

/// A protection domain of a device.
pub(crate) struct ProtectionDomain {
    pub number: u64,
    pub device: DeviceFacts,
    pub refuses_on_demand: AtomicBool,
    never: Infallible,
}

/// A device's properties.
pub(crate) struct DeviceFacts {
    pub name: String,
}

/// Memory registered with a device.
pub(crate) struct Registered(Infallible);

impl Registered {
    pub(crate) unsafe fn own(
        protection: &ProtectionDomain,
        _address: usize,
        _length: usize,
        _access: c_int,
        _follows: bool,
    ) -> io::Result<Self> {
        match protection.never {}
    }

    pub(crate) fn dmabuf(
        protection: &ProtectionDomain,
        _dmabuf: BorrowedFd<'_>,
        _offset: u64,
        _length: usize,
        _access: c_int,
    ) -> io::Result<Self> {
        match protection.never {}
    }

    pub(crate) fn rkey(&self) -> u32 {
        match self.0 {}
    }
}

/// The registrations of an interface's regions with devices, of which there are none.
#[derive(Default)]
pub(crate) struct Registrations {
    pub own: Option<OwnRegistrations>,
}

impl std::fmt::Debug for Registrations {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Registrations")
    }
}

impl Registrations {
    pub(crate) fn clear(&mut self, _slot: usize) {}

    pub(crate) fn revoke(&mut self, _slot: usize) {}

    pub(crate) fn slot_named(&self, protection: &ProtectionDomain, _name: u32) -> Option<usize> {
        match protection.never {}
    }

    pub(crate) fn local(
        &mut self,
        protection: &ProtectionDomain,
        _slot: usize,
        _entry: &RegionEntry,
    ) -> io::Result<u32> {
        match protection.never {}
    }

    pub(crate) fn expose(
        &mut self,
        protection: &ProtectionDomain,
        _slot: usize,
        _entry: &RegionEntry,
    ) -> io::Result<Stag> {
        match protection.never {}
    }

    pub(crate) fn name(&self, protection: &ProtectionDomain, _slot: usize) -> Option<Stag> {
        match protection.never {}
    }

    pub(crate) fn adopt(
        &mut self,
        protection: &ProtectionDomain,
        _slot: usize,
        _local: Registered,
        _remote: Option<Registered>,
    ) {
        match protection.never {}
    }

    pub(crate) fn knows(&self, protection: &Arc<ProtectionDomain>, _slot: usize) -> bool {
        match protection.never {}
    }
}

/// Returns access rights in the form that a device requires.
pub(crate) fn access_of(_rights: Rights) -> c_int {
    raw::access::LOCAL_WRITE
}

/// A listener of this provider, which cannot be created.
pub(crate) struct Listener(Infallible);

impl Listener {
    pub(crate) fn bind(_address: SocketAddr) -> Result<Self, AddressError> {
        Err(VerbsUnavailable::NotBuilt.into())
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self.0 {}
    }

    pub(crate) fn address(&self) -> Address {
        match self.0 {}
    }

    pub(crate) fn turned_away(&self) -> u64 {
        match self.0 {}
    }

    /// Never called, because no listener of this provider can be created; so the type of connection
    /// in the signature has no meaning.
    pub(crate) fn accept(
        &mut self,
        _id: ListenerId,
        _deadline: Instant,
    ) -> Option<crate::tcp::Connection> {
        match self.0 {}
    }
}

/// Replaces the connections of this provider.
pub(crate) struct Connection;

impl Connection {
    /// Always returns an error, because this build has no RDMA verbs; so the type of connection in
    /// the signature has no meaning.
    pub(crate) fn connect(
        _address: SocketAddr,
        _config: &EndpointConfig,
        _private_data: &[u8],
        _deadline: Instant,
    ) -> Result<crate::tcp::Connection, AddressError> {
        Err(VerbsUnavailable::NotBuilt.into())
    }
}
