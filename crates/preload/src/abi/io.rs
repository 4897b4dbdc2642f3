//! Calls that read and write data.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, off_t};

use crate::data::Piece;
use crate::errors::{self, Failure, Outcome, fail};
use crate::guard;
use crate::state::is_ours;
use crate::user_memory::{self, Purpose, must_have};

/// Describes a buffer of a call, limited to the bytes that Linux moves in one call.
fn piece(start: *const c_void, length: usize) -> Piece {
    Piece { start: start.cast_mut().cast(), length: length.min(MOVED_MAX) }
}

/// Converts the list of buffers of a call.
///
/// # Safety
/// The list does not change during the call.
unsafe fn pieces(list: *const iovec, count: c_int) -> Outcome<Vec<Piece>> {
    let Ok(count @ ..=LIST_MAX) = usize::try_from(count) else { return fail(libc::EINVAL) };
    let part = |index| {
        // SAFETY: any bytes are a valid entry, and the caller guarantees that they do not change.
        let part = unsafe { user_memory::value(list.wrapping_add(index)) }?;
        Ok(piece(part.iov_base, part.iov_len))
    };
    (0..count).map(part).collect()
}

on_descriptor! {
    fn [read](fd: c_int, buffer: *mut c_void, count: usize) -> isize,
        fd, Read, |state, it| state.read(&it, &[piece(buffer, count)]);
    fn [__read_chk](fd: c_int, buffer: *mut c_void, count: usize, size: usize) -> isize,
        fd, Read, |state, it| state.read(&it, &[piece(buffer, count.min(size))]);
    fn [pread pread64](fd: c_int, buffer: *mut c_void, count: usize, offset: off_t) -> isize,
        fd, Read, |state, it| state.read_at(&it, &[piece(buffer, count)], offset);
    fn [__pread_chk __pread64_chk]
        (fd: c_int, buffer: *mut c_void, count: usize, offset: off_t, size: usize) -> isize,
        fd, Read, |state, it| state.read_at(&it, &[piece(buffer, count.min(size))], offset);
    fn [readv](fd: c_int, list: *const iovec, count: c_int) -> isize,
        // SAFETY: the program passes a list of this length.
        fd, Read, |state, it| state.read(&it, &unsafe { pieces(list, count) }?);
    fn [preadv preadv64]
        (fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> isize,
        // SAFETY: the program passes a list of this length.
        fd, Read, |state, it| state.read_at(&it, &unsafe { pieces(list, count) }?, offset);
    fn [preadv2 preadv64v2]
        (fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize,
        fd, Read, |state, it| {
            // SAFETY: the program passes a list of this length.
            let list = unsafe { pieces(list, count) }?;
            // The flags are only hints, except RWF_NOWAIT, which has no effect on DAFS files.
            let _ = flags;
            if offset == -1 { state.read(&it, &list) } else { state.read_at(&it, &list, offset) }
        };
    fn [write](fd: c_int, buffer: *const c_void, count: usize) -> isize,
        fd, Write, |state, it| state.write(&it, &[piece(buffer, count)]);
    fn [pwrite pwrite64](fd: c_int, buffer: *const c_void, count: usize, offset: off_t) -> isize,
        fd, Write, |state, it| state.write_at(&it, &[piece(buffer, count)], offset);
    fn [writev](fd: c_int, list: *const iovec, count: c_int) -> isize,
        // SAFETY: the program passes a list of this length.
        fd, Write, |state, it| state.write(&it, &unsafe { pieces(list, count) }?);
    fn [pwritev pwritev64]
        (fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> isize,
        // SAFETY: the program passes a list of this length.
        fd, Write, |state, it| state.write_at(&it, &unsafe { pieces(list, count) }?, offset);
    fn [pwritev2 pwritev64v2]
        (fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize,
        fd, Write, |state, it| {
            // SAFETY: the program passes a list of this length.
            let list = unsafe { pieces(list, count) }?;
            let written = match offset {
                -1 => state.write(&it, &list),
                _ => state.write_at(&it, &list, offset),
            };
            if written.is_ok() && flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
                state.sync(&it)?;
            }
            written
        };
    fn [lseek lseek64](fd: c_int, offset: off_t, whence: c_int) -> off_t,
        fd, Descriptor, |state, it| state.seek(&it, offset, whence);
    fn [ftruncate ftruncate64](fd: c_int, length: off_t) -> c_int,
        fd, Set, |state, it| state.set_length(&it, length);
    fn [fsync](fd: c_int) -> c_int,
        fd, Sync, |state, it| state.sync(&it);
    fn [fdatasync](fd: c_int) -> c_int,
        fd, Sync, |state, it| state.sync(&it);
    fn [syncfs](fd: c_int) -> c_int,
        fd, Sync, |state, it| state.sync(&it);
    fn [sync_file_range](fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int,
        fd, Sync, |state, it| {
            let _ = (offset, length, flags);
            state.sync(&it)
        };
    fn [fallocate fallocate64](fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int,
        fd, Set, |state, it| {
            if mode != 0 {
                return crate::errors::fail(libc::EOPNOTSUPP);
            }
            state.reserve(&it, offset, length)
        };
}

/// Defines calls that return an error number instead of setting `errno`, such as `posix_fallocate`.
macro_rules! returning_errno {
    ($(fn [$($name:ident)+] $arguments:tt, $number:ident,
        |$state:ident, $it:ident| $body:expr;)+) => {
        $($(returning_errno!(@one $name $arguments, $number, |$state, $it| $body);)+)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*), $number:ident,
        |$state:ident, $it:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            if is_ours($number) && !guard::is_inside() {
                let before = errors::get();
                let answer: c_int = super::answer(|$state| {
                    let $it = $state.get($number)?;
                    $body
                });
                let errno = errors::get();
                errors::set(before);
                return if answer == -1 { errno } else { answer };
            }
            real!($name($($argument => $type),*) -> c_int)
        }
    };
}

returning_errno! {
    fn [posix_fallocate posix_fallocate64](fd: c_int, offset: off_t, length: off_t),
        fd, |state, it| state.reserve(&it, offset, length);
    fn [posix_fadvise posix_fadvise64]
        (fd: c_int, offset: off_t, length: off_t, advice: c_int),
        fd, |_state, it| {
            let _ = (offset, length, advice);
            it.must_be_open().map(|()| 0)
        };
}

/// One end of a copy: a descriptor, and the offset to use instead of the descriptor's own, or null.
#[derive(Clone, Copy)]
struct CopyEnd {
    number: c_int,
    offset: *mut off_t,
}

impl CopyEnd {
    /// Returns the offset that the program passed; `None` if the call uses the descriptor's own
    /// offset.
    fn place(self) -> Outcome<Option<off_t>> {
        if self.offset.is_null() {
            return Ok(None);
        }
        // SAFETY: any bytes are a valid offset.
        unsafe { user_memory::value(self.offset) }.map(Some)
    }

    /// Moves the offset that the program passed, if it passed one.
    fn shift(self, by: off_t) -> Outcome<()> {
        let Some(place) = self.place()? else { return Ok(()) };
        // SAFETY: this library has no reference to the program's offset.
        unsafe { user_memory::put(self.offset, place.wrapping_add(by)) }
    }

    fn read(self, bytes: &mut [u8]) -> isize {
        let start = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has this length.
        unsafe {
            match self.place() {
                Ok(None) => read(self.number, start, bytes.len()),
                Ok(Some(place)) => self.moved(pread(self.number, start, bytes.len(), place)),
                Err(failure) => guard::refused(&failure),
            }
        }
    }

    fn write(self, bytes: &[u8]) -> isize {
        let start = bytes.as_ptr().cast();
        // SAFETY: the buffer has this length.
        unsafe {
            match self.place() {
                Ok(None) => write(self.number, start, bytes.len()),
                Ok(Some(place)) => self.moved(pwrite(self.number, start, bytes.len(), place)),
                Err(failure) => guard::refused(&failure),
            }
        }
    }

    /// Moves the program's offset by the bytes that were moved.
    fn moved(self, bytes: isize) -> isize {
        match self.shift(bytes.max(0) as off_t) {
            Ok(()) => bytes,
            Err(failure) => guard::refused(&failure),
        }
    }

    /// Keeps the error of a failed write after a short copy, so that the next write to the file
    /// reports the error.
    fn defer_error(self, errno: c_int) {
        if is_ours(self.number) {
            let _ = guard::with(|state| {
                let key = state.get(self.number)?.key();
                state.unstable.defer_error(key, &Failure::Errno(errno));
                Ok(())
            });
        }
    }

    /// Moves the offset back by the bytes that were read but not written.
    fn unread(self, length: usize) {
        let back = -(length as off_t);
        if self.offset.is_null() {
            // SAFETY: `lseek` accepts any descriptor.
            unsafe { lseek(self.number, back, libc::SEEK_CUR) };
        } else {
            // The offset was accessible when it was moved forward.
            let _ = self.shift(back);
        }
    }
}

/// Copies in steps with reads and writes. Returns what the kernel's call would return.
fn copy(from: CopyEnd, to: CopyEnd, length: usize) -> isize {
    for offset in [from.offset, to.offset].into_iter().filter(|offset| !offset.is_null()) {
        if let Err(failure) = must_have(offset.cast(), size_of::<off_t>(), Purpose::Writing) {
            return guard::refused(&failure);
        }
    }
    let mut buffer = vec![0; length.clamp(1, COPIED_AT_ONCE)];
    let mut done = 0;
    while done < length {
        let wanted = (length - done).min(buffer.len());
        let read = from.read(&mut buffer[..wanted]);
        if read <= 0 {
            return if done > 0 || read == 0 { done as isize } else { -1 };
        }
        let read = read as usize;
        let mut put = 0;
        while put < read {
            let written = to.write(&buffer[put..read]);
            if written <= 0 {
                from.unread(read - put);
                done += put;
                if done == 0 {
                    return -1;
                }
                to.defer_error(errors::get());
                return done as isize;
            }
            put += written as usize;
        }
        done += read;
        if read < wanted {
            break;
        }
    }
    done as isize
}

/// True if both ends refer to the same file and their ranges overlap.
fn overlap(from: CopyEnd, to: CopyEnd, length: usize) -> bool {
    let is_one_file = guard::with(|state| {
        let (from, to) = (state.get(from.number)?, state.get(to.number)?);
        Ok(from.identity.mount == to.identity.mount && from.identity.handle == to.identity.handle)
    });
    let place = |end: CopyEnd| match end.place() {
        // SAFETY: `lseek` accepts any descriptor.
        Ok(None) => Some(unsafe { lseek(end.number, 0, libc::SEEK_CUR) }),
        Ok(place) => place,
        // The copy reports the error.
        Err(_) => None,
    };
    let (Ok(true), Some(from), Some(to)) = (is_one_file, place(from), place(to)) else {
        return false;
    };
    from.abs_diff(to) < length as u64
}

fn is_served(one: c_int, other: c_int) -> bool {
    (is_ours(one) || is_ours(other)) && !guard::is_inside()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> isize {
    if is_served(to, from) {
        let (from, to) = (
            CopyEnd { number: from, offset },
            CopyEnd { number: to, offset: std::ptr::null_mut() },
        );
        return copy(from, to, count);
    }
    real!(sendfile(to => c_int, from => c_int, offset => *mut off_t, count => usize) -> isize)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> isize {
    // SAFETY: the program's arguments are passed on unchanged.
    unsafe { sendfile(to, from, offset, count) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: usize,
    flags: c_uint,
) -> isize {
    if is_served(to, from) {
        let from = CopyEnd { number: from, offset: from_offset };
        let to = CopyEnd { number: to, offset: to_offset };
        if flags != 0 || overlap(from, to, length) {
            errors::set(libc::EINVAL);
            return -1;
        }
        return copy(from, to, length);
    }
    real!(copy_file_range(
        from => c_int, from_offset => *mut off_t, to => c_int, to_offset => *mut off_t,
        length => usize, flags => c_uint,
    ) -> isize)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: usize,
    flags: c_uint,
) -> isize {
    if is_served(to, from) {
        let from = CopyEnd { number: from, offset: from_offset };
        return copy(from, CopyEnd { number: to, offset: to_offset }, length.min(65536));
    }
    real!(splice(
        from => c_int, from_offset => *mut off_t, to => c_int, to_offset => *mut off_t,
        length => usize, flags => c_uint,
    ) -> isize)
}

/// The maximum number of buffers in a call (IOV_MAX).
const LIST_MAX: usize = 1024;
/// The maximum number of bytes that Linux moves in one call.
const MOVED_MAX: usize = 0x7fff_f000;
const COPIED_AT_ONCE: usize = 1 << 18;
