//! The asynchronous face: futures that any executor may poll, and a small one.
//!
//! Invariant: a future is ready once its completion is there; progress is made by
//! [`crate::Client::turn`], which [`block_on`] calls between polls.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dafs_types::Stability;

use crate::buffer::Slice;
use crate::core::{Client, Group, OperationId, Transferred};
use crate::error::Result;
use crate::file::File;

/// A transfer on its way.
struct TransferFuture<'f> {
    file: &'f File,
    id: Result<OperationId>,
}

impl Future for TransferFuture<'_> {
    type Output = Result<Transferred>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.id {
            Err(error) => Poll::Ready(Err(error.clone())),
            Ok(id) => match self.file.take_completion(*id) {
                Some(completion) => Poll::Ready(completion.result),
                None => {
                    // There is no thread that could wake the task later: whoever polls
                    // must turn the client between polls.
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            },
        }
    }
}

impl File {
    /// Reads; the transfer is under way at once.
    pub fn read_async(
        &self,
        offset: u64,
        slice: Slice,
    ) -> impl Future<Output = Result<Transferred>> + '_ {
        let id = self.session().submit_read(self, offset, slice, Group::FUTURES, 0);
        TransferFuture { file: self, id }
    }

    /// Writes, unstable; the transfer is under way at once.
    pub fn write_async(
        &self,
        offset: u64,
        slice: Slice,
    ) -> impl Future<Output = Result<Transferred>> + '_ {
        let group = Group::FUTURES;
        let stability = Stability::Unstable;
        let id = self.session().submit_write(self, offset, slice, stability, group, 0);
        TransferFuture { file: self, id }
    }

    /// Commits; under way at once.
    pub fn commit_async(&self) -> impl Future<Output = Result<Transferred>> + '_ {
        let id = self.session().submit_commit(self, Group::FUTURES, 0);
        TransferFuture { file: self, id }
    }
}

/// Runs a future on this thread, turning the client while it waits.
pub fn block_on<F: Future>(client: &Client, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => client.turn(None),
        }
    }
}
