//! Advisory locks. The server keeps them, so that all processes and hosts see them.
//!
//! `dafs_posix` defines the byte ranges that represent these locks on the server, where they cannot
//! conflict with other locks.
//!
//! Invariants:
//! - The `fcntl` locks of this process on a file belong to an open on the server that is made for
//!   them. This open ends when the process closes any descriptor of the file (POSIX).
//! - The locks of a description belong to another open, which ends with the description.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use dafs_client::{File, LockHolder, LockKind, LockOptions, ShareAccess};
use dafs_posix::locks::{LockRange, Record, WHOLE_FILE};
use libc::flock;

use crate::errors::{Outcome, fail};
use crate::page::Kind;
use crate::state::{Description, State};
use crate::waiting::{wait_result, wait_while_reachable};

/// The owner of a lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The process, as for `fcntl` locks.
    Process,
    /// The description, that is all descriptors that share an offset, as for `flock`.
    Description,
}

impl State {
    /// Takes or releases an `fcntl` lock without blocking. Returns false if another owner holds the
    /// lock. If the program wants to wait, the server then keeps the request in the lock's queue.
    pub(crate) fn lock(
        &mut self,
        of: &Description,
        asked: &flock,
        owner: Owner,
        waits: bool,
    ) -> Outcome<bool> {
        let range = self.range(of, asked)?;
        let kind = match i32::from(asked.l_type) {
            libc::F_UNLCK => {
                self.unstable.release(of.key());
                if let Some(file) = self.known_owner(of, owner) {
                    let unlocking = file.unlock_async(range.offset, range.length);
                    wait_result(&file.session().client(), unlocking)?;
                }
                return Ok(true);
            }
            libc::F_RDLCK if of.identity.access == libc::O_WRONLY => return fail(libc::EBADF),
            libc::F_WRLCK if of.identity.access == libc::O_RDONLY => return fail(libc::EBADF),
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return fail(libc::EINVAL),
        };
        let file = self.owner(of, owner)?;
        take(&file, kind, range, waits)
    }

    /// Tests whether a lock could be taken, and describes a conflicting lock as `fcntl` does.
    pub(crate) fn test(
        &mut self,
        of: &Description,
        asked: &mut flock,
        owner: Owner,
    ) -> Outcome<i32> {
        let range = self.range(of, asked)?;
        let kind = match i32::from(asked.l_type) {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return fail(libc::EINVAL),
        };
        let file = self.owner(of, owner)?;
        let testing = file.test_lock_async(kind, range.offset, range.length);
        match wait_result(&file.session().client(), testing)? {
            None => asked.l_type = libc::F_UNLCK as _,
            Some(holder) => tell(&holder, asked),
        }
        Ok(0)
    }

    /// Implements `flock` without blocking. Returns false if another owner holds the lock.
    pub(crate) fn lock_whole(&mut self, of: &Description, operation: i32) -> Outcome<bool> {
        of.must_be_open()?;
        let range = WHOLE_FILE;
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_UN => {
                self.unstable.release(of.key());
                if let Some(file) = self.known_owner(of, Owner::Description) {
                    let unlocking = file.unlock_async(range.offset, range.length);
                    wait_result(&file.session().client(), unlocking)?;
                }
                return Ok(true);
            }
            libc::LOCK_SH => LockKind::Shared,
            libc::LOCK_EX => LockKind::Exclusive,
            _ => return fail(libc::EINVAL),
        };
        // Locks on directories exclude nothing, because few programs use them.
        if of.identity.kind == Kind::Directory {
            return Ok(true);
        }
        let file = self.owner(of, Owner::Description)?;
        take(&file, kind, range, operation & libc::LOCK_NB == 0)
    }

    /// Releases all locks of this process and waits for the replies, so that a process that waits
    /// for the end of this one finds the locks released, as with locks of the kernel.
    pub(crate) fn give_up_locks(&mut self) {
        let owned = std::mem::take(&mut self.owned).into_values();
        let described = self.descriptions().filter_map(|of| of.locks.take()).collect::<Vec<_>>();
        for file in owned.chain(described).filter_map(Rc::into_inner) {
            // The process is ending, so ignore errors, and do not wait for an unreachable server.
            let client = file.session().client();
            let _ = wait_while_reachable(&client, file.close_async());
        }
    }

    fn known_owner(&self, of: &Description, owner: Owner) -> Option<Rc<File>> {
        match owner {
            Owner::Process => self.owned.get(&(of.identity.mount, of.identity.handle)).cloned(),
            Owner::Description => of.locks.borrow().clone(),
        }
    }

    /// Returns the open on the server that owns the locks, and makes it if there is none.
    fn owner(&mut self, of: &Description, owner: Owner) -> Outcome<Rc<File>> {
        if let Some(file) = self.known_owner(of, owner) {
            return Ok(file);
        }
        let file = match self.open_again(of, ShareAccess::Both) {
            Ok(file) => file,
            Err(_) => self.open_again(of, crate::opening::access_of(of.identity.access))?,
        };
        let file = Rc::new(file);
        match owner {
            Owner::Process => {
                self.owned.insert((of.identity.mount, of.identity.handle), file.clone());
            }
            Owner::Description => *of.locks.borrow_mut() = Some(file.clone()),
        }
        Ok(file)
    }

    fn range(&mut self, of: &Description, asked: &flock) -> Outcome<LockRange> {
        if of.identity.kind != Kind::File {
            return fail(if of.identity.kind == Kind::Object { libc::EBADF } else { libc::EINVAL });
        }
        let base = match i32::from(asked.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => of.page.offset().load(Ordering::Acquire) as i64,
            libc::SEEK_END => self.metadata_of(of)?.size as i64,
            _ => return fail(libc::EINVAL),
        };
        let Some(start) = base.checked_add(asked.l_start) else { return fail(libc::EOVERFLOW) };
        match Record::of_flock(start, asked.l_len) {
            Some(record) => Ok(record.range()),
            None => fail(libc::EINVAL),
        }
    }
}

fn take(file: &File, kind: LockKind, range: LockRange, waits: bool) -> Outcome<bool> {
    let (offset, length, options) = (range.offset, range.length, LockOptions::default());
    let client = file.session().client();
    let holder = if waits {
        wait_result(&client, file.queue_lock_async(kind, offset, length, options))?
    } else {
        wait_result(&client, file.try_lock_async(kind, offset, length, options))?
    };
    Ok(holder.is_none())
}

fn tell(holder: &LockHolder, asked: &mut flock) {
    let record = Record::of_range(holder.offset, holder.length);
    let (start, length) = record.map_or((0, 0), Record::to_flock);
    asked.l_type = match holder.kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    } as _;
    asked.l_whence = libc::SEEK_SET as _;
    (asked.l_start, asked.l_len) = (start, length);
    // The server does not report which process on which host holds the lock.
    asked.l_pid = -1;
}
