//! What is under way in a session: futures, polled by whoever makes progress.
//!
//! Invariant: a task that nobody waits for any more goes on to its end, so that memory it was
//! lent is free when it ends, and not before.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use slab::Slab;

use crate::errors::Failure;
use crate::value::Value;

/// What a call comes to.
pub type Outcome = Result<Value, Failure>;
/// A call under way.
pub type Work = Pin<Box<dyn Future<Output = Outcome>>>;

/// All tasks of a session.
#[derive(Default)]
pub struct Tasks {
    slots: RefCell<Slab<Task>>,
    ready: Arc<Ready>,
    /// Tasks of an event loop that have ended and were not fetched.
    ended: RefCell<Vec<usize>>,
}

struct Task {
    state: State,
    waker: Waker,
    whose: Whose,
}

enum State {
    UnderWay(Work),
    /// It is being polled.
    Away,
    Ended(Outcome),
}

/// Who wants to know how a task ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A thread that waits.
    Thread,
    /// An event loop, which asks for all that have ended.
    Loop,
    /// Nobody.
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
    /// Takes a task in and begins with it.
    pub fn spawn(&self, work: Work, whose: Whose) -> usize {
        let index = {
            let mut slots = self.slots.borrow_mut();
            let entry = slots.vacant_entry();
            let index = entry.key();
            let waker = Waker::from(Arc::new(Wakeup { index, ready: self.ready.clone() }));
            entry.insert(Task { state: State::UnderWay(work), waker, whose });
            index
        };
        self.poll(index);
        index
    }

    /// Goes on with all that were woken. True if more have been woken meanwhile.
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
        // A late call may name a task that has ended, or another that has its place by now.
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
            Poll::Ready(outcome) => match task.whose {
                Whose::Nobody => drop(slots.remove(index)),
                Whose::Thread => task.state = State::Ended(outcome),
                Whose::Loop => {
                    task.state = State::Ended(outcome);
                    self.ended.borrow_mut().push(index);
                }
            },
        }
    }

    /// How a task has ended, if it has; then it is forgotten.
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

    /// The tasks of the event loop that have ended.
    pub fn take_ended(&self) -> Vec<(usize, Outcome)> {
        let ended = std::mem::take(&mut *self.ended.borrow_mut());
        ended.into_iter().filter_map(|index| Some((index, self.take(index)?))).collect()
    }

    /// Nobody wants to know any more how a task ends.
    pub fn abandon(&self, index: usize) {
        let mut slots = self.slots.borrow_mut();
        let Some(task) = slots.get_mut(index) else { return };
        match task.state {
            State::Ended(_) => drop(slots.remove(index)),
            State::UnderWay(_) | State::Away => task.whose = Whose::Nobody,
        }
    }

    /// Whether anything is under way.
    pub fn is_idle(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// Drops everything.
    pub fn clear(&self) {
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        drop(slots);
    }
}
