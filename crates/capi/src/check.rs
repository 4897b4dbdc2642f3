//! Checks arguments from C before they are used.
//!
//! Invariant: each error names the argument that is invalid.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::types::{
    DAP_FOREVER, dap_changes, dap_client_options, dap_connect_options, dap_open_options,
};

/// Returns a text that is required.
///
/// # Safety
/// `pointer` is NULL or points to a text that ends with a NUL and does not change during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { optional_text(pointer, what)? }
        .ok_or_else(|| Failure::new(libc::EFAULT, format!("{what} is NULL")))
}

/// Returns a required path or name: any bytes that end with a NUL.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, what: &str) -> Result<&'a OsStr> {
    if pointer.is_null() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is NULL")));
    }
    // SAFETY: the pointer is not NULL, so the caller guarantees the text.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()))
}

/// Returns a text that may be NULL.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees that its pointers are valid.
    match unsafe { CStr::from_ptr(pointer) }.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::new(libc::EILSEQ, format!("{what} is not UTF-8"))),
    }
}

/// Stores a result at an address from the caller.
///
/// # Safety
/// `pointer` is NULL, misaligned, or points to memory where a `T` can be written.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T, what: &str) -> Result<()> {
    place(pointer, what)?;
    // SAFETY: the pointer is neither NULL nor misaligned, so the caller guarantees the memory.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Fails if the address is NULL or misaligned for a result.
pub(crate) fn place<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is not aligned")));
    }
    Ok(())
}

/// Returns an array as a slice.
///
/// # Safety
/// `pointer` is NULL, misaligned, or points to `count` values that do not change during the call.
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    count_max: usize,
    what: &str,
) -> Result<&'a [T]> {
    if count > count_max {
        return Err(Failure::invalid(format!("{what}: {count} exceeds the limit of {count_max}")));
    }
    if count == 0 {
        return Ok(&[]);
    }
    place(pointer, what)?;
    // SAFETY: the pointer is neither NULL nor misaligned, so the caller guarantees the array.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Fails if any flag is unknown.
pub(crate) fn flags(flags: u32, known: u32, what: &str) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::invalid(format!("{what} {flags:#x}: unknown flags {unknown:#x}"))),
    }
}

/// Converts a timeout in milliseconds; `None` means no limit.
pub(crate) fn timeout(milliseconds: i64, what: &str) -> Result<Option<Duration>> {
    match u64::try_from(milliseconds) {
        Ok(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
        Err(_) if milliseconds == DAP_FOREVER => Ok(None),
        Err(_) => Err(Failure::invalid(format!(
            "{what} {milliseconds} is negative and is not DAP_FOREVER"
        ))),
    }
}

/// A struct that begins with its size and may grow in later versions.
///
/// # Safety
/// The struct is `repr(C)` and begins with a `usize`. Zero bytes, and bytes that come from such a
/// struct in C, are valid values of it.
pub(crate) unsafe trait VersionedStruct: Copy {
    const NAME: &'static str;
}

// SAFETY: the struct contains only numbers.
unsafe impl VersionedStruct for dap_client_options {
    const NAME: &'static str = "dap_client_options";
}
// SAFETY: the struct contains numbers, pointers and a function pointer that may be NULL.
unsafe impl VersionedStruct for dap_connect_options {
    const NAME: &'static str = "dap_connect_options";
}
// SAFETY: the struct contains only numbers.
unsafe impl VersionedStruct for dap_open_options {
    const NAME: &'static str = "dap_open_options";
}
// SAFETY: the struct contains only numbers.
unsafe impl VersionedStruct for dap_changes {
    const NAME: &'static str = "dap_changes";
}

/// Reads a struct of options. If `pointer` is NULL, all fields are zero. If the program's struct is
/// shorter than `T`, the fields after its end are zero.
///
/// # Safety
/// `pointer` is NULL, misaligned, or points to a struct as long as its first field says.
pub(crate) unsafe fn options<T: VersionedStruct>(pointer: *const T) -> Result<T> {
    // SAFETY: zero bytes are a valid value, as `VersionedStruct` guarantees.
    let mut options: T = unsafe { std::mem::zeroed() };
    if pointer.is_null() {
        return Ok(options);
    }
    place(pointer, T::NAME)?;
    // SAFETY: the struct begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size <= size_of::<usize>() || size > size_of::<T>() {
        return Err(Failure::invalid(format!(
            "{name}.size is {size}: set it to sizeof ({name}), which is {} here",
            size_of::<T>(),
            name = T::NAME
        )));
    }
    // SAFETY: both structs have at least this length, and the bytes are a valid value
    // (`VersionedStruct`).
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
        assert!(flags(5, 1, "flags of dap_open").unwrap_err().text.contains("unknown flags 0x4"));
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
        // SAFETY: the struct contains only numbers.
        let mut given: dap_open_options = unsafe { std::mem::zeroed() };
        given.key = 9;
        // SAFETY: the struct is as long as ours, or says that it is shorter.
        let read = |given: &dap_open_options| unsafe { options(std::ptr::from_ref(given)) };
        for (size, key) in [(size_of::<dap_open_options>(), Some(9)), (16, Some(0)), (0, None)] {
            given.size = size;
            assert_eq!(read(&given).ok().map(|options| options.key), key);
        }
        given.size = 4096;
        assert!(read(&given).err().unwrap().text.contains("sizeof (dap_open_options)"));
    }
}
