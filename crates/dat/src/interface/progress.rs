//! Making progress: polling, spinning, sleeping.
//!
//! Invariant: nothing is taken in and nothing sent but inside these calls, which the
//! owner of the interface makes.

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

    /// Takes in what has arrived for connections that show it in memory, and what
    /// sockets hold, without waiting. Returns the number of events queued.
    pub fn poll(&mut self) -> usize {
        // Whoever waited for the descriptor was woken by now.
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

    /// Waits until `threshold` events are queued, any event other than a completion
    /// is, or the time is over. Returns the number queued.
    /// A [`Waker`] ends it early.
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

    /// What is awaited next will take longer than it pays to spin: the next wait begins by
    /// sleeping, unless it is there by then.
    #[inline]
    pub fn be_patient(&mut self) {
        self.is_patient = true;
    }

    /// The answer to what was posted last is all that is awaited. If it will be here soon, or
    /// spins last longer than usual, a socket is worth asking for it. Said anew for each.
    #[inline]
    pub fn await_alone(&mut self, is_soon: bool) {
        self.is_eager |= is_soon || self.config.wait.is_long();
    }

    /// Whether the last wait slept, and so may have lasted. Spins are short.
    #[must_use]
    #[inline]
    pub fn has_slept(&self) -> bool {
        self.has_slept
    }

    /// Something that ends this interface's waits from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Whether the next wait would end at once, since somebody has woken it.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.waker.is_woken()
    }

    /// Takes a wake-up, as a wait does: for who polls, and keeps from polling when there is none.
    pub fn take_wake_up(&mut self) {
        self.waker.take();
    }

    /// Events queued.
    #[must_use]
    #[inline]
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The next event, oldest first.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The next event, if it is a completion, where it is: one that is moved about is loaded in
    /// other words than it was stored in, and waits for all that is stored.
    #[must_use]
    #[inline(always)]
    pub fn first_completion(&self) -> Option<&Completion> {
        self.events.first_completion()
    }

    /// Takes the completion away that [`Interface::first_completion`] shows.
    #[inline(always)]
    pub fn pass_completion(&mut self) {
        if self.events.first_completion().is_some() {
            self.events.pass_completion();
        }
    }

    /// The same, if it is a receive of this inbox: the slot that the message is in. Otherwise
    /// the completion stays.
    #[inline(always)]
    pub fn pass_message(&mut self, inbox: &mut Inbox) -> Option<InboxSlot> {
        let slot = inbox.ended(self.events.first_completion()?)?;
        self.events.pass_completion();
        Some(slot)
    }

    /// A descriptor that becomes readable when [`Interface::poll`] would find
    /// something or a [`Waker`] was used, once [`Interface::arm`] said that it may be waited for.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    /// Prepares for waiting on [`Interface::as_fd`]. False if events are queued, work has
    /// arrived already, or a [`Waker`] was used: poll instead.
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

    /// Takes in what the simulated network has brought: connection requests, answers
    /// to connects, then work. No descriptor tells of these.
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

    /// Waits in virtual time: moves the network's clock instead of sleeping, and
    /// returns early when the network is quiet.
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

    /// Whether somebody has woken this interface, or called it: then it has answered.
    #[inline]
    fn is_rung(&mut self) -> bool {
        let is_rung = self.waker.is_rung();
        if is_rung {
            self.take_given();
        }
        is_rung
    }

    /// The first polls of a wait, which an answer over shared memory mostly ends: shorter
    /// than two looks at the clock are worth. True when satisfied.
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

    /// As many polls as go between two looks at the clock.
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

    /// One look at the socket that a message is awaited from: a system call takes longer
    /// than a look at the clock. Who serves many looks at all of them.
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

    /// Whether others rely on this interface: it listens, shares connections, or works together
    /// with other threads.
    #[inline]
    fn serves_many(&self) -> bool {
        !self.listeners.is_empty() || self.member.is_some()
    }

    /// Whether asking sockets beats sleeping, for a while. Who serves many asks, unless another
    /// thread wants the core: requests come together, and a peer whose server sleeps pays for
    /// waking it. Who awaits several answers does not: the others would come while the first
    /// is dealt with.
    fn may_ask(&mut self, now: Instant) -> bool {
        if self.serves_many() {
            return self.waiter.is_alone(now);
        }
        std::mem::take(&mut self.is_eager)
            || self.asked.is_some_and(|endpoint| {
                self.lend(endpoint).is_some_and(|(connection, _)| connection.awaits_one())
            })
    }

    /// Spins within the learned budget, or for what a peer has announced. True when
    /// satisfied.
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

    /// Spins until satisfied, or in vain, or until something else ends it.
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

    /// Arms everything and sleeps until a descriptor is ready. True when the wait is over.
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
            // Who serves many is woken at others' cost, and may stay awake for them.
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

    /// Sleeps until a descriptor is ready. Where the answers that are missing have begun
    /// to come, the first bytes of the rest are not worth waking for.
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

    /// Whoever looks at descriptors for anything else is to hear of every byte again.
    fn end_gathering(&mut self) {
        let Some(endpoint) = self.gathering.take() else { return };
        if let Some((connection, _)) = self.lend(endpoint) {
            connection.end_gathering();
        }
    }

    /// Memory kept us from looking at sockets; but not every time.
    fn pass_sockets_by(&mut self) {
        self.turns_without_sockets += 1;
        if self.turns_without_sockets >= TURNS_PER_SOCKET_LOOK {
            self.sleep(Some(Duration::ZERO));
        }
    }

    /// Sleeps until any descriptor is ready, and sees to those that are. True if one was.
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        self.end_gathering();
        self.look(timeout)
    }

    /// One epoll call and what follows from it. True if anything was ready.
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
                // Ended the wait by being there; `wait` takes it.
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

    /// Nothing is heard of sockets any more, because somebody has closed the descriptor that
    /// tells of them. Every connection ends and says so; whoever waits goes on, and not in vain
    /// at full speed.
    #[cold]
    fn on_deaf(&mut self, error: &std::io::Error, timeout: Option<Duration>) {
        for index in 0..self.slots.len() {
            let endpoint = self.id_of(u32::try_from(index).unwrap_or(u32::MAX));
            let reason = format!("cannot wait for events: {error}");
            self.break_endpoint(endpoint, BreakReason::System(reason));
        }
        if !self.events.has_others() {
            std::thread::sleep(timeout.map_or(DEAF_PAUSE, |timeout| timeout.min(DEAF_PAUSE)));
        }
    }

    /// Polls every hot endpoint once. True if anything moved.
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
            // A broken endpoint has left the list; its place holds the next one.
            if self.hot.len() == before && !self.cool(position, here) {
                position += 1;
            }
        }
        moved
    }

    /// Takes an endpoint out of the list that has been polled in vain for long while
    /// others are busy: its peer wakes us when it has something. True if it is out.
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
        // A single endpoint is what spinning is for.
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

/// Whether it is more than a look: one is nothing that others would have to know of.
#[inline]
fn is_sleep(timeout: Option<Duration>) -> bool {
    timeout != Some(Duration::ZERO)
}

/// What some polls came to.
enum Spun {
    /// The wait is over.
    Satisfied,
    /// Neither: something has come, but not enough, or there was no time.
    Moved,
    Vain,
}

/// Empty polls between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 64;

/// Budgets that one spin may take together while something moves but nothing ends it:
/// a peer could keep us at its memory for ever.
const SPIN_STRETCH_MAX: u32 = 16;

/// What lasts longer may be waiting for the core we spin on.
const YIELD_AFTER: Duration = Duration::from_micros(4);
/// The same where a socket is asked, through which no answer comes sooner than this.
const YIELD_AFTER_ASKING: Duration = Duration::from_micros(12);

/// Turns that memory alone took up before sockets get a look, so that busy shared
/// memory never starves them.
const TURNS_PER_SOCKET_LOOK: u32 = 32;

/// Longest sleep for much at once: what the peer has said instead, if it is less, waits
/// so long at most.
const GATHERING_MAX: Duration = Duration::from_millis(2);

/// Longest pause of an interface that hears nothing.
const DEAF_PAUSE: Duration = Duration::from_millis(100);

/// Polls in vain after which a peer is no longer expected to say something soon: some
/// milliseconds of a busy interface.
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

    /// An interface that has somebody's shared memory to look at, whose owner is to serve it.
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
