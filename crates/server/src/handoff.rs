//! Work that one reactor hands over to another reactor.
//!
//! Each connection belongs to the reactor whose network interface accepted it, and only that
//! reactor posts sends and transfers on it. If another reactor finds that a request of the
//! connection can continue, or has a reply for the connection, it puts an entry into the owner's
//! mailbox and wakes the owner.
//!
//! Invariants:
//! - A mailbox needs no limit of its own, because credits limit its entries. An entry is a parked
//!   task, a request that was set aside, the reply to such a task or request, or a request to a
//!   client. The first three kinds use a credit of a session, and the last uses a credit of a
//!   back-control channel.
//! - A reactor with new entries in its mailbox is woken at the end of the turn that added them.

use std::collections::VecDeque;

use dafs_dat::{EndpointId, Waker};
use dafs_files::defect::Defect;
use dafs_files::delegations::Told;
use dafs_store::StoreError;

use crate::guests::GuestResult;
use crate::pool::jobs::Done;
use crate::reply_to::{ChainId, ReplyTo, TaskId};
use crate::requests::set_aside::SetAside;

/// One entry of work in a mailbox.
pub(crate) enum Handoff {
    /// Executes the next steps of these parked tasks, in this order. If the job that the tasks
    /// waited for has failed, the error is included. The first task's connection belongs to the
    /// receiving reactor.
    Resume(Vec<TaskId>, Option<StoreError>),
    /// A request that was set aside can be executed now.
    TakeUp { to: ReplyTo, kept: SetAside, told: Option<Told>, may_search: bool },
    /// The next member of this chain can start.
    Chain(ChainId),
    /// A lock that a guest waits for may be granted.
    LockReady,
    /// The call of a guest can continue.
    Guest(ReplyTo, GuestResult),
    /// A login check has finished for a client whose connection belongs to the receiving reactor.
    Done(Box<Done>),
}

/// The work that other reactors have left for one reactor.
struct Mailbox {
    work: VecDeque<Handoff>,
    /// Messages to send, each with its connection.
    messages: VecDeque<(EndpointId, Box<[u8]>)>,
    /// Connections whose deferred receive buffers the reactor must post.
    receives: Vec<EndpointId>,
    /// Connections that the reactor must break.
    broken: Vec<EndpointId>,
    is_fresh: bool,
    waker: Waker,
    /// The number of memory regions registered with the reactor's interface.
    regions: usize,
}

impl Mailbox {
    fn of(waker: Waker) -> Self {
        Self {
            work: VecDeque::new(),
            messages: VecDeque::new(),
            receives: Vec::new(),
            broken: Vec::new(),
            is_fresh: false,
            waker,
            regions: 0,
        }
    }
}

/// The mailboxes of all reactors, indexed by the number of the reactor.
pub(crate) struct Handoffs {
    boxes: Vec<Mailbox>,
    has_fresh: bool,
    count: u64,
    /// A defect that a test injects.
    defect: Option<Defect>,
}

impl Handoffs {
    /// Creates a mailbox for each reactor's waker.
    pub(crate) fn new(wakers: impl Iterator<Item = Waker>, defect: Option<Defect>) -> Self {
        let boxes = wakers.map(Mailbox::of).collect();
        Self { boxes, has_fresh: false, count: 0, defect }
    }

    /// Returns the number of reactors.
    pub(crate) fn reactors(&self) -> usize {
        self.boxes.len()
    }

    /// Returns the number of entries put into mailboxes since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if the mailbox of this reactor is not empty.
    pub(crate) fn has_any(&self, reactor: usize) -> bool {
        self.boxes.get(reactor).is_some_and(|mailbox| {
            let Mailbox { work, messages, receives, broken, .. } = mailbox;
            !(work.is_empty() & messages.is_empty() & receives.is_empty() & broken.is_empty())
        })
    }

    /// Returns the number of registered memory regions, summed over all interfaces.
    pub(crate) fn regions(&self) -> usize {
        self.boxes.iter().map(|mailbox| mailbox.regions).sum()
    }

    /// Puts work into the mailbox of a reactor.
    #[cold]
    pub(crate) fn leave(&mut self, reactor: usize, work: Handoff) {
        if let Some(mailbox) = self.freshen(reactor) {
            mailbox.work.push_back(work);
        }
    }

    /// Makes the end of the turn wake a reactor, for which there is work elsewhere.
    #[cold]
    pub(crate) fn nudge(&mut self, reactor: usize) {
        self.freshen(reactor);
    }

    /// Puts a message into the mailbox of the reactor that owns the connection, which sends it.
    #[cold]
    pub(crate) fn send(&mut self, endpoint: EndpointId, message: &[u8]) {
        if self.defect == Some(Defect::LoseOthersMessages) {
            return;
        }
        if let Some(mailbox) = self.freshen(endpoint.owner()) {
            mailbox.messages.push_back((endpoint, message.into()));
        }
    }

    /// Asks the reactor that owns the connection to post the connection's deferred receive buffers.
    #[cold]
    pub(crate) fn owe_receives(&mut self, endpoint: EndpointId) {
        if let Some(mailbox) = self.freshen(endpoint.owner())
            && mailbox.receives.last() != Some(&endpoint)
        {
            mailbox.receives.push(endpoint);
        }
    }

    /// Asks the reactor that owns the connection to break it.
    #[cold]
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        if let Some(mailbox) = self.freshen(endpoint.owner()) {
            mailbox.broken.push(endpoint);
        }
    }

    fn freshen(&mut self, reactor: usize) -> Option<&mut Mailbox> {
        self.count += 1;
        self.has_fresh = true;
        let mailbox = self.boxes.get_mut(reactor)?;
        mailbox.is_fresh = true;
        Some(mailbox)
    }

    /// Removes and returns the next work in a reactor's mailbox.
    #[inline]
    pub(crate) fn next_work(&mut self, reactor: usize) -> Option<Handoff> {
        self.boxes.get_mut(reactor)?.work.pop_front()
    }

    /// Removes and returns the next message that a reactor must send.
    #[inline]
    pub(crate) fn next_message(&mut self, reactor: usize) -> Option<(EndpointId, Box<[u8]>)> {
        self.boxes.get_mut(reactor)?.messages.pop_front()
    }

    /// Removes and returns the next connection whose deferred receive buffers the reactor must
    /// post.
    #[inline]
    pub(crate) fn next_owed(&mut self, reactor: usize) -> Option<EndpointId> {
        self.boxes.get_mut(reactor)?.receives.pop()
    }

    /// Removes and returns the next connection that a reactor must break.
    #[inline]
    pub(crate) fn next_broken(&mut self, reactor: usize) -> Option<EndpointId> {
        self.boxes.get_mut(reactor)?.broken.pop()
    }

    /// Ends a turn of a reactor and records the number of regions of its interface. Wakes every
    /// reactor whose mailbox has new entries.
    #[inline]
    pub(crate) fn end_turn(&mut self, reactor: usize, regions: usize) {
        if let Some(mailbox) = self.boxes.get_mut(reactor) {
            mailbox.regions = regions;
        }
        self.wake_others();
    }

    /// Wakes every reactor whose mailbox has new entries.
    #[inline]
    pub(crate) fn wake_others(&mut self) {
        if self.has_fresh {
            self.wake_fresh();
        }
    }

    #[cold]
    fn wake_fresh(&mut self) {
        self.has_fresh = false;
        if self.defect == Some(Defect::WakeNobody) {
            return;
        }
        for mailbox in &mut self.boxes {
            if std::mem::take(&mut mailbox.is_fresh) {
                mailbox.waker.wake();
            }
        }
    }

    /// Wakes all reactors, so that they notice that the server stops.
    pub(crate) fn wake_all(&self) {
        self.boxes.iter().for_each(|mailbox| mailbox.waker.wake());
    }
}
