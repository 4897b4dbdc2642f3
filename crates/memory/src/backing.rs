//! The origin of the bytes of a [`Memory`], and their lifetime.
//!
//! Invariant: `base..base + length` stays mapped (or allocated) and writable until the last clone
//! is dropped. Memory imported without write access stays readable, but is not writable.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::HUGE_PAGE_BYTES;

/// The page size that an allocation requests. Huge pages are a hint: if there are none, the kernel
/// maps small pages, and only the speed differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of 4 KiB.
    Small,
    /// Pages of 2 MiB, if the kernel has any.
    Huge,
}

/// The reason why a memory file of another process is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is not sealed, so it could shrink during use, and an access past its new end would
    /// kill the process.
    #[error("memory file is not sealed against shrinking; the peer must set F_SEAL_SHRINK")]
    NotSealed,
    /// The file has huge pages. If the kernel has no free huge page, an access to the memory kills
    /// the process. In addition, such memory can only be unmapped in whole huge pages.
    #[error("memory file has huge pages (MFD_HUGETLB); the peer must use ordinary pages")]
    HugePages,
    /// The file is shorter than its owner announced.
    #[error("memory file has {actual} bytes, but its owner announced {announced}")]
    TooShort {
        /// The announced number of bytes.
        announced: usize,
        /// The actual number of bytes.
        actual: u64,
    },
    /// The length is zero or exceeds the size of the address space.
    #[error("memory of {0} bytes cannot be mapped")]
    BadLength(usize),
    /// The kernel refused the mapping.
    #[error("the peer's memory file cannot be mapped")]
    System(#[from] io::Error),
}

/// A range of bytes in memory. Clones are cheap, and all clones share the same bytes.
#[derive(Clone)]
pub struct Memory(Arc<Backing>);

struct Backing {
    base: NonNull<u8>,
    length: usize,
    kind: Kind,
    /// The number of device registrations that pin the pages. The lock is held while pages are
    /// discarded, so that no device pins them meanwhile.
    pins: Mutex<u32>,
}

/// A reference for a device with which the memory is registered. It keeps the memory alive and its
/// pages in place.
#[derive(Debug)]
pub struct Pinned(Memory);

enum Kind {
    /// Private pages of this process, without a file.
    Anonymous { map_base: NonNull<u8>, map_length: usize },
    /// A memory file of this process; the descriptor is kept so that it can be passed to another
    /// process.
    File(OwnedFd),
    /// A memory file of a peer. The mapping keeps the memory alive. The descriptor is closed, so
    /// that peers cannot exhaust this process's descriptors.
    Imported,
    /// A heap buffer, kept only for its destructor.
    Heap { _owner: Box<[u8]> },
    /// Memory of another owner, which stays valid until the owner is dropped.
    Owned { _owner: Box<dyn Any + Send + Sync> },
}

// SAFETY: only this value owns the pointer, which stays valid until drop. Drop needs the last
// clone. All accesses are copies through raw pointers, which assume no exclusive access.
unsafe impl Send for Backing {}
// SAFETY: as for `Send`; no method creates a reference to the bytes.
unsafe impl Sync for Backing {}

impl Memory {
    /// Allocates private memory of `length` zeroed bytes. The kernel allocates its pages when they
    /// are first used.
    ///
    /// # Errors
    /// `InvalidInput` if `length` is zero; otherwise the error of `mmap`.
    pub fn anonymous(length: usize, pages: Pages) -> io::Result<Self> {
        let slack = if pages == Pages::Huge { HUGE_PAGE_BYTES } else { 0 };
        let map_length = checked_length(length)?
            .checked_add(slack)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses affects no
        // existing memory.
        let map = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                map_length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let map_base = NonNull::new(map.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let shift = if slack == 0 { 0 } else { map_base.as_ptr().align_offset(HUGE_PAGE_BYTES) };
        // SAFETY: shift < slack, so the result lies inside the mapping.
        let base = unsafe { map_base.add(shift) };
        advise(base, length, pages);
        let kind = Kind::Anonymous { map_base, map_length };
        Ok(Self(Arc::new(Backing { base, length, kind, pins: Mutex::default() })))
    }

    /// Allocates memory that can be passed to another process: a memory file that is sealed so that
    /// neither process can change its size.
    ///
    /// # Errors
    /// `InvalidInput` if `length` is zero; otherwise the error of `memfd_create`, `ftruncate`,
    /// `fcntl` or `mmap`.
    pub fn shared(length: usize, pages: Pages) -> io::Result<Self> {
        let file_length = checked_length(length)?.next_multiple_of(crate::PAGE_BYTES);
        let fd = rustix::fs::memfd_create(
            "dafs-memory",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, file_length as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let base = map_file(fd.as_fd(), file_length, true, pages)?;
        Ok(Self(Arc::new(Backing { base, length, kind: Kind::File(fd), pins: Mutex::default() })))
    }

    /// Maps a memory file that another process has passed to this one. The caller keeps the
    /// descriptor, which the mapping does not need.
    ///
    /// The first system call on the descriptor queries the seals, which never blocks. Only memory
    /// files have seals; on any other file, no further system call is made.
    ///
    /// # Errors
    /// [`ImportError`] unless the file is sealed against shrinking, has pages of the usual size,
    /// and is at least as long as announced.
    pub fn import(fd: impl AsFd, length: usize, writable: bool) -> Result<Self, ImportError> {
        let fd = fd.as_fd();
        checked_length(length).map_err(|_| ImportError::BadLength(length))?;
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(io::Error::from)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(ImportError::NotSealed);
        }
        if rustix::fs::fstatfs(fd).map_err(io::Error::from)?.f_type == libc::HUGETLBFS_MAGIC {
            return Err(ImportError::HugePages);
        }
        let actual = rustix::fs::fstat(fd).map_err(io::Error::from)?.st_size as u64;
        if actual < length as u64 {
            return Err(ImportError::TooShort { announced: length, actual });
        }
        let base = map_file(fd, length, writable, Pages::Huge)?;
        Ok(Self(Arc::new(Backing { base, length, kind: Kind::Imported, pins: Mutex::default() })))
    }

    /// Wraps a heap buffer, so that it can be lent to a transport.
    #[must_use]
    pub fn from_heap(bytes: Box<[u8]>) -> Self {
        let mut owner = bytes;
        let length = owner.len();
        let base = NonNull::new(owner.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self(Arc::new(Backing {
            base,
            length,
            kind: Kind::Heap { _owner: owner },
            pins: Mutex::default(),
        }))
    }

    /// Wraps the application's own memory. `owner` is dropped together with the last clone, after
    /// all transfers and devices have stopped using the memory.
    ///
    /// # Safety
    /// The `length` bytes at `base` must be mapped, readable and writable until `owner` is dropped.
    /// Until then no other memory may be mapped at these addresses, and no reference to the bytes
    /// may exist while another party may write them.
    #[must_use]
    pub unsafe fn of_owner(
        base: NonNull<u8>,
        length: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let kind = Kind::Owned { _owner: owner };
        Self(Arc::new(Backing { base, length, kind, pins: Mutex::default() }))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.length
    }

    /// Returns the address of the first byte in this process. Segments sent to peers contain it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.base.as_ptr() as u64
    }

    /// Returns the descriptor of the memory file; `None` if the memory is not a file that can be
    /// passed on.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.kind {
            Kind::File(fd) => Some(fd.as_fd()),
            Kind::Anonymous { .. } | Kind::Imported | Kind::Heap { .. } | Kind::Owned { .. } => {
                None
            }
        }
    }

    /// Returns a raw pointer to the bytes at `offset`, for transports that pass ranges to the
    /// kernel or access them atomically. The caller must keep a clone of the memory alive while it
    /// uses the pointer.
    ///
    /// # Panics
    /// Panics if `offset..offset + length` is not within the memory. Ranges that come from another
    /// process are validated when they are received.
    #[must_use]
    #[inline]
    pub fn pointer(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(self.contains(offset, length), "range {offset}+{length} outside the memory");
        // SAFETY: offset <= length of the allocation, as just checked.
        unsafe { self.0.base.as_ptr().add(offset) }
    }

    /// Returns true if `offset..offset + length` lies within the memory.
    #[must_use]
    #[inline]
    pub fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.0.length && length <= self.0.length - offset
    }

    /// Returns true if both values refer to the same allocation.
    #[must_use]
    pub fn is_same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes the kernel allocate and clear the pages of a range, so that no thread has to wait for
    /// that when it first uses them. This may take milliseconds. The contents are unchanged, even
    /// if other threads use the range at the same time. Has no effect on memory other than private
    /// pages, or before Linux 5.14.
    pub fn populate(&self, offset: usize, length: usize) {
        if let Kind::Anonymous { .. } = &self.0.kind {
            let pointer = self.pointer(offset, length);
            let advice = Advice::LinuxPopulateWrite;
            // SAFETY: the range is inside a private mapping of this value, and no byte changes.
            let _ = unsafe { rustix::mm::madvise(pointer.cast(), length, advice) };
        }
    }

    /// Returns the pages of a range to the kernel, so that the range then reads as zeros. Has no
    /// effect on memory other than private pages, or on pinned memory: a device would continue to
    /// use the former pages, while the processor would use others.
    pub fn discard(&self, offset: usize, length: usize) {
        let pins = self.pins();
        if let (Kind::Anonymous { .. }, 0) = (&self.0.kind, *pins) {
            let pointer = self.pointer(offset, length);
            // SAFETY: the range is inside a private mapping of this value. Its bytes are discarded
            // on purpose, and no references to them exist.
            let _ = unsafe { rustix::mm::madvise(pointer.cast(), length, Advice::LinuxDontNeed) };
        }
    }
}

impl Memory {
    /// Keeps the pages in place until the returned value is dropped.
    #[must_use]
    pub fn pin(&self) -> Pinned {
        *self.pins() += 1;
        Pinned(self.clone())
    }

    fn pins(&self) -> std::sync::MutexGuard<'_, u32> {
        self.0.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pinned {
    /// Returns the pinned memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        *self.0.pins() -= 1;
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("length", &self.0.length).finish_non_exhaustive()
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let (base, length) = match &self.kind {
            Kind::Anonymous { map_base, map_length } => (*map_base, *map_length),
            Kind::File(_) | Kind::Imported => (self.base, self.length),
            Kind::Heap { .. } | Kind::Owned { .. } => return,
        };
        // The memory is unmapped in parts, so that other threads that map or unmap memory wait only
        // for one part.
        let mut done = 0;
        while done < length {
            let part = (length - done).min(UNMAPPED_AT_ONCE);
            // SAFETY: this part belongs to the range mapped for this value and is unmapped once.
            let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().add(done).cast(), part) };
            if unmapped.is_err() {
                LOST_MAPPINGS.fetch_add(1, Ordering::Relaxed);
                return;
            }
            done += part;
        }
    }
}

/// Returns the number of mappings that the kernel refused to unmap. They stay mapped until the
/// process ends, so a limit for the number of mappings must include them.
#[must_use]
pub fn lost_mappings() -> usize {
    LOST_MAPPINGS.load(Ordering::Relaxed)
}

static LOST_MAPPINGS: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes that one call unmaps, in whole huge pages.
const UNMAPPED_AT_ONCE: usize = 32 * HUGE_PAGE_BYTES;

fn checked_length(length: usize) -> io::Result<usize> {
    if length == 0 || length > isize::MAX as usize / 2 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("cannot allocate {length} bytes"),
        ));
    }
    Ok(length)
}

/// Maps a memory file, aligned for huge pages if it is long enough.
fn map_file(
    fd: BorrowedFd<'_>,
    length: usize,
    writable: bool,
    pages: Pages,
) -> io::Result<NonNull<u8>> {
    let mut protection = ProtFlags::READ;
    if writable {
        protection |= ProtFlags::WRITE;
    }
    let is_huge = pages == Pages::Huge && length >= HUGE_PAGE_BYTES;
    let (place, flags) = if is_huge {
        (reserve_aligned(length)?, MapFlags::SHARED | MapFlags::FIXED)
    } else {
        (std::ptr::null_mut(), MapFlags::SHARED)
    };
    // SAFETY: this is a new mapping, at an address that the kernel chooses or over the range
    // reserved just now. The file is sealed against shrinking, so no access inside `length` can
    // fault.
    let map = match unsafe { rustix::mm::mmap(place, length, protection, flags, fd, 0) } {
        Ok(map) => map,
        Err(error) => {
            if is_huge {
                let reserved = length.next_multiple_of(crate::PAGE_BYTES);
                // SAFETY: this is the range reserved above, and nothing was mapped there.
                let given_back = unsafe { rustix::mm::munmap(place, reserved) };
                LOST_MAPPINGS.fetch_add(usize::from(given_back.is_err()), Ordering::Relaxed);
            }
            return Err(error.into());
        }
    };
    let base = NonNull::new(map.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    advise(base, length, pages);
    Ok(base)
}

/// Reserves addresses for `length` bytes in whole pages, starting at a multiple of a huge page.
fn reserve_aligned(length: usize) -> io::Result<*mut std::ffi::c_void> {
    let length = length.next_multiple_of(crate::PAGE_BYTES);
    let map_length = length.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new inaccessible mapping at an address that the kernel chooses.
    let map = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), map_length, ProtFlags::empty(), flags)?
    };
    let shift = map.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
    // SAFETY: shift < HUGE_PAGE_BYTES, so head, range and tail lie inside the mapping. Head and
    // tail are unmapped; they are whole pages to which nothing refers.
    unsafe {
        let base = map.cast::<u8>().add(shift);
        if shift > 0 {
            rustix::mm::munmap(map, shift)?;
        }
        rustix::mm::munmap(base.add(length).cast(), HUGE_PAGE_BYTES - shift)?;
        Ok(base.cast())
    }
}

fn advise(base: NonNull<u8>, length: usize, pages: Pages) {
    if pages == Pages::Huge && length >= HUGE_PAGE_BYTES {
        // SAFETY: this is advice for pages of a new mapping, and a failure changes nothing.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxHugepage) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_seen_through_both_mappings() {
        let ours = Memory::shared(10_000, Pages::Small).unwrap();
        let fd = ours.file().unwrap().try_clone_to_owned().unwrap();
        let theirs = Memory::import(fd, 10_000, true).unwrap();
        ours.write(9_990, b"0123456789");
        let mut seen = [0; 10];
        theirs.read(9_990, &mut seen);
        assert_eq!(&seen, b"0123456789");
    }

    #[test]
    fn an_owner_goes_with_the_last_clone() {
        let owner = Arc::new(());
        let mut bytes = vec![1; 100];
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the bytes outlive the memory and are not read before it is dropped.
        let ours = unsafe { Memory::of_owner(base, 100, Box::new(Arc::clone(&owner))) };
        let other = ours.clone();
        drop(ours);
        other.write(98, &[2, 3]);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(other);
        assert_eq!((Arc::strong_count(&owner), &bytes[97..]), (1, &[1, 2, 3][..]));
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let fd = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(matches!(Memory::import(fd, 4096, true), Err(ImportError::NotSealed)));
    }

    #[test]
    fn a_file_shorter_than_announced_is_refused() {
        let ours = Memory::shared(4096, Pages::Small).unwrap();
        let fd = ours.file().unwrap().try_clone_to_owned().unwrap();
        assert!(matches!(Memory::import(fd, 4097, true), Err(ImportError::TooShort { .. })));
    }

    #[test]
    fn a_file_on_huge_pages_is_refused_and_leaves_no_mapping() {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without huge pages supports no such files.
        let Ok(fd) = rustix::fs::memfd_create("huge", flags) else { return };
        rustix::fs::ftruncate(&fd, HUGE_PAGE_BYTES as u64).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        for length in [4096, HUGE_PAGE_BYTES] {
            assert!(matches!(Memory::import(&fd, length, true), Err(ImportError::HugePages)));
        }
    }

    #[test]
    fn a_file_that_cannot_be_mapped_leaves_nothing_reserved() {
        let fd = rustix::fs::memfd_create("unwritable", MemfdFlags::ALLOW_SEALING).unwrap();
        // The mappings together exceed the address space, so a leaked one would be noticed.
        let length = 1 << 40;
        rustix::fs::ftruncate(&fd, length as u64).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        for _ in 0..300 {
            match Memory::import(&fd, length, true) {
                Err(ImportError::System(error)) => {
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn memory_longer_than_one_unmapping_goes_whole() {
        let length = 3 * UNMAPPED_AT_ONCE + 4096;
        let ours = Memory::shared(length, Pages::Small).unwrap();
        let file = ours.file().unwrap().try_clone_to_owned().unwrap();
        let theirs = Memory::import(&file, length, true).unwrap();
        let range = (theirs.address(), theirs.address() + length as u64);
        drop(theirs);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_there = maps.lines().any(|line| {
            let (start, _) = line.split_once('-').unwrap();
            let start = u64::from_str_radix(start, 16).unwrap();
            start >= range.0 && start < range.1 && line.contains("memfd:dafs-memory")
        });
        assert!(!is_there, "{maps}");
        assert_eq!(lost_mappings(), 0);
    }

    #[test]
    fn a_sealed_file_cannot_be_truncated_by_anybody() {
        let ours = Memory::shared(4096, Pages::Small).unwrap();
        assert!(rustix::fs::ftruncate(ours.file().unwrap(), 0).is_err());
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn a_range_beyond_the_end_is_our_own_bug() {
        let ours = Memory::anonymous(4096, Pages::Small).unwrap();
        let _ = ours.pointer(4000, 97);
    }

    #[test]
    fn discarded_pages_read_as_zeros() {
        let ours = Memory::anonymous(8192, Pages::Small).unwrap();
        ours.write(0, &[7; 8192]);
        ours.discard(4096, 4096);
        let mut bytes = [1; 8192];
        ours.read(0, &mut bytes);
        assert!(bytes[..4096].iter().all(|b| *b == 7) && bytes[4096..].iter().all(|b| *b == 0));
    }

    #[test]
    fn populated_pages_are_there_and_keep_what_they_hold() {
        let ours = Memory::anonymous(4 * 4096, Pages::Small).unwrap();
        ours.write(4096, &[7; 4096]);
        let resident = || {
            let mut pages = [0u8; 4];
            let start = ours.pointer(0, 4 * 4096);
            // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
            let told = unsafe { libc::mincore(start.cast(), 4 * 4096, pages.as_mut_ptr()) };
            assert_eq!(told, 0);
            pages.map(|page| page & 1)
        };
        assert_eq!(resident(), [0, 1, 0, 0]);
        ours.populate(0, 3 * 4096);
        assert_eq!(resident(), [1, 1, 1, 0]);
        assert_eq!(ours.to_vec(4096, 4096), [7; 4096]);
        assert_eq!(ours.to_vec(0, 4096), [0; 4096]);
    }

    #[test]
    fn pinned_pages_stay() {
        let ours = Memory::anonymous(4096, Pages::Small).unwrap();
        ours.write(0, &[7; 4096]);
        let pins = [ours.pin(), ours.clone().pin()];
        ours.discard(0, 4096);
        assert_eq!(ours.to_vec(0, 4096), [7; 4096]);
        drop(pins);
        ours.discard(0, 4096);
        assert_eq!(ours.to_vec(0, 4096), [0; 4096]);
    }
}
