//! A chain in flight, as a future.
//!
//! Invariant: the chain has ended when every member has a reply. From then on no server accesses
//! the memory passed to the chain.

use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_types::{FileHandle, Status};
use dafs_wire::messages::GetAttributes;
use dafs_wire::{ByteOrder, Request, decode_request, decode_response};

use crate::chain::outcome::{ChainFailure, Outcome};
use crate::chain::work::{ChainWork, SharedChain};
use crate::core::Core;
use crate::error::{ClientError, Result};
use crate::session::Session;
use crate::state::SessionState;

/// A chain in flight. The future becomes ready when every member has a reply; the slices passed to
/// the chain are then free. The thread that polls the future must also call
/// [`crate::Client::process_events`].
#[must_use = "dropping it discards the results of the chain"]
pub struct Chained<'s> {
    session: &'s Session,
    state: State,
}

enum State {
    InFlight(SharedChain),
    /// The chain was refused by this library and not sent.
    Failed(Box<ChainFailure>),
    Over,
}

impl<'s> Chained<'s> {
    pub(super) fn in_flight(session: &'s Session, chain: SharedChain) -> Self {
        Self { session, state: State::InFlight(chain) }
    }

    pub(super) fn failed(session: &'s Session, failure: ChainFailure) -> Self {
        Self { session, state: State::Failed(Box::new(failure)) }
    }

    /// Decodes the replies of a chain that has ended.
    fn read(&self, core: &Core, chain: &ChainWork) -> Brought {
        let mut done = Vec::with_capacity(chain.members.len());
        let session = &core.sessions[self.session.key];
        for number in 0..chain.members.len() {
            match chain.outcome(number, session) {
                Ok(outcome) => done.push(outcome),
                Err(error) => {
                    let name = chain.members[number].procedure.name();
                    return Err(ChainFailure { member: number, name, error, done });
                }
            }
        }
        Ok(done)
    }
}

type Brought = std::result::Result<Vec<Outcome>, ChainFailure>;

impl ChainWork {
    /// Returns the outcome of one member of a chain that has ended.
    fn outcome(&self, number: usize, session: &SessionState) -> Result<Outcome> {
        let member = &self.members[number];
        if let Some(Err(error)) = &member.answer {
            return Err(error.clone());
        }
        let answer = self.answer(number).unwrap_or_default();
        let broken = |what: String| ClientError::Protocol {
            address: session.address.clone(),
            what: format!("{} reply: {what}", member.procedure.name()),
        };
        let decoded = decode_response(ByteOrder::NATIVE, member.procedure, answer);
        let (header, response) = match &decoded {
            Ok(decoded) => decoded,
            Err(error) => return Err(broken(error.to_string())),
        };
        let asked = &member.asked;
        if header.status != Status::Ok {
            let what = asked.what.clone().and_then(|place| self.names.get(place));
            let what = what.unwrap_or(member.procedure.name()).to_owned();
            return Err(ClientError::Status { what, status: header.status });
        }
        let named = || self.object_named(number);
        let outcome = asked.outcome(response, named, session.terms.checksums);
        outcome.map_err(|what| broken(what.to_owned()))
    }

    /// Returns the object whose attributes a GETATTR member requests.
    fn object_named(&self, number: usize) -> FileHandle {
        let message = &self.bytes[self.members[number].message.clone()];
        match decode_request(ByteOrder::NATIVE, message) {
            Ok((_, Request::GetAttrInline(GetAttributes { file, .. }))) => file,
            Ok(_) | Err(_) => FileHandle::NULL,
        }
    }
}

impl Future for Chained<'_> {
    type Output = Brought;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let chain = match std::mem::replace(&mut self.state, State::Over) {
            State::InFlight(chain) => chain,
            State::Failed(failure) => return Poll::Ready(Err(*failure)),
            // The caller polled a future that was already ready, which the contract of `Future`
            // forbids.
            State::Over => return Poll::Ready(Ok(Vec::new())),
        };
        if !chain.borrow().is_over {
            chain.borrow_mut().wake_with(context.waker());
            self.state = State::InFlight(chain);
            return Poll::Pending;
        }
        let mut core = self.session.shared.borrow_mut();
        let brought = self.read(&core, &chain.borrow());
        core.leave_chain(chain);
        Poll::Ready(brought)
    }
}
