//! A client that several threads share.
//!
//! A [`Client`] belongs to one thread: its sessions, files and buffers refer to each other without
//! locks. The C library and the Python module, whose callers have many threads, wrap a client in a
//! [`SharedClient`]. A thread that [enters](SharedClient::enter) the shared client has exclusive
//! access to the client and all its objects. Values that outlive an access are kept in [`Held`].
//!
//! Threads do not wait while they have access: [`SharedClient::run`] and
//! [`SharedClient::wait_until`] release the lock while they sleep. One of the waiting threads, the
//! driver, makes progress for all; the other threads sleep until the driver wakes them. If only one
//! thread waits, it waits as the client itself does, and only pays for an uncontended lock.
//!
//! Invariants:
//!
//! - The objects of a client are used, and also dropped, only by the thread that holds the client's
//!   lock.
//! - If any thread waits, one of the waiting threads is the driver.
//!
//! A child created by `fork` cannot use the client, because threads that held locks do not exist in
//! it and the connections belong to the parent. In a child every call returns [`Forked`], and
//! dropped values are leaked. A child created by the bare system call, without the C library, is
//! not detected.

mod drive;
mod fork;
mod parker;

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dafs_client::{Client, ClientConfig, ClientError};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

pub use fork::Forked;
use fork::Generation;
use parker::Waiting;

/// A client that several threads share. Cheap to clone; clones share the client.
#[derive(Clone)]
pub struct SharedClient(Arc<Inner>);

struct Inner {
    state: ReentrantMutex<State>,
    /// A descriptor that becomes readable when the client has work to do, after it was armed.
    descriptor: OwnedFd,
    /// An eventfd that wakes the driver.
    wakeup: OwnedFd,
    /// True once more than one thread has used the client.
    is_contended: AtomicBool,
    born: Generation,
}

/// The state that the lock protects.
struct State {
    client: ManuallyDrop<Client>,
    driver: RefCell<Option<Waiting>>,
    /// True while the driver sleeps without the lock, so that a thread that makes progress must arm
    /// the descriptor again.
    driver_sleeps: Cell<bool>,
    waiting: RefCell<Vec<Waiting>>,
    /// The time at which the most recent event arrived or the wait for a reply began, whichever is
    /// later.
    last_event: Cell<Instant>,
    /// The time at which the most recent wait ended, and true if a reply was expected then.
    last_wait_end: Cell<(Instant, bool)>,
    /// The number of nested accesses by the thread that holds the lock.
    depth: Cell<u32>,
    /// The number of the thread that entered most recently; [`NO_THREAD`] if there is none.
    last: Cell<usize>,
}

// SAFETY: the client, and all that belongs to it, is reached only through `state`, whose lock one
// thread holds at a time. `enter` is the only way to reach it, and the callers of `enter` promise
// to keep no value of the client elsewhere (`Held` takes the lock before it returns or drops its
// value). No value depends on the thread that created it: `dat` has only scratch buffers per
// thread, used within one call. The other fields are `Send` and `Sync`.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.born.is_current() {
            let state = self.state.get_mut();
            // SAFETY: no reference to the client is left, and it is dropped only here.
            unsafe { ManuallyDrop::drop(&mut state.client) };
        }
    }
}

impl SharedClient {
    /// Creates a shared client without sessions.
    ///
    /// # Errors
    /// [`ClientError::System`] if the system has no file descriptor left.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let system = |what| {
            move |error: rustix::io::Errno| {
                let source = std::io::Error::from(error).into();
                ClientError::System { what, source }
            }
        };
        let client = Client::new(config)?;
        let copied = client.with_fd(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0));
        let descriptor = copied.map_err(system("copying the client's descriptor"))?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wakeup = rustix::event::eventfd(0, flags).map_err(system("making an eventfd"))?;
        let state = State {
            client: ManuallyDrop::new(client),
            driver: RefCell::new(None),
            driver_sleeps: Cell::new(false),
            waiting: RefCell::default(),
            last_event: Cell::new(Instant::now()),
            last_wait_end: Cell::new((Instant::now(), false)),
            depth: Cell::new(0),
            last: Cell::new(parker::this_thread()),
        };
        Ok(Self(Arc::new(Inner {
            state: ReentrantMutex::new(state),
            descriptor,
            wakeup,
            is_contended: AtomicBool::new(false),
            born: Generation::now(),
        })))
    }

    /// Returns true if this process is a forked child of the process that created the client.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        !self.0.born.is_current()
    }

    /// Gives this thread exclusive access to the client. The same thread may enter repeatedly.
    /// Blocking calls of the client exclude other threads while they wait; [`SharedClient::run`]
    /// does not.
    ///
    /// # Safety
    /// Every value of the client that is not `Send` (clients, sessions, files, buffers, futures)
    /// must be dropped before the returned guard, or be kept in [`Held`] ([`Entered::hold`]). Apart
    /// from values of this client, a value in [`Held`] must contain only `Send` values.
    ///
    /// # Errors
    /// [`Forked`] in a child process.
    pub unsafe fn enter(&self) -> Result<Entered<'_>, Forked> {
        if self.is_forked() {
            return Err(Forked);
        }
        let guard = match self.0.state.try_lock() {
            Some(guard) => guard,
            None => {
                self.0.is_contended.store(true, Ordering::Relaxed);
                self.0.state.lock()
            }
        };
        let last = guard.last.replace(parker::this_thread());
        if last != parker::this_thread() && last != NO_THREAD {
            self.0.is_contended.store(true, Ordering::Relaxed);
        }
        guard.depth.set(guard.depth.get() + 1);
        Ok(Entered { shared: self, guard })
    }

    /// Forgets which threads have used the client. Use this in a program that connects on one
    /// thread and then uses the client only on another thread. That other thread then counts as the
    /// only user of the client, and waits as the client itself does. Must not be called inside
    /// [`SharedClient::enter`].
    ///
    /// # Errors
    /// [`Forked`] in a child process, in which the thread that held the lock may not exist.
    pub fn hand_over(&self) -> Result<(), Forked> {
        if self.is_forked() {
            return Err(Forked);
        }
        let guard = self.0.state.lock();
        guard.last.set(NO_THREAD);
        self.0.is_contended.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the descriptor that becomes readable when the client has work to do, for event loops
    /// that process events themselves. Call [`Client::arm`] before waiting for the descriptor.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.descriptor.as_fd()
    }

    fn is_contended(&self) -> bool {
        self.0.is_contended.load(Ordering::Relaxed)
    }
}

/// Exclusive access to a shared client; dropping it ends the access.
pub struct Entered<'s> {
    shared: &'s SharedClient,
    guard: ReentrantMutexGuard<'s, State>,
}

impl Deref for Entered<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.guard.client
    }
}

impl Entered<'_> {
    /// Makes all progress that is possible without waiting, and ends or reconnects sessions whose
    /// servers have been silent for too long. Event loops call this instead of
    /// [`Client::process_events`]. Returns the number of events processed.
    pub fn process_events_for_loop(&self) -> usize {
        self.shared.process_events_for_loop(&self.guard)
    }

    /// Returns the time after which to process events even if nothing arrives; `None` for no limit.
    /// Event loops call this instead of [`Client::next_timer`].
    #[must_use]
    pub fn until_next_turn(&self) -> Option<Duration> {
        let listening = self.guard.client.min_answer_timeout().map(|_| drive::LOOP_TURN_PERIOD);
        listening.into_iter().chain(self.guard.client.next_timer()).min()
    }

    /// Wraps a value of the client so that it can outlive this access.
    #[must_use]
    pub fn hold<V>(&self, value: V) -> Held<V> {
        Held { value: ManuallyDrop::new(value), shared: self.shared.clone() }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let depth = self.guard.depth.get() - 1;
        self.guard.depth.set(depth);
        if depth == 0 && self.guard.driver_sleeps.get() {
            // Send submitted requests now instead of when the driver wakes.
            self.shared.progress_beside_driver(&self.guard);
        }
    }
}

/// A value that belongs to a shared client, such as a session or a file. Dropping it takes the
/// client's lock; in a forked child the value is leaked instead.
pub struct Held<V> {
    value: ManuallyDrop<V>,
    shared: SharedClient,
}

// SAFETY: every thread uses the value only while it holds the client's lock (`get`, `drop`), and
// the value contains nothing that does not belong to that client (`SharedClient::enter`).
unsafe impl<V> Send for Held<V> {}
// SAFETY: as for `Send`.
unsafe impl<V> Sync for Held<V> {}

impl<V> Held<V> {
    /// Returns the value to a thread that has access to the client.
    ///
    /// # Panics
    /// If the value belongs to another client.
    #[must_use]
    pub fn get<'a>(&'a self, entered: &'a Entered<'_>) -> &'a V {
        assert!(Arc::ptr_eq(&self.shared.0, &entered.shared.0), "a value of another client");
        &self.value
    }

    /// Returns the client that the value belongs to.
    #[must_use]
    pub fn client(&self) -> &SharedClient {
        &self.shared
    }

    /// Removes and returns the value, for a thread that has access to the client.
    ///
    /// # Panics
    /// If the value belongs to another client.
    #[must_use]
    pub fn take(self, entered: &Entered<'_>) -> V {
        assert!(Arc::ptr_eq(&self.shared.0, &entered.shared.0), "a value of another client");
        let mut held = ManuallyDrop::new(self);
        // SAFETY: `held` is never dropped and not used again, so each part is moved out once.
        let (value, shared) =
            unsafe { (ManuallyDrop::take(&mut held.value), std::ptr::read(&held.shared)) };
        drop(shared);
        value
    }
}

impl<V> Drop for Held<V> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped before the guard, and no reference to it is kept.
        if let Ok(entered) = unsafe { self.shared.enter() } {
            // SAFETY: the value is dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
            drop(entered);
        }
    }
}

/// The number that stands for "no thread".
const NO_THREAD: usize = 0;
