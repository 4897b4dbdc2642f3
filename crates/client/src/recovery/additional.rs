//! Reconnects additional channels, always after the first one.
//!
//! Invariant: an additional channel continues only if the first channel is open and both belong to
//! the same client in the same server incarnation. By then every open and credential that its
//! transfers name was reclaimed.

use dafs_dat::coarse_now;

use crate::core::Core;
use crate::ids::SessionKey;
use crate::sizes::LOOK_PERIOD;
use crate::state::Phase;

impl Core {
    /// Returns true if a channel may try to reconnect now. An additional channel waits until the
    /// first channel is open, which then wakes it.
    pub(super) fn may_attempt(&mut self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let Some(first) = session.role.first() else { return true };
        let is_led = self.sessions.get(first).is_some_and(|first| first.is_open());
        if is_led && !session.role.is_given_up() {
            return true;
        }
        if let Some(progress) = self.recovery_progress(key) {
            progress.due = coarse_now() + LOOK_PERIOD;
        }
        false
    }

    /// Returns the reason why a channel must still wait although the server has replied to all its
    /// recovery requests; `None` if the channel can continue.
    pub(super) fn reason_to_wait(&mut self, key: SessionKey) -> Option<String> {
        let first = self.sessions[key].role.first()?;
        let client = self.recovery_progress(key).map(|progress| progress.client);
        let leader = self.sessions.get(first)?;
        if !leader.is_open() {
            return Some("the session's first connection is not restored yet".into());
        }
        if Some(leader.standing.client) == client {
            return None;
        }
        // One of the two connections leads to a server incarnation that has ended, or to another
        // server. If that is the first channel's connection, sending a request over it will reveal
        // this.
        self.send_null(first);
        Some("this server does not know the session".into())
    }

    /// Allows the additional channels to reconnect, after the first channel has reconnected.
    pub(super) fn let_additional_reconnect(&mut self, first: SessionKey) {
        for key in self.sessions[first].role.additional() {
            let Some(machine) = &mut self.sessions[key].recovery else { continue };
            machine.wait_anew();
            if let Some(progress) = &mut machine.progress {
                progress.due = progress.due.min(coarse_now());
            }
        }
    }

    /// Makes the additional channels reconnect after the first channel has learned that the server
    /// restarted, because replies of the previous incarnation are no longer valid.
    pub(super) fn restart_additional(&mut self, first: SessionKey) {
        for key in self.sessions[first].role.additional() {
            if matches!(self.sessions[key].phase, Phase::Open) {
                self.on_connection_lost(key, "the server has restarted".into());
            }
        }
    }
}
