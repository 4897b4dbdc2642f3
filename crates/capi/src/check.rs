//! What comes from C is looked at before it is used.
//!
//! Invariant: each refusal says which argument it is about.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::types::{
    DAP_FOREVER, dap_changes, dap_client_options, dap_connect_options, dap_open_options,
};

/// A text that must be there.
///
/// # Safety
/// `pointer` is NULL or points to a text that ends with a NUL and stays as it is meanwhile.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(pointer, what)? }
        .ok_or_else(|| Failure::new(libc::EFAULT, format!("{what} is NULL")))
}

/// A path or a name, which is any bytes that end with a NUL, and must be there.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, what: &str) -> Result<&'a OsStr> {
    if pointer.is_null() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is NULL")));
    }
    // SAFETY: it is not NULL, so it is what the caller promises.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()))
}

/// A text that may be left out.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    match unsafe { CStr::from_ptr(pointer) }.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::new(libc::EILSEQ, format!("{what} is not UTF-8"))),
    }
}

/// Puts a result where the caller wants it.
///
/// # Safety
/// `pointer` is NULL, misaligned, or points to where a `T` may be written.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T, what: &str) -> Result<()> {
    place(pointer, what)?;
    // SAFETY: it is neither NULL nor misaligned, so it is what the caller promises.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Whether a result could be put there.
pub(crate) fn place<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is not aligned")));
    }
    Ok(())
}

/// An array.
///
/// # Safety
/// `pointer` is NULL, misaligned, or points to `count` values that stay as they are meanwhile.
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    count_max: usize,
    what: &str,
) -> Result<&'a [T]> {
    if count > count_max {
        return Err(Failure::invalid(format!("{what}: {count} are more than {count_max}")));
    }
    if count == 0 {
        return Ok(&[]);
    }
    place(pointer, what)?;
    // SAFETY: it is neither NULL nor misaligned, so it is what the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Flags of which all are known.
pub(crate) fn flags(flags: u32, known: u32, what: &str) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::invalid(format!("{what} {flags:#x}: {unknown:#x} means nothing"))),
    }
}

/// A timeout in milliseconds; `None` has no end.
pub(crate) fn timeout(milliseconds: i64, what: &str) -> Result<Option<Duration>> {
    match u64::try_from(milliseconds) {
        Ok(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
        Err(_) if milliseconds == DAP_FOREVER => Ok(None),
        Err(_) => {
            Err(Failure::invalid(format!("{what} {milliseconds} is negative, and not DAP_FOREVER")))
        }
    }
}

/// A struct that begins with its size, and may grow.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, and any bytes that are zero or come from such a struct
/// in C are a value of it.
pub(crate) unsafe trait Growing: Copy {
    const NAME: &'static str;
}

// SAFETY: numbers alone.
unsafe impl Growing for dap_client_options {
    const NAME: &'static str = "dap_client_options";
}
// SAFETY: numbers, pointers and a function that may be NULL.
unsafe impl Growing for dap_connect_options {
    const NAME: &'static str = "dap_connect_options";
}
// SAFETY: numbers alone.
unsafe impl Growing for dap_open_options {
    const NAME: &'static str = "dap_open_options";
}
// SAFETY: numbers alone.
unsafe impl Growing for dap_changes {
    const NAME: &'static str = "dap_changes";
}

/// Options; all zero if there are none, and where a caller's struct is shorter than ours.
///
/// # Safety
/// `pointer` is NULL, misaligned, or points to a struct as long as its first field says.
pub(crate) unsafe fn options<T: Growing>(pointer: *const T) -> Result<T> {
    // SAFETY: what `Growing` promises.
    let mut options: T = unsafe { std::mem::zeroed() };
    if pointer.is_null() {
        return Ok(options);
    }
    place(pointer, T::NAME)?;
    // SAFETY: it begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size <= size_of::<usize>() || size > size_of::<T>() {
        return Err(Failure::invalid(format!(
            "{name}.size is {size}: set it to sizeof ({name}), which is {} here",
            size_of::<T>(),
            name = T::NAME
        )));
    }
    // SAFETY: both are at least so long, and the bytes are a value of it (`Growing`).
    unsafe {
        let to = std::ptr::from_mut(&mut options).cast::<u8>();
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), to, size);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_is_wrong() {
        assert!(flags(5, 1, "flags of dap_open").unwrap_err().text.contains("0x4 means nothing"));
        assert_eq!(flags(5, 7, "x").map_err(|f| f.errno), Ok(()));
        assert!(timeout(-2, "timeout_ms").is_err());
        assert_eq!(timeout(-1, "timeout_ms").map_err(|f| f.errno), Ok(None));
        // SAFETY: each pointer is NULL or misaligned.
        unsafe {
            assert_eq!(text(std::ptr::null(), "path").unwrap_err().errno, libc::EFAULT);
            let odd = std::ptr::without_provenance_mut::<u64>(3);
            assert_eq!(put(odd, 1, "result").unwrap_err().errno, libc::EFAULT);
        }
    }

    #[test]
    fn options_may_be_shorter_than_ours_and_not_longer() {
        // SAFETY: plain numbers.
        let mut given: dap_open_options = unsafe { std::mem::zeroed() };
        given.key = 9;
        // SAFETY: the struct is as long as ours, or said to be shorter.
        let read = |given: &dap_open_options| unsafe { options(std::ptr::from_ref(given)) };
        for (size, key) in [(size_of::<dap_open_options>(), Some(9)), (16, Some(0)), (0, None)] {
            given.size = size;
            assert_eq!(read(&given).ok().map(|options| options.key), key);
        }
        given.size = 4096;
        assert!(read(&given).err().unwrap().text.contains("sizeof (dap_open_options)"));
    }
}
