//! The crash world: members that recover, a server that is killed and loses power, and a checker of
//! the guarantees for each member (`docs/semantics.md`).
//!
//! Members speak the protocol message by message over the simulated network. They create, link,
//! rename and remove names, append records, write cells, commit, lock, and open with share
//! reservations. One member excludes others with fencing lists. Connections are cut; members are
//! partitioned from the network, die and restart; the server is killed or loses power, with torn
//! writes, even during recovery. A member that reconnects determines the outcome of its requests,
//! reclaims its opens and locks, and repeats requests that were not executed.
//!
//! The modules: `world` schedules; `member` and `recover` implement a member, `choose` selects its
//! requests, `requests` encodes the requests as messages, and `connection` carries the messages;
//! `servers` is the server and its disks; `judge` checks, with `space` (names), `cells` and `log`
//! (content), `holdings` (opens and locks) and `fences`; `end` reads all names and files back.
//!
//! Invariant: a run depends only on its seed.

mod cells;
mod choose;
mod connection;
mod end;
mod fences;
mod holdings;
mod judge;
mod log;
mod member;
mod nfs;
mod recover;
mod requests;
mod servers;
mod space;
mod world;

use dafs_dat::sim::{FaultPlan, NetworkConfig};
use dafs_server::Defect;
use dafs_types::Random;

use crate::Failure;
use crate::reactors::reactors_of;
use world::World;

/// The parameters of a run of the crash world.
#[derive(Clone, Debug)]
pub struct StormPlan {
    /// The seed that determines all other parameters and the run.
    pub seed: u64,
    /// The number of steps with faults. Each step is a message that arrives or an operation that
    /// begins.
    pub steps: u64,
    /// The number of reactors of the server.
    pub reactors: usize,
    members: usize,
    /// The number of NFS clients beside the DAFS members.
    nfs_members: usize,
    faults_of_10000: u32,
    lease_ns: u64,
    write_back_ns: u64,
    credits_initial: u16,
    credits_budget: u32,
    has_reflinks: bool,
    /// True if members often write under auto-recovery locks and roll their changes back.
    takes_back: bool,
    /// True if members are often excluded by fencing lists from files that they write. The content
    /// of these files is checked.
    shuts_out: bool,
    faults: FaultPlan,
}

impl StormPlan {
    /// Creates the plan that a seed determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut faults = FaultPlan {
            delay_ppm: 30_000,
            delay_ns_max: 2_000_000,
            close_loses_ppm: 300_000,
            ..FaultPlan::default()
        };
        if random.percent(70) {
            faults.break_before_ppm = 1_500;
            faults.break_after_ppm = 1_500;
            faults.flip_caught_ppm = 500;
        }
        Self {
            seed,
            steps: STEPS,
            reactors: reactors_of(seed),
            members: 2 + random.below(3),
            faults_of_10000: [20, 40, 80][random.below(3)],
            lease_ns: [400_000_000, 3_000_000_000][random.below(2)],
            write_back_ns: 1_000_000 * [1 + random.below(60) as u64, 1_000][random.below(2)],
            credits_initial: 1 + random.below(8) as u16,
            credits_budget: 64 + random.below(64) as u32,
            has_reflinks: random.percent(75),
            takes_back: random.percent(30),
            shuts_out: random.percent(25),
            nfs_members: if random.percent(NFS_PERCENT) { 1 + random.below(2) } else { 0 },
            faults,
        }
    }

    fn network(&self) -> NetworkConfig {
        let (hold_ns_max, connect_ns_max) = (5_000_000, 50_000_000);
        let faults = self.faults.clone();
        let config = NetworkConfig { at_once_ppm: 500_000, ..NetworkConfig::new(self.seed) };
        NetworkConfig { hold_ns_max, connect_ns_max, faults, ..config }
    }
}

/// Statistics of a run of the crash world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormReport {
    /// The number of steps, without the steps of the final checks.
    pub steps: u64,
    /// The number of times that the server was killed or lost power.
    pub crashes: u64,
    /// The number of connections that the simulation cut.
    pub cuts: u64,
    /// The number of times that a member died.
    pub deaths: u64,
    /// The number of sessions that were created.
    pub sessions: u64,
    /// The number of requests whose outcome came from the server's response cache.
    pub recovered: u64,
    /// The number of opens and locks that were reclaimed after a restart.
    pub reclaimed: u64,
    /// The number of locks that were found broken.
    pub broken_locks: u64,
    /// The number of auto-recovery locks whose changes were rolled back.
    pub taken_back: u64,
    /// The number of bytes of undo data that were cloned.
    pub cloned_bytes: u64,
    /// The number of sessions of NFS clients.
    pub nfs_sessions: u64,
    /// The number of requests that NFS clients have sent again.
    pub nfs_repeats: u64,
    /// The number of requests of NFS clients that were sent to several servers and got a reply.
    pub nfs_recovered: u64,
    /// A hash over all events. It is equal for two runs of equal plans.
    pub trace: u64,
}

impl StormReport {
    /// Returns the sums of the statistics of two reports.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            crashes: self.crashes + other.crashes,
            cuts: self.cuts + other.cuts,
            deaths: self.deaths + other.deaths,
            sessions: self.sessions + other.sessions,
            recovered: self.recovered + other.recovered,
            reclaimed: self.reclaimed + other.reclaimed,
            broken_locks: self.broken_locks + other.broken_locks,
            taken_back: self.taken_back + other.taken_back,
            cloned_bytes: self.cloned_bytes + other.cloned_bytes,
            nfs_sessions: self.nfs_sessions + other.nfs_sessions,
            nfs_repeats: self.nfs_repeats + other.nfs_repeats,
            nfs_recovered: self.nfs_recovered + other.nfs_recovered,
            trace: self.trace ^ other.trace,
        }
    }
}

/// Runs a plan. `defect` is a defect to inject into the server. If `prints` is true, events are
/// printed when they happen.
///
/// # Errors
/// [`Failure`] with the error, the events before it, and the command that replays the run.
pub fn storm(
    plan: &StormPlan,
    defect: Option<Defect>,
    prints: bool,
) -> Result<StormReport, Failure> {
    let _guard = crate::failure::SeedGuard::of_storm(plan.seed);
    let failed = |what, history| Failure::of_storm(plan.seed, what, history);
    let mut world =
        World::new(plan.clone(), defect, prints).map_err(|what| failed(what, Vec::new()))?;
    world.play().map_err(|what| failed(what, world.history()))
}

/// The percentage of runs with NFS clients.
const NFS_PERCENT: u32 = 25;
/// The default number of steps of a run.
const STEPS: u64 = 1_000;
