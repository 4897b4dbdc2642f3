//! The crash world: members that recover, a server that is killed and loses power, and a
//! judge of what each was promised (`docs/semantics.md`).
//!
//! Members speak the protocol message by message over the simulated network: they make,
//! link, rename and remove names, append records, write cells, commit, lock, open with
//! reservations, and one of them fences others out. Connections are cut, members are parted
//! from the network, die and live again; the server is killed or loses power, with torn
//! writes, also while it recovers. Whoever comes back asks what became of its requests,
//! takes back what it held and asks anew for what was not done.
//!
//! By file: `world` schedules, `member` with `recover` is a member, `choose` says what it
//! does next, `ask` turns that into messages, `line` carries them; `life` is the server and
//! its disks; `judge` watches, with `space` (names), `cells` and `log` (content), `holdings`
//! (locks and reservations) and `fences`; `end` reads everything back.
//!
//! Invariant: a seed is a run.

mod ask;
mod cells;
mod choose;
mod end;
mod fences;
mod holdings;
mod judge;
mod life;
mod line;
mod log;
mod member;
mod recover;
mod space;
mod world;

use dafs_dat::sim::{FaultPlan, NetworkConfig};
use dafs_server::Defect;
use dafs_types::Random;

use crate::Failure;
use crate::reactors::reactors_of;
use world::World;

/// What a run of the crash world is like.
#[derive(Clone, Debug)]
pub struct StormPlan {
    /// The seed that all follows from.
    pub seed: u64,
    /// Steps before everybody calms down: each is something that arrives somewhere, or an
    /// operation that is asked for.
    pub steps: u64,
    /// Reactors of the server.
    pub reactors: usize,
    members: usize,
    trouble_of_10000: u32,
    lease_ns: u64,
    write_back_ns: u64,
    credits_initial: u16,
    credits_budget: u32,
    has_reflinks: bool,
    /// Much is written under locks, and taken back.
    takes_back: bool,
    /// Members are often shut out of what they write, and what is there is looked at.
    shuts_out: bool,
    faults: FaultPlan,
}

impl StormPlan {
    /// The plan of a seed.
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
            trouble_of_10000: [20, 40, 80][random.below(3)],
            lease_ns: [400_000_000, 3_000_000_000][random.below(2)],
            write_back_ns: 1_000_000 * [1 + random.below(60) as u64, 1_000][random.below(2)],
            credits_initial: 1 + random.below(8) as u16,
            credits_budget: 64 + random.below(64) as u32,
            has_reflinks: random.percent(75),
            takes_back: random.percent(30),
            shuts_out: random.percent(25),
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

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormReport {
    /// Steps, those of the end aside.
    pub steps: u64,
    /// Times the server was killed or lost power.
    pub crashes: u64,
    /// Connections cut on purpose.
    pub cuts: u64,
    /// Members that died.
    pub deaths: u64,
    /// Sessions that were made.
    pub sessions: u64,
    /// Requests whose fate was learned from the response cache.
    pub recovered: u64,
    /// Opens and locks that were taken back after a restart.
    pub reclaimed: u64,
    /// Locks found broken.
    pub broken_locks: u64,
    /// Auto-recovery locks whose changes were taken back.
    pub taken_back: u64,
    /// Bytes of undo data that were cloned.
    pub cloned_bytes: u64,
    /// A hash over everything that happened; equal for equal plans.
    pub trace: u64,
}

impl StormReport {
    /// Both together.
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
            trace: self.trace ^ other.trace,
        }
    }
}

/// Runs a plan. `defect` is planted in the server; `prints` shows what happens as it does.
///
/// # Errors
/// [`Failure`] with what went wrong, what led to it, and how to see it again.
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

/// Steps of a run.
const STEPS: u64 = 1_000;
