//! The server from one crash to the next, and the disk that outlives it.
//!
//! Invariant: a crash falls between two steps of the server, and nothing that the dead
//! server still has can reach the disk. Crashes draw from dice of their own: a plan without
//! them is the same run as ever.

use std::sync::Arc;

use dafs_dat::InterfaceConfig;
use dafs_dat::sim::Network;
use dafs_server::{ServerConfig, ServerStats, SteppedServer};
use dafs_store::Store;
use dafs_types::{Entropy, Moment, Random};

use crate::disk::CrashStore;
use crate::plan::{Plan, SERVER_NODE};
use crate::reactors::{Turns, interfaces};

/// Where a server keeps its files.
#[derive(Clone)]
pub(crate) enum Home {
    /// A store whose server never crashes.
    Lasting(Arc<dyn Store>),
    /// A disk that outlives servers.
    Disk(CrashStore),
}

impl Home {
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Lasting(store) => store.clone(),
            Self::Disk(disk) => Arc::new(disk.clone()),
        }
    }
}

/// See the [module](self).
pub(crate) struct ServerLife {
    network: Network,
    home: Home,
    config: ServerConfig,
    /// `None` between a crash and the restart.
    server: Option<SteppedServer>,
    random: Random,
    /// Says which reactor has the next turn.
    turns: Turns,
    crash_permille: u32,
    crashes: u64,
}

type Dice = Box<dyn Entropy + Send>;

impl ServerLife {
    /// A first server.
    pub fn new(
        plan: &Plan,
        network: &Network,
        home: Home,
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

    /// A step of the server, if it is up, and of the kernel beneath it.
    pub fn step(&mut self) {
        let now = Moment(self.network.now_ns());
        if let Home::Disk(disk) = &self.home {
            disk.set_time(now);
            if self.random.below(STEPS_PER_SETTLE) == 0 {
                disk.settle(&mut self.random);
            }
        }
        if let Some(server) = &mut self.server {
            self.turns.step(server, now);
        }
    }

    /// Whether the plan wants a crash now.
    pub fn is_due(&mut self) -> bool {
        self.crash_permille > 0
            && self.server.is_some()
            && matches!(self.home, Home::Disk(_))
            && (self.random.below(1_000) as u32) < self.crash_permille
    }

    /// The server dies, or the machine with it; its connections break. What happened.
    pub fn crash(&mut self) -> String {
        let Home::Disk(disk) = &self.home else { return "nothing crashes".into() };
        self.crashes += 1;
        self.network.kill_node(SERVER_NODE);
        let what = if self.random.percent(50) {
            disk.kill();
            "the server is killed".into()
        } else {
            format!("the power fails: {:?}", disk.power_loss(&mut self.random))
        };
        // Only now: the files it has open are dead, whatever it does with them at its end.
        self.server = None;
        what
    }

    /// Another server, which knows what the disk tells it.
    pub fn restart(&mut self) -> Result<(), String> {
        self.network.restart_node(SERVER_NODE);
        let (entropy, order) = (Box::new(self.random.fork()), Box::new(self.random.fork()));
        self.start(entropy, order)
    }

    /// Crashes so far.
    pub fn crashes(&self) -> u64 {
        self.crashes
    }

    /// What the server has, if it is up.
    pub fn stats(&self) -> Option<ServerStats> {
        self.server.as_ref().map(SteppedServer::stats)
    }

    /// Whether a reactor ever slept in spite of what had been left to it.
    pub fn has_overslept(&self) -> bool {
        self.server.as_ref().is_some_and(SteppedServer::has_overslept)
    }

    /// Jobs of the server that wait for further steps.
    pub fn jobs_under_way(&self) -> usize {
        self.server.as_ref().map_or(0, SteppedServer::jobs_under_way)
    }
}

/// Makes the dice of crashes others than those of everything else.
const CRASH_SALT: u64 = 0xc4a5_4e5d_0f5e_7e45;
/// Steps of the server in which the kernel writes something back about once.
const STEPS_PER_SETTLE: usize = 50;
