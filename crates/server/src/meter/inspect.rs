//! A look into a running server, for people and their tools.
//!
//! Invariant: looking costs the data path nothing: the reactor makes a copy when it has a
//! tenth of a second behind it, and somebody waits for one.

pub(crate) mod copy;

use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dafs_dat::Waker;
use dafs_filer::FenceCounters;
use dafs_filer::locks::{LockCondition, LockCounters, LockMode};
use dafs_sessions::SessionView;
use dafs_types::{ClientId, FileHandle};

use crate::access::authorize::TransportKind;
use crate::meter::follow::{self, Followed, Follower, Selection};
use crate::meter::stats::ServerStats;
use crate::meter::{ProcedureNumbers, Traffic, TransportNumbers};

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
    /// Bytes of the data cache's arena.
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
    /// The number of the reactor that its connection belongs to.
    pub reactor: usize,
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
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones to the end.
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
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones to the end.
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
    /// Who wants to follow requests since this was last asked, and whether somebody waits for a
    /// copy.
    pub fn take_followers(&self) -> (Vec<Follower>, bool) {
        let mut state = self.lock();
        (std::mem::take(&mut state.followers), state.asked != state.answered)
    }

    /// Shows a copy to everybody who has asked before it was begun.
    pub fn show(&self, copy: impl FnOnce() -> Inspection) {
        let asked = self.lock().asked;
        let copy = Arc::new(copy());
        let mut state = self.lock();
        state.answered = asked;
        state.copy = Some(copy);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Look> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
