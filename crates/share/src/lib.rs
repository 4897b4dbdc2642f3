//! A client that threads share.
//!
//! A [`Client`] belongs to one thread: its sessions, files and buffers refer to each other without
//! any lock. The C library and the Python module, whose callers have many threads, put it into a
//! [`SharedClient`]: whoever [enters](SharedClient::enter) has all of it to itself. Values that
//! last longer than a visit are [`Held`].
//!
//! Nobody waits inside: [`SharedClient::run`] and [`SharedClient::wait_until`] let others in while
//! they sleep. One of the waiting threads, the turner, makes progress for all of them; the others
//! sleep until it wakes them. Alone, a thread waits as the client itself does, and pays for the
//! lock that nobody contends, nothing else.
//!
//! Invariants: what belongs to a client is reached only by the thread that holds its lock, and
//! that includes dropping it; if anybody waits, one of them is the turner.
//!
//! A child of `fork` has none of this: threads that held locks are gone, and the connections are
//! its parent's. There everything answers [`Forked`], and what is dropped is left alone. A process
//! made by the system call alone, past the C library, is not noticed.

mod drive;
mod fork;
mod seat;

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
use seat::Waiting;

/// A client that threads share. Cheap to clone.
#[derive(Clone)]
pub struct SharedClient(Arc<Inner>);

struct Inner {
    state: ReentrantMutex<State>,
    /// Readable when the client has something to do, once it was armed.
    descriptor: OwnedFd,
    /// Gets the turner out of its sleep.
    bell: OwnedFd,
    /// More than one thread has been here.
    is_crowded: AtomicBool,
    born: Generation,
}

/// What the lock guards.
struct State {
    client: ManuallyDrop<Client>,
    turner: RefCell<Option<Waiting>>,
    /// The turner sleeps, without the lock: whoever makes progress arms the descriptor again.
    turner_sleeps: Cell<bool>,
    waiting: RefCell<Vec<Waiting>>,
    /// When something last came in, or somebody began to wait for what was asked.
    heard: Cell<Instant>,
    /// When somebody last stopped waiting, and whether an answer was owed then.
    left: Cell<(Instant, bool)>,
    /// Visits of the thread that is inside.
    depth: Cell<u32>,
    /// Who was here last.
    last: Cell<usize>,
}

// SAFETY: the client, and all that belongs to it, is reached through `state` alone, whose lock one
// thread holds at a time: `enter` is the only way, and its callers promise to leave nothing of it
// elsewhere (`Held` takes the lock before it gives its value out or drops it). None of it is tied
// to the thread that made it: what `dat` has per thread are scratch buffers, used within a call.
// The other fields are `Send` and `Sync`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.born.is_current() {
            let state = self.state.get_mut();
            // SAFETY: nobody uses it any more, and it is dropped only here.
            unsafe { ManuallyDrop::drop(&mut state.client) };
        }
    }
}

impl SharedClient {
    /// A client without sessions.
    ///
    /// # Errors
    /// [`ClientError::System`] if the system has no descriptor left.
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
        let bell = rustix::event::eventfd(0, flags).map_err(system("making an eventfd"))?;
        let state = State {
            client: ManuallyDrop::new(client),
            turner: RefCell::new(None),
            turner_sleeps: Cell::new(false),
            waiting: RefCell::default(),
            heard: Cell::new(Instant::now()),
            left: Cell::new((Instant::now(), false)),
            depth: Cell::new(0),
            last: Cell::new(seat::this_thread()),
        };
        Ok(Self(Arc::new(Inner {
            state: ReentrantMutex::new(state),
            descriptor,
            bell,
            is_crowded: AtomicBool::new(false),
            born: Generation::now(),
        })))
    }

    /// Whether this process is a child of the one that the client belongs to.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        !self.0.born.is_current()
    }

    /// Takes the client for this thread, which may have it already. Calls of the library that
    /// wait keep everybody else out: [`SharedClient::run`] does not.
    ///
    /// # Safety
    /// Whatever of the client's is not `Send` (clients, sessions, files, buffers, futures) is
    /// dropped before the guard, or kept in [`Held`] ([`Entered::hold`]), which must have nothing
    /// else that is not `Send`.
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
                self.0.is_crowded.store(true, Ordering::Relaxed);
                self.0.state.lock()
            }
        };
        let last = guard.last.replace(seat::this_thread());
        if last != seat::this_thread() && last != NOBODY {
            self.0.is_crowded.store(true, Ordering::Relaxed);
        }
        guard.depth.set(guard.depth.get() + 1);
        Ok(Entered { shared: self, guard })
    }

    /// Forgets who has been here: for whoever has connected on a thread of its own, and hands the
    /// client to the one that is going to use it. Alone, that one waits as the client itself does.
    /// Not to be called by a thread that is inside.
    ///
    /// # Errors
    /// [`Forked`] in a child process: whoever had the lock may not have come along.
    pub fn hand_over(&self) -> Result<(), Forked> {
        if self.is_forked() {
            return Err(Forked);
        }
        let guard = self.0.state.lock();
        guard.last.set(NOBODY);
        self.0.is_crowded.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The descriptor that becomes readable when the client has something to do, for event loops
    /// that turn it themselves: [`Client::arm`] first.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.descriptor.as_fd()
    }

    fn is_crowded(&self) -> bool {
        self.0.is_crowded.load(Ordering::Relaxed)
    }
}

/// The client, for as long as this thread has it.
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
    /// For event loops, in place of [`Client::turn`]: makes what progress there is, without
    /// waiting, and gives up sessions that have been silent for too long. How many events came.
    pub fn turn_for_loop(&self) -> usize {
        self.shared.turn_for_loop(&self.guard)
    }

    /// For event loops, in place of [`Client::until_timer`]: when to turn again if nothing comes.
    #[must_use]
    pub fn until_turn(&self) -> Option<Duration> {
        let listening = self.guard.client.patience().map(|_| drive::LISTEN_EVERY);
        listening.into_iter().chain(self.guard.client.until_timer()).min()
    }

    /// Keeps a value of the client's beyond this visit.
    #[must_use]
    pub fn hold<V>(&self, value: V) -> Held<V> {
        Held { value: ManuallyDrop::new(value), shared: self.shared.clone() }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let depth = self.guard.depth.get() - 1;
        self.guard.depth.set(depth);
        if depth == 0 && self.guard.turner_sleeps.get() {
            // What was submitted goes out now: the turner would do it when it wakes.
            self.shared.stir(&self.guard);
        }
    }
}

/// A value that belongs to a shared client, such as a session or a file. It is dropped with the
/// client's lock held, and left alone in a child process.
pub struct Held<V> {
    value: ManuallyDrop<V>,
    shared: SharedClient,
}

// SAFETY: the value is reached with the client's lock held alone (`get`, `drop`), by whatever
// thread; and it has nothing that is not of that client (`SharedClient::enter`).
unsafe impl<V> Send for Held<V> {}
// SAFETY: as above.
unsafe impl<V> Sync for Held<V> {}

impl<V> Held<V> {
    /// The value, for whoever is inside.
    ///
    /// # Panics
    /// If it belongs to another client.
    #[must_use]
    pub fn get<'a>(&'a self, entered: &'a Entered<'_>) -> &'a V {
        assert!(Arc::ptr_eq(&self.shared.0, &entered.shared.0), "a value of another client");
        &self.value
    }

    /// The client it belongs to.
    #[must_use]
    pub fn client(&self) -> &SharedClient {
        &self.shared
    }

    /// The value itself, for whoever is inside.
    ///
    /// # Panics
    /// If it belongs to another client.
    #[must_use]
    pub fn take(self, entered: &Entered<'_>) -> V {
        assert!(Arc::ptr_eq(&self.shared.0, &entered.shared.0), "a value of another client");
        let mut held = ManuallyDrop::new(self);
        // SAFETY: `held` is never dropped and not used again, so each part is taken once.
        let (value, shared) =
            unsafe { (ManuallyDrop::take(&mut held.value), std::ptr::read(&held.shared)) };
        drop(shared);
        value
    }
}

impl<V> Drop for Held<V> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped before the guard, and nothing is kept of it.
        if let Ok(entered) = unsafe { self.shared.enter() } {
            // SAFETY: it is dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
            drop(entered);
        }
    }
}

/// No thread's number.
const NOBODY: usize = 0;
