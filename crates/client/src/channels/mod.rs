//! Several channels of one session: sessions of the same client beside the first, over connections
//! of their own, that take transfers off it (`docs/decisions/0042-several-channels.md`).
//!
//! Invariant: transfers of one file go over one channel, in the order they were asked for. Only
//! transfers go over channels beside the first, and chains that open a file, look at it and close
//! it. Those channels have no opens, locks, delegations or handles that an application holds; they
//! come and go with the first.

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

use crate::ends::ReplyTicket;
use crate::ids::SessionKey;
use crate::opens::Opened;
use crate::sizes::LOOK_PERIOD;
use crate::work::QueuedCall;

/// What a session of the table is among others.
#[derive(Default)]
pub(crate) enum Role {
    /// It has one channel.
    #[default]
    Alone,
    /// The first of several; the application's handles are of it.
    First(Box<Channels>),
    /// A channel beside that one.
    Beside(Beside),
}

/// The channels of a session that has several, kept with the first of them.
#[derive(Default)]
pub(crate) struct Channels {
    /// Those beside the first, also those that have ended.
    beside: SmallVec<[SessionKey; 7]>,
    /// The channel of each part of all files; empty until all channels are there.
    parts: SmallVec<[SessionKey; 8]>,
    /// Requests that wait until transfers over other channels have ended, in their order.
    held: VecDeque<Held>,
    /// When to look next whether they may go out.
    look: Option<Duration>,
}

struct Held {
    call: QueuedCall,
    opened: Rc<Opened>,
}

/// A channel beside the first.
pub(crate) struct Beside {
    pub first: SessionKey,
    /// What the server is asked over the first channel, once this one does not come back.
    pub folding: Vec<FoldQuestion>,
}

/// What became of a request of a channel that does not come back.
pub(crate) struct FoldQuestion {
    /// Which of the requests that were cut off; `None` if it only parts the old connection.
    pub number: Option<usize>,
    /// `None` once it was answered.
    pub ticket: Option<ReplyTicket>,
}

impl Role {
    /// Whether transfers are spread.
    #[inline]
    pub fn has_channels(&self) -> bool {
        matches!(self, Self::First(_))
    }

    /// The channels beside this one, if it is the first.
    pub fn beside(&self) -> SmallVec<[SessionKey; 7]> {
        match self {
            Self::First(channels) => channels.beside.clone(),
            Self::Alone | Self::Beside(_) => SmallVec::new(),
        }
    }

    /// The first channel of one beside it.
    pub fn first(&self) -> Option<SessionKey> {
        match self {
            Self::Beside(beside) => Some(beside.first),
            Self::Alone | Self::First(_) => None,
        }
    }

    /// A channel is begun beside this one.
    pub fn add(&mut self, key: SessionKey) {
        if let Self::Alone = self {
            *self = Self::First(Box::default());
        }
        if let Self::First(channels) = self {
            channels.beside.push(key);
        }
    }

    /// A channel that was begun does not stand.
    pub fn remove(&mut self, key: SessionKey) {
        if let Self::First(channels) = self {
            channels.beside.retain(|other| *other != key);
        }
    }

    /// All channels are there that there will be: from now on transfers are spread over them.
    pub fn spread(&mut self, first: SessionKey) {
        let Self::First(channels) = self else { return };
        if channels.beside.is_empty() {
            *self = Self::Alone;
            return;
        }
        channels.parts = std::iter::once(first).chain(channels.beside.iter().copied()).collect();
    }

    /// What went over a channel goes over another from now on.
    pub fn replace(&mut self, key: SessionKey, by: SessionKey) {
        if let Self::First(channels) = self {
            let parts = channels.parts.iter_mut();
            parts.filter(|part| **part == key).for_each(|part| *part = by);
        }
    }

    /// Channels that transfers are spread over.
    pub fn count(&self) -> usize {
        let Self::First(channels) = self else { return 1 };
        let mut parts = channels.parts.clone();
        parts.sort_unstable();
        parts.dedup();
        parts.len().max(1)
    }

    /// The channels that what may go over any is spread over.
    pub fn parts(&self) -> &[SessionKey] {
        match self {
            Self::First(channels) => &channels.parts,
            Self::Alone | Self::Beside(_) => &[],
        }
    }

    /// The channel for transfers of a file; `None` while nothing is spread.
    pub fn channel_for(&self, file: &FileHandle) -> Option<SessionKey> {
        let Self::First(channels) = self else { return None };
        let part = ChannelCount::new(channels.parts.len())?.home_of(file);
        channels.parts.get(usize::from(part.0)).copied()
    }

    // ---- what must not overtake transfers --------------------------------------------

    /// Keeps a request while transfers of its open are under way beside, or another request of
    /// that open is kept.
    pub fn hold(&mut self, call: QueuedCall, opened: Rc<Opened>) -> Option<QueuedCall> {
        let Self::First(channels) = self else { return Some(call) };
        let is_kept = |held: &Held| Rc::ptr_eq(&held.opened, &opened);
        if !opened.is_moved_beside() && !channels.held.iter().any(is_kept) {
            return Some(call);
        }
        channels.held.push_back(Held { call, opened });
        channels.look = Some(coarse_now() + LOOK_PERIOD);
        None
    }

    /// Takes out the requests that wait for nothing any more.
    pub fn take_ready(&mut self) -> Vec<QueuedCall> {
        let Self::First(channels) = self else { return Vec::new() };
        if channels.held.is_empty() {
            return Vec::new();
        }
        let (ready, held): (VecDeque<Held>, _) =
            channels.held.drain(..).partition(|held| !held.opened.is_moved_beside());
        channels.look = (!held.is_empty()).then(|| coarse_now() + LOOK_PERIOD);
        channels.held = held;
        ready.into_iter().map(|held| held.call).collect()
    }

    /// Takes out all of them: the session has ended.
    pub fn take_held(&mut self) -> Vec<QueuedCall> {
        let Self::First(channels) = self else { return Vec::new() };
        channels.look = None;
        channels.held.drain(..).map(|held| held.call).collect()
    }

    /// Those that wait, to be changed.
    pub fn held_mut(&mut self) -> impl Iterator<Item = &mut QueuedCall> {
        let channels = match self {
            Self::First(channels) => Some(channels),
            Self::Alone | Self::Beside(_) => None,
        };
        channels
            .into_iter()
            .flat_map(|channels| channels.held.iter_mut().map(|held| &mut held.call))
    }

    /// Whether requests are kept that an application waits for.
    pub fn holds_any(&self) -> bool {
        matches!(self, Self::First(channels) if !channels.held.is_empty())
    }

    /// When it must be looked at.
    pub fn next_look(&self) -> Option<Duration> {
        match self {
            Self::First(channels) => channels.look,
            Self::Alone | Self::Beside(_) => None,
        }
    }
}
