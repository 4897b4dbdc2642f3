//! Polls, spins and sleeps: the calls in which an interface makes progress.
//!
//! Invariant: the interface receives and sends only within these calls, which are made by its
//! owner's thread.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::thread::sched_yield;

use super::{Interface, Listener};
use crate::connection::{Alarm, Token};
use crate::wait::Gap;
use crate::{BreakReason, Completion, EndpointId, Event, Inbox, InboxSlot, Waker, sim};

impl<E> Interface<E> {
    /// Makes all posted work visible to the peers.
    #[inline]
    pub fn flush(&mut self) {
        while let Some(index) = self.dirty.pop() {
            let endpoint = self.slots[index as usize].clear_dirty();
            self.with(endpoint, |connection, context| connection.flush(context));
            self.asked = Some(endpoint);
        }
    }

    /// Receives, without waiting, pending data of connections over shared memory and over sockets.
    /// Returns the number of queued events.
    pub fn poll(&mut self) -> usize {
        // A thread that waited for the descriptor has been woken by now.
        if std::mem::take(&mut self.is_armed) {
            self.waker.get_up();
            self.waker.take();
        }
        self.flush();
        self.turn_sim();
        self.take_given();
        self.poll_hot();
        if self.events.len() == 0 {
            self.sleep(Some(Duration::ZERO));
            self.poll_hot();
        }
        self.events.len()
    }

    /// Waits until `threshold` events are queued, any event other than a completion is queued, a
    /// [`Waker`] ends the wait, or `timeout` has passed. Returns the number of queued events.
    pub fn wait(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        let count = self.wait_for(threshold, timeout);
        self.waker.take();
        count
    }

    fn wait_for(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        self.has_slept = false;
        self.is_armed = false;
        let mut is_patient = std::mem::take(&mut self.is_patient);
        self.is_eager &= !is_patient;
        self.flush();
        if let Some(network) = self.config.sim.clone() {
            return self.wait_sim(&network, threshold, timeout);
        }
        self.poll_hot();
        if self.satisfied(threshold) || !is_patient && self.spin_unclocked(threshold) {
            self.pass_sockets_by();
            return self.events.len();
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if !is_patient && self.spin(threshold, deadline) {
                self.pass_sockets_by();
                break;
            }
            let alarm = self.waiter.alarm(self.missing(threshold));
            let early = alarm.early && !is_patient;
            if self.doze(threshold, Alarm { early, ..alarm }, deadline) {
                break;
            }
            is_patient = false;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.heat_all();
                self.poll_hot();
                return self.events.len();
            }
        }
        self.events.len()
    }

    /// Makes the next wait sleep without spinning, unless enough events are queued. Call this if
    /// the next event will take longer than spinning is worth.
    #[inline]
    pub fn be_patient(&mut self) {
        self.is_patient = true;
    }

    /// Announces that the reply to the latest posted request is the only pending one. The next wait
    /// then polls the socket for it, if `is_soon` is true or the policy allows long spins. Call
    /// this again for each such request.
    #[inline]
    pub fn await_alone(&mut self, is_soon: bool) {
        self.is_eager |= is_soon || self.config.wait.is_long();
    }

    /// Returns true if the most recent wait slept and so may have taken a long time; a wait without
    /// sleep is short.
    #[must_use]
    #[inline]
    pub fn has_slept(&self) -> bool {
        self.has_slept
    }

    /// Returns a handle by which another thread can end this interface's waits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns true if a [`Waker`] was used since the latest wait, so that the next wait
    /// would end immediately.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.waker.is_woken()
    }

    /// Clears a wakeup as [`Interface::wait`] does. For an owner that polls and does not wait: a
    /// wakeup that is not cleared would end every later wait immediately.
    pub fn take_wake_up(&mut self) {
        self.waker.take();
    }

    /// Returns the number of queued events.
    #[must_use]
    #[inline]
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Removes and returns the oldest queued event.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Returns a reference to the oldest event if that event is a completion. Moving a completion
    /// out of the queue would be slower: the processor would load it in words of other sizes than
    /// those that were stored, and such a load waits for all earlier stores.
    #[must_use]
    #[inline(always)]
    pub fn first_completion(&self) -> Option<&Completion> {
        self.events.first_completion()
    }

    /// Removes the completion that [`Interface::first_completion`] returned.
    #[inline(always)]
    pub fn pass_completion(&mut self) {
        if self.events.first_completion().is_some() {
            self.events.pass_completion();
        }
    }

    /// Removes the oldest event if it is the completion of a receive of `inbox`, and returns the
    /// slot that holds the message. Leaves any other event in the queue.
    #[inline(always)]
    pub fn pass_message(&mut self, inbox: &mut Inbox) -> Option<InboxSlot> {
        let slot = inbox.ended(self.events.first_completion()?)?;
        self.events.pass_completion();
        Some(slot)
    }

    /// Returns a descriptor for epoll. After [`Interface::arm`] has returned true, it becomes
    /// readable when [`Interface::poll`] would make progress or a [`Waker`] was used.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    /// Prepares for waiting on [`Interface::as_fd`]. Returns false if events are queued, messages
    /// have already arrived, or a [`Waker`] was used; the caller must then poll instead of waiting.
    pub fn arm(&mut self) -> bool {
        self.flush();
        self.end_gathering();
        let alarm = Alarm { threshold: 1, early: false };
        if self.events.len() > 0 || !self.arm_hot(alarm) {
            return false;
        }
        self.is_armed = true;
        self.waker.lie_down()
    }

    /// Processes arrivals on the simulated network: connection requests, replies to connects, then
    /// messages. No descriptor reports these arrivals.
    #[inline]
    pub(super) fn turn_sim(&mut self) {
        if self.config.sim.is_none() {
            return;
        }
        for index in 0..self.listeners.len() {
            if matches!(self.listeners[index], Some(Listener::Sim(_))) {
                self.accept_ready(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        self.take_given();
        let mut unfinished = std::mem::take(&mut self.unfinished);
        unfinished.retain(|endpoint| self.is_unfinished(*endpoint));
        self.unfinished = unfinished.clone();
        for endpoint in unfinished {
            self.start(endpoint);
        }
        self.poll_hot();
        self.flush();
    }

    /// Waits in virtual time: advances the network's clock instead of sleeping. Returns early
    /// when the network has nothing in flight.
    fn wait_sim(
        &mut self,
        network: &sim::Network,
        threshold: usize,
        timeout: Option<Duration>,
    ) -> usize {
        let until_ns = timeout.map(|timeout| {
            let span_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            network.now_ns().saturating_add(span_ns)
        });
        loop {
            self.turn_sim();
            if self.satisfied(threshold) {
                break;
            }
            let Some(next_ns) = network.next_ns() else { break };
            if let Some(until_ns) = until_ns
                && next_ns > until_ns
            {
                network.advance_to(until_ns);
                break;
            }
            network.advance();
        }
        self.events.len()
    }

    fn missing(&self, threshold: usize) -> usize {
        threshold.saturating_sub(self.events.len()).max(1)
    }

    #[inline]
    pub(super) fn satisfied(&self, threshold: usize) -> bool {
        self.events.len() >= threshold.max(1) || self.events.has_others() || self.waker.is_woken()
    }

    /// Returns true if another thread has woken this interface or given it connections. Takes over
    /// such connections.
    #[inline]
    fn is_rung(&mut self) -> bool {
        let is_rung = self.waker.is_rung();
        if is_rung {
            self.take_given();
        }
        is_rung
    }

    /// Makes the first polls of a wait without reading the clock, which would take longer than the
    /// polls. A reply over shared memory usually arrives during them. Returns true if the wait can
    /// end.
    #[inline]
    fn spin_unclocked(&mut self, threshold: usize) -> bool {
        let is_there = !self.hot.is_empty()
            && self.waiter.is_at_ease()
            && matches!(self.spin_a_while(threshold), Spun::Satisfied);
        if is_there {
            self.waiter.paid();
        }
        is_there
    }

    /// Makes the polls between two readings of the clock.
    #[inline]
    fn spin_a_while(&mut self, threshold: usize) -> Spun {
        if self.hot.is_empty() {
            return self.spin_on_socket(threshold);
        }
        let mut spun = Spun::Vain;
        for _ in 0..SPINS_PER_CLOCK {
            let moved = self.poll_hot();
            if (moved || self.is_rung()) && self.satisfied(threshold) {
                return Spun::Satisfied;
            }
            if moved {
                spun = Spun::Moved;
            }
            std::hint::spin_loop();
        }
        spun
    }

    /// Polls once the socket from which a reply is expected, because the system call takes longer
    /// than reading the clock. An interface that serves many clients polls all its sockets.
    fn spin_on_socket(&mut self, threshold: usize) -> Spun {
        let mut moved = false;
        if self.serves_many() {
            moved = self.sleep(Some(Duration::ZERO));
        } else if let Some(endpoint) = self.asked {
            self.with(endpoint, |connection, context| {
                moved = connection.progress(context)?;
                Ok(())
            });
        }
        if self.satisfied(threshold) {
            Spun::Satisfied
        } else if moved {
            Spun::Moved
        } else {
            if let Some((connection, mut context)) = self.asked.and_then(|asked| self.lend(asked)) {
                connection.idle(&mut context);
            }
            Spun::Vain
        }
    }

    /// Returns true if other processes or threads depend on this interface: it listens, or it
    /// shares connections with other interfaces.
    #[inline]
    fn serves_many(&self) -> bool {
        !self.listeners.is_empty() || self.member.is_some()
    }

    /// Returns true if polling sockets for a while is better than sleeping. A server polls unless
    /// another thread wants the core, because requests arrive together and the client has to wait
    /// while a sleeping server wakes up. A client that waits for several replies does not poll,
    /// because the other replies arrive while it processes the first.
    fn may_ask(&mut self, now: Instant) -> bool {
        if self.serves_many() {
            return self.waiter.is_alone(now);
        }
        std::mem::take(&mut self.is_eager)
            || self.asked.is_some_and(|endpoint| {
                self.lend(endpoint).is_some_and(|(connection, _)| connection.awaits_one())
            })
    }

    /// Spins for the time that the statistics suggest, or for a message that a peer has announced.
    /// Returns true if the wait can end.
    fn spin(&mut self, threshold: usize, deadline: Option<Instant>) -> bool {
        let forewarned = self.waiter.forewarned();
        let start = Instant::now();
        if self.hot.is_empty() && !self.may_ask(start) {
            return false;
        }
        let budget = forewarned.unwrap_or_else(|| self.waiter.budget(start));
        if budget.is_zero() {
            return false;
        }
        match self.spin_for(threshold, start, budget, deadline) {
            Spun::Satisfied if forewarned.is_none() => self.waiter.paid(),
            Spun::Vain if forewarned.is_none() => self.waiter.vain(),
            Spun::Satisfied | Spun::Vain | Spun::Moved => {}
        }
        self.satisfied(threshold)
    }

    /// Spins until the wait can end, `budget` is used up without success, the deadline has passed,
    /// or another thread takes the core.
    fn spin_for(
        &mut self,
        threshold: usize,
        start: Instant,
        budget: Duration,
        deadline: Option<Instant>,
    ) -> Spun {
        self.waiter.begin(start);
        let mut last = start;
        let mut until = start + budget;
        let mut limit = start + budget * SPIN_STRETCH_MAX;
        loop {
            let spun = self.spin_a_while(threshold);
            if matches!(spun, Spun::Satisfied) {
                return spun;
            }
            let now = Instant::now();
            match self.waiter.judge(now - last, now) {
                Gap::None => {}
                Gap::Stolen(gap) => (until, limit) = (until + gap, limit + gap),
                Gap::Preempted => return Spun::Moved,
            }
            if matches!(spun, Spun::Moved) {
                until = (now + budget).min(limit);
            }
            if now >= until {
                return Spun::Vain;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Spun::Moved;
            }
            let spun_for = budget.saturating_sub(until - now);
            let patience = if self.hot.is_empty() { YIELD_AFTER_ASKING } else { YIELD_AFTER };
            if spun_for >= patience && self.waiter.is_alone(now) {
                sched_yield();
            }
            last = now;
        }
    }

    /// Arms all connections and sleeps until a descriptor is ready. Returns true if the wait can
    /// end.
    fn doze(&mut self, threshold: usize, alarm: Alarm, deadline: Option<Instant>) -> bool {
        self.has_slept = true;
        let (before, missing) = (self.events.len(), alarm.threshold);
        let mut woken = false;
        if self.arm_hot(alarm) {
            let mut timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if let Some(first) = self.first_deadline() {
                let left = first.saturating_duration_since(Instant::now());
                timeout = Some(timeout.map_or(left, |t| t.min(left)));
            }
            // Waking a server costs its clients time, so the length of its sleeps decides how long
            // it spins.
            let begun = self.serves_many().then(Instant::now);
            self.sleep_through(missing, timeout);
            woken = !self.hot.is_empty();
            if let Some(begun) = begun {
                self.waiter.slept(begun.elapsed());
            }
        } else {
            self.pass_sockets_by();
        }
        if missing > 1 {
            self.heat_all();
        }
        self.poll_hot();
        if woken && self.events.len() == before {
            self.waiter.forewarn();
        }
        self.satisfied(threshold)
    }

    /// Sleeps until a descriptor is ready. If some of the missing replies have begun to arrive, the
    /// first bytes of the other replies do not end the sleep.
    fn sleep_through(&mut self, missing: usize, timeout: Option<Duration>) {
        let gathers = self.asked.filter(|endpoint| {
            self.lend(*endpoint).is_some_and(|(connection, _)| connection.gather(missing))
        });
        let Some(endpoint) = gathers else {
            self.end_gathering();
            self.look(timeout);
            return;
        };
        if self.gathering != Some(endpoint) {
            self.end_gathering();
            self.gathering = Some(endpoint);
        }
        let timeout = timeout.map_or(GATHERING_MAX, |timeout| timeout.min(GATHERING_MAX));
        self.look(Some(timeout));
        self.with(endpoint, |connection, context| connection.gathered(context));
    }

    /// Makes the gathering connection's descriptor report every byte again. This is needed before
    /// the descriptors are used for anything else.
    fn end_gathering(&mut self) {
        let Some(endpoint) = self.gathering.take() else { return };
        if let Some((connection, _)) = self.lend(endpoint) {
            connection.end_gathering();
        }
    }

    /// Counts a wait in which the interface polled only memory, and polls its sockets after
    /// [`TURNS_PER_SOCKET_LOOK`] such waits.
    fn pass_sockets_by(&mut self) {
        self.turns_without_sockets += 1;
        if self.turns_without_sockets >= TURNS_PER_SOCKET_LOOK {
            self.sleep(Some(Duration::ZERO));
        }
    }

    /// Sleeps until any descriptor is ready and handles all ready descriptors. Returns true if one
    /// was ready.
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        self.end_gathering();
        self.look(timeout)
    }

    /// Makes one epoll call and handles the ready descriptors. Returns true if one was ready.
    fn look(&mut self, timeout: Option<Duration>) -> bool {
        self.turns_without_sockets = 0;
        let mut ready = std::mem::take(&mut self.ready);
        let sleeps = is_sleep(timeout) && self.waker.lie_down();
        let timeout = if sleeps { timeout } else { Some(Duration::ZERO) };
        if let Err(error) = self.poller.wait(&mut ready, timeout) {
            self.on_deaf(&error, timeout);
        }
        if sleeps {
            self.waker.get_up();
        }
        let is_any = !ready.is_empty();
        for (token, readiness) in ready.drain(..) {
            match token {
                Token::Listener(index) => self.accept_ready(index),
                // The readiness of this descriptor ended the sleep; `wait` clears it.
                Token::Waker => {}
                Token::Endpoint { endpoint, which } => {
                    self.with(endpoint, |c, context| c.ready(context, which, readiness));
                    self.after_event(endpoint);
                }
            }
        }
        self.ready = ready;
        self.take_given();
        self.end_rest();
        self.expire();
        self.flush();
        is_any
    }

    /// Breaks every connection, because the epoll descriptor no longer works: the application has
    /// closed it. Also pauses, so that a caller that continues to wait does not loop at full speed.
    #[cold]
    fn on_deaf(&mut self, error: &std::io::Error, timeout: Option<Duration>) {
        for index in 0..self.slots.len() {
            let endpoint = self.id_of(u32::try_from(index).unwrap_or(u32::MAX));
            let text = format!("cannot wait for events: {error}");
            self.break_endpoint(endpoint, BreakReason::System(text.into()));
        }
        if !self.events.has_others() {
            std::thread::sleep(timeout.map_or(DEAF_PAUSE, |timeout| timeout.min(DEAF_PAUSE)));
        }
    }

    /// Polls every hot endpoint once. Returns true if any made progress.
    #[inline]
    pub(super) fn poll_hot(&mut self) -> bool {
        let mut moved = false;
        let mut position = 0;
        while let Some(index) = self.hot.get(position).copied() {
            let endpoint = self.id_of(index);
            let before = self.hot.len();
            let mut here = false;
            self.with(endpoint, |connection, context| {
                here = connection.progress(context)?;
                Ok(())
            });
            moved |= here;
            // A broken endpoint has left the list, so another one now has its position.
            if self.hot.len() == before && !self.cool(position, here) {
                position += 1;
            }
        }
        moved
    }

    /// Stops polling an endpoint that made no progress for many polls while others did. Its peer
    /// then wakes this interface when it sends. Returns true if the endpoint left the list.
    #[inline]
    fn cool(&mut self, position: usize, moved: bool) -> bool {
        let slot = &mut self.slots[self.hot[position] as usize];
        if moved {
            slot.vain_polls = 0;
            return false;
        }
        slot.vain_polls += 1;
        if slot.vain_polls < VAIN_POLLS_MAX {
            return false;
        }
        slot.vain_polls = 0;
        let Some(connection) = slot.connection.as_mut() else { return false };
        // The only hot endpoint stays in the list, because spinning is intended for it.
        if self.hot.len() == 1 {
            return false;
        }
        if !connection.arm(self.waiter.alarm(1)) {
            connection.disarm();
            return false;
        }
        slot.hot = false;
        self.hot.swap_remove(position);
        true
    }

    pub(super) fn arm_hot(&mut self, alarm: Alarm) -> bool {
        while let Some(index) = self.hot.last().copied() {
            let slot = &mut self.slots[index as usize];
            if let Some(connection) = slot.connection.as_mut()
                && !connection.arm(alarm)
            {
                connection.disarm();
                return false;
            }
            slot.hot = false;
            self.hot.pop();
        }
        true
    }

    pub(super) fn heat(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.hot {
            return;
        }
        if let Some(connection) = slot.connection.as_mut()
            && connection.is_polled()
            && connection.is_established()
        {
            connection.disarm();
            slot.hot = true;
            slot.vain_polls = 0;
            self.hot.push(index);
        }
    }

    pub(super) fn heat_all(&mut self) {
        for index in 0..self.slots.len() {
            self.heat(u32::try_from(index).unwrap_or(u32::MAX));
        }
    }

    #[inline]
    pub(super) fn mark_dirty(&mut self, endpoint: EndpointId) {
        let slot = &mut self.slots[endpoint.index()];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(endpoint.slot());
        }
        if !slot.hot {
            self.heat(endpoint.slot());
        }
    }
}

/// Returns true unless the timeout is zero. A call with a zero timeout does not sleep, so other
/// threads need not wake it.
#[inline]
fn is_sleep(timeout: Option<Duration>) -> bool {
    timeout != Some(Duration::ZERO)
}

/// The result of a number of polls.
enum Spun {
    /// The wait can end.
    Satisfied,
    /// Some data arrived, but not enough to end the wait, or the time was used up.
    Moved,
    Vain,
}

/// The number of polls between two readings of the clock.
const SPINS_PER_CLOCK: u32 = 64;

/// The maximum length of one spin, in multiples of its budget, while messages arrive but do not end
/// it. Without this limit a peer could make this thread poll its memory for ever.
const SPIN_STRETCH_MAX: u32 = 16;

/// The time after which a spinning interface yields the processor, because the thread that it waits
/// for may need the same core.
const YIELD_AFTER: Duration = Duration::from_micros(4);
/// The time after which an interface that polls a socket yields the processor. It is longer than
/// [`YIELD_AFTER`], because an earlier yield would not make a reply arrive sooner.
const YIELD_AFTER_ASKING: Duration = Duration::from_micros(12);

/// The number of waits that may end by polling memory alone before sockets are polled, so that busy
/// shared memory never starves the sockets.
const TURNS_PER_SOCKET_LOOK: u32 = 32;

/// The maximum sleep while a descriptor reports only larger amounts of data. If the peer has sent
/// less than expected, its bytes wait at most this long.
const GATHERING_MAX: Duration = Duration::from_millis(2);

/// The maximum pause of an interface whose epoll descriptor does not work.
const DEAF_PAUSE: Duration = Duration::from_millis(100);

/// The number of polls without progress after which a peer is not expected to send soon. A busy
/// interface makes that many polls in some milliseconds.
const VAIN_POLLS_MAX: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Poller;
    use crate::{Address, Domain, EndpointConfig, InterfaceConfig};

    #[test]
    fn who_hears_nothing_any_more_ends_its_connections_and_says_so() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let config = EndpointConfig::default();
        let endpoint = interface.connect(&address, Domain(0), &config, b"").unwrap();
        interface.poller = Poller::deaf();
        assert_eq!(interface.wait(1, None), 1);
        let Some(Event::Broken { endpoint: broken, reason }) = interface.next_event() else {
            panic!("nothing is said")
        };
        assert_eq!(broken, endpoint);
        assert!(reason.to_string().contains("cannot wait for events"), "{reason}");
        interface.release(endpoint);
        assert_eq!(interface.wait(1, Some(Duration::from_millis(1))), 0);
    }

    /// Returns an interface with one shared-memory connection to poll, and the peer that must
    /// serve it.
    fn spinning(config: InterfaceConfig) -> (Interface, Interface) {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Shm(folder.path().join("socket"));
        let mut peer = Interface::new(InterfaceConfig::default()).unwrap();
        peer.listen(&address).unwrap();
        let mut spinning = Interface::new(config).unwrap();
        let config = EndpointConfig::default();
        spinning.connect(&address, Domain(0), &config, b"").unwrap();
        while spinning.hot.is_empty() {
            spinning.poll();
            peer.poll();
            if let Some(Event::ConnectionRequest { pending, .. }) = peer.next_event() {
                peer.accept(pending, Domain(0), &config, b"");
            }
        }
        while spinning.next_event().is_some() {}
        (spinning, peer)
    }

    #[test]
    fn who_spins_takes_in_what_others_have_given() {
        let group = Some(crate::AcceptGroup::new());
        let config = |owner| InterfaceConfig { owner, group: group.clone(), ..Default::default() };
        let mut giver = Interface::new(config(0)).unwrap();
        let listener = giver.listen(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let Some(Address::Tcp(to)) = giver.listener_address(listener) else { panic!() };
        let (mut spinning, _peer) = spinning(config(1));
        let _clients = [(); 4].map(|()| std::net::TcpStream::connect(to).unwrap());
        while giver.endpoint_count() < 2 {
            giver.poll();
        }
        assert_eq!(spinning.endpoint_count(), 1);
        assert!(!matches!(spinning.spin_a_while(1), Spun::Satisfied), "that is no event");
        assert!(spinning.endpoint_count() > 1);
        assert!(!spinning.waker.is_rung());
    }
}
