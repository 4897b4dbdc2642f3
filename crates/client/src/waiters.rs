//! Results that exactly one caller or one future waits for.
//!
//! Invariant: a ticket names one place until its result is taken or nobody wants it any
//! more; a place is used again only after its result has come.

use std::task::Waker;

/// A place a result will come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// Places for results of one kind. No hashing: a ticket is an index.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
enum Place<T> {
    Free,
    Waiting(Option<Waker>),
    There(T),
    /// Nobody will ask.
    Abandoned,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Waiters<T> {
    #[inline]
    pub fn make(&mut self) -> Ticket {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Place::Waiting(None);
            return Ticket(index);
        }
        self.places.push(Place::Waiting(None));
        Ticket(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
    }

    /// The result came.
    #[inline]
    pub fn put(&mut self, ticket: Ticket, result: T) {
        let place = &mut self.places[ticket.0 as usize];
        match std::mem::replace(place, Place::There(result)) {
            Place::Waiting(Some(waker)) => waker.wake(),
            Place::Waiting(None) => {}
            Place::Free | Place::There(_) | Place::Abandoned => {
                *place = Place::Free;
                self.free.push(ticket.0);
            }
        }
    }

    /// The result, if it is there; the ticket is used up then.
    #[inline]
    pub fn take(&mut self, ticket: Ticket) -> Option<T> {
        let place = &mut self.places[ticket.0 as usize];
        if !matches!(place, Place::There(_)) {
            return None;
        }
        self.free.push(ticket.0);
        match std::mem::replace(place, Place::Free) {
            Place::There(result) => Some(result),
            Place::Free | Place::Waiting(_) | Place::Abandoned => None,
        }
    }

    /// Whom to wake when the result comes.
    pub fn wake_with(&mut self, ticket: Ticket, waker: &Waker) {
        if let Place::Waiting(known) = &mut self.places[ticket.0 as usize] {
            match known {
                Some(known) => known.clone_from(waker),
                None => *known = Some(waker.clone()),
            }
        }
    }

    /// Nobody wants the result any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        let place = &mut self.places[ticket.0 as usize];
        match place {
            Place::Waiting(_) => *place = Place::Abandoned,
            Place::There(_) => {
                *place = Place::Free;
                self.free.push(ticket.0);
            }
            Place::Free | Place::Abandoned => {}
        }
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
        assert_eq!(waiters.make(), ticket);
        assert_eq!(waiters.take(ticket), None);
    }

    #[test]
    fn an_abandoned_place_is_not_used_before_its_result_has_come() {
        let mut waiters = Waiters::default();
        let (early, late) = (waiters.make(), waiters.make());
        waiters.abandon(early);
        assert!(waiters.make() != early);
        waiters.put(early, 1);
        assert_eq!(waiters.make(), early);
        waiters.put(late, 2);
        waiters.abandon(late);
        assert_eq!(waiters.make(), late);
    }
}
