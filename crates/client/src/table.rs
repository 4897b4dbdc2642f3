//! The sessions of a client.
//!
//! Invariant: a session is in the table from the moment its connection is begun until its last
//! handle is gone; the silence and the timers that all wait for are those of the sessions in it.

use std::num::NonZeroU64;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use dafs_base::Slab;
use dafs_dat::coarse_now;
use smallvec::SmallVec;

use crate::acting::{NUMBER_MAX, Registered};
use crate::error::{ClientError, Result};
use crate::ids::{SessionKey, SessionTag};
use crate::sizes::LOOK_PERIOD;
use crate::state::SessionState;

/// All sessions of a client.
#[derive(Default)]
pub(crate) struct SessionTable {
    all: Slab<SessionState, SessionTag>,
    /// The shortest silence that a session takes for a loss, while there are such.
    patience: Option<Duration>,
    /// Some session recovers, or has requests that were put off.
    has_timers: bool,
    /// The last number given to registered credentials.
    last_registered: u64,
}

impl SessionTable {
    /// A session is begun, by whoever makes its state for this key.
    pub fn add<E>(
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

    /// Nobody holds a session any more.
    pub fn remove(&mut self, key: SessionKey) {
        self.all.remove(key);
    }

    /// A session, unless its last handle is gone.
    pub fn get(&self, key: SessionKey) -> Option<&SessionState> {
        self.all.get(key)
    }

    /// A session that takes requests in.
    ///
    /// # Errors
    /// Why it has ended.
    #[inline]
    pub fn open(&self, key: SessionKey) -> Result<&SessionState> {
        match self.all.get(key) {
            Some(session) => session.check_open().map(|()| session),
            None => Err(gone()),
        }
    }

    /// As [`SessionTable::open`], to be changed.
    #[inline]
    pub fn open_mut(&mut self, key: SessionKey) -> Result<&mut SessionState> {
        match self.all.get_mut(key) {
            Some(session) => session.check_open().map(|()| session),
            None => Err(gone()),
        }
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &SessionState> {
        self.all.values()
    }

    /// The keys of all sessions, for whoever changes the table meanwhile.
    pub fn keys(&self) -> SmallVec<[SessionKey; KEYS_INLINE]> {
        self.all.keys().collect()
    }

    // ---- waiting --------------------------------------------------------------------

    /// Arrivals worth sleeping for when so many completions are wanted: no more than are
    /// on their way, and only half of those while others wait for their credits.
    pub fn arrivals_for(&self, wanted: usize) -> usize {
        let mut on_their_way = 0;
        let mut others_wait = false;
        for session in self.iter() {
            on_their_way += usize::from(session.under_way.credits.outstanding());
            others_wait |= session.under_way.has_waiting();
        }
        let most = if others_wait { on_their_way / 2 } else { on_their_way };
        wanted.min(most).max(1)
    }

    /// Whether any answer is on its way.
    pub fn is_expecting(&self) -> bool {
        let is = |session: &SessionState| {
            session.under_way.credits.outstanding() > 0 || session.is_awaited()
        };
        self.iter().any(is)
    }

    /// How long whoever waits lets all be silent.
    pub fn patience_for_all(&self) -> Option<Duration> {
        let owing = self.iter().filter(|session| session.owes_an_answer());
        owing.filter_map(|session| session.options.answer_timeout).min()
    }

    /// How long a turn may last, if there are sessions that must be looked at by themselves.
    #[inline]
    pub fn look_limit(&self) -> Option<Duration> {
        let patience = self.patience?;
        if self.has_timers { self.until_timer() } else { Some(patience) }
    }

    /// Whether there are sessions that must be looked at by themselves.
    #[inline]
    pub fn are_watched(&self) -> bool {
        self.patience.is_some()
    }

    // ---- timers ---------------------------------------------------------------------

    /// Some session has something to do by itself, at a time.
    pub fn note_timer(&mut self) {
        self.has_timers = true;
    }

    /// Looks whether any session still has.
    pub fn look_for_timers(&mut self) {
        let has_timers = self.iter().any(|session| session.next_timer().is_some());
        self.has_timers = has_timers;
    }

    /// Whether some session may have something to do by itself.
    #[inline]
    pub fn has_timers(&self) -> bool {
        self.has_timers
    }

    /// How long nothing has to be seen to by itself; `None` for ever.
    pub fn until_timer(&self) -> Option<Duration> {
        let first = self.iter().filter_map(SessionState::next_timer).min();
        first.map(|due| due.saturating_sub(coarse_now()))
    }

    // ---- credentials ----------------------------------------------------------------

    /// A number that none of the credentials has that are registered now.
    pub fn next_registered(&mut self) -> Registered {
        loop {
            self.last_registered = self.last_registered % NUMBER_MAX + 1;
            let number = Registered(NonZeroU64::MIN.saturating_add(self.last_registered - 1));
            if !self.iter().any(|session| session.standing.registered.has(number)) {
                return number;
            }
        }
    }
}

impl Index<SessionKey> for SessionTable {
    type Output = SessionState;

    /// For whoever holds the session, or was called for it: it is there.
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
        reason: "nobody holds it any more".into(),
    }
}

/// Keys of so many sessions are listed without memory of their own.
const KEYS_INLINE: usize = 4;
