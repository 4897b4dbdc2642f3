//! Advisory locks of `fcntl` and `flock`, kept by the server in the byte ranges that
//! `dafs_posix::locks` defines.
//!
//! Invariant: each lock owner has its own open, and its locks end with that open. A request that
//! waits for a lock can be cancelled at any time, and leaves no entry in the server's queue.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use dafs_client::{File, LockOptions};
use dafs_posix::locks::{LAST, LockRange, Record, WHOLE_FILE, owner, pid_of};
use dafs_types::{ShareAccess, Status};
use dafs_wire::messages::{Lock, LockTest, LockType};
use dafs_wire::{Request, Response};

use crate::abi::{Fields, LK_FLOCK, Message};
use crate::engine::{Engine, ErrnoResult, Reply};
use crate::tasks::Requester;

/// Identifies a lock owner of a file: the node, the kernel's owner id, and true for a `flock` lock.
type Key = (u64, u64, bool);

/// The lock owners, and the requests that wait for a lock.
#[derive(Default)]
pub(crate) struct Locks {
    owners: HashMap<Key, Rc<Owner>>,
    waiting: HashSet<u64>,
}

#[derive(Default)]
struct Owner {
    name: [u8; dafs_posix::locks::OWNER_BYTES],
    /// The open that holds the locks, and the epoch of its session.
    file: RefCell<Option<(u32, Rc<File>)>>,
    has_locks: Cell<bool>,
    /// The kernel's number of the open file that this owner used first.
    first_file: u64,
}

impl Locks {
    /// Removes a request from the requests that wait for a lock. Returns true if the request was
    /// waiting.
    pub(crate) fn take_waiting(&mut self, unique: u64) -> bool {
        self.waiting.remove(&unique)
    }
}

/// The arguments of a GETLK or SETLK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest {
    file: u64,
    owner: u64,
    record: Record,
    kind: u32,
    pid: u32,
    is_flock: bool,
    waits: bool,
}

impl LockRequest {
    /// Reads a `struct fuse_lk_in`.
    pub(crate) fn read(fields: &mut Fields<'_>, waits: bool) -> Option<Self> {
        let (file, owner) = (fields.u64()?, fields.u64()?);
        let (first, last, kind, pid) = (fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?);
        let is_flock = fields.u32()? & LK_FLOCK != 0;
        Some(Self { file, owner, record: Record { first, last }, kind, pid, is_flock, waits })
    }

    fn range(&self) -> LockRange {
        if self.is_flock { WHOLE_FILE } else { self.record.range() }
    }

    fn key(&self, node: u64) -> Key {
        (node, self.owner, self.is_flock)
    }

    fn lock_type(&self) -> LockType {
        match (self.kind == F_RDLCK, self.waits) {
            (true, false) => LockType::Read,
            (true, true) => LockType::ReadWait,
            (false, false) => LockType::Write,
            (false, true) => LockType::WriteWait,
        }
    }
}

impl Engine {
    pub(crate) async fn setlk(
        self: Rc<Self>,
        unique: u64,
        node: u64,
        wish: LockRequest,
    ) -> ErrnoResult<Reply> {
        if wish.kind == F_UNLCK {
            self.pass_on_before_unlock(node).await;
            self.unlock(node, wish).await?;
            return Ok(Reply::Done);
        }
        if wish.waits {
            self.locks.borrow_mut().waiting.insert(unique);
        }
        let key = wish.key(node);
        let waiting = Waiting { engine: self.clone(), key, is_over: Cell::new(false) };
        let locked = self.lock(node, wish).await;
        waiting.is_over.set(true);
        let mut locks = self.locks.borrow_mut();
        locks.waiting.remove(&unique);
        if let (Ok(()), Some(owner)) = (&locked, locks.owners.get(&key)) {
            owner.has_locks.set(true);
        }
        drop(locks);
        locked.map(|()| Reply::Done)
    }

    /// Makes the server pass all data written under a lock to its file system before the lock is
    /// released. Otherwise the data might be written again later, over data of the next lock owner.
    /// `close` or `fsync` report an error.
    async fn pass_on_before_unlock(self: &Rc<Self>, node: u64) {
        let Ok(node) = self.node(node) else { return };
        let unstable = self.unstable_of(node.handle);
        if unstable.holds_any()
            && let Err(errno) = self.pass_on(&unstable).await
        {
            tracing::debug!(errno, "flushing before a lock is released");
        }
    }

    async fn lock(self: &Rc<Self>, node: u64, wish: LockRequest) -> ErrnoResult<()> {
        let file = self.file_of_owner(node, wish).await?;
        let LockRange { offset, length } = wish.range();
        let (lock_type, options) = (wish.lock_type(), LockOptions::default());
        let mut pause = PAUSE_MIN;
        loop {
            let (file, state) = (file.handle(), file.state());
            let lock = Request::Lock(Lock { file, lock_type, options, state, offset, length });
            let (session, _) = self.session();
            match self.ask_lock(&session, &lock).await? {
                None => return Ok(()),
                Some(_) if !wish.waits => return Err(EAGAIN),
                Some(_) => {}
            }
            self.tasks.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Requests or tests a lock. Returns the conflicting lock, if any.
    async fn ask_lock(
        self: &Rc<Self>,
        session: &dafs_client::Session,
        request: &Request<'_>,
    ) -> ErrnoResult<Option<(Vec<u8>, LockType, u64, u64)>> {
        let call = session.start(request).map_err(|error| self.failed(&error))?;
        let reply = call.await.map_err(|error| self.failed(&error))?;
        let (status, response) = reply.read().map_err(|error| self.failed(&error))?;
        let conflict = match response {
            Response::Lock(result) => result.conflict,
            Response::LockT(result) => result.conflict,
            _ => None,
        };
        match (status, conflict) {
            (Status::Ok, _) => Ok(None),
            (Status::Denied, Some(conflict)) => Ok(Some((
                conflict.owner.to_vec(),
                conflict.lock_type,
                conflict.offset,
                conflict.length,
            ))),
            (Status::Access, _) => Err(EBADF),
            (status, _) => Err(dafs_posix::errno::of_status(status)),
        }
    }

    /// Returns the open that holds the locks of an owner.
    async fn file_of_owner(self: &Rc<Self>, node: u64, wish: LockRequest) -> ErrnoResult<Rc<File>> {
        let key = wish.key(node);
        let known = self.locks.borrow().owners.get(&key).cloned();
        let owner = known.unwrap_or_else(|| {
            let name = owner(self.next_owner(), wish.pid);
            let owner = Rc::new(Owner { name, first_file: wish.file, ..Owner::default() });
            self.locks.borrow_mut().owners.insert(key, owner.clone());
            owner
        });
        let (session, epoch) = self.session();
        match &*owner.file.borrow() {
            Some((of, file)) if *of == epoch => return Ok(file.clone()),
            // The locks were lost with the session, so the process must get an error.
            Some(_) => {
                self.locks.borrow_mut().owners.remove(&key);
                return Err(EIO);
            }
            None => {}
        }
        let handle = self.node(node)?.handle;
        let both = self.open_as(&session, handle, ShareAccess::Both, &owner.name).await;
        let file = match both {
            // Without write permission, shared locks are still possible.
            Err(EACCES | EROFS) => {
                self.open_as(&session, handle, ShareAccess::Read, &owner.name).await?
            }
            opened => opened?,
        };
        let file = Rc::new(file);
        *owner.file.borrow_mut() = Some((epoch, file.clone()));
        Ok(file)
    }

    async fn unlock(self: &Rc<Self>, node: u64, wish: LockRequest) -> ErrnoResult<()> {
        let key = wish.key(node);
        let is_all = wish.is_flock || wish.record.first == 0 && wish.record.last >= LAST;
        let owner = match is_all {
            true => self.locks.borrow_mut().owners.remove(&key),
            false => self.locks.borrow().owners.get(&key).cloned(),
        };
        let Some(owner) = owner else { return Ok(()) };
        let file = owner.file.borrow().clone();
        let Some((epoch, file)) = file else { return Ok(()) };
        if epoch != self.session().1 {
            return Ok(());
        }
        if !is_all {
            let LockRange { offset, length } = wish.range();
            let unlocked = file.unlock_async(offset, length).await;
            return unlocked.map_err(|error| self.failed(&error));
        }
        owner.file.borrow_mut().take();
        match Rc::try_unwrap(file) {
            Ok(file) => self.close_owners(file).await.map_err(|error| self.failed(&error)),
            // Another request of this owner still uses the open, so only the locks are released.
            Err(file) => {
                let LockRange { offset, length } = wish.range();
                file.unlock_async(offset, length).await.map_err(|error| self.failed(&error))
            }
        }
    }

    /// Releases the locks of an owner that has ended.
    pub(crate) fn release_owner(self: &Rc<Self>, node: u64, owner: u64, is_flock: bool) {
        let gone = self.locks.borrow_mut().owners.remove(&(node, owner, is_flock));
        let Some(gone) = gone else { return };
        let Some((_, file)) = gone.file.take() else { return };
        if let Ok(file) = Rc::try_unwrap(file) {
            // Run this as a task, because the closing process need not wait for it.
            let engine = self.clone();
            self.tasks.spawn(Requester::NONE, async move { drop(engine.close_owners(file).await) });
        }
    }

    /// Closes the open of a lock owner. An error about lost data is recorded for the processes that
    /// wrote the data.
    async fn close_owners(&self, file: File) -> dafs_client::Result<()> {
        let unstable = self.unstable_of(file.handle());
        let closed = file.close_async().await;
        match closed {
            Err(error) if unstable.note_failure(&error) => Ok(()),
            closed => closed,
        }
    }

    /// Releases the locks of an open file description (`F_OFD_SETLK`) when its file is closed,
    /// because the kernel does not report their end in another way. Locks of processes that used
    /// this file were released by the preceding close.
    pub(crate) fn release_owners_by(self: &Rc<Self>, file: u64) {
        let gone: Vec<Key> = {
            let locks = self.locks.borrow();
            let first_file = locks.owners.iter().filter(|(_, owner)| owner.first_file == file);
            first_file.map(|(key, _)| *key).filter(|(_, _, is_flock)| !is_flock).collect()
        };
        for (node, owner, is_flock) in gone {
            self.release_owner(node, owner, is_flock);
        }
    }

    pub(crate) async fn getlk(self: Rc<Self>, node: u64, wish: LockRequest) -> ErrnoResult<Reply> {
        let file = self.node(node)?.handle;
        let known = self.locks.borrow().owners.get(&wish.key(node)).map(|owner| owner.name);
        let owner = known.unwrap_or_else(|| owner(self.next_owner(), wish.pid));
        let LockRange { offset, length } = wish.range();
        let wish = LockRequest { waits: false, ..wish };
        let test = LockTest { file, lock_type: wish.lock_type(), owner: &owner, offset, length };
        let (session, _) = self.session();
        let found = self.ask_lock(&session, &Request::LockT(test)).await?;
        let mut message = Message::default();
        match found {
            None => message.u64(0).u64(0).u32(F_UNLCK).u32(0),
            Some((owner, kind, offset, length)) => {
                let record = Record::of_range(offset, length);
                let record = record.unwrap_or(Record { first: 0, last: LAST });
                let kind = if kind == LockType::Read { F_RDLCK } else { F_WRLCK };
                message
                    .u64(record.first)
                    .u64(record.last)
                    .u32(kind)
                    .u32(pid_of(&owner).unwrap_or(0))
            }
        };
        Ok(Reply::Body(message.0))
    }
}

/// A request that waits for a lock. If the value is dropped before the lock is granted, the entry
/// in the server's queue is removed with the owner's open, unless that open holds other locks. The
/// server also removes an entry that is not renewed for some seconds.
struct Waiting {
    engine: Rc<Engine>,
    key: Key,
    is_over: Cell<bool>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over.get() {
            return;
        }
        let has_locks = {
            let locks = self.engine.locks.borrow();
            locks.owners.get(&self.key).is_some_and(|owner| owner.has_locks.get())
        };
        if !has_locks {
            let (node, owner, is_flock) = self.key;
            self.engine.release_owner(node, owner, is_flock);
        }
    }
}

/// The shortest pause between two requests for a lock.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause between two requests for a lock.
const PAUSE_MAX: Duration = Duration::from_millis(100);
const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
