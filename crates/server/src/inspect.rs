//! A look into a running server, for people and their tools.
//!
//! Invariant: looking costs the data path nothing: the reactor makes a copy when it has a
//! tenth of a second behind it, and somebody waits for one.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dafs_dat::Waker;
use dafs_filer::SessionView;
use dafs_filer::locks::{LockCondition, LockCounters, LockMode};
use dafs_types::{ClientId, FileHandle};

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
    /// Every session, with the nanoseconds since it was heard of.
    pub sessions: Vec<(SessionView, u64)>,
    /// Every lock.
    pub locks: Vec<LockView>,
    /// Every request that waits for one.
    pub waiters: Vec<WaiterView>,
    /// Octets of requests' credits that may be given out in all, and that are.
    pub credits: (u32, u32),
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
            let state = self.window.lock();
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
        let silence = |view: SessionView| {
            let silent = self.now.since(view.last_heard).as_nanos();
            (view, u64::try_from(silent).unwrap_or(u64::MAX))
        };
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
        Inspection {
            stats,
            lock_counters: self.filer.lock_counters(),
            is_in_grace: self.filer.is_in_grace(),
            sessions: self.filer.session_views().map(silence).collect(),
            locks: locks.collect(),
            waiters: waiters.collect(),
            credits: (self.filer.config().credits_budget, stats.filer.credits),
        }
    }

    fn file_view(&self, key: dafs_filer::FileKey) -> FileView {
        let found = self.locked_file_of(key);
        let place = found.as_ref().and_then(|(_, file)| file.place());
        FileView { handle: found.map(|(handle, _)| handle), place }
    }
}
