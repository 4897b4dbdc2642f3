//! Requests that are set aside, to be carried out from their start later: they wait for a name, for
//! the journal, for a delegation, or for a search.
//!
//! Invariant: what waits has had no effect yet. A request that may change names or attributes, and
//! every OPEN and LOCK, waits as the operation that it asks for, and no message of it is kept. So
//! it can wait for any protocol, and be handed to whoever has the files.

use dafs_ops::Operation;
use dafs_types::Status;
use dafs_wire::{Request, RequestHeader};

use crate::delegations::Told;
use crate::handles;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::translate::{self, Scratch};

/// An operation as it is kept while it waits, and as it is written down.
pub(crate) fn octets_of(operation: &Operation<'_>) -> Box<[u8]> {
    let mut octets = Vec::new();
    operation.encode(&mut octets);
    octets.into()
}

/// What a request asks for, in the form in which it can be set aside.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// An operation.
    Operation(&'a Operation<'a>),
    /// Its message, of one that is none.
    Message(&'a [u8]),
}

/// What is kept of a request that waits.
pub(crate) enum SetAside {
    /// An operation, as it encodes itself.
    Operation(Box<[u8]>),
    /// The message.
    Message(Box<[u8]>),
}

impl Asked<'_> {
    /// What is to be kept of it.
    pub fn set_aside(self) -> SetAside {
        match self {
            Self::Operation(operation) => SetAside::Operation(octets_of(operation)),
            Self::Message(message) => SetAside::Message(message.into()),
        }
    }
}

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
