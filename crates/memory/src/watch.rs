//! Ranges of the process's own memory, watched for what makes them other memory: unmapped,
//! moved, or their pages given back to the kernel.
//!
//! Invariant: once a watched range has been unmapped or moved, or other memory mapped over it,
//! [`Watched::is_current`] is false for every thread: also for one that the kernel has given the
//! same addresses before the call that unmapped them has returned to its own. Once `madvise` has
//! given pages of it back, it is false as well. Whoever has told a device of the memory relies
//! on it: a translation that has outlived its memory would give one buffer's bytes to another.
//!
//! The kernel tells of such calls through a userfault file, and keeps the caller waiting until
//! that is read. A thread of our own reads it, between two counts of an epoch: from before the
//! first read to behind the last mark the epoch is odd, and whoever asks then waits. What is
//! under way and has not been read yet is found out by asking the kernel: it counts a change
//! before it makes it, until its caller has heard that the file was read, and meanwhile refuses
//! to protect anything against writes (`Watch::is_settled`). So whoever asks behind a change
//! finds it under way, or the epoch odd, or the mark set.
//!
//! Of pages that are given back the kernel tells before it takes them. A range that is watched
//! anew between the two would not be told of again; so none is for [`SETTLING`].
//!
//! A process that is forked off has its own memory, of which nobody tells: there nothing is
//! current, and what is dropped leaves the parent's watches alone.
//!
//! That thread frees nothing while anybody may wait for it: what it would give back to the kernel
//! could itself be watched. And only private memory without a file is watched: of a file's pages
//! the kernel does not tell when they are cut off.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::PAGE_BYTES;

/// Why memory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel gives this process no userfault file.
    #[error(
        "this kernel does not tell of memory that is unmapped (userfaultfd, Linux 5.18): memory \
         of the application's own is registered anew each time"
    )]
    Unavailable {
        /// What it says.
        source: io::Error,
    },
    /// The range is not private memory without a file all through.
    #[error(
        "{length} bytes at {address:#x} are not private memory of the heap, a stack or an \
         anonymous mapping, and cannot be watched"
    )]
    Unsuitable {
        /// First byte.
        address: usize,
        /// Bytes.
        length: usize,
    },
    /// The kernel does not watch the range.
    #[error("the kernel does not watch {length} bytes at {address:#x}")]
    Refused {
        /// First byte.
        address: usize,
        /// Bytes.
        length: usize,
        /// Why.
        source: io::Error,
    },
    /// So many ranges are watched that no more may be.
    #[error("{RANGES_MAX} ranges of memory are watched already")]
    Full,
    /// The process's memory is being changed, or pages of the range were given back lately.
    #[error("{length} bytes at {address:#x} are being changed")]
    Unsettled {
        /// First byte.
        address: usize,
        /// Bytes.
        length: usize,
    },
}

/// A range that is watched for as long as this lives.
#[derive(Debug)]
pub struct Watched {
    watch: &'static Watch,
    place: usize,
}

impl Watched {
    /// Watches `length` bytes at `address`, to whole pages. The memory must be mapped.
    ///
    /// # Errors
    /// See [`WatchError`]; a range that cannot be watched can be used all the same, if whoever
    /// uses it looks after it.
    pub fn new(address: usize, length: usize) -> Result<Self, WatchError> {
        Watch::of_process()?.begin(address, length)
    }

    /// Whether the memory has been the same since the watch began. False also when it cannot be
    /// found out because the process's memory is being changed just now.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.watch.is_home() && self.watch.is_settled() && self.is_unmarked()
    }

    /// Whether nothing has been told of the memory so far; more may be on its way. Cheap.
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
            // The thread that reads may wait for this processor.
            std::thread::yield_now();
        }
    }

    /// A number that is another one once anything was told of any range.
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
        // The file of a process that was forked off is its parent's, and so are the ranges.
        if self.watch.is_home() {
            self.watch.end(self.place);
        }
    }
}

/// What the process watches.
#[derive(Debug)]
struct Watch {
    file: OwnedFd,
    /// Odd while events are taken in.
    epoch: AtomicU64,
    ranges: Box<[Range]>,
    /// Pages that were given back lately, the oldest overwritten by the newest.
    given_back: [GivenBack; GIVEN_BACK_MAX],
    given_back_count: AtomicUsize,
    begun: Instant,
    /// A page that a process that is forked off finds empty.
    home: AtomicPtr<u8>,
    /// The kernel has counted a change for long, and may never end: some lose count of moves
    /// that fail.
    is_doubtful: AtomicBool,
    /// Places that are not in use; held while ranges begin and end.
    free: Mutex<Vec<usize>>,
}

/// One range. All of it is marks that a thread may set at any moment.
#[derive(Debug, Default)]
struct Range {
    /// First byte; equal to `end` where nothing is watched.
    start: AtomicU64,
    end: AtomicU64,
    is_current: AtomicBool,
}

/// Pages given back to the kernel, and when, in milliseconds.
#[derive(Debug, Default)]
struct GivenBack {
    start: AtomicU64,
    end: AtomicU64,
    at: AtomicU64,
}

static WATCH: OnceLock<Result<Watch, i32>> = OnceLock::new();

impl Watch {
    /// The process's own; begun when it is first needed, and never ended.
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
        // SAFETY: takes flags alone, and gives a file or -1.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just given it to us, and nobody else has it.
        let file = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let mut api = Api { api: API, features: FEATURES, ioctls: 0 };
        // SAFETY: UFFDIO_API reads and writes one `struct uffdio_api`, which `Api` is.
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

    /// Whether this is the process that began, and none that it has forked off.
    fn is_home(&self) -> bool {
        // SAFETY: a page that is mapped for ever; nobody writes it but the kernel, in a process
        // that has just been forked off.
        unsafe { self.home.load(Ordering::Relaxed).read_volatile() == HOME }
    }

    /// Whether all changes that were begun before this call have been read from the file. The
    /// kernel answers EAGAIN to such a request while it counts any change that its maker has not
    /// come back from, and EINVAL otherwise: nothing is what it would protect.
    fn is_settled(&self) -> bool {
        let mut begun = None;
        loop {
            let mut nothing = WriteProtect { range: Span { start: 0, length: 0 }, mode: 0 };
            // SAFETY: UFFDIO_WRITEPROTECT reads one `struct uffdio_writeprotect`, which
            // `WriteProtect` is.
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
            // Whoever made the change may wait for this processor.
            std::thread::yield_now();
        }
    }

    /// Whether pages of a range were given back so lately that it may not be over yet.
    fn is_settling(&self, start: u64, end: u64) -> bool {
        let now = self.now_ms();
        let is_late = |at: u64| now < at.saturating_add(SETTLING.as_millis() as u64);
        let count = self.given_back_count.load(Ordering::Acquire);
        let newest = &self.given_back[count % GIVEN_BACK_MAX];
        // So many at once that some were overwritten.
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
        // From here on it is marked by whatever happens to it.
        let range = &self.ranges[place];
        range.is_current.store(true, Ordering::Relaxed);
        range.end.store(end as u64, Ordering::Relaxed);
        range.start.store(start as u64, Ordering::Release);
        let mut register = Register {
            range: Span { start: start as u64, length: (end - start) as u64 },
            mode: MODE_WRITE_PROTECT,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_REGISTER reads and writes one `struct uffdio_register`, which `Register`
        // is. Nothing is write-protected by it: it only has events told.
        let registered = unsafe { ioctl(&self.file, UFFDIO_REGISTER, &mut register) };
        if let Err(source) = registered {
            range.clear();
            free.push(place);
            return Err(match source.raw_os_error() {
                // So it says of what is not mapped, and of files.
                Some(libc::EINVAL | libc::ENOMEM) => WatchError::Unsuitable { address, length },
                _ => WatchError::Refused { address, length, source },
            });
        }
        drop(free);
        let watched = Watched { watch: self, place };
        // Looked at once it is watched, so that what comes after the look is told.
        if !is_private(start as u64, end as u64) {
            return Err(WatchError::Unsuitable { address, length });
        }
        if self.is_settling(start as u64, end as u64) || !watched.is_current() {
            return Err(WatchError::Unsettled { address, length });
        }
        Ok(watched)
    }

    /// Nobody asks for a range any more: the kernel need not tell of it, unless for another.
    fn end(&self, place: usize) {
        let mut free = self.lock();
        let (mut start, end) = self.ranges[place].span();
        self.ranges[place].clear();
        free.push(place);
        while start < end {
            // As far as no other range reaches.
            let reaching = self.ranges.iter().map(Range::span).filter(|span| span.0 < end);
            let others: Option<(u64, u64)> = reaching.filter(|span| span.1 > start).min();
            let until = others.map_or(end, |span| span.0.clamp(start, end));
            if start < until {
                let mut span = Span { start, length: until - start };
                // SAFETY: UFFDIO_UNREGISTER reads one `struct uffdio_range`, which `Span` is. What
                // is not mapped any more, or not registered, stays as it is.
                let _ = unsafe { ioctl(&self.file, UFFDIO_UNREGISTER, &mut span) };
            }
            start = others.map_or(end, |span| span.1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes events in. Allocates nothing and frees nothing.
    fn take_in_for_ever(&self) {
        loop {
            let mut poll =
                libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one `struct pollfd`, which lives for the call.
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
        // SAFETY: a read of up to the size of `Event`, which is `struct uffd_msg` and takes any
        // bytes.
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

/// A page for [`Watch::is_home`].
fn home_page() -> io::Result<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: fresh memory, where the kernel likes.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page was mapped just now, and nobody else knows it.
    let advised = unsafe {
        page.cast::<u8>().write(HOME);
        libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK)
    };
    if advised == 0 { Ok(page.cast()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a range is private memory without a file all through, as the kernel lists it.
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

/// `start-end perms offset device inode [name]`.
fn parse(line: &str) -> Option<(u64, u64, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (from, until) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(from)?, number(until)?, rights.ends_with('p') && inode == "0"))
}

/// # Safety
/// `request` must read and write no more than one `T`.
unsafe fn ioctl<T>(file: &OwnedFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: as the caller says; the argument lives for the call.
    let result = unsafe {
        libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument))
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct Span {
    start: u64,
    length: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct WriteProtect {
    range: Span,
    mode: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

/// `struct uffd_msg`, for the events that have three numbers or two.
#[repr(C)]
struct Event {
    kind: u8,
    reserved: [u8; 7],
    arguments: [u64; 3],
}

const _: () = assert!(size_of::<Event>() == 32);

/// From `linux/userfaultfd.h`.
const API: u64 = 0xAA;
const USER_MODE_ONLY: i32 = 1;
/// Events of moves, of pages given back and of unmappings; and exact addresses of faults, which
/// kernels have that count all changes that are under way.
const FEATURES: u64 = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 11;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_WRITEPROTECT: u64 = 0xC018_AA06;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_UNREGISTER: u64 = 0x8010_AA01;

/// Ranges that a process may watch.
const RANGES_MAX: usize = 4096;
/// What is remembered of pages that were given back.
const GIVEN_BACK_MAX: usize = 64;
/// How long after pages of a range were given back the range is not watched anew.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a change that is under way is waited for.
const PATIENCE: Duration = Duration::from_millis(10);
/// What [`Watch::home`] has in the process that began.
const HOME: u8 = 1;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A mapping, as a plain program makes it.
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
            // SAFETY: private memory, either where the kernel likes or over a mapping of a test.
            let mapped = unsafe { libc::mmap(address as *mut _, length, rights, flags, -1, 0) };
            assert_ne!(mapped, libc::MAP_FAILED);
            Self { address: mapped as usize, length }
        }

        fn fill(&self, with: u8) {
            // SAFETY: the whole of a mapping that lives.
            unsafe { std::ptr::write_bytes(self.address as *mut u8, with, self.length) };
        }

        fn end(self) {
            // SAFETY: a mapping that nobody uses any more.
            assert_eq!(unsafe { libc::munmap(self.address as *mut _, self.length) }, 0);
        }
    }

    /// A watch, or `None` with a word where the kernel has none.
    fn watched(mapping: &Mapping) -> Option<Watched> {
        loop {
            match Watched::new(mapping.address, mapping.length) {
                Ok(watched) => return Some(watched),
                // Other tests change memory of this process.
                Err(WatchError::Unsettled { .. }) => std::thread::yield_now(),
                Err(WatchError::Unavailable { source }) => {
                    eprintln!("\n*** SKIPPED: this kernel watches no memory: {source}\n");
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
        // Other memory at the same place is watched by itself.
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
        // SAFETY: over pages of the test's own mapping.
        Mapping::at(page(2), PAGE_BYTES);
        assert_eq!([&low, &both, &high].map(Watched::is_unmarked), [false, false, true]);
        // What another range needs goes on being watched when one ends.
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
        // SAFETY: a page of the test's own mapping, whose bytes nobody needs.
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
        // SAFETY: the child asks what needs neither a lock nor memory, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_current = watched.is_current();
            drop(watched);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(is_current)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child, whose status goes to a place that lives.
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
        // SAFETY: the test's own mapping, which nobody points into.
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

    /// Threads map, watch, unmap and map again at the same places, while others ask: nobody who
    /// has seen the end of a mapping is told that it is current.
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

    /// The kernel gives a thread the addresses that another has just unmapped, before the other's
    /// call has returned and perhaps before anybody was told of it.
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
