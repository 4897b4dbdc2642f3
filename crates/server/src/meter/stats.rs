//! The statistics of a server.

use dafs_filer::{Counters, DelegationCounters};
use dafs_sessions::SessionCounters;
use dafs_store::cache::CacheStats;

/// Current amounts and counters of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerStats {
    /// The number of open connections.
    pub channels: usize,
    /// The number of parked requests.
    pub parked_requests: usize,
    /// The number of chains with a member in progress or still to come.
    pub chains: usize,
    /// The number of requests between intent and reply.
    pub journaled_requests: usize,
    /// The number of records since the journal was created; 0 without a journal.
    pub journal_records: u64,
    /// The number of files with undo data or a rollback in progress.
    pub undone_files: usize,
    /// The bytes of undo data saved by sharing blocks with files, since the start.
    pub cloned_bytes: u64,
    /// The number of threads that serve connections.
    pub reactors: usize,
    /// The number of requests and messages handed from one reactor to another since the start.
    pub reactor_messages: u64,
    /// The number of requests since the start.
    pub requests: u64,
    /// The number of regions registered with the transport, including the cache's arena.
    pub regions: usize,
    /// The number of requests of batches that are not reported yet.
    pub batched_requests: usize,
    /// The number of ranges of memory lent to the transport.
    pub loans: usize,
    /// The number of files that the store has open.
    pub open_files: usize,
    /// Counters of clients and opens.
    pub filer: Counters,
    /// Counters of sessions and their credits.
    pub sessions: SessionCounters,
    /// Counters of delegations and of requests that waited for them.
    pub delegations: DelegationCounters,
    /// The number of requests that wait for delegations.
    pub held_requests: usize,
    /// The statistics of the cache.
    pub cache: CacheStats,
}
