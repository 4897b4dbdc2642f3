//! A batch that was sent, as a future.
//!
//! Invariant: dropping the future leaks nothing. Its requests go on, keep their memory, and end
//! without being reported.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dafs_types::Status;
use dafs_wire::Request;
use dafs_wire::messages::HurryUp;

use crate::batch::table::{BatchKey, name_of};
use crate::client::Shared;
use crate::decode::decode_any;
use crate::driving::run;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::reply_future::ReplyFuture;

/// A batch in flight. It becomes ready when every request has ended and yields their outcomes; the
/// slices it was given are then free. The thread that polls it must also call
/// [`crate::Client::process_events`].
#[must_use = "dropping it discards the results of the batch"]
pub struct Batched {
    shared: Rc<Shared>,
    session: SessionKey,
    batch: BatchKey,
    is_over: bool,
}

impl Batched {
    pub(super) fn new(shared: Rc<Shared>, session: SessionKey, batch: BatchKey) -> Self {
        Self { shared, session, batch, is_over: false }
    }

    /// Waits for all requests and returns their outcomes, in the order they were added.
    #[must_use]
    pub fn wait(self) -> Vec<Result<u32>> {
        let (shared, session) = (self.shared.clone(), self.session);
        run(&shared, session, self)
    }

    /// Returns the number of requests whose completion has not arrived.
    #[must_use]
    pub fn left(&self) -> usize {
        self.shared.borrow().batches.get(self.batch).map_or(0, |state| state.left)
    }

    /// Returns the outcome of the request with this index; `None` while it is in flight.
    #[must_use]
    pub fn outcome(&self, request: usize) -> Option<Result<u32>> {
        let core = self.shared.borrow();
        core.batches.get(self.batch)?.results.get(request)?.clone()
    }

    /// Asks the server to carry out a request of a submitted batch at once and report it, and waits
    /// for the server's consent. Returns false if the request has ended already, or if the server
    /// has not accepted it yet: in a session with checksums the server first fetches written data,
    /// and after a reconnect the request is submitted again.
    ///
    /// # Errors
    /// If the session has ended, and any error that the server reports.
    pub fn expedite(&self, request: usize) -> Result<bool> {
        let name = name_of(self.batch, request);
        let hurry = Request::HurryUp(HurryUp { request: name });
        let address = self.shared.borrow().sessions.open(self.session)?.address.clone();
        let answer = ReplyFuture::send(&self.shared, self.session, None, &hurry)?;
        let reply = run(&self.shared, self.session, answer)?;
        let (header, _) = decode_any(hurry.procedure(), &reply, &address)?;
        match header.status {
            Status::Ok => Ok(true),
            Status::BatchRequestNotFound => Ok(false),
            status => Err(ClientError::Status { what: "HURRY_UP".into(), status }),
        }
    }

    /// Cancels a request. The protocol cannot withdraw it: the request goes on (expedited if it was
    /// submitted), keeps its memory until it ends, and its outcome is then
    /// [`ClientError::Cancelled`] in any case. Returns false if it has ended already.
    #[must_use]
    pub fn cancel(&self, request: usize) -> bool {
        let mut core = self.shared.borrow_mut();
        let Some(state) = core.batches.get_mut(self.batch) else { return false };
        if !state.results.get(request).is_some_and(Option::is_none) {
            return false;
        }
        state.cancelled[request] = true;
        if !state.parameters.synchronous {
            let name = name_of(self.batch, request);
            // The request ends whether or not the server still finds it.
            let _ = core
                .send_ignoring_reply(self.session, &Request::HurryUp(HurryUp { request: name }));
        }
        true
    }
}

impl Future for Batched {
    type Output = Vec<Result<u32>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let batch = self.batch;
        let mut core = self.shared.borrow_mut();
        if let Some(results) = core.batches.take(batch) {
            drop(core);
            self.is_over = true;
            return Poll::Ready(results);
        }
        match core.batches.get_mut(batch) {
            Some(state) => {
                state.waker = Some(context.waker().clone());
                if state.lasts() {
                    core.transport.interface_mut().be_patient();
                }
                Poll::Pending
            }
            // Polled again after it was ready, which the contract of `Future` forbids.
            None => Poll::Ready(Vec::new()),
        }
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.borrow_mut().batches.abandon(self.batch);
        }
    }
}
