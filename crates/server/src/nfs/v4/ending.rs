//! The end of operations that may take longer than their call: waits for it, and writes the result.

use dafs_files::delegations::Told;
use dafs_files::outcome::{Now, Outcome};
use dafs_nfs_wire::nfs4::{OperationKind as Kind, Status};

use super::compound::Service;
use super::convert;
use super::fault::Result;
use super::waiting::{Awaits, Did};
use crate::guests::GuestResult;
use crate::task::{Task, Work};

impl Service<'_, '_, '_> {
    /// Writes the result of an operation that has ended already, or makes the compound wait for the
    /// end.
    pub(super) fn follow(&mut self, awaits: Awaits, started: Now<Outcome>) -> Result<Did> {
        match started {
            Now::Done(outcome) => match self.end(&awaits, outcome).1 {
                Status::Ok => Ok(Did::Written),
                status => Err(status),
            },
            Now::Later(left) => {
                let to = self.wait_for(awaits);
                self.reactor.start(Task::new(to, Work::from(*left)));
                Ok(Did::Later)
            }
        }
    }

    /// Writes the result of the operation that the compound waited for, even if it has failed.
    /// Returns its status; `None` if the compound must wait again.
    pub(super) fn end_operation(&mut self, result: GuestResult) -> Option<Status> {
        match self.c.awaits.take() {
            None => Some(Status::ServerFault),
            Some(Awaits::ReadPlus(reading)) => match self.go_on_reading(reading, result) {
                Ok(Did::Later) => None,
                Ok(Did::Written) => Some(Status::Ok),
                Err(status) => {
                    self.push_failure(Kind::ReadPlus, status);
                    Some(status)
                }
            },
            Some(Awaits::Holder(wanted)) => {
                let told = match result {
                    GuestResult::Told(told) => told,
                    _ => Told::Nothing,
                };
                match self.end_get_attributes(&wanted, told) {
                    Ok(()) => Some(Status::Ok),
                    Err(status) => {
                        self.push_failure(Kind::GetAttr, status);
                        Some(status)
                    }
                }
            }
            Some(awaits) => Some(self.end_single(&awaits, result)),
        }
    }

    /// Writes the result of an operation that has waited once. Returns its status.
    fn end_single(&mut self, awaits: &Awaits, result: GuestResult) -> Status {
        let outcome = match result {
            GuestResult::Outcome(outcome) => outcome,
            GuestResult::Durable
            | GuestResult::Free
            | GuestResult::Intended(_)
            | GuestResult::Told(_) => {
                return Status::ServerFault;
            }
            GuestResult::Read(found) => match awaits {
                Awaits::Read => return self.end_read(found),
                _ => {
                    self.reactor.on_loan_done(found.cookie);
                    return Status::ServerFault;
                }
            },
        };
        if matches!(awaits, Awaits::Record | Awaits::Names | Awaits::Part) {
            return Status::Ok;
        }
        let (kind, status) = self.end(awaits, outcome);
        if !status.is_ok() {
            self.push_failure(kind, status);
        }
        status
    }

    /// Writes the result of an operation that has ended, unless it has failed. Returns its kind and
    /// its status.
    fn end(&mut self, awaits: &Awaits, outcome: Outcome) -> (Kind, Status) {
        self.c.after = self.c.after.max(outcome.after);
        match awaits {
            Awaits::Read => (Kind::Read, convert::failure_of(&outcome)),
            Awaits::Holder(_) => (Kind::GetAttr, Status::ServerFault),
            Awaits::ReadPlus(_) => (Kind::ReadPlus, Status::ServerFault),
            Awaits::Range(kind) => (*kind, self.end_range(*kind, &outcome)),
            Awaits::Write => (Kind::Write, self.end_write(&outcome)),
            Awaits::Commit => (Kind::Commit, self.end_commit(&outcome)),
            Awaits::SetAttributes(mask) => (Kind::SetAttr, self.end_set_attributes(mask, &outcome)),
            Awaits::Open(opening) => (Kind::Open, self.end_open(opening, outcome)),
            Awaits::Close(state) => (Kind::Close, self.end_close(*state, &outcome)),
            Awaits::Lock(state) => (Kind::Lock, self.end_lock(*state, &outcome)),
            // These are not operations.
            Awaits::Names | Awaits::Part | Awaits::Record => (Kind::Illegal, Status::ServerFault),
        }
    }
}
