//! Carrying out what was set aside, and what may be.

use dafs_ops::Operation;
use dafs_types::Status;
use dafs_wire::{Request, RequestHeader};

use super::{Asked, SetAside};
use crate::delegations::Told;
use crate::handles;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::translate::{self, Scratch};

impl Reactor {
    /// Has a request carried out that is an operation to be set aside as one. False if it is
    /// another; then nothing was done.
    #[inline(never)]
    pub(crate) fn carry_as_operation(&mut self, to: ReplyTo, request: &Request<'_>) -> bool {
        let mut scratch = Scratch::new();
        // Who carries it out says what is wrong with one that cannot be asked for.
        let Ok(Some(operation)) = translate::operation(request, &mut scratch) else {
            return false;
        };
        if !self.awaits_search(to, Asked::Operation(&operation), operation.touched())
            && !self.is_gated(to, &operation)
            && let Err(why) = self.carry_out(to, &operation)
        {
            self.refuse(to, why, Asked::Operation(&operation));
        }
        true
    }

    /// Carries an operation out, if no fence stands in its way.
    pub(crate) fn carry_out(
        &mut self,
        to: ReplyTo,
        operation: &Operation<'_>,
    ) -> Result<(), NotDone> {
        if self.filer.has_fences() {
            self.pass_all(to, operation.touched())?;
        }
        self.operate(to, operation)
    }

    /// Carries a request out that was set aside, from its start: it may have to wait for something
    /// else. It was whole when it was set aside.
    ///
    /// # Errors
    /// As [`Reactor::dispatch`]: the caller replies, or sets it aside again.
    pub(crate) fn carry_again(
        &mut self,
        to: ReplyTo,
        kept: &SetAside,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        match kept {
            SetAside::Operation(octets) => {
                let operation = Operation::decode(octets).ok_or(Status::ServerFault)?;
                match to.logged || !self.is_gated(to, &operation) {
                    true => self.carry_out(to, &operation),
                    false => Ok(()),
                }
            }
            SetAside::Message(message) => {
                let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
                let store = self.whole_store.clone();
                let decoded = RequestHeader::decode(order, message).and_then(|header| {
                    Ok((header, handles::decode(&*store, order, &header, message)?))
                });
                let (header, request) = decoded.map_err(|error| error.status())?;
                self.dispatch_told(to, &header, &request, told)
            }
        }
    }

    /// A request that was set aside, and that could not be carried out when it was tried again.
    pub(crate) fn refuse_again(&mut self, to: ReplyTo, why: NotDone, kept: &SetAside) {
        match kept {
            SetAside::Operation(octets) => match Operation::decode(octets) {
                Some(operation) => self.refuse(to, why, Asked::Operation(&operation)),
                None => self.fail(to, Status::ServerFault),
            },
            SetAside::Message(message) => self.refuse(to, why, Asked::Message(message)),
        }
    }
}
