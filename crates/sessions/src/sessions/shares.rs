//! Fair shares of the server's limits.
//!
//! Each holder (an address, a user of this host, or a principal) may have a [`fair_share`] of the
//! channels. The last free channels are reserved for users of this host, and the last of these
//! channels for its superuser. Channels that have not authenticated do not count toward their
//! holder's share. When the limit of such channels is reached, a new channel displaces the oldest
//! channel of the holder that has the most of them.
//!
//! Invariant: [`Shares`] agrees with the open channels. An authenticated client never loses a
//! channel in favour of another client.

use std::collections::BTreeMap;

use dafs_filer::{Holder, Principal, fair_share};

use super::{ColdChannel, Phase, Sessions};
use crate::{ChannelId, ChannelRefusal};

/// The number of channels of one holder (a local user or an address).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    channels: u32,
    /// The number of channels that have not authenticated and were not displaced.
    waiting: u32,
}

/// The number of channels of each holder (a local user or an address).
#[derive(Debug, Default)]
pub(super) struct Shares {
    held: BTreeMap<Holder, Held>,
    waiting: u32,
    /// The channels that were displaced. They were not reported to the server yet.
    displaced: Vec<ChannelId>,
}

impl Shares {
    fn of(&self, holder: Holder) -> Held {
        self.held.get(&holder).copied().unwrap_or_default()
    }

    /// Counts a channel that has opened.
    pub(super) fn opened(&mut self, holder: Holder) {
        let held = self.held.entry(holder).or_default();
        held.channels += 1;
        held.waiting += 1;
        self.waiting += 1;
    }

    /// Stops counting a channel as waiting, because it has authenticated or was displaced.
    pub(super) fn settled(&mut self, cold: &mut ColdChannel) {
        if std::mem::take(&mut cold.is_waiting) {
            self.waiting -= 1;
            if let Some(held) = self.held.get_mut(&cold.holder) {
                held.waiting -= 1;
            }
        }
    }

    /// Stops counting a channel that has closed.
    pub(super) fn closed(&mut self, cold: &mut ColdChannel) {
        self.settled(cold);
        if let Some(held) = self.held.get_mut(&cold.holder) {
            held.channels -= 1;
            if held.channels == 0 {
                self.held.remove(&cold.holder);
            }
        }
    }
}

impl Sessions {
    /// Checks whether a holder (a local user or an address) may have one more channel.
    pub(super) fn check_share(&self, holder: Holder) -> Result<(), ChannelRefusal> {
        let (max, open) = (self.config.channels_max, self.open_count);
        let kept_back = match holder {
            Holder::User(0) | Holder::Elsewhere => 0,
            Holder::User(_) => SUPERUSER_CHANNELS.min(max / 32),
            Holder::Address(_) => LOCAL_CHANNELS.min(max / 16),
        };
        let is_free = !matches!(holder, Holder::User(0) | Holder::Elsewhere);
        if open >= max {
            Err(ChannelRefusal::Channels)
        } else if is_free && !fair_share(self.shares.of(holder).channels, open + kept_back, max) {
            Err(ChannelRefusal::Share)
        } else {
            Ok(())
        }
    }

    /// Makes room for a new channel that has not authenticated. If the number of such channels has
    /// reached its limit, displaces another channel or refuses the new channel.
    pub(super) fn make_room(&mut self, holder: Holder) -> Result<(), ChannelRefusal> {
        if self.shares.waiting < self.config.unauthenticated_max {
            return Ok(());
        }
        let victim = if holder == Holder::Elsewhere { None } else { self.victim(holder) };
        let victim = victim.ok_or(ChannelRefusal::Unauthenticated)?;
        let generation = self.hot[victim].generation;
        self.hot[victim].phase = Phase::Condemned;
        if let Some(cold) = self.cold[victim].as_mut() {
            self.shares.settled(cold);
        }
        self.counters.channels_displaced += 1;
        self.shares.displaced.push(ChannelId { index: victim as u32, generation });
        Ok(())
    }

    /// Returns the index of the channel to displace: the oldest unauthenticated channel of the
    /// holder (a local user or an address) that has the most such channels. `None` if no channel
    /// may be displaced.
    fn victim(&self, holder: Holder) -> Option<usize> {
        let may_be = |other: Holder, waiting: u32| match other {
            _ if other == holder => true,
            Holder::User(0) | Holder::Elsewhere => false,
            // A few unauthenticated channels of a local user cannot be displaced by holders on
            // other hosts.
            Holder::User(_) => holder.is_local() || waiting > UNAUTHENTICATED_KEPT,
            Holder::Address(_) => holder != Holder::Elsewhere,
        };
        let counts = self.shares.held.iter().map(|(other, held)| (*other, held.waiting));
        let most = counts.filter(|(other, waiting)| may_be(*other, *waiting)).map(|(_, n)| n).max();
        let most = most.filter(|most| *most > 0)?;
        let candidates = self.cold.iter().enumerate().filter_map(|(index, cold)| {
            let cold = cold.as_ref().filter(|cold| cold.is_waiting)?;
            let waiting = self.shares.of(cold.holder).waiting;
            // Channels that have begun to authenticate are displaced last.
            let has_begun = self.hot[index].phase != Phase::Opened;
            (waiting == most && may_be(cold.holder, waiting)).then_some((
                has_begun,
                cold.opened_at,
                index,
            ))
        });
        candidates.min().map(|(.., index)| index)
    }

    /// Records that a channel has authenticated, so that it does not count as waiting any more.
    pub(super) fn settle_share(&mut self, channel: ChannelId) {
        if let Some(cold) = self.cold[channel.index()].as_mut() {
            self.shares.settled(cold);
        }
    }

    /// Removes and returns the channels that were displaced since the last call. The server must
    /// close them.
    pub fn take_displaced(&mut self) -> Vec<ChannelId> {
        std::mem::take(&mut self.shares.displaced)
    }

    /// Returns true if a principal may have one more session.
    pub(super) fn may_have_session(&self, principal: &Principal) -> bool {
        let (max, count) = (self.config.channels_max, self.authenticated_count);
        if count < max / 2 || !principal.is_one() {
            return true;
        }
        let is_its = |cold: &&ColdChannel| {
            let session = cold.session.as_ref();
            cold.credentials.is_some()
                && session.is_some_and(|session| session.principal.as_ref() == Some(principal))
        };
        let own = self.cold.iter().flatten().filter(is_its).count();
        fair_share(own as u32, count, max)
    }
}

/// The number of channels reserved for users of this host.
const LOCAL_CHANNELS: u32 = 64;
/// The number of channels reserved for the superuser of this host. They are part of the channels
/// that are reserved for users of this host.
const SUPERUSER_CHANNELS: u32 = 16;
/// The number of unauthenticated channels of each local user that peers on other hosts cannot
/// displace.
const UNAUTHENTICATED_KEPT: u32 = 8;
