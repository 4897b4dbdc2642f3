//! What a provider must do for one connection, and what it gets to do it with.
//!
//! A provider never owns the event queue or the regions: they are lent for each
//! call, so that one thread can drive any mix of providers without locks.

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

/// What is lent to a provider for one call.
pub struct Context<'a> {
    pub(crate) endpoint: EndpointId,
    pub(crate) domain: Domain,
    pub(crate) regions: &'a mut RegionTable,
    pub(crate) events: &'a mut EventQueue,
    pub(crate) poller: &'a Poller,
}

impl Context<'_> {
    /// Queues the completion of one piece of work.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        operation: Operation,
        context: u64,
        status: CompletionStatus,
        length: u32,
    ) {
        self.events.push_completion(Completion {
            endpoint: self.endpoint,
            context,
            operation,
            status,
            length,
            invalidated: None,
        });
    }

    /// Watches a descriptor for this endpoint; `which` comes back in
    /// [`Connection::ready`].
    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        which: u8,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poller.add(fd, Token::endpoint(self.endpoint, which), interest)
    }

    /// Changes what is watched on a descriptor already added.
    pub(crate) fn rewatch(
        &self,
        fd: BorrowedFd<'_>,
        which: u8,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poller.modify(fd, Token::endpoint(self.endpoint, which), interest)
    }
}

/// What a sleeper is to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// So many messages have arrived.
    pub threshold: usize,
    /// A message that ends the sleep is about to come: who looks for it awake has it
    /// sooner, for some microseconds of CPU.
    pub early: bool,
}

/// One connection of one provider.
///
/// A method that returns `Err` breaks the connection: the interface then calls
/// [`Connection::shutdown`] and reports [`Event::Broken`].
pub trait Connection: Send {
    /// Queues a receive; completes when a message has arrived in it.
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

    /// Queues an RDMA write of the local segments to `remote`; lengths agree.
    fn post_rdma_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError>;

    /// Does an RDMA write, or read, at once if it takes no more than a copy. False if
    /// nothing was done: then it must be posted.
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

    /// Queues an RDMA read of `remote` into the local segments; lengths agree.
    fn post_rdma_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError>;

    /// Says what the peer is likely to answer with. Only a hint.
    fn expect(&mut self, forecast: &Forecast<'_>) {
        let _ = forecast;
    }

    /// Makes everything posted visible to the peer, as far as it takes it now.
    fn flush(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason>;

    /// Takes in what has arrived, without a system call where possible. Called
    /// often for connections with [`Connection::is_polled`] or
    /// [`Connection::awaits_one`]. Says whether anything moved.
    fn progress(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason>;

    /// A watched descriptor became ready.
    fn ready(
        &mut self,
        context: &mut Context<'_>,
        which: u8,
        readiness: Readiness,
    ) -> Result<(), BreakReason>;

    /// Whether inbound work shows in memory, so that polling beats sleeping.
    fn is_polled(&self) -> bool;

    /// Whether one message is likely to come next and no more: the answer that the
    /// application foretold by [`Connection::expect`]. Then asking a socket for it beats
    /// sleeping, for a while.
    fn awaits_one(&self) -> bool {
        false
    }

    /// Nothing has come yet to a socket that is being asked: gets ready for what is due.
    fn idle(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Prepares for sleep: the peer must wake us through a watched descriptor, when the
    /// alarm says. False if work is already there.
    fn arm(&mut self, alarm: Alarm) -> bool {
        let _ = alarm;
        true
    }

    /// Takes [`Connection::arm`] back.
    fn disarm(&mut self) {}

    /// Prepares for a short sleep: the descriptor keeps quiet until most of what
    /// `threshold` messages are likely to bring is there. It stays so for further such
    /// sleeps. False if this sleep is not worth it.
    fn gather(&mut self, threshold: usize) -> bool {
        let _ = threshold;
        false
    }

    /// Such a sleep is over: takes in what the descriptor has kept quiet about.
    fn gathered(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let _ = context;
        Ok(())
    }

    /// Takes [`Connection::gather`] back.
    fn end_gathering(&mut self) {}

    /// Accepts a pending inbound connection.
    fn accept(
        &mut self,
        context: &mut Context<'_>,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<(), BreakReason>;

    /// Rejects a pending inbound connection; it is released afterwards.
    fn reject(&mut self, context: &mut Context<'_>, private_data: &[u8]);

    /// Whether work may be posted.
    fn is_established(&self) -> bool;

    /// Whether a message has arrived that was not taken in, or may have: no system call is made to
    /// find out.
    fn has_arrived(&self) -> bool {
        true
    }

    /// Hands the peer, a process of this host, a descriptor before whatever is posted from now
    /// on. False if this transport cannot, or not now.
    fn hand_over(&mut self, name: u64, file: BorrowedFd<'_>) -> bool {
        let _ = (name, file);
        false
    }

    /// A descriptor that the peer has handed over by this name, before a message that has
    /// arrived; `None` if there is none.
    fn take_handed_over(
        &mut self,
        context: &mut Context<'_>,
        name: u64,
    ) -> Result<Option<OwnedFd>, BreakReason> {
        let _ = (context, name);
        Ok(None)
    }

    /// Whether an inbound connection has said what it wants; true of every other.
    fn has_asked(&self) -> bool {
        true
    }

    /// Moment at which an unfinished connect or accept is given up.
    fn deadline(&self) -> Option<Instant>;

    /// Whose share of what all peers have together it takes.
    fn holder(&self) -> Holder {
        Holder::Unknown
    }

    /// Bytes of memory that a connection takes up, which does not stand yet, with what the peer
    /// has said or not taken.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Called once, before the connection is dropped: whatever others hold as well, so that it
    /// does not end here, is watched no more.
    fn unwatch(&mut self, poller: &Poller) {
        let _ = poller;
    }

    /// A region became reachable for the peer.
    fn expose(&mut self, context: &mut Context<'_>, entry: &RegionEntry)
    -> Result<(), BreakReason>;

    /// A region is no longer reachable.
    fn withdraw(&mut self, entry: &RegionEntry);

    /// What the peer of this connection names a region by.
    fn name(&self, context: &Context<'_>, region: &Region) -> Stag {
        let _ = context;
        region.stag
    }

    /// Of a device that can be told of the application's own memory.
    fn protection(&self) -> Option<&Arc<ProtectionDomain>> {
        None
    }

    /// Registers the dmabuf of a region with the connection's device, unless the device knows
    /// it.
    fn reach_dmabuf(
        &mut self,
        context: &mut Context<'_>,
        key: LocalKey,
    ) -> Result<(), DmabufError> {
        let _ = (context, key);
        Err(DmabufError::Transport)
    }

    /// How bytes get to a region over this connection.
    fn path(&self, entry: &RegionEntry) -> RegionPath;

    /// Ends the connection: completes everything outstanding as flushed and lets
    /// go of descriptors. Called once.
    fn shutdown(&mut self, context: &mut Context<'_>, reason: &BreakReason);
}

/// Completions and other events, in order, completions stored compactly.
#[derive(Debug, Default)]
pub struct EventQueue {
    completions: Completions,
    /// Each with the number of completions that were queued before it.
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

    /// The next event, if it is a completion.
    #[inline(always)]
    pub(crate) fn first_completion(&self) -> Option<&Completion> {
        if let Some((after, _)) = self.others.front()
            && *after <= self.taken
        {
            return None;
        }
        self.completions.first()
    }

    /// The first completion is dealt with.
    #[inline(always)]
    pub(crate) fn pass_completion(&mut self) {
        self.completions.pass();
        self.taken += 1;
    }

    /// Completions and other events waiting.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.completions.len() + self.others.len()
    }

    /// Why a connection has ended, if its end is in the queue.
    pub(crate) fn end_of(&self, endpoint: EndpointId) -> Option<&BreakReason> {
        self.others.iter().find_map(|(_, event)| match event {
            Event::Broken { endpoint: broken, reason } if *broken == endpoint => Some(reason),
            _ => None,
        })
    }

    /// Whether anything but completions waits.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }
}

/// Completions in order. A plain vector with a mark rather than a deque: a push is then
/// a few stores straight into place. Built elsewhere and moved, a completion is loaded by
/// words that span its stores, and that load waits for all stores before it: right after
/// a copy of a page that is half a microsecond (docs/decisions/0003).
#[derive(Debug, Default)]
struct Completions {
    queue: Vec<Completion>,
    /// How many at the front are taken.
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

/// Taken completions that may stand before those that wait, while the queue never gets
/// empty.
const TAKEN_MAX: usize = 1024;

/// What to be told about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable, level-triggered.
    Read,
    /// Readable or writable, level-triggered.
    ReadWrite,
    /// Written to since last told; needs no read to reset (eventfd).
    ReadEdge,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes, a connection or the end can be read.
    pub readable: bool,
    /// Bytes can be written.
    pub writable: bool,
    /// The other side is gone.
    pub closed: bool,
}

/// Identifies a watched descriptor: endpoint or listener, and which of its own.
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
        // Endpoints never have generation 0.
        if data >> 32 == 0 {
            let is_waker = data & (1 << 30) != 0;
            return if is_waker { Token::Waker } else { Token::Listener(place & LISTENER_MASK) };
        }
        let endpoint = EndpointId::from_bits(place, (data >> 32) as u32);
        Token::Endpoint { endpoint, which: (data & 0xff) as u8 }
    }
}

/// Bits of a packed token that hold an endpoint's place, and a listener's number.
const PLACE_MASK: u32 = (1 << EndpointId::PLACE_BITS) - 1;
const LISTENER_MASK: u32 = 0x3f_ffff;
// Beside them there is room for `which`.
const _: () = assert!(EndpointId::PLACE_BITS <= 24);

/// The interface's epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: std::os::fd::OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> std::io::Result<Self> {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// One that hears nothing, as if somebody had closed its descriptor.
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

    /// Watches a descriptor no more.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(rustix::event::epoll::delete(&self.epoll, fd)?)
    }

    /// Waits and collects what is ready into `ready`.
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

/// Descriptors taken from one epoll call.
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
            context: 1,
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
