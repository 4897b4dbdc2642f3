//! The transport: one interface, its connections, and the receives that are posted for each.
//!
//! Invariant: every connection that is open has an owner, and an inbox whose slots are posted,
//! read, or due to be posted again; one that was closed has neither, and its late completions are
//! passed over.
//!
//! The calling order, for one connection: [`Transport::open`]; then [`Transport::take_received`]
//! for each message and [`Transport::give_back`] when it was read; [`Transport::post`] at any
//! time; [`Transport::close`] once, whoever has ended it. A turn of the client's is
//! [`Transport::pay_receives`], [`Transport::wait`] and then [`Transport::next_completion`] and
//! [`Transport::next_event`] until there is nothing more.

use std::time::Duration;

use dafs_dat::{
    AddressError, Completion, CompletionStatus, EndpointConfig, EndpointId, Event, Gather, Inbox,
    InboxError, InboxSlot, Interface, MpaOptions, Operation, PostError, SendOptions, Signal,
};
use dafs_wire::{ByteOrder, ConnectData};

use crate::error::{ClientError, SystemCause};
use crate::ids::SessionKey;
use crate::options::{SessionOptions, tls_target};
use crate::recovery::places::Place;
use crate::sizes::{DOMAIN, SLOT_BYTES, SPARE_SLOTS};

/// One interface and its connections.
pub(crate) struct Transport {
    interface: Interface,
    /// Connections, by the indices of their endpoints.
    links: Vec<Option<Link>>,
    /// Slots were read, and are to be posted again.
    owes_receives: bool,
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It carries a session's requests.
    Session(SessionKey),
    /// It is a session's back-control channel.
    BackControl(SessionKey),
}

struct Link {
    endpoint: EndpointId,
    owner: Owner,
    inbox: Inbox,
}

/// A connection that is to be made.
pub(crate) struct Opening<'a> {
    pub owner: Owner,
    pub place: &'a Place,
    pub options: &'a SessionOptions,
    pub message_bytes_max: u32,
    /// Messages that there must be room for at once.
    pub receives: u16,
    pub data: ConnectData,
}

/// Why a connection could not even be begun.
pub(crate) struct NotOpened {
    pub reason: String,
    /// This machine's own word, if it is what refuses.
    system: Option<SystemCause>,
}

/// A completion that has come.
pub(crate) enum Completed {
    /// A receive has ended; [`Transport::take_received`] takes its message.
    Received { endpoint: EndpointId, length: u32, is_good: bool },
    /// Nothing that anybody waits for.
    Passed,
}

impl Transport {
    pub fn new(interface: Interface) -> Self {
        Self { interface, links: Vec::new(), owes_receives: false }
    }

    /// Memory and its names: registrations, and whatever else concerns no connection's messages.
    #[inline]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// As [`Transport::interface`], to be changed. Nothing is posted, connected or taken in by it.
    #[inline]
    pub fn interface_mut(&mut self) -> &mut Interface {
        &mut self.interface
    }

    // ---- connections ----------------------------------------------------------------

    /// Begins to connect, with a receive posted for every slot of a new inbox.
    pub fn open(&mut self, opening: &Opening<'_>) -> Result<EndpointId, NotOpened> {
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

    /// Ends a connection, if it is there still, and hears no more of it.
    pub fn close(&mut self, endpoint: EndpointId) {
        self.interface.disconnect(endpoint);
        if let Some(place) = self.links.get_mut(endpoint.index())
            && let Some(link) = place.take_if(|link| link.endpoint == endpoint)
        {
            self.interface.deregister(link.inbox.key());
        }
    }

    /// Whose a connection is; `None` if it was closed.
    #[inline]
    pub fn owner_of(&self, endpoint: EndpointId) -> Option<Owner> {
        let link = self.links.get(endpoint.index())?.as_ref()?;
        (link.endpoint == endpoint).then_some(link.owner)
    }

    /// The transport has told of the end of a connection: its number may come up again.
    pub fn release(&mut self, endpoint: EndpointId) {
        self.interface.release(endpoint);
    }

    // ---- messages -------------------------------------------------------------------

    /// Sends a message. A failure means that the connection is ending.
    #[inline]
    pub fn post(&mut self, endpoint: EndpointId, gather: &[Gather<'_>]) -> Result<(), PostError> {
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        self.interface.post_send(endpoint, SEND_COOKIE, gather, options)
    }

    /// What was posted goes out.
    pub fn flush(&mut self) {
        self.interface.flush();
    }

    /// The receive that has ended first: its connection's owner, and its message. `None` if it is
    /// of a connection that is gone.
    #[inline(always)]
    pub fn take_received(&mut self, endpoint: EndpointId) -> Option<(Owner, InboxSlot)> {
        if let Some(Some(link)) = self.links.get_mut(endpoint.index())
            && link.endpoint == endpoint
            && let Some(slot) = self.interface.pass_message(&mut link.inbox)
        {
            return Some((link.owner, slot));
        }
        self.interface.pass_completion();
        None
    }

    /// A message was read: its slot is posted again, at once if many are due.
    #[inline]
    pub fn give_back(&mut self, endpoint: EndpointId, slot: InboxSlot) {
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

    /// As [`Transport::give_back`], and the slot is posted before anything is sent: the answer
    /// frees the other side to send once more.
    pub fn give_back_at_once(&mut self, endpoint: EndpointId, slot: InboxSlot) {
        if let Some(Some(link)) = self.links.get_mut(endpoint.index())
            && link.endpoint == endpoint
        {
            link.inbox.give_back(slot);
            link.inbox.post(&mut self.interface, endpoint);
        }
    }

    /// Sends what is posted, and only then posts the receives that were taken up: there are
    /// spare ones, and the server has something to do meanwhile.
    #[inline]
    pub fn pay_receives(&mut self) {
        if std::mem::take(&mut self.owes_receives) {
            self.interface.flush();
            for link in self.links.iter_mut().flatten() {
                while link.inbox.post(&mut self.interface, link.endpoint) {}
            }
        }
    }

    // ---- progress -------------------------------------------------------------------

    /// Waits until about so many events have come, or the time is over; does not wait for none.
    #[inline]
    pub fn wait(&mut self, threshold: usize, timeout: Option<Duration>) {
        if threshold == 0 {
            self.interface.poll();
        } else {
            self.interface.wait(threshold, timeout);
        }
    }

    /// The completion that has come next. Not as an event: it is built once and taken from where
    /// it is.
    #[inline(always)]
    pub fn next_completion(&mut self) -> Option<Completed> {
        let &Completion { endpoint, operation, status, length, .. } =
            self.interface.first_completion()?;
        if operation == Operation::Receive {
            let is_good = status == CompletionStatus::Success;
            return Some(Completed::Received { endpoint, length, is_good });
        }
        self.interface.pass_completion();
        Some(Completed::Passed)
    }

    /// What has come next besides completions.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.interface.next_event()
    }
}

impl NotOpened {
    /// As an error of connecting to an address. What this machine has run out of is told as it
    /// is, since no other address would do better.
    pub fn at(self, address: impl std::fmt::Display) -> ClientError {
        match self.system {
            Some(source) if source.is_exhaustion() => {
                ClientError::System { what: "opening a connection", source }
            }
            _ => ClientError::Connect { address: address.to_string(), reason: self.reason },
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

/// Receives that are not posted yet; fewer than there are to spare.
const SLOTS_DUE_MAX: usize = SPARE_SLOTS as usize / 2;

const SEND_COOKIE: u64 = u64::MAX;
