//! The asynchronous interface: futures that any single-threaded executor can poll, and a small
//! executor.
//!
//! Invariant: a future is ready once its result has arrived, and its task is woken at that time.
//! Progress is made by [`crate::Client::process_events`], which [`block_on`] calls between polls.
//! With another executor, one task waits for the client's file descriptor ([`crate::Client::arm`],
//! [`crate::Client::with_fd`]), for at most the time that [`crate::Client::next_timer`] returns,
//! and then calls `process_events`. Dropping a future early leaks nothing: its transfer is either
//! cancelled, or continues without a reported result and keeps its buffer until it ends.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_types::Stability;

use crate::buffer::Slice;
use crate::device::Span;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::operation::{OperationId, Transferred};
use crate::result_sinks::TransferTicket;
use crate::transfer::TransferKind;

/// The future of a transfer in flight.
struct TransferFuture<'f> {
    file: &'f File,
    started: Started,
}

enum Started {
    InFlight(OperationId, TransferTicket),
    Refused(ClientError),
    Over,
}

impl Future for TransferFuture<'_> {
    type Output = Result<Transferred>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.started, Started::Over) {
            Started::Refused(error) => Poll::Ready(Err(error)),
            Started::InFlight(id, ticket) => {
                let mut core = self.file.session().shared.borrow_mut();
                let Some(result) = core.sinks.transfers.take(ticket) else {
                    core.sinks.transfers.wake_with(ticket, context.waker());
                    drop(core);
                    self.started = Started::InFlight(id, ticket);
                    return Poll::Pending;
                };
                drop(core);
                Poll::Ready(result.map_err(|error| self.file.name(error)))
            }
            // The caller polled a future that was already ready, which the contract of `Future`
            // forbids.
            Started::Over => Poll::Ready(Err(ClientError::Cancelled)),
        }
    }
}

impl Drop for TransferFuture<'_> {
    fn drop(&mut self) {
        if let Started::InFlight(id, ticket) = self.started {
            let mut core = self.file.session().shared.borrow_mut();
            core.sinks.transfers.abandon(ticket);
            core.cancel(id);
        }
    }
}

impl File {
    /// Reads from byte `offset` into a buffer or device memory. The transfer starts immediately.
    /// The server may return fewer bytes than the slice holds, even before the end of the file.
    pub fn read_async<S: Into<Span>>(
        &self,
        offset: u64,
        slice: S,
    ) -> impl Future<Output = Result<Transferred>> + use<'_, S> {
        let Span(slice) = slice.into();
        self.transfer_async(TransferKind::Read, offset, Some(slice))
    }

    /// Writes the whole slice of a buffer or device memory at byte `offset`, unstable. The transfer
    /// starts immediately.
    pub fn write_async<S: Into<Span>>(
        &self,
        offset: u64,
        slice: S,
    ) -> impl Future<Output = Result<Transferred>> + use<'_, S> {
        let Span(slice) = slice.into();
        self.transfer_async(TransferKind::Write(Stability::Unstable), offset, Some(slice))
    }

    /// Commits written data. The request is sent immediately. The data of earlier writes is durable
    /// if the commit returns the same verifier as those writes ([`Transferred::verifier`]).
    pub fn commit_async(&self) -> impl Future<Output = Result<Transferred>> + '_ {
        self.transfer_async(TransferKind::Commit, 0, None)
    }

    fn transfer_async(
        &self,
        kind: TransferKind,
        offset: u64,
        slice: Option<Slice>,
    ) -> TransferFuture<'_> {
        let started = match self.start(kind, offset, slice) {
            Ok((id, ticket)) => Started::InFlight(id, ticket),
            Err(error) => Started::Refused(error),
        };
        TransferFuture { file: self, started }
    }
}
