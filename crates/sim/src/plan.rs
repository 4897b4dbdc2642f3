//! The parameters of one run, which its seed determines.
//!
//! Invariant: two plans of one seed are equal.

use std::time::Duration;

use dafs_dat::sim::{FaultPlan, NetworkConfig};
use dafs_server::{Defect, ServerConfig};
use dafs_store::local::Squash;
use dafs_types::{Credentials, Entropy};

use dafs_types::Random;

use crate::reactors::{address, reactors_of};

/// The plan of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that determines everything else.
    pub seed: u64,
    /// The number of reactors of the server.
    pub reactors: usize,
    /// The number of clients, each with one session at a time.
    pub clients: usize,
    /// The number of operations in a run, not including those of the final audit.
    pub operations: u64,
    /// The maximum number of operations that one client has in flight.
    pub depth: usize,
    /// True if sessions use checksums.
    pub checksums: bool,
    /// True if a client keeps its name when it reconnects.
    pub keeps_name: bool,
    /// The approximate limit on the size of files, in bytes.
    pub file_bytes: usize,
    /// The number of steps in a thousand in which the simulation makes a fault.
    pub faults_permille: u32,
    /// The number of steps in a thousand in which the server crashes. Its disk survives.
    pub crash_permille: u32,
    /// The random faults of the network.
    pub faults: FaultPlan,
    /// A defect to inject into the server. `None` if there is none.
    pub defect: Option<Defect>,
}

impl Plan {
    /// Creates the plan that a seed determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let checksums = random.percent(60);
        let mut faults = FaultPlan {
            delay_ppm: 20_000,
            delay_ns_max: 3_000_000,
            close_loses_ppm: 300_000,
            ..FaultPlan::default()
        };
        if random.percent(80) {
            faults.break_before_ppm = 1_500;
            faults.break_after_ppm = 1_500;
            faults.flip_caught_ppm = 1_000;
        }
        if checksums && random.percent(70) {
            faults.flip_silent_ppm = 5_000;
        }
        Self {
            seed,
            reactors: reactors_of(seed),
            clients: 1 + random.below(4),
            operations: 200,
            depth: 1 + random.below(8),
            checksums,
            keeps_name: random.percent(50),
            file_bytes: [3_000, 40_000, 400_000][random.below(3)],
            faults_permille: [0, 1, 3][random.below(3)],
            crash_permille: 0,
            faults,
            defect: None,
        }
    }

    /// Returns the same plan, for a network without faults.
    #[must_use]
    pub fn without_faults(mut self) -> Self {
        self.faults = FaultPlan::default();
        self.faults_permille = 0;
        self
    }

    /// Returns the same plan, with a defect in the server.
    #[must_use]
    pub fn with_defect(mut self, defect: Defect) -> Self {
        self.defect = Some(defect);
        self
    }

    /// Returns the same plan, with a server that crashes at random times.
    #[must_use]
    pub fn with_crashes(mut self) -> Self {
        self.crash_permille = 1;
        self
    }

    pub(crate) fn is_faultless(&self) -> bool {
        let troubles = [self.faults_permille, self.crash_permille];
        self.faults == FaultPlan::default() && troubles == [0; 2]
    }

    pub(crate) fn network(&self) -> NetworkConfig {
        // The timeout is a few steps of the clock. A connection attempt fails if the server runs no
        // step in that time.
        let (hold_ns_max, connect_ns_max) = (5_000_000, 50_000_000);
        let config = NetworkConfig { at_once_ppm: 500_000, ..NetworkConfig::new(self.seed) };
        NetworkConfig { hold_ns_max, connect_ns_max, ..config }
    }

    /// Returns the faults that may happen now. Bytes may be damaged without detection by the
    /// transport only where checksums are in use, which is not the case while a client connects.
    pub(crate) fn faults_now(&self, client_connects: bool) -> FaultPlan {
        let mut faults = self.faults.clone();
        if client_connects {
            faults.flip_silent_ppm = 0;
        }
        faults
    }

    pub(crate) fn server(&self, random: &mut Random) -> ServerConfig {
        let (listen, reactors) = (vec![address(0)], self.reactors);
        let defect = self.defect;
        let mut config = ServerConfig { listen, reactors, defect, ..ServerConfig::default() };
        config.sessions.authentication.anonymous = Some(root());
        config.access.squash = Some(Squash::Nobody);
        config.sessions.credits.initial = 1 + (random.next_u64() % 12) as u16;
        config.cache.arena_bytes = [2 << 20, 512 << 10][random.below(2)];
        config.cache.dirty_bytes_max = [64 << 10, 512 << 10][random.below(2)];
        config.cache.write_back_age = Duration::from_millis(1 + random.below(40) as u64);
        config.cache.read_ahead_bytes_max = 128 << 10;
        config
    }
}

/// Returns the identity of the superuser. Every client in a run acts as the superuser, because
/// permissions are not tested here.
pub(crate) fn root() -> Credentials {
    Credentials::superuser()
}

/// The number of the network node on which the server listens. Clients have the numbers after it.
pub(crate) const SERVER_NODE: u32 = 0;
