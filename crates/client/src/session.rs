//! Sessions, as the application uses them.
//!
//! Invariant: a `Session` is established before it is returned to the application; every call
//! checks whether the session has ended since.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{Address, RegionPath};
use dafs_types::{FileHandle, Status};
use dafs_wire::messages::Empty;
use dafs_wire::{Request, Response};

use crate::buffer::Buffer;
use crate::client::{Client, Shared};
use crate::decode::unexpected;
use crate::driving::run;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::impersonation::RegisteredCredentials;
use crate::label::Label;
use crate::recovery::options::SessionEvent;
use crate::refusal::done;
use crate::reply_future::ReplyFuture;

/// A session with a server. Cheap to clone. The session ends when its last clone and its last open
/// file are dropped; its outstanding operations then fail.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: SessionKey,
    pub(crate) root: FileHandle,
    /// The credentials of the impersonated user, if any.
    pub(crate) acting: Option<RegisteredCredentials>,
    _anchor: Rc<Anchor>,
}

/// The object that all clones of a session share. When the last clone is dropped, this object is
/// dropped too and disconnects the session.
pub(crate) struct Anchor {
    shared: Rc<Shared>,
    key: SessionKey,
}

impl Anchor {
    /// Creates the anchor of a session that is being established.
    pub(crate) fn new(shared: Rc<Shared>, key: SessionKey) -> Rc<Self> {
        Rc::new(Self { shared, key })
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.shared.leave(self.key);
    }
}

impl Session {
    /// Creates a handle for a session that is established.
    pub(crate) fn new(
        shared: Rc<Shared>,
        key: SessionKey,
        root: FileHandle,
        anchor: Rc<Anchor>,
    ) -> Self {
        Self { shared, key, root, acting: None, _anchor: anchor }
    }

    /// Returns the transport address in use, which may change when the session reconnects.
    #[must_use]
    pub fn address(&self) -> Address {
        self.shared.borrow().sessions[self.key].place.address.clone()
    }

    /// Returns the client that the session belongs to.
    #[must_use]
    pub fn client(&self) -> Client {
        Client(self.shared.clone())
    }

    /// Returns how data reaches a buffer over this session; `None` while the session has no
    /// connection.
    #[must_use]
    pub fn path_of(&self, buffer: &Buffer) -> Option<RegionPath> {
        let core = self.shared.borrow();
        let session = &core.sessions[self.key];
        if !session.is_open() {
            return None;
        }
        core.transport.interface().region_path(session.endpoint, buffer.0.region.key)
    }

    /// Returns true if the session has ended: all later operations fail with
    /// [`ClientError::SessionEnded`]. A session that reconnects has not ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.borrow().sessions[self.key].check_open().is_err()
    }

    /// Returns the current number of credits, which limits the requests in flight.
    #[must_use]
    pub fn credits(&self) -> u16 {
        self.shared.borrow().sessions[self.key].in_flight.credits.nreq()
    }

    /// Returns the number of connections over which transfers are spread
    /// ([`SessionOptions::channels`]). The number is one unless more were requested and the server
    /// offers them. All transfers of one file go over one connection, in the order of submission.
    ///
    /// [`SessionOptions::channels`]: crate::SessionOptions::channels
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.shared.borrow().sessions[self.key].role.count()
    }

    /// Sends a request that only renews the lease, and waits for the reply.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn ping(&self) -> Result<()> {
        self.run(self.ping_async())
    }

    /// Renews the lease as [`Session::ping`] does, as a future. The request is sent immediately.
    pub fn ping_async(&self) -> impl Future<Output = Result<()>> + '_ {
        self.ask(&Request::Null(Empty), |status, _| done("NULL", status))
    }

    /// Sets a listener, which is called for later events of the connection during calls of this
    /// client that make progress. The listener may use the client but must not own the session: the
    /// session would then never end. Sessions without recovery have no events.
    pub fn on_event(&self, listener: impl FnMut(&SessionEvent) + 'static) {
        let mut core = self.shared.borrow_mut();
        let machine = core.sessions[self.key].recovery.as_mut();
        let before =
            machine.and_then(|machine| machine.set_listener(Rc::new(RefCell::new(listener))));
        core.pending_events.retire(before);
        drop(core);
        self.shared.deliver_events();
    }

    /// Disconnects from the server with a request, so that the server discards the session's state.
    /// Every outstanding operation fails.
    ///
    /// # Errors
    /// If the session has ended already, or if its connection is lost and cannot be restored within
    /// some seconds.
    pub fn disconnect(self) -> Result<()> {
        let session = self.clone();
        session.run(self.disconnect_async())
    }

    /// Disconnects as [`Session::disconnect`] does, as a future. The request is sent when the
    /// future is first polled.
    ///
    /// # Errors
    /// The errors of [`Session::disconnect`].
    pub async fn disconnect_async(self) -> Result<()> {
        // If the connection is lost now, the session reconnects once more, with a short time limit,
        // so that the server learns that it can discard the session's state.
        if let Some(machine) = &mut self.shared.borrow_mut().sessions[self.key].recovery {
            machine.limit_recovery_time(LEAVING_MAX);
        }
        self.disconnect_additional().await;
        let leaving = self.ask(&Request::Disconnect(Empty), |status, _| done("DISCONNECT", status));
        let result = leaving.await;
        self.shared.borrow_mut().end_session(self.key, "disconnected".into());
        result
    }

    /// Disconnects the additional channels. The first channel is disconnected last, because the
    /// server then releases the client's opens and locks.
    async fn disconnect_additional(&self) {
        let additional = self.shared.borrow().sessions[self.key].role.additional();
        for key in additional {
            // From here on the channel does not reconnect: it ends when its connection ends.
            let is_open = self.shared.borrow_mut().sessions[key].begin_to_leave();
            let request = Request::Disconnect(Empty);
            if is_open && let Ok(answer) = ReplyFuture::send(&self.shared, key, None, &request) {
                // If the channel's connection is lost now, the channel has ended too.
                let _ = answer.await;
            }
            self.shared.borrow_mut().end_session(key, "disconnected".into());
        }
    }

    /// Runs a future of this session on this thread.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        run(&self.shared, self.key, future)
    }

    /// Sends a request, waits, and passes the reply to `read`, whatever its status.
    pub(crate) fn call<T>(
        &self,
        request: &Request<'_>,
        read: impl FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
    ) -> Result<T> {
        self.run(self.ask(request, read))
    }

    pub(crate) fn protocol_error(&self, what: &str) -> ClientError {
        unexpected(&self.shared.borrow().sessions[self.key].address, what)
    }

    /// Sets the label of later requests by all clones of this session. A chain gets the label that
    /// is set when the chain is built. Each request of a long transfer gets the label that is set
    /// when the request is sent.
    pub fn set_label(&self, label: Label) {
        let mut core = self.shared.borrow_mut();
        for key in core.sessions[self.key].role.additional() {
            core.sessions[key].label = label.get();
        }
        core.sessions[self.key].label = label.get();
    }

    /// Returns the label of the session's requests.
    #[must_use]
    pub fn label(&self) -> Label {
        Label::new(self.shared.borrow().sessions[self.key].label).unwrap_or_default()
    }

    /// Returns `mode` without the bits that the session's umask removes.
    pub(crate) fn masked(&self, mode: u32) -> u32 {
        let umask = self.shared.borrow().sessions[self.key].options.umask;
        mode & !umask.bits()
    }
}

/// The time limit for a reconnect whose only purpose is to disconnect the session.
const LEAVING_MAX: Duration = Duration::from_secs(5);
