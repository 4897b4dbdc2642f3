//! Turns: waiting for events, and looking at the clock.
//!
//! Invariant: no wait lasts beyond the next thing that must be seen to by itself: an
//! attempt of a session that recovers, a request that was put off, a silence that has
//! lasted too long.

use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{Completion, CompletionStatus, Operation, coarse_now};
use dafs_types::{FileHandle, StateId};

use crate::core::{Core, Phase, SessionState};
use crate::opens::Opened;
use crate::recovery::SessionEvent;

impl Core {
    /// Waits for events and takes them in. Returns how many there were: none if the time is
    /// over, or a session that recovers, or is silent, had to be seen to.
    #[inline]
    pub fn turn(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        let Some(patience) = self.patience else { return self.turn_once(threshold, timeout) };
        let limit = if self.has_timers { self.until_timer() } else { Some(patience) };
        let bounded = limit.into_iter().chain(timeout).min();
        let count = self.turn_once(threshold, bounded);
        self.turns = self.turns.wrapping_add(1);
        if self.has_timers
            || (count == 0 && threshold > 0)
            || self.turns.is_multiple_of(TURNS_PER_LOOK)
        {
            self.mind();
        }
        count
    }

    #[inline]
    fn turn_once(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        self.pay_receives();
        if threshold == 0 {
            self.interface.poll();
        } else {
            self.interface.wait(threshold, timeout);
        }
        let mut count = 0;
        loop {
            // Not as an event: it is built once and taken from where it is.
            if let Some(&Completion { endpoint, operation, status, length, .. }) =
                self.interface.first_completion()
            {
                if operation == Operation::Receive {
                    self.on_received(endpoint, length, status == CompletionStatus::Success);
                } else {
                    self.interface.pass_completion();
                }
            } else if let Some(event) = self.interface.next_event() {
                self.on_event(event);
            } else {
                return count;
            }
            count += 1;
        }
    }

    /// Looks at the clock: for sessions that recover, requests that were put off, servers
    /// that are silent for too long.
    #[cold]
    fn mind(&mut self) {
        let now = coarse_now();
        for index in 0..self.sessions.len() {
            let session = &mut self.sessions[index];
            let owes = matches!(session.phase, Phase::Open) && session.owes_an_answer();
            let has_spoken = std::mem::take(&mut session.has_spoken);
            let Some(keeper) = &mut session.keeper else { continue };
            if keeper.is_silent(owes && keeper.session.is_some(), has_spoken, now) {
                self.give_up(index, "no answer for too long");
            }
            self.mind_rescue(index, now);
            self.mind_back(index, now);
            self.take_up_delayed(index, now);
        }
        self.has_timers = self.sessions.iter().any(|session| session.next_timer().is_some());
    }

    /// How long nothing has to be seen to by itself; `None` for ever.
    pub fn until_timer(&self) -> Option<Duration> {
        let first = self.sessions.iter().filter_map(SessionState::next_timer).min();
        first.map(|due| due.saturating_sub(coarse_now()))
    }

    /// Notes what a session's listener is to be told.
    pub fn announce(&mut self, index: usize, event: SessionEvent) {
        let keeper = self.sessions[index].keeper.as_ref();
        if let Some(listener) = keeper.and_then(|keeper| keeper.listener.clone()) {
            self.news.push((listener, event));
        }
    }

    /// One turn of waiting for a session, which is given up if the silence, kept in
    /// `heard` between turns, has lasted too long.
    pub fn turn_patiently(&mut self, index: usize, heard: &mut Option<Duration>) {
        let limit = self.sessions[index].answer_timeout;
        if let Some(silence) = self.turn_in_silence(limit, heard) {
            self.give_up_after(index, silence);
        }
    }

    /// One turn of waiting for whichever session owes an answer; those that have been silent
    /// for too long are given up.
    pub fn turn_patiently_for_all(&mut self, heard: &mut Option<Duration>) {
        let limit = self.patience_for_all();
        if let Some(silence) = self.turn_in_silence(limit, heard) {
            self.give_up_silent(silence);
        }
    }

    /// How long whoever waits lets all be silent.
    pub fn patience_for_all(&self) -> Option<Duration> {
        let owing = self.sessions.iter().filter(|session| session.owes_an_answer());
        owing.filter_map(|session| session.answer_timeout).min()
    }

    /// Nothing has come for so long.
    pub fn give_up_silent(&mut self, silence: Duration) {
        for index in 0..self.sessions.len() {
            if self.sessions[index].owes_an_answer() {
                self.give_up_after(index, silence);
            }
        }
    }

    /// One turn. How long nothing has come, if nothing came in it either.
    fn turn_in_silence(
        &mut self,
        limit: Option<Duration>,
        heard: &mut Option<Duration>,
    ) -> Option<Duration> {
        let since = *heard.get_or_insert_with(coarse_now);
        if self.turn(1, limit) > 0 {
            *heard = None;
            return None;
        }
        Some(coarse_now().saturating_sub(since))
    }

    /// Gives a session up if a silence is longer than its limit. One that recovers has
    /// limits of its own.
    fn give_up_after(&mut self, index: usize, silence: Duration) {
        if matches!(self.sessions[index].phase, Phase::Recovering) {
            return;
        }
        if let Some(limit) = self.sessions[index].answer_timeout.filter(|limit| silence >= *limit) {
            self.give_up(index, &format!("no answer for {} s", limit.as_secs_f32()));
        }
    }
}

impl SessionState {
    /// Whether something will come, though no answer is on its way: a session that recovers,
    /// or requests that were put off.
    pub fn is_awaited(&self) -> bool {
        let Some(keeper) = &self.keeper else { return false };
        let recovers =
            keeper.rescue.as_ref().is_some_and(|rescue| rescue.is_awaited() || self.has_waiting());
        recovers || !keeper.delayed.is_empty()
    }

    /// When something must be seen to by itself.
    fn next_timer(&self) -> Option<Duration> {
        let keeper = self.keeper.as_ref()?;
        let rescue = keeper.rescue.as_ref().map(|rescue| rescue.due());
        let delayed = keeper.delayed.iter().map(|delayed| delayed.due);
        delayed.chain(rescue).chain(self.back_wish.due).min()
    }

    /// A request was answered: the session stands.
    #[cold]
    pub fn note_progress(&mut self) {
        self.is_frail = false;
        if let Some(keeper) = &mut self.keeper {
            keeper.note_progress();
        }
    }

    /// An open by one of its state ids.
    pub fn opened(&self, handle: FileHandle, state: StateId) -> Rc<Opened> {
        let known = self.keeper.as_ref().and_then(|keeper| keeper.opens.get(state));
        match known {
            Some(opened) if opened.handle == handle => opened.clone(),
            _ => Rc::new(Opened::plain(handle, state)),
        }
    }
}

/// Longest time between two looks for servers that are silent.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// Turns between two looks at the clock, however much comes in.
const TURNS_PER_LOOK: u32 = 4096;
