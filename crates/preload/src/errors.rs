//! Converts failures into error numbers like the kernel's.
//!
//! Invariant: whatever a server or a connection does, a program gets an error number that is listed
//! in the manual of its call.

use std::ffi::OsString;

use dafs_client::{ChainFailure, ClientError};
use dafs_posix::errno::errno;

/// The reason why a call did not succeed in DAFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The call fails with this error number.
    Errno(i32),
    /// The path leads out of DAFS, to this absolute path, which must be routed again.
    Elsewhere(OsString),
}

/// The result of a call.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Returns a failure with an error number.
pub(crate) fn fail<T>(errno: i32) -> Outcome<T> {
    Err(Failure::Errno(errno))
}

impl From<i32> for Failure {
    fn from(number: i32) -> Self {
        Self::Errno(number)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Errno(errno(&error))
    }
}

impl From<ChainFailure> for Failure {
    fn from(failure: ChainFailure) -> Self {
        Self::Errno(errno(&failure.error))
    }
}

/// Returns the thread's `errno`.
pub(crate) fn get() -> i32 {
    // SAFETY: the C library gives every thread an `errno`.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's `errno`.
pub(crate) fn set(errno: i32) {
    // SAFETY: the C library gives every thread an `errno`.
    unsafe { *libc::__errno_location() = errno }
}

/// A return type of C library calls, with the value that reports a failure.
pub(crate) trait Answer: Sized {
    /// The value that reports a failure.
    const FAILED: Self;

    /// True if this is the failure value.
    fn has_failed(&self) -> bool;
}

macro_rules! answers {
    ($($type:ty),*) => {
        $(
            impl Answer for $type {
                const FAILED: Self = -1;

                fn has_failed(&self) -> bool {
                    *self == -1
                }
            }
        )*
    };
}

answers!(i32, i64, isize);

impl Answer for u32 {
    const FAILED: Self = u32::MAX;

    fn has_failed(&self) -> bool {
        false
    }
}

impl Answer for usize {
    const FAILED: Self = 0;

    fn has_failed(&self) -> bool {
        false
    }
}

impl Answer for () {
    const FAILED: Self = ();

    fn has_failed(&self) -> bool {
        false
    }
}

impl<T> Answer for *mut T {
    const FAILED: Self = std::ptr::null_mut();

    fn has_failed(&self) -> bool {
        self.is_null()
    }
}

/// An address of mapped memory. Its failure value is MAP_FAILED, not null.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped(pub *mut libc::c_void);

impl Answer for Mapped {
    const FAILED: Self = Self(libc::MAP_FAILED);

    fn has_failed(&self) -> bool {
        self.0 == libc::MAP_FAILED
    }
}
