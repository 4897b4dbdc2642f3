//! Sessions, as the application holds them.
//!
//! Invariant: a `Session` value stands for a session that was established; whether it
//! still is, every call finds out for itself.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{Address, RegionPath};
use dafs_types::{FileHandle, Status};
use dafs_wire::messages::Empty;
use dafs_wire::{Request, Response};

use crate::acting::Registered;
use crate::answer::Answer;
use crate::buffer::Buffer;
use crate::client::{Client, Shared};
use crate::decode::unexpected;
use crate::driving::run;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::label::Label;
use crate::recovery::options::SessionEvent;
use crate::refusal::done;

/// A session with a server. Cheap to clone. It ends with its last clone, the open files
/// among them: what is outstanding then fails.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: SessionKey,
    pub(crate) root: FileHandle,
    /// Whom it acts for, unless for itself.
    pub(crate) acting: Option<Registered>,
    _anchor: Rc<Anchor>,
}

/// What all clones of a session have in common: the session leaves with the last.
pub(crate) struct Anchor {
    shared: Rc<Shared>,
    key: SessionKey,
}

impl Anchor {
    /// For a session that was begun.
    pub fn new(shared: Rc<Shared>, key: SessionKey) -> Rc<Self> {
        Rc::new(Self { shared, key })
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.shared.leave(self.key);
    }
}

impl Session {
    /// A session that was established.
    pub(crate) fn new(
        shared: Rc<Shared>,
        key: SessionKey,
        root: FileHandle,
        anchor: Rc<Anchor>,
    ) -> Self {
        Self { shared, key, root, acting: None, _anchor: anchor }
    }

    /// The transport address in use: after a loss of the connection it may be another than
    /// before.
    #[must_use]
    pub fn address(&self) -> Address {
        self.shared.borrow().sessions[self.key].place.address.clone()
    }

    /// The client it belongs to.
    #[must_use]
    pub fn client(&self) -> Client {
        Client(self.shared.clone())
    }

    /// How bytes get into a buffer over this session; `None` while it has no connection.
    #[must_use]
    pub fn path_of(&self, buffer: &Buffer) -> Option<RegionPath> {
        let core = self.shared.borrow();
        let session = &core.sessions[self.key];
        if !session.is_open() {
            return None;
        }
        core.transport.interface().region_path(session.endpoint, buffer.0.region.key)
    }

    /// Credits now: the most requests that may be outstanding.
    #[must_use]
    pub fn credits(&self) -> u16 {
        self.shared.borrow().sessions[self.key].under_way.credits.nreq()
    }

    /// Connections that its transfers are spread over ([`SessionOptions::channels`]): one, unless
    /// more were asked for and the server has use for them. Those of one file go over one of them,
    /// in their order.
    ///
    /// [`SessionOptions::channels`]: crate::SessionOptions::channels
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.shared.borrow().sessions[self.key].role.count()
    }

    /// A round trip that does nothing but renew the lease.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn ping(&self) -> Result<()> {
        self.run(self.ping_async())
    }

    /// The same; under way at once.
    pub fn ping_async(&self) -> impl Future<Output = Result<()>> + '_ {
        self.ask(&Request::Null(Empty), |status, _| done("NULL", status))
    }

    /// Has `listener` told of what becomes of the connection, from now on, within calls of
    /// this client that make progress. It may use the client, but must not hold the session,
    /// which would last for ever. Nothing is told of a session that does not come back by
    /// itself.
    pub fn on_event(&self, listener: impl FnMut(&SessionEvent) + 'static) {
        let mut core = self.shared.borrow_mut();
        let machine = core.sessions[self.key].recovery.as_mut();
        let before =
            machine.and_then(|machine| machine.set_listener(Rc::new(RefCell::new(listener))));
        core.news.retire(before);
        drop(core);
        self.shared.tell();
    }

    /// Leaves in order. Every operation that is outstanding fails.
    ///
    /// # Errors
    /// If the session has ended already, or its connection is lost and does not come back
    /// within some seconds.
    pub fn disconnect(self) -> Result<()> {
        let session = self.clone();
        session.run(self.disconnect_async())
    }

    /// The same, once it is polled.
    ///
    /// # Errors
    /// As [`Session::disconnect`].
    pub async fn disconnect_async(self) -> Result<()> {
        // A connection that breaks over this, or is lost, comes back once more, so that the
        // server forgets what it keeps; but nobody waits for that for long.
        if let Some(machine) = &mut self.shared.borrow_mut().sessions[self.key].recovery {
            machine.hurry(LEAVING_MAX);
        }
        self.disconnect_beside().await;
        let leaving = self.ask(&Request::Disconnect(Empty), |status, _| done("DISCONNECT", status));
        let result = leaving.await;
        self.shared.borrow_mut().end_session(self.key, "disconnected".into());
        result
    }

    /// The channels beside the first leave before it: with the first one goes what the client
    /// holds.
    async fn disconnect_beside(&self) {
        let beside = self.shared.borrow().sessions[self.key].role.beside();
        for key in beside {
            // From here on it ends with its connection.
            let is_open = self.shared.borrow_mut().sessions[key].begin_to_leave();
            let request = Request::Disconnect(Empty);
            if is_open && let Ok(answer) = Answer::to(&self.shared, key, None, &request) {
                // If it is lost over this, it is gone, too.
                let _ = answer.await;
            }
            self.shared.borrow_mut().end_session(key, "disconnected".into());
        }
    }

    /// Runs a future of this session's on this thread.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        run(&self.shared, self.key, future)
    }

    /// Makes a call and reads its answer, be it a failure.
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

    /// Labels what is asked for from now on, by all clones of this session: chains from their
    /// beginning, parts of a long transfer from when they are sent.
    pub fn set_label(&self, label: Label) {
        let mut core = self.shared.borrow_mut();
        for key in core.sessions[self.key].role.beside() {
            core.sessions[key].label = label.get();
        }
        core.sessions[self.key].label = label.get();
    }

    /// The label of the moment.
    #[must_use]
    pub fn label(&self) -> Label {
        Label::new(self.shared.borrow().sessions[self.key].label).unwrap_or_default()
    }

    /// The mode that something is made with which is to have `mode`.
    pub(crate) fn masked(&self, mode: u32) -> u32 {
        let umask = self.shared.borrow().sessions[self.key].options.umask;
        mode & !umask.bits()
    }
}

/// Longest time to reach a lost server, only to leave it.
const LEAVING_MAX: Duration = Duration::from_secs(5);
