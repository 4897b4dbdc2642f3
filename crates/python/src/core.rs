//! A session and all that belongs to it.
//!
//! Invariant: what Python holds is a number and a [`Core`]; whatever it lets go is noted without
//! taking the client's lock, and put in order by the next visit.

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
use crate::tasks::{Outcome, Tasks, Whose, Work};
use crate::transfer::STRAIGHT_MIN;
use crate::value::Value;

/// What begins a call.
pub type Begin = Box<dyn FnOnce(Rc<State>) -> Work + Send>;

/// A session that threads share.
pub struct Core {
    shared: SharedClient,
    state: Held<Rc<State>>,
    garbage: Mutex<Vec<Garbage>>,
    /// Moves and copies so far.
    pub counters: Arc<Counters>,
    /// A call has found the session ended.
    is_lost: AtomicBool,
}

/// Something that Python has let go.
pub enum Garbage {
    /// A file, by its number.
    File(usize),
    /// A buffer, by its number.
    Buffer(usize),
}

/// What the client's lock guards.
pub struct State {
    /// `None` once it was closed.
    session: RefCell<Option<Session>>,
    /// Open files.
    pub files: RefCell<HashMap<usize, Rc<File>>>,
    /// Files so far: no number is used twice, whoever still has one.
    file_count: Cell<usize>,
    buffers: RefCell<Slab<Buffer>>,
    /// The buffers by the address of their first byte.
    ranges: RefCell<BTreeMap<usize, usize>>,
    /// What is under way.
    pub tasks: Tasks,
    /// Moves and copies.
    pub counters: Arc<Counters>,
    /// Calls that have memory registered for them.
    pub calls: Gate,
    /// Batches that do.
    pub batches: Gate,
    /// Whether files are read under delegations.
    pub keeps: Cell<bool>,
    own_memory: OwnMemory,
    /// Memory of this process's own: how bytes get there tells of any other.
    probe: Buffer,
}

/// What is done with memory of the program's own, of a length that is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnMemory {
    /// What is faster: copied over shared memory, and nowhere else.
    Automatic,
    /// Lent to the server, everywhere.
    Straight,
}

/// How bytes have moved.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reads and writes that moved bytes straight.
    pub straight: AtomicU64,
    /// Their bytes.
    pub straight_bytes: AtomicU64,
    /// Copies within this process.
    pub copies: AtomicU64,
    /// Their bytes.
    pub copied_bytes: AtomicU64,
    /// Memory that was registered for one call.
    pub registrations: AtomicU64,
}

impl Counters {
    /// Bytes went between the server and where they belong, straight or by way of the
    /// connection's ring.
    pub fn note_move(&self, bytes: usize, is_straight: bool) {
        if !is_straight {
            return self.note_copy(bytes);
        }
        self.straight.fetch_add(1, Ordering::Relaxed);
        self.straight_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes were copied within this process.
    pub fn note_copy(&self, bytes: usize) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Memory was registered for one call.
    pub fn note_registration(&self) {
        self.registrations.fetch_add(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Around a session that `connect` makes.
    ///
    /// # Errors
    /// As `connect`.
    pub fn new(
        shared: SharedClient,
        connect: impl FnOnce(&dafs_client::Client) -> dafs_client::Result<Session>,
        keeps: bool,
        own_memory: OwnMemory,
    ) -> Result<Self, Failure> {
        let counters = Arc::new(Counters::default());
        // SAFETY: what is not `Send` of the client's ends in `state`, which is held.
        let entered = unsafe { shared.enter()? };
        let session = connect(&entered)?;
        if keeps {
            // It waits for answers, which nobody minds here.
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

    /// The client.
    pub fn shared(&self) -> &SharedClient {
        &self.shared
    }

    /// Whether a call has found the session ended, which none will change.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Takes note of how a call has ended.
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

    /// Something is not needed any more. Takes no lock that anybody waits with.
    pub fn discard(&self, garbage: Garbage) {
        self.garbage.lock().unwrap_or_else(PoisonError::into_inner).push(garbage);
    }

    /// Looks at the session. Nothing of it may be in what `look` gives.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a child process.
    pub fn visit<T: Send>(
        &self,
        look: impl FnOnce(&dafs_share::Entered<'_>, &Rc<State>) -> T,
    ) -> Result<T, Failure> {
        // SAFETY: what `look` gives is `Send`, hence nothing of the client's; what it makes
        // besides it keeps in `state`, which is held.
        let entered = unsafe { self.shared.enter()? };
        let state = self.state.get(&entered);
        self.sweep(state);
        Ok(look(&entered, state))
    }

    fn sweep(&self, state: &State) {
        let garbage =
            std::mem::take(&mut *self.garbage.lock().unwrap_or_else(PoisonError::into_inner));
        for item in garbage {
            match item {
                Garbage::File(number) => drop(state.files.borrow_mut().remove(&number)),
                Garbage::Buffer(number) => state.drop_buffer(number),
            }
        }
    }

    /// Begins a call, if that has not been done, and waits for its end; `None` if the time is
    /// over before.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a child process.
    pub fn wait_for(
        &self,
        task: &mut Option<usize>,
        begin: &mut Option<Begin>,
        timeout: Duration,
    ) -> Result<Option<Outcome>, Failure> {
        // SAFETY: an outcome has nothing of the client's; a task is kept in `state`, held.
        let waited = unsafe {
            self.shared.wait_until(Some(timeout), |entered| {
                let state = self.state.get(entered);
                let number = match (&task, begin.take()) {
                    (None, Some(begin)) => {
                        self.sweep(state);
                        *task.insert(state.tasks.spawn(begin(state.clone()), Whose::Thread))
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

    /// Nobody waits for a call any more.
    pub fn abandon(&self, task: usize) {
        // In a child process there is nothing to abandon.
        let _ = self.visit(|_, state| state.tasks.abandon(task));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Tasks hold the state, which holds the tasks.
        let _ = self.visit(|_, state| state.tasks.clear());
    }
}

impl State {
    /// The session.
    ///
    /// # Errors
    /// [`Failure::NoSession`] if it was closed.
    pub fn session(&self) -> Result<Session, Failure> {
        self.session.borrow().clone().ok_or(Failure::NoSession)
    }

    /// The session, for the last time.
    pub fn take_session(&self) -> Option<Session> {
        self.session.borrow_mut().take()
    }

    /// An open file.
    ///
    /// # Errors
    /// [`Failure::Closed`].
    pub fn file(&self, number: usize) -> Result<Rc<File>, Failure> {
        self.files.borrow().get(&number).cloned().ok_or(Failure::Closed)
    }

    /// Keeps a file, under a number.
    pub fn keep_file(&self, file: File) -> usize {
        let number = self.file_count.get();
        self.file_count.set(number + 1);
        self.files.borrow_mut().insert(number, Rc::new(file));
        number
    }

    /// Keeps a buffer, under a number; with its address.
    ///
    /// # Errors
    /// If there are too many: each is a region of the connection's.
    pub fn keep_buffer(&self, buffer: Buffer) -> Result<(usize, usize), Failure> {
        if self.buffers.borrow().len() >= BUFFERS_MAX {
            return Err(Failure::Client(ClientError::System {
                what: "registering memory",
                source: SystemCause::new(
                    ENOBUFS,
                    format!("{BUFFERS_MAX} pieces are registered already; take fewer, larger ones"),
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

    /// Whether bytes go to or from a range of memory by way of a buffer.
    pub fn copies(&self, range: &Range) -> bool {
        if self.own_memory == OwnMemory::Straight || range.length() < STRAIGHT_MIN {
            return false;
        }
        let path = self.session.borrow().as_ref().and_then(|session| session.path_of(&self.probe));
        matches!(path, Some(RegionPath::ProcessVm | RegionPath::Staged))
            && self.buffer_around(range.address(), range.length()).is_none()
    }

    /// The buffer that a range of memory is in, and where in it.
    pub fn buffer_around(&self, address: usize, length: usize) -> Option<(Buffer, usize)> {
        let ranges = self.ranges.borrow();
        let (first, number) = ranges.range(..=address).next_back()?;
        let buffer = self.buffers.borrow().get(*number)?.clone();
        let offset = address - first;
        (offset <= buffer.len() && length <= buffer.len() - offset).then_some((buffer, offset))
    }
}

/// Calls that have memory registered at once; a server grants fewer credits.
const CALLS_MAX: usize = 64;
/// Batches that have: each has more of it.
const BATCHES_MAX: usize = 2;
/// Pieces of memory that a program has registered.
const BUFFERS_MAX: usize = 512;
/// There is no room for more.
const ENOBUFS: i32 = 105;
/// Bytes of the memory that tells how others are reached.
const PROBE_BYTES: usize = 4096;
