//! Waiting: futures of the client's, and conditions, by any number of threads.
//!
//! Invariant: whoever makes progress while the turner sleeps leaves the descriptor armed, and
//! calls whom it concerns; whoever stops waiting leaves a turner behind if others wait.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::seat::{Seat, Waiting};
use crate::{Entered, Forked, SharedClient, State};

/// One wait.
struct Wait {
    seat: Arc<Seat>,
    hears_all: bool,
    deadline: Option<Instant>,
}

impl SharedClient {
    /// Runs what is asynchronous of this client's to its end. Others come and go meanwhile. Not to
    /// be called by a thread that is inside, which would keep them out.
    ///
    /// # Safety
    /// As [`SharedClient::enter`]; what it gives that is not `Send` it makes [`Held`] by itself
    /// ([`Entered::hold`]), and nothing of it goes to another thread while it waits.
    ///
    /// [`Held`]: crate::Held
    ///
    /// # Errors
    /// [`Forked`] in a child process.
    pub unsafe fn run<T>(&self, work: impl AsyncFnOnce(&Entered<'_>) -> T) -> Result<T, Forked> {
        // SAFETY: the caller's promise.
        let entered = unsafe { self.enter()? };
        let mut future = pin!(work(&entered));
        let mut poll = |context: &mut Context<'_>| future.as_mut().poll(context);
        loop {
            // Without a deadline it always ends with the output.
            if let Some(output) = self.drive(&entered.guard, None, false, &mut poll) {
                return Ok(output);
            }
        }
    }

    /// Waits until `look`, which is asked whenever anything has come in, finds something; `None` if
    /// the time is over before. Not to be called by a thread that is inside.
    ///
    /// # Safety
    /// As [`SharedClient::enter`].
    ///
    /// # Errors
    /// [`Forked`] in a child process.
    pub unsafe fn wait_until<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut(&Entered<'_>) -> Option<T>,
    ) -> Result<Option<T>, Forked> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // SAFETY: the caller's promise.
        let entered = unsafe { self.enter()? };
        let mut poll = |_: &mut Context<'_>| match look(&entered) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        };
        Ok(self.drive(&entered.guard, deadline, true, &mut poll))
    }

    fn drive<T>(
        &self,
        state: &State,
        deadline: Option<Instant>,
        hears_all: bool,
        poll: &mut dyn FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let wait = Wait { seat: Seat::own(), hears_all, deadline };
        let waker = Waker::from(wait.seat.clone());
        let mut context = Context::from_waker(&waker);
        let mut look = || match poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        };
        loop {
            if let Some(output) = look() {
                return Some(output);
            }
            if wait.is_over() {
                return None;
            }
            if state.turner.borrow().is_none() {
                let turning = Turning::begin(state, &wait);
                let end = self.turn_for(state, &wait, &mut look);
                drop(turning);
                return end;
            }
            // What was submitted goes out.
            self.stir(state);
            if let Some(output) = look() {
                return Some(output);
            }
            self.follow(state, &wait);
        }
    }

    /// Makes progress for everybody until this thread's own wait is over.
    fn turn_for<T>(
        &self,
        state: &State,
        wait: &Wait,
        look: &mut dyn FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            let began = Instant::now();
            loop {
                let is_crowded = self.is_crowded();
                let quick = wait.limit(if is_crowded { SPIN_MAX } else { QUICK_MAX });
                let count = match is_crowded {
                    true => state.client.progress(),
                    // Waits as the client does, which knows best when to spin.
                    false => state.client.turn(Some(quick)),
                };
                self.note(state, count);
                if let Some(output) = look() {
                    return Some(output);
                }
                if wait.is_over() {
                    return None;
                }
                if began.elapsed() >= quick {
                    break;
                }
                if is_crowded {
                    self.outside(state, std::hint::spin_loop);
                }
            }
            self.sleep(state, wait);
        }
    }

    /// Sleeps without the lock until something comes, or somebody rings, or it is time to look.
    fn sleep(&self, state: &State, wait: &Wait) {
        if !state.client.arm() {
            return;
        }
        let silence = state.heard.get().elapsed();
        let patience = state.client.patience().map(|patience| patience.saturating_sub(silence));
        let limits = [patience, state.client.until_timer(), Some(SLEEP_MAX)];
        let limit = wait.limit(limits.into_iter().flatten().min().unwrap_or(SLEEP_MAX));
        state.turner_sleeps.set(true);
        // Called before it slept: there may be something to look at.
        if !wait.seat.take_call() {
            self.outside(state, || self.await_descriptors(limit));
        }
        state.turner_sleeps.set(false);
        self.turn_at_once(state);
    }

    /// Takes what is there, or gives up who has been silent for too long.
    fn turn_at_once(&self, state: &State) -> usize {
        let count = state.client.turn(Some(Duration::ZERO));
        self.note(state, count);
        let silence = state.heard.get().elapsed();
        if count == 0 && state.client.patience().is_some_and(|patience| silence >= patience) {
            state.client.give_up_silent(silence);
            call_hearers(state);
        }
        count
    }

    pub(crate) fn turn_for_loop(&self, state: &State) -> usize {
        state.begin_to_listen();
        let count = self.turn_at_once(state);
        state.end_to_listen();
        count
    }

    /// Sleeps until the turner calls: what this thread waits for is there, or the place of the
    /// turner is free.
    fn follow(&self, state: &State, wait: &Wait) {
        let waiting = Waiting { seat: wait.seat.clone(), hears_all: wait.hears_all };
        state.waiting.borrow_mut().push(waiting);
        self.outside(state, || wait.seat.sleep(wait.deadline));
        state.waiting.borrow_mut().retain(|other| !Arc::ptr_eq(&other.seat, &wait.seat));
        call_heir(state);
    }

    /// Makes progress beside a turner.
    pub(crate) fn stir(&self, state: &State) {
        loop {
            let count = state.client.progress();
            self.note(state, count);
            if !state.turner_sleeps.get() || state.client.arm() {
                return;
            }
        }
    }

    /// So many events have come: whoever wants to look at all of them does.
    fn note(&self, state: &State, count: usize) {
        if count == 0 {
            return;
        }
        state.heard.set(Instant::now());
        call_hearers(state);
        let turner = state.turner.borrow();
        let is_concerned = |turner: &Waiting| turner.hears_all || turner.seat.is_called();
        if state.turner_sleeps.get() && turner.as_ref().is_some_and(is_concerned) {
            // It fails only if it rings already.
            let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
        }
    }

    /// Runs `rest` without the lock, which this thread holds.
    fn outside<T>(&self, state: &State, rest: impl FnOnce() -> T) -> T {
        struct Back<'s>(&'s SharedClient, u32);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                let guard = self.0.0.state.lock();
                guard.depth.set(self.1);
                std::mem::forget(guard);
            }
        }
        let back = Back(self, state.depth.replace(0));
        // SAFETY: this thread holds the lock once, by the guard that `state` was reached through,
        // and has it again, by `back`, before anything that it guards is used.
        unsafe { self.0.state.force_unlock() };
        let output = rest();
        drop(back);
        output
    }

    fn await_descriptors(&self, limit: Duration) {
        let mut descriptors = [
            PollFd::new(&self.0.descriptor, PollFlags::IN),
            PollFd::new(&self.0.bell, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // A signal ends it early; whoever has handled it looks again.
        let _ = rustix::event::poll(&mut descriptors, Some(&limit));
        if descriptors[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
        }
    }
}

impl State {
    /// A silence goes on, though it is waited for by one short wait after the other, if an answer
    /// was owed all the while and somebody has listened. Otherwise one begins.
    fn begin_to_listen(&self) {
        let (at, was_owed) = self.left.get();
        if !was_owed || at.elapsed() > LISTENED {
            self.heard.set(Instant::now());
        }
    }

    fn end_to_listen(&self) {
        self.left.set((Instant::now(), self.client.patience().is_some()));
    }
}

impl Wait {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// No longer than this, nor than the deadline.
    fn limit(&self, longest: Duration) -> Duration {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(longest, |left| left.min(longest))
    }
}

/// Being the turner.
struct Turning<'s>(&'s State);

impl<'s> Turning<'s> {
    fn begin(state: &'s State, wait: &Wait) -> Self {
        let turner = Waiting { seat: wait.seat.clone(), hears_all: wait.hears_all };
        state.turner.replace(Some(turner));
        state.begin_to_listen();
        Self(state)
    }
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.0.turner.replace(None);
        self.0.end_to_listen();
        call_heir(self.0);
    }
}

/// If nobody is the turner any more, somebody who waits becomes it.
fn call_heir(state: &State) {
    if state.turner.borrow().is_none()
        && let Some(heir) = state.waiting.borrow().first()
    {
        heir.seat.call();
    }
}

/// Calls those who want to look at everything.
fn call_hearers(state: &State) {
    for waiting in state.waiting.borrow().iter().filter(|waiting| waiting.hears_all) {
        waiting.seat.call();
    }
}

/// Longest wait with the lock held, of a thread that has been alone so far.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// Longest time that the turner looks again and again before it sleeps.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Longest time between two waits that are one silence.
const LISTENED: Duration = Duration::from_secs(1);
/// How often an event loop listens for what is owed.
pub(crate) const LISTEN_EVERY: Duration = Duration::from_millis(400);
/// Longest sleep of the turner.
const SLEEP_MAX: Duration = Duration::from_secs(5);
