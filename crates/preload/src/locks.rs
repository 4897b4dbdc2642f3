//! Advisory locks, which the server keeps so that all processes and hosts see each other.
//!
//! DAFS locks are mandatory, so advisory ones stand where no data is: those of `fcntl` as far
//! behind 2^63 as they are meant from a file's beginning, `flock` at one octet behind them all.
//!
//! Invariants: a process's locks on a file stand on one open of their own, which ends when the
//! process closes any descriptor of it (POSIX); those of a description on another, which ends
//! with it.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use dafs_client::{File, LockHolder, LockKind, LockOptions, ShareAccess};
use libc::flock;

use crate::errors::{Outcome, fail};
use crate::page::Kind;
use crate::state::{Description, State};

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process's.
    Process,
    /// All who share the descriptor's offset.
    Description,
}

/// Where a lock stands on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    offset: u64,
    length: u64,
}

impl State {
    /// Takes or gives up a lock of `fcntl`, without waiting. False if somebody else has it.
    pub fn lock(&mut self, of: &Description, asked: &flock, owner: Owner) -> Outcome<bool> {
        let range = self.range(of, asked)?;
        let kind = match i32::from(asked.l_type) {
            libc::F_UNLCK => {
                if let Some(file) = self.known_owner(of, owner) {
                    file.unlock(range.offset, range.length)?;
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
        take(&file, kind, range)
    }

    /// Whose lock stands in the way of one, told as `fcntl` does.
    pub fn test(&mut self, of: &Description, asked: &mut flock, owner: Owner) -> Outcome<i32> {
        let range = self.range(of, asked)?;
        let kind = match i32::from(asked.l_type) {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return fail(libc::EINVAL),
        };
        let file = self.owner(of, owner)?;
        match file.test_lock(kind, range.offset, range.length)? {
            None => asked.l_type = libc::F_UNLCK as _,
            Some(holder) => tell(&holder, asked),
        }
        Ok(0)
    }

    /// `flock` without waiting. False if somebody else has it.
    pub fn lock_whole(&mut self, of: &Description, operation: i32) -> Outcome<bool> {
        of.must_be_open()?;
        let range = Range { offset: WHOLE, length: 1 };
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_UN => {
                if let Some(file) = self.known_owner(of, Owner::Description) {
                    file.unlock(range.offset, range.length)?;
                }
                return Ok(true);
            }
            libc::LOCK_SH => LockKind::Shared,
            libc::LOCK_EX => LockKind::Exclusive,
            _ => return fail(libc::EINVAL),
        };
        // Locks of directories are taken by few, and kept among nobody.
        if of.identity.kind == Kind::Directory {
            return Ok(true);
        }
        let file = self.owner(of, Owner::Description)?;
        take(&file, kind, range)
    }

    fn known_owner(&self, of: &Description, owner: Owner) -> Option<Rc<File>> {
        match owner {
            Owner::Process => self.owned.get(&(of.identity.mount, of.identity.handle)).cloned(),
            Owner::Description => of.locks.borrow().clone(),
        }
    }

    /// The open that locks stand on.
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

    fn range(&mut self, of: &Description, asked: &flock) -> Outcome<Range> {
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
        let (first, length) = match asked.l_len {
            length @ ..0 => (start.saturating_add(length), length.unsigned_abs()),
            length => (start, length as u64),
        };
        if first < 0 {
            return fail(libc::EINVAL);
        }
        Ok(to_server(first as u64, length))
    }
}

fn take(file: &File, kind: LockKind, range: Range) -> Outcome<bool> {
    let options = LockOptions::default();
    Ok(file.try_lock(kind, range.offset, range.length, options)?.is_none())
}

/// Where an advisory lock stands; a length of 0 is all to the end.
fn to_server(first: u64, length: u64) -> Range {
    let first = first.min(SPAN - 1);
    let length = if length == 0 { SPAN - first } else { length.min(SPAN - first) };
    Range { offset: BASE + first, length }
}

fn tell(holder: &LockHolder, asked: &mut flock) {
    let first = holder.offset.saturating_sub(BASE).min(SPAN - 1);
    let is_open = holder.length >= SPAN - first;
    asked.l_type = match holder.kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    } as _;
    asked.l_whence = libc::SEEK_SET as _;
    asked.l_start = first as i64;
    asked.l_len = if is_open { 0 } else { holder.length as i64 };
    // Which process it is, and on which host, the server does not tell.
    asked.l_pid = -1;
}

/// Where locks of `fcntl` begin.
const BASE: u64 = 1 << 63;
/// Octets of a file that they tell apart.
const SPAN: u64 = 1 << 62;
/// Where `flock` stands.
const WHOLE: u64 = u64::MAX - 1;
