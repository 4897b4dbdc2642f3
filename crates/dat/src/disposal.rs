//! Closes descriptors that peers have sent, and frees memory of peers, on separate threads.
//!
//! The process that created a file can delay the close of its descriptor for any time: a TCP socket
//! with unsent data waits for SO_LINGER, a file of a FUSE file system waits for its daemon. Closing
//! a Unix socket closes all descriptors in packets that were not read. Dropping the last reference
//! to a memory file frees its pages, which takes seconds for some gigabytes. A thread that serves
//! peers must do none of this, so it passes such descriptors and memory to the threads of this
//! module.
//!
//! There are two queues: one for operations that can block a thread for ever, and one for
//! operations that cannot. Closing a descriptor that was in this process's table ([`descriptors`])
//! *flushes* the file, and no signal interrupts the wait for a FUSE daemon. Descriptors in unread
//! packets ([`socket`]) and memory ([`memory`]) are only *released*. A wait in a release can be
//! interrupted by a signal, which a timer sends.
//!
//! Invariants:
//!
//! - The descriptors of one user occupy at most [`THREADS_PER_USER`] threads.
//! - At most [`DESCRIPTORS_PER_USER`] descriptors of one user wait to be closed. While a user is at
//!   that limit, no more of its descriptors are accepted ([`may_accept`]).
//! - While too many descriptors of all users wait, none are accepted, because one person may
//!   control many user ids. Root and this process's own user are exempt: they could do worse
//!   harm anyway.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::net::Shutdown;

use crate::shm::is_trusted;

/// Closes descriptors that a process of this user has sent. They must not be sealed memory files.
pub(crate) fn descriptors(user: Option<u32>, descriptors: Vec<OwnedFd>) {
    if !descriptors.is_empty() {
        let owner = Owner { user, count: descriptors.len() };
        FLUSHED.put(Discarded { owner, what: Box::new(descriptors) });
    }
}

/// Closes a Unix socket whose peer may have sent descriptors that were not read. The peer sees the
/// end of the connection immediately.
pub(crate) fn socket(socket: OwnedFd) {
    let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Both);
    memory(socket);
}

/// Drops memory of a peer, or a value that owns such memory.
pub(crate) fn memory(what: impl Send + 'static) {
    RELEASED.put(Discarded { owner: Owner { user: None, count: 0 }, what: Box::new(what) });
}

/// Returns true if descriptors of this user may be accepted into this process's table. Returns
/// false while too many descriptors wait to be closed.
pub(crate) fn may_accept(user: Option<u32>) -> bool {
    if is_trusted(user) {
        return true;
    }
    if is_behind() {
        return false;
    }
    let state = FLUSHED.lock();
    let (mut all, mut here) = (0, 0);
    for owner in state.busy.iter().chain(state.queue.iter().map(|discarded| &discarded.owner)) {
        all += owner.count;
        here += if owner.user == user { owner.count } else { 0 };
    }
    all < DESCRIPTORS_MAX && here < DESCRIPTORS_PER_USER
}

/// Returns true if so many values wait to be released that no more connections should be accepted.
pub(crate) fn is_behind() -> bool {
    RELEASED.lock().queue.len() >= RELEASED_MAX
}

/// A value that waits to be dropped or is being dropped.
struct Discarded {
    owner: Owner,
    what: Box<dyn Send>,
}

/// The user that a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: Option<u32>,
    /// The number of descriptors in the value that count against the limits.
    count: usize,
}

/// A queue and the threads that empty it.
struct DisposalQueue {
    state: Mutex<State>,
    work: Condvar,
    threads_max: usize,
    /// The number of threads that one user's values may occupy.
    per_user: usize,
}

struct State {
    queue: VecDeque<Discarded>,
    /// The owners of the values that are being dropped now.
    busy: Vec<Owner>,
    threads: usize,
    idle: usize,
}

static FLUSHED: DisposalQueue = DisposalQueue::new(8, THREADS_PER_USER);
static RELEASED: DisposalQueue = DisposalQueue::new(4, usize::MAX);

impl DisposalQueue {
    const fn new(threads_max: usize, per_user: usize) -> Self {
        let state = State { queue: VecDeque::new(), busy: Vec::new(), threads: 0, idle: 0 };
        Self { state: Mutex::new(state), work: Condvar::new(), threads_max, per_user }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&'static self, discarded: Discarded) {
        let mut state = self.lock();
        state.queue.push_back(discarded);
        if state.queue.len() > state.idle && state.threads < self.threads_max {
            let thread = std::thread::Builder::new().name("dafs-disposal".into());
            // If no thread can be started now, the value waits until a later attempt succeeds.
            let started = thread.stack_size(STACK_BYTES).spawn(|| self.work());
            state.threads += usize::from(started.is_ok());
        }
        drop(state);
        self.work.notify_one();
    }

    /// The loop of one thread, which drops one value of the queue after another.
    fn work(&self) {
        let alarm = Alarm::of_this_thread();
        loop {
            let Discarded { owner, what } = self.next();
            alarm.ring_until(|| drop(what));
            let mut state = self.lock();
            if let Some(place) = state.busy.iter().position(|busy| *busy == owner) {
                state.busy.swap_remove(place);
            }
        }
    }

    /// Removes and returns the oldest value whose user may occupy another thread. Waits if there is
    /// none.
    fn next(&self) -> Discarded {
        let mut state = self.lock();
        loop {
            let State { queue, busy, .. } = &*state;
            let may_begin = |discarded: &Discarded| {
                let here = busy.iter().filter(|owner| owner.user == discarded.owner.user).count();
                here < self.per_user
            };
            if let Some(discarded) =
                queue.iter().position(may_begin).and_then(|place| state.queue.remove(place))
            {
                state.busy.push(discarded.owner);
                return discarded;
            }
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// A timer that repeatedly signals its thread while the thread drops a value. The signal ends the
/// thread's wait for the close of a socket; the close then continues without the thread.
struct Alarm(Option<libc::timer_t>);

impl Alarm {
    /// Creates the timer. The timer is absent if the system has no free signal or timer; the thread
    /// then waits until each close returns.
    fn of_this_thread() -> Self {
        let Some(signal) = *SIGNAL.get_or_init(claim_signal) else { return Self(None) };
        let mut timer = std::ptr::null_mut();
        // SAFETY: the structure consists of integers and a pointer, for which zeros are valid. The
        // kernel reads it and writes the timer's id; both live during the calls. The signalled
        // thread is this one, and it outlives the timer because `Alarm` stays on its stack.
        let made = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        };
        Self((made == 0).then_some(timer))
    }

    fn ring_until(&self, done: impl FnOnce()) {
        self.set(ALARM_NS);
        done();
        self.set(0);
    }

    /// Sets the interval in nanoseconds; zero stops the timer.
    fn set(&self, nanoseconds: i64) {
        let Some(timer) = self.0 else { return };
        let every = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds as libc::c_long };
        let value = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer was created and not deleted; the kernel reads one structure.
        unsafe { libc::timer_settime(timer, 0, &raw const value, std::ptr::null_mut()) };
    }
}

/// Claims an unused real-time signal and installs a handler that only interrupts system calls.
fn claim_signal() -> Option<libc::c_int> {
    extern "C" fn interrupt(_: libc::c_int) {}
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|signal| {
        // SAFETY: an all-zero `sigaction` is valid. The handler does nothing, so it may run at any
        // time on any thread.
        unsafe {
            let mut present: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(*signal, std::ptr::null(), &raw mut present);
            if asked != 0 || present.sa_sigaction != libc::SIG_DFL {
                return false;
            }
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = interrupt as *const () as usize;
            ours.sa_flags = libc::SA_RESTART;
            libc::sigaction(*signal, &raw const ours, std::ptr::null_mut()) == 0
        }
    })
}

static SIGNAL: OnceLock<Option<libc::c_int>> = OnceLock::new();
/// The time in nanoseconds after which the signal interrupts a wait, and the interval between
/// signals.
const ALARM_NS: i64 = 20_000_000;
/// The number of threads that the descriptors of one user may block for ever.
const THREADS_PER_USER: usize = 2;
/// The number of waiting descriptors of one user at which no more of its descriptors are accepted.
const DESCRIPTORS_PER_USER: usize = 64;
/// The number of waiting descriptors of all users at which no more descriptors are accepted.
const DESCRIPTORS_MAX: usize = 1024;
/// The number of waiting sockets and memory objects at which no more connections are accepted. Each
/// connection that is established by then may still add its own socket and memory.
const RELEASED_MAX: usize = 4096;
const STACK_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    const HANG: Duration = Duration::from_secs(60);

    /// Returns a socket whose close waits ten minutes for a peer that reads nothing.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 64 << 10]).is_ok() {}
        let linger = Some(Duration::from_secs(600));
        rustix::net::sockopt::set_socket_linger(&socket, linger).unwrap();
        (socket.into(), peer)
    }

    #[test]
    fn a_socket_that_lingers_for_ten_minutes_is_closed_at_once() {
        let user = Some(70_001);
        let mut peers = Vec::new();
        for _ in 0..4 {
            let (socket, peer) = lingering();
            peers.push(peer);
            descriptors(user, vec![socket]);
        }
        let begun = Instant::now();
        let is_there = |state: &State| {
            let waiting = state.queue.iter().map(|discarded| discarded.owner);
            state.busy.iter().copied().chain(waiting).any(|owner| owner.user == user)
        };
        while is_there(&FLUSHED.lock()) {
            assert!(begun.elapsed() < HANG, "it lingers");
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_has_much_waiting_is_taken_no_more_from_and_others_are() {
        /// A value whose drop blocks until the test ends it.
        struct Stuck(std::sync::mpsc::Receiver<()>);
        impl Drop for Stuck {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (user, other) = (Some(70_002), Some(70_003));
        let mut ends = Vec::new();
        for _ in 0..THREADS_PER_USER + 1 {
            let (end, stuck) = std::sync::mpsc::channel();
            ends.push(end);
            let owner = Owner { user, count: DESCRIPTORS_PER_USER / 2 };
            FLUSHED.put(Discarded { owner, what: Box::new(Stuck(stuck)) });
        }
        assert!(!may_accept(user) && may_accept(other));
        // All threads that this user may have are blocked. Another user's descriptors are closed.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        descriptors(other, vec![writer]);
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]).unwrap(), 0);
        drop(ends);
        let begun = Instant::now();
        while !may_accept(user) {
            assert!(begun.elapsed() < HANG, "they are not let go");
            std::thread::yield_now();
        }
        // One person with many user ids fills the queue. A trusted user still gets in.
        let (_end, stuck) = std::sync::mpsc::channel();
        let owner = Owner { user: Some(70_004), count: DESCRIPTORS_MAX };
        FLUSHED.put(Discarded { owner, what: Box::new(Stuck(stuck)) });
        let own = rustix::process::geteuid().as_raw();
        assert!(!may_accept(other) && may_accept(Some(0)) && may_accept(Some(own)));
    }
}
