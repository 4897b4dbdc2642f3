//! Maps a file of another owner for reading. The file may be truncated at any time.
//!
//! Accessing a mapping beyond the end of its file raises SIGBUS. A signal handler then maps zero
//! pages at that address and marks the view, so that code that copies out of the view gets an error
//! and reads the file by a system call instead. SIGBUS for any other address goes to the previous
//! handler.
//!
//! Invariants: no reference to mapped bytes is ever created. A view is in [`GUARDED`] exactly while
//! it is mapped, and no other mapping uses its range of addresses during that time.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::{LINE_BYTES, PAGE_BYTES, prefetch};

/// A file mapped for reading, from its start.
#[derive(Debug)]
pub struct FileView {
    base: NonNull<u8>,
    length: usize,
    place: &'static Guarded,
}

// SAFETY: the mapping belongs to the view and is only read by copying. The kernel and other
// processes may change it at any time, whichever thread reads.
unsafe impl Send for FileView {}
// SAFETY: as for `Send`.
unsafe impl Sync for FileView {}

/// The error for a truncated file: the copied bytes may include zeros that the file never
/// contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file was truncated while it was mapped")]
pub struct Cut;

/// A range of addresses in which the handler handles faults.
#[derive(Debug)]
struct Guarded {
    /// The first address of the range; 0 for an unused slot, 1 for a slot that is being filled.
    start: AtomicUsize,
    /// The address after the range.
    end: AtomicUsize,
    /// True if the handler has mapped zero pages in the range.
    is_cut: AtomicBool,
}

impl FileView {
    /// Maps the first `length` bytes of a regular file.
    ///
    /// # Errors
    /// `InvalidInput` if `length` is zero; the system's error; `OutOfMemory` if there are already
    /// [`VIEWS_MAX`] views.
    pub fn map(file: impl AsFd, length: usize) -> io::Result<Self> {
        if length == 0 || isize::try_from(length).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        catch_faults()?;
        let place = Guarded::take().ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: this creates a new mapping at an address that the kernel chooses.
        let mapped = unsafe {
            let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
            rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, 0)
        };
        let base = match mapped {
            Ok(base) => NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory),
            Err(error) => {
                place.start.store(FREE, Ordering::Release);
                return Err(error.into());
            }
        }?;
        place.is_cut.store(false, Ordering::Relaxed);
        let start = base.as_ptr().addr();
        place.end.store(start + length.next_multiple_of(PAGE_BYTES), Ordering::Relaxed);
        // The handler reads the other fields after this one.
        place.start.store(start, Ordering::SeqCst);
        Ok(Self { base, length, place })
    }

    /// Returns the number of mapped bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Copies bytes from `offset` of the file into `bytes`.
    ///
    /// # Errors
    /// [`Cut`] if this or an earlier access to the view found the file truncated.
    ///
    /// # Panics
    /// Panics if the range is not within the view.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Cut> {
        let is_inside = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length);
        assert!(is_inside, "a range inside the view");
        // SAFETY: the range lies in the mapping, which lives as long as the view. The handler
        // replaces a page that the file no longer has. No reference to the source is made, and the
        // target cannot overlap a mapping to which no reference exists.
        unsafe {
            let from = self.base.as_ptr().add(offset);
            // The page is usually not in the processor's caches, so all its lines are prefetched
            // before the copy.
            for ahead in (0..bytes.len().min(PAGE_BYTES)).step_by(LINE_BYTES) {
                prefetch(from.wrapping_add(ahead));
            }
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        // If the handler ran, it ran on this thread.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        if self.place.is_cut.load(Ordering::Acquire) { Err(Cut) } else { Ok(()) }
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        // No thread reads the view any more. First mark the slot as being changed, then unmap, then
        // free the slot: another mapping may get the same addresses immediately.
        self.place.start.store(FILLING, Ordering::SeqCst);
        // SAFETY: the mapping belongs to this view, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        self.place.start.store(FREE, Ordering::Release);
    }
}

impl Guarded {
    const fn free() -> Self {
        Self {
            start: AtomicUsize::new(FREE),
            end: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
        }
    }

    /// Reserves an unused slot.
    fn take() -> Option<&'static Self> {
        GUARDED.iter().find(|place| {
            let taken =
                place.start.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        })
    }

    /// Returns the start of the page that contains `address` and the number of bytes from there to
    /// the end of the range, if the address is in the range.
    fn rest_from(&self, address: usize) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::SeqCst);
        let end = self.end.load(Ordering::Relaxed);
        let is_ours = start > FILLING && (start..end).contains(&address);
        let page = address & !(PAGE_BYTES - 1);
        is_ours.then(|| (page, end - page))
    }
}

/// Installs the signal handler when the first view is created.
fn catch_faults() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: an all-zero `sigaction` is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: an all-zero `sigaction` is valid.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid. The first call only asks for the current handler.
        let found = unsafe {
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) == 0
                && BEFORE.set(before).is_ok()
                && libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) == 0
        };
        if found { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
    });
    installed.map_err(io::Error::from_raw_os_error)
}

/// Handles SIGBUS. Allocates nothing and takes no lock.
unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid description to a handler installed with SA_SIGINFO.
    let address = unsafe { (*information).si_addr() }.addr();
    for place in &GUARDED {
        let Some((page, length)) = place.rest_from(address) else { continue };
        place.is_cut.store(true, Ordering::SeqCst);
        // SAFETY: the range is the rest of a view's mapping. Nothing refers to it, and it stays
        // mapped while the view is read. `mmap` is a single system call.
        let put = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(page),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if put != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: the arguments come from the kernel.
    unsafe { pass_on(signal, information, context) }
}

/// Handles a signal in the way that was configured before there were views.
///
/// # Safety
/// Must be called only by a signal handler, with the arguments that the kernel passed to it.
unsafe fn pass_on(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: zeros mean the default action. The fault is raised again and ends the process.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        return;
    }
    if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
        type WithInformation =
            unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: `handler` was installed as a handler of this type.
        let handler = unsafe { std::mem::transmute::<usize, WithInformation>(handler) };
        // SAFETY: the arguments come from the kernel.
        unsafe { handler(signal, information, context) };
    } else {
        // SAFETY: `handler` was installed as a handler of this type.
        let handler =
            unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(libc::c_int)>(handler) };
        // SAFETY: the argument comes from the kernel.
        unsafe { handler(signal) };
    }
}

/// The maximum number of views in one process.
pub const VIEWS_MAX: usize = 256;
const FREE: usize = 0;
const FILLING: usize = 1;

static GUARDED: [Guarded; VIEWS_MAX] = [const { Guarded::free() }; VIEWS_MAX];
/// The handler of SIGBUS that was installed before the first view.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use rustix::fs::MemfdFlags;

    use super::*;

    /// Serializes the tests: slots belong to the process, and one test takes all of them.
    static ALONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(bytes: &[u8]) -> File {
        let file = rustix::fs::memfd_create("view", MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_view_shows_what_is_written_to_the_file() {
        let _alone = alone();
        let file = file(&[7; 10_000]);
        let view = FileView::map(&file, 10_000).unwrap();
        let mut bytes = [0; 4];
        view.read(9_996, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 4]);
        std::os::unix::fs::FileExt::write_all_at(&file, b"new", 5000).unwrap();
        view.read(5000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"new\x07");
    }

    #[test]
    fn who_reads_a_file_that_was_cut_is_told_and_lives() {
        let _alone = alone();
        let (file, other) = (file(&[7; 20_000]), file(&[8; 20_000]));
        let view = FileView::map(&file, 20_000).unwrap();
        let beside = FileView::map(&other, 20_000).unwrap();
        file.set_len(5000).unwrap();
        let mut bytes = [0; 100];
        assert_eq!(view.read(0, &mut bytes), Ok(()));
        assert_eq!(view.read(15_000, &mut bytes), Err(Cut));
        assert_eq!(view.read(0, &mut bytes), Err(Cut), "it is not believed any more");
        assert_eq!(beside.read(15_000, &mut bytes), Ok(()));
        assert_eq!(bytes, [8; 100]);
        drop(view);
        // A new view uses the slot and the addresses again.
        file.set_len(20_000).unwrap();
        let again = FileView::map(&file, 20_000).unwrap();
        assert_eq!(again.read(15_000, &mut bytes), Ok(()));
        assert_eq!(bytes, [0; 100]);
    }

    #[test]
    fn there_is_an_end_to_views() {
        let _alone = alone();
        let file = file(&[1; 100]);
        let mut views = Vec::new();
        let refused = loop {
            match FileView::map(&file, 100) {
                Ok(view) => views.push(view),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        views.clear();
        assert!(FileView::map(&file, 100).is_ok());
        assert_eq!(FileView::map(&file, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
