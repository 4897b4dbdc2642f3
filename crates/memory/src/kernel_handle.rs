//! The kernel's own file handles, which identify objects even after renames and restarts.
//!
//! Invariant: the kernel accesses only the fixed buffer in this module, and the length that it
//! reports is checked before use. No maintained crate has these two calls with a safe signature, so
//! they are in this crate, with the other system calls that need `unsafe`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The result of `name_to_handle_at` for an object. It is valid only on the object's file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelHandle {
    kind: i32,
    length: usize,
    bytes: [u8; Self::LENGTH_MAX],
}

impl KernelHandle {
    /// The maximum accepted length in bytes. ext4 uses 8 bytes, xfs 12, tmpfs 12, btrfs 20.
    pub const LENGTH_MAX: usize = 32;

    /// Returns the handle of the object to which a descriptor refers (`O_PATH` suffices).
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system has no handles, `EOVERFLOW` if the handle exceeds
    /// [`Self::LENGTH_MAX`].
    pub fn of(object: BorrowedFd<'_>) -> io::Result<Self> {
        let mut raw = RawHandle { length: Self::LENGTH_MAX as u32, kind: 0, bytes: [0; 32] };
        let mut mount = 0;
        let empty: &CStr = c"";
        // SAFETY: `raw` has the layout of `struct file_handle` with room for the announced 32
        // bytes. All pointers live during the call.
        let result = unsafe {
            libc::name_to_handle_at(
                object.as_raw_fd(),
                empty.as_ptr(),
                std::ptr::from_mut(&mut raw).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Self::from_parts(raw.kind, raw.bytes.get(..raw.length as usize).unwrap_or(&[]))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))
    }

    /// Creates a handle from its kind and its bytes. Returns `None` if `bytes` is empty or too
    /// long.
    #[must_use]
    pub fn from_parts(kind: i32, bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > Self::LENGTH_MAX {
            return None;
        }
        let mut all = [0; Self::LENGTH_MAX];
        all[..bytes.len()].copy_from_slice(bytes);
        Some(Self { kind, length: bytes.len(), bytes: all })
    }

    /// Returns the file system's own type number of the handle.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// Returns the bytes of the handle.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Opens the object with `O_PATH`. `mount` is a descriptor of any object on the same file
    /// system. The call requires `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` if the object no longer exists; `EPERM` without the privilege.
    pub fn open(&self, mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let mut raw = RawHandle { length: self.length as u32, kind: self.kind, bytes: self.bytes };
        // SAFETY: as in `of`; the kernel only reads the announced bytes.
        let fd = unsafe {
            libc::open_by_handle_at(
                mount.as_raw_fd(),
                std::ptr::from_mut(&mut raw).cast(),
                libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor for this call, so it has no other
        // owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// `struct file_handle` with its flexible array at full size.
#[repr(C)]
struct RawHandle {
    length: u32,
    kind: i32,
    bytes: [u8; KernelHandle::LENGTH_MAX],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn parts_out_of_range_are_refused() {
        assert!(KernelHandle::from_parts(1, &[]).is_none());
        assert!(KernelHandle::from_parts(1, &[0; 33]).is_none());
        assert!(KernelHandle::from_parts(1, &[0; 32]).is_some());
    }

    #[test]
    fn the_same_object_has_the_same_handle() {
        let file = std::fs::File::open("/").unwrap();
        let again = std::fs::File::open("/").unwrap();
        // On a file system without handles, there is nothing more to test.
        if let Ok(handle) = KernelHandle::of(file.as_fd()) {
            assert!(handle == KernelHandle::of(again.as_fd()).unwrap());
        }
    }
}
