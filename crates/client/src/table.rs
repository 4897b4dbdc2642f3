//! The sessions of a client.
//!
//! Invariant: a session is in the table from the start of its connection until its last handle is
//! dropped. The timers and reply timeouts of the table cover exactly the sessions in it.

use std::num::NonZeroU64;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use dafs_base::Slab;
use dafs_dat::coarse_now;
use smallvec::SmallVec;

use crate::error::{ClientError, Result};
use crate::ids::{SessionKey, SessionTag};
use crate::impersonation::{NUMBER_MAX, RegisteredCredentials};
use crate::sizes::LOOK_PERIOD;
use crate::state::SessionState;

/// The sessions of a client.
#[derive(Default)]
pub(crate) struct SessionTable {
    all: Slab<SessionState, SessionTag>,
    /// The shortest reply timeout of all sessions; `None` if no session has a timeout.
    patience: Option<Duration>,
    /// True if a session is recovering or has delayed requests.
    has_timers: bool,
    /// The number that was given to registered credentials most recently.
    last_registered: u64,
}

impl SessionTable {
    /// Adds a session. `make` builds its state for the key that the session will have.
    pub(crate) fn add<E>(
        &mut self,
        make: impl FnOnce(SessionKey) -> std::result::Result<SessionState, E>,
    ) -> std::result::Result<SessionKey, E> {
        let key = self.all.insert_with(make)?;
        let state = &self.all[key];
        if state.recovery.is_some() {
            let limits = [self.patience, state.options.answer_timeout, Some(LOOK_PERIOD)];
            self.patience = limits.into_iter().flatten().min();
        }
        Ok(key)
    }

    /// Removes a session whose last handle was dropped.
    pub(crate) fn remove(&mut self, key: SessionKey) {
        self.all.remove(key);
    }

    /// Returns a session, unless its last handle was dropped.
    pub(crate) fn get(&self, key: SessionKey) -> Option<&SessionState> {
        self.all.get(key)
    }

    /// Returns a session that accepts requests.
    ///
    /// # Errors
    /// The reason why the session has ended.
    #[inline]
    pub(crate) fn open(&self, key: SessionKey) -> Result<&SessionState> {
        match self.all.get(key) {
            Some(session) => session.check_open().map(|()| session),
            None => Err(gone()),
        }
    }

    /// Returns a session that accepts requests, mutably.
    #[inline]
    pub(crate) fn open_mut(&mut self, key: SessionKey) -> Result<&mut SessionState> {
        match self.all.get_mut(key) {
            Some(session) => session.check_open().map(|()| session),
            None => Err(gone()),
        }
    }

    /// Iterates over all sessions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SessionState> {
        self.all.values()
    }

    /// Returns the keys of all sessions, so that the table can be changed while iterating.
    pub(crate) fn keys(&self) -> SmallVec<[SessionKey; KEYS_INLINE]> {
        self.all.keys().collect()
    }

    // ---- waiting --------------------------------------------------------------------

    /// Returns how many events must arrive before the thread wakes if its caller wants `wanted`
    /// completions: at most the number of replies in flight, and only half of that while requests
    /// wait for credits.
    pub(crate) fn arrivals_for(&self, wanted: usize) -> usize {
        let mut on_their_way = 0;
        let mut others_wait = false;
        for session in self.iter() {
            on_their_way += usize::from(session.in_flight.credits.outstanding());
            others_wait |= session.in_flight.has_waiting();
        }
        let most = if others_wait { on_their_way / 2 } else { on_their_way };
        wanted.min(most).max(1)
    }

    /// Returns true if a reply or another event is expected.
    pub(crate) fn is_expecting(&self) -> bool {
        let is = |session: &SessionState| {
            session.in_flight.credits.outstanding() > 0 || session.is_awaited()
        };
        self.iter().any(is)
    }

    /// Returns the shortest reply timeout of the sessions that wait for a reply; `None` if no such
    /// session has a timeout.
    pub(crate) fn patience_for_all(&self) -> Option<Duration> {
        let owing = self.iter().filter(|session| session.owes_an_answer());
        owing.filter_map(|session| session.options.answer_timeout).min()
    }

    /// Returns the maximum length of a turn; `None` if no session has timers or reply timeouts.
    #[inline]
    pub(crate) fn look_limit(&self) -> Option<Duration> {
        let patience = self.patience?;
        if self.has_timers { self.until_timer() } else { Some(patience) }
    }

    /// Returns true if some session has a reply timeout.
    #[inline]
    pub(crate) fn are_watched(&self) -> bool {
        self.patience.is_some()
    }

    // ---- timers ---------------------------------------------------------------------

    /// Records that a session may have a timer.
    pub(crate) fn note_timer(&mut self) {
        self.has_timers = true;
    }

    /// Updates the record of whether any session has a timer.
    pub(crate) fn look_for_timers(&mut self) {
        let has_timers = self.iter().any(|session| session.next_timer().is_some());
        self.has_timers = has_timers;
    }

    /// Returns true if some session may have a timer.
    #[inline]
    pub(crate) fn has_timers(&self) -> bool {
        self.has_timers
    }

    /// Returns the time until the next timer; `None` if no session has a timer.
    pub(crate) fn until_timer(&self) -> Option<Duration> {
        let first = self.iter().filter_map(SessionState::next_timer).min();
        first.map(|due| due.saturating_sub(coarse_now()))
    }

    // ---- credentials ----------------------------------------------------------------

    /// Returns a number for registered credentials that is not in use.
    pub(crate) fn next_registered(&mut self) -> RegisteredCredentials {
        loop {
            self.last_registered = self.last_registered % NUMBER_MAX + 1;
            let number =
                RegisteredCredentials(NonZeroU64::MIN.saturating_add(self.last_registered - 1));
            if !self.iter().any(|session| session.standing.registered.has(number)) {
                return number;
            }
        }
    }
}

impl Index<SessionKey> for SessionTable {
    type Output = SessionState;

    /// Returns a session that the caller knows to exist.
    #[inline]
    fn index(&self, key: SessionKey) -> &SessionState {
        &self.all[key]
    }
}

impl IndexMut<SessionKey> for SessionTable {
    #[inline]
    fn index_mut(&mut self, key: SessionKey) -> &mut SessionState {
        &mut self.all[key]
    }
}

#[cold]
fn gone() -> ClientError {
    ClientError::SessionEnded {
        address: "its server".into(),
        reason: "its last handle was dropped".into(),
    }
}

/// The number of session keys that fit in a list without allocation.
const KEYS_INLINE: usize = 4;
