//! Establishes connections through the connection manager.
//!
//! Invariant: the queue pair is created as soon as the device is known. Receives that were posted
//! earlier are then posted to the queue pair, before the peer can send.

use std::ffi::c_int;
use std::sync::Arc;

use super::link::{CmEvent, Link, Terms};
use super::private_data::unpack;
use super::queues::{Depths, Queues};
use super::raw::{REJECTED_BY_CONSUMER, event};
use super::{COMPLETIONS, Connection, EVENTS, ProtectionDomain, Word, system};
use crate::connection::{Context, Interest};
use crate::{Address, BreakReason, Cause, Event, ListenerId, Peer, PendingId};

/// The state of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// Initiator: address and route are being resolved.
    Resolving {
        private_data: Box<[u8]>,
    },
    /// Initiator: the request has been sent.
    Connecting,
    /// Acceptor: the request has not been reported to the application yet.
    Asked {
        listener: ListenerId,
        private_data: Box<[u8]>,
        terms: Terms,
    },
    /// Acceptor: the application has neither accepted nor rejected the connection yet.
    Pending(Terms),
    /// Acceptor: the reply will be sent by the next flush, so that receives posted until then are
    /// ready before the peer's first message.
    Answering {
        terms: Terms,
        words: Vec<u8>,
    },
    /// Acceptor: the reply has been sent.
    Answered,
    /// Acceptor: the peer closed the connection before the application decided.
    Vanished,
    Established,
    Closed,
}

impl Connection {
    /// Starts the exchange of a new connection.
    pub(super) fn begin(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        self.is_watched = true;
        let Some(link) = &self.lane.link else { return Ok(()) };
        context.watch(link.fd(), EVENTS, Interest::Read).map_err(system)?;
        let is_iwarp = link.is_iwarp();
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        let Phase::Asked { listener, private_data, terms } = phase else {
            self.phase = phase;
            return Ok(());
        };
        self.phase = Phase::Pending(terms);
        context.events.push(Event::ConnectionRequest {
            listener,
            pending: PendingId(context.endpoint),
            peer: Peer {
                address: Address::Verbs(self.peer),
                process: None,
                tls: false,
                certificate: None,
            },
            private_data: unpack(is_iwarp, &private_data).0,
        });
        Ok(())
    }

    /// Processes the events of the connection manager.
    pub(super) fn take_events(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        while let Some(link) = &self.lane.link {
            let Some(event) = link.event().map_err(system)? else { return Ok(()) };
            self.on_event(context, &event)?;
        }
        Ok(())
    }

    fn on_event(&mut self, context: &mut Context<'_>, event: &CmEvent) -> Result<(), BreakReason> {
        let is_removal = event.event == event::DEVICE_REMOVAL;
        if matches!(self.phase, Phase::Asked { .. } | Phase::Pending(_)) {
            // The application does not know this endpoint before `accept`, which reports it.
            self.phase = Phase::Vanished;
            // The kernel cannot remove a device until all identifiers on it are destroyed.
            self.lane.link = None;
            return Ok(());
        }
        match event.event {
            event::ADDRESS_RESOLVED => self.on_address(),
            event::ROUTE_RESOLVED => self.on_route(context),
            event::ESTABLISHED => {
                if matches!(self.phase, Phase::Connecting) {
                    self.outbound.reads_max = usize::from(event.initiator_depth);
                }
                self.on_established(context, &event.private_data)
            }
            event::REJECTED => self.on_rejected(context, event),
            event::ADDRESS_ERROR | event::ROUTE_ERROR => {
                let what = "no RDMA device reaches this address";
                Err(unreachable_for(what, event.status))
            }
            event::CONNECT_ERROR | event::UNREACHABLE if !self.is_open() => {
                Err(unreachable_for("the peer does not reply", event.status))
            }
            event::DISCONNECTED => {
                self.take_in_the_rest(context);
                Err(BreakReason::Peer)
            }
            _ if is_removal => Err(self.on_removal(context)),
            _ => Ok(()),
        }
    }

    fn on_address(&mut self) -> Result<(), BreakReason> {
        let Some(link) = &self.lane.link else { return Ok(()) };
        link.resolve_route(RESOLVE_MS).map_err(system)
    }

    /// Sends the connection request. The device is known now, so this creates the queue pair first.
    fn on_route(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let phase = std::mem::replace(&mut self.phase, Phase::Connecting);
        let Phase::Resolving { private_data } = phase else {
            self.phase = phase;
            return Ok(());
        };
        let protection = self.open_queues(context)?;
        let device = &protection.device;
        let depth = u8::try_from(self.config.read_depth).unwrap_or(u8::MAX);
        let terms = Terms {
            responder_resources: depth.min(device.reads_served_max),
            initiator_depth: depth.min(device.reads_made_max),
        };
        let words = Word::Request.pack(device.is_iwarp, &private_data).ok_or_else(too_long)?;
        let Some(link) = &self.lane.link else { return Ok(()) };
        link.connect(terms, &words).map_err(system)
    }

    /// Prepares to accept a pending connection, without sending the reply.
    pub(super) fn prepare_answer(
        &mut self,
        context: &mut Context<'_>,
        private_data: &[u8],
    ) -> Result<(), BreakReason> {
        let Phase::Pending(asked) = self.phase else { return Err(BreakReason::Peer) };
        let protection = self.open_queues(context)?;
        let device = &protection.device;
        let depth = u8::try_from(self.config.read_depth).unwrap_or(u8::MAX);
        let terms = Terms {
            responder_resources: depth.min(device.reads_served_max).min(asked.responder_resources),
            initiator_depth: depth.min(device.reads_made_max).min(asked.initiator_depth),
        };
        let words = Word::Reply.pack(device.is_iwarp, private_data).ok_or_else(too_long)?;
        self.phase = Phase::Answering { terms, words };
        Ok(())
    }

    /// Sends the prepared reply.
    pub(super) fn send_answer(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let phase = std::mem::replace(&mut self.phase, Phase::Answered);
        let Phase::Answering { terms, words } = phase else {
            self.phase = phase;
            return Ok(());
        };
        let Some(link) = &self.lane.link else { return Ok(()) };
        self.outbound.reads_max = usize::from(terms.initiator_depth);
        link.accept(terms, &words).map_err(|_| BreakReason::Peer)?;
        self.take_events(context)
    }

    /// Rejects a pending connection.
    pub(super) fn refuse(&mut self, private_data: &[u8]) {
        if let (Phase::Pending(_), Some(link)) = (&self.phase, &self.lane.link) {
            let words = Word::Rejection.pack(link.is_iwarp(), private_data).unwrap_or_default();
            // If the peer has ended, it needs no reply.
            let _ = link.reject(&words);
        }
        self.phase = Phase::Closed;
    }

    fn open_queues(
        &mut self,
        context: &mut Context<'_>,
    ) -> Result<Arc<ProtectionDomain>, BreakReason> {
        let found = self.lane.link.as_ref().and_then(|link| Some((link, link.context()?)));
        let Some((link, device)) = found else {
            return Err(BreakReason::Unreachable("no RDMA device reaches this address".into()));
        };
        let domains = &mut context.regions.devices;
        let protection = domains.domain(&link.library, device, context.domain).map_err(system)?;
        self.protection = Some(Arc::clone(&protection));
        let depths = Depths { sends: self.config.work_max, receives: self.config.receives_max };
        let mut queues = Queues::new(link, &protection, depths).map_err(|error| {
            let name = &protection.device.name;
            let text = format!(
                "device {name} has no queue pair of this depth, or no memory may be locked \
                 (see `ulimit -l`): {error}"
            );
            BreakReason::System(Cause::new(text, error))
        })?;
        context.watch(queues.fd(), COMPLETIONS, Interest::Read).map_err(system)?;
        // The peer's messages may arrive before the connection manager reports the connection.
        queues.arm().map_err(system)?;
        self.lane.queues = Some(queues);
        self.post_early(context)?;
        Ok(protection)
    }

    /// Handles a message that arrived before the connection manager reported the connection.
    pub(super) fn note_heard(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        if let Some(link) = &self.lane.link {
            link.note_established();
        }
        self.on_established(context, &[])
    }

    fn on_established(
        &mut self,
        context: &mut Context<'_>,
        words: &[u8],
    ) -> Result<(), BreakReason> {
        let private_data = match self.phase {
            Phase::Connecting => unpack(self.is_iwarp(), words).0,
            Phase::Answered => Box::default(),
            _ => return Ok(()),
        };
        self.phase = Phase::Established;
        let endpoint = context.endpoint;
        context.events.push(Event::Established { endpoint, private_data });
        Ok(())
    }

    fn is_iwarp(&self) -> bool {
        self.lane.link.as_ref().is_some_and(Link::is_iwarp)
    }

    fn on_rejected(
        &mut self,
        context: &mut Context<'_>,
        event: &CmEvent,
    ) -> Result<(), BreakReason> {
        if !matches!(self.phase, Phase::Connecting) {
            return Err(BreakReason::Peer);
        }
        let is_iwarp = self.is_iwarp();
        let (private_data, is_packed) = unpack(is_iwarp, &event.private_data);
        // A device also reports a rejection if no process listens or a listener has no room.
        let is_said = match is_iwarp {
            true => !private_data.is_empty(),
            false => event.status == REJECTED_BY_CONSUMER && is_packed,
        };
        if !is_said {
            let status = if is_iwarp { event.status } else { 0 };
            return Err(unreachable_for("no server accepts connections there", status));
        }
        self.phase = Phase::Closed;
        self.lane.queues = None;
        self.abandon(context);
        self.lane.link = None;
        let endpoint = context.endpoint;
        context.events.push(Event::Rejected { endpoint, private_data });
        Ok(())
    }

    /// Handles the removal of the device, which waits until this side destroys its identifier.
    fn on_removal(&mut self, context: &mut Context<'_>) -> BreakReason {
        let Some(protection) = &self.protection else {
            return BreakReason::System("the RDMA device was removed".into());
        };
        let reason = format!("the RDMA device {} was removed", protection.device.name);
        context.regions.devices.forget(protection.context());
        BreakReason::System(reason.into())
    }
}

fn unreachable_for(what: &str, status: c_int) -> BreakReason {
    BreakReason::Unreachable(match status {
        0 => what.into(),
        number => {
            let error = std::io::Error::from_raw_os_error(number.abs());
            Cause::new(format!("{what}: {error}"), error)
        }
    })
}

fn too_long() -> BreakReason {
    BreakReason::System("more private data than the RDMA device can carry".into())
}

/// The maximum time in milliseconds for resolving an address, and for resolving a route.
pub(super) const RESOLVE_MS: c_int = 2000;
