//! A batch that was sent, as a future.
//!
//! Invariant: dropping the future leaks nothing. The requests of the batch continue, keep their
//! memory until they end, and their outcomes are discarded.

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

/// A batch in flight. The future becomes ready when every request has ended, and yields the
/// outcomes of the requests; the slices passed to the batch are then free. The thread that polls
/// the future must also call [`crate::Client::process_events`].
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

    /// Waits for all requests and returns their outcomes, in the order in which the requests were
    /// added.
    #[must_use]
    pub fn wait(self) -> Vec<Result<u32>> {
        let (shared, session) = (self.shared.clone(), self.session);
        run(&shared, session, self)
    }

    /// Returns the number of requests whose completions have not arrived.
    #[must_use]
    pub fn left(&self) -> usize {
        self.shared.borrow().batches.get(self.batch).map_or(0, |state| state.left)
    }

    /// Returns the outcome of the request with this index; `None` while the request is in flight.
    #[must_use]
    pub fn outcome(&self, request: usize) -> Option<Result<u32>> {
        let core = self.shared.borrow();
        core.batches.get(self.batch)?.results.get(request)?.clone()
    }

    /// Asks the server to execute a request of a submitted batch without further delay, and waits
    /// for the server's reply. Returns false if the request has ended already, or if the server
    /// does not have it: in a session with checksums the server first fetches the data to write,
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

    /// Cancels a request. The protocol cannot withdraw a request, so it continues (expedited if it
    /// was submitted) and keeps its memory until it ends; its outcome is then always
    /// [`ClientError::Cancelled`]. Returns false if the request has ended already.
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
            // The request ends anyway, even if the server no longer finds it, so the reply is
            // ignored.
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
            // The caller polled a future that was already ready, which the contract of `Future`
            // forbids.
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
