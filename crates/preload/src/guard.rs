//! The lock under which everything of DAFS is done, and who is inside.
//!
//! Invariants: one thread at a time is inside; a call of the C library's that is made from
//! inside, by the client or by this library, is never taken for one of the program's; a panic
//! inside ends as EIO.
//!
//! A fork happens with the lock held, so that the child finds everything in order.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::errors::{self, Answer, Failure, Outcome};
use crate::state::State;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside, so that a call is not the program's.
#[inline]
pub fn is_inside() -> bool {
    // At a thread's very end there is no answer any more, and the kernel serves.
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

struct Shared {
    /// 0 free, 1 taken, 2 taken and waited for.
    word: AtomicU32,
    state: UnsafeCell<Option<Box<State>>>,
}

// SAFETY: the state is full of `Rc`s, and of a client's things, which are made of them. All of them
// are reached through `state` alone, by the thread that has the lock: `with`, `before_fork` and
// `in_child` are the only ways, and the lock orders what one thread does before what the next
// does. So counts are never changed by two threads at a time, provided that no copy of an `Rc`
// stays outside. What `with` gives is `Send`, the references that the others lend end with their
// calls, and nobody keeps anything of the state in a variable of a thread: this crate has one such,
// a flag (`tests/tests/house.rs` sees to it). Nothing of the state is tied to the thread that made
// it.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { word: AtomicU32::new(0), state: UnsafeCell::new(None) };

impl Shared {
    fn lock(&self) {
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.word.swap(2, Ordering::Acquire) != 0 {
            // Woken early or not, the word is looked at again.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, 2, None);
        }
    }

    fn unlock(&self) {
        if self.word.swap(0, Ordering::Release) == 2 {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }
}

/// Being inside, which ends with the value.
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

/// Does something with all there is, alone. The thread's error number is as before unless it
/// is told otherwise. What it gives is [`Send`], so that no `Rc` of the state's comes out by it.
pub fn with<T: Send>(act: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    if is_inside() {
        return Err(Failure::Errno(libc::EDEADLK));
    }
    let errno = errors::get();
    let _inside = Inside::enter();
    // SAFETY: the lock is held, and who is inside does not come in again.
    let state = unsafe { &mut *SHARED.state.get() };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let state = state.get_or_insert_default();
        state.mend_after_restart();
        act(state)
    }));
    errors::set(errno);
    done.unwrap_or(Err(Failure::Errno(libc::EIO)))
}

/// The same for what a call answers, which may be an address.
pub fn answer<T: Answer>(act: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    struct Told<T>(T);
    // SAFETY: what calls answer are numbers and addresses for the program: `Answer` is of no other
    // type, and of none that has anything of the state's.
    unsafe impl<T: Answer> Send for Told<T> {}
    with(|state| act(state).map(Told)).map(|told| told.0)
}

/// A call's answer that says why it failed.
pub fn refused<T: Answer>(failure: &Failure) -> T {
    errors::set(match failure {
        Failure::Errno(errno) => *errno,
        Failure::Elsewhere(_) => libc::ENOENT,
    });
    T::FAILED
}

/// Does something whose calls are not the program's, without the lock.
pub fn aside<T>(act: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let done = act();
    INSIDE.set(before);
    done
}

/// Before a fork: nobody else is inside while it happens. `prepare` gets what the child is to have.
pub fn before_fork(prepare: impl FnOnce(&mut State)) {
    if is_inside() {
        return;
    }
    SHARED.lock();
    // SAFETY: the lock is held.
    if let Some(state) = unsafe { &mut *SHARED.state.get() } {
        let errno = errors::get();
        aside(|| prepare(state));
        errors::set(errno);
    }
}

/// Behind a fork, in the parent.
pub fn after_fork() {
    if !is_inside() {
        SHARED.unlock();
    }
}

/// Behind a fork, in the child, which is alone. `reset` gets what the parent had.
pub fn in_child(reset: impl FnOnce(&mut State)) {
    if is_inside() {
        return;
    }
    INSIDE.set(true);
    // SAFETY: the only thread of this process is here.
    if let Some(state) = unsafe { &mut *SHARED.state.get() } {
        reset(state);
    }
    SHARED.word.store(0, Ordering::Release);
    INSIDE.set(false);
}
