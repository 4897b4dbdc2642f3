//! Turns: waiting for events, and handling timers.
//!
//! Invariant: no wait lasts beyond the next timer. Timers are the next attempt of a recovering
//! session, the retry of a delayed request, and a reply timeout.

use std::time::Duration;

use dafs_dat::coarse_now;

use crate::core::Core;
use crate::ids::SessionKey;
use crate::recovery::options::SessionEvent;
use crate::state::{Phase, SessionState};
use crate::transport::Completed;

impl Core {
    /// Waits for events and processes them. Returns their number; zero means that the timeout
    /// expired or that only a session's timer was handled.
    #[inline]
    pub(crate) fn turn(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        if !self.sessions.are_watched() {
            return self.turn_once(threshold, timeout);
        }
        let bounded = self.sessions.look_limit().into_iter().chain(timeout).min();
        let count = self.turn_once(threshold, bounded);
        self.turns = self.turns.wrapping_add(1);
        if self.sessions.has_timers()
            || (count == 0 && threshold > 0)
            || self.turns.is_multiple_of(TURNS_PER_LOOK)
        {
            self.look_at_clock();
        }
        count
    }

    #[inline]
    fn turn_once(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        self.transport.pay_receives();
        self.transport.wait(threshold, timeout);
        let mut count = 0;
        loop {
            match self.transport.next_completion() {
                Some(Completed::Received { endpoint, length, is_good }) => {
                    self.on_received(endpoint, length, is_good);
                }
                Some(Completed::Passed) => {}
                None => match self.transport.next_event() {
                    Some(event) => self.on_event(event),
                    None => return count,
                },
            }
            count += 1;
        }
    }

    /// Handles timers: recovering sessions, delayed requests, and silent servers.
    #[cold]
    fn look_at_clock(&mut self) {
        let now = coarse_now();
        for key in self.sessions.keys() {
            let session = &mut self.sessions[key];
            let owes = session.is_open() && session.owes_an_answer();
            let has_spoken = std::mem::take(&mut session.has_spoken);
            let Some(machine) = &mut session.recovery else { continue };
            if machine.is_silent(owes && machine.is_established(), has_spoken, now) {
                self.on_connection_lost(key, "no reply for too long".into());
            }
            self.check_recovery_timer(key, now);
            self.check_back_timer(key, now);
            self.resend_delayed(key, now);
            self.send_held(key);
            self.check_takeover(key);
        }
        self.sessions.look_for_timers();
    }

    /// Queues an event for a session's listener.
    pub(crate) fn announce(&mut self, key: SessionKey, event: SessionEvent) {
        let machine = self.sessions[key].recovery.as_ref();
        if let Some(listener) = machine.and_then(|machine| machine.listener()) {
            self.pending_events.add(listener, event);
        }
    }

    /// Makes one turn of waiting for a session, and ends or reconnects the session if its reply
    /// timeout expires. Between turns, `heard` holds the time at which the server's silence began.
    pub(crate) fn turn_patiently(&mut self, key: SessionKey, heard: &mut Option<Duration>) {
        let limit = match self.sessions.get(key) {
            Some(session) if session.role.has_channels() => {
                let additional = session.role.additional();
                additional.iter().chain([&key]).filter_map(|&key| self.patience_with(key)).min()
            }
            session => session.and_then(|session| session.options.answer_timeout),
        };
        if let Some(silence) = self.turn_in_silence(limit, heard) {
            self.give_up_channels(key, silence);
        }
    }

    /// Returns the reply timeout of a session. The timeout is short for an additional channel that
    /// is connecting, because the session can continue without that channel.
    fn patience_with(&self, key: SessionKey) -> Option<Duration> {
        let session = self.sessions.get(key)?;
        let is_spare = session.role.first().is_some() && matches!(session.phase, Phase::Connecting);
        let limits = [session.options.answer_timeout, is_spare.then_some(SPARE_CONNECT_MAX)];
        limits.into_iter().flatten().min()
    }

    /// Ends or reconnects each channel of a session on which the server has been silent for too
    /// long.
    fn give_up_channels(&mut self, key: SessionKey, silence: Duration) {
        let additional = self.sessions.get(key).map(|session| session.role.additional());
        let additional = additional.unwrap_or_default();
        let is_owing = |session: &SessionState| {
            session.owes_an_answer() || matches!(session.phase, Phase::Connecting)
        };
        for &key in additional.iter().chain([&key]) {
            if additional.is_empty() || self.sessions.get(key).is_some_and(is_owing) {
                self.give_up_after(key, silence);
            }
        }
    }

    /// Makes one turn of waiting for all sessions that wait for replies, and ends or reconnects
    /// those whose reply timeouts expire.
    pub(crate) fn turn_patiently_for_all(&mut self, heard: &mut Option<Duration>) {
        let limit = self.sessions.patience_for_all();
        if let Some(silence) = self.turn_in_silence(limit, heard) {
            self.give_up_silent(silence);
        }
    }

    /// Ends or reconnects the sessions that wait for a reply and whose reply timeout is at most
    /// `silence`.
    pub(crate) fn give_up_silent(&mut self, silence: Duration) {
        for key in self.sessions.keys() {
            if self.sessions[key].owes_an_answer() {
                self.give_up_after(key, silence);
            }
        }
    }

    /// Makes one turn. Returns the duration of the silence if nothing has arrived.
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

    /// Ends or reconnects a session if the silence has lasted for its reply timeout. A recovering
    /// session has its own time limits.
    fn give_up_after(&mut self, key: SessionKey, silence: Duration) {
        let Some(session) = self.sessions.get(key) else { return };
        if matches!(session.phase, Phase::Recovering) {
            return;
        }
        if let Some(limit) = self.patience_with(key).filter(|limit| silence >= *limit) {
            self.on_connection_lost(key, format!("no reply for {} s", limit.as_secs_f32()).into());
        }
    }
}

/// The number of turns after which timers are checked, even if every turn has events.
const TURNS_PER_LOOK: u32 = 4096;

/// The time limit for connecting an additional channel.
const SPARE_CONNECT_MAX: Duration = Duration::from_secs(5);
