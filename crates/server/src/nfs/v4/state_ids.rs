//! The state ids that version 4 clients send, and the operations on them: TEST_STATEID and
//! FREE_STATEID.

use dafs_filer::ClientKey;
use dafs_nfs_state::{
    Checked, ClientKey as Nfs4Client, KindSet, StateKey, StateKind, StateView, Stateid4,
};
use dafs_nfs_wire::nfs4::lock::{TestStateIdArgs, TestStateIdDone};
use dafs_nfs_wire::nfs4::{Answer, Reply, StateId as Wire, Status};
use dafs_nfs_wire::xdr::List;
use dafs_types::{FileHandle, StateId};

use super::compound::Service;
use super::convert::status_of_machine;
use super::fault::Result;
use super::states::{own_of, wire_of};
use super::waiting::Did;

impl Service<'_, '_, '_> {
    /// Returns the filer's client that has sent the compound.
    pub(super) fn client(&self) -> Result<ClientKey> {
        Ok(self.by()?.party.client)
    }

    /// Returns the client of version 4 that has sent the compound.
    pub(super) fn nfs_client(&self) -> Result<Nfs4Client> {
        Ok(self.c.request.as_ref().ok_or(Status::OpNotInSession)?.client)
    }

    /// Replaces the special state id that stands for the compound's current state id.
    fn given(&self, given: &Wire) -> Result<Stateid4> {
        let given = own_of(given);
        match given == Stateid4::CURRENT {
            true => self.c.current_state.as_ref().map(own_of).ok_or(Status::BadStateId),
            false => Ok(given),
        }
    }

    /// Checks a state id that a client has sent for an operation that accepts these kinds.
    fn check(&self, given: &Wire, accepted: KindSet) -> Result<Checked> {
        let (given, client) = (self.given(given)?, self.nfs_client()?);
        let machine = &self.desk.v4.machine;
        machine.check_state(client, &given, accepted, None).map_err(status_of_machine)
    }

    /// Returns the state that a client names by its id.
    pub(super) fn state(&self, given: &Wire, accepted: KindSet) -> Result<StateView<'_>> {
        match self.check(given, accepted)? {
            Checked::State(key) => self.desk.v4.machine.state(key).ok_or(Status::BadStateId),
            Checked::Anonymous | Checked::Bypass => Err(Status::BadStateId),
        }
    }

    /// Returns the key and the filer's state id of the open that a client names. Fails if the open
    /// is not for this file.
    pub(super) fn open_of(&self, given: &Wire, file: &FileHandle) -> Result<(StateKey, StateId)> {
        let view = self.state(given, KindSet::OPEN)?;
        let state = StateId(view.inner);
        self.desk.v4.states.open_for(state, file)?;
        Ok((view.key, state))
    }

    /// Returns the filer's state id for reading, writing or truncating a file.
    pub(super) fn io_state(&self, given: &Wire, file: &FileHandle) -> Result<StateId> {
        let Checked::State(key) = self.check(given, KindSet::DATA)? else {
            return Ok(StateId::ANONYMOUS);
        };
        let view = self.desk.v4.machine.state(key).ok_or(Status::BadStateId)?;
        // A lock state has the same number as its open.
        let state = StateId(view.inner);
        match view.kind {
            StateKind::Open | StateKind::Lock => {
                self.desk.v4.states.open_for(state, file).map(|_| state)
            }
            StateKind::Delegation => self.delegation_of(given, Some(file)),
            StateKind::Layout | StateKind::Copy => Err(Status::BadStateId),
        }
    }

    /// Makes a state id the compound's current one, and returns it in the form of messages.
    pub(super) fn set_state(&mut self, id: Stateid4) -> Wire {
        let shown = wire_of(id);
        self.c.current_state = Some(shown);
        shown
    }

    // ---- TEST_STATEID and FREE_STATEID ------------------------------------------------

    pub(super) fn test_states(&mut self, asked: &TestStateIdArgs) -> Result<Did> {
        let client = self.nfs_client()?;
        let machine = &self.desk.v4.machine;
        let statuses = asked.states.iter().map(|given| {
            let tested = machine.test_state(client, &own_of(given));
            tested.map_or_else(status_of_machine, |()| Status::Ok)
        });
        let statuses = List(statuses.collect());
        self.push(&Answer::TestStateId(Reply::Ok(TestStateIdDone { statuses })))
    }

    pub(super) fn free_state(&mut self, given: Wire) -> Result<Did> {
        let (given, client) = (self.given(&given)?, self.nfs_client()?);
        // Only revoked states and lock states without locks can be freed. The filer has already
        // released what they held.
        let freed = self.desk.v4.machine.free_state(client, &given).map_err(status_of_machine)?;
        if self.desk.v4.states.delegations.remove(&StateId(freed)).is_some() {
            // The filer grants no new delegations to a client that has not returned a revoked one.
            let (by, now) = (self.client()?, self.reactor.shared.life.now());
            let _ = self.reactor.shared.filer.return_delegation(by, StateId(freed), now);
        }
        self.push(&Answer::FreeStateId(Status::Ok))
    }
}
