//! Several channels for one session: further sessions of the same client, over their own
//! connections, that carry some of the transfers (`docs/decisions/0042-several-channels.md`).
//!
//! Invariants:
//!
//! - Transfers of one file go over one channel, in the order they were submitted.
//! - Only two things go over additional channels: transfers, and chains that open a file, read it
//!   and close it.
//! - Additional channels have no opens, locks, delegations or handles that belong to the
//!   application, and end no later than the first channel.

mod chains;
pub(crate) mod opening;
mod spread;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_types::FileHandle;
use dafs_types::placement::ChannelCount;
use smallvec::SmallVec;

use crate::ids::SessionKey;
use crate::opens::Opened;
use crate::result_sinks::ReplyTicket;
use crate::sizes::LOOK_PERIOD;
use crate::work::QueuedCall;

/// The role of a protocol session among the channels of the application's session: the only
/// channel, the first channel, or an additional one.
#[derive(Default)]
pub(crate) enum Role {
    /// The session has only one channel.
    #[default]
    Alone,
    /// The first of several channels; it owns the application's handles.
    First(Box<Channels>),
    /// The session is an additional channel of another session.
    Additional(AdditionalChannel),
}

/// The channels of a session that has several; the first channel owns this list.
#[derive(Default)]
pub(crate) struct Channels {
    /// The keys of the additional channels, including channels that have ended.
    additional: SmallVec<[SessionKey; 7]>,
    /// The channel for each hash class of files: the hash of a file's handle selects the channel of
    /// its transfers. Empty until all channels are established.
    parts: SmallVec<[SessionKey; 8]>,
    /// The requests that wait until transfers on other channels have ended, in the order of
    /// submission.
    held: VecDeque<Held>,
    /// The next time to check whether held requests may be sent; `None` if there are none.
    look: Option<Duration>,
}

struct Held {
    call: QueuedCall,
    opened: Rc<Opened>,
}

/// The state of an additional channel.
pub(crate) struct AdditionalChannel {
    pub first: SessionKey,
    /// If this channel cannot reconnect: the queries about its interrupted requests, which are sent
    /// to the server over the first channel.
    pub questions: Vec<TakeoverQuestion>,
}

/// A query to the server about the outcome of one request of a channel that cannot reconnect.
pub(crate) struct TakeoverQuestion {
    /// The index of the interrupted request; `None` if the only purpose of the query is to close
    /// the old connection.
    pub number: Option<usize>,
    /// The ticket for the reply; `None` once the server has replied.
    pub ticket: Option<ReplyTicket>,
}

impl Role {
    /// Returns true if transfers are spread over several channels.
    #[inline]
    pub(crate) fn has_channels(&self) -> bool {
        matches!(self, Self::First(_))
    }

    /// Returns the additional channels, if this is the first channel.
    pub(crate) fn additional(&self) -> SmallVec<[SessionKey; 7]> {
        match self {
            Self::First(channels) => channels.additional.clone(),
            Self::Alone | Self::Additional(_) => SmallVec::new(),
        }
    }

    /// Returns the first channel, if this is an additional channel.
    pub(crate) fn first(&self) -> Option<SessionKey> {
        match self {
            Self::Additional(additional) => Some(additional.first),
            Self::Alone | Self::First(_) => None,
        }
    }

    /// Adds a channel that is being connected.
    pub(crate) fn add(&mut self, key: SessionKey) {
        if let Self::Alone = self {
            *self = Self::First(Box::default());
        }
        if let Self::First(channels) = self {
            channels.additional.push(key);
        }
    }

    /// Removes a channel that could not be connected.
    pub(crate) fn remove(&mut self, key: SessionKey) {
        if let Self::First(channels) = self {
            channels.additional.retain(|other| *other != key);
        }
    }

    /// Starts to spread transfers over the channels, all of which are now established.
    pub(crate) fn spread(&mut self, first: SessionKey) {
        let Self::First(channels) = self else { return };
        if channels.additional.is_empty() {
            *self = Self::Alone;
            return;
        }
        channels.parts =
            std::iter::once(first).chain(channels.additional.iter().copied()).collect();
    }

    /// From now on, uses the channel `by` for all files that used the channel `key`.
    pub(crate) fn replace(&mut self, key: SessionKey, by: SessionKey) {
        if let Self::First(channels) = self {
            let parts = channels.parts.iter_mut();
            parts.filter(|part| **part == key).for_each(|part| *part = by);
        }
    }

    /// Returns the number of channels over which transfers are spread.
    pub(crate) fn count(&self) -> usize {
        let Self::First(channels) = self else { return 1 };
        let mut parts = channels.parts.clone();
        parts.sort_unstable();
        parts.dedup();
        parts.len().max(1)
    }

    /// Returns the channels for requests that need not keep the order of a file's transfers.
    pub(crate) fn parts(&self) -> &[SessionKey] {
        match self {
            Self::First(channels) => &channels.parts,
            Self::Alone | Self::Additional(_) => &[],
        }
    }

    /// Returns the channel for transfers of a file; `None` while transfers are not spread.
    pub(crate) fn channel_for(&self, file: &FileHandle) -> Option<SessionKey> {
        let Self::First(channels) = self else { return None };
        let part = ChannelCount::new(channels.parts.len())?.home_of(file);
        channels.parts.get(usize::from(part.0)).copied()
    }

    // ---- requests that must not overtake transfers -----------------------------------

    /// Holds a request back if transfers of its open are in flight on other channels, or if an
    /// earlier request of that open is held. Returns a request that need not wait.
    pub(crate) fn hold(&mut self, call: QueuedCall, opened: Rc<Opened>) -> Option<QueuedCall> {
        let Self::First(channels) = self else { return Some(call) };
        let is_kept = |held: &Held| Rc::ptr_eq(&held.opened, &opened);
        if !opened.is_moved_elsewhere() && !channels.held.iter().any(is_kept) {
            return Some(call);
        }
        channels.held.push_back(Held { call, opened });
        channels.look = Some(coarse_now() + LOOK_PERIOD);
        None
    }

    /// Removes and returns the held requests that no longer have to wait for a transfer.
    pub(crate) fn take_ready(&mut self) -> Vec<QueuedCall> {
        let Self::First(channels) = self else { return Vec::new() };
        if channels.held.is_empty() {
            return Vec::new();
        }
        let (ready, held): (VecDeque<Held>, _) =
            channels.held.drain(..).partition(|held| !held.opened.is_moved_elsewhere());
        channels.look = (!held.is_empty()).then(|| coarse_now() + LOOK_PERIOD);
        channels.held = held;
        ready.into_iter().map(|held| held.call).collect()
    }

    /// Removes and returns all held requests, because the session has ended.
    pub(crate) fn take_held(&mut self) -> Vec<QueuedCall> {
        let Self::First(channels) = self else { return Vec::new() };
        channels.look = None;
        channels.held.drain(..).map(|held| held.call).collect()
    }

    /// Iterates mutably over the held requests.
    pub(crate) fn held_mut(&mut self) -> impl Iterator<Item = &mut QueuedCall> {
        let channels = match self {
            Self::First(channels) => Some(channels),
            Self::Alone | Self::Additional(_) => None,
        };
        channels
            .into_iter()
            .flat_map(|channels| channels.held.iter_mut().map(|held| &mut held.call))
    }

    /// Returns true if any request is held.
    pub(crate) fn holds_any(&self) -> bool {
        matches!(self, Self::First(channels) if !channels.held.is_empty())
    }

    /// Returns the next time to check the held requests.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        match self {
            Self::First(channels) => channels.look,
            Self::Alone | Self::Additional(_) => None,
        }
    }
}
