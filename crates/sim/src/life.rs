//! A server from its start to its crash, and the disk, which outlives the server.
//!
//! Invariant: a crash happens between two steps of the server, and no open file of the dead server
//! can change the disk. Crashes have their own random numbers, so that drawing them does not change
//! the other random choices of a run.

use std::sync::Arc;

use dafs_dat::InterfaceConfig;
use dafs_dat::sim::Network;
use dafs_server::{ServerConfig, ServerStats, SteppedServer};
use dafs_store::Store;
use dafs_types::{Entropy, Moment, Random};

use crate::disk::CrashStore;
use crate::plan::{Plan, SERVER_NODE};
use crate::reactors::{Turns, interfaces};

/// The storage in which a server keeps its files.
#[derive(Clone)]
pub(crate) enum ServerHome {
    /// A store. Its server never crashes.
    Lasting(Arc<dyn Store>),
    /// A disk. It outlives the servers that use it.
    Disk(CrashStore),
}

impl ServerHome {
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Lasting(store) => store.clone(),
            Self::Disk(disk) => Arc::new(disk.clone()),
        }
    }
}

/// A server and its disk.
pub(crate) struct ServerLife {
    network: Network,
    home: ServerHome,
    config: ServerConfig,
    /// The server. `None` between a crash and the restart.
    server: Option<SteppedServer>,
    random: Random,
    /// Chooses the reactor that runs next.
    turns: Turns,
    crash_permille: u32,
    crashes: u64,
}

type Dice = Box<dyn Entropy + Send>;

impl ServerLife {
    /// Starts the first server.
    pub(crate) fn new(
        plan: &Plan,
        network: &Network,
        home: ServerHome,
        random: &mut Random,
    ) -> Result<Self, String> {
        let mut life = Self {
            network: network.clone(),
            home,
            config: plan.server(random),
            server: None,
            random: Random::new(plan.seed ^ CRASH_SALT),
            turns: Turns::new(plan.seed, !plan.is_faultless()),
            crash_permille: plan.crash_permille,
            crashes: 0,
        };
        life.start(Box::new(random.fork()), Box::new(random.fork()))?;
        Ok(life)
    }

    fn start(&mut self, entropy: Dice, order: Dice) -> Result<(), String> {
        let endpoints_max = InterfaceConfig::default().endpoints_max;
        let interfaces = interfaces(&self.network, self.config.reactors, endpoints_max)?;
        let server =
            SteppedServer::new(&self.config, self.home.store(), interfaces, entropy, order)
                .map_err(|error| error.to_string())?;
        self.server = Some(server);
        Ok(())
    }

    /// Runs one step of the server, if it is running, and of the simulated kernel.
    pub(crate) fn step(&mut self) {
        let now = Moment(self.network.now_ns());
        if let ServerHome::Disk(disk) = &self.home {
            disk.set_time(now);
            if self.random.below(STEPS_PER_SETTLE) == 0 {
                disk.settle(&mut self.random);
            }
        }
        if let Some(server) = &mut self.server {
            self.turns.step(server, now);
        }
    }

    /// Returns true if the server must crash in this step.
    pub(crate) fn is_due(&mut self) -> bool {
        self.crash_permille > 0
            && self.server.is_some()
            && matches!(self.home, ServerHome::Disk(_))
            && (self.random.below(1_000) as u32) < self.crash_permille
    }

    /// Kills the server process or the whole machine, which breaks the server's connections.
    /// Returns a description of the crash.
    pub(crate) fn crash(&mut self) -> String {
        let ServerHome::Disk(disk) = &self.home else { return "nothing crashes".into() };
        self.crashes += 1;
        self.network.kill_node(SERVER_NODE);
        let what = if self.random.percent(50) {
            disk.kill();
            "the server is killed".into()
        } else {
            format!("the power fails: {:?}", disk.power_loss(&mut self.random))
        };
        // Drop the server only now: its open files no longer work, so its destructors cannot change
        // anything.
        self.server = None;
        what
    }

    /// Starts another server from the contents of the disk.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.network.restart_node(SERVER_NODE);
        let (entropy, order) = (Box::new(self.random.fork()), Box::new(self.random.fork()));
        self.start(entropy, order)
    }

    /// Returns the number of crashes so far.
    pub(crate) fn crashes(&self) -> u64 {
        self.crashes
    }

    /// Returns the statistics of the server. `None` if it is not running.
    pub(crate) fn stats(&self) -> Option<ServerStats> {
        self.server.as_ref().map(SteppedServer::stats)
    }

    /// Returns true if a reactor has ever slept although it had work to do.
    pub(crate) fn has_overslept(&self) -> bool {
        self.server.as_ref().is_some_and(SteppedServer::has_overslept)
    }

    /// Returns the number of jobs of the server that wait for further steps.
    pub(crate) fn jobs_under_way(&self) -> usize {
        self.server.as_ref().map_or(0, SteppedServer::jobs_under_way)
    }
}

/// A constant that makes the random numbers for crashes differ from other random numbers of the
/// same seed.
const CRASH_SALT: u64 = 0xc4a5_4e5d_0f5e_7e45;
/// The average number of server steps between two write-backs of the kernel.
const STEPS_PER_SETTLE: usize = 50;
