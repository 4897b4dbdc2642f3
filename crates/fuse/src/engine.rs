//! The thread that serves a mount. It receives requests from the kernel, sends requests to the
//! server and returns replies, many at a time.
//!
//! Invariant: the thread blocks only in the sleep between two rounds. Work that must wait for the
//! server is a task or a transfer, so that the thread can continue with other work.

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
use crate::tasks::{Requester, Tasks};
use crate::unstable::Unstable;

/// The result of a request: its reply, or an error number.
pub(crate) type ErrnoResult<T> = Result<T, i32>;

/// A reply to the kernel.
pub(crate) enum Reply {
    /// Success without a body.
    Done,
    /// Success with this body.
    Body(Vec<u8>),
    /// Success with a body that contains entries. The kernel then holds a lookup of each of these
    /// nodes.
    Entries(Vec<u8>, Vec<u64>),
}

/// The user that sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
}

/// The session with the server.
struct Link {
    session: Session,
    /// The number of sessions before this one. Files opened in an earlier session must be opened
    /// again.
    epoch: u32,
    is_reconnecting: bool,
}

/// The state of the connection.
#[derive(Default)]
struct ConnectionState {
    /// True while the connection is lost and the client reconnects.
    is_down: Cell<bool>,
    /// True if the client has reconnected to a server that had restarted.
    has_restarted: Cell<bool>,
    /// The number of times that the client has reconnected to a restarted server.
    restarts: Cell<u64>,
}

/// The whole state of a mount.
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
    /// For each file, the written data that a server restart may lose.
    pub unstable: RefCell<HashMap<FileHandle, Weak<Unstable>>>,
    /// The number of bytes that are held for `unstable`, in all files together.
    pub held: Rc<Cell<usize>>,
    connection: Rc<ConnectionState>,
    link: RefCell<Link>,
    session_options: SessionOptions,
    receiver: RefCell<Option<Buffer>>,
    /// True if new files belong to the calling user. The server allows only the superuser to set
    /// that.
    pub names_owners: bool,
    next_owner: Cell<u64>,
}

/// The way in which a mount has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The file system was unmounted.
    Unmounted,
    /// The connection was aborted, through `/sys/fs/fuse/connections` or by the end of a detached
    /// mount. The mount point may still exist.
    Aborted,
}

impl Engine {
    pub(crate) fn new(
        device: Device,
        session: Session,
        root: FileHandle,
        session_options: SessionOptions,
        options: MountOptions,
    ) -> Rc<Self> {
        let client = session.client();
        let connection = Rc::<ConnectionState>::default();
        track_connection(&session, &connection);
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
            connection,
            link: RefCell::new(Link { session, epoch: 0, is_reconnecting: false }),
            session_options,
            receiver: RefCell::default(),
            next_owner: Cell::new(1),
        })
    }

    // ---- the loop -------------------------------------------------------------------

    /// Serves until the mount has ended.
    pub(crate) fn serve(self: &Rc<Self>) -> std::io::Result<Ended> {
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
            self.client.process_events(Some(Duration::ZERO));
            if self.connection.has_restarted.take() {
                self.rewrite_all();
            }
            has_worked |= self.complete_transfers();
            let until_timer = self.tasks.tick();
            has_worked |= self.tasks.run();
            if has_worked {
                idle_since = None;
                continue;
            }
            // Poll first, because a reply usually arrives sooner than a sleeping thread wakes up.
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

    /// Sleeps until the kernel or the server sends something, or a timer expires.
    fn sleep(&self, until: Option<Duration>) -> std::io::Result<()> {
        if !self.client.arm() {
            return Ok(());
        }
        let until = [until, self.client.next_timer()].into_iter().flatten().min();
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

    /// Receives one request. Returns false if there is none.
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
                    // A signal ended the request before it was read.
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

    /// Keeps a buffer for receiving later requests.
    pub(crate) fn keep_receiver(&self, buffer: Buffer) {
        if buffer.len() >= RECEIVE_BYTES {
            *self.receiver.borrow_mut() = Some(buffer);
        }
    }

    /// Runs the operation of a request as a task and sends its reply.
    pub(crate) fn reply(
        self: &Rc<Self>,
        requester: Requester,
        work: impl Future<Output = ErrnoResult<Reply>> + 'static,
    ) {
        let (engine, unique) = (self.clone(), requester.unique);
        self.tasks.spawn(requester, async move {
            match work.await {
                Ok(Reply::Done) => engine.device.done(unique),
                Ok(Reply::Body(body)) => drop(engine.device.body(unique, &body)),
                Ok(Reply::Entries(body, nodes)) => {
                    if !engine.device.body(unique, &body) {
                        // The kernel did not receive these entries, so it holds no lookups of them.
                        let mut all = engine.nodes.borrow_mut();
                        nodes.into_iter().for_each(|node| all.forget(node, 1));
                    }
                }
                Err(errno) => engine.device.fail(unique, errno),
            }
        });
    }

    /// True while the connection is lost and the client reconnects.
    pub(crate) fn is_down(&self) -> bool {
        self.connection.is_down.get()
    }

    // ---- used by the operations -----------------------------------------------------

    /// Returns the current session and its epoch.
    pub(crate) fn session(&self) -> (Session, u32) {
        let link = self.link.borrow();
        (link.session.clone(), link.epoch)
    }

    /// Returns a value that identifies the server's incarnation. The value changes when the mount
    /// connects to a server that may not know the state of an earlier one. Returns `None` while
    /// there is no connection.
    pub(crate) fn server_incarnation(&self) -> Option<(u32, u64)> {
        let life = (self.link.borrow().epoch, self.connection.restarts.get());
        (!self.connection.is_down.get()).then_some(life)
    }

    pub(crate) fn node(&self, number: u64) -> ErrnoResult<Node> {
        self.nodes.borrow().get(number).ok_or(ESTALE)
    }

    pub(crate) fn lifetimes(&self) -> Lifetimes {
        Lifetimes { entry: self.options.entry_timeout, attributes: self.options.attribute_timeout }
    }

    pub(crate) fn stat(&self, metadata: &dafs_client::Metadata) -> Stat {
        let mut stat = Stat::of(metadata, &self.names);
        let known = self.unstable.borrow().get(&metadata.handle).and_then(Weak::upgrade);
        if let Some(unstable) = known {
            stat.size = stat.size.max(unstable.least_size());
        }
        stat
    }

    /// Returns a new number for an open owner of this mount.
    pub(crate) fn next_owner(&self) -> u64 {
        self.next_owner.replace(self.next_owner.get() + 1)
    }

    /// Returns the error number of a failure. Starts a new session if the session has ended.
    pub(crate) fn failed(self: &Rc<Self>, error: &ClientError) -> i32 {
        if matches!(error, ClientError::SessionEnded { .. }) {
            self.reconnect();
        }
        let errno = dafs_posix::errno::errno(error);
        tracing::debug!(errno, error = %error.in_full(), "failed");
        errno
    }

    /// Tries to establish a new session until it succeeds.
    fn reconnect(self: &Rc<Self>) {
        if std::mem::replace(&mut self.link.borrow_mut().is_reconnecting, true) {
            return;
        }
        tracing::warn!("the session has ended; trying to establish a new one");
        let engine = self.clone();
        self.tasks.spawn(Requester::NONE, async move {
            let address = engine.session().0.address();
            loop {
                let connecting = engine.client.connect_async(&address, &engine.session_options);
                let connected = match connecting {
                    Ok(connecting) => connecting.await,
                    Err(error) => Err(error),
                };
                match connected {
                    Ok(session) => {
                        tracing::warn!("reconnected to {}", session.address());
                        track_connection(&session, &engine.connection);
                        engine.connection.is_down.set(false);
                        let mut link = engine.link.borrow_mut();
                        link.session = session;
                        link.epoch += 1;
                        link.is_reconnecting = false;
                        drop(link);
                        return engine.rewrite_all();
                    }
                    Err(error) => {
                        tracing::info!(error = %error.in_full(), "cannot establish a session yet");
                    }
                }
                engine.tasks.sleep(RECONNECT_PAUSE).await;
            }
        });
    }
}

/// Updates the state of the connection with the session's events.
fn track_connection(session: &Session, connection: &Rc<ConnectionState>) {
    let connection = connection.clone();
    session.on_event(move |event| match event {
        SessionEvent::Lost { reason } => {
            tracing::warn!(reason, "the connection is lost");
            connection.is_down.set(true);
        }
        SessionEvent::Recovered { server_restarted, .. } => {
            tracing::warn!("the connection is re-established");
            connection.is_down.set(false);
            if *server_restarted {
                connection.has_restarted.set(true);
                connection.restarts.set(connection.restarts.get() + 1);
            }
        }
        SessionEvent::GaveUp { reason } => tracing::warn!(reason, "the server was given up"),
        event => tracing::info!(?event, "session"),
    });
}

/// The offset of data in buffers: page-aligned, with space for a header before it.
pub(crate) const DATA_AT: usize = 4096;
/// The maximum number of bytes in a WRITE.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// The longest possible request in bytes.
pub(crate) const RECEIVE_BYTES: usize = DATA_AT + WRITE_BYTES_MAX + 4096;
/// The maximum number of requests received before replies of the server are checked.
const REQUESTS_PER_ROUND: usize = 32;
/// The pause between two attempts to establish a new session.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const ESTALE: i32 = 116;
