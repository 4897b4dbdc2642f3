//! The end of a run: all files are read back and compared with the model. Then all clients
//! disconnect, and the server must have released all their state.
//!
//! Invariant: after `stop_faults` no more faults happen, so that the model can predict every reply
//! during the audit.

use crate::actor::Actor;
use crate::operation::{DataOperation, Name, NameOperation, Operation, TransferMode};
use crate::simulation::Simulation;
use crate::workload::DIRECTORIES;

impl Simulation {
    /// Stops all faults.
    pub(crate) fn stop_faults(&mut self) {
        self.faults_stopped = true;
        self.network.set_faults(dafs_dat::sim::FaultPlan::default());
        for actor in &self.actors {
            self.network.heal(actor.node);
        }
    }

    /// Runs steps until no operation is in flight.
    pub(crate) fn finish_all(&mut self) -> Result<(), String> {
        self.step_until("operations in flight", |simulation| {
            simulation.asked.is_empty() && simulation.limbo.is_empty()
        })
    }

    /// Runs steps until a condition holds. The longer that takes, the faster the clock advances.
    pub(crate) fn step_until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        for count in 0..PATIENCE_STEPS {
            if is_so(self) {
                return Ok(());
            }
            if count % 1_000 == 999 {
                self.network.advance_to(self.network.now_ns() + 200_000_000);
            }
            self.step()?;
        }
        Err(format!(
            "timeout waiting for the end of {what}: {:?}; {} in limbo; {:?}; {:?}; {} jobs",
            self.asked,
            self.limbo.len(),
            self.network.connections(),
            self.life.stats(),
            self.life.jobs_under_way()
        ))
    }

    /// Reads back all names, files and records, and compares them with the model.
    pub(crate) fn audit(&mut self) -> Result<(), String> {
        // Make a new session. The old one may have ended without its client noticing, because the
        // client has sent nothing since, and a fault from before `stop_faults` may still take
        // effect.
        drop(self.actors[0].leave());
        self.step_until("connecting", |simulation| simulation.actors[0].is_here())?;
        for directory in 0..DIRECTORIES as u8 {
            self.ask(NameOperation::List { directory }.into(), None)?;
        }
        let names =
            self.judge.names().ok_or("all directories were read, but the names are undecided")?;
        for (name, file) in names {
            let file =
                file.ok_or_else(|| format!("{name:?} was listed but its file is unknown"))?;
            self.ask(NameOperation::Links { file }.into(), None)?;
            self.audit_file(name)?;
        }
        let length = u32::try_from(self.judge.records_reached()).unwrap_or(u32::MAX);
        self.ask(Operation::Records { length: length + 100_000 }, None)
    }

    fn audit_file(&mut self, name: Name) -> Result<(), String> {
        let before = self.newest_open();
        self.ask(NameOperation::Open { name }.into(), None)?;
        let opened = self.newest_open().filter(|opened| Some(*opened) != before);
        let (open, file) = opened.ok_or_else(|| format!("{name:?} was not opened"))?;
        self.ask(Operation::Data(file, DataOperation::Size), Some(open))?;
        let size = self.judge.size_of(file).ok_or("the size was read but is undecided")?;
        let (offset, length, way) = (0, size as u32 + 1, TransferMode::Direct);
        let read = DataOperation::Read { offset, length, way };
        self.ask(Operation::Data(file, read), Some(open))?;
        if !self.judge.is_certain(file) {
            return Err(format!("{name:?} was read completely, but its content is undecided"));
        }
        self.ask(Operation::Close(file), Some(open))
    }

    fn newest_open(&self) -> Option<(u64, crate::operation::FileNumber)> {
        self.actors[0].opens().last().map(|(open, file, _)| (open, file))
    }

    /// Runs one operation of the first client until the operation is complete.
    fn ask(&mut self, operation: Operation, open: Option<u64>) -> Result<(), String> {
        let lost = self.lost();
        let number = self.begin(0, operation, open);
        self.finish_all()?;
        if self.lost() > lost {
            return Err(format!("{number:?} is lost after all faults have ended"));
        }
        Ok(())
    }

    /// Disconnects all clients and checks that the server has released all their state.
    pub(crate) fn disconnect_all(&mut self) -> Result<(), String> {
        self.stops_reconnecting = true;
        for index in 0..self.actors.len() {
            // Half of the clients disconnect cleanly, and the others drop their connections.
            match index % 2 {
                0 => self.actors[index].disconnect(),
                _ => drop(self.actors[index].leave()),
            }
        }
        self.step_until("leaving", |simulation| simulation.actors.iter().all(Actor::is_away))?;
        self.step_until("the state of disconnected clients", |simulation| {
            let Some(stats) = simulation.life.stats() else { return false };
            let (filer, sessions) = (stats.filer, stats.sessions);
            let of_clients = [sessions.channels, sessions.sessions, filer.clients, filer.opens];
            stats.channels == 0
                && stats.parked_requests == 0
                && of_clients == [0; 4]
                && filer.files == 0
                && sessions.credits == 0
                && stats.open_files == 0
                && stats.loans == 0
                && stats.regions == simulation.plan.reactors * ARENA
                && stats.cache.dirty_bytes == 0
                && simulation.life.jobs_under_way() == 0
                && simulation.network.connections().is_empty()
        })
    }
}

/// The number of memory regions that each reactor of a server always has.
const ARENA: usize = 1;
/// The maximum number of steps after which all operations in flight must have ended.
const PATIENCE_STEPS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dafs_dat::sim::FaultPlan;
    use dafs_store::memory::{MemoryLimits, MemoryStore};

    use super::*;
    use crate::Plan;

    /// Creates a run without faults in which the first client has a session.
    fn connected(seed: u64) -> Simulation {
        // No fault is drawn at random, but a test can make one. So the plan is not that of a run
        // without faults.
        let faults = FaultPlan { count_max: 0, ..FaultPlan::default() };
        let plan = Plan { faults, faults_permille: 0, ..Plan::new(seed) };
        let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
        let store = Arc::new(MemoryStore::new(limits));
        let mut simulation =
            Simulation::new(plan, crate::life::ServerHome::Lasting(store)).unwrap();
        simulation.stop_faults();
        simulation.step_until("connecting", |s| s.actors[0].is_here()).unwrap();
        simulation
    }

    fn break_first(simulation: &Simulation) {
        let node = simulation.actors[0].node;
        for connection in simulation.network.connections() {
            if connection.initiator == node {
                simulation.network.break_connection(connection.id);
            }
        }
    }

    #[test]
    fn an_audit_starts_with_a_working_session() {
        for seed in 1..=4 {
            let mut simulation = connected(seed);
            break_first(&simulation);
            simulation.audit().unwrap();

            // The end of the connection has arrived, but the client has not noticed it.
            break_first(&simulation);
            for _ in 0..100 {
                simulation.step().unwrap();
            }
            simulation.audit().unwrap();
            simulation.disconnect_all().unwrap();
        }
    }

    #[test]
    fn an_operation_lost_in_an_audit_is_reported() {
        let mut simulation = connected(1);
        break_first(&simulation);
        let told = simulation.ask(NameOperation::List { directory: 0 }.into(), None);
        assert!(told.unwrap_err().contains("is lost"));
    }
}
