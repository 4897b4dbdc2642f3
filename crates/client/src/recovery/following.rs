//! Channels beside the first, on their way back: behind it.
//!
//! Invariant: a channel goes on only while the first one stands and is of the same client in the
//! same life of the server: what its transfers name was taken back by then.

use dafs_dat::coarse_now;

use crate::core::Core;
use crate::ids::SessionKey;
use crate::sizes::LOOK_PERIOD;
use crate::state::Phase;

impl Core {
    /// Whether a channel may try to come back now: not before the first one stands. That one
    /// wakes it.
    pub(super) fn may_attempt(&mut self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let Some(first) = session.role.first() else { return true };
        let is_led = self.sessions.get(first).is_some_and(|first| first.is_open());
        if is_led && !session.role.is_folding() {
            return true;
        }
        if let Some(rescue) = self.rescue(key) {
            rescue.due = coarse_now() + LOOK_PERIOD;
        }
        false
    }

    /// Why a channel that has asked all it must cannot go on yet.
    pub(super) fn is_kept_back(&mut self, key: SessionKey) -> Option<String> {
        let first = self.sessions[key].role.first()?;
        let client = self.rescue(key).map(|rescue| rescue.client);
        let leader = self.sessions.get(first)?;
        if !leader.is_open() {
            return Some("the first connection of its session is not back".into());
        }
        if Some(leader.standing.client) == client {
            return None;
        }
        // One of the two connections is to a server that is no more, or to another one. If it is
        // the first, it shows when something is sent.
        self.send_null(first);
        Some("this server does not know its session".into())
    }

    /// The first channel is back: those beside it follow.
    pub(super) fn lead_back(&mut self, first: SessionKey) {
        for key in self.sessions[first].role.beside() {
            let Some(machine) = &mut self.sessions[key].recovery else { continue };
            machine.wait_anew();
            if let Some(rescue) = &mut machine.rescue {
                rescue.due = rescue.due.min(coarse_now());
            }
        }
    }

    /// The first channel has learned that the server has restarted. So have those beside it:
    /// nothing that the former one has said counts from now on.
    pub(super) fn lose_beside(&mut self, first: SessionKey) {
        for key in self.sessions[first].role.beside() {
            if matches!(self.sessions[key].phase, Phase::Open) {
                self.lose(key, "the server has restarted".into());
            }
        }
    }
}
