//! Requests of any procedure, without waiting: for whoever has many under way at once.
//!
//! Invariant: an answer is taken once; one that nobody waits for any more is dropped
//! when it comes.

use std::ffi::OsStr;
use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_types::{FileHandle, RmrContext, RmrTarget, StateId, Status};
use dafs_wire::messages::Close;
use dafs_wire::{DirectBuffer, Procedure, Request, Response};

use crate::answer::Answer;
use crate::buffer::Slice;
use crate::decode::decode_any;
use crate::error::Result;
use crate::file::File;
use crate::session::Session;

/// A request under way. Whoever polls it must also turn the client.
#[derive(Debug)]
#[must_use = "without it nobody learns how the request ended"]
pub struct Call {
    procedure: Procedure,
    address: String,
    answer: Answer,
}

/// The answer to a [`Call`].
#[derive(Clone, Debug)]
pub struct Reply {
    procedure: Procedure,
    address: String,
    message: Vec<u8>,
}

impl Session {
    /// Submits a request of any procedure but those that move bulk data through the
    /// client's own buffers ([`Session::submit_read`] and its like) or make the session.
    /// It goes out with the client's next turn.
    ///
    /// # Errors
    /// If the session has ended, or the request does not fit a message.
    pub fn start(&self, request: &Request<'_>) -> Result<Call> {
        let address = self.shared.borrow().sessions[self.key].address.clone();
        let answer = self.answer_to(request)?;
        Ok(Call { procedure: request.procedure(), address, answer })
    }

    /// The handle of the server's root directory.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        self.root
    }

    /// A file that a request of the caller's own has opened in this session. Dropping it
    /// closes it.
    #[must_use]
    pub fn opened(&self, handle: FileHandle, state: StateId, path: impl AsRef<OsStr>) -> File {
        self.file(handle, state, path.as_ref())
    }
}

impl File {
    /// Closes, as a request of the caller's own.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn start_close(self) -> Result<Call> {
        self.note_closed();
        self.session().start(&Request::Close(Close { file: self.handle(), state: self.state() }))
    }
}

impl Slice {
    /// How a request of the caller's own names this memory, in sessions of this memory's client.
    /// Where the server knows it by another name, the library puts that in when it sends the
    /// request. The buffer must be kept until the answer is there. It is not used for anything
    /// else afterwards.
    #[must_use]
    pub fn direct(&self) -> DirectBuffer {
        self.buffer.note_exposed();
        self.named()
    }

    /// How a request names this memory until it is sent: see [`crate::naming`].
    #[inline]
    pub(crate) fn named(&self) -> DirectBuffer {
        let remote = self.buffer.region.remote(self.offset as u64, self.length);
        let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
        DirectBuffer { target, length: self.length, context }
    }
}

impl Reply {
    /// The status and the results, which a failure may have too.
    ///
    /// # Errors
    /// [`ClientError::Protocol`](crate::ClientError::Protocol) if it is no answer to what was
    /// asked.
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
