//! Work that one reactor leaves to another, on a connection of the other.
//!
//! A connection belongs to the reactor whose interface it is on, and only that reactor posts on
//! it. Another reactor that finds that a request of the connection can continue, or that has a
//! reply for it, puts that into the owner's mailbox and wakes the owner.
//!
//! Invariants:
//! - A mailbox needs no limit of its own. Each entry is a parked task or a request that was set
//!   aside, both of which hold a credit; or a reply to such a request; or a request to a client,
//!   which holds a back-channel credit.
//! - A reactor with new entries in its mailbox is woken after the turn that put them there.

use std::collections::VecDeque;

use dafs_dat::{EndpointId, Waker};
use dafs_files::defect::Defect;
use dafs_files::delegations::Told;
use dafs_store::StoreError;

use crate::pool::jobs::Done;
use crate::reply_to::{ChainId, ReplyTo, TaskId};
use crate::requests::set_aside::SetAside;

/// One piece of work for another reactor.
pub(crate) enum Handoff {
    /// These parked tasks can be stepped again, in this order. The error, if any, is that of the
    /// job that they waited for. The first task belongs to a connection of the receiving reactor.
    Resume(Vec<TaskId>, Option<StoreError>),
    /// A request that was set aside can be executed.
    TakeUp { to: ReplyTo, kept: SetAside, told: Option<Told>, may_search: bool },
    /// The next member of a chain can start.
    Chain(ChainId),
    /// A job has finished for a client that logs in over a connection of the receiver.
    Done(Box<Done>),
}

/// The entries that wait for one reactor.
struct Mailbox {
    work: VecDeque<Handoff>,
    /// Messages to send.
    messages: VecDeque<(EndpointId, Box<[u8]>)>,
    /// Connections whose deferred receives must be posted.
    receives: Vec<EndpointId>,
    /// Connections to break.
    broken: Vec<EndpointId>,
    is_fresh: bool,
    waker: Waker,
    /// The number of regions registered with the reactor's interface.
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

/// The mailboxes of all reactors, by reactor number.
pub(crate) struct Handoffs {
    boxes: Vec<Mailbox>,
    has_fresh: bool,
    count: u64,
    /// A defect injected by a test.
    defect: Option<Defect>,
}

impl Handoffs {
    /// Creates one mailbox for each waker.
    pub(crate) fn new(wakers: impl Iterator<Item = Waker>, defect: Option<Defect>) -> Self {
        let boxes = wakers.map(Mailbox::of).collect();
        Self { boxes, has_fresh: false, count: 0, defect }
    }

    /// The number of reactors.
    pub(crate) fn reactors(&self) -> usize {
        self.boxes.len()
    }

    /// The number of entries left to other reactors so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if the reactor's mailbox has entries.
    pub(crate) fn has_any(&self, reactor: usize) -> bool {
        self.boxes.get(reactor).is_some_and(|mailbox| {
            let Mailbox { work, messages, receives, broken, .. } = mailbox;
            !(work.is_empty() & messages.is_empty() & receives.is_empty() & broken.is_empty())
        })
    }

    /// The number of regions of all interfaces together.
    pub(crate) fn regions(&self) -> usize {
        self.boxes.iter().map(|mailbox| mailbox.regions).sum()
    }

    /// Puts work into a reactor's mailbox.
    #[cold]
    pub(crate) fn leave(&mut self, reactor: usize, work: Handoff) {
        if let Some(mailbox) = self.freshen(reactor) {
            mailbox.work.push_back(work);
        }
    }

    /// Puts a message into the mailbox of the connection's owner, which sends it.
    #[cold]
    pub(crate) fn send(&mut self, endpoint: EndpointId, message: &[u8]) {
        if self.defect == Some(Defect::LoseOthersMessages) {
            return;
        }
        if let Some(mailbox) = self.freshen(endpoint.owner()) {
            mailbox.messages.push_back((endpoint, message.into()));
        }
    }

    /// Asks the connection's owner to post its deferred receives.
    #[cold]
    pub(crate) fn owe_receives(&mut self, endpoint: EndpointId) {
        if let Some(mailbox) = self.freshen(endpoint.owner())
            && mailbox.receives.last() != Some(&endpoint)
        {
            mailbox.receives.push(endpoint);
        }
    }

    /// Asks the connection's owner to break it.
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

    /// Takes the next work from a reactor's mailbox.
    #[inline]
    pub(crate) fn next_work(&mut self, reactor: usize) -> Option<Handoff> {
        self.boxes.get_mut(reactor)?.work.pop_front()
    }

    /// Takes the next message that a reactor must send.
    #[inline]
    pub(crate) fn next_message(&mut self, reactor: usize) -> Option<(EndpointId, Box<[u8]>)> {
        self.boxes.get_mut(reactor)?.messages.pop_front()
    }

    /// Takes the next connection whose deferred receives must be posted.
    #[inline]
    pub(crate) fn next_owed(&mut self, reactor: usize) -> Option<EndpointId> {
        self.boxes.get_mut(reactor)?.receives.pop()
    }

    /// Takes the next connection that a reactor must break.
    #[inline]
    pub(crate) fn next_broken(&mut self, reactor: usize) -> Option<EndpointId> {
        self.boxes.get_mut(reactor)?.broken.pop()
    }

    /// Ends a turn of a reactor whose interface has `regions` regions. Wakes every reactor whose
    /// mailbox has new entries.
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

    /// Wakes all reactors, because the server stops.
    pub(crate) fn wake_all(&self) {
        self.boxes.iter().for_each(|mailbox| mailbox.waker.wake());
    }
}
