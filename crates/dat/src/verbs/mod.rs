//! The provider `verbs` uses RDMA devices for InfiniBand, RoCE and iWARP, through the system's
//! libraries.
//!
//! The libraries are not linked, but loaded when an address of this provider is first used. On a
//! host without the libraries, only this provider is unavailable ([`VerbsUnavailable`]). Its
//! modules:
//!
//! - `raw`, `library`: bindings of the C libraries, and loading them.
//! - `link`: identifiers and events of the connection manager; `listener`, `establish`: the start
//!   of connections; `private_data`: the data that applications exchange at that time.
//! - `protection`: protection domains and registered memory; `staging`: a connection's own memory.
//! - `queues`: queue pairs and completion queues; `transmit`, `receive`: posting to them and
//!   processing completions.
//! - `survey`: a list of a host's devices, for people.
//!
//! Invariant: posted work stays in a ledger until its completion is reported. The work at the front
//! of the ledger has been posted to the device. Work is reported in the order posted.

mod establish;
mod library;
mod link;
mod listener;
mod private_data;
mod protection;
mod queues;
#[doc(hidden)]
pub mod raw;
mod receive;
mod staging;
mod survey;
mod transmit;
mod unavailable;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use self::establish::Phase;
use self::link::{CmEvent, Link};
pub(crate) use self::listener::Listener;
use self::private_data::{REQUEST_BYTES_MAX, Word};
pub(crate) use self::protection::{ProtectionDomain, Registered, Registrations, access_of};
use self::queues::Queues;
use self::receive::Inbound;
use self::staging::Staging;
pub use self::survey::{Device, Gid, Port, RdmaSurvey};
use self::transmit::{Outbound, Transfer};
pub use self::unavailable::VerbsUnavailable;
use crate::connection::{Alarm, Context, Readiness};
use crate::region::{DmabufError, RegionEntry, RegisterError};
use crate::{
    Address, AddressError, BreakReason, CompletionStatus, EndpointConfig, Gather, Holder,
    ListenerId, LocalKey, LocalSegment, Operation, PostError, Region, RegionPath, RemoteSegment,
    SendOptions, Signal, Stag,
};

/// One connection, of either role.
pub(crate) struct Connection {
    lane: Lane,
    staging: Staging,
    outbound: Outbound,
    inbound: Inbound,
    protection: Option<Arc<ProtectionDomain>>,
    peer: SocketAddr,
    phase: Phase,
    deadline: Instant,
    config: EndpointConfig,
    is_watched: bool,
}

/// The queue pair and identifier of a connection. The queue pair is destroyed first, because it
/// belongs to the identifier.
#[derive(Default)]
struct Lane {
    queues: Option<Queues>,
    link: Option<Link>,
}

impl Connection {
    pub(crate) fn connect(
        address: SocketAddr,
        config: &EndpointConfig,
        private_data: &[u8],
        deadline: Instant,
    ) -> Result<Self, AddressError> {
        let length = private_data.len();
        if length > REQUEST_BYTES_MAX {
            return Err(AddressError::PrivateData { length, limit: REQUEST_BYTES_MAX });
        }
        let link = Link::new(&library::Library::load()?)?;
        let failed = |source| AddressError::System { address: Address::Verbs(address), source };
        link.resolve_address(&address, establish::RESOLVE_MS).map_err(failed)?;
        let phase = Phase::Resolving { private_data: private_data.into() };
        let mut connection = Self::new(link, address, phase, deadline);
        connection.config = config.clone();
        Ok(connection)
    }

    /// Creates the acceptor's side of a connection that a peer has requested.
    pub(crate) fn inbound(
        link: Link,
        listener: ListenerId,
        request: &CmEvent,
        fallback: SocketAddr,
        deadline: Instant,
    ) -> Self {
        let terms = link::Terms {
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
        };
        let peer = link.peer().unwrap_or(fallback);
        let private_data = request.private_data.clone();
        Self::new(link, peer, Phase::Asked { listener, private_data, terms }, deadline)
    }

    fn new(link: Link, peer: SocketAddr, phase: Phase, deadline: Instant) -> Self {
        Self {
            lane: Lane { queues: None, link: Some(link) },
            staging: Staging::default(),
            outbound: Outbound::default(),
            inbound: Inbound::default(),
            protection: None,
            peer,
            phase,
            deadline,
            config: EndpointConfig::default(),
            is_watched: false,
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// Destroys the queue pair and the identifier. Over iWARP, a process that gives up a connect is
    /// blocked by the kernel until the peer has replied, or for ten seconds. A thread that serves
    /// other peers must not wait that long.
    fn part(&mut self) {
        let is_held = matches!(self.phase, Phase::Connecting)
            && self.lane.link.as_ref().is_some_and(Link::is_iwarp);
        let mut lane = std::mem::take(&mut self.lane);
        // Once the queue pair is stopped, the device no longer accesses the memory of posted work.
        if is_held && lane.queues.as_mut().is_none_or(|queues| queues.stop().is_ok()) {
            let held = std::thread::Builder::new().name("dafs-parting".to_owned());
            // If no thread can be started, the link is dropped on this thread.
            let _ = held.spawn(move || drop(lane));
        }
    }

    /// Completes all outstanding work as flushed.
    fn abandon(&mut self, context: &mut Context<'_>) {
        let flushed = CompletionStatus::Flushed;
        for task in self.outbound.work.drain(..) {
            if task.is_last {
                context.complete(task.operation, task.cookie, flushed, 0);
            }
        }
        for receive in self.inbound.receives.drain(..) {
            context.complete(Operation::Receive, receive.cookie, flushed, 0);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(link) = &self.lane.link else { return };
        if self.is_open() {
            link.disconnect();
        }
        self.part();
    }
}

impl crate::connection::Connection for Connection {
    fn post_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        self.queue_receive(context, cookie, scatter)
    }

    fn post_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.queue_send(context, cookie, gather, options)
    }

    fn post_rdma_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        self.queue_transfer(context, cookie, local, Transfer::Write(signal), remote)
    }

    fn post_rdma_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        self.queue_transfer(context, cookie, local, Transfer::Read, remote)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        if self.is_open() { self.push_out() } else { self.send_answer(context) }
    }

    fn progress(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        if !self.is_watched {
            self.begin(context)?;
            return Ok(false);
        }
        self.take_in(context)
    }

    fn ready(
        &mut self,
        context: &mut Context<'_>,
        which: u8,
        _readiness: Readiness,
    ) -> Result<(), BreakReason> {
        if which == COMPLETIONS {
            if let Some(queues) = &mut self.lane.queues {
                queues.take_wake();
            }
            return self.take_in(context).map(|_| ());
        }
        self.take_events(context)
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn arm(&mut self, _alarm: Alarm) -> bool {
        self.arm_completions()
    }

    fn accept(
        &mut self,
        context: &mut Context<'_>,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<(), BreakReason> {
        self.config = config.clone();
        self.prepare_answer(context, private_data)
    }

    fn reject(&mut self, _context: &mut Context<'_>, private_data: &[u8]) {
        self.refuse(private_data);
    }

    fn is_established(&self) -> bool {
        self.is_open()
    }

    fn holder(&self) -> Holder {
        Holder::of_address(self.peer.ip())
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.is_open() && !matches!(self.phase, Phase::Closed)).then_some(self.deadline)
    }

    fn expose(
        &mut self,
        context: &mut Context<'_>,
        entry: &RegionEntry,
    ) -> Result<(), BreakReason> {
        let Some(protection) = &self.protection else { return Ok(()) };
        context.regions.expose_to_device(protection, entry.region.key).map_err(|source| {
            let device = protection.device.name.clone();
            BreakReason::Registration(RegisterError::new(device, entry.region.length, &source))
        })
    }

    fn withdraw(&mut self, _entry: &RegionEntry) {
        // The region table has already withdrawn the region's STag on the device.
    }

    fn name(&self, context: &Context<'_>, region: &Region) -> Stag {
        let named = |p: &ProtectionDomain| match region.key.is_lent() {
            true => (region.key == LocalKey::lent_to(p.number)).then_some(region.stag),
            false => context.regions.device_name(p, region.key),
        };
        // No device gives the STag 0 to a region.
        self.protection.as_deref().and_then(named).unwrap_or(Stag(0))
    }

    fn protection(&self) -> Option<&Arc<ProtectionDomain>> {
        self.protection.as_ref().filter(|_| self.is_open())
    }

    fn path(&self, _entry: &RegionEntry) -> RegionPath {
        RegionPath::Network
    }

    fn reach_dmabuf(
        &mut self,
        context: &mut Context<'_>,
        key: LocalKey,
    ) -> Result<(), DmabufError> {
        let protection = self.protection.as_ref().ok_or(DmabufError::NotConnected)?;
        context.regions.dmabuf_to_device(protection, key)
    }

    fn shutdown(&mut self, context: &mut Context<'_>, reason: &BreakReason) {
        let was_open = self.is_open();
        if was_open && matches!(reason, BreakReason::Local) {
            self.linger(context);
        }
        if let Some(link) = &self.lane.link
            && was_open
        {
            link.disconnect();
        }
        self.drain(context);
        self.part();
        self.phase = Phase::Closed;
        self.abandon(context);
    }
}

/// Returns a C string in a field of fixed size.
fn text(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| c.to_ne_bytes()[0]).take_while(|c| *c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn system(error: std::io::Error) -> BreakReason {
    BreakReason::System(error.into())
}

/// The number of the connection manager's descriptor among the watched descriptors.
const EVENTS: u8 = 0;
/// The number of the completion channel's descriptor among the watched descriptors.
const COMPLETIONS: u8 = 1;
