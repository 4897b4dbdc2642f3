//! Limits the number of calls that have memory registered at the same time.
//!
//! Invariant: the number of permits in use never exceeds the limit. When a permit is released, a
//! waiting call is woken.
//!
//! A connection over shared memory supports a thousand regions at most, but a program may have ten
//! thousand calls in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Poll, Waker};

/// A limited number of permits.
pub struct Gate {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// A permit. Dropping it releases it.
pub struct Permit<'g>(&'g Gate);

impl Gate {
    /// Makes a gate with this many permits.
    pub fn new(count: usize) -> Self {
        Self { free: Cell::new(count), waiting: RefCell::default() }
    }

    /// Returns a permit if one is free.
    pub fn try_enter(&self) -> Option<Permit<'_>> {
        let left = self.free.get().checked_sub(1)?;
        self.free.set(left);
        Some(Permit(self))
    }

    /// Waits for a permit.
    pub async fn enter(&self) -> Permit<'_> {
        std::future::poll_fn(|context| match self.try_enter() {
            Some(permit) => Poll::Ready(permit),
            None => {
                self.waiting.borrow_mut().push_back(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        let next = self.0.waiting.borrow_mut().pop_front();
        if let Some(next) = next {
            next.wake();
        }
    }
}
