//! Requests that name an object which the store must look for in its directories.
//!
//! Invariant: the reactor never looks itself. One search is under way at a time, on the pool, and
//! looks for all that was asked for when it began, so that nobody waits for longer than two of
//! them take, whatever others ask for. A batch waits as a whole, before any of it is accepted, and
//! batches of its session that come meanwhile wait behind it: they are accepted in the order in
//! which they came.

use std::sync::Arc;

use dafs_store::Store;
use dafs_types::{FileHandle, StateId};
use dafs_wire::messages::BatchSubmit;

use crate::pool::jobs::{Job, Pool};
use crate::reply_to::ReplyTo;
use crate::requests::handles;
use crate::requests::set_aside::{Asked, SetAside};

/// What waits for searches.
#[derive(Default)]
pub(super) struct Searching {
    /// Whether the store ever has to search.
    is_possible: bool,
    /// For the next search.
    waiting: Vec<Waiting>,
    /// What else the next one looks for.
    wanted: Vec<FileHandle>,
    /// For the one under way.
    current: Vec<Waiting>,
    is_under_way: bool,
}

/// A request that waits.
struct Waiting {
    to: ReplyTo,
    kept: SetAside,
    handles: Handles,
    is_batch: bool,
}

/// Mostly none, which takes no memory; of a batch as many as a message has room for.
type Handles = Vec<FileHandle>;

/// A search.
pub struct SearchJob {
    store: Arc<dyn Store>,
    handles: Vec<FileHandle>,
}

impl Searching {
    pub fn new(is_possible: bool) -> Self {
        Self { is_possible, ..Self::default() }
    }

    /// Whether the store ever has to search.
    #[inline]
    pub fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// Whether a request waits until an object that it names has been looked for. It must not
    /// have had any effect yet.
    pub fn awaits(
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

    /// The same of a batch, whose transfers under an open need no search.
    pub fn batch_awaits(
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

    /// Has an object looked for, though no request waits for it: whoever asked was told DELAY.
    #[cold]
    pub fn want(&mut self, store: &Arc<dyn Store>, pool: &mut Pool, handle: &FileHandle) {
        let has_room = self.is_possible && self.wanted.len() < WAITING_COUNT_MAX;
        if has_room && store.must_search(handle) {
            self.wanted.push(*handle);
            self.start(store, pool);
        }
    }

    /// Begins the next search, if there is anything to look for and none is under way.
    pub fn start(&mut self, store: &Arc<dyn Store>, pool: &mut Pool) {
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

    /// A search is over, or has failed: those that have waited for it.
    pub fn end(&mut self) -> Vec<(ReplyTo, SetAside)> {
        self.is_under_way = false;
        let ended = std::mem::take(&mut self.current);
        ended.into_iter().map(|it| (it.to, it.kept)).collect()
    }
}

impl SearchJob {
    /// Does it. Blocks.
    pub fn run(self) {
        self.store.search(&self.handles);
    }
}

/// Most requests that wait for one search.
const WAITING_COUNT_MAX: usize = 4096;
/// Most of one connection among them.
const WAITING_PER_CHANNEL_MAX: usize = 256;
