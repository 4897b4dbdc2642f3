//! The current statistics of a server.

use dafs_filer::{Counters, DelegationCounters};
use dafs_sessions::SessionCounters;
use dafs_store::cache::CacheStats;

/// Current amounts and counters of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerStats {
    /// The number of open connections, including channels that are bound to sessions.
    pub channels: usize,
    /// The number of parked requests, which wait for a file, cache space or transfers.
    pub parked_requests: usize,
    /// The number of chains that have not ended yet.
    pub chains: usize,
    /// The number of requests between their intent in the journal and their reply.
    pub journaled_requests: usize,
    /// The number of records since the journal was created; 0 without a journal.
    pub journal_records: u64,
    /// The number of files for which undo data is kept or whose changes are being rolled back.
    pub undone_files: usize,
    /// The number of bytes of undo data that were saved by sharing blocks with files, since the
    /// start.
    pub cloned_bytes: u64,
    /// The number of reactor threads, which serve connections.
    pub reactors: usize,
    /// The number of requests and messages handed over from one reactor to another since the start.
    pub reactor_messages: u64,
    /// The number of requests since the start of the server.
    pub requests: u64,
    /// The number of memory regions registered with the network interfaces, including the cache's
    /// arena.
    pub regions: usize,
    /// The number of batch requests that are not reported as complete yet.
    pub batched_requests: usize,
    /// The number of memory ranges that are lent to the transport, which may read them until a
    /// completion.
    pub loans: usize,
    /// The number of files that the store holds open.
    pub open_files: usize,
    /// The counters of clients and opens.
    pub filer: Counters,
    /// The counters of sessions and their credits.
    pub sessions: SessionCounters,
    /// The counters of delegations and of requests that waited for the return of delegations.
    pub delegations: DelegationCounters,
    /// The number of requests that wait for the return of delegations.
    pub held_requests: usize,
    /// The statistics of the data cache.
    pub cache: CacheStats,
}
