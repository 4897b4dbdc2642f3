//! The servers that one disk has seen, with the journal beside it.
//!
//! Invariant: a crash falls between two steps of the server, or into its start; nothing
//! that the dead server still has can reach the disk or the journal.

use std::sync::Arc;
use std::time::Duration;

use dafs_dat::sim::Network;
use dafs_journal::{CrashShelf, LogConfig, UndoConfig};
use dafs_server::{Defect, JournalConfig, ServerConfig, ServerStats, SteppedServer};
use dafs_store::local::Squash;
use dafs_store::memory::MemoryLimits;
use dafs_types::{Moment, Random};

use super::StormPlan;
use super::ask::MESSAGE_BYTES;
use crate::disk::CrashStore;
use crate::plan::{SERVER_NODE, root};
use crate::reactors::{Turns, address, interfaces};

/// See the [module](self).
pub(super) struct Life {
    network: Network,
    pub disk: CrashStore,
    shelf: CrashShelf,
    config: ServerConfig,
    server: Option<SteppedServer>,
    /// Bytes that servers before this one have cloned.
    cloned_bytes: u64,
    /// When it started.
    started_ns: u64,
    random: Random,
    /// Says which reactor has the next turn.
    turns: Turns,
}

impl Life {
    /// A disk on which nothing serves yet.
    pub fn new(plan: &StormPlan, network: &Network, defect: Option<Defect>) -> Self {
        let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
        let shelf = CrashShelf::new();
        shelf.set_reflinks(plan.has_reflinks);
        let mut config = ServerConfig {
            listen: vec![address(0)],
            reactors: plan.reactors,
            journal: Some(JournalConfig {
                shelf: Arc::new(shelf.clone()),
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
        config.cache.arena_bytes = 1 << 20;
        config.cache.dirty_bytes_max = 256 << 10;
        config.cache.write_back_age = Duration::from_nanos(plan.write_back_ns);
        config.cache.read_ahead_bytes_max = 0;
        config.cache.file_count_max = 256;
        Self {
            network: network.clone(),
            disk: CrashStore::new(limits),
            shelf,
            config,
            server: None,
            cloned_bytes: 0,
            started_ns: 0,
            random: Random::new(plan.seed ^ LIFE_SALT),
            turns: Turns::new(plan.seed, true),
        }
    }

    /// Starts a server, which knows what disk and journal tell it. False if the power has
    /// failed while it started, as it does at times.
    pub fn start(&mut self, may_fail: bool) -> Result<bool, String> {
        self.network.restart_node(SERVER_NODE);
        let will_fail = may_fail && self.random.percent(15);
        if will_fail {
            self.shelf.power_off_after(self.random.below(12) as u64);
        }
        let interfaces = interfaces(&self.network, self.config.reactors, ENDPOINTS_MAX)?;
        let (entropy, order) = (Box::new(self.random.fork()), Box::new(self.random.fork()));
        let store = Arc::new(self.disk.clone());
        self.started_ns = self.network.now_ns();
        match SteppedServer::new(&self.config, store, interfaces, entropy, order) {
            Ok(server) => self.server = Some(server),
            Err(_) if self.shelf.is_off() => {}
            Err(error) => return Err(format!("a server does not start: {}", chain(&error))),
        }
        if will_fail {
            self.server = None;
            self.crash(true);
        }
        Ok(self.server.is_some())
    }

    pub fn is_up(&self) -> bool {
        self.server.is_some()
    }

    /// When the server started.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// A step of the server, if it is up, and of the kernel beneath it.
    pub fn step(&mut self) {
        let now_ns = self.network.now_ns();
        self.disk.set_time(Moment(now_ns));
        if self.random.below(STEPS_PER_SETTLE) == 0 {
            self.disk.settle(&mut self.random);
        }
        if let Some(server) = &mut self.server {
            self.turns.step(server, Moment(now_ns - self.started_ns));
        }
    }

    /// The server is killed, or the machine loses its power.
    pub fn crash(&mut self, loses_power: bool) {
        self.network.kill_node(SERVER_NODE);
        if loses_power {
            let _loss = self.disk.power_loss(&mut self.random);
            self.shelf.crash(&mut self.random);
        } else {
            self.disk.kill();
            self.shelf.kill();
        }
        self.cloned_bytes = self.cloned_bytes();
        // Only now: what it has open is dead, whatever it does with it at its end.
        self.server = None;
    }

    pub fn stats(&self) -> Option<ServerStats> {
        self.server.as_ref().map(SteppedServer::stats)
    }

    /// Bytes of undo data that were cloned so far.
    pub fn cloned_bytes(&self) -> u64 {
        self.cloned_bytes + self.stats().map_or(0, |stats| stats.cloned_bytes)
    }

    /// Whether a reactor ever slept in spite of what had been left to it.
    pub fn has_overslept(&self) -> bool {
        self.server.as_ref().is_some_and(SteppedServer::has_overslept)
    }

    pub fn jobs_under_way(&self) -> usize {
        self.server.as_ref().map_or(0, SteppedServer::jobs_under_way)
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// A small journal, which comes to its checkpoints soon.
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

/// Connections of each reactor.
const ENDPOINTS_MAX: usize = 128;
/// Most credits of a session.
pub(super) const CREDITS_MAX: u16 = 12;
/// Steps of the server in which the kernel writes something back about once.
const STEPS_PER_SETTLE: usize = 50;
/// Makes the dice of a server's life others than those of everything else.
const LIFE_SALT: u64 = 0x11fe_0f5e_7e45_a17e;
