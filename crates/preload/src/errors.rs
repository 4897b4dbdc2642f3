//! How calls fail: by an error number, as the kernel's would.
//!
//! Invariant: whatever a server or a connection does, a program gets a number that its manual
//! knows for such a call.

use std::ffi::OsString;

use dafs_client::{ChainFailure, ClientError};
use dafs_posix::errno::errno;

/// Why a call is not answered with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This error number.
    Errno(i32),
    /// The path leads out of what DAFS serves: this one is meant.
    Elsewhere(OsString),
}

/// What a call comes to.
pub type Outcome<T> = Result<T, Failure>;

/// Fails with a number.
pub fn fail<T>(errno: i32) -> Outcome<T> {
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

/// The thread's error number.
pub fn get() -> i32 {
    // SAFETY: the C library gives every thread a place for its number.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's error number.
pub fn set(errno: i32) {
    // SAFETY: as for `get`.
    unsafe { *libc::__errno_location() = errno }
}

/// What a call returns when it fails.
pub trait Answer: Sized {
    /// It.
    const FAILED: Self;

    /// Whether it is that.
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

/// An address of mapped memory, whose failure is not null.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped(pub *mut libc::c_void);

impl Answer for Mapped {
    const FAILED: Self = Self(libc::MAP_FAILED);

    fn has_failed(&self) -> bool {
        self.0 == libc::MAP_FAILED
    }
}
