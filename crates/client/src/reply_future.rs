//! A future for the reply to one request, as raw bytes.
//!
//! Invariant: a reply is taken once. A reply whose future was dropped is discarded when it arrives.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dafs_wire::Request;

use crate::client::Shared;
use crate::core::Core;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::impersonation::RegisteredCredentials;
use crate::result_sinks::ReplyTicket;
use crate::state::Phase;

/// A future that yields the bytes of a reply.
pub(crate) struct ReplyFuture {
    shared: Rc<Shared>,
    /// The ticket for the reply; `None` once the reply was taken.
    ticket: Option<ReplyTicket>,
}

impl ReplyFuture {
    /// Sends a request with the credentials `acting`, or the client's own if `None`.
    pub(crate) fn send(
        shared: &Rc<Shared>,
        key: SessionKey,
        acting: Option<RegisteredCredentials>,
        request: &Request<'_>,
    ) -> Result<Self> {
        let ticket = shared.borrow_mut().start_call(key, acting, request)?;
        Ok(Self { shared: shared.clone(), ticket: Some(ticket) })
    }

    /// Sends a request of at most `bytes_max` bytes with the client's own credentials.
    pub(crate) fn send_limited(
        shared: &Rc<Shared>,
        key: SessionKey,
        bytes_max: u32,
        request: &Request<'_>,
    ) -> Result<Self> {
        let ticket = shared.borrow_mut().start_call_within(key, bytes_max, None, request)?;
        Ok(Self { shared: shared.clone(), ticket: Some(ticket) })
    }

    /// Returns a future that is ready when the session's connection is established; it yields no
    /// bytes.
    pub(crate) fn connected(shared: &Rc<Shared>, key: SessionKey) -> Result<Self> {
        let mut core = shared.borrow_mut();
        let Core { sessions, sinks, .. } = &mut *core;
        let session = sessions.open_mut(key)?;
        let ticket = sinks.replies.make();
        match session.phase {
            Phase::Connecting => session.connect_waiter = Some(ticket),
            Phase::Open | Phase::Recovering | Phase::Ended(_) => {
                sinks.replies.put(ticket, Ok(Vec::new()));
            }
        }
        drop(core);
        Ok(Self { shared: shared.clone(), ticket: Some(ticket) })
    }
}

impl std::fmt::Debug for ReplyFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyFuture").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Future for ReplyFuture {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The caller polled a future that was already ready, which the contract of `Future`
        // forbids.
        let Some(ticket) = self.ticket else { return Poll::Ready(Err(ClientError::Cancelled)) };
        let mut core = self.shared.borrow_mut();
        let Some(result) = core.sinks.replies.take(ticket) else {
            core.sinks.replies.wake_with(ticket, context.waker());
            return Poll::Pending;
        };
        drop(core);
        self.ticket = None;
        Poll::Ready(result)
    }
}

impl Drop for ReplyFuture {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.borrow_mut().sinks.replies.abandon(ticket);
        }
    }
}
