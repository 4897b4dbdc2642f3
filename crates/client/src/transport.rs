//! The transport: one interface, its connections, and the receives posted on each.
//!
//! Invariant: every open connection has an owner and an inbox. Each slot of the inbox is posted,
//! being read, or due to be posted again. A closed connection has no owner and no inbox, and its
//! late completions are ignored.
//!
//! The order of calls for one connection: [`Transport::open`]; then [`Transport::take_received`]
//! for each message and [`Transport::give_back`] after reading it; [`Transport::post`] at any time;
//! [`Transport::close`] once, whichever side ended the connection. A turn of the client calls
//! [`Transport::pay_receives`], [`Transport::wait`], and then [`Transport::next_completion`] and
//! [`Transport::next_event`] until no completion and no event is left.

use std::time::Duration;

use dafs_dat::{
    AddressError, Completion, CompletionStatus, EndpointConfig, EndpointId, Event, Gather, Inbox,
    InboxError, InboxSlot, Interface, MpaOptions, Operation, PostError, SendOptions, Signal,
};
use dafs_wire::{ByteOrder, ConnectData};

use crate::error::{ClientError, SystemCause};
use crate::ids::SessionKey;
use crate::options::{SessionOptions, tls_target};
use crate::recovery::server_addresses::ServerAddress;
use crate::sizes::{DOMAIN, SLOT_BYTES, SPARE_SLOTS};

/// One interface and its connections.
pub(crate) struct Transport {
    interface: Interface,
    /// Connections, indexed by their endpoints.
    links: Vec<Option<Link>>,
    /// True if slots were read and must be posted again.
    owes_receives: bool,
}

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The connection carries a session's requests.
    Session(SessionKey),
    /// The connection is a session's back-control channel.
    BackControl(SessionKey),
}

struct Link {
    endpoint: EndpointId,
    owner: Owner,
    inbox: Inbox,
}

/// The parameters of a connection that is about to be started.
pub(crate) struct Opening<'a> {
    pub owner: Owner,
    pub place: &'a ServerAddress,
    pub options: &'a SessionOptions,
    pub message_bytes_max: u32,
    /// The number of receives to post.
    pub receives: u16,
    pub data: ConnectData,
}

/// The reason why a connection could not be started.
pub(crate) struct NotOpened {
    pub reason: String,
    /// The system's error, if the local system refused to start the connection.
    system: Option<SystemCause>,
}

/// A completion that [`Transport::next_completion`] returns.
pub(crate) enum Completed {
    /// A receive has ended; [`Transport::take_received`] returns its message.
    Received { endpoint: EndpointId, length: u32, is_good: bool },
    /// A completion that needs no action.
    Passed,
}

impl Transport {
    pub(crate) fn new(interface: Interface) -> Self {
        Self { interface, links: Vec::new(), owes_receives: false }
    }

    /// Gives access to the interface for registrations and other work that involves no messages.
    #[inline]
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Gives mutable access to the interface, which callers must not use to post, connect or
    /// receive.
    #[inline]
    pub(crate) fn interface_mut(&mut self) -> &mut Interface {
        &mut self.interface
    }

    // ---- connections ----------------------------------------------------------------

    /// Starts a connection, with a receive posted for every slot of its new inbox.
    pub(crate) fn open(&mut self, opening: &Opening<'_>) -> Result<EndpointId, NotOpened> {
        let Opening { owner, place, options, message_bytes_max, receives, data } = opening;
        let address = &place.address;
        let tls = tls_target(address, options).map_err(|error| error.to_string())?;
        let config = EndpointConfig {
            message_bytes_max: *message_bytes_max,
            receives_max: u32::from(*receives),
            crc: options.crc,
            tls,
            mpa: MpaOptions { long_frames: true, ..MpaOptions::default() },
            socket_trust: place.trust,
            ..EndpointConfig::default()
        };
        let data = data.encode(ByteOrder::NATIVE);
        let mut inbox = Inbox::new(&mut self.interface, DOMAIN, *receives, SLOT_BYTES as u32)?;
        match self.interface.connect(address, DOMAIN, &config, &data) {
            Ok(endpoint) => {
                while inbox.post(&mut self.interface, endpoint) {}
                let place = endpoint.index();
                if self.links.len() <= place {
                    self.links.resize_with(place + 1, || None);
                }
                self.links[place] = Some(Link { endpoint, owner: *owner, inbox });
                Ok(endpoint)
            }
            Err(error) => {
                self.interface.deregister(inbox.key());
                Err(error.into())
            }
        }
    }

    /// Closes a connection, if it is still open, and ignores its later events.
    pub(crate) fn close(&mut self, endpoint: EndpointId) {
        self.interface.disconnect(endpoint);
        if let Some(place) = self.links.get_mut(endpoint.index())
            && let Some(link) = place.take_if(|link| link.endpoint == endpoint)
        {
            self.interface.deregister(link.inbox.key());
        }
    }

    /// Returns the owner of a connection; `None` if it was closed.
    #[inline]
    pub(crate) fn owner_of(&self, endpoint: EndpointId) -> Option<Owner> {
        let link = self.links.get(endpoint.index())?.as_ref()?;
        (link.endpoint == endpoint).then_some(link.owner)
    }

    /// Releases an endpoint after the transport has reported its end, so that its number can be
    /// reused.
    pub(crate) fn release(&mut self, endpoint: EndpointId) {
        self.interface.release(endpoint);
    }

    // ---- messages -------------------------------------------------------------------

    /// Sends a message. A failure means that the connection is ending.
    #[inline]
    pub(crate) fn post(
        &mut self,
        endpoint: EndpointId,
        gather: &[Gather<'_>],
    ) -> Result<(), PostError> {
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        self.interface.post_send(endpoint, SEND_COOKIE, gather, options)
    }

    /// Flushes all posted messages to the connections.
    pub(crate) fn flush(&mut self) {
        self.interface.flush();
    }

    /// Returns the owner and the message of the receive that ended first on a connection; `None` if
    /// the connection is closed.
    #[inline(always)]
    pub(crate) fn take_received(&mut self, endpoint: EndpointId) -> Option<(Owner, InboxSlot)> {
        if let Some(Some(link)) = self.links.get_mut(endpoint.index())
            && link.endpoint == endpoint
            && let Some(slot) = self.interface.pass_message(&mut link.inbox)
        {
            return Some((link.owner, slot));
        }
        self.interface.pass_completion();
        None
    }

    /// Takes back a slot whose message was read. A receive is posted with the slot later, or
    /// immediately if many slots are due.
    #[inline]
    pub(crate) fn give_back(&mut self, endpoint: EndpointId, slot: InboxSlot) {
        if let Some(Some(link)) = self.links.get_mut(endpoint.index())
            && link.endpoint == endpoint
        {
            link.inbox.give_back(slot);
            if link.inbox.free() >= SLOTS_DUE_MAX {
                while link.inbox.post(&mut self.interface, endpoint) {}
            } else {
                self.owes_receives = true;
            }
        }
    }

    /// Takes back a slot as [`Transport::give_back`] does, but posts a receive with it before
    /// anything else is sent. The client's next message may allow the peer to send another one, and
    /// that message can arrive only into a posted receive.
    pub(crate) fn give_back_at_once(&mut self, endpoint: EndpointId, slot: InboxSlot) {
        if let Some(Some(link)) = self.links.get_mut(endpoint.index())
            && link.endpoint == endpoint
        {
            link.inbox.give_back(slot);
            link.inbox.post(&mut self.interface, endpoint);
        }
    }

    /// Sends posted messages, and only then posts the returned receives. The delay is harmless,
    /// because there are spare receives, and it lets the server start to work earlier.
    #[inline]
    pub(crate) fn pay_receives(&mut self) {
        if std::mem::take(&mut self.owes_receives) {
            self.interface.flush();
            for link in self.links.iter_mut().flatten() {
                while link.inbox.post(&mut self.interface, link.endpoint) {}
            }
        }
    }

    // ---- progress -------------------------------------------------------------------

    /// Waits until about `threshold` events have arrived or the timeout expires; a timeout of zero
    /// means no waiting.
    #[inline]
    pub(crate) fn wait(&mut self, threshold: usize, timeout: Option<Duration>) {
        if threshold == 0 {
            self.interface.poll();
        } else {
            self.interface.wait(threshold, timeout);
        }
    }

    /// Returns the next completion. Completions are not delivered as events, which avoids a copy.
    #[inline(always)]
    pub(crate) fn next_completion(&mut self) -> Option<Completed> {
        let &Completion { endpoint, operation, status, length, .. } =
            self.interface.first_completion()?;
        if operation == Operation::Receive {
            let is_good = status == CompletionStatus::Success;
            return Some(Completed::Received { endpoint, length, is_good });
        }
        self.interface.pass_completion();
        Some(Completed::Passed)
    }

    /// Returns the next event that is not a completion.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.interface.next_event()
    }
}

impl NotOpened {
    /// Converts the failure into a connect error for an address. If this machine lacks a resource,
    /// returns the system's error instead, because trying other addresses would not help.
    pub(crate) fn at(self, address: impl std::fmt::Display) -> ClientError {
        match self.system {
            Some(source) if source.is_exhaustion() => {
                ClientError::System { what: "opening a connection", source }
            }
            system => {
                ClientError::Connect { address: address.to_string(), reason: self.reason, system }
            }
        }
    }
}

impl From<String> for NotOpened {
    fn from(reason: String) -> Self {
        Self { reason, system: None }
    }
}

impl From<InboxError> for NotOpened {
    fn from(error: InboxError) -> Self {
        let reason = error.to_string();
        match error {
            InboxError::Memory(error) => Self { reason, system: Some(error.into()) },
            InboxError::Regions => Self { reason, system: None },
        }
    }
}

impl From<AddressError> for NotOpened {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::System { source, .. } => {
                Self { reason: source.to_string(), system: Some(source.into()) }
            }
            other => other.to_string().into(),
        }
    }
}

/// The maximum number of slots that were read and are not posted again yet. It is below the number
/// of spare slots.
const SLOTS_DUE_MAX: usize = SPARE_SLOTS as usize / 2;

const SEND_COOKIE: u64 = u64::MAX;
