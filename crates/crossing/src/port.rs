//! A reactor's end of everything that crosses: asks, answers, notices, sleep.
//!
//! Invariant: each ask is answered once at most, and its answer always has room. Whoever holds an
//! [`AnswerPermit`] holds a slot of the ring that the answer goes into, so a reactor can answer
//! although nobody takes its own asks: two full rings do not wait for each other.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use dafs_base::{Key, Slab};
use dafs_types::{Shard, ShardCount};
use rtrb::Consumer;

use crate::bell::{Bell, Cause, Lying};
use crate::lane::Outgoing;
use crate::waker::{EventWaker, Waker};

/// Makes the ports of reactors.
#[derive(Clone, Copy, Debug)]
pub struct Crossing;

/// One reactor's end. It belongs to the reactor's thread.
///
/// In a turn the owner takes events until there are no more or its turn is over
/// ([`Port::poll`], [`Port::take`]), sends what it has to send, and hands it all over at once
/// ([`Port::flush`]). Before it sleeps it asks [`Port::prepare_sleep`].
pub struct Port<Ask, Answer, Notice> {
    own: Shard,
    count: ShardCount,
    sleeper: Arc<Sleeper>,
    /// To all others, by number.
    lanes: Box<[Lane<Ask, Answer, Notice>]>,
    /// Asks whose answers have not come.
    pending: Slab<Pending, Ticket>,
    /// The lane that is looked at, and how many messages more are taken from it in a row.
    present: usize,
    in_a_row: usize,
    /// A bit for each lane with a batch that was not handed over.
    unsent: u64,
    /// A bit for each lane that was taken from since the last hand-over.
    taken: u64,
    /// A bit for each lane that has refused a notice, until the owner has heard of room there.
    refused: u64,
    /// Whether it said that it may sleep.
    is_down: bool,
    /// Wake-ups that come or have come, and were not taken back from the waker.
    wakes_owed: u64,
}

/// What has come.
#[derive(Debug)]
pub enum Event<Ask, Answer, Notice> {
    /// Somebody asks. The permit says who, and is for the answer.
    Asked {
        /// For [`Port::answer`].
        permit: AnswerPermit,
        /// What is asked.
        ask: Ask,
    },
    /// The answer to one of our asks.
    Answered {
        /// What [`Port::ask`] returned.
        ticket: Ticket,
        /// What [`Port::ask_with`] was given; otherwise 0.
        context: u64,
        /// The answer.
        answer: Answer,
    },
    /// The answer to an ask that was given up. What it holds is the taker's to dispose of.
    Late {
        /// Who answers.
        from: Shard,
        /// The answer.
        answer: Answer,
    },
    /// Somebody tells something.
    Told {
        /// Who it is.
        from: Shard,
        /// What it tells.
        notice: Notice,
    },
}

/// Names an ask until its answer has come: 8 bytes that are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(Key<Ticket>);

/// A slot for the answer to one ask. Whoever drops it never answers, and the asker's slot is lost.
#[derive(Debug)]
#[must_use = "an ask that is not answered holds a slot for ever"]
pub struct AnswerPermit {
    asker: Shard,
    asked: Shard,
    ticket: Ticket,
}

/// Whether a reactor may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reactor that sleeps though it may not is not woken"]
pub enum Rest {
    /// It may: whoever sends it something wakes it.
    MaySleep,
    /// It may not: something has come.
    Awake,
}

struct Lane<Ask, Answer, Notice> {
    peer: Shard,
    sleeper: Arc<Sleeper>,
    incoming: Consumer<Message<Ask, Answer, Notice>>,
    outgoing: Outgoing<Message<Ask, Answer, Notice>>,
}

/// What is in a slot.
enum Message<Ask, Answer, Notice> {
    Ask { ticket: Ticket, ask: Ask },
    Answer { ticket: Ticket, answer: Answer },
    Notice(Notice),
}

struct Pending {
    to: Shard,
    context: u64,
    is_given_up: bool,
}

/// How to know whether a reactor sleeps, and how to wake it.
struct Sleeper {
    bell: Bell,
    waker: Box<dyn Waker>,
}

impl Crossing {
    /// The ports of so many reactors, which are woken by eventfds. Between any two of them so many
    /// asks may be under way in each direction, and as many notices.
    ///
    /// # Errors
    /// There is no descriptor left.
    ///
    /// # Panics
    /// If `slots` is 0 or more than [`SLOTS_MAX`].
    pub fn open<Ask: Send, Answer: Send, Notice: Send>(
        count: ShardCount,
        slots: usize,
    ) -> std::io::Result<Vec<Port<Ask, Answer, Notice>>> {
        let wakers = (0..count.get())
            .map(|_| EventWaker::new().map(|waker| Box::new(waker) as Box<dyn Waker>))
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Self::with_wakers(wakers, slots))
    }

    /// As [`Crossing::open`], for reactors that are woken otherwise: one waker for each. With
    /// wakers that only note that they were called, all reactors can be stepped by one thread.
    ///
    /// # Panics
    /// If there is no waker, there are more than a [`ShardCount`] counts, or `slots` is 0 or more
    /// than [`SLOTS_MAX`].
    #[must_use]
    pub fn with_wakers<Ask: Send, Answer: Send, Notice: Send>(
        wakers: Vec<Box<dyn Waker>>,
        slots: usize,
    ) -> Vec<Port<Ask, Answer, Notice>> {
        let count = ShardCount::new(wakers.len()).expect("a number of reactors that can be");
        assert!((1..=SLOTS_MAX).contains(&slots), "{slots} slots; 1 to {SLOTS_MAX} can be");
        let sleepers: Vec<_> = wakers
            .into_iter()
            .map(|waker| Arc::new(Sleeper { bell: Bell::new(), waker }))
            .collect();
        let mut ends: Vec<Vec<_>> = sleepers.iter().map(|_| Vec::new()).collect();
        // Of each pair the ring in one direction, then in the other: each has its ends in order.
        for one in 0..sleepers.len() {
            for other in one + 1..sleepers.len() {
                let (there, from_one) = Outgoing::open(slots);
                let (back, from_other) = Outgoing::open(slots);
                ends[one].push((other, there, from_other));
                ends[other].push((one, back, from_one));
            }
        }
        let port = |(own, mut ends): (usize, Vec<(usize, _, _)>)| {
            ends.sort_by_key(|(peer, ..)| *peer);
            let lanes: Box<[Lane<_, _, _>]> = ends
                .into_iter()
                .map(|(peer, outgoing, incoming)| Lane {
                    peer: shard(peer),
                    sleeper: sleepers[peer].clone(),
                    incoming,
                    outgoing,
                })
                .collect();
            Port {
                own: shard(own),
                count,
                sleeper: sleepers[own].clone(),
                pending: table(lanes.len() * slots),
                lanes,
                present: 0,
                in_a_row: IN_A_ROW_MAX,
                unsent: 0,
                taken: 0,
                refused: 0,
                is_down: false,
                wakes_owed: 0,
            }
        };
        ends.into_iter().enumerate().map(port).collect()
    }
}

impl<Ask, Answer, Notice> Port<Ask, Answer, Notice> {
    /// Whose port it is.
    #[must_use]
    pub fn own(&self) -> Shard {
        self.own
    }

    /// How many reactors there are.
    #[must_use]
    pub fn count(&self) -> ShardCount {
        self.count
    }

    /// Sends an ask with the next hand-over.
    ///
    /// # Errors
    /// The ask: as many as may be are under way to that reactor. Whoever wants to ask waits until
    /// one of them is answered.
    ///
    /// # Panics
    /// If `to` is this reactor itself or none at all.
    #[inline]
    pub fn ask(&mut self, to: Shard, ask: Ask) -> Result<Ticket, Ask> {
        self.ask_with(to, ask, 0)
    }

    /// As [`Port::ask`], with a word that comes back with the answer: whom it is for. The other
    /// side does not see it.
    ///
    /// # Errors
    /// As [`Port::ask`].
    ///
    /// # Panics
    /// As [`Port::ask`].
    #[inline]
    pub fn ask_with(&mut self, to: Shard, ask: Ask, context: u64) -> Result<Ticket, Ask> {
        let index = self.lane_of(to);
        let lane = &mut self.lanes[index];
        if !lane.outgoing.takes_ask() {
            return Err(ask);
        }
        let ticket = Ticket(self.pending.insert(Pending { to, context, is_given_up: false }));
        lane.outgoing.put_ask(Message::Ask { ticket, ask });
        self.unsent |= 1 << index;
        Ok(ticket)
    }

    /// Answers an ask with the next hand-over. There is always room.
    ///
    /// # Panics
    /// If another reactor was asked.
    #[inline]
    pub fn answer(&mut self, permit: AnswerPermit, answer: Answer) {
        assert_eq!(permit.asked, self.own, "an answer comes from whom was asked");
        let index = self.lane_of(permit.asker);
        let message = Message::Answer { ticket: permit.ticket, answer };
        self.lanes[index].outgoing.put_answer(message);
        self.unsent |= 1 << index;
    }

    /// Tells a reactor what needs no answer, with the next hand-over.
    ///
    /// # Errors
    /// The notice: too many are waiting to be taken in. When there is room, the next
    /// [`Port::prepare_sleep`] says [`Rest::Awake`] once, and a sleep ends.
    ///
    /// # Panics
    /// As [`Port::ask`].
    #[inline]
    pub fn tell(&mut self, to: Shard, notice: Notice) -> Result<(), Notice> {
        let index = self.lane_of(to);
        let outgoing = &mut self.lanes[index].outgoing;
        if !outgoing.takes_notice() {
            self.refused |= 1 << index;
            return Err(notice);
        }
        outgoing.put_notice(Message::Notice(notice));
        self.refused &= !(1 << index);
        self.unsent |= 1 << index;
        Ok(())
    }

    /// Nobody waits for the answer any more. It comes as [`Event::Late`], and the slot is in use
    /// until then. False if there is no such ask.
    pub fn give_up(&mut self, ticket: Ticket) -> bool {
        match self.pending.get_mut(ticket.0) {
            Some(pending) => !std::mem::replace(&mut pending.is_given_up, true),
            None => false,
        }
    }

    /// Whether an ask to this reactor would be sent now.
    #[must_use]
    pub fn takes_ask(&self, to: Shard) -> bool {
        self.lanes[self.lane_of(to)].outgoing.takes_ask()
    }

    /// Asks to one reactor whose answers have not come.
    #[must_use]
    pub fn asks_under_way(&self, to: Shard) -> usize {
        self.lanes[self.lane_of(to)].outgoing.asks_under_way()
    }

    /// Takes in what has come, at most `bound` events; returns how many there were. Everybody has
    /// a turn: no more than a few are taken from one reactor while others wait.
    pub fn poll(
        &mut self,
        bound: usize,
        mut on_event: impl FnMut(Event<Ask, Answer, Notice>),
    ) -> usize {
        let mut count = 0;
        while count < bound
            && let Some(event) = self.take()
        {
            on_event(event);
            count += 1;
        }
        count
    }

    /// The next event, for owners that answer on the way. They bound their turns themselves.
    #[inline]
    pub fn take(&mut self) -> Option<Event<Ask, Answer, Notice>> {
        if self.is_down {
            self.get_up();
        }
        // One look more than there are lanes: the first may have had its turn.
        for _ in 0..=self.lanes.len() {
            if self.in_a_row > 0
                && let Some(lane) = self.lanes.get_mut(self.present)
                && let Ok(message) = lane.incoming.pop()
            {
                self.in_a_row -= 1;
                self.taken |= 1 << self.present;
                return Some(self.event(message));
            }
            self.in_a_row = IN_A_ROW_MAX;
            self.present += 1;
            if self.present >= self.lanes.len() {
                self.present = 0;
            }
        }
        None
    }

    /// Whether something has come. For those who look often and do nothing else: it takes
    /// nothing.
    #[inline]
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.incoming.is_empty())
    }

    /// Hands over everything that was sent since the last time, and wakes those whom it is for if
    /// they sleep.
    #[inline]
    pub fn flush(&mut self) {
        if self.unsent | self.taken != 0 {
            self.hand_over();
        }
    }

    /// Whether the reactor may sleep until its waker is called, or for as long as it likes.
    /// Everything is handed over before.
    pub fn prepare_sleep(&mut self) -> Rest {
        self.prepare_sleep_unless(|| false)
    }

    /// As [`Port::prepare_sleep`], with a look at something else that others change and then
    /// [`Port::nudge`] the reactor for. It is called once all others have been told that it sleeps.
    pub fn prepare_sleep_unless(&mut self, has_more: impl FnOnce() -> bool) -> Rest {
        if self.is_down {
            self.get_up();
        }
        self.flush();
        let (lanes, refused) = (&mut self.lanes, &mut self.refused);
        let lying = self.sleeper.bell.lie_down(*refused != 0, || {
            let with_room = bits(*refused).filter(|index| lanes[*index].outgoing.takes_notice());
            let found = with_room.fold(0, |found, index| found | 1 << index);
            // The owner has been told: whether it wants to tell anything still is its own affair.
            *refused &= !found;
            found != 0 || lanes.iter().any(|lane| !lane.incoming.is_empty()) || has_more()
        });
        match lying {
            Lying::Down => {
                self.is_down = true;
                Rest::MaySleep
            }
            Lying::Up { is_rung } => {
                self.wakes_owed += u64::from(is_rung);
                Rest::Awake
            }
        }
    }

    /// The reactor does not sleep any more: nobody needs to wake it. [`Port::poll`] and
    /// [`Port::take`] say so as well.
    pub fn get_up(&mut self) {
        self.is_down = false;
        self.wakes_owed += u64::from(self.sleeper.bell.get_up());
        // Whoever has to wake us does it once. One that is late ends the next sleep early.
        if self.wakes_owed > 0 {
            self.wakes_owed = self.wakes_owed.saturating_sub(self.sleeper.waker.take());
        }
    }

    /// Wakes a reactor if it sleeps, for something that is no message: what it looks at in
    /// [`Port::prepare_sleep_unless`].
    ///
    /// # Panics
    /// As [`Port::ask`].
    pub fn nudge(&self, to: Shard) {
        Sleeper::publish();
        self.lanes[self.lane_of(to)].sleeper.ring(Cause::Message);
    }

    /// As [`Port::nudge`], for all others.
    pub fn nudge_all(&self) {
        Sleeper::publish();
        self.lanes.iter().for_each(|lane| lane.sleeper.ring(Cause::Message));
    }

    /// The descriptor that becomes readable when somebody wakes the reactor. `None` if its waker
    /// has none.
    #[must_use]
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleeper.waker.fd()
    }

    fn hand_over(&mut self) {
        let (unsent, taken) = (self.unsent, self.taken);
        (self.unsent, self.taken) = (0, 0);
        bits(unsent).for_each(|index| self.lanes[index].outgoing.hand_over());
        Sleeper::publish();
        bits(unsent).for_each(|index| self.lanes[index].sleeper.ring(Cause::Message));
        bits(taken & !unsent).for_each(|index| self.lanes[index].sleeper.ring(Cause::Room));
    }

    /// What a message of the present lane is to the owner.
    #[inline]
    fn event(&mut self, message: Message<Ask, Answer, Notice>) -> Event<Ask, Answer, Notice> {
        let lane = &mut self.lanes[self.present];
        let from = lane.peer;
        match message {
            Message::Ask { ticket, ask } => {
                Event::Asked { permit: AnswerPermit { asker: from, asked: self.own, ticket }, ask }
            }
            Message::Answer { ticket, answer } => {
                lane.outgoing.ask_ended();
                let pending = self.pending.remove(ticket.0);
                debug_assert!(pending.as_ref().is_some_and(|pending| pending.to == from));
                match pending {
                    Some(Pending { context, is_given_up: false, .. }) => {
                        Event::Answered { ticket, context, answer }
                    }
                    _ => Event::Late { from, answer },
                }
            }
            Message::Notice(notice) => Event::Told { from, notice },
        }
    }

    #[inline]
    fn lane_of(&self, to: Shard) -> usize {
        assert!(to != self.own, "a reactor does not ask itself");
        usize::from(to.0) - usize::from(to > self.own)
    }
}

impl<Ask, Answer, Notice> std::fmt::Debug for Port<Ask, Answer, Notice> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pending = self.pending.len();
        f.debug_struct("Port").field("own", &self.own).field("pending", &pending).finish()
    }
}

impl AnswerPermit {
    /// Who asks.
    #[must_use]
    pub fn asker(&self) -> Shard {
        self.asker
    }
}

impl Ticket {
    /// As a number; see [`Key::to_bits`].
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }
}

impl Sleeper {
    /// Between what was done for sleepers and their bells.
    #[inline]
    fn publish() {
        Bell::<AtomicU32>::publish();
    }

    /// [`Sleeper::publish`] was called.
    #[inline]
    fn ring(&self, cause: Cause) {
        if self.bell.must_ring(cause) {
            self.waker.wake();
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        lowest
    })
}

fn shard(index: usize) -> Shard {
    Shard(u16::try_from(index).expect("a shard's number"))
}

/// A table for so many asks, with all of its memory. A place is good for a billion of asks; one
/// that is used up is replaced, which is the only time that the table grows.
fn table(places: usize) -> Slab<Pending, Ticket> {
    let places = u32::try_from(places).expect("few ports with few slots");
    let mut table = Slab::tagged(places);
    let pending = || Pending { to: Shard(0), context: 0, is_given_up: true };
    let keys: Vec<_> = (0..places).map(|_| table.insert(pending())).collect();
    // The first place is used first.
    for key in keys.into_iter().rev() {
        table.remove(key);
    }
    table
}

/// The most slots of a class between two reactors.
pub const SLOTS_MAX: usize = 1 << 16;
/// Messages that are taken from one reactor before the next one's turn.
const IN_A_ROW_MAX: usize = 32;

const _: () = assert!(size_of::<Ticket>() == 8);
// A bit for each lane.
const _: () = assert!(ShardCount::MAX <= u64::BITS as usize);
// The table of asks has as many places.
const _: () = assert!(SLOTS_MAX * ShardCount::MAX <= u32::MAX as usize);
