//! The machine the driver owns: who holds what of which files.
//!
//! Invariant: every client record and every open belongs to exactly one of the tables here, and
//! every public call leaves their counts in agreement.

mod delegations;
mod fencing;
mod files;
mod grace;
mod lives;
mod locks;
mod shares;

use dafs_base::Slab;
use dafs_types::{ClientId, Moment};
pub use delegations::DelegationWish;
pub use fencing::{FenceKey, Party, RunningRequest};
pub use grace::ClientRecord;
pub use lives::{Begun, ClientView, Entering, Leaving, NotEntered};

use crate::clients::ClientTable;
use crate::locks::LockTable;
use crate::opens::OpenTable;
use crate::{
    Closed, ConfigError, Counters, DelegationPolicy, DelegationTable, FenceId, FenceTable,
    FilerConfig,
};

/// Clients and what they hold of the files of one server: opens, locks, delegations, fences.
#[derive(Debug)]
pub struct Filer {
    config: FilerConfig,
    clients: ClientTable,
    opens: OpenTable,
    locks: LockTable,
    fences: FenceTable,
    /// Fence identities of those who ask.
    identities: Slab<FenceId>,
    delegations: DelegationTable,
    grace: Option<grace::Grace>,
    /// A time of taking back has ended, and nobody was told.
    has_grace_ended: bool,
    /// Clients without state, not yet told of.
    lapsed: Vec<Box<[u8]>>,
    /// Clients that are gone, not yet told of.
    ended: Vec<ClientId>,
    /// Opens of lives that others have followed, not yet told of.
    released: Vec<Closed>,
    counters: Counters,
}

impl Filer {
    /// A filer without clients. `boot_seed` must differ between runs of the server:
    /// state ids made before a restart are told from new ones by 24 bits of it.
    ///
    /// # Errors
    /// The first limit in `config` that cannot be kept.
    pub fn new(config: FilerConfig, boot_seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let opens = OpenTable::new(boot_seed, config.opens_max, config.opens_per_client_max);
        let locks = LockTable::new(config.locks.clone());
        let fences = FenceTable::new(config.fences.clone());
        // Within its lease a client learns that it has lost a delegation, and not before.
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

    /// Lets time pass: call about once a second. Finds state whose lease has run out, and returns
    /// the opens among it, for the store.
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

    /// The limits in force.
    #[must_use]
    pub fn config(&self) -> &FilerConfig {
        &self.config
    }

    /// The numbers now.
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
