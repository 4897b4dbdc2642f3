//! A member's connection, which sends and receives messages.
//!
//! Invariant: a new connection begins only after the previous one has ended completely.

use dafs_dat::{
    CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Operation, Region, Rights, SendOptions, Signal, sim::Network,
};
use dafs_memory::Memory;
use dafs_types::{RmrContext, RmrTarget};
use dafs_wire::{ByteOrder, ChannelType, ConnectData, DirectBuffer};

use super::requests::{CELL_BYTES, MESSAGE_BYTES};
use crate::reactors::address;

/// The connection of a member.
pub(super) struct MemberConnection {
    interface: Interface,
    inbox: Memory,
    inbox_region: Region,
    outbox: Memory,
    outbox_region: Region,
    endpoint: Option<EndpointId>,
    /// True if the member is ending the connection, but the connection has not ended yet.
    is_ending: bool,
}

/// An event on a connection.
#[derive(Debug)]
pub(super) enum ConnectionEvent {
    Up,
    Message(Vec<u8>),
    Down,
}

impl MemberConnection {
    pub(super) fn new(network: &Network, node: u32) -> Result<Self, String> {
        let sim = Some(network.at(node));
        let config = InterfaceConfig { sim, endpoints_max: 8, ..InterfaceConfig::default() };
        let mut interface =
            Interface::new(config).map_err(|error| format!("an interface: {error}"))?;
        let inbox = Memory::from_heap(vec![0; SLOTS * MESSAGE_BYTES].into());
        let outbox = Memory::from_heap(vec![0; BUFFERS * BUFFER_BYTES].into());
        let mut register = |memory, rights| {
            interface.register(memory, Domain(0), rights).ok_or("no room for a region")
        };
        let inbox_region = register(&inbox, Rights::LOCAL)?;
        let outbox_region = register(&outbox, Rights::REMOTE)?;
        Ok(Self {
            interface,
            inbox,
            inbox_region,
            outbox,
            outbox_region,
            endpoint: None,
            is_ending: false,
        })
    }

    /// Returns true if the previous connection has ended completely.
    pub(super) fn is_free(&self) -> bool {
        self.endpoint.is_none()
    }

    /// Connects to a reactor.
    pub(super) fn connect(&mut self, session: u32, reactor: usize) -> Result<(), String> {
        let config = EndpointConfig {
            message_bytes_max: MESSAGE_BYTES as u32,
            receives_max: SLOTS as u32,
            work_max: 64,
            ..EndpointConfig::default()
        };
        let channel = ChannelType::Operation;
        let data = ConnectData { client_instance: 1, client_session: session, channel };
        let address = address(reactor);
        let data = data.encode(ByteOrder::NATIVE);
        let endpoint = self.interface.connect(&address, Domain(0), &config, &data);
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        self.endpoint = Some(endpoint);
        self.is_ending = false;
        for slot in 0..SLOTS {
            self.post(endpoint, slot as u64);
        }
        Ok(())
    }

    /// Starts to end the connection.
    pub(super) fn hang_up(&mut self) {
        if let Some(endpoint) = self.endpoint
            && !std::mem::replace(&mut self.is_ending, true)
        {
            self.interface.disconnect(endpoint);
        }
    }

    /// Sends a message. If sending fails, the end of the connection is reported later as an event.
    pub(super) fn send(&mut self, message: &[u8]) {
        let Some(endpoint) = self.endpoint else { return };
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        let gather = [Gather::Bytes(message)];
        let _ = self.interface.post_send(endpoint, u64::MAX, &gather, options);
        self.interface.flush();
    }

    /// Copies bytes into a buffer that the server can read by RDMA.
    pub(super) fn expose(&mut self, buffer: usize, bytes: &[u8]) -> DirectBuffer {
        let offset = buffer % BUFFERS * BUFFER_BYTES;
        self.outbox.write(offset, bytes);
        let remote = self.outbox_region.remote(offset as u64, bytes.len() as u32);
        DirectBuffer {
            target: RmrTarget(remote.address),
            length: remote.length,
            context: RmrContext(remote.stag.0),
        }
    }

    fn post(&mut self, endpoint: EndpointId, slot: u64) {
        let at = slot * MESSAGE_BYTES as u64;
        let segment = self.inbox_region.local(at, MESSAGE_BYTES as u32);
        // Ignore an error: it means that the connection has ended.
        let _ = self.interface.post_receive(endpoint, slot, &[segment]);
    }

    /// Removes and returns the events that have arrived since the last call.
    pub(super) fn take(&mut self) -> Vec<ConnectionEvent> {
        self.interface.poll();
        let mut words = Vec::new();
        while let Some(event) = self.interface.next_event() {
            match event {
                Event::Completion(done) => {
                    let is_message = done.operation == Operation::Receive
                        && done.status == CompletionStatus::Success;
                    if is_message && Some(done.endpoint) == self.endpoint && !self.is_ending {
                        let at = done.cookie as usize * MESSAGE_BYTES;
                        words.push(ConnectionEvent::Message(
                            self.inbox.to_vec(at, done.length as usize),
                        ));
                        self.post(done.endpoint, done.cookie);
                    }
                }
                Event::Established { endpoint, .. } => {
                    if Some(endpoint) == self.endpoint && !self.is_ending {
                        words.push(ConnectionEvent::Up);
                    }
                }
                Event::Rejected { endpoint, .. } | Event::Broken { endpoint, .. } => {
                    self.interface.release(endpoint);
                    if Some(endpoint) == self.endpoint {
                        self.endpoint = None;
                        words.push(ConnectionEvent::Down);
                    }
                }
                Event::ConnectionRequest { pending, .. } => self.interface.reject(pending, b""),
            }
        }
        self.interface.flush();
        words
    }
}

/// The number of receive buffers of a connection, which is greater than its number of credits.
const SLOTS: usize = 40;
/// The maximum number of writes in flight of one member.
pub(super) const BUFFERS: usize = 64;
const BUFFER_BYTES: usize = 3 * CELL_BYTES;
