//! What one reactor leaves to another: work on a connection that is not its own.
//!
//! A connection belongs to the reactor whose interface has it, and nobody else posts anything on
//! it. A reactor that finds out that a request of another's connection can go on, or has an answer
//! for it, leaves that in the other's mailbox and wakes it.
//!
//! Invariant: a mailbox is bounded by what is bounded already. Work in it is a parked task or a
//! request that was set aside, each of which holds a credit; a message answers such a request, or
//! asks a client under a credit of its own. Whoever has work in a mailbox is woken after the turn
//! that put it there.

use std::collections::VecDeque;

use dafs_dat::{EndpointId, Waker};
use dafs_files::defect::Defect;
use dafs_files::delegations::Told;
use dafs_store::StoreError;

use crate::pool::jobs::Done;
use crate::reply_to::{ChainId, ReplyTo, TaskId};
use crate::requests::set_aside::SetAside;

/// Something to go on with.
pub(crate) enum Handoff {
    /// Parked tasks can be stepped again, in this order. With an error a job that they may have
    /// waited for has failed. The first is of a connection of the reactor's.
    Resume(Vec<TaskId>, Option<StoreError>),
    /// A request that was set aside can be carried out.
    TakeUp { to: ReplyTo, kept: SetAside, told: Option<Told>, may_search: bool },
    /// The next member of a chain can begin.
    Chain(ChainId),
    /// A job is done for whoever logs in over a connection.
    Done(Box<Done>),
}

/// What waits for one reactor.
struct Mailbox {
    work: VecDeque<Handoff>,
    /// To be sent.
    messages: VecDeque<(EndpointId, Box<[u8]>)>,
    /// Connections that are owed receives.
    receives: Vec<EndpointId>,
    /// Connections to be broken.
    broken: Vec<EndpointId>,
    is_fresh: bool,
    waker: Waker,
    /// Regions that its interface has.
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

/// The mailboxes of all reactors, by number.
pub(crate) struct Handoffs {
    boxes: Vec<Mailbox>,
    has_fresh: bool,
    count: u64,
    /// A defect on purpose.
    defect: Option<Defect>,
}

impl Handoffs {
    /// For reactors that are woken so, with a defect on purpose if there is to be one.
    pub fn new(wakers: impl Iterator<Item = Waker>, defect: Option<Defect>) -> Self {
        let boxes = wakers.map(Mailbox::of).collect();
        Self { boxes, has_fresh: false, count: 0, defect }
    }

    /// Reactors there are.
    pub fn reactors(&self) -> usize {
        self.boxes.len()
    }

    /// Things left to others so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether anything is left for a reactor.
    pub fn has_any(&self, reactor: usize) -> bool {
        self.boxes.get(reactor).is_some_and(|mailbox| {
            let Mailbox { work, messages, receives, broken, .. } = mailbox;
            !(work.is_empty() & messages.is_empty() & receives.is_empty() & broken.is_empty())
        })
    }

    /// Regions of all interfaces.
    pub fn regions(&self) -> usize {
        self.boxes.iter().map(|mailbox| mailbox.regions).sum()
    }

    /// Leaves work to a reactor.
    #[cold]
    pub fn leave(&mut self, reactor: usize, work: Handoff) {
        if let Some(mailbox) = self.freshen(reactor) {
            mailbox.work.push_back(work);
        }
    }

    /// Has a message sent by whose connection it is.
    #[cold]
    pub fn send(&mut self, endpoint: EndpointId, message: &[u8]) {
        if self.defect == Some(Defect::LoseOthersMessages) {
            return;
        }
        if let Some(mailbox) = self.freshen(endpoint.owner()) {
            mailbox.messages.push_back((endpoint, message.into()));
        }
    }

    /// Has receives posted that a connection is owed.
    #[cold]
    pub fn owe_receives(&mut self, endpoint: EndpointId) {
        if let Some(mailbox) = self.freshen(endpoint.owner())
            && mailbox.receives.last() != Some(&endpoint)
        {
            mailbox.receives.push(endpoint);
        }
    }

    /// Has a connection broken.
    #[cold]
    pub fn give_up(&mut self, endpoint: EndpointId) {
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

    /// The next work for a reactor.
    #[inline]
    pub fn next_work(&mut self, reactor: usize) -> Option<Handoff> {
        self.boxes.get_mut(reactor)?.work.pop_front()
    }

    /// The next message that a reactor is to send.
    #[inline]
    pub fn next_message(&mut self, reactor: usize) -> Option<(EndpointId, Box<[u8]>)> {
        self.boxes.get_mut(reactor)?.messages.pop_front()
    }

    /// The next connection of a reactor that is owed receives.
    #[inline]
    pub fn next_owed(&mut self, reactor: usize) -> Option<EndpointId> {
        self.boxes.get_mut(reactor)?.receives.pop()
    }

    /// The next connection that a reactor is to break.
    #[inline]
    pub fn next_broken(&mut self, reactor: usize) -> Option<EndpointId> {
        self.boxes.get_mut(reactor)?.broken.pop()
    }

    /// A reactor's turn ends, with so many regions in its interface. All for whom something was
    /// left are woken.
    #[inline]
    pub fn end_turn(&mut self, reactor: usize, regions: usize) {
        if let Some(mailbox) = self.boxes.get_mut(reactor) {
            mailbox.regions = regions;
        }
        self.wake_others();
    }

    /// Wakes all for whom something was left.
    #[inline]
    pub fn wake_others(&mut self) {
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

    /// Wakes all, since the server ends.
    pub fn wake_all(&self) {
        self.boxes.iter().for_each(|mailbox| mailbox.waker.wake());
    }
}
