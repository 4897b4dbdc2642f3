//! One run: a server, its clients, the network between them, and the scheduler.
//!
//! Invariant: everything happens in this thread, in an order determined by the seed, and nothing
//! reads a real clock: two runs of one seed are identical.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use dafs_dat::sim::{Network, Statistics};
use dafs_dat::{Interface, InterfaceConfig};
use dafs_store::Store;
use dafs_types::FileHandle;

use crate::actor::Actor;
use crate::disk::CrashStore;
use crate::failure::Failure;
use crate::initial::{InitialObjects, set};
use crate::judge::{Judge, brief};
use crate::life::{ServerHome, ServerLife};
use crate::operation::{Answer, Operation, OperationNumber, Outcome};
use crate::plan::Plan;
use crate::reactors::{address, draw};
use crate::request::Raw;
use crate::workload::{Chosen, choose};
use dafs_types::Random;

/// Statistics of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of operations in the run, including those of the final audit.
    pub operations: u64,
    /// The number of operations whose outcome their clients never learned.
    pub lost: u64,
    /// The number of steps of the scheduler.
    pub steps: u64,
    /// The number of sessions that were created.
    pub sessions: u64,
    /// The number of crashes of the server.
    pub crashes: u64,
    /// A hash over all events. It is equal for two runs of equal plans.
    pub trace: u64,
    /// Statistics of the network.
    pub network: Statistics,
}

/// A run in progress.
pub(crate) struct Simulation {
    pub plan: Plan,
    pub network: Network,
    pub life: ServerLife,
    pub actors: Vec<Actor>,
    pub judge: Judge,
    pub directories: Vec<FileHandle>,
    root: FileHandle,
    random: Random,
    /// The operations in flight, each with the number of its client. They are used for the trace
    /// and in the message of a failure.
    pub asked: std::collections::BTreeMap<OperationNumber, (usize, Operation)>,
    /// Operations whose connection broke. Each comes with the connections that may still deliver
    /// it.
    pub limbo: Vec<Limbo>,
    history: VecDeque<String>,
    trace: DefaultHasher,
    steps: u64,
    ended: u64,
    lost: u64,
    sessions: u64,
    /// True if no more faults happen.
    pub faults_stopped: bool,
    /// True if no client reconnects any more.
    pub stops_reconnecting: bool,
}

pub(crate) struct Limbo {
    number: OperationNumber,
    node: u32,
    /// The newest connection of the client's node when the operation's connection broke. This
    /// connection and earlier connections may still deliver the operation.
    newest: Option<dafs_dat::sim::ConnectionId>,
}

/// Runs a plan on a store, which must be empty. The server does not crash in such a run.
pub fn run(plan: &Plan, store: Arc<dyn Store>) -> Result<Report, Failure> {
    run_at(plan, ServerHome::Lasting(store))
}

/// Runs a plan on a disk, which must be empty and survives crashes of the server. The run ends with
/// the first crash; then a new server must serve new sessions of all clients. The clients do not
/// recover, and nothing checks what a crash leaves of their files.
///
/// # Errors
/// The errors of [`run`].
pub fn run_on_disk(plan: &Plan, disk: &CrashStore) -> Result<Report, Failure> {
    run_at(plan, ServerHome::Disk(disk.clone()))
}

fn run_at(plan: &Plan, home: ServerHome) -> Result<Report, Failure> {
    let _guard = crate::failure::SeedGuard::new(plan.seed);
    let mut simulation = Simulation::new(plan.clone(), home)
        .map_err(|what| Failure::new(plan.seed, what, Vec::new()))?;
    let result = simulation.play();
    result.map_err(|what| {
        let history = simulation.history.iter().cloned().collect();
        Failure::new(plan.seed, what, history)
    })
}

impl Simulation {
    pub(crate) fn new(plan: Plan, home: ServerHome) -> Result<Self, String> {
        let mut random = Random::new(plan.seed ^ 0x5eed);
        let InitialObjects { root, directories } = set(home.store().as_ref())?;
        let network = Network::new(plan.network());
        let interface = |node| {
            let sim = Some(network.at(node));
            Interface::new(InterfaceConfig { sim, ..InterfaceConfig::default() })
                .map_err(|error| format!("an interface: {error}"))
        };
        let life = ServerLife::new(&plan, &network, home, &mut random)?;
        let nodes = (1..).take(plan.clients);
        let actors = nodes
            .map(|node| Ok(Actor::new(node, interface(node)?, &plan)))
            .collect::<Result<_, String>>()?;
        let bytes_flip = plan.faults.flip_silent_ppm > 0;
        Ok(Self {
            plan,
            network,
            life,
            actors,
            judge: Judge::new(bytes_flip),
            directories,
            root,
            random,
            asked: std::collections::BTreeMap::new(),
            limbo: Vec::new(),
            history: VecDeque::new(),
            trace: DefaultHasher::new(),
            steps: 0,
            ended: 0,
            lost: 0,
            sessions: 0,
            faults_stopped: false,
            stops_reconnecting: false,
        })
    }

    fn play(&mut self) -> Result<Report, String> {
        while self.judge.next_number().0 <= self.plan.operations && self.life.crashes() == 0 {
            self.step()?;
            self.begin_some()?;
        }
        self.stop_faults();
        if self.life.crashes() > 0 {
            self.outlive()?;
        } else {
            self.finish_all()?;
            self.audit()?;
        }
        self.disconnect_all()?;
        self.network.trace_hash().hash(&mut self.trace);
        Ok(Report {
            operations: self.judge.next_number().0 - 1,
            lost: self.lost,
            steps: self.steps,
            sessions: self.sessions,
            crashes: self.life.crashes(),
            trace: self.trace.finish(),
            network: self.network.statistics(),
        })
    }

    // ---- steps ----------------------------------------------------------------------

    /// Runs one step of the server, a client or the clock.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!("no progress: {:?} are in flight", self.asked));
        }
        let connects = self.actors.iter().any(Actor::is_connecting);
        if !self.faults_stopped {
            self.network.set_faults(self.plan.faults_now(connects));
        }
        match self.random.below(100) {
            0..35 => self.step_server()?,
            35..75 => {
                let actor = self.random.below(self.actors.len());
                self.step_actor(actor)?;
            }
            75..99 => self.step_clock(),
            _ => {
                // Timers need the clock to advance: ticks, write-back, leases.
                let span_ns = 1 + self.random.below(SPAN_NS_MAX as usize) as u64;
                self.network.advance_to(self.network.now_ns() + span_ns);
            }
        }
        if !self.faults_stopped && (self.random.below(1_000) as u32) < self.plan.faults_permille {
            self.make_fault()?;
        }
        if !self.faults_stopped && self.life.is_due() {
            self.crash()?;
        }
        Ok(())
    }

    /// Advances the clock to the next event, but at most by [`SPAN_NS_MAX`] nanoseconds. If only
    /// timeouts are pending, the clock must not skip the time in which the awaited events could
    /// still happen.
    fn step_clock(&mut self) {
        let far_ns = self.network.now_ns() + SPAN_NS_MAX;
        match self.network.next_ns() {
            Some(next_ns) if next_ns > far_ns => self.network.advance_to(far_ns),
            _ => drop(self.network.advance()),
        }
    }

    fn step_server(&mut self) -> Result<(), String> {
        self.life.step();
        if self.life.has_overslept() {
            return Err("a reactor slept although it had work".into());
        }
        self.settle()
    }

    fn step_actor(&mut self, index: usize) -> Result<(), String> {
        let actor = &mut self.actors[index];
        let was_connecting = actor.is_connecting();
        let newest = newest_of(&self.network, actor.node);
        let stepped = actor.step();
        self.sessions += u64::from(was_connecting && actor.is_here());
        if let Some(trouble) = stepped.trouble {
            return Err(format!("client {index} cannot connect: {trouble}"));
        }
        if stepped.is_cut {
            self.note(format!("client {index}: the session is gone"));
        }
        for (number, raw) in stepped.ended {
            self.end(index, number, raw, newest)?;
        }
        if self.actors[index].is_away() && !self.stops_reconnecting && self.random.percent(20) {
            self.connect(index)?;
        }
        Ok(())
    }

    pub(crate) fn connect(&mut self, index: usize) -> Result<(), String> {
        let (root, keeps_name) = (self.root, self.plan.keeps_name);
        let address = address(draw(self.plan.reactors, &mut self.random));
        self.actors[index].connect(&address, root, keeps_name).map_err(|error| error.to_string())
    }

    /// Makes a fault happen.
    fn make_fault(&mut self) -> Result<(), String> {
        let index = self.random.below(self.actors.len());
        let node = self.actors[index].node;
        match self.random.below(5) {
            0 | 1 => {
                let connections = self.network.connections();
                if !connections.is_empty() {
                    let hit = connections[self.random.below(connections.len())];
                    self.note(format!("fault: the connection of node {} is cut", hit.initiator));
                    self.network.break_connection(hit.id);
                }
            }
            2 => {
                self.note(format!("trouble: node {node} is parted"));
                self.network.partition(node);
            }
            3 => self.network.heal(node),
            _ => {
                self.note(format!("trouble: client {index} leaves"));
                let newest = newest_of(&self.network, node);
                for number in self.actors[index].leave() {
                    self.end(index, number, Raw::Lost, newest)?;
                }
            }
        }
        Ok(())
    }

    /// Kills the server. Its clients lose their operations in flight.
    fn crash(&mut self) -> Result<(), String> {
        let what = self.life.crash();
        self.note(format!("crash: {what}"));
        for index in 0..self.actors.len() {
            for number in self.actors[index].leave() {
                self.end(index, number, Raw::Lost, None)?;
            }
        }
        Ok(())
    }

    /// Checks that a new server serves new sessions of all clients after a crash.
    fn outlive(&mut self) -> Result<(), String> {
        self.limbo.clear();
        self.life.restart()?;
        self.note("the server is up again".into());
        self.step_until("connecting after a crash", |simulation| {
            simulation.actors.iter().all(Actor::is_here)
        })
    }

    // ---- operations -------------------------------------------------------------------

    fn begin_some(&mut self) -> Result<(), String> {
        let index = self.random.below(self.actors.len());
        let actor = &mut self.actors[index];
        if !actor.is_here() || !self.random.percent(30) {
            return Ok(());
        }
        if actor.under_way() == 0 && self.random.percent(1) {
            actor.disconnect();
            self.note(format!("client {index} disconnects"));
            return Ok(());
        }
        let chosen = choose(&mut self.random, &self.plan, &self.judge, actor);
        let Some(Chosen { operation, open }) = chosen else { return Ok(()) };
        if matches!(operation, Operation::Close(_)) && self.random.percent(30) {
            if let Some(open) = open {
                self.actors[index].forget(open);
            }
            return Ok(());
        }
        self.begin(index, operation, open);
        Ok(())
    }

    pub(crate) fn begin(
        &mut self,
        index: usize,
        operation: Operation,
        open: Option<u64>,
    ) -> OperationNumber {
        use crate::operation::NameOperation::{Link, Links};
        let file = match &operation {
            Operation::Name(Link { file, .. } | Links { file }) => {
                Some(self.judge.handle_of(*file))
            }
            _ => None,
        };
        let number = self.judge.begin(operation.clone());
        self.note(format!("{} begins at client {index}: {}", number.0, brief(&operation, None)));
        self.actors[index].send(number, &operation, (file, open), &self.directories);
        self.asked.insert(number, (index, operation));
        number
    }

    /// Returns the number of operations that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    fn end(
        &mut self,
        index: usize,
        number: OperationNumber,
        raw: Raw,
        newest: Option<dafs_dat::sim::ConnectionId>,
    ) -> Result<(), String> {
        let outcome = self.interpret(index, raw)?;
        self.ended += 1;
        let Some((_, operation)) = self.asked.remove(&number) else {
            return Err(format!("{number:?} ended but was not in flight"));
        };
        let line = match &outcome {
            Outcome::Known(answer) => brief(&operation, Some(answer)),
            other => format!("{other:?}"),
        };
        self.note(format!("{} ends at client {index}: {line}", number.0));
        if let Outcome::Known(Answer::Bytes(bytes, _)) = &outcome {
            bytes.hash(&mut self.trace);
        }
        if outcome == Outcome::Damaged && !self.plan.checksums {
            return Err(format!("{operation:?}: damage was detected without checksums"));
        }
        if outcome == Outcome::Lost {
            if self.plan.is_faultless() {
                return Err(format!("{number:?} is lost in a run without faults"));
            }
            self.lost += 1;
            let node = self.actors[index].node;
            self.limbo.push(Limbo { number, node, newest });
        }
        self.judge.end(number, &outcome)
    }

    /// Converts a reply of the protocol to the terms of the model.
    fn interpret(&mut self, index: usize, raw: Raw) -> Result<Outcome, String> {
        Ok(Outcome::Known(match raw {
            Raw::Opened(handle, state) => {
                let file = self.judge.number_of(handle);
                self.actors[index].keep(handle, state, file);
                Answer::File(file)
            }
            Raw::Found(handle) => Answer::File(self.judge.number_of(handle)),
            Raw::Names(names) => {
                let number = |(name, handle)| (name, self.judge.number_of(handle));
                Answer::Names(names.into_iter().map(number).collect())
            }
            Raw::Status(status) => Answer::Status(status),
            Raw::Done => Answer::Done,
            Raw::Links(count) => Answer::Links(count),
            Raw::Bytes(bytes, is_end) => Answer::Bytes(bytes, is_end),
            Raw::Written(length) => Answer::Written(length),
            Raw::Offset(offset) => Answer::Offset(offset),
            Raw::Size(size) => Answer::Size(size),
            Raw::Damaged => return Ok(Outcome::Damaged),
            Raw::Lost => return Ok(Outcome::Lost),
            Raw::Nonsense(what) => return Err(format!("client {index}: {what}")),
        }))
    }

    /// Settles the operations that the server can no longer execute, because their connections have
    /// ended and no request is parked.
    fn settle(&mut self) -> Result<(), String> {
        if self.limbo.is_empty() || self.life.stats().is_some_and(|stats| stats.parked_requests > 0)
        {
            return Ok(());
        }
        let connections = self.network.connections();
        let is_carried = |limbo: &Limbo| {
            connections.iter().any(|c| c.initiator == limbo.node && Some(c.id) <= limbo.newest)
        };
        let (left, over) = self.limbo.drain(..).partition(is_carried);
        self.limbo = left;
        for limbo in over {
            self.note(format!("{} is settled", limbo.number.0));
            self.judge.settle(limbo.number)?;
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, line: String) {
        line.hash(&mut self.trace);
        self.steps.hash(&mut self.trace);
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(format!("{:>12} ns  {line}", self.network.now_ns()));
    }
}

fn newest_of(network: &Network, node: u32) -> Option<dafs_dat::sim::ConnectionId> {
    let connections = network.connections();
    connections.iter().filter(|c| c.initiator == node).map(|c| c.id).max()
}

/// The maximum time in nanoseconds by which the clock is advanced in one step.
const SPAN_NS_MAX: u64 = 20_000_000;
/// The maximum number of steps of a run, far more than a run needs.
const STEPS_MAX: u64 = 5_000_000;
/// The maximum number of lines that a failure prints.
const HISTORY_MAX: usize = 5_000;

#[cfg(test)]
mod tests {
    use dafs_store::memory::{MemoryLimits, MemoryStore};

    use super::*;

    #[test]
    fn a_connect_outlives_a_server_that_is_a_step_late() {
        let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
        let store = Arc::new(MemoryStore::new(limits));
        let mut simulation =
            Simulation::new(Plan::new(1).without_faults(), ServerHome::Lasting(store)).unwrap();
        simulation.connect(0).unwrap();
        // The request arrives; then the only event left is its timeout.
        simulation.step_clock();
        simulation.step_clock();
        assert_eq!(simulation.network.statistics().severed, 0);
        simulation.step_server().unwrap();
        while !simulation.actors[0].is_here() {
            simulation.step().unwrap();
        }
        assert_eq!(simulation.sessions, 1);
    }
}
