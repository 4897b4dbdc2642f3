//! Inspection of a running server from other threads.
//!
//! Invariant: inspection does not slow the data path. The reactor makes a copy of its state at most
//! once every tenth of a second, and only if a thread waits for one.

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

/// The state of a server.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The statistics of the server.
    pub stats: ServerStats,
    /// The counters of all locks.
    pub lock_counters: LockCounters,
    /// True during the grace period, while clients reclaim what they held before a restart.
    pub is_in_grace: bool,
    /// The state of every session.
    pub sessions: Vec<SessionInspection>,
    /// The state of every lock.
    pub locks: Vec<LockView>,
    /// All requests that wait for locks.
    pub waiters: Vec<WaiterView>,
    /// The state of every fence.
    pub fences: Vec<FenceView>,
    /// The counters of all fences.
    pub fence_counters: FenceCounters,
    /// The number of request credits that may be granted in total, and the number granted.
    pub credits: (u32, u32),
    /// Statistics of each procedure that was called.
    pub procedures: Vec<ProcedureNumbers>,
    /// Statistics of each transport.
    pub transports: Vec<TransportNumbers>,
    /// The size of the data cache's arena in bytes.
    pub cache_bytes: u64,
    /// How long the server has run.
    pub uptime: Duration,
}

/// The state of one session.
#[derive(Clone, Debug)]
pub struct SessionInspection {
    /// The session as the protocol sees it.
    pub view: SessionView,
    /// Nanoseconds since the last request of the session.
    pub silent_ns: u64,
    /// The number of the reactor that the connection belongs to.
    pub reactor: usize,
    /// The transport of the connection.
    pub transport: TransportKind,
    /// The client's network address, if the transport has addresses.
    pub address: Option<IpAddr>,
    /// Counters of the session's traffic.
    pub traffic: Traffic,
}

/// The state of one fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceView {
    /// The fenced file; `None` if a whole file system is fenced.
    pub file: Option<FileView>,
    /// The handle of the fenced file or file system.
    pub handle: Box<[u8]>,
    /// The identities that have access; empty if all have.
    pub fence_ids: Vec<String>,
    /// The number of operations that a change of the list waits for; `None` without a change.
    pub waits_for: Option<usize>,
}

/// A file, named as well as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileView {
    /// The handle of the file; `None` if no client has the file open.
    pub handle: Option<FileHandle>,
    /// The path of the file, if the file system knows it.
    pub place: Option<String>,
}

/// The state of one lock.
#[derive(Clone, Debug)]
pub struct LockView {
    /// The file that is locked.
    pub file: FileView,
    /// The client that holds or held the lock.
    pub client: ClientId,
    /// The name of the client.
    pub client_name: Box<[u8]>,
    /// The lock owner within that client.
    pub owner: Box<[u8]>,
    /// The first locked byte.
    pub offset: u64,
    /// The number of locked bytes; all ones means up to the end of the file.
    pub length: u64,
    /// The kind of the lock.
    pub mode: LockMode,
    /// True for a lock with PERSIST.
    pub persist: bool,
    /// True for a lock with AUTORECOVERY.
    pub auto_recovery: bool,
    /// The condition of the lock.
    pub condition: LockCondition,
}

/// A request that waits for a lock.
#[derive(Clone, Debug)]
pub struct WaiterView {
    /// The file to be locked.
    pub file: FileView,
    /// The client of the request.
    pub client: ClientId,
    /// The lock owner within that client.
    pub owner: Box<[u8]>,
    /// The first byte to be locked.
    pub offset: u64,
    /// The number of bytes; all ones means up to the end of the file.
    pub length: u64,
    /// The kind of the lock.
    pub mode: LockMode,
    /// The clients that the request waits for.
    pub waits_for: Vec<ClientId>,
}

/// Inspects a server from another thread.
#[derive(Clone, Debug)]
pub struct Inspector {
    window: Arc<Window>,
    waker: Waker,
}

/// The meeting point of the reactor and the threads that inspect it.
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
    /// New followers that the reactor has not taken yet.
    followers: Vec<Follower>,
}

impl Inspector {
    pub(crate) fn new(window: Arc<Window>, waker: Waker) -> Self {
        Self { window, waker }
    }

    /// Returns a copy of the state made after this call began. `None` if the server makes none
    /// within `patience`, because it has ended or is stuck.
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

    /// Starts to follow requests. Begins within a tenth of a second; before [`Server::run`], with
    /// the first request. `room` is the number of records that may wait to be taken.
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
    /// Takes the new followers. Also returns true if a thread waits for a copy.
    pub(crate) fn take_followers(&self) -> (Vec<Follower>, bool) {
        let mut state = self.lock();
        (std::mem::take(&mut state.followers), state.asked != state.answered)
    }

    /// Publishes a copy for every thread that asked before the copy was started.
    pub(crate) fn show(&self, copy: impl FnOnce() -> Inspection) {
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
