//! Requests of any procedure as futures, for callers with many requests in flight.
//!
//! Invariant: a reply is taken once. A reply whose future was dropped is discarded when it arrives.

use std::ffi::OsStr;
use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_types::{FileHandle, RmrContext, RmrTarget, StateId, Status};
use dafs_wire::messages::Close;
use dafs_wire::{DirectBuffer, Procedure, Request, Response};

use crate::buffer::Slice;
use crate::decode::decode_any;
use crate::error::Result;
use crate::file::File;
use crate::reply_future::ReplyFuture;
use crate::session::Session;

/// The future of the reply to a request in flight. The thread that polls it must also call
/// [`crate::Client::process_events`].
#[derive(Debug)]
#[must_use = "dropping it discards the result of the request"]
pub struct Call {
    procedure: Procedure,
    address: String,
    answer: ReplyFuture,
}

/// The reply to a [`Call`], still encoded.
#[derive(Clone, Debug)]
pub struct Reply {
    procedure: Procedure,
    address: String,
    message: Vec<u8>,
}

impl Session {
    #[doc(hidden)]
    /// Submits a request of any procedure, except those that move bulk data through the client's
    /// own buffers ([`Session::submit_read`] and similar) and those that establish the session. The
    /// request is sent at the next call that makes progress, such as
    /// [`crate::Client::process_events`].
    ///
    /// # Errors
    /// If the session has ended, or if the request does not fit in a message.
    pub fn start(&self, request: &Request<'_>) -> Result<Call> {
        let address = self.shared.borrow().sessions[self.key].address.clone();
        let answer = self.answer_to(request)?;
        Ok(Call { procedure: request.procedure(), address, answer })
    }

    /// Returns the handle of the server's root directory.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        self.root
    }

    #[doc(hidden)]
    /// Returns a [`File`] for an open that the caller made in this session with its own OPEN
    /// request. Dropping the file closes the open. `path` is used in error messages only.
    #[must_use]
    pub fn opened(&self, handle: FileHandle, state: StateId, path: impl AsRef<OsStr>) -> File {
        self.file(handle, state, path.as_ref())
    }
}

impl File {
    #[doc(hidden)]
    /// Sends CLOSE for this file without waiting for the reply.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn start_close(self) -> Result<Call> {
        self.note_closed();
        self.session().start(&Request::Close(Close { file: self.handle(), state: self.state() }))
    }
}

impl Slice {
    #[doc(hidden)]
    /// Returns the descriptor that names this memory in requests that the caller builds, in
    /// sessions of this memory's client. If the server knows the memory by another STag, the
    /// library substitutes that STag when it sends the request. Keep the buffer until the reply has
    /// arrived. The client never reuses this memory for other buffers.
    #[must_use]
    pub fn direct(&self) -> DirectBuffer {
        self.buffer.note_exposed();
        self.named()
    }

    /// Returns the descriptor that names this memory in an encoded request. When the request is
    /// sent, the descriptor's STag is replaced if necessary; see [`crate::naming`].
    #[inline]
    pub(crate) fn named(&self) -> DirectBuffer {
        let remote = self.buffer.region.remote(self.offset as u64, self.length);
        let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
        DirectBuffer { target, length: self.length, context }
    }
}

impl Reply {
    /// Decodes the reply into its status and its results. A failed request may have results too.
    ///
    /// # Errors
    /// [`ClientError::Protocol`](crate::ClientError::Protocol) if the reply does not match the
    /// request.
    pub fn read(&self) -> Result<(Status, Response<'_>)> {
        let (header, response) = decode_any(self.procedure, &self.message, &self.address)?;
        Ok((header.status, response))
    }
}

impl Future for Call {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(result) = Pin::new(&mut self.answer).poll(context) else {
            return Poll::Pending;
        };
        Poll::Ready(result.map(|message| Reply {
            procedure: self.procedure,
            address: std::mem::take(&mut self.address),
            message,
        }))
    }
}
