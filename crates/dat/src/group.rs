//! Groups of interfaces in one process that share the connections arriving at a listener of any of
//! them.
//!
//! The listening member accepts each connection and gives it to the member with the fewest
//! connections, which may be itself. Members with equally few connections take turns. A connection
//! is given as soon as it arrives, before its peer has sent anything, and is counted until it is
//! released. So the data that a peer sends cannot influence which member gets the next connection.
//! If the owner of an interface knows that a connection will carry little traffic, it can exclude
//! the connection from the count ([`Interface::discount`](crate::Interface::discount)).
//!
//! Invariant: a connection either belongs to one interface or waits in the queue of one interface.
//! A queue has a size limit and a time limit: a member that does not check its queue for [`STALL`]
//! gets no more connections until it does, and the giver takes back the connections in that queue.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::{OWNERS_MAX, Waker};

/// A group of interfaces that share the connections arriving at any of their listeners. Each member
/// has the group in its [`InterfaceConfig::group`](crate::InterfaceConfig::group) and its own
/// [owner](crate::InterfaceConfig::owner) number. Each member may belong to a different thread.
///
/// Connections over shared memory, TCP and the simulated network are shared. Those over RDMA
/// devices stay with the interface that listens.
#[derive(Clone, Default)]
pub struct AcceptGroup(Arc<Slots>);

#[derive(Default)]
struct Slots {
    /// The slots of the members, indexed by owner number.
    slots: [Slot; OWNERS_MAX],
    /// The owner that is next in turn among members with equally few connections.
    turn: AtomicUsize,
}

struct Slot {
    /// The number of the member's connections, including those in its queue; [`VACANT`] if the slot
    /// has no member.
    count: AtomicUsize,
    /// True if the member has not checked its queue for [`STALL`].
    is_stalled: AtomicBool,
    queue: Mutex<GivenQueue>,
}

type Given = Box<dyn Connection>;

/// The connections that other members have given to this one, oldest first.
#[derive(Default)]
struct GivenQueue {
    /// The member's waker; `None` if the slot has no member.
    waker: Option<Waker>,
    given: VecDeque<Given>,
    /// The time at which the oldest connection in the queue became available to the member.
    since: Option<Instant>,
}

/// The membership of an interface in its group. Dropping it leaves the group.
pub(crate) struct Member {
    group: AcceptGroup,
    owner: usize,
}

impl AcceptGroup {
    /// Creates a group that no interface has joined.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the member with the fewest connections, except those in the bit set `passed`.
    fn fewest(&self, giver: usize, passed: u32) -> usize {
        let first = self.0.turn.load(Ordering::Relaxed);
        let (mut owner, mut fewest) = (giver, usize::MAX);
        for place in (first..first + OWNERS_MAX).map(|place| place % OWNERS_MAX) {
            let slot = &self.0.slots[place];
            let count = slot.count.load(Ordering::Relaxed);
            let is_out = place != giver && slot.is_stalled.load(Ordering::Relaxed);
            if count < fewest && !is_out && passed & 1 << place == 0 {
                (owner, fewest) = (place, count);
            }
        }
        owner
    }
}

impl Member {
    /// Joins the group under this owner number.
    pub(crate) fn join(group: &AcceptGroup, owner: u8, waker: &Waker) -> io::Result<Self> {
        let slot = &group.0.slots[usize::from(owner)];
        let mut queue = slot.queue();
        if queue.waker.is_some() {
            let what = format!("another interface of the group has owner {owner}");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        queue.waker = Some(waker.clone());
        slot.is_stalled.store(false, Ordering::Relaxed);
        slot.count.store(0, Ordering::Relaxed);
        drop(queue);
        Ok(Self { group: group.clone(), owner: usize::from(owner) })
    }

    /// Counts one more connection of this interface.
    pub(crate) fn added(&self) {
        self.slot().count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one connection fewer of this interface.
    pub(crate) fn removed(&self) {
        self.slot().count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives a connection to the member with the fewest connections. Returns the connection if that
    /// member is this interface.
    pub(crate) fn give(&self, mut connection: Given, now: Instant) -> Option<Given> {
        let mut passed = 0;
        loop {
            let owner = self.group.fewest(self.owner, passed);
            self.group.0.turn.store((owner + 1) % OWNERS_MAX, Ordering::Relaxed);
            if owner == self.owner {
                return Some(connection);
            }
            connection = self.group.0.slots[owner].put(connection, now)?;
            passed |= 1 << owner;
        }
    }

    /// Removes and returns the oldest connection that other members have given to this one. The
    /// connection stays counted; if the interface does not admit it, the caller must call
    /// [`Member::removed`].
    pub(crate) fn take(&self, now: Instant) -> Option<Given> {
        let slot = self.slot();
        let mut queue = slot.queue();
        slot.is_stalled.store(false, Ordering::Relaxed);
        let given = queue.given.pop_front()?;
        queue.since = Some(now);
        Some(given)
    }

    /// Takes back the connections in the queues of members that do not check them. Returns these
    /// connections, and the time of the next check if other connections still wait.
    pub(crate) fn take_back(&self, now: Instant) -> (Vec<Given>, Option<Instant>) {
        let (mut back, mut again) = (Vec::new(), None);
        for (_, slot) in self.group.0.slots.iter().enumerate().filter(|(own, _)| *own != self.owner)
        {
            let mut queue = slot.queue();
            let Some(until) = queue.since.filter(|_| !queue.given.is_empty()).map(|it| it + STALL)
            else {
                continue;
            };
            if now < until {
                again = Some(again.map_or(until, |again: Instant| again.min(until)));
                continue;
            }
            slot.is_stalled.store(true, Ordering::Relaxed);
            slot.count.fetch_sub(queue.given.len(), Ordering::Relaxed);
            back.extend(queue.given.drain(..));
        }
        (back, again)
    }

    fn slot(&self) -> &Slot {
        &self.group.0.slots[self.owner]
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let slot = self.slot();
        let mut queue = slot.queue();
        let given = std::mem::take(&mut *queue).given;
        slot.count.store(VACANT, Ordering::Relaxed);
        drop(queue);
        // Close the connections only after the lock of the queue is released.
        drop(given);
    }
}

impl Slot {
    /// Puts a connection into the queue and signals the member. Returns the connection if the queue
    /// is full.
    fn put(&self, connection: Given, now: Instant) -> Option<Given> {
        let mut queue = self.queue();
        let Some(waker) = queue.waker.clone().filter(|_| queue.given.len() < GIVEN_MAX) else {
            return Some(connection);
        };
        if queue.given.is_empty() {
            queue.since = Some(now);
        }
        queue.given.push_back(connection);
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        waker.call();
        None
    }

    fn queue(&self) -> MutexGuard<'_, GivenQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Slot {
    fn default() -> Self {
        let queue = Mutex::default();
        Self { count: AtomicUsize::new(VACANT), is_stalled: AtomicBool::new(false), queue }
    }
}

impl fmt::Debug for AcceptGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.slots.iter().map(|slot| slot.count.load(Ordering::Relaxed));
        f.debug_list().entries(counts.filter(|count| *count != VACANT)).finish()
    }
}

/// The value of a slot's `count` that marks the slot as having no member.
const VACANT: usize = usize::MAX;
/// The limit for the number of connections in a queue. If the queue is full, the giver tries the
/// next member; it keeps a connection for which no member has room.
const GIVEN_MAX: usize = 64;
/// The time within which a member must take a connection given to it. A peer waits at most this
/// long for a member that is stuck.
pub(crate) const STALL: Duration = Duration::from_secs(1);

const _: () = assert!(OWNERS_MAX <= u32::BITS as usize);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::{ListenerId, tcp};

    fn members(count: u8) -> (AcceptGroup, Vec<(Member, Waker)>) {
        let group = AcceptGroup::new();
        let join = |owner| {
            let waker = Waker::new().unwrap();
            (Member::join(&group, owner, &waker).unwrap(), waker)
        };
        let members = (0..count).map(join).collect();
        (group, members)
    }

    fn counts(group: &AcceptGroup) -> String {
        format!("{group:?}")
    }

    /// Returns an inbound connection and its peer's end.
    fn connection() -> (Given, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, from) = listener.accept().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let socket = socket.into();
        let inbound = tcp::Connection::inbound(socket, ListenerId::FIRST, from, None, deadline);
        (Box::new(inbound), peer)
    }

    #[test]
    fn whoever_has_the_fewest_gets_the_next_and_equals_take_turns() {
        let (group, members) = members(3);
        let now = Instant::now();
        let (giver, _) = &members[1];
        for _ in 0..9 {
            if giver.give(connection().0, now).is_some() {
                giver.added();
            }
        }
        assert_eq!(counts(&group), "[3, 3, 3]");
        // A connection that ends makes room for the next, whichever member has it.
        members[2].0.removed();
        members[2].0.removed();
        for _ in 0..2 {
            assert!(giver.give(connection().0, now).is_none());
        }
        assert_eq!(counts(&group), "[3, 3, 3]");
        assert!(members[0].1.take_call() && members[2].1.take_call(), "they are told");
        assert!(!members[1].1.take_call() && !members[0].1.is_woken());
    }

    #[test]
    fn a_tray_has_a_limit_and_what_is_over_stays_with_the_giver() {
        let (group, members) = members(2);
        let now = Instant::now();
        let (giver, other) = (&members[0].0, &members[1].0);
        (0..10 * GIVEN_MAX).for_each(|_| giver.added());
        for _ in 0..GIVEN_MAX {
            assert!(giver.give(connection().0, now).is_none());
        }
        assert!(giver.give(connection().0, now).is_some(), "there is no room");
        assert!(other.take(now).is_some());
        assert!(giver.give(connection().0, now).is_none());
        assert_eq!(counts(&group), format!("[{}, {}]", 10 * GIVEN_MAX, GIVEN_MAX + 1));
    }

    #[test]
    fn who_does_not_look_gets_no_more_until_it_does() {
        let (group, members) = members(2);
        let (giver, other) = (&members[0].0, &members[1].0);
        (0..10).for_each(|_| giver.added());
        let mut now = Instant::now();
        let begun = now;
        for _ in 0..2 {
            assert!(giver.give(connection().0, now).is_none());
        }
        // A member that takes one connection gets the full time for the next one.
        now += STALL - Duration::from_millis(1);
        assert!(other.take(now).is_some());
        let (back, again) = giver.take_back(begun + STALL);
        assert_eq!((back.len(), again), (0, Some(now + STALL)));
        now += STALL;
        let (back, again) = giver.take_back(now);
        assert_eq!((back.len(), again), (1, None));
        assert_eq!(counts(&group), "[10, 1]", "the one that it took");
        assert!(giver.give(connection().0, now).is_some(), "it does not look");
        assert!(other.take(now).is_none());
        assert!(giver.give(connection().0, now).is_none(), "it did");
    }

    #[test]
    fn what_a_member_was_given_ends_with_it_and_its_seat_is_free() {
        use std::io::Read;
        let (group, mut members) = members(2);
        let now = Instant::now();
        (0..9).for_each(|_| members[0].0.added());
        let (given, mut peer) = connection();
        assert!(members[0].0.give(given, now).is_none());
        let waker = Waker::new().unwrap();
        let Err(refused) = Member::join(&group, 1, &waker) else { panic!("two of one owner") };
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(members.pop());
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "it is closed");
        assert!(members[0].0.give(connection().0, now).is_some(), "nobody is there");
        let again = Member::join(&group, 1, &waker).unwrap();
        assert!(members[0].0.give(connection().0, now).is_none());
        assert!(again.take(now).is_some());
    }
}
