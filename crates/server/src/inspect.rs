//! A look into a running server, for people and their tools.
//!
//! Invariant: looking costs the data path nothing: the reactor makes a copy when it has a
//! tenth of a second behind it, and somebody waits for one.

use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dafs_dat::Waker;
use dafs_filer::locks::{LockCondition, LockCounters, LockMode};
use dafs_filer::{FenceCounters, FenceInformation, FencedObject, SessionView};
use dafs_types::{ClientId, FileHandle, Moment, QuickMap, SessionId};

use crate::authorize::TransportKind;
use crate::channel::Channel;
use crate::follow::{self, Followed, Follower, Selection};
use crate::ledger::locked_file_of;
use crate::meter::{ProcedureNumbers, Traffic, TransportNumbers};
use crate::reactor::Reactor;
use crate::server::ServerStats;

/// What a server is about.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its numbers.
    pub stats: ServerStats,
    /// Numbers about locks.
    pub lock_counters: LockCounters,
    /// Clients are taking back what they held before a restart.
    pub is_in_grace: bool,
    /// Every session.
    pub sessions: Vec<SessionInspection>,
    /// Every lock.
    pub locks: Vec<LockView>,
    /// Every request that waits for one.
    pub waiters: Vec<WaiterView>,
    /// Every fence.
    pub fences: Vec<FenceView>,
    /// Numbers about fences.
    pub fence_counters: FenceCounters,
    /// Requests' credits that may be given out in all, and that are.
    pub credits: (u32, u32),
    /// What every procedure that was asked for has come to.
    pub procedures: Vec<ProcedureNumbers>,
    /// What came over each transport.
    pub transports: Vec<TransportNumbers>,
    /// Octets of the data cache's arena.
    pub cache_bytes: u64,
    /// How long the server has run.
    pub uptime: Duration,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionInspection {
    /// As the protocol sees it.
    pub view: SessionView,
    /// Nanoseconds since it was heard of.
    pub silent_ns: u64,
    /// The way it came.
    pub transport: TransportKind,
    /// Its address on a network, if it came by one.
    pub address: Option<IpAddr>,
    /// What has come over it.
    pub traffic: Traffic,
}

/// A fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceView {
    /// The file it stands around; `None` for a whole file system.
    pub file: Option<FileView>,
    /// Handle of what it stands around: of a file, or of a file system.
    pub handle: Box<[u8]>,
    /// Who may enter; empty if everybody may.
    pub fence_ids: Vec<String>,
    /// Operations that a change of the list waits for, if there is one.
    pub waits_for: Option<usize>,
}

/// A file, as well as it can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileView {
    /// Its handle, unless nobody has it open.
    pub handle: Option<FileHandle>,
    /// Where it lies, if the file system can tell.
    pub place: Option<String>,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct LockView {
    /// The file.
    pub file: FileView,
    /// Client of its owner, or of who had it.
    pub client: ClientId,
    /// The client's name.
    pub client_name: Box<[u8]>,
    /// Its owner, or who had it.
    pub owner: Box<[u8]>,
    /// First octet.
    pub offset: u64,
    /// Octets; all ones to the end.
    pub length: u64,
    /// Its kind.
    pub mode: LockMode,
    /// PERSIST.
    pub persist: bool,
    /// AUTORECOVERY.
    pub auto_recovery: bool,
    /// Where it stands.
    pub condition: LockCondition,
}

/// A request that waits for a lock.
#[derive(Clone, Debug)]
pub struct WaiterView {
    /// The file.
    pub file: FileView,
    /// Client of its owner.
    pub client: ClientId,
    /// Its owner.
    pub owner: Box<[u8]>,
    /// First octet.
    pub offset: u64,
    /// Octets; all ones to the end.
    pub length: u64,
    /// Its kind.
    pub mode: LockMode,
    /// Clients it waits for.
    pub waits_for: Vec<ClientId>,
}

/// Looks into a server from another thread.
#[derive(Clone, Debug)]
pub struct Inspector {
    window: Arc<Window>,
    waker: Waker,
}

/// Where a copy is asked for and left.
#[derive(Debug, Default)]
pub(crate) struct Window {
    state: Mutex<Look>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Look {
    asked: u64,
    answered: u64,
    copy: Option<Arc<Inspection>>,
    /// Who wants to follow requests, and is not known yet.
    followers: Vec<Follower>,
}

impl Inspector {
    pub(crate) fn new(window: Arc<Window>, waker: Waker) -> Self {
        Self { window, waker }
    }

    /// A copy made after this call began; `None` if the server makes none within `patience`,
    /// because it has ended or is stuck.
    #[must_use]
    pub fn look(&self, patience: Duration) -> Option<Arc<Inspection>> {
        let mut state = self.window.lock();
        state.asked += 1;
        let mine = state.asked;
        self.waker.wake();
        let waited =
            self.window.changed.wait_timeout_while(state, patience, |state| state.answered < mine);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { None } else { state.copy.clone() }
    }

    /// Has requests followed from a tenth of a second after this on; before [`Server::run`]
    /// from the first. There is room for so many records that nobody has taken.
    ///
    /// [`Server::run`]: crate::Server::run
    #[must_use]
    pub fn follow(&self, selection: Selection, room: usize) -> Followed {
        let (follower, followed) = follow::follow(selection, room);
        self.window.lock().followers.push(follower);
        self.waker.wake();
        followed
    }
}

impl Window {
    fn lock(&self) -> std::sync::MutexGuard<'_, Look> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reactor {
    /// Makes a copy for whoever waits for one.
    pub(crate) fn show_itself(&mut self) {
        let asked = {
            let mut state = self.window.lock();
            state.followers.drain(..).for_each(|follower| self.meter.be_followed(follower));
            if state.asked == state.answered {
                return;
            }
            state.asked
        };
        let copy = Arc::new(self.inspection());
        let mut state = self.window.lock();
        state.answered = asked;
        state.copy = Some(copy);
        drop(state);
        self.window.changed.notify_all();
    }

    fn inspection(&self) -> Inspection {
        let locks = self.filer.locks().map(|lock| LockView {
            file: self.file_view(lock.file),
            client: lock.client,
            client_name: lock.client_name.into(),
            owner: lock.owner.into(),
            offset: lock.range.first(),
            length: lock.range.length(),
            mode: lock.mode,
            persist: lock.attributes.persist,
            auto_recovery: lock.attributes.auto_recovery,
            condition: lock.condition,
        });
        let waiters = self.filer.lock_waiters().map(|waiter| WaiterView {
            file: self.file_view(waiter.file),
            client: waiter.client,
            owner: waiter.owner.into(),
            offset: waiter.range.first(),
            length: waiter.range.length(),
            mode: waiter.mode,
            waits_for: waiter.waits_for.iter().map(|(client, _)| *client).collect(),
        });
        let stats = self.stats();
        let live = self.channels.iter().map(|channel| (channel.peer.transport, channel.traffic));
        Inspection {
            stats,
            lock_counters: self.filer.lock_counters(),
            is_in_grace: self.filer.is_in_grace(),
            sessions: self.sessions(),
            locks: locks.collect(),
            waiters: waiters.collect(),
            fences: self.filer.fences().map(|fence| self.fence_view(&fence)).collect(),
            fence_counters: self.filer.fence_counters(),
            credits: (self.filer.config().credits_budget, stats.filer.credits),
            procedures: self.meter.procedures(),
            transports: self.meter.transports(live),
            cache_bytes: self.cache.arena().length() as u64,
            uptime: self.now.since(Moment(0)),
        }
    }

    fn sessions(&self) -> Vec<SessionInspection> {
        let id_of = |channel: &Channel| self.filer.ids(channel.id).map(|(session, _)| session);
        let channels = self.channels.iter().filter(|channel| channel.back.is_none());
        let channels: QuickMap<SessionId, &Channel> =
            channels.filter_map(|channel| Some((id_of(channel)?, channel))).collect();
        let inspect = |view: SessionView| {
            let channel = channels.get(&view.credits.session)?;
            let silent = self.now.since(view.last_heard).as_nanos();
            Some(SessionInspection {
                silent_ns: u64::try_from(silent).unwrap_or(u64::MAX),
                transport: channel.peer.transport,
                address: channel.peer.address,
                traffic: channel.traffic,
                view,
            })
        };
        self.filer.session_views().filter_map(inspect).collect()
    }

    fn fence_view(&self, fence: &FenceInformation<'_>) -> FenceView {
        let (file, handle): (_, Box<[u8]>) = match &fence.object {
            FencedObject::File(handle) => {
                let place = self.opened.file(handle).and_then(|file| file.place());
                (Some(FileView { handle: Some(*handle), place }), handle.0.into())
            }
            FencedObject::FileSystem(handle) => (None, handle.0.into()),
        };
        FenceView {
            file,
            handle,
            fence_ids: fence.fence_ids.iter().map(|id| id.as_str().to_owned()).collect(),
            waits_for: fence.change.map(|(_, waits_for)| waits_for),
        }
    }

    fn file_view(&self, key: dafs_filer::FileKey) -> FileView {
        let found = locked_file_of(&self.opened, self.ledger.as_ref(), key);
        let place = found.as_ref().and_then(|(_, file)| file.place());
        FileView { handle: found.map(|(handle, _)| handle), place }
    }
}
