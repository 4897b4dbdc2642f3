//! Courtesy clients: clients whose leases have expired. They keep their state until an operation of
//! another client conflicts with it.

use dafs_files::outcome::NotDone;
use dafs_nfs_state::{ClientKey as Nfs4Client, StateKind, StateView};
use dafs_nfs_wire::nfs4::open::OpenClaim;
use dafs_ops::Fault;
use dafs_types::{FileHandle, StateId};

use super::compound::Service;
use super::state::{State, end_clients};

impl Service<'_, '_, '_> {
    /// Ends the courtesy clients that hold an open, lock or delegation of a file. Returns true if
    /// there was one, so that an operation that has conflicted with it can be tried again.
    pub(super) fn end_courtesy_of(&mut self, file: &FileHandle) -> bool {
        let now = self.reactor.shared.life.now();
        let holders = self.desk.v4.courtesy_holders(file);
        let ended = holders.iter().filter(|holder| self.desk.v4.machine.conflict(**holder, now));
        if ended.count() == 0 {
            return false;
        }
        end_clients(self.desk, self.reactor, now);
        true
    }

    /// Does the same for an OPEN that could not be done, if a conflict is the reason.
    pub(super) fn end_courtesy_for(
        &mut self,
        claim: &OpenClaim<'_>,
        current: &FileHandle,
        why: &NotDone,
    ) -> bool {
        let is_conflict = match why {
            NotDone::Failed(fault) => *fault == Fault::ShareDenied,
            NotDone::Partly(refusal) => refusal.fault == Fault::ShareDenied,
            NotDone::AwaitsRecall(_) => true,
            NotDone::AwaitsHolder(_) => false,
        };
        if !is_conflict || !self.desk.v4.has_courtesy_clients() {
            return false;
        }
        let OpenClaim::Name(name) = claim else { return self.end_courtesy_of(current) };
        let Ok(by) = self.by() else { return false };
        let found = by.store().lookup(&by, current, name.0);
        found.is_ok_and(|found| self.end_courtesy_of(&found.handle))
    }
}

impl State {
    fn has_courtesy_clients(&self) -> bool {
        self.machine.clients().iter().any(|(_, client)| client.is_courtesy)
    }

    /// Returns the courtesy clients that hold state of a file.
    fn courtesy_holders(&self, file: &FileHandle) -> Vec<Nfs4Client> {
        let clients = self.machine.clients().iter().filter(|(_, client)| client.is_courtesy);
        let holds = |client: &Nfs4Client| {
            self.machine.states_of(*client).any(|state| self.is_of_file(&state, file))
        };
        clients.map(|(client, _)| client).filter(holds).collect()
    }

    fn is_of_file(&self, state: &StateView<'_>, file: &FileHandle) -> bool {
        let number = StateId(state.inner);
        match state.kind {
            StateKind::Open | StateKind::Lock => self.states.open_for(number, file).is_ok(),
            StateKind::Delegation => {
                self.states.delegations.get(&number).is_some_and(|held| held.file == *file)
            }
            StateKind::Layout | StateKind::Copy => false,
        }
    }
}
