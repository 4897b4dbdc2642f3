//! The state machine that the server owns. It records which client holds which state on which
//! files.
//!
//! Invariant: every client record and every open is in exactly one of the tables here, and the
//! counts of the tables agree after every public call.

mod delegations;
mod fencing;
mod files;
mod grace;
mod incarnations;
mod locks;
mod shares;

use dafs_base::Slab;
use dafs_types::{ClientId, Moment};
pub use delegations::DelegationRequest;
pub use fencing::{FenceKey, Party, RunningRequest};
pub use grace::ClientRecord;
pub use incarnations::{
    BeginOutcome, ClientView, EnterError, EnteringClient, LeaveReason, NFS4_NAME_PREFIX,
    NLM_NAME_PREFIX,
};

use crate::clients::ClientTable;
use crate::locks::LockTable;
use crate::opens::OpenTable;
use crate::{
    Closed, ConfigError, Counters, DelegationPolicy, DelegationTable, FenceId, FenceTable,
    FilerConfig,
};

/// The clients of one server and the state that they hold on files: opens, locks, delegations and
/// fencing lists.
#[derive(Debug)]
pub struct Filer {
    config: FilerConfig,
    clients: ClientTable,
    opens: OpenTable,
    locks: LockTable,
    fences: FenceTable,
    /// The fence identities of all sessions.
    identities: Slab<FenceId>,
    delegations: DelegationTable,
    grace: Option<grace::Grace>,
    /// True if a grace period has ended and [`Filer::take_expired_records`] has not reported it
    /// yet.
    has_grace_ended: bool,
    /// The names of clients whose records on stable storage must be removed. They were not reported
    /// to the server yet.
    lapsed: Vec<Box<[u8]>>,
    /// The ids of clients that have ended. They were not reported to the server yet.
    ended: Vec<ClientId>,
    /// The opens that have ended because a newer incarnation of their client began. They were not
    /// reported to the server yet.
    released: Vec<Closed>,
    counters: Counters,
}

impl Filer {
    /// Creates a filer without clients. `boot_seed` must differ between runs of the server: 24 bits
    /// of it distinguish state ids of this run from those of earlier runs.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first invalid limit in `config`.
    pub fn new(config: FilerConfig, boot_seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let opens = OpenTable::new(boot_seed, config.opens_max, config.opens_per_client_max);
        let locks = LockTable::new(config.locks.clone());
        let fences = FenceTable::new(config.fences.clone());
        // A client may learn only at the end of its lease that it has lost a delegation.
        let recall_timeout = config.delegations.recall_timeout.max(config.lease);
        let policy = DelegationPolicy { recall_timeout, ..config.delegations.clone() };
        let delegations = DelegationTable::new(boot_seed, policy);
        Ok(Self {
            config,
            clients: ClientTable::default(),
            opens,
            locks,
            fences,
            identities: Slab::new(),
            delegations,
            grace: None,
            has_grace_ended: false,
            lapsed: Vec::new(),
            ended: Vec::new(),
            released: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Handles expired timers; it must be called about once a second. Ends state whose lease is
    /// over, and returns the opens that have ended, so that the caller can close them in the store.
    pub fn on_tick(&mut self, now: Moment) -> Vec<Closed> {
        let mut released = Vec::new();
        for client in self.clients.expired(now) {
            if let Some(record) = self.clients.get(client) {
                self.locks.lease_expired(record.id, now);
            }
            self.release_client(client, now, &mut released);
        }
        self.tick_grace(now);
        self.locks.on_tick(now);
        self.delegations.tick(now);
        released
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn config(&self) -> &FilerConfig {
        &self.config
    }

    /// Returns the present values of the counters and gauges.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = Counters {
            clients: self.clients.count() as u32,
            opens: self.opens.count(),
            files: self.opens.file_count() as u32,
            ..self.counters
        };
        self.count_grace(&mut counters);
        counters
    }
}
