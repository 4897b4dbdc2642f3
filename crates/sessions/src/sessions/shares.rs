//! Who may have how much of what the server has a bound for.
//!
//! Each holder (an address, a user of this host, or a principal) may have a [`fair_share`]. The
//! last places are for this host, and the very last for its superuser. Of channels that have not
//! authenticated, which cost their holders nothing, the oldest of whoever has most gives way to a
//! new one.
//!
//! Invariant: [`Shares`] agrees with the open channels; nothing of a client that has logged in is
//! taken away for another.

use std::collections::BTreeMap;

use dafs_filer::{Holder, Principal, fair_share};

use super::{ColdChannel, Phase, Sessions};
use crate::{ChannelId, ChannelRefusal};

/// What a holder has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    channels: u32,
    /// Those of them that have not authenticated, and have not given way.
    waiting: u32,
}

/// What all holders have now.
#[derive(Debug, Default)]
pub(super) struct Shares {
    held: BTreeMap<Holder, Held>,
    waiting: u32,
    /// Channels that have given way, not yet told of.
    displaced: Vec<ChannelId>,
}

impl Shares {
    fn of(&self, holder: Holder) -> Held {
        self.held.get(&holder).copied().unwrap_or_default()
    }

    /// A channel has opened.
    pub fn opened(&mut self, holder: Holder) {
        let held = self.held.entry(holder).or_default();
        held.channels += 1;
        held.waiting += 1;
        self.waiting += 1;
    }

    /// A channel has authenticated, or gives way.
    pub fn settled(&mut self, cold: &mut ColdChannel) {
        if std::mem::take(&mut cold.is_waiting) {
            self.waiting -= 1;
            if let Some(held) = self.held.get_mut(&cold.holder) {
                held.waiting -= 1;
            }
        }
    }

    /// A channel has closed.
    pub fn closed(&mut self, cold: &mut ColdChannel) {
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
    /// Whether a holder may have one more channel.
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

    /// Makes room for a channel that has not authenticated, where another may give way.
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

    /// The oldest channel that has not authenticated, of whoever has most of them.
    fn victim(&self, holder: Holder) -> Option<usize> {
        let may_be = |other: Holder, waiting: u32| match other {
            _ if other == holder => true,
            Holder::User(0) | Holder::Elsewhere => false,
            // Who has few keeps them against those who are further away.
            Holder::User(_) => holder.is_local() || waiting > FEW,
            Holder::Address(_) => holder != Holder::Elsewhere,
        };
        let counts = self.shares.held.iter().map(|(other, held)| (*other, held.waiting));
        let most = counts.filter(|(other, waiting)| may_be(*other, *waiting)).map(|(_, n)| n).max();
        let most = most.filter(|most| *most > 0)?;
        let candidates = self.cold.iter().enumerate().filter_map(|(index, cold)| {
            let cold = cold.as_ref().filter(|cold| cold.is_waiting)?;
            let waiting = self.shares.of(cold.holder).waiting;
            // Whoever has begun to log in comes last.
            let has_begun = self.hot[index].phase != Phase::Opened;
            (waiting == most && may_be(cold.holder, waiting)).then_some((
                has_begun,
                cold.opened_at,
                index,
            ))
        });
        candidates.min().map(|(.., index)| index)
    }

    /// A channel has authenticated.
    pub(super) fn settle_share(&mut self, channel: ChannelId) {
        if let Some(cold) = self.cold[channel.index()].as_mut() {
            self.shares.settled(cold);
        }
    }

    /// Channels that have given way to others since the last call: the driver closes them.
    pub fn take_displaced(&mut self) -> Vec<ChannelId> {
        std::mem::take(&mut self.shares.displaced)
    }

    /// Whether a principal may have one more session.
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

/// The last channels are for this host, and the very last for its superuser.
const LOCAL_CHANNELS: u32 = 64;
const SUPERUSER_CHANNELS: u32 = 16;
/// So many channels that have not authenticated a local user keeps against other hosts.
const FEW: u32 = 8;
