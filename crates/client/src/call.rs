//! Requests of any procedure, without waiting: for whoever has many under way at once.
//!
//! Invariant: an answer is taken once; one that nobody waits for any more is dropped
//! when it comes.

use std::ffi::OsStr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dafs_types::{CreateMode, FileHandle, RmrContext, RmrTarget, StateId, Status};
use dafs_wire::messages::Close;
use dafs_wire::{DirectBuffer, Procedure, Request, Response};

use crate::buffer::Slice;
use crate::client::Shared;
use crate::core::{Core, Phase};
use crate::decode::decode_any;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::session::Session;
use crate::waiters::Ticket;

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
        let address = self.shared.borrow().sessions[self.index].address.clone();
        let answer = Answer::of(self, request)?;
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
    /// How a request of the caller's own names this memory to the session's server. The buffer
    /// must be kept until the answer is there. It is not used for anything else afterwards.
    #[must_use]
    pub fn direct(&self, session: &Session) -> DirectBuffer {
        self.buffer.note_exposed();
        self.direct_in(session)
    }

    /// How a request names this memory to the session's server.
    pub(crate) fn direct_in(&self, session: &Session) -> DirectBuffer {
        session.shared.borrow_mut().direct(session.index, self)
    }
}

impl Core {
    /// How a request names memory to a session's server, which other sessions' servers know by
    /// other names perhaps.
    #[inline]
    pub(crate) fn direct(&mut self, index: usize, slice: &Slice) -> DirectBuffer {
        let endpoint = self.sessions[index].endpoint;
        let (offset, length) = (slice.offset as u64, slice.length);
        let remote = self.interface.remote(endpoint, &slice.buffer.region, offset, length);
        let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
        DirectBuffer { target, length, context }
    }
}

impl Reply {
    /// The status and the results, which a failure may have too.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] if it is no answer to what was asked.
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

/// Whether an answer comes sooner than it takes to sleep: the server need not wait for a disk,
/// or for somebody else.
pub(crate) fn is_quick(request: &Request<'_>) -> bool {
    match request {
        Request::Open(open) => open.creation.mode() == CreateMode::NoCreate,
        Request::Create(_)
        | Request::Link(_)
        | Request::Remove(_)
        | Request::Rename(_)
        | Request::SetAttrInline(_)
        | Request::SetAttrDirect(_)
        | Request::AppendInline(_)
        | Request::AppendDirect(_)
        | Request::Commit(_)
        | Request::Lock(_)
        | Request::BatchSubmit(_)
        | Request::SetFencingList(_)
        | Request::Disconnect(_)
        | Request::ClientConnect(_)
        | Request::ClientConnectAuth(_)
        | Request::ClientAuth(_)
        | Request::ServerAuth(_) => false,
        _ => true,
    }
}

/// An answer to come, as octets.
pub(crate) struct Answer {
    shared: Rc<Shared>,
    /// `None` once it was taken.
    ticket: Option<Ticket>,
}

impl Answer {
    /// Sends a request.
    pub fn to(shared: &Rc<Shared>, index: usize, request: &Request<'_>) -> Result<Self> {
        let ticket = shared.borrow_mut().start_call(index, request)?;
        Ok(Self { shared: shared.clone(), ticket: Some(ticket) })
    }

    /// Sends a request as whomever the session acts for. What closes a file is the client's
    /// own: credentials may have been released since it was opened.
    pub fn of(session: &Session, request: &Request<'_>) -> Result<Self> {
        let is_own = matches!(request, Request::Close(_));
        session.shared.borrow_mut().acting = session.acting.filter(|_| !is_own);
        let answer = Self::to(&session.shared, session.index, request);
        session.shared.borrow_mut().acting = None;
        answer
    }

    /// Comes, empty, when the connection stands.
    pub fn to_connect(shared: &Rc<Shared>, index: usize) -> Result<Self> {
        let mut core = shared.borrow_mut();
        core.check_open(index)?;
        let ticket = core.replies.make();
        match core.sessions[index].phase {
            Phase::Connecting => core.sessions[index].greeting = Some(ticket),
            Phase::Open | Phase::Recovering | Phase::Ended(_) => {
                core.replies.put(ticket, Ok(Vec::new()));
            }
        }
        Ok(Self { shared: shared.clone(), ticket: Some(ticket) })
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Future for Answer {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Polled after its end, which a caller must not do.
        let Some(ticket) = self.ticket else { return Poll::Ready(Err(ClientError::Cancelled)) };
        let mut core = self.shared.borrow_mut();
        let Some(result) = core.replies.take(ticket) else {
            core.replies.wake_with(ticket, context.waker());
            return Poll::Pending;
        };
        drop(core);
        self.ticket = None;
        Poll::Ready(result)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.borrow_mut().replies.abandon(ticket);
        }
    }
}
