//! The calls in flight of a session: futures, polled by the thread that makes progress.
//!
//! Invariant: an abandoned task runs to its end, because memory that it uses becomes free only
//! then.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use slab::Slab;

use crate::errors::Failure;
use crate::value::Value;

/// The result of a call.
pub(crate) type Outcome = Result<Value, Failure>;
/// A call in flight.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome>>>;

/// All tasks of a session.
#[derive(Default)]
pub struct Tasks {
    slots: RefCell<Slab<Task>>,
    ready: Arc<Ready>,
    /// The ended tasks of the event loop whose results were not fetched.
    ended: RefCell<Vec<usize>>,
}

struct Task {
    state: State,
    waker: Waker,
    waiter: Waiter,
}

enum State {
    UnderWay(Work),
    /// The task is being polled.
    Away,
    Ended(Outcome),
}

/// The thread or event loop that waits for the result of a task, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waiter {
    /// A waiting thread.
    Thread,
    /// An event loop, which fetches all ended tasks.
    Loop,
    /// The result is discarded.
    Nobody,
}

#[derive(Default)]
struct Ready(Mutex<Vec<usize>>);

struct Wakeup {
    index: usize,
    ready: Arc<Ready>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

impl Tasks {
    /// Adds a task and polls it for the first time.
    pub fn spawn(&self, work: Work, waiter: Waiter) -> usize {
        let index = {
            let mut slots = self.slots.borrow_mut();
            let entry = slots.vacant_entry();
            let index = entry.key();
            let waker = Waker::from(Arc::new(Wakeup { index, ready: self.ready.clone() }));
            entry.insert(Task { state: State::UnderWay(work), waker, waiter });
            index
        };
        self.poll(index);
        index
    }

    /// Polls all woken tasks. Returns true if more were woken meanwhile.
    pub fn poll_ready(&self) -> bool {
        let woken = std::mem::take(&mut *self.lock());
        for index in woken {
            self.poll(index);
        }
        !self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.ready.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, index: usize) {
        let mut slots = self.slots.borrow_mut();
        // A late wakeup may name a task that has ended, or another one in the same slot.
        let Some(task) = slots.get_mut(index) else { return };
        let mut work = match std::mem::replace(&mut task.state, State::Away) {
            State::UnderWay(work) => work,
            other => {
                task.state = other;
                return;
            }
        };
        let waker = task.waker.clone();
        drop(slots);
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        let mut slots = self.slots.borrow_mut();
        let task = &mut slots[index];
        match polled {
            Poll::Pending => task.state = State::UnderWay(work),
            Poll::Ready(outcome) => match task.waiter {
                Waiter::Nobody => drop(slots.remove(index)),
                Waiter::Thread => task.state = State::Ended(outcome),
                Waiter::Loop => {
                    task.state = State::Ended(outcome);
                    self.ended.borrow_mut().push(index);
                }
            },
        }
    }

    /// Returns the result of a task and removes it, if it has ended.
    pub fn take(&self, index: usize) -> Option<Outcome> {
        let mut slots = self.slots.borrow_mut();
        match slots.get(index)?.state {
            State::Ended(_) => match slots.remove(index).state {
                State::Ended(outcome) => Some(outcome),
                State::UnderWay(_) | State::Away => None,
            },
            State::UnderWay(_) | State::Away => None,
        }
    }

    /// Returns the ended tasks of the event loop.
    pub fn take_ended(&self) -> Vec<(usize, Outcome)> {
        let ended = std::mem::take(&mut *self.ended.borrow_mut());
        ended.into_iter().filter_map(|index| Some((index, self.take(index)?))).collect()
    }

    /// Drops interest in the result of a task.
    pub fn abandon(&self, index: usize) {
        let mut slots = self.slots.borrow_mut();
        let Some(task) = slots.get_mut(index) else { return };
        match task.state {
            State::Ended(_) => drop(slots.remove(index)),
            State::UnderWay(_) | State::Away => task.waiter = Waiter::Nobody,
        }
    }

    /// True if no task is in flight.
    pub fn is_idle(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// Drops all tasks of the session.
    pub fn clear(&self) {
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        drop(slots);
    }
}
