//! What a server counts.

use dafs_filer::{Counters, DelegationCounters};
use dafs_sessions::SessionCounters;
use dafs_store::cache::CacheStats;

/// Present amounts and counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerStats {
    /// Connections now.
    pub channels: usize,
    /// Requests parked now.
    pub parked_requests: usize,
    /// Chains of which a member is under way or to come.
    pub chains: usize,
    /// Requests on their way through the journal now.
    pub journaled_requests: usize,
    /// Records that the journal was given since it was begun; 0 without one.
    pub journal_records: u64,
    /// Files of which undo is kept now, or that get back what they held.
    pub undone_files: usize,
    /// Bytes of undo data that were saved by sharing blocks with files, since the start.
    pub cloned_bytes: u64,
    /// Threads that serve connections.
    pub reactors: usize,
    /// Requests and notices that one of them has handed to another since the start.
    pub reactor_messages: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Memory registered with the transport now, the cache's arena included.
    pub regions: usize,
    /// Requests of batches that were not reported.
    pub batched_requests: usize,
    /// Ranges of memory lent to the transport now.
    pub loans: usize,
    /// Open files now, as the store sees them.
    pub open_files: usize,
    /// Clients and opens.
    pub filer: Counters,
    /// Sessions and their credits.
    pub sessions: SessionCounters,
    /// Delegations, and what waited for them.
    pub delegations: DelegationCounters,
    /// Requests that wait for delegations now.
    pub held_requests: usize,
    /// The cache's own.
    pub cache: CacheStats,
}
