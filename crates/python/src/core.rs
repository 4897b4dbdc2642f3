//! A session and everything that belongs to it.
//!
//! Invariant: a Python object holds a number and a [`Core`]. When Python drops the object, the
//! number is queued without taking the client's lock, and the next call releases the resource.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dafs_client::{Buffer, ClientError, File, RegionPath, Session, SystemCause};
use dafs_share::{Held, SharedClient};
use slab::Slab;

use crate::errors::Failure;
use crate::gate::Gate;
use crate::memory::Range;
use crate::tasks::{Outcome, Tasks, Waiter, Work};
use crate::transfer::STRAIGHT_MIN;
use crate::value::Value;

/// A function that starts a call. It runs with the client's lock held.
pub(crate) type Begin = Box<dyn FnOnce(Rc<State>) -> Work + Send>;

/// A session that threads share.
pub struct Core {
    shared: SharedClient,
    state: Held<Rc<State>>,
    garbage: Mutex<Vec<Dropped>>,
    /// Statistics of transfers and copies.
    pub counters: Arc<Counters>,
    /// True if a call has failed because the session has ended.
    is_lost: AtomicBool,
}

/// A resource of the session that Python has dropped.
pub enum Dropped {
    /// A file, by its number.
    File(usize),
    /// A buffer, by its number.
    Buffer(usize),
}

/// The state that the client's lock protects.
pub struct State {
    /// The session; `None` after it was closed.
    session: RefCell<Option<Session>>,
    /// The open files by number.
    pub files: RefCell<HashMap<usize, Rc<File>>>,
    /// The number of files opened so far. File numbers are never reused, because Python may still
    /// hold an old number.
    file_count: Cell<usize>,
    buffers: RefCell<Slab<Buffer>>,
    /// The number of each buffer by the address of its first byte.
    ranges: RefCell<BTreeMap<usize, usize>>,
    /// The calls in flight.
    pub tasks: Tasks,
    /// Statistics of transfers and copies.
    pub counters: Arc<Counters>,
    /// Limits the number of calls that have memory registered.
    pub calls: Gate,
    /// Limits the number of batches that have memory registered.
    pub batches: Gate,
    /// True if the client may cache files under delegations.
    pub keeps: Cell<bool>,
    own_memory: OwnMemory,
    /// Ordinary memory of this process, used to find out how servers access such memory.
    probe: Buffer,
}

/// The way in which transfers access the program's own memory, if the memory is long enough that
/// registering it is faster than copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnMemory {
    /// Use the faster method: copy over shared memory, and register the memory otherwise.
    Automatic,
    /// Always register the memory with the server.
    Straight,
}

/// Statistics of the transfers of a session.
#[derive(Debug, Default)]
pub struct Counters {
    /// The number of reads and writes without a copy.
    pub straight: AtomicU64,
    /// The number of bytes of reads and writes without a copy.
    pub straight_bytes: AtomicU64,
    /// The number of copies within this process.
    pub copies: AtomicU64,
    /// The number of bytes copied within this process.
    pub copied_bytes: AtomicU64,
    /// The number of times that memory was registered for a single call.
    pub registrations: AtomicU64,
}

impl Counters {
    /// Counts a transfer between the server and the program's memory. `is_direct` is true if the
    /// transfer made no copy.
    pub fn note_move(&self, bytes: usize, is_direct: bool) {
        if !is_direct {
            return self.note_copy(bytes);
        }
        self.straight.fetch_add(1, Ordering::Relaxed);
        self.straight_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a copy within this process.
    pub fn note_copy(&self, bytes: usize) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a registration for a single call.
    pub fn note_registration(&self) {
        self.registrations.fetch_add(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Wraps a session that `connect` makes.
    ///
    /// # Errors
    /// The errors of `connect`.
    pub fn new(
        shared: SharedClient,
        connect: impl FnOnce(&dafs_client::Client) -> dafs_client::Result<Session>,
        keeps: bool,
        own_memory: OwnMemory,
    ) -> Result<Self, Failure> {
        let counters = Arc::new(Counters::default());
        // SAFETY: client objects that are not `Send` go into `state`, which is held.
        let entered = unsafe { shared.enter()? };
        let session = connect(&entered)?;
        if keeps {
            // This waits for a reply, which is acceptable while connecting.
            session.prepare_delegations();
        }
        let probe = entered.register(vec![0; PROBE_BYTES].into_boxed_slice())?;
        let state = entered.hold(Rc::new(State {
            session: RefCell::new(Some(session)),
            files: RefCell::default(),
            file_count: Cell::new(0),
            buffers: RefCell::default(),
            ranges: RefCell::default(),
            tasks: Tasks::default(),
            counters: counters.clone(),
            calls: Gate::new(CALLS_MAX),
            batches: Gate::new(BATCHES_MAX),
            keeps: Cell::new(keeps),
            own_memory,
            probe,
        }));
        drop(entered);
        shared.hand_over()?;
        Ok(Self {
            shared,
            state,
            garbage: Mutex::default(),
            counters,
            is_lost: AtomicBool::new(false),
        })
    }

    /// Returns the client of this session.
    pub fn shared(&self) -> &SharedClient {
        &self.shared
    }

    /// True if a call has failed because the session has ended. The session does not recover.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Records that the session has ended if the outcome of a call shows it.
    pub fn note(&self, outcome: &Outcome) {
        let ends = |failure: &Failure| {
            matches!(failure, Failure::Client(ClientError::SessionEnded { .. }))
        };
        let is_lost = match outcome {
            Err(failure) => ends(failure),
            Ok(Value::Files(files)) => files.iter().any(|file| file.as_ref().is_err_and(ends)),
            Ok(_) => false,
        };
        if is_lost {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Queues a resource for release. Takes only a lock that no thread holds while it waits.
    pub fn discard(&self, garbage: Dropped) {
        self.garbage.lock().unwrap_or_else(PoisonError::into_inner).push(garbage);
    }

    /// Runs `look` with the state. The result must not contain client objects.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a child process.
    pub fn visit<T: Send>(
        &self,
        look: impl FnOnce(&dafs_share::Entered<'_>, &Rc<State>) -> T,
    ) -> Result<T, Failure> {
        // SAFETY: the result of `look` is `Send`, so it contains no client objects. Other objects
        // that it makes stay in `state`, which is held.
        let entered = unsafe { self.shared.enter()? };
        let state = self.state.get(&entered);
        self.release_dropped(state);
        Ok(look(&entered, state))
    }

    fn release_dropped(&self, state: &State) {
        let garbage =
            std::mem::take(&mut *self.garbage.lock().unwrap_or_else(PoisonError::into_inner));
        for item in garbage {
            match item {
                Dropped::File(number) => drop(state.files.borrow_mut().remove(&number)),
                Dropped::Buffer(number) => state.drop_buffer(number),
            }
        }
    }

    /// Starts a call if it has not started, and waits for its end. Returns `None` if the call has
    /// not ended after the timeout.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a child process.
    pub fn wait_for(
        &self,
        task: &mut Option<usize>,
        begin: &mut Option<Begin>,
        timeout: Duration,
    ) -> Result<Option<Outcome>, Failure> {
        // SAFETY: an outcome contains no client objects, and a task stays in `state`, which is
        // held.
        let waited = unsafe {
            self.shared.wait_until(Some(timeout), |entered| {
                let state = self.state.get(entered);
                let number = match (&task, begin.take()) {
                    (None, Some(begin)) => {
                        self.release_dropped(state);
                        *task.insert(state.tasks.spawn(begin(state.clone()), Waiter::Thread))
                    }
                    (Some(number), _) => *number,
                    (None, None) => return Some(Err(Failure::Closed)),
                };
                state.tasks.poll_ready();
                state.tasks.take(number)
            })?
        };
        if let Some(outcome) = &waited {
            self.note(outcome);
        }
        Ok(waited)
    }

    /// Marks the result of a call as unwanted, so that it is dropped.
    pub fn abandon(&self, task: usize) {
        // Ignore an error: in a child process there is no such call.
        let _ = self.visit(|_, state| state.tasks.abandon(task));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Break a reference cycle: tasks hold the state, which holds the tasks.
        let _ = self.visit(|_, state| state.tasks.clear());
    }
}

impl State {
    /// Returns the session.
    ///
    /// # Errors
    /// [`Failure::NoSession`] if it was closed.
    pub fn session(&self) -> Result<Session, Failure> {
        self.session.borrow().clone().ok_or(Failure::NoSession)
    }

    /// Takes the session out of the state to close it.
    pub fn take_session(&self) -> Option<Session> {
        self.session.borrow_mut().take()
    }

    /// Returns an open file.
    ///
    /// # Errors
    /// [`Failure::Closed`] if it was closed.
    pub fn file(&self, number: usize) -> Result<Rc<File>, Failure> {
        self.files.borrow().get(&number).cloned().ok_or(Failure::Closed)
    }

    /// Stores a file and returns its number.
    pub fn keep_file(&self, file: File) -> usize {
        let number = self.file_count.get();
        self.file_count.set(number + 1);
        self.files.borrow_mut().insert(number, Rc::new(file));
        number
    }

    /// Stores a buffer and returns its number and address.
    ///
    /// # Errors
    /// ENOBUFS if there are too many buffers, each of which is a memory region of the connection.
    pub fn keep_buffer(&self, buffer: Buffer) -> Result<(usize, usize), Failure> {
        if self.buffers.borrow().len() >= BUFFERS_MAX {
            return Err(Failure::Client(ClientError::System {
                what: "registering memory",
                source: SystemCause::new(
                    ENOBUFS,
                    format!("{BUFFERS_MAX} buffers are registered already; use fewer, larger ones"),
                ),
            }));
        }
        let address = buffer.memory().address() as usize;
        let number = self.buffers.borrow_mut().insert(buffer);
        self.ranges.borrow_mut().insert(address, number);
        Ok((number, address))
    }

    fn drop_buffer(&self, number: usize) {
        if let Some(buffer) = self.buffers.borrow_mut().try_remove(number) {
            let address = buffer.memory().address() as usize;
            self.ranges.borrow_mut().remove(&address);
        }
    }

    /// True if transfers to or from a range of memory are copied through a buffer.
    pub fn copies(&self, range: &Range) -> bool {
        if self.own_memory == OwnMemory::Straight || range.length() < STRAIGHT_MIN {
            return false;
        }
        let path = self.session.borrow().as_ref().and_then(|session| session.path_of(&self.probe));
        matches!(path, Some(RegionPath::ProcessVm | RegionPath::Staged))
            && self.buffer_around(range.address(), range.length()).is_none()
    }

    /// Returns the buffer that contains a range of memory, and the offset in it.
    pub fn buffer_around(&self, address: usize, length: usize) -> Option<(Buffer, usize)> {
        let ranges = self.ranges.borrow();
        let (first, number) = ranges.range(..=address).next_back()?;
        let buffer = self.buffers.borrow().get(*number)?.clone();
        let offset = address - first;
        (offset <= buffer.len() && length <= buffer.len() - offset).then_some((buffer, offset))
    }
}

/// The maximum number of calls that have memory registered at a time.
const CALLS_MAX: usize = 64;
/// The maximum number of batches that have memory registered. A batch uses more memory than a call.
const BATCHES_MAX: usize = 2;
/// The maximum number of buffers that a program can register.
const BUFFERS_MAX: usize = 512;
/// The error number for too many buffers.
const ENOBUFS: i32 = 105;
/// The length in bytes of the memory used to find out how servers access ordinary memory.
const PROBE_BYTES: usize = 4096;
