//! Results that exactly one caller or one future waits for.
//!
//! Invariant: a ticket names one result until the result is taken or abandoned, and is invalid
//! afterwards.

use std::task::Waker;

use dafs_base::{Key, Slab};

/// The key of a result that one caller or future waits for.
pub(crate) type Ticket<T> = Key<Waiter<T>>;

/// The results of one kind, pending or not yet taken. Their number is limited by the requests in
/// flight and the results that were not taken.
#[derive(Debug)]
pub(crate) struct Waiters<T>(Slab<Waiter<T>>);

#[derive(Debug)]
pub(crate) enum Waiter<T> {
    Waiting(Option<Waker>),
    There(T),
    /// The waiter was dropped, so the result will be dropped when it arrives.
    Abandoned,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self(Slab::new())
    }
}

impl<T> Waiters<T> {
    #[inline]
    pub(crate) fn make(&mut self) -> Ticket<T> {
        self.0.insert(Waiter::Waiting(None))
    }

    /// Stores a result and wakes the future that waits for it.
    #[inline]
    pub(crate) fn put(&mut self, ticket: Ticket<T>, result: T) {
        let Some(place) = self.0.get_mut(ticket) else { return };
        match std::mem::replace(place, Waiter::There(result)) {
            Waiter::Waiting(Some(waker)) => waker.wake(),
            Waiter::Waiting(None) => {}
            Waiter::There(_) | Waiter::Abandoned => drop(self.0.remove(ticket)),
        }
    }

    /// Returns the result if it has arrived, and removes the ticket.
    #[inline]
    pub(crate) fn take(&mut self, ticket: Ticket<T>) -> Option<T> {
        if !matches!(self.0.get(ticket), Some(Waiter::There(_))) {
            return None;
        }
        match self.0.remove(ticket) {
            Some(Waiter::There(result)) => Some(result),
            Some(Waiter::Waiting(_) | Waiter::Abandoned) | None => None,
        }
    }

    /// Sets the waker to call when the result arrives.
    pub(crate) fn wake_with(&mut self, ticket: Ticket<T>, waker: &Waker) {
        if let Some(Waiter::Waiting(known)) = self.0.get_mut(ticket) {
            match known {
                Some(known) => known.clone_from(waker),
                None => *known = Some(waker.clone()),
            }
        }
    }

    /// Marks the result as abandoned: it is dropped when it arrives.
    pub(crate) fn abandon(&mut self, ticket: Ticket<T>) {
        match self.0.get_mut(ticket) {
            Some(place @ Waiter::Waiting(_)) => *place = Waiter::Abandoned,
            Some(Waiter::There(_)) => drop(self.0.remove(ticket)),
            Some(Waiter::Abandoned) | None => {}
        }
    }

    /// Removes a ticket whose operation was never started.
    pub(crate) fn withdraw(&mut self, ticket: Ticket<T>) {
        self.0.remove(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_taken_once() {
        let mut waiters = Waiters::default();
        let ticket = waiters.make();
        assert_eq!(waiters.take(ticket), None);
        waiters.put(ticket, 7);
        assert_eq!(waiters.take(ticket), Some(7));
        let next = waiters.make();
        waiters.put(next, 8);
        assert_eq!((waiters.take(ticket), waiters.take(next)), (None, Some(8)));
    }

    #[test]
    fn an_abandoned_place_is_not_used_before_its_result_has_come() {
        let mut waiters = Waiters::default();
        let (early, late) = (waiters.make(), waiters.make());
        waiters.abandon(early);
        assert_ne!(waiters.make().index(), early.index());
        waiters.put(early, 1);
        assert_eq!(waiters.make().index(), early.index());
        waiters.put(late, 2);
        waiters.abandon(late);
        assert_eq!(waiters.make().index(), late.index());
    }

    #[test]
    fn what_was_withdrawn_is_free_at_once() {
        let mut waiters = Waiters::<u8>::default();
        let ticket = waiters.make();
        waiters.withdraw(ticket);
        assert_eq!(waiters.make().index(), ticket.index());
        waiters.put(ticket, 1);
        assert_eq!(waiters.take(ticket), None);
    }
}
