//! Provider `sim`: not written yet; every attempt says so.

use std::time::Instant;

use crate::connection::Context;
use crate::region::RegionEntry;
use crate::{
    Address, AddressError, BreakReason, EndpointConfig, Gather, ListenerId, LocalSegment,
    PostError, RegionPath, RemoteSegment, SendOptions, Signal,
};

/// A simulated network.
#[derive(Clone, Debug)]
pub struct Network;

pub(crate) struct Listener;
pub(crate) struct Connection;

impl Listener {
    pub(crate) fn bind(_network: &Network, node: u32) -> Result<Self, AddressError> {
        Err(AddressError::NoProvider(Address::Sim(node)))
    }
    pub(crate) fn address(&self) -> Address {
        Address::Sim(0)
    }
    pub(crate) fn accept(&mut self, _id: ListenerId) -> Option<Connection> {
        None
    }
}

impl Connection {
    pub(crate) fn connect(
        _network: &Network,
        node: u32,
        _config: &EndpointConfig,
        _private_data: &[u8],
    ) -> Result<Self, AddressError> {
        Err(AddressError::NoProvider(Address::Sim(node)))
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
