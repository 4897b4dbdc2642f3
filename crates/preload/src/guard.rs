//! The lock that protects all state of this library.
//!
//! Invariants:
//! - At most one thread at a time holds the lock. That thread "is inside".
//! - A C library call that a thread makes while it is inside, in the client or in this library, is
//!   never treated as a call of the program.
//! - A panic inside becomes EIO.
//!
//! A fork takes the lock first, so that the child finds the state consistent.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::errors::{self, Answer, Failure, Outcome};
use crate::state::State;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is executing code of this library, so that its C library calls are not
/// treated as the program's.
#[inline]
pub(crate) fn is_inside() -> bool {
    // While a thread ends, its thread-local flag is gone. Then treat the thread as inside, so that
    // the kernel serves its calls.
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

struct Shared {
    /// The state of the lock. 0: free; 1: locked; 2: locked, and threads wait for it.
    word: AtomicU32,
    state: UnsafeCell<Option<Box<State>>>,
}

// SAFETY: the state contains `Rc`s and client objects made of them. They are reached only through
// `state`, and only by the thread that holds the lock: `with`, `before_fork` and `in_child` are the
// only functions that access `state`, and the lock orders the accesses of different threads. So two
// threads never change a reference count at the same time, as long as no `Rc` is copied out of the
// state. That never happens: the result of `with` is `Send`, the references that the other two pass
// end with the call, and the only thread-local variable in this crate is a flag
// (`tests/tests/house.rs` checks that). Nothing in the state depends on the thread that made it.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { word: AtomicU32::new(0), state: UnsafeCell::new(None) };

impl Shared {
    fn lock(&self) {
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.word.swap(2, Ordering::Acquire) != 0 {
            // Ignore the result, because the loop checks the word again after any wakeup.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, 2, None);
        }
    }

    fn unlock(&self) {
        if self.word.swap(0, Ordering::Release) == 2 {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }
}

/// Holds the lock, and marks this thread as executing code of this library, until the value is
/// dropped.
struct Inside;

impl Inside {
    fn enter() -> Self {
        INSIDE.set(true);
        SHARED.lock();
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        SHARED.unlock();
        INSIDE.set(false);
    }
}

/// Runs `act` with exclusive access to the state. Preserves the thread's `errno` unless `act` sets
/// it. The result is [`Send`], so that no `Rc` of the state can leave the lock.
pub(crate) fn with<T: Send>(act: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    if is_inside() {
        return Err(Failure::Errno(libc::EDEADLK));
    }
    let errno = errors::get();
    let _inside = Inside::enter();
    // SAFETY: this thread holds the lock, and a thread that is inside does not enter again.
    let state = unsafe { &mut *SHARED.state.get() };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let state = state.get_or_insert_default();
        state.rewrite_after_restart();
        act(state)
    }));
    errors::set(errno);
    done.unwrap_or(Err(Failure::Errno(libc::EIO)))
}

/// Runs `act` like [`with`], for results of calls that are not [`Send`] because they are addresses.
pub(crate) fn answer<T: Answer>(act: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    struct Told<T>(T);
    // SAFETY: the types that implement `Answer` are integers and addresses of the program's memory.
    // None of them refers to the state.
    unsafe impl<T: Answer> Send for Told<T> {}
    with(|state| act(state).map(Told)).map(|told| told.0)
}

/// Sets `errno` and returns the failure value of the call.
pub(crate) fn refused<T: Answer>(failure: &Failure) -> T {
    errors::set(match failure {
        Failure::Errno(errno) => *errno,
        Failure::Elsewhere(_) => libc::ENOENT,
    });
    T::FAILED
}

/// Runs `act` without the lock. C library calls that `act` makes are not treated as the program's.
pub(crate) fn without_interception<T>(act: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let done = act();
    INSIDE.set(before);
    done
}

/// Runs before a fork. Takes the lock, so that no other thread changes the state during the fork,
/// and calls `prepare` to share the state that the child inherits.
pub(crate) fn before_fork(prepare: impl FnOnce(&mut State)) {
    if is_inside() {
        return;
    }
    SHARED.lock();
    // SAFETY: the lock is held.
    if let Some(state) = unsafe { &mut *SHARED.state.get() } {
        let errno = errors::get();
        without_interception(|| prepare(state));
        errors::set(errno);
    }
}

/// Runs after a fork in the parent. Releases the lock.
pub(crate) fn after_fork() {
    if !is_inside() {
        SHARED.unlock();
    }
}

/// Runs after a fork in the child, which has only this thread. Calls `reset` to clear the state
/// that belongs to the parent, and releases the lock.
pub(crate) fn in_child(reset: impl FnOnce(&mut State)) {
    if is_inside() {
        return;
    }
    INSIDE.set(true);
    // SAFETY: this is the only thread of the process.
    if let Some(state) = unsafe { &mut *SHARED.state.get() } {
        reset(state);
    }
    SHARED.word.store(0, Ordering::Release);
    INSIDE.set(false);
}
