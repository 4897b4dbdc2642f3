//! Access to memory that the program passes to its calls.
//!
//! Invariant: an invalid pointer is never dereferenced and causes EFAULT, as in the kernel. A page
//! that was found valid is not checked again until the program releases or protects memory through
//! a call that this library sees: `munmap`, `mmap` with MAP_FIXED, `mremap`, `mprotect`,
//! `pkey_mprotect`, `shmdt`, and the same by number. If a program passes memory that it released by
//! a call that this library does not see (`free`), or that another thread releases meanwhile, the
//! program crashes, as it might without DAFS.
//!
//! The memory may be unaligned, which the kernel accepts. So it is never accessed by references to
//! types that need an alignment.

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::errors::{Outcome, fail};

/// The access that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The call reads the memory.
    Reading = 0,
    /// The call writes the memory.
    Writing = 1,
}

/// Checks that a range of memory is accessible.
///
/// # Errors
/// EFAULT if any part of it is not.
pub(crate) fn must_have(start: *const u8, length: usize, purpose: Purpose) -> Outcome<()> {
    let start = start as usize;
    let Some(last) = length.checked_sub(1) else { return Ok(()) };
    let Some(last) = start.checked_add(last) else { return fail(libc::EFAULT) };
    let unknown = |page: &usize| !is_known(*page, purpose);
    let pages = start / PAGE..=last / PAGE;
    let Some(first) = pages.clone().find(unknown) else { return Ok(()) };
    let last = pages.rev().find(unknown).unwrap_or(first);
    if !has(first, last, purpose) {
        return fail(libc::EFAULT);
    }
    (first..=last).for_each(|page| know(page, purpose));
    Ok(())
}

/// Returns a text in the program's memory, without its terminating zero. If the text is longer than
/// the longest path, returns only its beginning.
///
/// # Safety
/// The text does not change during the call.
///
/// # Errors
/// EFAULT if any part of the text is not readable.
pub(crate) unsafe fn text<'t>(start: *const c_char) -> Outcome<&'t [u8]> {
    // SAFETY: the caller guarantees that the text does not change.
    unsafe { text_within(start, TEXT_BYTES_MAX) }
}

/// Copies a list of texts as `exec` takes it: an array of pointers that ends with a null pointer. A
/// null list is empty, as in the kernel.
///
/// # Safety
/// The list and the texts do not change during the call.
///
/// # Errors
/// EFAULT if any part of them is not readable. E2BIG if a text is longer than the kernel allows.
pub(crate) unsafe fn texts(list: *const *const c_char) -> Outcome<Vec<CString>> {
    let mut held = Vec::new();
    if list.is_null() {
        return Ok(held);
    }
    for index in 0.. {
        // SAFETY: any bytes are a valid pointer, and the caller guarantees that they do not change.
        let start = unsafe { value(list.wrapping_add(index)) }?;
        if start.is_null() {
            break;
        }
        // SAFETY: the caller guarantees that the text does not change.
        let text = unsafe { text_within(start, ARGUMENT_BYTES_MAX) }?;
        if text.len() >= ARGUMENT_BYTES_MAX {
            return fail(libc::E2BIG);
        }
        held.push(CString::new(text).unwrap_or_default());
    }
    Ok(held)
}

/// Returns a text like [`text`], but at most about `limit` bytes of it.
///
/// # Safety
/// The text does not change during the call.
unsafe fn text_within<'t>(start: *const c_char, limit: usize) -> Outcome<&'t [u8]> {
    let start = start.cast::<u8>();
    let mut length = 0;
    while length < limit {
        let here = start.wrapping_add(length);
        let left = PAGE - here as usize % PAGE;
        must_have(here, left, Purpose::Reading)?;
        // SAFETY: this page was just checked.
        let part = unsafe { std::slice::from_raw_parts(here, left) };
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            length += end;
            break;
        }
        length += left;
    }
    // SAFETY: all pages of the text were checked.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// Reads a value from the program's memory.
///
/// # Safety
/// Any bytes are a valid value of this type, and the memory does not change during the call.
///
/// # Errors
/// EFAULT if the memory is not readable.
pub(crate) unsafe fn value<T: Copy>(start: *const T) -> Outcome<T> {
    must_have(start.cast(), size_of::<T>(), Purpose::Reading)?;
    // SAFETY: the memory was checked, and the caller guarantees that its bytes are a valid value.
    Ok(unsafe { start.read_unaligned() })
}

/// Writes a value into memory of the program.
///
/// # Safety
/// No reference to this memory exists.
///
/// # Errors
/// EFAULT if the memory is not writable.
pub(crate) unsafe fn put<T: Copy>(to: *mut T, value: T) -> Outcome<()> {
    must_have(to.cast(), size_of::<T>(), Purpose::Writing)?;
    // SAFETY: the memory was checked, and the caller guarantees that no reference to it exists.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Forgets all checked pages, because memory was released or its protection changed.
pub(crate) fn forget() {
    if KNOWS_ANY.swap(false, Ordering::AcqRel) {
        KNOWN.iter().flatten().for_each(|page| page.store(0, Ordering::Relaxed));
    }
}

/// A direct-mapped cache of the pages found accessible, for each kind of access.
static KNOWN: [[AtomicUsize; KNOWN_COUNT]; 2] =
    [const { [const { AtomicUsize::new(0) }; KNOWN_COUNT] }; 2];
static KNOWS_ANY: AtomicBool = AtomicBool::new(false);

fn is_known(page: usize, purpose: Purpose) -> bool {
    page != 0 && KNOWN[purpose as usize][page % KNOWN_COUNT].load(Ordering::Relaxed) == page
}

fn know(page: usize, purpose: Purpose) {
    if page != 0 {
        KNOWN[purpose as usize][page % KNOWN_COUNT].store(page, Ordering::Relaxed);
        KNOWS_ANY.store(true, Ordering::Release);
    }
}

/// Checks with the kernel's `madvise` that pages are accessible. If the kernel is too old for that,
/// or cannot populate the pages (such as those of a device), checks the list of mappings.
fn has(first: usize, last: usize, purpose: Purpose) -> bool {
    let (start, length) = (first * PAGE, (last - first + 1) * PAGE);
    let advice = match purpose {
        Purpose::Reading => Advice::LinuxPopulateRead,
        Purpose::Writing => Advice::LinuxPopulateWrite,
    };
    // SAFETY: this `madvise` changes no bytes, and fails if the memory does not exist.
    match unsafe { rustix::mm::madvise(start as *mut _, length, advice) } {
        Ok(()) => true,
        // There is a mapping, but an access would end the program by SIGBUS: the mapped file ends
        // before these pages, or the memory is broken.
        Err(Errno::FAULT | Errno::HWPOISON) => false,
        Err(_) => mappings().is_none_or(|text| covers(&text, start, start + length, purpose)),
    }
}

/// Returns the list of mappings of this process. Reads it without using this library's own calls.
fn mappings() -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/maps", flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let mut part = [0; PAGE];
    loop {
        match rustix::io::read(&file, &mut part).ok()? {
            0 => return Some(text),
            count => text.extend_from_slice(&part[..count]),
        }
    }
}

/// True if mappings with the needed permission cover a range without a gap.
fn covers(mappings: &[u8], start: usize, end: usize, purpose: Purpose) -> bool {
    let mut from = start;
    for line in mappings.split(|byte| *byte == b'\n') {
        let Some((low, high, allows)) = std::str::from_utf8(line).ok().and_then(mapping) else {
            continue;
        };
        if low <= from && from < high {
            if !allows[purpose as usize] {
                return false;
            }
            from = high;
        }
    }
    from >= end
}

/// Parses a line of the list of mappings: start, end, and whether it is readable and writable.
fn mapping(line: &str) -> Option<(usize, usize, [bool; 2])> {
    let mut fields = line.split(' ');
    let (low, high) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(low)?, number(high)?, [rights.contains('r'), rights.contains('w')]))
}

/// The smallest page size of the supported machines.
const PAGE: usize = 4096;
/// The number of cached pages: 2 MiB, about as much as a program reads repeatedly.
const KNOWN_COUNT: usize = 512;
/// The number of bytes checked for a text: the longest path with its zero, plus one byte, so that a
/// longer path is recognized and refused.
const TEXT_BYTES_MAX: usize = libc::PATH_MAX as usize + 1;
/// The kernel's limit for one argument or variable of a program, in bytes with its zero.
const ARGUMENT_BYTES_MAX: usize = 32 * PAGE;

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;
    use crate::errors::Failure;

    fn mapped(pages: usize, protection: ProtFlags) -> *mut u8 {
        let length = pages * PAGE;
        // SAFETY: a new mapping that nothing else uses.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE).unwrap()
        };
        start.cast()
    }

    const BAD: Outcome<()> = Err(Failure::Errno(libc::EFAULT));

    #[test]
    fn memory_is_had_as_its_mappings_allow() {
        let both = mapped(3, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(must_have(both, 3 * PAGE, Purpose::Writing), Ok(()));
        assert_eq!(must_have(both.wrapping_add(PAGE - 1), 2, Purpose::Reading), Ok(()));
        let read = mapped(1, ProtFlags::READ);
        assert_eq!(must_have(read, PAGE, Purpose::Reading), Ok(()));
        assert_eq!(must_have(read, 1, Purpose::Writing), BAD);
        let none = mapped(1, ProtFlags::empty());
        assert_eq!(must_have(none, 1, Purpose::Reading), BAD);
        assert_eq!(must_have(std::ptr::null(), 1, Purpose::Reading), BAD);
        assert_eq!(must_have(usize::MAX as *const u8, 2, Purpose::Reading), BAD);
        assert_eq!(must_have(std::ptr::null(), 0, Purpose::Reading), Ok(()));
    }

    #[test]
    fn a_range_that_ends_in_nothing_is_refused_and_what_was_given_back_forgotten() {
        let start = mapped(2, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(must_have(start, 2 * PAGE, Purpose::Writing), Ok(()));
        // SAFETY: the second page belongs to this test.
        unsafe { munmap(start.wrapping_add(PAGE).cast(), PAGE).unwrap() };
        forget();
        assert_eq!(must_have(start, PAGE, Purpose::Writing), Ok(()));
        assert_eq!(must_have(start, PAGE + 1, Purpose::Writing), BAD);
    }

    #[test]
    fn texts_end_at_their_zero_and_not_beyond_their_memory() {
        let start = mapped(2, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: both pages belong to this test, the second one until it is unmapped.
        unsafe {
            start.write_bytes(b'x', 2 * PAGE);
            start.add(PAGE + 1).write(0);
            assert_eq!(text(start.add(PAGE - 2).cast()).unwrap(), b"xxx");
            munmap(start.add(PAGE).cast(), PAGE).unwrap();
            forget();
            assert_eq!(text(start.add(PAGE - 2).cast()), Err(Failure::Errno(libc::EFAULT)));
        }
    }

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        let text = b"1000-3000 r--p 00000000 00:00 0\n3000-4000 rw-p 00000000 00:00 0 [heap]\n";
        assert!(covers(text, 0x1000, 0x4000, Purpose::Reading));
        assert!(!covers(text, 0x1000, 0x4000, Purpose::Writing));
        assert!(covers(text, 0x3000, 0x4000, Purpose::Writing));
        assert!(!covers(text, 0x3000, 0x5000, Purpose::Reading));
        assert!(covers(
            &mappings().unwrap(),
            text.as_ptr() as usize,
            text.as_ptr() as usize + 1,
            Purpose::Reading
        ));
    }
}
