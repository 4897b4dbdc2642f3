//! An NFSv4.1 client that goes on when its server dies.
//!
//! Invariants:
//! - A request is sent again in the same slot, with the same sequence number, until the server
//!   replies or has lost the session.
//! - When the server has lost the session, the client creates another one, and reclaims its opens
//!   and locks before it sends anything else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::nfs4::ops::{self, Claim, How, Locker, Op, lock_type, share};
use dafs_nfs_suite::nfs4::session::{Wish, create, exchange};
use dafs_nfs_suite::nfs4::{Body, Reply, StateId, call_of, decode_record};
use dafs_nfs_suite::rpc::Connection;
use dafs_nfs_suite::status;

use super::super::violated;

/// A client with its session, its opens and its locks.
pub(super) struct Mount {
    server: SocketAddr,
    wish: Wish,
    connection: Option<Connection>,
    session: Option<Live>,
    held: BTreeMap<OpenId, Held>,
    last_open: u32,
    pub counts: Counts,
}

/// A session on the server.
struct Live {
    id: [u8; 16],
    /// The sequence number of the next request in the only slot that the client uses.
    next: u32,
    /// True if the server promised that the session survives a restart.
    is_persistent: bool,
}

/// Names an open, whatever its state id is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpenId(u32);

/// An open that the client reclaims after a restart of the server.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub fh: Vec<u8>,
    pub state: StateId,
    owner: Vec<u8>,
    lock: Option<StateId>,
}

/// Statistics of what deaths of the server have caused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// The number of requests that were repeated in their slot and got a reply.
    pub repeated: u64,
    /// The number of requests whose execution is unknown because the session was lost.
    pub unknown: u64,
    /// The number of sessions that were created after the first one.
    pub sessions: u64,
    pub opens_reclaimed: u64,
    pub locks_reclaimed: u64,
    /// The number of unstable writes that were sent again because the write verifier had changed.
    pub rewritten: u64,
}

/// A reply, and whether an earlier attempt may have been executed.
pub(super) struct Answer {
    pub reply: Reply,
    pub may_be_second: bool,
}

/// The result of sending one request.
enum Attempt {
    Answered(Reply),
    /// The server has not executed the request.
    NotDone,
    /// The session was lost, so the server may have executed the request.
    Unknown,
}

impl Mount {
    /// Creates a session.
    pub(super) fn new(server: SocketAddr, wish: Wish) -> Result<Self> {
        let mut mount = Self {
            server,
            wish,
            connection: None,
            session: None,
            held: BTreeMap::new(),
            last_open: 0,
            counts: Counts::default(),
        };
        mount.establish()?;
        Ok(mount)
    }

    /// Returns an open, with its present state id.
    pub(super) fn held(&self, open: OpenId) -> Result<&Held> {
        self.held.get(&open).context("the file is not open")
    }

    // ---- requests ---------------------------------------------------------------------

    /// Calls operations until the server replies. `make` returns the operations with the present
    /// state ids. At most one of them may be one that must not be executed twice.
    pub(super) fn call(&mut self, make: impl Fn(&Self) -> Result<Vec<Op>>) -> Result<Answer> {
        let mut may_be_second = false;
        let mut patience = Patience::new();
        loop {
            let ops = make(self)?;
            match self.attempt(&ops)? {
                Attempt::Answered(reply) if is_delay(reply.status) => {}
                Attempt::Answered(reply) => return Ok(Answer { reply, may_be_second }),
                Attempt::NotDone => {}
                Attempt::Unknown => may_be_second = true,
            }
            patience.pause(|| format!("the request {}", names(&ops)))?;
        }
    }

    /// Calls operations that may be executed several times. All must succeed.
    pub(super) fn ok(&mut self, make: impl Fn(&Self) -> Result<Vec<Op>>) -> Result<Reply> {
        let Answer { reply, .. } = self.call(make)?;
        match reply.status {
            status::OK => Ok(reply),
            status => bail!(violated(format!(
                "{} fails with {}",
                reply.last_name(),
                status::name(status)
            ))),
        }
    }

    fn attempt(&mut self, ops: &[Op]) -> Result<Attempt> {
        self.establish()?;
        let mut patience = Patience::new();
        let mut sends = 0;
        loop {
            if !self.connect() {
                patience.pause(|| "a connection".into())?;
                continue;
            }
            sends += 1;
            let reply = match self.send(ops) {
                Err(fault) if is_death(&fault) => {
                    self.connection = None;
                    patience.pause(|| format!("a reply to {}", names(ops)))?;
                    continue;
                }
                reply => reply?,
            };
            if sends > 1 {
                self.counts.repeated += 1;
            }
            return match reply.results.first() {
                Some(first) if first.status == status::OK => self.take(reply),
                Some(first) if first.status == status::DELAY => {
                    patience.pause(|| "the slot".into())?;
                    continue;
                }
                Some(first) => self.lose_session(first.status, sends),
                None => bail!("the reply to a compound has no results"),
            };
        }
    }

    /// Takes the reply to a request that the session has accepted.
    fn take(&mut self, mut reply: Reply) -> Result<Attempt> {
        let Some(live) = &mut self.session else { bail!("there is no session") };
        live.next = live.next.wrapping_add(1);
        let sequence = reply.results.remove(0);
        let Body::Sequence(sequence) = sequence.body else { bail!("SEQUENCE has no results") };
        let has_restarted = sequence.flags & RESTART_RECLAIM_NEEDED != 0;
        if has_restarted {
            self.reclaim_or_begin_anew()?;
        }
        let is_of_old_state = matches!(
            reply.status,
            status::BAD_STATEID | status::STALE_STATEID | status::OLD_STATEID
        );
        match reply.status {
            status::RETRY_UNCACHED_REP => Ok(Attempt::NotDone),
            _ if has_restarted && is_of_old_state => Ok(Attempt::NotDone),
            _ => Ok(Attempt::Answered(reply)),
        }
    }

    /// Creates another session, because SEQUENCE has failed.
    fn lose_session(&mut self, status: u32, sends: u32) -> Result<Attempt> {
        let was_persistent = self.session.take().is_some_and(|live| live.is_persistent);
        match status {
            status::BADSESSION if was_persistent => {
                bail!(violated("the server has lost a persistent session".into()))
            }
            status::BADSESSION | status::DEADSESSION => {}
            other => bail!(violated(format!("SEQUENCE fails with {}", status::name(other)))),
        }
        self.establish()?;
        // A dead session answers repeats, so a request that it does not answer was not executed.
        if status == status::DEADSESSION || sends == 1 {
            return Ok(Attempt::NotDone);
        }
        self.counts.unknown += 1;
        Ok(Attempt::Unknown)
    }

    /// Connects if there is no connection. Returns false if the server cannot be reached now.
    fn connect(&mut self) -> bool {
        if self.connection.is_none() {
            let connection = Connection::open(self.server);
            let patient = connection.and_then(|mut connection| {
                connection.set_patience(PATIENCE.as_secs())?;
                Ok(connection)
            });
            self.connection = patient.ok();
        }
        self.connection.is_some()
    }

    /// Sends operations after a SEQUENCE, once. Returns the reply with the result of SEQUENCE.
    fn send(&mut self, ops: &[Op]) -> Result<Reply, Fault> {
        let (Some(live), Some(connection)) = (&self.session, &mut self.connection) else {
            return Err(Fault::Closed);
        };
        // The replies with data would be too long to be kept.
        let keep = !ops.iter().any(|op| matches!(op.number, ops::READ | ops::READDIR));
        let mut all = vec![ops::sequence(live.id, live.next, 0, 0, keep)];
        all.extend_from_slice(ops);
        let xid = connection.send(&call_of(&self.wish.auth, b"", self.wish.minor, &all))?;
        decode_record(&connection.reply(xid)?)
    }

    // ---- sessions ---------------------------------------------------------------------

    /// Creates a session if there is none, and reclaims what the client holds.
    fn establish(&mut self) -> Result<()> {
        let mut patience = Patience::new();
        while self.session.is_none() {
            if self.connect() {
                match self.create_session().and_then(|()| self.reclaim()) {
                    Err(error) if is_passing(&error) => {
                        (self.connection, self.session) = (None, None);
                    }
                    done => return done,
                }
            }
            patience.pause(|| "a session".into())?;
        }
        Ok(())
    }

    fn create_session(&mut self) -> Result<()> {
        let connection = self.connection.as_mut().context("there is no connection")?;
        let client = exchange(connection, &self.wish)?;
        let created = create(connection, &self.wish, client.id, client.sequence)?;
        let is_persistent = created.flags & PERSIST != 0;
        self.session = Some(Live { id: created.id, next: 1, is_persistent });
        self.counts.sessions += 1;
        Ok(())
    }

    /// Reclaims what the client holds, in a session that has survived a restart of the server.
    fn reclaim_or_begin_anew(&mut self) -> Result<()> {
        match self.reclaim() {
            Err(error) if is_passing(&error) => {
                (self.connection, self.session) = (None, None);
                self.establish()
            }
            done => done,
        }
    }

    /// Reclaims all opens and locks.
    fn reclaim(&mut self) -> Result<()> {
        for id in self.held.keys().copied().collect::<Vec<_>>() {
            let held = self.held(id)?.clone();
            let claim = Claim::Previous(0);
            let open = ops::open(&held.owner, ACCESS, 0, &How::Open, &claim);
            let reply = self.reclaim_one(&[ops::putfh(&held.fh), open])?;
            let state = reply.state(1)?;
            self.counts.opens_reclaimed += 1;
            let lock = match held.lock {
                Some(_) => Some(self.reclaim_lock(&held.fh, state)?),
                None => None,
            };
            self.held.insert(id, Held { state, lock, ..held });
        }
        self.reclaim_one(&[ops::reclaim_complete(false)])?;
        Ok(())
    }

    fn reclaim_lock(&mut self, fh: &[u8], open: StateId) -> Result<StateId> {
        let locker = Locker::New(open, LOCK_OWNER.to_vec());
        let lock = ops::lock(lock_type::WRITE, true, 0, u64::MAX, &locker);
        let state = self.reclaim_one(&[ops::putfh(fh), lock])?.state(1)?;
        self.counts.locks_reclaimed += 1;
        Ok(state)
    }

    /// Sends a request that reclaims something. Returns a [`Fault`] if the server dies.
    fn reclaim_one(&mut self, ops: &[Op]) -> Result<Reply> {
        let mut patience = Patience::new();
        loop {
            let mut reply = self.send(ops)?;
            let first = reply.results.first().map_or(reply.status, |first| first.status);
            if first != status::OK {
                let (what, wcc) = ("SEQUENCE".into(), Vec::new());
                return Err(Fault::Status { what, status: first, wcc }.into());
            }
            if let Some(live) = &mut self.session {
                live.next = live.next.wrapping_add(1);
            }
            reply.results.remove(0);
            match reply.status {
                status::OK | status::COMPLETE_ALREADY => return Ok(reply),
                status::DELAY => patience.pause(|| format!("the reclaim {}", names(ops)))?,
                refused => bail!(violated(format!(
                    "a reclaim by {} fails with {}",
                    names(ops),
                    status::name(refused)
                ))),
            }
        }
    }

    // ---- opens and locks --------------------------------------------------------------

    /// Opens a name in a directory; a slash before the name is left out. Returns the open if the
    /// server grants it, otherwise the answer.
    pub(super) fn open(
        &mut self,
        directory: &[u8],
        name: &str,
        how: &How,
    ) -> Result<std::result::Result<OpenId, Answer>> {
        self.last_open += 1;
        let id = OpenId(self.last_open);
        let owner = format!("open {}", self.last_open).into_bytes();
        let claim = Claim::Name(name.trim_start_matches('/').into());
        let open = ops::open(&owner, ACCESS, 0, how, &claim);
        let answer = self.call(|_| Ok(vec![ops::putfh(directory), open.clone(), ops::getfh()]))?;
        if answer.reply.status != status::OK {
            return Ok(Err(answer));
        }
        let (state, fh) = (answer.reply.state(1)?, answer.reply.fh(2)?);
        self.held.insert(id, Held { fh, state, owner, lock: None });
        Ok(Ok(id))
    }

    /// Opens a file that exists.
    pub(super) fn open_existing(&mut self, directory: &[u8], name: &str) -> Result<OpenId> {
        self.open(directory, name, &How::Open)?.map_err(|answer| {
            violated(format!("OPEN of {name} fails with {}", status::name(answer.reply.status)))
        })
    }

    /// Closes a file. If the server dies meanwhile, the open is reclaimed and closed again.
    pub(super) fn close(&mut self, open: OpenId) -> Result<()> {
        self.ok(|mount| {
            let held = mount.held(open)?;
            Ok(vec![ops::putfh(&held.fh), ops::close(held.state)])
        })?;
        self.held.remove(&open);
        Ok(())
    }

    /// Takes an exclusive lock on a whole file. Returns false if others hold the lock for too long.
    pub(super) fn lock(&mut self, open: OpenId) -> Result<bool> {
        for _ in 0..LOCK_ATTEMPTS {
            let Answer { reply, .. } = self.call(|mount| {
                let held = mount.held(open)?;
                let locker = Locker::New(held.state, LOCK_OWNER.to_vec());
                let lock = ops::lock(lock_type::WRITE, false, 0, u64::MAX, &locker);
                Ok(vec![ops::putfh(&held.fh), lock])
            })?;
            match reply.status {
                status::OK => {
                    let state = reply.state(1)?;
                    let held = self.held.get_mut(&open).context("the file is not open")?;
                    held.lock = Some(state);
                    return Ok(true);
                }
                status::DENIED => std::thread::sleep(PAUSE),
                other => bail!(violated(format!("LOCK fails with {}", status::name(other)))),
            }
        }
        Ok(false)
    }

    /// Releases the lock on a file. If the server dies meanwhile, the lock is not reclaimed.
    pub(super) fn unlock(&mut self, open: OpenId) -> Result<()> {
        let held = self.held.get_mut(&open).context("the file is not open")?;
        let (fh, lock) = (held.fh.clone(), held.lock.take().context("there is no lock")?);
        let unlock = ops::locku(lock_type::WRITE, lock, 0, u64::MAX);
        let ops = [ops::putfh(&fh), unlock];
        let mut patience = Patience::new();
        loop {
            match self.attempt(&ops)? {
                Attempt::Answered(reply) if is_delay(reply.status) => {
                    patience.pause(|| "LOCKU".into())?;
                }
                Attempt::Answered(reply) if reply.status != status::OK => {
                    bail!(violated(format!("LOCKU fails with {}", status::name(reply.status))));
                }
                Attempt::Answered(_) | Attempt::NotDone | Attempt::Unknown => return Ok(()),
            }
        }
    }
}

/// Limits how long the client waits for the server.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now())
    }

    /// Pauses before another attempt. Fails if the attempts have taken too long.
    fn pause(&mut self, what: impl FnOnce() -> String) -> Result<()> {
        if self.0.elapsed() > PATIENCE {
            bail!("waited for {} for {} s", what(), PATIENCE.as_secs());
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }
}

fn names(ops: &[Op]) -> String {
    ops.iter().map(|op| ops::name(op.number)).collect::<Vec<_>>().join(" ")
}

fn is_delay(status: u32) -> bool {
    matches!(status, status::DELAY | status::GRACE)
}

/// Returns true if the reason of the failure is that the server has died.
fn is_death(fault: &Fault) -> bool {
    matches!(fault, Fault::Closed | Fault::Host(_))
}

/// Returns true if the creation of a session failed because the server has died or restarted.
fn is_passing(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(Fault::Status { status, .. }) => matches!(
            *status,
            status::STALE_CLIENTID | status::BADSESSION | status::DEADSESSION | status::DELAY
        ),
        Some(fault) => is_death(fault),
        None => false,
    }
}

/// The flag of CREATE_SESSION for a session that survives a restart of the server.
pub(super) const PERSIST: u32 = 1;
/// The flag in the results of SEQUENCE which says that the server has restarted.
const RESTART_RECLAIM_NEEDED: u32 = 0x100;
const ACCESS: u32 = share::BOTH | share::WANT_NONE;
const LOCK_OWNER: &[u8] = b"locker";
/// The maximum time to wait for one reply. A server may be killed many times meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);
/// The number of attempts to take a lock that others hold.
const LOCK_ATTEMPTS: u32 = 400;
