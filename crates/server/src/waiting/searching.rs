//! Requests that name an object for which the store must search its directories.
//!
//! Invariants:
//! - The reactor itself never searches. One search at a time runs on the pool. It searches for all
//!   objects that were requested before it started, so no request waits for more than two searches.
//! - A batch waits as a whole before any of its requests is accepted. Later batches of its session
//!   wait too, so batches are accepted in order of arrival.

use std::sync::Arc;

use dafs_store::Store;
use dafs_types::{FileHandle, StateId};
use dafs_wire::messages::BatchSubmit;

use crate::pool::jobs::{Job, Pool};
use crate::reply_to::ReplyTo;
use crate::requests::handles;
use crate::requests::set_aside::{Asked, SetAside};

/// The requests that wait for searches.
#[derive(Default)]
pub(super) struct Searching {
    /// True if the store may have to search for objects.
    is_possible: bool,
    /// Requests that wait for the next search.
    waiting: Vec<Waiting>,
    /// Objects to find in the next search although no request waits for them.
    wanted: Vec<FileHandle>,
    /// Requests that wait for the current search.
    current: Vec<Waiting>,
    is_under_way: bool,
}

/// A request that waits for a search.
struct Waiting {
    to: ReplyTo,
    kept: SetAside,
    handles: Handles,
    is_batch: bool,
}

/// A list of handles. It is usually empty and then takes no memory on the heap. A batch may have as
/// many handles as fit into a message.
type Handles = Vec<FileHandle>;

/// A search for objects, executed by the pool.
pub(crate) struct SearchJob {
    store: Arc<dyn Store>,
    handles: Vec<FileHandle>,
}

impl Searching {
    pub(super) fn new(is_possible: bool) -> Self {
        Self { is_possible, ..Self::default() }
    }

    /// Returns true if the store may have to search for objects.
    #[inline]
    pub(super) fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// Returns true if the request was queued until the search for an object that it names ends.
    /// The request must not have had any effect yet.
    pub(super) fn awaits(
        &mut self,
        (store, pool): (&Arc<dyn Store>, &mut Pool),
        to: ReplyTo,
        asked: Asked<'_>,
        named: [Option<&FileHandle>; 2],
    ) -> bool {
        let named = named.into_iter().flatten().copied();
        let handles: Handles = named.filter(|handle| store.must_search(handle)).collect();
        !handles.is_empty() && self.wait((store, pool), to, asked, handles, false)
    }

    /// Returns true if a batch was queued until a search ends. Transfers that use an open file need
    /// no search.
    pub(super) fn batch_awaits(
        &mut self,
        (store, pool): (&Arc<dyn Store>, &mut Pool),
        to: ReplyTo,
        batch: &BatchSubmit<'_>,
        message: &[u8],
    ) -> bool {
        let named = batch.requests.iter().filter(|request| request.state == StateId::ANONYMOUS);
        let present = named.map(|request| {
            let mut handle = request.file;
            handles::renew(&**store, &mut handle);
            handle
        });
        let handles: Handles = present.filter(|handle| store.must_search(handle)).collect();
        let mut waiting = self.current.iter().chain(&self.waiting);
        let is_behind = waiting.any(|it| it.is_batch && it.to.endpoint == to.endpoint);
        let asked = Asked::Message(message);
        (is_behind || !handles.is_empty()) && self.wait((store, pool), to, asked, handles, true)
    }

    #[cold]
    fn wait(
        &mut self,
        (store, pool): (&Arc<dyn Store>, &mut Pool),
        to: ReplyTo,
        asked: Asked<'_>,
        handles: Handles,
        is_batch: bool,
    ) -> bool {
        let of_it = self.waiting.iter().filter(|it| it.to.endpoint == to.endpoint).count();
        if self.waiting.len() >= WAITING_COUNT_MAX || of_it >= WAITING_PER_CHANNEL_MAX {
            return false;
        }
        self.waiting.push(Waiting { to, kept: asked.set_aside(), handles, is_batch });
        self.start(store, pool);
        true
    }

    /// Starts the search for an object whose request got the reply DELAY, so that a retry finds it.
    #[cold]
    pub(super) fn want(&mut self, store: &Arc<dyn Store>, pool: &mut Pool, handle: &FileHandle) {
        let has_room = self.is_possible && self.wanted.len() < WAITING_COUNT_MAX;
        if has_room && store.must_search(handle) {
            self.wanted.push(*handle);
            self.start(store, pool);
        }
    }

    /// Starts the next search, if there are objects to search for and no search is running.
    pub(super) fn start(&mut self, store: &Arc<dyn Store>, pool: &mut Pool) {
        let is_idle = self.waiting.is_empty() && self.wanted.is_empty();
        if self.is_under_way || is_idle {
            return;
        }
        self.is_under_way = true;
        self.current = std::mem::take(&mut self.waiting);
        let mut handles = std::mem::take(&mut self.wanted);
        handles.extend(self.current.iter().flat_map(|it| it.handles.iter().copied()));
        handles.sort_unstable_by_key(|handle| handle.0);
        handles.dedup();
        pool.submit(Job::Search(SearchJob { store: store.clone(), handles }));
    }

    /// Ends a search, whether it succeeded or failed. Returns the requests that waited for it.
    pub(super) fn end(&mut self) -> Vec<(ReplyTo, SetAside)> {
        self.is_under_way = false;
        let ended = std::mem::take(&mut self.current);
        ended.into_iter().map(|it| (it.to, it.kept)).collect()
    }
}

impl SearchJob {
    /// Runs the search. This blocks.
    pub(crate) fn run(self) {
        self.store.search(&self.handles);
    }
}

/// The maximum number of requests that wait for one search.
const WAITING_COUNT_MAX: usize = 4096;
/// The maximum number of requests of one connection that wait for one search.
const WAITING_PER_CHANNEL_MAX: usize = 256;
