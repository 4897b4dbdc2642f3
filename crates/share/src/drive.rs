//! Waits for futures and conditions of a client, from any number of threads.
//!
//! One of the waiting threads, the driver, makes progress for all of them.
//!
//! Invariants:
//!
//! - A thread that makes progress while the driver sleeps leaves the descriptor armed, and wakes
//!   the threads whose results have arrived.
//! - When a thread stops waiting while others still wait, one of the others is the driver.

use std::convert::Infallible;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use dafs_base::{Waiting as Await, drive};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::parker::{Parker, Waiting};
use crate::{Entered, Forked, SharedClient, State};

/// The parameters of one wait.
struct Wait {
    parker: Arc<Parker>,
    checks_every_event: bool,
    deadline: Option<Instant>,
}

/// The state of a waiting thread. If there is no driver, this thread becomes the driver; otherwise
/// it sleeps.
struct WaitingThread<'s> {
    client: &'s SharedClient,
    state: &'s State,
    wait: Wait,
    role: Role<'s>,
}

/// A waiting thread whose wait has a deadline.
struct WithDeadline<'s>(WaitingThread<'s>);

/// The current role of a waiting thread.
enum Role<'s> {
    /// The thread has only checked its own condition so far.
    New,
    /// Another thread is the driver; the requests that this thread submitted were sent.
    Follower,
    /// This thread is the driver, and has been awake since `awake_since`.
    Driver { _place: DriverGuard<'s>, awake_since: Instant },
}

/// The error of a wait whose deadline has passed.
struct TimedOut;

impl SharedClient {
    /// Runs asynchronous work of this client to completion. Other threads can enter the client
    /// while the work waits. Must not be called inside [`SharedClient::enter`], which would exclude
    /// other threads.
    ///
    /// # Safety
    /// The rules of [`SharedClient::enter`] apply. Results that are not `Send` must be wrapped in
    /// [`Held`] by the work itself ([`Entered::hold`]). While the work waits, no other value of the
    /// client may be moved to another thread.
    ///
    /// [`Held`]: crate::Held
    ///
    /// # Errors
    /// [`Forked`] in a child process.
    pub unsafe fn run<T>(&self, work: impl AsyncFnOnce(&Entered<'_>) -> T) -> Result<T, Forked> {
        // SAFETY: the caller of this function makes the promises of `enter`.
        let entered = unsafe { self.enter()? };
        let mut waiting = self.waiting_thread(&entered.guard, None, false);
        let Ok(output) = drive(work(&entered), &mut waiting);
        Ok(output)
    }

    /// Waits until `look` returns a value. `look` is called whenever an event has arrived. Returns
    /// `None` if the timeout expires. Must not be called inside [`SharedClient::enter`].
    ///
    /// # Safety
    /// The rules of [`SharedClient::enter`] apply.
    ///
    /// # Errors
    /// [`Forked`] in a child process.
    pub unsafe fn wait_until<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut(&Entered<'_>) -> Option<T>,
    ) -> Result<Option<T>, Forked> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // SAFETY: the caller of this function makes the promises of `enter`.
        let entered = unsafe { self.enter()? };
        let looking = poll_fn(|_| match look(&entered) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        });
        let mut waiting = WithDeadline(self.waiting_thread(&entered.guard, deadline, true));
        Ok(drive(looking, &mut waiting).ok())
    }

    fn waiting_thread<'s>(
        &'s self,
        state: &'s State,
        deadline: Option<Instant>,
        checks_every_event: bool,
    ) -> WaitingThread<'s> {
        let wait = Wait { parker: Parker::own(), checks_every_event, deadline };
        WaitingThread { client: self, state, wait, role: Role::New }
    }

    /// Makes one round of progress for all threads.
    fn make_progress(&self, state: &State, wait: &Wait) {
        let is_contended = self.is_contended();
        let count = match is_contended {
            true => state.client.process_pending_events(),
            // Let the client wait, because it has the better rule for busy-polling.
            false => state.client.process_events(Some(wait.quick(is_contended))),
        };
        self.note(state, count);
    }

    /// Sleeps without the lock until an event arrives, the wakeup eventfd fires, or a timer
    /// expires.
    fn sleep(&self, state: &State, wait: &Wait) {
        if !state.client.arm() {
            return;
        }
        let silence = state.last_event.get().elapsed();
        let patience =
            state.client.min_answer_timeout().map(|patience| patience.saturating_sub(silence));
        let limits = [patience, state.client.next_timer(), Some(SLEEP_MAX)];
        let limit = wait.limit(limits.into_iter().flatten().min().unwrap_or(SLEEP_MAX));
        state.driver_sleeps.set(true);
        // The driver's own future may have been woken before it slept.
        if !wait.parker.take_wakeup() {
            self.unlocked(state, || self.await_descriptors(limit));
        }
        state.driver_sleeps.set(false);
        self.turn_at_once(state);
    }

    /// Processes messages that have arrived, without waiting. If no message has arrived, ends or
    /// reconnects sessions whose servers have been silent for too long.
    fn turn_at_once(&self, state: &State) -> usize {
        let count = state.client.process_events(Some(Duration::ZERO));
        self.note(state, count);
        let silence = state.last_event.get().elapsed();
        if count == 0
            && state.client.min_answer_timeout().is_some_and(|patience| silence >= patience)
        {
            state.client.end_silent_sessions(silence);
            wake_event_waiters(state);
        }
        count
    }

    pub(crate) fn process_events_for_loop(&self, state: &State) -> usize {
        state.begin_silence();
        let count = self.turn_at_once(state);
        state.end_silence();
        count
    }

    /// Sleeps until the driver wakes this thread, because its result has arrived or it must become
    /// the driver.
    fn follow(&self, state: &State, wait: &Wait) {
        let waiting =
            Waiting { parker: wait.parker.clone(), checks_every_event: wait.checks_every_event };
        state.waiting.borrow_mut().push(waiting);
        self.unlocked(state, || wait.parker.sleep(wait.deadline));
        state.waiting.borrow_mut().retain(|other| !Arc::ptr_eq(&other.parker, &wait.parker));
        wake_next_driver(state);
    }

    /// Makes progress while another thread is the driver.
    pub(crate) fn progress_beside_driver(&self, state: &State) {
        loop {
            let count = state.client.process_pending_events();
            self.note(state, count);
            if !state.driver_sleeps.get() || state.client.arm() {
                return;
            }
        }
    }

    /// Records that `count` events have arrived, and wakes the threads that check every event.
    fn note(&self, state: &State, count: usize) {
        if count == 0 {
            return;
        }
        state.last_event.set(Instant::now());
        wake_event_waiters(state);
        let driver = state.driver.borrow();
        let is_concerned = |driver: &Waiting| driver.checks_every_event || driver.parker.is_woken();
        if state.driver_sleeps.get() && driver.as_ref().is_some_and(is_concerned) {
            // Writing fails only if the eventfd is already set.
            let _ = rustix::io::write(&self.0.wakeup, &1u64.to_ne_bytes());
        }
    }

    /// Runs `rest` without the lock that this thread holds, and takes the lock again afterwards.
    fn unlocked<T>(&self, state: &State, rest: impl FnOnce() -> T) -> T {
        struct Back<'s>(&'s SharedClient, u32);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                let guard = self.0.0.state.lock();
                guard.depth.set(self.1);
                std::mem::forget(guard);
            }
        }
        let back = Back(self, state.depth.replace(0));
        // SAFETY: this thread holds the lock once, by the guard through which it reached `state`,
        // and `back` takes it again before anything that it protects is used.
        unsafe { self.0.state.force_unlock() };
        let output = rest();
        drop(back);
        output
    }

    fn await_descriptors(&self, limit: Duration) {
        let mut descriptors = [
            PollFd::new(&self.0.descriptor, PollFlags::IN),
            PollFd::new(&self.0.wakeup, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // A signal may end the wait early; the caller then checks again.
        let _ = rustix::event::poll(&mut descriptors, Some(&limit));
        if descriptors[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.0.wakeup, &mut [0; 8]);
        }
    }
}

impl WaitingThread<'_> {
    /// Waits in this thread's role, or changes its role. The caller checks its condition after each
    /// step.
    fn step(&mut self) {
        let (client, state) = (self.client, self.state);
        match &mut self.role {
            Role::Driver { awake_since, .. } => {
                let is_contended = client.is_contended();
                if awake_since.elapsed() >= self.wait.quick(is_contended) {
                    client.sleep(state, &self.wait);
                    *awake_since = Instant::now();
                    return;
                }
                if is_contended {
                    client.unlocked(state, std::hint::spin_loop);
                }
                client.make_progress(state, &self.wait);
            }
            Role::New | Role::Follower if state.driver.borrow().is_none() => {
                let (place, now) = (DriverGuard::begin(state, &self.wait), Instant::now());
                self.role = Role::Driver { _place: place, awake_since: now };
                client.make_progress(state, &self.wait);
            }
            Role::New => {
                // Sends the requests that this thread has submitted.
                client.progress_beside_driver(state);
                self.role = Role::Follower;
            }
            Role::Follower => {
                client.follow(state, &self.wait);
                self.role = Role::New;
            }
        }
    }
}

impl Await for WaitingThread<'_> {
    type Stopped = Infallible;

    fn wait(&mut self) -> ControlFlow<Infallible> {
        self.step();
        ControlFlow::Continue(())
    }

    fn waker(&self) -> Waker {
        Waker::from(self.wait.parker.clone())
    }
}

impl Await for WithDeadline<'_> {
    type Stopped = TimedOut;

    fn wait(&mut self) -> ControlFlow<TimedOut> {
        if self.0.wait.is_over() {
            return ControlFlow::Break(TimedOut);
        }
        self.0.step();
        ControlFlow::Continue(())
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }
}

impl State {
    /// Starts or continues to measure the server's silence. Several short waits count as one
    /// silence if a reply was expected throughout and the pauses between the waits were short.
    fn begin_silence(&self) {
        let (at, was_owed) = self.last_wait_end.get();
        if !was_owed || at.elapsed() > SILENCE_GAP_MAX {
            self.last_event.set(Instant::now());
        }
    }

    fn end_silence(&self) {
        self.last_wait_end.set((Instant::now(), self.client.min_answer_timeout().is_some()));
    }
}

impl Wait {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns the time for which the driver stays awake without events.
    fn quick(&self, is_contended: bool) -> Duration {
        self.limit(if is_contended { SPIN_MAX } else { QUICK_MAX })
    }

    /// Returns the time to wait: at most `longest`, and not beyond the deadline.
    fn limit(&self, longest: Duration) -> Duration {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(longest, |left| left.min(longest))
    }
}

/// Marks this thread as the driver until it is dropped.
struct DriverGuard<'s>(&'s State);

impl<'s> DriverGuard<'s> {
    fn begin(state: &'s State, wait: &Wait) -> Self {
        let driver =
            Waiting { parker: wait.parker.clone(), checks_every_event: wait.checks_every_event };
        state.driver.replace(Some(driver));
        state.begin_silence();
        Self(state)
    }
}

impl Drop for DriverGuard<'_> {
    fn drop(&mut self) {
        self.0.driver.replace(None);
        self.0.end_silence();
        wake_next_driver(self.0);
    }
}

/// If there is no driver, wakes a waiting thread so that it becomes the driver.
fn wake_next_driver(state: &State) {
    if state.driver.borrow().is_none()
        && let Some(next) = state.waiting.borrow().first()
    {
        next.parker.unpark();
    }
}

/// Wakes the threads that check every event.
fn wake_event_waiters(state: &State) {
    for waiting in state.waiting.borrow().iter().filter(|waiting| waiting.checks_every_event) {
        waiting.parker.unpark();
    }
}

/// The maximum time that a thread waits with the lock held, if no other thread has used the client.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// The time for which the driver busy-polls before it sleeps.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// The maximum pause between two waits that count as one silence.
const SILENCE_GAP_MAX: Duration = Duration::from_secs(1);
/// The interval at which an event loop makes a turn while a reply is expected.
pub(crate) const LOOP_TURN_PERIOD: Duration = Duration::from_millis(400);
/// The maximum sleep of the driver.
const SLEEP_MAX: Duration = Duration::from_secs(5);
