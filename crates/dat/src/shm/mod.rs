//! Provider `shm`: not written yet; every attempt says so.

use std::time::Instant;

use crate::connection::Context;
use crate::region::RegionEntry;
use crate::{
    Address, AddressError, BreakReason, EndpointConfig, Gather, ListenerId, LocalSegment,
    PostError, RegionPath, RemoteSegment, SendOptions, Signal,
};

pub(crate) struct Listener;
pub(crate) struct Connection;

impl Listener {
    pub(crate) fn bind(address: &std::path::Path) -> Result<Self, AddressError> {
        Err(AddressError::NoProvider(Address::Shm(address.to_path_buf())))
    }
    pub(crate) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        unreachable!("a listener is never made")
    }
    pub(crate) fn address(&self) -> Address {
        unreachable!("a listener is never made")
    }
    pub(crate) fn accept(&mut self, _id: ListenerId, _deadline: Instant) -> Option<Connection> {
        None
    }
}

impl Connection {
    pub(crate) fn connect(
        address: &std::path::Path,
        _config: &EndpointConfig,
        _private_data: &[u8],
        _deadline: Instant,
    ) -> Result<Self, AddressError> {
        Err(AddressError::NoProvider(Address::Shm(address.to_path_buf())))
    }
}

impl crate::connection::Connection for Connection {
    fn post_receive(
        &mut self,
        _context: &mut Context<'_>,
        _cookie: u64,
        _scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        Err(PostError::NotConnected)
    }
    fn post_send(
        &mut self,
        _context: &mut Context<'_>,
        _cookie: u64,
        _gather: &[Gather<'_>],
        _options: SendOptions,
    ) -> Result<(), PostError> {
        Err(PostError::NotConnected)
    }
    fn post_rdma_write(
        &mut self,
        _context: &mut Context<'_>,
        _cookie: u64,
        _local: &[LocalSegment],
        _remote: RemoteSegment,
        _signal: Signal,
    ) -> Result<(), PostError> {
        Err(PostError::NotConnected)
    }
    fn post_rdma_read(
        &mut self,
        _context: &mut Context<'_>,
        _cookie: u64,
        _local: &[LocalSegment],
        _remote: RemoteSegment,
    ) -> Result<(), PostError> {
        Err(PostError::NotConnected)
    }
    fn flush(&mut self, _context: &mut Context<'_>) -> Result<(), BreakReason> {
        Ok(())
    }
    fn progress(&mut self, _context: &mut Context<'_>) -> Result<bool, BreakReason> {
        Ok(false)
    }
    fn ready(
        &mut self,
        _context: &mut Context<'_>,
        _which: u8,
        _readiness: crate::connection::Readiness,
    ) -> Result<(), BreakReason> {
        Ok(())
    }
    fn is_polled(&self) -> bool {
        false
    }
    fn accept(
        &mut self,
        _context: &mut Context<'_>,
        _config: &EndpointConfig,
        _private_data: &[u8],
    ) -> Result<(), BreakReason> {
        Ok(())
    }
    fn reject(&mut self, _context: &mut Context<'_>, _private_data: &[u8]) {}
    fn is_established(&self) -> bool {
        false
    }
    fn deadline(&self) -> Option<Instant> {
        None
    }
    fn expose(&mut self, _entry: &RegionEntry) -> Result<(), BreakReason> {
        Ok(())
    }
    fn withdraw(&mut self, _entry: &RegionEntry) {}
    fn path(&self, _entry: &RegionEntry) -> RegionPath {
        RegionPath::Network
    }
    fn shutdown(&mut self, _context: &mut Context<'_>, _reason: &BreakReason) {}
}
