//! The one thread that does everything: it takes requests from the kernel, has the server asked,
//! and gives the answers, many at a time.
//!
//! Invariant: nothing here waits but the one sleep between two rounds. What must wait for the
//! server is a task or a transfer, and the thread turns to the next meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use dafs_base::Slab;
use dafs_client::{Buffer, Client, ClientError, Group, Session, SessionEvent, SessionOptions};
use dafs_posix::stat::{Names, Stat};
use dafs_types::FileHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;

use crate::abi::{Fields, Header, IN_HEADER_BYTES, WRITE_HEADER_BYTES, opcode};
use crate::data::Transfers;
use crate::directories::OpenDirectory;
use crate::files::OpenFile;
use crate::interrupts::Interrupts;
use crate::locks::Locks;
use crate::nodes::{Node, Nodes};
use crate::options::MountOptions;
use crate::reply::{Device, Lifetimes};
use crate::tasks::{Asker, Tasks};
use crate::unstable::Unstable;

/// What a request came to: its answer, or an error number.
pub(crate) type Answered<T> = Result<T, i32>;

/// An answer.
pub(crate) enum Answer {
    /// It is done, and there is no more to say.
    Done,
    /// A body.
    Body(Vec<u8>),
    /// A body that gives the kernel look-ups of these nodes.
    Entries(Vec<u8>, Vec<u64>),
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
}

/// The session with the server.
struct Link {
    session: Session,
    /// Goes up with each new session: what was opened in another must be opened again.
    epoch: u32,
    is_reconnecting: bool,
}

/// What is known of the connection.
#[derive(Default)]
struct News {
    /// It is lost, and comes back perhaps.
    is_down: Cell<bool>,
    /// It is back, and leads to a server that has restarted.
    has_restarted: Cell<bool>,
    /// How often it has led to one so far.
    restarts: Cell<u64>,
}

/// Everything of a mount.
pub(crate) struct Engine {
    pub client: Client,
    pub group: Group,
    pub device: Device,
    pub options: MountOptions,
    pub tasks: Tasks,
    pub names: Names,
    pub nodes: RefCell<Nodes>,
    pub files: RefCell<Slab<Rc<OpenFile>>>,
    pub directories: RefCell<Slab<Rc<OpenDirectory>>>,
    pub locks: RefCell<Locks>,
    pub interrupts: Interrupts,
    pub transfers: RefCell<Transfers>,
    /// What may be lost with the server, by file, and how much of it is held here.
    pub unstable: RefCell<HashMap<FileHandle, Weak<Unstable>>>,
    pub held: Rc<Cell<usize>>,
    news: Rc<News>,
    link: RefCell<Link>,
    session_options: SessionOptions,
    receiver: RefCell<Option<Buffer>>,
    /// Whether files are made in the name of whoever asks, as only the superuser may.
    pub names_owners: bool,
    next_owner: Cell<u64>,
}

/// What the kernel has done with a mount that is served no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is gone.
    Unmounted,
    /// It talks no more, by `/sys/fs/fuse/connections` or as it took the last of a detached mount
    /// away; a name of it may be left.
    Aborted,
}

impl Engine {
    pub fn new(
        device: Device,
        session: Session,
        root: FileHandle,
        session_options: SessionOptions,
        options: MountOptions,
    ) -> Rc<Self> {
        let client = session.client();
        let news = Rc::<News>::default();
        listen(&session, &news);
        Rc::new(Self {
            group: client.group(),
            client,
            device,
            names_owners: options.names_owners,
            options,
            tasks: Tasks::default(),
            names: Names::default(),
            nodes: RefCell::new(Nodes::new(root)),
            files: RefCell::default(),
            directories: RefCell::default(),
            locks: RefCell::default(),
            interrupts: Interrupts::default(),
            transfers: RefCell::default(),
            unstable: RefCell::default(),
            held: Rc::default(),
            news,
            link: RefCell::new(Link { session, epoch: 0, is_reconnecting: false }),
            session_options,
            receiver: RefCell::default(),
            next_owner: Cell::new(1),
        })
    }

    // ---- the loop -------------------------------------------------------------------

    /// Serves until the mount is gone.
    pub fn serve(self: &Rc<Self>) -> std::io::Result<Ended> {
        let mut idle_since: Option<Instant> = None;
        loop {
            let mut has_worked = false;
            for _ in 0..REQUESTS_PER_ROUND {
                match self.receive() {
                    Ok(true) => has_worked = true,
                    Ok(false) => break,
                    Err(Errno::NODEV) => return Ok(Ended::Unmounted),
                    Err(Errno::CONNABORTED) => return Ok(Ended::Aborted),
                    Err(error) => return Err(error.into()),
                }
            }
            self.client.turn(Some(Duration::ZERO));
            if self.news.has_restarted.take() {
                self.mend_all();
            }
            has_worked |= self.complete_transfers();
            let until_timer = self.tasks.tick();
            has_worked |= self.tasks.run();
            if has_worked {
                idle_since = None;
                continue;
            }
            // What is on its way comes within microseconds mostly, and sleeping takes longer.
            let is_waiting = self.transfers.borrow().count() + self.tasks.count() > 0;
            let now = Instant::now();
            let since = *idle_since.get_or_insert(now);
            if is_waiting && now.duration_since(since) < self.options.spin {
                std::hint::spin_loop();
                continue;
            }
            self.sleep(until_timer)?;
            idle_since = None;
        }
    }

    /// Sleeps until the kernel or the server has something, or a time has come.
    fn sleep(&self, until: Option<Duration>) -> std::io::Result<()> {
        if !self.client.arm() {
            return Ok(());
        }
        let until = [until, self.client.until_timer()].into_iter().flatten().min();
        let timeout = until.and_then(|until| Timespec::try_from(until).ok());
        self.client.with_fd(|fd| {
            let device = self.device.as_fd();
            let mut polled = [PollFd::new(&device, PollFlags::IN), PollFd::new(&fd, PollFlags::IN)];
            match poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Takes one request in. False if there is none.
    fn receive(self: &Rc<Self>) -> rustix::io::Result<bool> {
        let taken = self.receiver.borrow_mut().take();
        let buffer = match taken {
            Some(buffer) => buffer,
            None => self.client.allocate(RECEIVE_BYTES).map_err(|_| Errno::NOMEM)?,
        };
        let start = DATA_AT - WRITE_HEADER_BYTES;
        let length = buffer.len() - start;
        let count = match buffer.memory().receive(start, length, self.device.as_fd()) {
            Ok(count) => count,
            Err(error) => {
                *self.receiver.borrow_mut() = Some(buffer);
                return match error {
                    Errno::AGAIN => Ok(false),
                    // Given up before it was taken.
                    Errno::NOENT => Ok(true),
                    error => Err(error),
                };
            }
        };
        let mut head = [0; WRITE_HEADER_BYTES];
        let length = count.min(head.len());
        buffer.read(start, &mut head[..length]);
        let mut fields = Fields(&head[..length]);
        let Some(header) = Header::read(&mut fields) else {
            *self.receiver.borrow_mut() = Some(buffer);
            return Ok(true);
        };
        if header.opcode == opcode::WRITE {
            self.write(header, fields, buffer, count - length);
            return Ok(true);
        }
        let whole;
        let rest = if count > head.len() {
            let mut bytes = vec![0; count - IN_HEADER_BYTES];
            buffer.read(start + IN_HEADER_BYTES, &mut bytes);
            whole = bytes;
            &whole[..]
        } else {
            fields.rest()
        };
        *self.receiver.borrow_mut() = Some(buffer);
        self.dispatch(header, rest);
        Ok(true)
    }

    /// A buffer that requests may be received in again.
    pub fn keep_receiver(&self, buffer: Buffer) {
        if buffer.len() >= RECEIVE_BYTES {
            *self.receiver.borrow_mut() = Some(buffer);
        }
    }

    /// Runs what comes to an answer as a task.
    pub fn answer(
        self: &Rc<Self>,
        asker: Asker,
        work: impl Future<Output = Answered<Answer>> + 'static,
    ) {
        let (engine, unique) = (self.clone(), asker.unique);
        self.tasks.spawn(asker, async move {
            match work.await {
                Ok(Answer::Done) => engine.device.done(unique),
                Ok(Answer::Body(body)) => drop(engine.device.body(unique, &body)),
                Ok(Answer::Entries(body, nodes)) => {
                    if !engine.device.body(unique, &body) {
                        // The kernel never heard of them.
                        let mut all = engine.nodes.borrow_mut();
                        nodes.into_iter().for_each(|node| all.forget(node, 1));
                    }
                }
                Err(errno) => engine.device.fail(unique, errno),
            }
        });
    }

    /// Whether the connection is lost, and comes back perhaps.
    pub fn is_down(&self) -> bool {
        self.news.is_down.get()
    }

    // ---- what operations use --------------------------------------------------------

    /// The session of the moment, and which it is.
    pub fn session(&self) -> (Session, u32) {
        let link = self.link.borrow();
        (link.session.clone(), link.epoch)
    }

    /// Changes whenever the mount comes to a server that may not know what an earlier one did;
    /// `None` while there is no connection.
    pub fn server_life(&self) -> Option<(u32, u64)> {
        let life = (self.link.borrow().epoch, self.news.restarts.get());
        (!self.news.is_down.get()).then_some(life)
    }

    pub fn node(&self, number: u64) -> Answered<Node> {
        self.nodes.borrow().get(number).ok_or(ESTALE)
    }

    pub fn lifetimes(&self) -> Lifetimes {
        Lifetimes { entry: self.options.entry_timeout, attributes: self.options.attribute_timeout }
    }

    pub fn stat(&self, metadata: &dafs_client::Metadata) -> Stat {
        let mut stat = Stat::of(metadata, &self.names);
        let known = self.unstable.borrow().get(&metadata.handle).and_then(Weak::upgrade);
        if let Some(unstable) = known {
            stat.size = stat.size.max(unstable.least_size());
        }
        stat
    }

    /// A number that no other owner of an open of this mount has.
    pub fn next_owner(&self) -> u64 {
        self.next_owner.replace(self.next_owner.get() + 1)
    }

    /// The error number of a failure. If the session has ended, a new one is begun.
    pub fn failed(self: &Rc<Self>, error: &ClientError) -> i32 {
        if matches!(error, ClientError::SessionEnded { .. }) {
            self.reconnect();
        }
        let errno = dafs_posix::errno::errno(error);
        tracing::debug!(errno, error = %error.in_full(), "failed");
        errno
    }

    /// Tries to get another session until it has one.
    fn reconnect(self: &Rc<Self>) {
        if std::mem::replace(&mut self.link.borrow_mut().is_reconnecting, true) {
            return;
        }
        tracing::warn!("the session has ended; trying to get another one");
        let engine = self.clone();
        self.tasks.spawn(Asker::NOBODY, async move {
            let address = engine.session().0.address();
            loop {
                let connecting = engine.client.connect_async(&address, &engine.session_options);
                let connected = match connecting {
                    Ok(connecting) => connecting.await,
                    Err(error) => Err(error),
                };
                match connected {
                    Ok(session) => {
                        tracing::warn!("connected again to {}", session.address());
                        listen(&session, &engine.news);
                        engine.news.is_down.set(false);
                        let mut link = engine.link.borrow_mut();
                        link.session = session;
                        link.epoch += 1;
                        link.is_reconnecting = false;
                        drop(link);
                        return engine.mend_all();
                    }
                    Err(error) => tracing::info!(error = %error.in_full(), "no session yet"),
                }
                engine.tasks.sleep(RECONNECT_PAUSE).await;
            }
        });
    }
}

/// Has it known what becomes of a session's connection.
fn listen(session: &Session, news: &Rc<News>) {
    let news = news.clone();
    session.on_event(move |event| match event {
        SessionEvent::Lost { reason } => {
            tracing::warn!(reason, "the connection is lost");
            news.is_down.set(true);
        }
        SessionEvent::Recovered { server_restarted, .. } => {
            tracing::warn!("the connection is back");
            news.is_down.set(false);
            if *server_restarted {
                news.has_restarted.set(true);
                news.restarts.set(news.restarts.get() + 1);
            }
        }
        SessionEvent::GaveUp { reason } => tracing::warn!(reason, "the server is given up"),
        event => tracing::info!(?event, "session"),
    });
}

/// Where data lies in buffers: a page's beginning, with room for a header in front.
pub(crate) const DATA_AT: usize = 4096;
/// Most bytes of a WRITE.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// The longest request there is.
pub(crate) const RECEIVE_BYTES: usize = DATA_AT + WRITE_BYTES_MAX + 4096;
/// Requests taken in before the server's answers are looked for.
const REQUESTS_PER_ROUND: usize = 32;
/// Between two attempts to get a new session.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const ESTALE: i32 = 116;
