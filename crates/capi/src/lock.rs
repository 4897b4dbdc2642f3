//! Byte-range locks.
//!
//! Invariant: while a thread waits for a lock, other threads can use the client, because they may
//! have to release that lock.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dafs_client::{File, LOCK_POLL_MAX, LockHolder, LockKind, LockOptions};
use dafs_share::Entered;

use crate::check;
use crate::failure::{Failure, Result, counted, done};
use crate::file::FileObject;
use crate::handles;
use crate::types::{
    DAP_LOCK_AUTO_RECOVERY, DAP_LOCK_EXCLUSIVE, DAP_LOCK_PERSIST, DAP_LOCK_REPAIR, DAP_LOCK_SHARED,
    dap_file, dap_lock_holder,
};

/// Locks `length` bytes at `offset`; `length` may be DAP_TO_END. `kind` is DAP_LOCK_SHARED or
/// DAP_LOCK_EXCLUSIVE, and `options` are DAP_LOCK_PERSIST, DAP_LOCK_AUTO_RECOVERY and
/// DAP_LOCK_REPAIR. Locks are mandatory: they exclude reads and writes through all other opens. A
/// lock ends with its open. The call waits for up to `timeout_ms` milliseconds, which may be 0 or
/// DAP_FOREVER; earlier waiters get the lock first. If another lock conflicts, it is described in
/// `holder`, unless that is NULL.
///
/// Returns 0, or a negative error number: -EAGAIN if another open holds a conflicting lock and the
/// timeout is 0, -ETIMEDOUT if the lock was still held at the end of the timeout, -EDEADLK if
/// waiting would be a deadlock, -EUCLEAN for a broken lock, which DAP_LOCK_REPAIR takes over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_lock(
    file: *mut dap_file,
    kind: u32,
    offset: u64,
    length: u64,
    options: u32,
    timeout_ms: i64,
    holder: *mut dap_lock_holder,
) -> c_int {
    done(|| {
        let request = LockRequest::read(kind, offset, length, options)?;
        let timeout = check::timeout(timeout_ms, "timeout_ms")?;
        let file: Arc<FileObject> = handles::get(file)?;
        let (held_by, errno) = match timeout {
            Some(Duration::ZERO) => (request.ask(&file, false)?, libc::EAGAIN),
            timeout => (request.wait(&file, timeout)?, libc::ETIMEDOUT),
        };
        let Some(held_by) = held_by else { return Ok(()) };
        if !holder.is_null() {
            // SAFETY: the caller guarantees that its pointers are valid.
            unsafe { check::put(holder, holder_of(&held_by), "holder")? };
        }
        let kind = match held_by.kind {
            LockKind::Shared => "a shared lock",
            LockKind::Exclusive => "an exclusive lock",
        };
        let text = format!("another client holds {kind} at {}", held_by.offset);
        Err(Failure::new(errno, text))
    })
}

/// The arguments of a lock request.
struct LockRequest {
    kind: LockKind,
    offset: u64,
    length: u64,
    options: LockOptions,
}

impl LockRequest {
    fn read(kind: u32, offset: u64, length: u64, options: u32) -> Result<Self> {
        const KNOWN: u32 = DAP_LOCK_PERSIST | DAP_LOCK_AUTO_RECOVERY | DAP_LOCK_REPAIR;
        check::flags(options, KNOWN, "options of dap_lock")?;
        let options = LockOptions::from_bits(options).unwrap_or_default();
        Ok(Self { kind: kind_of(kind)?, offset, length, options })
    }

    /// Requests the lock once. Returns the holder of a conflicting lock, if there is one. If
    /// `waits` is set, the server then keeps the request in the lock's queue.
    fn ask(&self, file: &FileObject, waits: bool) -> Result<Option<LockHolder>> {
        let &Self { kind, offset, length, options } = self;
        // SAFETY: a holder consists of numbers and bytes, not of client objects.
        unsafe {
            file.run(async |file: &File, _: &Entered<'_>| {
                Ok(match waits {
                    true => file.queue_lock_async(kind, offset, length, options).await?,
                    false => file.try_lock_async(kind, offset, length, options).await?,
                })
            })
        }
    }

    fn wait(&self, file: &FileObject, timeout: Option<Duration>) -> Result<Option<LockHolder>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // If the server does not notify this client of released locks, retry often.
        let hears = file.ask(|file| file.session().listen()).is_ok();
        let mut pause = if hears { LOCK_POLL_MAX } else { PAUSE_MIN };
        loop {
            let held_by = self.ask(file, true)?;
            if held_by.is_none() {
                return Ok(None);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(held_by);
            }
            let pausing = left.map_or(pause, |left| left.min(pause));
            // SAFETY: no client object leaves the closure.
            unsafe {
                file.client().shared.wait_until(Some(pausing), |entered| {
                    file.file.get(entered).is_lock_ready(self.offset, self.length).then_some(())
                })?
            };
            pause = (pause * 2).min(LOCK_POLL_MAX);
        }
    }
}

/// Tests whether a lock would conflict with another lock, without taking it. A conflicting lock is
/// described in `holder`, unless that is NULL.
///
/// Returns 1 if there is a conflict, 0 if there is none, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_lock_test(
    file: *mut dap_file,
    kind: u32,
    offset: u64,
    length: u64,
    holder: *mut dap_lock_holder,
) -> c_int {
    let look = || {
        let file: Arc<FileObject> = handles::get(file)?;
        let kind = kind_of(kind)?;
        let Some(held_by) =
            file.wait_for(async |file| file.test_lock_async(kind, offset, length).await)?
        else {
            return Ok(0);
        };
        if !holder.is_null() {
            // SAFETY: the caller guarantees that its pointers are valid.
            unsafe { check::put(holder, holder_of(&held_by), "holder")? };
        }
        Ok(1)
    };
    // The result is zero, one or an error number, which fits in a C int.
    counted(look) as c_int
}

/// Releases all locks of this open in a range.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_unlock(file: *mut dap_file, offset: u64, length: u64) -> c_int {
    done(|| {
        handles::get::<FileObject, _>(file)?
            .wait_for(async |file| file.unlock_async(offset, length).await)
    })
}

/// Rolls back all changes that were made in a range under locks with DAP_LOCK_AUTO_RECOVERY. The
/// locks stay held.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_lock_abort(file: *mut dap_file, offset: u64, length: u64) -> c_int {
    done(|| {
        handles::get::<FileObject, _>(file)?
            .wait_for(async |file| file.abort_lock_async(offset, length).await)
    })
}

fn kind_of(kind: u32) -> Result<LockKind> {
    match kind {
        DAP_LOCK_SHARED => Ok(LockKind::Shared),
        DAP_LOCK_EXCLUSIVE => Ok(LockKind::Exclusive),
        other => Err(Failure::invalid(format!("lock kind {other} is invalid"))),
    }
}

fn holder_of(holder: &LockHolder) -> dap_lock_holder {
    let kind = match holder.kind {
        LockKind::Shared => DAP_LOCK_SHARED,
        LockKind::Exclusive => DAP_LOCK_EXCLUSIVE,
    };
    dap_lock_holder { kind, reserved: 0, offset: holder.offset, length: holder.length }
}

/// The first pause between two requests for a lock.
const PAUSE_MIN: Duration = Duration::from_millis(1);
