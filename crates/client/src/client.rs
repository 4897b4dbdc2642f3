//! The client as the application sees it: buffers, completion groups, waiting.
//!
//! Invariant: progress is made only in calls of the owning thread. Objects that are dropped while
//! the engine is borrowed are cleaned up at the next call.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dafs_dat::{Interface, InterfaceConfig, LocalKey, OwnMemory, Region, Rights, WaitPolicy};
use dafs_memory::{Memory, Pages};

use crate::buffer::{Buffer, Home};
use crate::core::Core;
use crate::error::{ClientError, Result, SystemCause, system};
use crate::groups::Group;
use crate::ids::SessionKey;
use crate::operation::{Completion, OperationId};
use crate::pool::Pool;
use crate::setters::setters;
use crate::sizes::DOMAIN;

/// The settings of a client, for [`Client::new`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientConfig {
    /// Controls when the client busy-polls and when it sleeps while it waits.
    pub wait: WaitPolicy,
    /// Controls whether [`crate::File::read_at`] and [`crate::File::write_at`] lend large slices to
    /// RDMA devices or copy them. With other transports the slices are always copied.
    pub own_memory: OwnMemory,
}

setters! { ClientConfig:
    wait: WaitPolicy,
    own_memory: OwnMemory,
}

/// A client: a set of sessions with servers, driven by the thread that owns it. Cheap to clone.
#[derive(Clone)]
pub struct Client(pub(crate) Rc<Shared>);

pub(crate) struct Shared {
    core: RefCell<Core>,
    pool: RefCell<Pool>,
    /// Objects that were dropped while the core was borrowed, to be cleaned up when the borrow has
    /// ended.
    deferred_drops: RefCell<Vec<DeferredDrop>>,
    /// True while listeners are being called, so that events are not delivered recursively.
    is_delivering: Cell<bool>,
}

enum DeferredDrop {
    Region(LocalKey),
    Session(SessionKey),
}

impl Shared {
    pub(crate) fn borrow(&self) -> Ref<'_, Core> {
        self.core.borrow()
    }

    #[inline]
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Core> {
        let mut core = self.core.borrow_mut();
        if !self.deferred_drops.borrow().is_empty() {
            // Ending a session drops buffers, which may add entries to this list again, so it must
            // not stay borrowed.
            let deferred_drops = std::mem::take(&mut *self.deferred_drops.borrow_mut());
            for deferred in deferred_drops {
                match deferred {
                    DeferredDrop::Region(key) => core.transport.interface_mut().deregister(key),
                    DeferredDrop::Session(key) => core.leave(key),
                }
            }
        }
        core
    }

    /// Calls the listeners of sessions that have events. No part of the client is borrowed during
    /// these calls, so that listeners may use the client.
    pub(crate) fn deliver_events(&self) {
        if self.is_delivering.get() {
            return;
        }
        loop {
            let mut core = self.borrow_mut();
            let (events, dropped_listeners) = core.pending_events.take().into_parts();
            drop(core);
            drop(dropped_listeners);
            if events.is_empty() {
                return;
            }
            self.is_delivering.set(true);
            for (listener, event) in events {
                (listener.borrow_mut())(&event);
            }
            self.is_delivering.set(false);
        }
    }

    /// Makes progress until `take` returns a value. If the server sends nothing within the
    /// session's reply timeout, the session ends or reconnects. A request is never retransmitted on
    /// the same connection, so its outcome is unknown until a reconnect settles it (draft 3.2.2).
    pub(crate) fn turn_until<T>(
        &self,
        key: SessionKey,
        mut take: impl FnMut(&mut Core) -> Option<T>,
    ) -> T {
        let mut heard = None;
        let mut core = self.borrow_mut();
        loop {
            if let Some(found) = take(&mut core) {
                return found;
            }
            core.turn_patiently(key, &mut heard);
            core = self.deliver_between_turns(core);
        }
    }

    /// Delivers pending session events between two turns, while the core is not borrowed.
    #[inline]
    fn deliver_between_turns<'s>(&'s self, core: RefMut<'s, Core>) -> RefMut<'s, Core> {
        if core.pending_events.is_empty() {
            return core;
        }
        drop(core);
        self.deliver_events();
        self.borrow_mut()
    }

    /// Removes a session whose last handle was dropped.
    pub(crate) fn leave(&self, key: SessionKey) {
        match self.core.try_borrow_mut() {
            Ok(mut core) => core.leave(key),
            Err(_) => return self.deferred_drops.borrow_mut().push(DeferredDrop::Session(key)),
        }
        self.deliver_events();
    }
}

impl Home for Shared {
    fn let_go(&self, memory: &Memory, region: Region, is_reusable: bool) {
        let is_kept =
            is_reusable && memory.file().is_some() && self.pool.borrow_mut().put(memory, region);
        if is_kept {
            return;
        }
        match self.core.try_borrow_mut() {
            Ok(mut core) => core.transport.interface_mut().deregister(region.key),
            Err(_) => self.deferred_drops.borrow_mut().push(DeferredDrop::Region(region.key)),
        }
    }
}

impl Client {
    /// Creates a client without sessions.
    ///
    /// # Errors
    /// [`ClientError::System`] if the system has no file descriptor left.
    pub fn new(config: ClientConfig) -> Result<Self> {
        let mut interface =
            Interface::new(InterfaceConfig { wait: config.wait, ..InterfaceConfig::default() })
                .map_err(|e| system("creating the transport interface", e))?;
        interface.set_own_memory(config.own_memory);
        Ok(Self::over(interface))
    }

    #[doc(hidden)]
    /// Creates a client over the caller's own interface, such as one on a simulated network. The
    /// interface must have no listeners and no connections.
    #[must_use]
    pub fn over(interface: Interface) -> Self {
        Self(Rc::new(Shared {
            core: RefCell::new(Core::new(interface)),
            pool: RefCell::default(),
            deferred_drops: RefCell::default(),
            is_delivering: Cell::new(false),
        }))
    }

    /// Returns registered memory of `length` bytes that a server on this host can map, so that data
    /// arrives without a copy. The memory may contain data from earlier use by this client: freed
    /// buffers are pooled, so that in steady state no memory is allocated or registered.
    ///
    /// # Errors
    /// [`ClientError::System`] if there is no memory.
    pub fn allocate(&self, length: usize) -> Result<Buffer> {
        let length = length.max(1);
        let pooled = self.0.pool.borrow_mut().take(length);
        if let Some((memory, region)) = pooled {
            return Ok(Buffer::new(memory, region, length, &self.0));
        }
        let memory = Memory::shared(Pool::rounded(length), Pages::Huge)
            .map_err(|e| system("allocating a buffer", e))?;
        self.register_whole(memory, length)
    }

    /// Registers heap memory as a buffer. [`crate::Session::path_of`] returns how data reaches the
    /// buffer.
    ///
    /// # Errors
    /// [`ClientError::System`] if the table of regions is full.
    pub fn register(&self, bytes: Box<[u8]>) -> Result<Buffer> {
        self.register_memory(Memory::from_heap(bytes))
    }

    /// Registers memory of any kind, for example memory that the application knows by pointer and
    /// length ([`Memory::of_owner`]). The registration lasts until the buffer and all transfers
    /// that use it have ended. Until then the RDMA devices that access the memory keep it pinned.
    ///
    /// # Errors
    /// [`ClientError::System`] if the table of regions is full.
    pub fn register_memory(&self, memory: Memory) -> Result<Buffer> {
        let length = memory.length();
        self.register_whole(memory, length)
    }

    fn register_whole(&self, memory: Memory, length: usize) -> Result<Buffer> {
        let region =
            self.0.borrow_mut().transport.interface_mut().register(&memory, DOMAIN, Rights::REMOTE);
        let region = region.ok_or_else(|| ClientError::System {
            what: "registering a buffer",
            source: SystemCause::no_room("too many regions; drop some buffers"),
        })?;
        Ok(Buffer::new(memory, region, length, &self.0))
    }

    /// Creates a new completion group, to be named when transfers are submitted.
    #[must_use]
    pub fn group(&self) -> Group {
        self.0.borrow_mut().sinks.groups.make()
    }

    /// Releases a group: its completions, including later ones, are dropped. All copies of the
    /// group's name become invalid, and submitting a transfer to them fails. The default group
    /// cannot be released.
    pub fn release_group(&self, group: Group) {
        self.0.borrow_mut().sinks.groups.release(group);
    }

    /// Waits until the group has `count` completions, until it has the completions of all
    /// operations submitted to it, or until the timeout. The thread sleeps until about that many
    /// completions have arrived. Returns the number of completions available.
    pub fn wait(&self, group: Group, count: usize, timeout: Option<Duration>) -> usize {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut core = self.0.borrow_mut();
        loop {
            let there = core.sinks.groups.there(group);
            let wanted = count.min(there + core.sinks.groups.to_come(group));
            if there >= wanted {
                return there;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                core.turn(0, Some(Duration::ZERO));
                core = self.0.deliver_between_turns(core);
                return core.sinks.groups.there(group);
            }
            let threshold = core.sessions.arrivals_for(wanted - there);
            core.turn(threshold, left);
            core = self.0.deliver_between_turns(core);
        }
    }

    /// Processes messages that have arrived, without waiting, and sends submitted requests. Returns
    /// the number of completions available in the group.
    pub fn poll(&self, group: Group) -> usize {
        let mut core = self.0.borrow_mut();
        core.turn(0, Some(Duration::ZERO));
        core = self.0.deliver_between_turns(core);
        core.sinks.groups.there(group)
    }

    /// Removes and returns the next available completion of a group; `None` if there is none.
    #[must_use]
    #[inline]
    pub fn next(&self, group: Group) -> Option<Completion> {
        self.0.borrow_mut().sinks.groups.next(group)
    }

    /// Makes progress: waits until at least one event arrives, the timeout expires, or a session
    /// has a timer to handle. Returns the number of events processed.
    pub fn process_events(&self, timeout: Option<Duration>) -> usize {
        let count = self.0.borrow_mut().turn(1, timeout);
        self.0.deliver_events();
        count
    }

    /// Makes progress without waiting: processes messages that have arrived and sends submitted
    /// requests. Returns the number of events processed.
    pub fn process_pending_events(&self) -> usize {
        let count = self.0.borrow_mut().turn(0, Some(Duration::ZERO));
        self.0.deliver_events();
        count
    }

    /// Returns the shortest [`answer_timeout`](crate::SessionOptions::answer_timeout) of the
    /// sessions that wait for a reply; `None` if no session waits for a reply, or if no waiting
    /// session has a timeout.
    #[must_use]
    pub fn min_answer_timeout(&self) -> Option<Duration> {
        self.0.borrow().sessions.patience_for_all()
    }

    /// Ends or reconnects all sessions that wait for a reply and whose timeout is at most
    /// `silence`. A caller with its own event loop calls this after no message has arrived for the
    /// duration `silence`.
    pub fn end_silent_sessions(&self, silence: Duration) {
        self.0.borrow_mut().give_up_silent(silence);
        self.0.deliver_events();
    }

    /// Makes progress: sleeps until about `count` events have arrived, or until all expected events
    /// have arrived if fewer are expected. Returns false, without sleeping, if no event is
    /// expected.
    #[must_use]
    pub fn wait_for_events(&self, count: usize) -> bool {
        let mut core = self.0.borrow_mut();
        let is_worth_it = core.sessions.is_expecting();
        if is_worth_it {
            let threshold = core.sessions.arrivals_for(count);
            core.turn(threshold, None);
            drop(core);
            self.0.deliver_events();
        }
        is_worth_it
    }

    /// Calls `use_fd` with a file descriptor that becomes readable when [`Client::process_events`]
    /// has work to do. Call [`Client::arm`] before waiting for the file descriptor; if it returns
    /// false, call `process_events` instead of waiting.
    pub fn with_fd<T>(&self, use_fd: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        use_fd(self.0.borrow().transport.interface().as_fd())
    }

    /// Prepares for waiting on the file descriptor. Returns false if there is work to do now.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.0.borrow_mut().transport.interface_mut().arm()
    }

    /// Returns the longest time to wait on the file descriptor before calling
    /// [`Client::process_events`], or `None` if there is no limit. A session that is reconnecting
    /// makes its next attempt at that time.
    #[must_use]
    pub fn next_timer(&self) -> Option<Duration> {
        self.0.borrow().sessions.until_timer()
    }

    /// Cancels an operation. An operation that waits for a credit is withdrawn. An operation in
    /// flight continues, and its completion reports [`ClientError::Cancelled`]. Returns false if
    /// the operation has already ended.
    pub fn cancel(&self, operation: OperationId) -> bool {
        self.0.borrow_mut().cancel(operation)
    }
}
