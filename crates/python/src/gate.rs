//! How many calls may have memory registered at once.
//!
//! Invariant: never more permits are out than there are, and whoever waits for one is woken when
//! one comes back.
//!
//! A connection over shared memory names a thousand regions at most; a program that has ten
//! thousand calls under way would have as many.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Poll, Waker};

/// Permits, so many.
pub struct Gate {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// A permit. It goes back when it is dropped.
pub struct Permit<'g>(&'g Gate);

impl Gate {
    /// With so many permits.
    pub fn new(count: usize) -> Self {
        Self { free: Cell::new(count), waiting: RefCell::default() }
    }

    /// A permit, if there is one.
    pub fn try_enter(&self) -> Option<Permit<'_>> {
        let left = self.free.get().checked_sub(1)?;
        self.free.set(left);
        Some(Permit(self))
    }

    /// A permit, when there is one.
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
