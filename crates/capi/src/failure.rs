//! Reports failures to C.
//!
//! Invariant: every function returns, even after a panic inside. On failure it returns a negative
//! error number, and stores its text for the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dafs_client::{ClientError, Status};
use dafs_share::Forked;

/// The result of a function's body.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The reason why a function fails.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The positive error number.
    pub errno: c_int,
    pub text: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// Returns a failure with EINVAL.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let errno = match error.status() {
            // Use EUCLEAN to distinguish a broken lock from a lock that another client holds.
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

/// Returns the error text of the last failed call of this thread, or an empty text if no call has
/// failed. The text remains valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn dap_error_text() -> *const c_char {
    // While a thread ends, its error text may be gone already.
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn dap_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Converts a text to a C string, which ends at the first NUL of the text, if it has one.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Stores an error text for this thread.
pub(crate) fn remember(text: &str) {
    // Ignore an error: while a thread ends, its variable for the text may be gone already.
    let _ = TEXT.try_with(|place| place.replace(c_text(text)));
}

/// Runs the body of a C function. Returns the body's count, or a negative error number.
pub(crate) fn counted(body: impl FnOnce() -> Result<u64>) -> i64 {
    // A panic can leave inconsistent state only in the client in which it happened: this crate
    // holds no lock of its own while it calls another crate.
    let done =
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panic_failure(&*panic)));
    match done {
        Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Err(failure) => {
            remember(&failure.text);
            -i64::from(failure.errno)
        }
    }
}

/// Runs the body of a C function that returns no count. Returns 0 or a negative error number.
pub(crate) fn done(body: impl FnOnce() -> Result<()>) -> c_int {
    // The result is zero or an error number, which fits in a C int.
    counted(|| body().map(|()| 0)) as c_int
}

fn panic_failure(panic: &(dyn Any + Send)) -> Failure {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given");
    Failure::new(
        libc::ENOTRECOVERABLE,
        format!("internal error of libdafs, please report it: {said}"),
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn text() -> String {
        // SAFETY: the text belongs to this thread and is read before any other call.
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
