//! Calls that wait for descriptors. A file is always ready, as in the kernel.

use std::ffi::{c_int, c_void};

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::errors;
use crate::guard;
use crate::report::{self, Miss};
use crate::state::is_ours;
use crate::user_memory::{Purpose, must_have};

/// Finds the descriptors of DAFS files in a list, and disables their entries for the kernel's call.
/// Returns the descriptors of all entries, or `None` if none is of a DAFS file.
fn ready(list: *mut pollfd, count: nfds_t) -> Option<Vec<c_int>> {
    if list.is_null() || count == 0 || guard::is_inside() {
        return None;
    }
    let count = usize::try_from(count).ok()?;
    // If the pointer is invalid, the kernel's call reports the error.
    must_have(list.cast(), count.checked_mul(size_of::<pollfd>())?, Purpose::Writing).ok()?;
    // SAFETY: these entries were checked to be accessible, and any bytes are a valid entry.
    let entry = |index| unsafe { list.add(index).read_unaligned() };
    // Programs may call poll in signal handlers, so a list without DAFS files takes no memory.
    if !(0..count).any(|index| is_ours(entry(index).fd)) {
        return None;
    }
    let numbers: Vec<c_int> = (0..count).map(|index| entry(index).fd).collect();
    for index in (0..count).filter(|index| is_ours(numbers[*index])) {
        // SAFETY: the entry was checked to be writable, and there is no reference to it.
        unsafe { list.add(index).write_unaligned(pollfd { fd: -1, ..entry(index) }) };
    }
    Some(numbers)
}

/// Restores the disabled entries of a list and marks them as ready. Returns the total number of
/// ready entries.
///
/// # Safety
/// [`ready`] returned `numbers` for this list, which still exists.
unsafe fn put_back(list: *mut pollfd, numbers: &[c_int], others: c_int) -> c_int {
    let mut count = others.max(0);
    for (index, number) in numbers.iter().enumerate() {
        // SAFETY: `ready` has checked that the entry is accessible, and nothing refers to it.
        unsafe {
            let mut entry = list.add(index).read_unaligned();
            if entry.fd != *number {
                entry.fd = *number;
                entry.revents = entry.events & READY;
                count += c_int::from(entry.revents != 0);
                list.add(index).write_unaligned(entry);
            }
        }
    }
    count
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn poll(list: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let taken = ready(list, count);
    let now = if taken.is_some() { 0 } else { timeout_ms };
    let answer = real!(poll(list => *mut pollfd, count => nfds_t, now => c_int) -> c_int);
    match taken {
        // SAFETY: the numbers are those of this list.
        Some(numbers) => unsafe { put_back(list, &numbers, answer) },
        None => answer,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __poll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    _room: usize,
) -> c_int {
    // SAFETY: the program passes a list of this length.
    unsafe { poll(list, count, timeout_ms) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let taken = ready(list, count);
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    let now = if taken.is_some() { &raw const zero } else { timeout };
    let answer = real!(ppoll(
        list => *mut pollfd, count => nfds_t, now => *const timespec, mask => *const sigset_t,
    ) -> c_int);
    match taken {
        // SAFETY: the numbers are those of this list.
        Some(numbers) => unsafe { put_back(list, &numbers, answer) },
        None => answer,
    }
}

/// Removes the descriptors of DAFS files from a set and returns them.
unsafe fn taken_out(set: *mut fd_set, count: c_int) -> Vec<c_int> {
    if set.is_null() {
        return Vec::new();
    }
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    let words = (count as usize).div_ceil(usize::BITS as usize);
    if must_have(set.cast(), words * size_of::<usize>(), Purpose::Writing).is_err() {
        // If the set is invalid, the kernel's call reports the error.
        return Vec::new();
    }
    // SAFETY: the program passes a set with room for this many numbers.
    unsafe {
        let held: Vec<c_int> =
            (0..count).filter(|number| is_ours(*number) && libc::FD_ISSET(*number, set)).collect();
        for number in &held {
            libc::FD_CLR(*number, set);
        }
        held
    }
}

/// The three sets of a call, and the descriptors of DAFS files that were in each.
struct Sets([*mut fd_set; 3], [Vec<c_int>; 3]);

impl Sets {
    unsafe fn take(sets: [*mut fd_set; 3], count: c_int) -> Option<Self> {
        if guard::is_inside() {
            return None;
        }
        // SAFETY: the program passes sets or null.
        let held = sets.map(|set| unsafe { taken_out(set, count) });
        let is_any = held.iter().any(|held| !held.is_empty());
        is_any.then_some(Self(sets, held))
    }

    unsafe fn put_back(&self, others: c_int) -> c_int {
        let mut count = others.max(0);
        // A file never has an exceptional condition.
        for (set, held) in self.0.iter().zip(&self.1).take(2) {
            for number in held {
                // SAFETY: the set is valid, because the number was removed from it.
                unsafe { libc::FD_SET(*number, *set) };
                count += 1;
            }
        }
        count
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program passes sets or null.
    let taken = unsafe { Sets::take([reads, writes, others], count) };
    let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
    let now = if taken.is_some() { &raw mut zero } else { timeout };
    let answer = real!(select(
        count => c_int, reads => *mut fd_set, writes => *mut fd_set, others => *mut fd_set,
        now => *mut timeval,
    ) -> c_int);
    match taken {
        // SAFETY: the program's sets are still valid.
        Some(sets) => unsafe { sets.put_back(answer) },
        None => answer,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program passes sets or null.
    let taken = unsafe { Sets::take([reads, writes, others], count) };
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    let now = if taken.is_some() { &raw const zero } else { timeout };
    let answer = real!(pselect(
        count => c_int, reads => *mut fd_set, writes => *mut fd_set, others => *mut fd_set,
        now => *const timespec, mask => *const sigset_t,
    ) -> c_int);
    match taken {
        // SAFETY: the program's sets are still valid.
        Some(sets) => unsafe { sets.put_back(answer) },
        None => answer,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut c_void,
) -> c_int {
    if is_ours(fd) && !guard::is_inside() {
        report::missed(Miss::Epoll);
        errors::set(libc::EPERM);
        return -1;
    }
    real!(epoll_ctl(
        epoll => c_int, operation => c_int, fd => c_int, event => *mut c_void,
    ) -> c_int)
}

/// The events that a file always has, as far as they are asked for.
const READY: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
