//! Watches ranges of the process's own memory for changes that replace the memory at these
//! addresses: unmapping, moving, or returning pages to the kernel.
//!
//! Invariant: once a watched range has been unmapped or moved, or other memory was mapped over it,
//! [`Watched::is_current`] is false for every thread. This holds even for a thread to which the
//! kernel gives the same addresses before the call that unmapped them has returned. It is also
//! false once `madvise` has discarded pages of the range. Registrations with devices rely on this:
//! if the address translation of a device stayed in use after the memory was replaced, it would
//! give the bytes of one buffer to another.
//!
//! The kernel reports such calls through a userfault file, and blocks the caller until the event is
//! read. A thread of this module reads the events. It increments an epoch before the first read and
//! again after the last mark, so the epoch is odd while events are processed, and queries wait
//! until it is even. A query also asks the kernel about events that have not been read: the kernel
//! counts a change as in progress before it makes the change, and until the caller has learned that
//! the event was read. While a change is counted, the kernel refuses to write-protect memory
//! (`Watch::is_settled`). So a query after a change finds the change in progress, or the epoch odd,
//! or the mark set.
//!
//! The kernel reports discarded pages before it discards them. If a range were watched again
//! between the report and the discard, there would be no second report. So such a range is not
//! watched again for [`SETTLING`].
//!
//! A forked child has its own memory, for which there are no reports. In the child no range is
//! current, and dropping a value leaves the parent's watches unchanged.
//!
//! The reading thread frees no memory while another thread may wait for it, because the memory that
//! it would return to the kernel could itself be watched. Only private memory without a file is
//! watched, because the kernel does not report when a file is truncated and its pages disappear.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::PAGE_BYTES;

/// The reason why memory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel does not provide a userfault file to this process.
    #[error(
        "this kernel does not report unmapped memory (that needs userfaultfd of Linux 5.18): the \
         application's own memory is registered again for every use"
    )]
    Unavailable {
        /// The error that the system reported.
        source: io::Error,
    },
    /// Part of the range is not private memory without a file.
    #[error(
        "{length} bytes at {address:#x} are not private memory (heap, stack or anonymous \
         mapping), so they cannot be watched"
    )]
    Unsuitable {
        /// The address of the first byte of the range.
        address: usize,
        /// The length of the range in bytes.
        length: usize,
    },
    /// The kernel refuses to watch the range.
    #[error("the kernel refuses to watch {length} bytes at {address:#x}")]
    Refused {
        /// The address of the first byte of the range.
        address: usize,
        /// The length of the range in bytes.
        length: usize,
        /// The error that the system reported.
        source: io::Error,
    },
    /// The number of watched ranges has reached its limit.
    #[error("the limit of {RANGES_MAX} watched ranges of memory is reached")]
    Full,
    /// The process's memory is being changed, or pages of the range were discarded recently.
    #[error("{length} bytes at {address:#x} are being changed")]
    Unsettled {
        /// The address of the first byte of the range.
        address: usize,
        /// The length of the range in bytes.
        length: usize,
    },
}

/// A range that is watched until this value is dropped.
#[derive(Debug)]
pub struct Watched {
    watch: &'static Watch,
    place: usize,
}

impl Watched {
    /// Starts to watch `length` bytes at `address`, extended to whole pages. The memory must be
    /// mapped.
    ///
    /// # Errors
    /// [`WatchError`] if the range cannot be watched. The memory can still be used if the caller
    /// itself ensures that it does not change.
    pub fn new(address: usize, length: usize) -> Result<Self, WatchError> {
        Watch::of_process()?.begin(address, length)
    }

    /// Returns true if the same memory has been at these addresses since the watch began. Returns
    /// false also if that cannot be determined, because the process's memory is being changed at
    /// this moment.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.watch.is_home() && self.watch.is_settled() && self.is_unmarked()
    }

    /// Returns true if no change of the memory has been reported so far, although a report may be
    /// pending. This check is cheap.
    #[must_use]
    pub fn is_unmarked(&self) -> bool {
        let epoch = &self.watch.epoch;
        loop {
            let before = epoch.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let is_current = self.watch.ranges[self.place].is_current.load(Ordering::Relaxed);
                fence(Ordering::Acquire);
                if epoch.load(Ordering::Relaxed) == before {
                    return is_current;
                }
            }
            // The reading thread may be waiting for this processor.
            std::thread::yield_now();
        }
    }

    /// Returns a number that changes whenever a change of any watched range is reported.
    #[must_use]
    pub fn changes() -> u64 {
        match WATCH.get() {
            Some(Ok(watch)) => watch.epoch.load(Ordering::Acquire),
            Some(Err(_)) | None => 0,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A forked child shares its parent's userfault file, and the ranges belong to the parent.
        if self.watch.is_home() {
            self.watch.end(self.place);
        }
    }
}

/// The watches of the process.
#[derive(Debug)]
struct Watch {
    file: OwnedFd,
    /// A counter that is odd while events are being processed.
    epoch: AtomicU64,
    ranges: Box<[Range]>,
    /// The pages that were discarded recently. The newest entry overwrites the oldest one.
    given_back: [GivenBack; GIVEN_BACK_MAX],
    given_back_count: AtomicUsize,
    begun: Instant,
    /// The address of a page that reads as zeros in a forked child.
    home: AtomicPtr<u8>,
    /// True if the kernel has counted a change as in progress for a long time. Some kernels
    /// miscount failed moves, so that the change may stay counted forever.
    is_doubtful: AtomicBool,
    /// The unused slots. The lock is held while a watch of a range begins or ends.
    free: Mutex<Vec<usize>>,
}

/// One watched range. All its fields are atomics that other threads may change at any time.
#[derive(Debug, Default)]
struct Range {
    /// The address of the first byte; equal to `end` in an unused slot.
    start: AtomicU64,
    end: AtomicU64,
    is_current: AtomicBool,
}

/// Pages that were discarded, and the time of the discard in milliseconds.
#[derive(Debug, Default)]
struct GivenBack {
    start: AtomicU64,
    end: AtomicU64,
    at: AtomicU64,
}

static WATCH: OnceLock<Result<Watch, i32>> = OnceLock::new();

impl Watch {
    /// Returns the watch of the process, which is created when first needed and never dropped.
    fn of_process() -> Result<&'static Self, WatchError> {
        let mut is_new = false;
        let begun = WATCH.get_or_init(|| {
            is_new = true;
            Self::open().map_err(|error| error.raw_os_error().unwrap_or(libc::ENOSYS))
        });
        let unavailable = |source| WatchError::Unavailable { source };
        let watch = match begun {
            Ok(watch) => watch,
            Err(errno) => return Err(unavailable(io::Error::from_raw_os_error(*errno))),
        };
        if is_new {
            let thread = std::thread::Builder::new().name("dafs-memory".into());
            thread.spawn(|| watch.take_in_for_ever()).map_err(unavailable)?;
        }
        Ok(watch)
    }

    fn open() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes only flags and returns a descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just created this descriptor, so it has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let mut api = Api { api: API, features: FEATURES, ioctls: 0 };
        // SAFETY: UFFDIO_API accesses one `struct uffdio_api`, which has the layout of `Api`.
        unsafe { ioctl(&file, UFFDIO_API, &mut api) }?;
        let ranges = (0..RANGES_MAX).map(|_| Range::default()).collect();
        let free = Mutex::new((0..RANGES_MAX).rev().collect());
        Ok(Self {
            file,
            epoch: AtomicU64::new(0),
            ranges,
            given_back: std::array::from_fn(|_| GivenBack::default()),
            given_back_count: AtomicUsize::new(0),
            begun: Instant::now(),
            home: AtomicPtr::new(home_page()?),
            is_doubtful: AtomicBool::new(false),
            free,
        })
    }

    /// Returns true in the process that created the watch, and false in its forked children.
    fn is_home(&self) -> bool {
        // SAFETY: the page is mapped forever. Only the kernel writes it, in a child that has just
        // been forked.
        unsafe { self.home.load(Ordering::Relaxed).read_volatile() == HOME }
    }

    /// Returns true if all changes begun before this call have been read from the file. The method
    /// sends a request that names no range. The kernel returns EAGAIN if it counts a change whose
    /// caller has not returned from the system call, and EINVAL if it counts none.
    fn is_settled(&self) -> bool {
        let mut begun = None;
        loop {
            let mut nothing = WriteProtect { range: Span { start: 0, length: 0 }, mode: 0 };
            // SAFETY: UFFDIO_WRITEPROTECT reads one `struct uffdio_writeprotect`, which has the
            // layout of `WriteProtect`.
            let asked = unsafe { ioctl(&self.file, UFFDIO_WRITEPROTECT, &mut nothing) };
            if asked.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
                if self.is_doubtful.load(Ordering::Relaxed) {
                    self.is_doubtful.store(false, Ordering::Relaxed);
                }
                return true;
            }
            let waited = begun.get_or_insert_with(Instant::now).elapsed();
            if self.is_doubtful.load(Ordering::Relaxed) || waited > PATIENCE {
                self.is_doubtful.store(true, Ordering::Relaxed);
                return false;
            }
            // The thread that made the change may be waiting for this processor.
            std::thread::yield_now();
        }
    }

    /// Returns true if pages of a range were discarded so recently that the kernel may still be
    /// discarding them.
    fn is_settling(&self, start: u64, end: u64) -> bool {
        let now = self.now_ms();
        let is_late = |at: u64| now < at.saturating_add(SETTLING.as_millis() as u64);
        let count = self.given_back_count.load(Ordering::Acquire);
        let newest = &self.given_back[count % GIVEN_BACK_MAX];
        // True if there were so many discards that some entries were overwritten.
        let is_full = count >= GIVEN_BACK_MAX && is_late(newest.at.load(Ordering::Relaxed));
        is_full
            || self.given_back.iter().take(count).any(|pages| {
                let start_of = pages.start.load(Ordering::Relaxed);
                let end_of = pages.end.load(Ordering::Relaxed);
                is_late(pages.at.load(Ordering::Relaxed)) && start_of < end && start < end_of
            })
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn begin(&'static self, address: usize, length: usize) -> Result<Watched, WatchError> {
        if !self.is_home() {
            let source = io::ErrorKind::Unsupported.into();
            return Err(WatchError::Unavailable { source });
        }
        let start = address & !(PAGE_BYTES - 1);
        let end = address.saturating_add(length.max(1)).next_multiple_of(PAGE_BYTES);
        let mut free = self.lock();
        let Some(place) = free.pop() else { return Err(WatchError::Full) };
        // From here on, every change of the range marks it.
        let range = &self.ranges[place];
        range.is_current.store(true, Ordering::Relaxed);
        range.end.store(end as u64, Ordering::Relaxed);
        range.start.store(start as u64, Ordering::Release);
        let mut register = Register {
            range: Span { start: start as u64, length: (end - start) as u64 },
            mode: MODE_WRITE_PROTECT,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_REGISTER accesses one `struct uffdio_register`, which has the layout of
        // `Register`. It write-protects nothing; it only requests events.
        let registered = unsafe { ioctl(&self.file, UFFDIO_REGISTER, &mut register) };
        if let Err(source) = registered {
            range.clear();
            free.push(place);
            return Err(match source.raw_os_error() {
                // The kernel returns these errors for unmapped memory and for files.
                Some(libc::EINVAL | libc::ENOMEM) => WatchError::Unsuitable { address, length },
                _ => WatchError::Refused { address, length, source },
            });
        }
        drop(free);
        let watched = Watched { watch: self, place };
        // The check comes after the watch has begun, so that later changes are reported.
        if !is_private(start as u64, end as u64) {
            return Err(WatchError::Unsuitable { address, length });
        }
        if self.is_settling(start as u64, end as u64) || !watched.is_current() {
            return Err(WatchError::Unsettled { address, length });
        }
        Ok(watched)
    }

    /// Ends the watch of a range. The kernel no longer reports changes of the range, except where
    /// another watched range overlaps it.
    fn end(&self, place: usize) {
        let mut free = self.lock();
        let (mut start, end) = self.ranges[place].span();
        self.ranges[place].clear();
        free.push(place);
        while start < end {
            // Unregister only up to the next range that is still watched.
            let reaching = self.ranges.iter().map(Range::span).filter(|span| span.0 < end);
            let others: Option<(u64, u64)> = reaching.filter(|span| span.1 > start).min();
            let until = others.map_or(end, |span| span.0.clamp(start, end));
            if start < until {
                let mut span = Span { start, length: until - start };
                // SAFETY: UFFDIO_UNREGISTER reads one `struct uffdio_range`, which has the layout
                // of `Span`. It leaves unmapped or unregistered memory unchanged.
                let _ = unsafe { ioctl(&self.file, UFFDIO_UNREGISTER, &mut span) };
            }
            start = others.map_or(end, |span| span.1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes events forever. Allocates and frees nothing.
    fn take_in_for_ever(&self) {
        loop {
            let mut poll =
                libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `poll` is one `struct pollfd`, which lives during the call.
            unsafe { libc::poll(&raw mut poll, 1, -1) };
            self.epoch.fetch_add(1, Ordering::SeqCst);
            while let Some(event) = self.next_event() {
                self.note(&event);
            }
            self.epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn next_event(&self) -> Option<Event> {
        let mut event = Event { kind: 0, reserved: [0; 7], arguments: [0; 3] };
        // SAFETY: the call reads up to the size of `Event`, which has the layout of `struct
        // uffd_msg` and allows any bytes.
        let count = unsafe {
            libc::read(
                self.file.as_raw_fd(),
                std::ptr::from_mut(&mut event).cast(),
                size_of::<Event>(),
            )
        };
        (count == size_of::<Event>() as isize).then_some(event)
    }

    fn note(&self, event: &Event) {
        let [first, second, third] = event.arguments;
        if event.kind == EVENT_REMOVE {
            let count = self.given_back_count.load(Ordering::Relaxed);
            let pages = &self.given_back[count % GIVEN_BACK_MAX];
            pages.start.store(first, Ordering::Relaxed);
            pages.end.store(second, Ordering::Relaxed);
            pages.at.store(self.now_ms(), Ordering::Relaxed);
            self.given_back_count.store(count + 1, Ordering::Release);
        }
        let gone = match event.kind {
            EVENT_REMAP => (first, first.saturating_add(third)),
            EVENT_REMOVE | EVENT_UNMAP => (first, second),
            _ => return,
        };
        for range in &self.ranges {
            let span = range.span();
            if span.0 < gone.1 && gone.0 < span.1 {
                range.is_current.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Range {
    fn span(&self) -> (u64, u64) {
        (self.start.load(Ordering::Acquire), self.end.load(Ordering::Relaxed))
    }

    fn clear(&self) {
        self.start.store(u64::MAX, Ordering::Release);
        self.end.store(0, Ordering::Relaxed);
        self.is_current.store(false, Ordering::Relaxed);
    }
}

/// Creates the page for [`Watch::is_home`].
fn home_page() -> io::Result<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: this maps new memory at an address that the kernel chooses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page was just mapped, and no other code knows it.
    let advised = unsafe {
        page.cast::<u8>().write(HOME);
        libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK)
    };
    if advised == 0 { Ok(page.cast()) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if a whole range is private memory without a file, according to the kernel's list
/// of mappings.
fn is_private(mut start: u64, end: u64) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    for line in maps.lines() {
        let Some((from, until, is_private)) = parse(line) else { return false };
        if until <= start {
            continue;
        }
        if from > start || !is_private {
            return false;
        }
        start = until;
        if start >= end {
            return true;
        }
    }
    false
}

/// Parses a line of the kernel's list, of the form `start-end perms offset device inode [name]`.
fn parse(line: &str) -> Option<(u64, u64, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (from, until) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(from)?, number(until)?, rights.ends_with('p') && inode == "0"))
}

/// Makes an `ioctl` call.
///
/// # Safety
/// `request` must access no more than one `T`.
unsafe fn ioctl<T>(file: &OwnedFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: the caller ensures it, and the argument lives during the call.
    let result = unsafe {
        libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument))
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The layout of the C `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The layout of the C `struct uffdio_range`.
#[repr(C)]
struct Span {
    start: u64,
    length: u64,
}

/// The layout of the C `struct uffdio_writeprotect`.
#[repr(C)]
struct WriteProtect {
    range: Span,
    mode: u64,
}

/// The layout of the C `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

/// The layout of the C `struct uffd_msg`, for events that have two or three numbers.
#[repr(C)]
struct Event {
    kind: u8,
    reserved: [u8; 7],
    arguments: [u64; 3],
}

const _: () = assert!(size_of::<Event>() == 32);

/// Constants of `linux/userfaultfd.h`.
const API: u64 = 0xAA;
const USER_MODE_ONLY: i32 = 1;
/// The features to request: events for moved, discarded and unmapped memory, and exact addresses of
/// faults. Kernels that have the last feature count all changes in progress.
const FEATURES: u64 = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 11;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_WRITEPROTECT: u64 = 0xC018_AA06;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_UNREGISTER: u64 = 0x8010_AA01;

/// The maximum number of ranges that a process may watch.
const RANGES_MAX: usize = 4096;
/// The maximum number of discards that are remembered.
const GIVEN_BACK_MAX: usize = 64;
/// The time for which a range is not watched again after some of its pages were discarded.
const SETTLING: Duration = Duration::from_secs(1);
/// The maximum time to wait for a change in progress.
const PATIENCE: Duration = Duration::from_millis(10);
/// The contents of [`Watch::home`] in the process that created it.
const HOME: u8 = 1;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A mapping of private memory, as an ordinary program makes it.
    struct Mapping {
        address: usize,
        length: usize,
    }

    impl Mapping {
        fn new(length: usize) -> Self {
            Self::at(0, length)
        }

        fn at(address: usize, length: usize) -> Self {
            let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: this maps private memory, at an address that the kernel chooses or over a
            // mapping of a test.
            let mapped = unsafe { libc::mmap(address as *mut _, length, rights, flags, -1, 0) };
            assert_ne!(mapped, libc::MAP_FAILED);
            Self { address: mapped as usize, length }
        }

        fn fill(&self, with: u8) {
            // SAFETY: the range is a whole mapping that is still mapped.
            unsafe { std::ptr::write_bytes(self.address as *mut u8, with, self.length) };
        }

        fn end(self) {
            // SAFETY: nothing uses the mapping any more.
            assert_eq!(unsafe { libc::munmap(self.address as *mut _, self.length) }, 0);
        }
    }

    /// Watches a mapping. Prints a message and returns `None` if the kernel cannot watch memory.
    fn watched(mapping: &Mapping) -> Option<Watched> {
        loop {
            match Watched::new(mapping.address, mapping.length) {
                Ok(watched) => return Some(watched),
                // Other tests change the memory of this process.
                Err(WatchError::Unsettled { .. }) => std::thread::yield_now(),
                Err(WatchError::Unavailable { source }) => {
                    dafs_tests::skip(format_args!("this kernel watches no memory: {source}"));
                    return None;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn what_is_unmapped_is_current_no_more() {
        let mapping = Mapping::new(1 << 20);
        let Some(watched) = watched(&mapping) else { return };
        mapping.fill(1);
        assert!(watched.is_unmarked());
        let address = mapping.address;
        mapping.end();
        assert!(!watched.is_current());
        // New memory at the same addresses needs a watch of its own.
        let other = Mapping::at(address, 1 << 20);
        assert!(!watched.is_current());
        let again = super::tests::watched(&other).unwrap();
        drop(watched);
        assert!(again.is_unmarked());
        other.fill(2);
        assert!(again.is_unmarked());
        other.end();
        assert!(!again.is_current());
    }

    #[test]
    fn a_part_is_enough_and_a_neighbour_is_not() {
        let mapping = Mapping::new(8 * PAGE_BYTES);
        mapping.fill(1);
        let page = |number: usize| mapping.address + number * PAGE_BYTES;
        let watch = |from: usize, count: usize| {
            watched(&Mapping { address: page(from), length: count * PAGE_BYTES }).unwrap()
        };
        if watched(&mapping).is_none() {
            return;
        }
        let (low, both, high) = (watch(0, 3), watch(2, 3), watch(4, 4));
        // SAFETY: the new mapping replaces pages of the test's own mapping.
        Mapping::at(page(2), PAGE_BYTES);
        assert_eq!([&low, &both, &high].map(Watched::is_unmarked), [false, false, true]);
        // When one watch ends, the memory that another one shares with it stays watched.
        let (low, middle) = (watch(0, 4), watch(2, 4));
        drop(low);
        assert!(middle.is_unmarked() && high.is_unmarked());
        Mapping::at(page(3), PAGE_BYTES);
        assert_eq!([&middle, &high].map(Watched::is_unmarked), [false, true]);
        mapping.end();
        assert!(!high.is_current());
    }

    #[test]
    fn what_is_given_back_is_not_watched_anew_at_once() {
        let mapping = Mapping::new(8 * PAGE_BYTES);
        mapping.fill(1);
        if watched(&mapping).is_none() {
            return;
        }
        let (first, second) = (mapping.address, mapping.address + 4 * PAGE_BYTES);
        let half = |address| Mapping { address, length: 4 * PAGE_BYTES };
        let watches = [first, second].map(|start| watched(&half(start)).unwrap());
        // SAFETY: the page belongs to the test's own mapping, and its bytes are not needed.
        let given = unsafe { libc::madvise(first as *mut _, PAGE_BYTES, libc::MADV_DONTNEED) };
        assert_eq!(given, 0);
        assert_eq!(watches.each_ref().map(Watched::is_unmarked), [false, true]);
        let again = Watched::new(first, 4 * PAGE_BYTES);
        assert!(matches!(again, Err(WatchError::Unsettled { .. })));
        drop(watched(&half(second)));
        mapping.end();
    }

    #[test]
    fn nothing_is_current_in_a_process_that_was_forked_off() {
        let mapping = Mapping::new(4 * PAGE_BYTES);
        let Some(watched) = watched(&mapping) else { return };
        // SAFETY: the child needs neither a lock nor memory for its check, and then exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_current = watched.is_current();
            drop(watched);
            // SAFETY: this ends the child.
            unsafe { libc::_exit(i32::from(is_current)) };
        }
        let mut status = 0;
        // SAFETY: this waits for the child, and the variable for the status lives.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 0, "current in the child");
        assert!(watched.is_unmarked());
        mapping.end();
        assert!(!watched.is_current());
    }

    #[test]
    fn what_is_moved_is_current_no_more() {
        let mapping = Mapping::new(4 * PAGE_BYTES);
        let Some(watched) = watched(&mapping) else { return };
        // SAFETY: this is the test's own mapping, and no pointer into it is used.
        let moved = unsafe {
            libc::mremap(
                mapping.address as *mut _,
                mapping.length,
                64 * PAGE_BYTES,
                libc::MREMAP_MAYMOVE,
            )
        };
        assert_ne!(moved, libc::MAP_FAILED);
        assert!(moved as usize == mapping.address || !watched.is_current());
        Mapping { address: moved as usize, length: 64 * PAGE_BYTES }.end();
        assert!(!watched.is_current());
    }

    #[test]
    fn memory_of_files_and_holes_are_not_watched() {
        let shared = crate::Memory::shared(4 * PAGE_BYTES, crate::Pages::Small).unwrap();
        let outcome = Watched::new(shared.address() as usize, shared.length());
        assert!(outcome.is_err(), "memory with a file is watched");
        let mapping = Mapping::new(4 * PAGE_BYTES);
        let hole = Mapping { address: mapping.address + PAGE_BYTES, length: PAGE_BYTES };
        hole.end();
        assert!(Watched::new(mapping.address, mapping.length).is_err());
        mapping.end();
    }

    /// Some threads map, watch, unmap and map again at the same addresses, while others query. No
    /// thread that has seen a mapping unmapped finds it current.
    #[test]
    fn nothing_is_current_behind_its_end() {
        const ROUNDS: usize = 1_000;
        const THREADS: usize = 4;
        let probe = Mapping::new(PAGE_BYTES);
        if watched(&probe).is_none() {
            return;
        }
        let stale = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mapping = Mapping::new(16 * PAGE_BYTES);
                    let place = mapping.address;
                    for round in 0..ROUNDS {
                        let watched = watched(&mapping).unwrap();
                        assert!(watched.is_unmarked());
                        let gone = Mapping::at(place + round % 16 * PAGE_BYTES, PAGE_BYTES);
                        gone.fill(round as u8);
                        stale.fetch_add(usize::from(watched.is_current()), Ordering::Relaxed);
                    }
                    mapping.end();
                });
            }
        });
        assert_eq!(stale.into_inner(), 0);
        probe.end();
    }

    /// The kernel gives a thread the addresses that another thread has just unmapped, before the
    /// other thread's call has returned and perhaps before the event was read.
    #[test]
    fn nothing_is_current_at_addresses_that_were_given_to_another() {
        const ROUNDS: usize = 3_000;
        const THREADS: usize = 4;
        let probe = Mapping::new(PAGE_BYTES);
        if watched(&probe).is_none() {
            return;
        }
        let known: Mutex<HashMap<usize, Watched>> = Mutex::default();
        let met = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mapping = Mapping::new(16 * PAGE_BYTES);
                        let mut known = known.lock().unwrap();
                        if let Some(former) = known.remove(&mapping.address) {
                            assert!(!former.is_current(), "another's mapping is taken for it");
                            met.fetch_add(1, Ordering::Relaxed);
                        }
                        if let Ok(watched) = Watched::new(mapping.address, mapping.length) {
                            known.insert(mapping.address, watched);
                        }
                        drop(known);
                        mapping.end();
                    }
                });
            }
        });
        assert!(met.into_inner() > 0, "no address was given twice");
        probe.end();
    }
}
