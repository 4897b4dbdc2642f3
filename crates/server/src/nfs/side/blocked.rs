//! The lock requests of NLM that wait.
//!
//! Invariant: a request that waits has its place in the filer's queue, as a waiting request of a
//! DAFS client has.

use dafs_filer::{ClientKey, fair_share};
use dafs_files::caller::Caller;
use dafs_journal::RecordNumber;
use dafs_ops::Lock;
use dafs_types::FileHandle;

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    pub requests: Vec<Waiting>,
    /// The number of the last call that granted a lock.
    pub last: u64,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub by: Caller,
    pub lock: Lock,
    pub process: u32,
    pub version: u32,
    /// The names that the request contained, which the call repeats.
    pub caller: Box<[u8]>,
    pub file: Box<[u8]>,
    pub owner: Box<[u8]>,
    /// The number of the record that must be durable before the lock is granted.
    pub after: RecordNumber,
    pub phase: Phase,
}

/// The phase of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The request waits for its lock.
    Waits,
    /// The lock is held, and the call with this number tells the client, for this time.
    Told { number: u64, tries: u32 },
}

impl Waiting {
    pub(super) fn client(&self) -> ClientKey {
        self.by.party.client
    }

    /// Returns the number of the call that tells the client about its lock, if there is one.
    pub(super) fn call(&self) -> Option<u64> {
        match self.phase {
            Phase::Waits => None,
            Phase::Told { number, .. } => Some(number),
        }
    }

    /// Returns true if this is the request of this owner for this range.
    fn is_for(&self, client: ClientKey, lock: &Lock, process: u32) -> bool {
        let range = |lock: &Lock| (lock.file, lock.offset, lock.length);
        self.client() == client && self.process == process && range(&self.lock) == range(lock)
    }
}

impl Blocked {
    /// Adds a request. Returns false if too many wait. `is_neighbour` returns true for the hosts in
    /// whose common name requests count.
    pub(super) fn add(
        &mut self,
        waiting: Waiting,
        is_neighbour: impl Fn(ClientKey) -> bool,
    ) -> bool {
        let Waiting { lock, process, .. } = &waiting;
        let client = waiting.client();
        let same = self.requests.iter().position(|it| it.is_for(client, lock, *process));
        match same {
            Some(at) => self.requests[at] = waiting,
            None => {
                let own = self.requests.iter().filter(|it| is_neighbour(it.client())).count();
                if !fair_share(own as u32, self.requests.len() as u32, BLOCKED_MAX) {
                    return false;
                }
                self.requests.push(waiting);
            }
        }
        true
    }

    /// Removes and returns a request.
    pub(super) fn remove(
        &mut self,
        client: ClientKey,
        lock: &Lock,
        process: u32,
    ) -> Option<Waiting> {
        let at = self.requests.iter().position(|it| it.is_for(client, lock, process))?;
        Some(self.requests.remove(at))
    }

    /// Returns true if a request of a host waits for a lock on the file.
    pub(super) fn concerns(&self, client: ClientKey, file: &FileHandle) -> bool {
        self.requests.iter().any(|it| it.client() == client && it.lock.file == *file)
    }

    /// Removes the requests of a host.
    pub(super) fn forget_client(&mut self, client: ClientKey) {
        self.requests.retain(|waiting| waiting.client() != client);
    }
}

/// The maximum number of requests that wait.
const BLOCKED_MAX: u32 = 4096;
