//! A batch that was sent.
//!
//! Invariant: dropping it leaves nothing behind: its requests go on, hold their memory, and end
//! unseen.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dafs_types::Status;
use dafs_wire::Request;
use dafs_wire::messages::HurryUp;

use crate::answer::Answer;
use crate::batch::table::{BatchKey, name_of};
use crate::client::Shared;
use crate::decode::decode_any;
use crate::driving::run;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;

/// A batch under way. Whoever polls it must also turn the client. It is ready when every request
/// has ended: then the slices it was given are free, and it yields how each ended.
#[must_use = "without it nobody learns how the batch ended"]
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

    /// Waits for the end.
    #[must_use]
    pub fn wait(self) -> Vec<Result<u32>> {
        let (shared, session) = (self.shared.clone(), self.session);
        run(&shared, session, self)
    }

    /// Requests that have not ended, as far as this client has heard.
    #[must_use]
    pub fn left(&self) -> usize {
        self.shared.borrow().batches.get(self.batch).map_or(0, |state| state.left)
    }

    /// How a request ended, if it has.
    #[must_use]
    pub fn outcome(&self, request: usize) -> Option<Result<u32>> {
        let core = self.shared.borrow();
        core.batches.get(self.batch)?.results.get(request)?.clone()
    }

    /// Asks the server to go on with a request of a submitted batch at once, and to tell of it;
    /// waits for that to be understood. False if the request has ended already, or the server
    /// has not accepted it yet: in a session with checksums it fetches what is written first, and
    /// after a lost connection it is submitted again.
    ///
    /// # Errors
    /// If the session has ended, or as the server says.
    pub fn hurry_up(&self, request: usize) -> Result<bool> {
        let name = name_of(self.batch, request);
        let hurry = Request::HurryUp(HurryUp { request: name });
        let address = self.shared.borrow().sessions.open(self.session)?.address.clone();
        let answer = Answer::to(&self.shared, self.session, None, &hurry)?;
        let reply = run(&self.shared, self.session, answer)?;
        let (header, _) = decode_any(hurry.procedure(), &reply, &address)?;
        match header.status {
            Status::Ok => Ok(true),
            Status::BatchRequestNotFound => Ok(false),
            status => Err(ClientError::Status { what: "HURRY_UP".into(), status }),
        }
    }

    /// Gives a request up. The protocol has no way to take it back: it goes on, hurried where
    /// it was submitted, holds its memory until its end, and is then
    /// [`ClientError::Cancelled`] whatever became of it. False if it has ended already.
    #[must_use]
    pub fn cancel(&self, request: usize) -> bool {
        let mut core = self.shared.borrow_mut();
        let Some(state) = core.batches.get_mut(self.batch) else { return false };
        if !state.results.get(request).is_some_and(Option::is_none) {
            return false;
        }
        state.cancelled[request] = true;
        if !state.manner.synchronous {
            let name = name_of(self.batch, request);
            // Whether it is found or not: it will end.
            let _ = core.cast(self.session, &Request::HurryUp(HurryUp { request: name }));
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
            // Polled after its end, which a caller must not do.
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
