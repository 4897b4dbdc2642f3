//! How C is told that something failed.
//!
//! Invariant: whatever happens inside, a function returns; what it returns on failure is a
//! negative error number, and the thread has its text.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dafs_client::{ClientError, Status};
use dafs_share::Forked;

/// Result of what a function does.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a function fails.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Positive.
    pub errno: c_int,
    pub text: String,
}

impl Failure {
    pub fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// EINVAL.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let errno = match error.status() {
            // Not to be taken for a lock that somebody holds.
            Some(Status::LockBroken) => libc::EUCLEAN,
            _ => error.errno(),
        };
        Self::new(errno, error.in_full())
    }
}

impl From<Forked> for Failure {
    fn from(error: Forked) -> Self {
        Self::new(libc::EOWNERDEAD, error.to_string())
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Why the last call of this thread that failed did so; empty if none has. It stays until the
/// next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn dap_error_text() -> *const c_char {
    // While a thread ends, it may have none any more.
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn dap_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// A text for C; what has a NUL inside ends there.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Has this thread know why something failed.
pub(crate) fn remember(text: &str) {
    // While a thread ends, it may have no place for it any more.
    let _ = TEXT.try_with(|place| place.replace(c_text(text)));
}

/// Does what a function is there for: a count, or a negative error number.
pub(crate) fn counted(body: impl FnOnce() -> Result<u64>) -> i64 {
    // What a panic leaves half done is of the client it happened in: there are no locks of this
    // crate's around calls of others.
    let done = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(fault(&*panic)));
    match done {
        Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Err(failure) => {
            remember(&failure.text);
            -i64::from(failure.errno)
        }
    }
}

/// The same for functions that have nothing to count.
pub(crate) fn done(body: impl FnOnce() -> Result<()>) -> c_int {
    // An error number fits.
    counted(|| body().map(|()| 0)) as c_int
}

fn fault(panic: &(dyn Any + Send)) -> Failure {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given");
    Failure::new(libc::ENOTRECOVERABLE, format!("libdafs itself is at fault, report it: {said}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn text() -> String {
        // SAFETY: it is a text of this thread's, read before any other call.
        unsafe { CStr::from_ptr(dap_error_text()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_failure_like_others() {
        assert_eq!(counted(|| panic!("a bug")), -i64::from(libc::ENOTRECOVERABLE));
        assert!(text().ends_with("a bug"), "{}", text());
        assert_eq!(done(|| Err(Failure::invalid("left\0right"))), -libc::EINVAL);
        assert_eq!(text(), "left");
        assert_eq!(counted(|| Ok(7)), 7);
        assert_eq!(text(), "left", "what succeeds leaves the text alone");
        assert_eq!(std::thread::spawn(text).join().unwrap(), "", "each thread has its own");
    }
}
