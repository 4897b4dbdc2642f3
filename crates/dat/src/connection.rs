//! The interface between an [`Interface`](crate::Interface) and a provider, which implements one
//! connection of one transport.
//!
//! A provider does not own the event queue or the regions. The interface lends them to the provider
//! for each call, so that one thread can drive any mix of providers without locks.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::region::{DmabufError, RegionEntry, RegionTable};
use crate::verbs::ProtectionDomain;
use crate::{
    BreakReason, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Forecast,
    Gather, Holder, LocalKey, LocalSegment, Operation, PostError, Region, RegionPath,
    RemoteSegment, SendOptions, Signal, Stag,
};

/// The parts of the interface that a provider may use during one call.
pub(crate) struct Context<'a> {
    pub(crate) endpoint: EndpointId,
    pub(crate) domain: Domain,
    pub(crate) regions: &'a mut RegionTable,
    pub(crate) events: &'a mut EventQueue,
    pub(crate) poller: &'a Poller,
}

impl Context<'_> {
    /// Queues the completion of one work request.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        operation: Operation,
        cookie: u64,
        status: CompletionStatus,
        length: u32,
    ) {
        self.events.push_completion(Completion {
            endpoint: self.endpoint,
            cookie,
            operation,
            status,
            length,
            invalidated: None,
        });
    }

    /// Watches a descriptor for this endpoint. When the descriptor becomes ready,
    /// [`Connection::ready`] is called with `which`.
    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        which: u8,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poller.add(fd, Token::endpoint(self.endpoint, which), interest)
    }

    /// Changes the events watched on a descriptor that is already watched.
    pub(crate) fn rewatch(
        &self,
        fd: BorrowedFd<'_>,
        which: u8,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poller.modify(fd, Token::endpoint(self.endpoint, which), interest)
    }
}

/// The condition under which the peer wakes a sleeping interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The number of messages that must have arrived.
    pub threshold: usize,
    /// True to wake the interface shortly before the last of these messages arrives. If the
    /// interface then spins, it gets the message sooner, at the cost of some microseconds of CPU
    /// time.
    pub early: bool,
}

/// One connection of one provider.
///
/// A method that returns `Err` breaks the connection: the interface then calls
/// [`Connection::shutdown`] and reports [`Event::Broken`].
pub(crate) trait Connection: Send {
    /// Queues a receive, which completes when a message has arrived in its segments.
    fn post_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError>;

    /// Queues a send of the gathered bytes as one message.
    fn post_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError>;

    /// Queues an RDMA write of the local segments to `remote`. The segments and `remote` must have
    /// the same total length.
    fn post_rdma_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError>;

    /// Executes an RDMA write or read immediately if the transport only needs to copy bytes for it.
    /// Returns false if no byte was moved; the operation must then be posted.
    fn move_now(
        &mut self,
        context: &mut Context<'_>,
        local: &[LocalSegment],
        remote: RemoteSegment,
        write: bool,
    ) -> bool {
        let _ = (context, local, remote, write);
        false
    }

    /// Queues an RDMA read of `remote` into the local segments. The segments and `remote` must have
    /// the same total length.
    fn post_rdma_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError>;

    /// Gives a hint about the reply that the peer is likely to send.
    fn expect(&mut self, forecast: &Forecast<'_>) {
        let _ = forecast;
    }

    /// Makes all posted work visible to the peer, as far as the transport has room for it now.
    fn flush(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason>;

    /// Receives pending data, without a system call where possible. Returns true if any work made
    /// progress. Called often for connections for which [`Connection::is_polled`] or
    /// [`Connection::awaits_one`] returns true.
    fn progress(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason>;

    /// Handles a watched descriptor that became ready.
    fn ready(
        &mut self,
        context: &mut Context<'_>,
        which: u8,
        readiness: Readiness,
    ) -> Result<(), BreakReason>;

    /// Returns true if inbound work becomes visible in memory, so that polling is faster than
    /// sleeping.
    fn is_polled(&self) -> bool;

    /// Returns true if exactly one message is likely to come next: the reply that the application
    /// announced by [`Connection::expect`]. Polling the socket for a while is then faster than
    /// sleeping.
    fn awaits_one(&self) -> bool {
        false
    }

    /// Called when a polled socket had no data yet. The provider may use the time to prepare for
    /// expected data.
    fn idle(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Prepares for sleep: from now on the peer wakes this side through a watched descriptor when
    /// the condition of `alarm` is true. Returns false if work has already arrived.
    fn arm(&mut self, alarm: Alarm) -> bool {
        let _ = alarm;
        true
    }

    /// Undoes [`Connection::arm`] after the sleep.
    fn disarm(&mut self) {}

    /// Prepares for a short sleep in which the descriptor becomes ready only when most of the bytes
    /// of the next `threshold` messages have arrived. The setting stays for further such sleeps.
    /// Returns false if such a sleep would gain nothing.
    fn gather(&mut self, threshold: usize) -> bool {
        let _ = threshold;
        false
    }

    /// Receives the data that the descriptor has not reported. Called after each sleep that
    /// [`Connection::gather`] prepared.
    fn gathered(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let _ = context;
        Ok(())
    }

    /// Undoes [`Connection::gather`] after the last sleep that it prepared.
    fn end_gathering(&mut self) {}

    /// Accepts a pending inbound connection.
    fn accept(
        &mut self,
        context: &mut Context<'_>,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<(), BreakReason>;

    /// Rejects a pending inbound connection, which the caller then releases.
    fn reject(&mut self, context: &mut Context<'_>, private_data: &[u8]);

    /// Returns true if work may be posted.
    fn is_established(&self) -> bool;

    /// Returns true if a message has arrived, or may have arrived, that was not received yet. Makes
    /// no system call.
    fn has_arrived(&self) -> bool {
        true
    }

    /// Sends a descriptor to the peer, a process of this host, before all work that is posted from
    /// now on. Returns false if the transport does not support this, or cannot do it now.
    fn hand_over(&mut self, name: u64, file: BorrowedFd<'_>) -> bool {
        let _ = (name, file);
        false
    }

    /// Returns the descriptor that the peer has sent under `name`, or `None` if there is none. The
    /// peer sends a descriptor before the message that refers to it.
    fn take_handed_over(
        &mut self,
        context: &mut Context<'_>,
        name: u64,
    ) -> Result<Option<OwnedFd>, BreakReason> {
        let _ = (context, name);
        Ok(None)
    }

    /// Returns true if an inbound connection has sent its connection request. Always true for
    /// outbound connections.
    fn has_asked(&self) -> bool {
        true
    }

    /// Returns the time at which an unfinished connect or accept times out.
    fn deadline(&self) -> Option<Instant>;

    /// Returns the user or host to which this connection is attributed when connections share a
    /// limit.
    fn holder(&self) -> Holder {
        Holder::Unknown
    }

    /// Returns the size in bytes of the memory that a connection occupies before it is established,
    /// including received data and data that the peer has not received yet.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Called once, before the connection is dropped. The provider stops watching descriptors of
    /// which other processes hold copies, because closing this side's copy does not end the watch.
    fn unwatch(&mut self, poller: &Poller) {
        let _ = poller;
    }

    /// Called when a region becomes accessible to the peer.
    fn expose(&mut self, context: &mut Context<'_>, entry: &RegionEntry)
    -> Result<(), BreakReason>;

    /// Called when a region is no longer accessible to the peer.
    fn withdraw(&mut self, entry: &RegionEntry);

    /// Returns the STag by which the peer of this connection names a region.
    fn name(&self, context: &Context<'_>, region: &Region) -> Stag {
        let _ = context;
        region.stag
    }

    /// Returns the protection domain if the connection uses an RDMA device, which can register
    /// the application's own memory.
    fn protection(&self) -> Option<&Arc<ProtectionDomain>> {
        None
    }

    /// Registers the dmabuf of a region with the connection's device, unless that was done before.
    fn reach_dmabuf(
        &mut self,
        context: &mut Context<'_>,
        key: LocalKey,
    ) -> Result<(), DmabufError> {
        let _ = (context, key);
        Err(DmabufError::Transport)
    }

    /// Returns how bytes reach a region over this connection.
    fn path(&self, entry: &RegionEntry) -> RegionPath;

    /// Ends the connection: completes all outstanding work as flushed and closes the descriptors.
    /// Called once.
    fn shutdown(&mut self, context: &mut Context<'_>, reason: &BreakReason);
}

/// The queue of completions and other events, oldest first. Completions are stored compactly.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    completions: Completions,
    /// Each event with the number of completions that were queued before it.
    others: VecDeque<(u64, Event)>,
    queued: u64,
    taken: u64,
}

impl EventQueue {
    #[inline(always)]
    pub(crate) fn push_completion(&mut self, completion: Completion) {
        self.queued += 1;
        self.completions.push(completion);
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.others.push_back((self.queued, event));
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let Some(completion) = self.first_completion().copied() else {
            return self.others.pop_front().map(|(_, event)| event);
        };
        self.pass_completion();
        Some(Event::Completion(completion))
    }

    /// Returns the oldest event if it is a completion.
    #[inline(always)]
    pub(crate) fn first_completion(&self) -> Option<&Completion> {
        if let Some((after, _)) = self.others.front()
            && *after <= self.taken
        {
            return None;
        }
        self.completions.first()
    }

    /// Removes the oldest event, which is a completion.
    #[inline(always)]
    pub(crate) fn pass_completion(&mut self) {
        self.completions.pass();
        self.taken += 1;
    }

    /// Returns the number of queued completions and other events.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.completions.len() + self.others.len()
    }

    /// Returns the reason why a connection has ended, if the event that reports it is in the queue.
    pub(crate) fn end_of(&self, endpoint: EndpointId) -> Option<&BreakReason> {
        self.others.iter().find_map(|(_, event)| match event {
            Event::Broken { endpoint: broken, reason } if *broken == endpoint => Some(reason),
            _ => None,
        })
    }

    /// Returns true if an event other than a completion is queued.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }
}

/// A queue of completions. It is a plain vector with a count of removed entries rather than a
/// deque, so that a push writes a completion directly to its final address. A completion that is
/// built elsewhere and then moved is loaded in words of other sizes than those that were stored.
/// Such a load waits for all earlier stores, which takes half a microsecond right after a page was
/// copied (docs/decisions/0003).
#[derive(Debug, Default)]
struct Completions {
    queue: Vec<Completion>,
    /// The number of entries at the front that have been removed from the queue.
    taken: usize,
}

impl Completions {
    #[inline(always)]
    fn push(&mut self, completion: Completion) {
        if self.taken >= TAKEN_MAX {
            self.queue.drain(..self.taken);
            self.taken = 0;
        }
        self.queue.push(completion);
    }

    #[inline(always)]
    fn first(&self) -> Option<&Completion> {
        self.queue.get(self.taken)
    }

    #[inline(always)]
    fn pass(&mut self) {
        self.taken += 1;
        if self.taken >= self.queue.len() {
            self.queue.clear();
            self.taken = 0;
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.queue.len() - self.taken
    }
}

/// The number of removed completions at which the vector is compacted even if it is not empty.
const TAKEN_MAX: usize = 1024;

/// The events to report for a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Reports that the descriptor is readable, level-triggered.
    Read,
    /// Reports that the descriptor is readable or writable, level-triggered.
    ReadWrite,
    /// Reports that an eventfd was written to since the previous report, edge-triggered. No read is
    /// needed to reset the event.
    ReadEdge,
}

/// The reported state of a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// True if a read would return bytes, a connection or end of file.
    pub readable: bool,
    /// True if a write would accept bytes.
    pub writable: bool,
    /// True if the peer has closed its end.
    pub closed: bool,
}

/// Identifies a watched descriptor by its endpoint or listener and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Endpoint { endpoint: EndpointId, which: u8 },
    Listener(u32),
    Waker,
}

impl Token {
    pub(crate) fn endpoint(endpoint: EndpointId, which: u8) -> Self {
        Token::Endpoint { endpoint, which }
    }

    fn pack(self) -> u64 {
        match self {
            Token::Endpoint { endpoint, which } => {
                let (place, generation) = endpoint.to_bits();
                u64::from(generation) << 32 | u64::from(place) << 8 | u64::from(which)
            }
            Token::Listener(index) => 1 << 31 | u64::from(index) << 8,
            Token::Waker => 1 << 30,
        }
    }

    fn unpack(data: u64) -> Self {
        let place = (data >> 8) as u32 & PLACE_MASK;
        // No endpoint has generation 0.
        if data >> 32 == 0 {
            let is_waker = data & (1 << 30) != 0;
            return if is_waker { Token::Waker } else { Token::Listener(place & LISTENER_MASK) };
        }
        let endpoint = EndpointId::from_bits(place, (data >> 32) as u32);
        Token::Endpoint { endpoint, which: (data & 0xff) as u8 }
    }
}

/// The bits of a packed token that contain an endpoint's owner and index.
const PLACE_MASK: u32 = (1 << EndpointId::PLACE_BITS) - 1;
/// The bits of a packed token that contain a listener's number.
const LISTENER_MASK: u32 = 0x3f_ffff;
// The remaining bits have room for `which`.
const _: () = assert!(EndpointId::PLACE_BITS <= 24);

/// The epoll instance of an interface.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: std::os::fd::OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> std::io::Result<Self> {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Creates a poller that reports no events, as if the application had closed its descriptor.
    #[cfg(test)]
    pub(crate) fn deaf() -> Self {
        Self { epoll: std::fs::File::open("/dev/null").expect("it is there").into() }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.epoll.as_fd()
    }

    pub(crate) fn add(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Interest,
    ) -> std::io::Result<()> {
        let data = rustix::event::epoll::EventData::new_u64(token.pack());
        Ok(rustix::event::epoll::add(&self.epoll, fd, data, flags_of(interest))?)
    }

    pub(crate) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Interest,
    ) -> std::io::Result<()> {
        let data = rustix::event::epoll::EventData::new_u64(token.pack());
        Ok(rustix::event::epoll::modify(&self.epoll, fd, data, flags_of(interest))?)
    }

    /// Stops watching a descriptor.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(rustix::event::epoll::delete(&self.epoll, fd)?)
    }

    /// Waits, and collects the ready descriptors into `ready`.
    pub(crate) fn wait(
        &self,
        ready: &mut Vec<(Token, Readiness)>,
        timeout: Option<std::time::Duration>,
    ) -> std::io::Result<()> {
        use rustix::event::epoll::{Event, EventData, EventFlags};
        let empty = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut buffer = [empty; EVENTS_MAX];
        let timespec = timeout.map(|time| rustix::event::Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        ready.clear();
        let slots = &mut buffer[..];
        let count = match rustix::event::epoll::wait(&self.epoll, slots, timespec.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in &buffer[..count] {
            let flags = event.flags;
            let closed = flags.intersects(EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP);
            let readiness = Readiness {
                readable: flags.contains(EventFlags::IN) || closed,
                writable: flags.contains(EventFlags::OUT),
                closed,
            };
            ready.push((Token::unpack(event.data.u64()), readiness));
        }
        Ok(())
    }
}

fn flags_of(interest: Interest) -> rustix::event::epoll::EventFlags {
    use rustix::event::epoll::EventFlags;
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::RDHUP,
        Interest::ReadWrite => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP,
        Interest::ReadEdge => EventFlags::IN | EventFlags::ET,
    }
}

/// The number of ready descriptors collected by one epoll call.
const EVENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        let endpoint = EndpointId::first(15, 0xf_ff77).next().next();
        for token in [Token::endpoint(endpoint, 2), Token::Listener(5), Token::Waker] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }

    #[test]
    fn other_events_keep_their_place_among_completions() {
        let endpoint = EndpointId::first(0, 0);
        let completion = Completion {
            endpoint,
            cookie: 1,
            operation: Operation::Send,
            status: CompletionStatus::Success,
            length: 0,
            invalidated: None,
        };
        let mut queue = EventQueue::default();
        queue.push_completion(completion);
        queue.push(Event::Broken { endpoint, reason: BreakReason::Local });
        queue.push_completion(completion);
        let kinds: Vec<bool> = std::iter::from_fn(|| queue.pop())
            .map(|event| matches!(event, Event::Completion(_)))
            .collect();
        assert_eq!(kinds, [true, false, true]);
    }
}
