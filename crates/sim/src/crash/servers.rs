//! The servers that use one disk and its journal, one after the other.
//!
//! Invariant: a crash happens between two steps of the server, or during its start. After a crash,
//! files that the dead server has left open can no longer change the disk or the journal.

use std::sync::Arc;
use std::time::Duration;

use dafs_dat::sim::Network;
use dafs_journal::{CrashStorage, LogConfig, UndoConfig};
use dafs_server::{
    Defect, JournalConfig, NfsClients, NfsConfig, NfsPeers, NfsRules, PartialTerms, ServerConfig,
    ServerStats, SteppedServer, TransportSecurity,
};
use dafs_store::local::Squash;
use dafs_store::memory::MemoryLimits;
use dafs_types::{Moment, Random};

use super::requests::MESSAGE_BYTES;
use super::{StormPlan, nfs};
use crate::disk::CrashStore;
use crate::plan::{SERVER_NODE, root};
use crate::reactors::{Turns, address, guest_interface, interfaces};

/// The current server, its disk and its journal.
pub(super) struct Servers {
    network: Network,
    pub disk: CrashStore,
    storage: CrashStorage,
    config: ServerConfig,
    server: Option<SteppedServer>,
    /// The number of bytes of undo data that earlier servers have cloned.
    cloned_bytes: u64,
    /// The time, in nanoseconds, at which the present server started.
    started_ns: u64,
    random: Random,
    /// Chooses the reactor that runs next.
    turns: Turns,
}

impl Servers {
    /// Makes a disk without a running server.
    pub(super) fn new(plan: &StormPlan, network: &Network, defect: Option<Defect>) -> Self {
        let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
        let storage = CrashStorage::new();
        storage.set_reflinks(plan.has_reflinks);
        let mut config = ServerConfig {
            listen: vec![address(0)],
            reactors: plan.reactors,
            journal: Some(JournalConfig {
                storage: Arc::new(storage.clone()),
                log: log_config(),
                undo: undo_config(),
            }),
            defect,
            ..ServerConfig::default()
        };
        config.sessions.authentication.anonymous = Some(root());
        config.access.squash = Some(Squash::Nobody);
        config.filer.lease = Duration::from_nanos(plan.lease_ns);
        config.sessions.credits.initial = plan.credits_initial;
        config.sessions.credits.session_max = CREDITS_MAX;
        config.sessions.channels_max = 64;
        config.sessions.unauthenticated_max = 64;
        config.sessions.credits.budget = plan.credits_budget;
        config.sessions.messages.request_bytes_default = MESSAGE_BYTES as u32;
        config.sessions.messages.request_bytes_max = MESSAGE_BYTES as u32;
        config.sessions.messages.response_bytes_default = MESSAGE_BYTES as u32;
        config.sessions.messages.response_bytes_max = MESSAGE_BYTES as u32;
        if plan.nfs_members > 0 {
            config.nfs = Some(NfsConfig::default());
            config.access.nfs = nfs_rules();
        }
        config.cache.arena_bytes = 1 << 20;
        config.cache.dirty_bytes_max = 256 << 10;
        config.cache.write_back_age = Duration::from_nanos(plan.write_back_ns);
        config.cache.read_ahead_bytes_max = 0;
        config.cache.file_count_max = 256;
        Self {
            network: network.clone(),
            disk: CrashStore::new(limits),
            storage,
            config,
            server: None,
            cloned_bytes: 0,
            started_ns: 0,
            random: Random::new(plan.seed ^ LIFE_SALT),
            turns: Turns::new(plan.seed, true),
        }
    }

    /// Starts a server from the contents of the disk and the journal. Returns false if the power
    /// failed during the start. That happens now and then if `may_fail` is true.
    pub(super) fn start(&mut self, may_fail: bool) -> Result<bool, String> {
        self.network.restart_node(SERVER_NODE);
        let will_fail = may_fail && self.random.percent(15);
        if will_fail {
            self.storage.power_off_after(self.random.below(12) as u64);
        }
        let mut interfaces = interfaces(&self.network, self.config.reactors, ENDPOINTS_MAX)?;
        if self.config.nfs.is_some() {
            interfaces.push(guest_interface(&self.network, self.config.reactors)?);
        }
        let (entropy, order) = (Box::new(self.random.fork()), Box::new(self.random.fork()));
        let store = Arc::new(self.disk.clone());
        self.started_ns = self.network.now_ns();
        match SteppedServer::new(&self.config, store, interfaces, entropy, order) {
            Ok(mut server) => {
                if self.config.nfs.is_some() {
                    let network = self.network.at(SERVER_NODE);
                    let served = server.serve_nfs(&self.config, &network, nfs::PORT);
                    served.map_err(|error| chain(&error))?;
                }
                self.server = Some(server);
            }
            Err(_) if self.storage.is_off() => {}
            Err(error) => return Err(format!("a server does not start: {}", chain(&error))),
        }
        if will_fail {
            self.server = None;
            self.crash(true);
        }
        Ok(self.server.is_some())
    }

    pub(super) fn is_up(&self) -> bool {
        self.server.is_some()
    }

    /// Returns the time, in nanoseconds, at which the present server started.
    pub(super) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Runs one step of the server, if it is running, and of the simulated kernel.
    pub(super) fn step(&mut self) {
        let now_ns = self.network.now_ns();
        self.disk.set_time(Moment(now_ns));
        if self.random.below(STEPS_PER_SETTLE) == 0 {
            self.disk.settle(&mut self.random);
        }
        if let Some(server) = &mut self.server {
            self.turns.step(server, Moment(now_ns - self.started_ns));
        }
    }

    /// Kills the server process, or the whole machine by a power failure.
    pub(super) fn crash(&mut self, loses_power: bool) {
        self.network.kill_node(SERVER_NODE);
        if loses_power {
            let _loss = self.disk.power_loss(&mut self.random);
            self.storage.crash(&mut self.random);
        } else {
            self.disk.kill();
            self.storage.kill();
        }
        self.cloned_bytes = self.cloned_bytes();
        // Drop the server only now: its open files no longer work, so its destructors cannot change
        // anything.
        self.server = None;
    }

    pub(super) fn stats(&self) -> Option<ServerStats> {
        self.server.as_ref().map(SteppedServer::stats)
    }

    /// Returns the number of bytes of undo data that all servers have cloned.
    pub(super) fn cloned_bytes(&self) -> u64 {
        self.cloned_bytes + self.stats().map_or(0, |stats| stats.cloned_bytes)
    }

    /// Returns true if a reactor has ever slept although it had work to do.
    pub(super) fn has_overslept(&self) -> bool {
        self.server.as_ref().is_some_and(SteppedServer::has_overslept)
    }

    pub(super) fn jobs_under_way(&self) -> usize {
        self.server.as_ref().map_or(0, SteppedServer::jobs_under_way)
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Returns rules that let every NFS client act as it says.
fn nfs_rules() -> NfsRules {
    let everyone = NfsClients {
        who: NfsPeers::Anyone,
        terms: PartialTerms { squash: Some(Squash::Nobody), ..PartialTerms::default() },
        any_port: true,
        transport: TransportSecurity::None,
        flavors: Vec::new(),
        clients: "*".to_owned(),
        source: "the simulation".to_owned(),
    };
    NfsRules { exports: Vec::new(), others: vec![everyone] }
}

/// Returns the configuration of a small journal, which soon needs a checkpoint.
fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes: 96 << 10,
        segment_count_max: 64,
        spare_segment_count: 0,
        record_bytes_max: 4 << 10,
        buffered_bytes_max: 8 << 10,
        checkpoint_after_bytes: 24 << 10,
        checkpoint_bytes_max: 128 << 10,
        checkpoint_chunk_bytes: 4 << 10,
    }
}

fn undo_config() -> UndoConfig {
    UndoConfig {
        piece_bytes_max: 4 << 10,
        buffered_bytes_max: 64 << 10,
        bytes_max: 1 << 20,
        range_count_max: 256,
        clone_bytes_min: 128,
        clone_bytes_max: 1 << 10,
    }
}

/// The maximum number of connections of each reactor.
const ENDPOINTS_MAX: usize = 128;
/// The maximum number of credits of a session.
pub(super) const CREDITS_MAX: u16 = 12;
/// The average number of server steps between two write-backs of the kernel.
const STEPS_PER_SETTLE: usize = 50;
/// A constant that makes the random numbers of a server differ from other random numbers of the
/// same seed.
const LIFE_SALT: u64 = 0x11fe_0f5e_7e45_a17e;
