//! Requests that name an object which the store must look for in its directories.
//!
//! Invariant: the reactor never looks itself. One search is under way at a time, on the pool, and
//! looks for all that was asked for when it began, so that nobody waits for longer than two of
//! them take, whatever others ask for. A batch waits as a whole, before any of it is accepted, and
//! batches of its session that come meanwhile wait behind it: they are accepted in the order in
//! which they came.

mod waiting;

use std::sync::Arc;

use dafs_store::Store;
use dafs_types::FileHandle;

use crate::reply_to::ReplyTo;
use crate::set_aside::SetAside;

/// What waits for searches.
#[derive(Default)]
pub(crate) struct Searching {
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
    answer: ReplyTo,
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
