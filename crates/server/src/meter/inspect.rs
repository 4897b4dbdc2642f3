//! Inspection of a running server from other threads.
//!
//! Invariant: inspection does not slow down reads and writes. The reactor copies its state at most
//! once every tenth of a second, and only if a thread waits for a copy.

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
use crate::meter::nfs::NfsNumbers;
use crate::meter::stats::ServerStats;
use crate::meter::{ProcedureNumbers, Traffic, TransportNumbers};

/// A copy of a server's state at one moment.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The statistics of the whole server.
    pub stats: ServerStats,
    /// The counters of lock requests since the start.
    pub lock_counters: LockCounters,
    /// True during the grace period, in which clients reclaim the opens and locks that they held
    /// before a restart.
    pub is_in_grace: bool,
    /// The state of every open session.
    pub sessions: Vec<SessionInspection>,
    /// All locks that are held.
    pub locks: Vec<LockView>,
    /// All requests that wait for locks.
    pub waiters: Vec<WaiterView>,
    /// The fencing lists of files and file systems.
    pub fences: Vec<FenceView>,
    /// The counters of fencing changes since the start.
    pub fence_counters: FenceCounters,
    /// The limit on the number of request credits in total, and the number granted now.
    pub credits: (u32, u32),
    /// The statistics of each procedure that has been called.
    pub procedures: Vec<ProcedureNumbers>,
    /// The statistics of each transport.
    pub transports: Vec<TransportNumbers>,
    /// The statistics of NFS clients.
    pub nfs: NfsNumbers,
    /// The size of the data cache's arena in bytes.
    pub cache_bytes: u64,
    /// The time since the start of the server.
    pub uptime: Duration,
}

/// The state of one session.
#[derive(Clone, Debug)]
pub struct SessionInspection {
    /// The protocol's state of the session: its client, credits and limits.
    pub view: SessionView,
    /// The time since the session's last request, in nanoseconds.
    pub silent_ns: u64,
    /// The number of the reactor that owns the session's connection.
    pub reactor: usize,
    /// The transport of the session's connection.
    pub transport: TransportKind,
    /// The client's network address. `None` for shared memory.
    pub address: Option<IpAddr>,
    /// The counters of the traffic over the session.
    pub traffic: Traffic,
}

/// The state of one fencing list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceView {
    /// The fenced file. `None` if a whole file system is fenced.
    pub file: Option<FileView>,
    /// The handle of the fenced file or file system.
    pub handle: Box<[u8]>,
    /// The fence identities that have access. If the list is empty, every client has access.
    pub fence_ids: Vec<String>,
    /// The number of operations that the current change of the list waits for. `None` if there is
    /// no change in progress.
    pub waits_for: Option<usize>,
}

/// A file, identified by its handle and its path. One of them may be unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileView {
    /// The handle of the file. `None` if no client has the file open.
    pub handle: Option<FileHandle>,
    /// The path of the file. `None` if the file system does not know it.
    pub place: Option<String>,
}

/// The state of one lock.
#[derive(Clone, Debug)]
pub struct LockView {
    /// The file that is locked.
    pub file: FileView,
    /// The client that holds the lock, or held it before it failed.
    pub client: ClientId,
    /// The name under which the client identifies itself.
    pub client_name: Box<[u8]>,
    /// The lock owner within that client, as chosen by the client.
    pub owner: Box<[u8]>,
    /// The offset of the first locked byte.
    pub offset: u64,
    /// The number of locked bytes; `u64::MAX` means up to the end of the file.
    pub length: u64,
    /// The kind of the lock: shared or exclusive.
    pub mode: LockMode,
    /// True if the client requested the lock with PERSIST, so that the lock becomes broken, and
    /// does not vanish, if its owner fails.
    pub persist: bool,
    /// True if the client requested the lock with AUTORECOVERY, so that changes under the lock are
    /// undone if the client fails.
    pub auto_recovery: bool,
    /// The condition of the lock: held, unclaimed, breakable, broken, or rolling back.
    pub condition: LockCondition,
}

/// A request that waits for a lock.
#[derive(Clone, Debug)]
pub struct WaiterView {
    /// The file whose bytes are to be locked.
    pub file: FileView,
    /// The client that sent the request.
    pub client: ClientId,
    /// The lock owner within that client, as chosen by the client.
    pub owner: Box<[u8]>,
    /// The offset of the first byte to be locked.
    pub offset: u64,
    /// The number of bytes to lock; `u64::MAX` means up to the end of the file.
    pub length: u64,
    /// The kind of the requested lock: shared or exclusive.
    pub mode: LockMode,
    /// The clients that this request waits for, because they hold conflicting locks or have
    /// requested them earlier.
    pub waits_for: Vec<ClientId>,
}

/// A handle with which another thread inspects the server.
#[derive(Clone, Debug)]
pub struct Inspector {
    window: Arc<Window>,
    waker: Waker,
}

/// The object through which the reactor gives copies of its state to the threads that inspect it.
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
    /// The followers (receivers of records of single requests) that inspecting threads have created
    /// and the reactor has not added yet.
    followers: Vec<Follower>,
}

impl Inspector {
    pub(crate) fn new(window: Arc<Window>, waker: Waker) -> Self {
        Self { window, waker }
    }

    /// Returns a copy of the server's state that was made after this call began. Returns `None` if
    /// there is no copy within `patience`, because the server has ended or is stuck.
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

    /// Starts to report requests that match `selection`. The first reports come within a tenth of a
    /// second, or with the first request if [`Server::run`] was not called yet. At most `room`
    /// records wait in the queue; further records are dropped.
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
    /// Removes and returns the new followers. The bool is true if a thread waits for a copy.
    pub(crate) fn take_followers(&self) -> (Vec<Follower>, bool) {
        let mut state = self.lock();
        (std::mem::take(&mut state.followers), state.asked != state.answered)
    }

    /// Gives a copy to every thread that had asked for one when the copying began.
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
