//! Byte-range locks.
//!
//! Invariant: a thread that waits for a lock lets others use the client meanwhile: the lock may be
//! theirs to give back.

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

/// Locks `length` bytes at `offset`, or DAP_TO_END: `kind` is DAP_LOCK_SHARED or
/// DAP_LOCK_EXCLUSIVE, `options` are DAP_LOCK_PERSIST, DAP_LOCK_AUTO_RECOVERY and DAP_LOCK_REPAIR.
/// Locks are mandatory: they keep reads and writes of all other opens out. They end with their
/// open. Waits for `timeout_ms` milliseconds, 0 for not at all, or DAP_FOREVER; those who came
/// before are served first. If somebody else's lock stands in the way, `holder` says whose, unless
/// it is NULL.
///
/// Returns 0, or a negative error number: -EAGAIN if it is held by somebody else and there was no
/// time to wait, -ETIMEDOUT if it still was at the end of the time, -EDEADLK if somebody it would
/// wait for waits for it, -EUCLEAN for a broken lock, which DAP_LOCK_REPAIR takes over.
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
        let wanted = Wanted::read(kind, offset, length, options)?;
        let timeout = check::timeout(timeout_ms, "timeout_ms")?;
        let file: Arc<FileObject> = handles::get(file)?;
        let (held_by, errno) = match timeout {
            Some(Duration::ZERO) => (wanted.ask(&file, false)?, libc::EAGAIN),
            timeout => (wanted.wait(&file, timeout)?, libc::ETIMEDOUT),
        };
        let Some(held_by) = held_by else { return Ok(()) };
        if !holder.is_null() {
            // SAFETY: the caller's promise.
            unsafe { check::put(holder, holder_of(&held_by), "holder")? };
        }
        let kind = match held_by.kind {
            LockKind::Shared => "a shared lock",
            LockKind::Exclusive => "an exclusive lock",
        };
        let text = format!("somebody else holds {kind} at {}", held_by.offset);
        Err(Failure::new(errno, text))
    })
}

/// A lock to be taken.
struct Wanted {
    kind: LockKind,
    offset: u64,
    length: u64,
    options: LockOptions,
}

impl Wanted {
    fn read(kind: u32, offset: u64, length: u64, options: u32) -> Result<Self> {
        const KNOWN: u32 = DAP_LOCK_PERSIST | DAP_LOCK_AUTO_RECOVERY | DAP_LOCK_REPAIR;
        check::flags(options, KNOWN, "options of dap_lock")?;
        let options = LockOptions::from_bits(options).unwrap_or_default();
        Ok(Self { kind: kind_of(kind)?, offset, length, options })
    }

    /// Asks for it once; with a place in the queue if it waits.
    fn ask(&self, file: &FileObject, waits: bool) -> Result<Option<LockHolder>> {
        let &Self { kind, offset, length, options } = self;
        // SAFETY: a holder is numbers and bytes.
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
        // Who does not hear when it is worth asking asks often.
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
            // SAFETY: nothing comes of it.
            unsafe {
                file.client().shared.wait_until(Some(pausing), |entered| {
                    file.file.get(entered).is_lock_ready(self.offset, self.length).then_some(())
                })?
            };
            pause = (pause * 2).min(LOCK_POLL_MAX);
        }
    }
}

/// Whose lock would stand in the way of one, without taking any.
///
/// Returns 1 if there is one, which `holder` tells unless it is NULL, 0 if there is none, or a
/// negative error number.
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
            // SAFETY: the caller's promise.
            unsafe { check::put(holder, holder_of(&held_by), "holder")? };
        }
        Ok(1)
    };
    // Nought, one or an error number.
    counted(look) as c_int
}

/// Gives up whatever this open has locked in a range.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_unlock(file: *mut dap_file, offset: u64, length: u64) -> c_int {
    done(|| {
        handles::get::<FileObject, _>(file)?
            .wait_for(async |file| file.unlock_async(offset, length).await)
    })
}

/// Has everything rolled back that was changed in a range under locks with DAP_LOCK_AUTO_RECOVERY.
/// They stay held.
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
        other => Err(Failure::invalid(format!("kind of lock {other} means nothing"))),
    }
}

fn holder_of(holder: &LockHolder) -> dap_lock_holder {
    let kind = match holder.kind {
        LockKind::Shared => DAP_LOCK_SHARED,
        LockKind::Exclusive => DAP_LOCK_EXCLUSIVE,
    };
    dap_lock_holder { kind, reserved: 0, offset: holder.offset, length: holder.length }
}

/// First pause between two questions.
const PAUSE_MIN: Duration = Duration::from_millis(1);
