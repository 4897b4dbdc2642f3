//! The state of a driver thread: the client, its session, open files and buffers of replies.
//!
//! Invariants:
//! - A session that has ended is not used again; the next operation makes a new session.
//! - Connecting blocks the thread, so all operations share one session. If a connection attempt
//!   fails, all operations that were requested before the failure return the same error.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dafs_client::{Buffer, Client, ClientConfig, ClientError, File, FileHandle, Memory, Session};

use crate::bell::Bell;
use crate::builder::Settings;
use crate::error::{Fault, StoreError};
use crate::upload::OpenUpload;

pub(crate) struct Worker {
    pub settings: Arc<Settings>,
    pub bell: Arc<Bell>,
    client: Result<Client, ClientError>,
    session: RefCell<Option<Session>>,
    /// The time and the error of the most recent failed connection attempt.
    refusal: RefCell<Option<(Instant, ClientError)>>,
    /// The time at which the operation that runs now was requested.
    pub asked_at: Cell<Instant>,
    site: RefCell<Option<Site>>,
    files: RefCell<HashMap<u64, Rc<File>>>,
    buffers: RefCell<HashMap<u64, Buffer>>,
    pub uploads: RefCell<HashMap<u64, Rc<OpenUpload>>>,
    /// True if the file system cannot create files without names.
    pub needs_names: Cell<bool>,
    number: Cell<u64>,
    pub timers: Timers,
}

/// A session, and the root directory of the store.
#[derive(Clone)]
pub(crate) struct Site {
    pub session: Session,
    pub root: FileHandle,
}

impl Worker {
    pub(crate) fn new(settings: Arc<Settings>, bell: Arc<Bell>) -> Result<Self, ClientError> {
        let client = Client::new(ClientConfig::default())?;
        Ok(Self::with(settings, bell, Ok(client)))
    }

    /// Creates a worker whose operations all fail with this error.
    pub(crate) fn broken(settings: Arc<Settings>, bell: Arc<Bell>, error: ClientError) -> Self {
        Self::with(settings, bell, Err(error))
    }

    fn with(settings: Arc<Settings>, bell: Arc<Bell>, client: Result<Client, ClientError>) -> Self {
        let needs_names = settings.names_temporaries;
        Self {
            settings,
            bell,
            client,
            session: RefCell::default(),
            refusal: RefCell::default(),
            asked_at: Cell::new(Instant::now()),
            site: RefCell::default(),
            files: RefCell::default(),
            buffers: RefCell::default(),
            uploads: RefCell::default(),
            needs_names: Cell::new(needs_names),
            number: Cell::new(0),
            timers: Timers::default(),
        }
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref().ok()
    }

    /// Returns the session and the root directory. Connects if there is no session.
    pub(crate) async fn site(&self) -> Result<Site, ClientError> {
        if let Some(site) = &*self.site.borrow() {
            return Ok(site.clone());
        }
        let session = self.session()?;
        let Settings { location, creates_root, .. } = &*self.settings;
        let root = match session.resolve_async(&location.path, true).await {
            Err(error) if *creates_root && is_missing(&error) => {
                self.make_root(&session, &location.path).await?
            }
            resolved => resolved?,
        };
        let site = Site { session, root };
        // Another task may have connected meanwhile; then use its session.
        Ok(self.site.borrow_mut().get_or_insert(site).clone())
    }

    fn session(&self) -> Result<Session, ClientError> {
        if let Some(session) = &*self.session.borrow() {
            return Ok(session.clone());
        }
        if let Some((at, error)) = &*self.refusal.borrow()
            && self.asked_at.get() <= *at
        {
            return Err(error.clone());
        }
        let client = self.client.as_ref().map_err(Clone::clone)?;
        match client.connect(&self.settings.location, &self.settings.session) {
            Ok(session) => {
                *self.session.borrow_mut() = Some(session.clone());
                Ok(session)
            }
            Err(error) => {
                *self.refusal.borrow_mut() = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Connects if there is no session.
    pub(crate) async fn connect(self: Rc<Self>) -> Result<(), Fault> {
        self.site().await?;
        Ok(())
    }

    async fn make_root(&self, session: &Session, path: &OsStr) -> Result<FileHandle, ClientError> {
        let mut at = std::path::PathBuf::from("/");
        let mut here = session.resolve_async(&at, true).await?;
        for name in std::path::Path::new(path).components().skip(1) {
            at.push(name);
            let name = name.as_os_str();
            let mode = self.settings.directory_mode;
            here = match session.create_dir_in_async(here, name, &at, mode).await {
                Err(error) if error.status() == Some(dafs_client::Status::Exist) => {
                    session.resolve_async(&at, true).await?
                }
                made => made?,
            };
        }
        Ok(here)
    }

    /// Drops the session if it has ended. A failure that belongs to an earlier session does not
    /// affect the current one. Operations on files opened in an ended session fail with
    /// [`Fault::Ended`].
    pub(crate) fn note_failure(&self, fault: &Fault) {
        if matches!(fault.client_error(), Some(ClientError::SessionEnded { .. })) {
            let site = self.site.borrow_mut().take_if(|site| site.session.has_ended());
            let session = self.session.borrow_mut().take_if(|session| session.has_ended());
            drop((site, session));
        }
    }

    /// Releases all resources and disconnects. Called when the driver thread ends.
    pub(crate) fn leave(&self) {
        self.uploads.borrow_mut().clear();
        self.files.borrow_mut().clear();
        self.buffers.borrow_mut().clear();
        drop(self.site.borrow_mut().take());
        let session = self.session.borrow_mut().take();
        if let Some(session) = session {
            // Ignore an error: the server detects a lost client.
            let _ = session.disconnect();
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    pub(crate) fn keep_file(&self, file: Rc<File>) -> u64 {
        let number = self.next_number();
        self.files.borrow_mut().insert(number, file);
        number
    }

    pub(crate) fn file(&self, number: u64) -> Option<Rc<File>> {
        self.files.borrow().get(&number).cloned()
    }

    pub(crate) fn close_file(&self, number: u64) {
        let file = self.files.borrow_mut().remove(&number);
        drop(file);
    }

    /// Keeps a buffer until the caller has copied its data. Returns the buffer's number and memory.
    pub(crate) fn lend(&self, buffer: Buffer) -> (u64, Memory) {
        let (number, memory) = (self.next_number(), buffer.memory().clone());
        self.buffers.borrow_mut().insert(number, buffer);
        (number, memory)
    }

    /// Returns the number of buffers that are kept for callers.
    pub(crate) fn lent_buffers(&self) -> usize {
        self.buffers.borrow().len()
    }

    pub(crate) fn free_buffer(&self, number: u64) {
        let buffer = self.buffers.borrow_mut().remove(&number);
        drop(buffer);
    }
}

/// True if the error means that the object at a path does not exist.
pub(crate) fn is_missing(error: &ClientError) -> bool {
    error.status() == Some(dafs_client::Status::NoEnt)
}

/// True if an open was lost in a server restart, or if the file of a handle no longer exists.
pub(crate) fn is_lost_open(error: &ClientError) -> bool {
    use dafs_client::Status::{BadStateId, Expired, OldStateId, Stale, StaleStateId};
    matches!(error.status(), Some(Stale | StaleStateId | BadStateId | OldStateId | Expired))
}

/// Limits the time for which an operation is repeated because of conflicts with other clients. At
/// each conflict one of the clients succeeds, so the repetition ends.
pub(crate) struct Patience {
    until: Instant,
    pause: Duration,
    attempts: u32,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { until: Instant::now() + PATIENCE, pause: Duration::ZERO, attempts: 1 }
    }

    /// Waits before another attempt. The first attempts have no pause.
    ///
    /// # Errors
    /// If the attempts have taken too long.
    pub(crate) async fn again(&mut self, worker: &Worker) -> Result<(), Fault> {
        if Instant::now() >= self.until {
            return Err(Fault::Refused(StoreError::Contended { attempts: self.attempts }));
        }
        self.attempts += 1;
        if self.attempts > QUICK_ATTEMPTS {
            worker.timers.sleep(self.pause).await;
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        }
        Ok(())
    }
}

/// The maximum time for which an operation is repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of attempts without a pause.
const QUICK_ATTEMPTS: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The timers of the tasks of a driver thread.
#[derive(Default)]
pub(crate) struct Timers(RefCell<Vec<(Instant, Waker)>>);

impl Timers {
    pub(crate) fn sleep(&self, pause: Duration) -> impl Future<Output = ()> + '_ {
        Sleep { timers: self, until: Instant::now() + pause }
    }

    pub(crate) fn fire(&self) {
        let now = Instant::now();
        self.0.borrow_mut().retain(|(until, waker)| {
            let is_due = *until <= now;
            if is_due {
                waker.wake_by_ref();
            }
            !is_due
        });
    }

    pub(crate) fn until_next(&self) -> Option<Duration> {
        let next = self.0.borrow().iter().map(|(until, _)| *until).min();
        next.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

struct Sleep<'t> {
    timers: &'t Timers,
    until: Instant,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.until <= Instant::now() {
            return Poll::Ready(());
        }
        self.timers.0.borrow_mut().push((self.until, context.waker().clone()));
        Poll::Pending
    }
}
