//! A chain under way.
//!
//! Invariant: it is over when every member has its answer, so that nothing it was given is
//! touched any more.

use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_types::Status;

use super::outcome::{Asked, ChainFailure, Outcome};
use crate::decode::decode_any;
use crate::error::{ClientError, Result};
use crate::session::Session;
use crate::waiters::Ticket;

/// A chain under way. Whoever polls it must also turn the client. It is ready when every
/// member has its answer, so that slices it was given are free then.
#[must_use = "without it nobody learns how the chain ended"]
pub struct Chained<'s> {
    session: &'s Session,
    pub(super) asked: Vec<Asked>,
    pub(super) tickets: Vec<Ticket>,
    /// Answers taken.
    taken: usize,
    done: Vec<Outcome>,
    pub(super) failure: Option<ChainFailure>,
}

impl<'s> Chained<'s> {
    pub(super) fn empty(session: &'s Session) -> Self {
        let (asked, tickets, done) = (Vec::new(), Vec::new(), Vec::new());
        Self { session, asked, tickets, taken: 0, done, failure: None }
    }

    /// It was not taken in: nothing will come.
    pub(super) fn refused(mut self, error: ClientError) -> ChainFailure {
        let mut core = self.session.shared.borrow_mut();
        for ticket in self.tickets.drain(..) {
            core.replies.put(ticket, Ok(Vec::new()));
            core.replies.abandon(ticket);
        }
        drop(core);
        let name = self.asked.first().map_or("", |asked| asked.procedure.name());
        ChainFailure { member: 0, name, error, done: Vec::new() }
    }

    /// Reads the next member's answer.
    fn take(&mut self, reply: Result<Vec<u8>>) {
        let (member, asked) = (self.taken, &self.asked[self.taken]);
        self.taken += 1;
        if self.failure.is_some() {
            return;
        }
        match self.read(asked, reply) {
            Ok(outcome) => self.done.push(outcome),
            Err(error) => {
                let name = asked.procedure.name();
                self.failure = Some(ChainFailure { member, name, error, done: Vec::new() });
            }
        }
    }

    fn read(&self, asked: &Asked, reply: Result<Vec<u8>>) -> Result<Outcome> {
        let reply = reply?;
        let core = self.session.shared.borrow();
        let session = &core.sessions[self.session.index];
        let (header, response) = decode_any(asked.procedure, &reply, &session.address)?;
        if header.status != Status::Ok {
            return Err(asked.failed(header.status));
        }
        asked.outcome(&response, session.checksums).map_err(|what| ClientError::Protocol {
            address: session.address.clone(),
            what: format!("{} answer: {what}", asked.procedure.name()),
        })
    }
}

impl Future for Chained<'_> {
    type Output = std::result::Result<Vec<Outcome>, ChainFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(ticket) = self.tickets.get(self.taken).copied() {
            let mut core = self.session.shared.borrow_mut();
            let Some(reply) = core.replies.take(ticket) else {
                core.replies.wake_with(ticket, context.waker());
                return Poll::Pending;
            };
            drop(core);
            self.take(reply);
        }
        let done = std::mem::take(&mut self.done);
        Poll::Ready(match self.failure.take() {
            None => Ok(done),
            Some(failure) => Err(ChainFailure { done, ..failure }),
        })
    }
}

impl Drop for Chained<'_> {
    fn drop(&mut self) {
        let mut core = self.session.shared.borrow_mut();
        for ticket in self.tickets.iter().skip(self.taken) {
            core.replies.abandon(*ticket);
        }
    }
}
