//! The functions of libnfs, looked up by name in the loaded library.
//!
//! Invariant: layouts and signatures are those of `nfsc/libnfs.h` of libnfs 4.0, whose library is
//! named `libnfs.so.13`. Later versions have other signatures and another name.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use crate::PeerError;

/// The name of libnfs 4.0, on Debian 12 and Ubuntu 22.04 to 24.04.
const FILE: &str = "libnfs.so.13";

/// The C `struct nfs_context`, whose contents only libnfs knows.
pub(crate) type Context = *mut c_void;
/// The C `struct nfsfh`, whose contents only libnfs knows.
pub(crate) type Handle = *mut c_void;
/// The C `struct nfs_url`, whose contents only libnfs knows.
pub(crate) type Url = *mut c_void;
/// The type of the C callback `nfs_cb`. Its arguments are an error (negative) or a count, the
/// context, the result of the operation, and the pointer given with the request.
pub(crate) type Callback = unsafe extern "C" fn(c_int, Context, *mut c_void, *mut c_void);
type Text = *const c_char;

/// The layout of the C `struct nfs_stat_64`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) mode: u64,
    pub(crate) link_count: u64,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) special: u64,
    pub(crate) size: u64,
    pub(crate) block_bytes: u64,
    pub(crate) block_count: u64,
    pub(crate) accessed: u64,
    pub(crate) modified: u64,
    pub(crate) changed: u64,
    pub(crate) nanoseconds: [u64; 3],
    pub(crate) used: u64,
}

/// The flags of [`crate::Nfs::open`], which are those of the C library.
pub mod flag {
    /// Open to read only.
    pub const READ: i32 = libc::O_RDONLY;
    /// Open to write only.
    pub const WRITE: i32 = libc::O_WRONLY;
    /// Open to read and write.
    pub const READ_WRITE: i32 = libc::O_RDWR;
    /// Create the file if it does not exist.
    pub const CREATE: i32 = libc::O_CREAT;
    /// Fail if the file exists.
    pub const EXCLUSIVE: i32 = libc::O_EXCL;
    /// Truncate the file to length zero.
    pub const TRUNCATE: i32 = libc::O_TRUNC;
    /// Make every write stable before its reply.
    pub const SYNC: i32 = libc::O_SYNC;
}

macro_rules! functions {
    ($($name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions that are used.
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn open(file: &'static str) -> Result<Self, PeerError> {
                // SAFETY: loading runs only the initializers of the system's own NFS client, which
                // does nothing until it is called.
                let library = unsafe { libloading::Library::new(file) }.map_err(|error| {
                    PeerError::Missing {
                        what: format!("{file} cannot be loaded ({error})"),
                        remedy: "install the package libnfs13",
                    }
                })?;
                // The library is never closed, so that pointers into it stay valid forever.
                let library = ManuallyDrop::new(library);
                $(
                    // SAFETY: the signature is the library's (this module's invariant).
                    let $name = *unsafe { library.get(stringify!($name)) }.map_err(|error| {
                        PeerError::Missing {
                            what: format!("{file} is not libnfs 4.0 ({error})"),
                            remedy: "install the package libnfs13",
                        }
                    })?;
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

functions! {
    nfs_init_context() -> Context;
    nfs_destroy_context(Context);
    nfs_get_error(Context) -> Text;
    nfs_parse_url_dir(Context, Text) -> Url;
    nfs_destroy_url(Url);
    nfs_mount(Context, Text, Text) -> c_int;
    nfs_get_readmax(Context) -> u64;
    nfs_get_writemax(Context) -> u64;
    nfs_set_autoreconnect(Context, c_int);
    nfs_get_fd(Context) -> c_int;
    nfs_which_events(Context) -> c_int;
    nfs_service(Context, c_int) -> c_int;
    nfs_open2_async(Context, Text, c_int, c_int, Callback, *mut c_void) -> c_int;
    nfs_close_async(Context, Handle, Callback, *mut c_void) -> c_int;
    nfs_pread_async(Context, Handle, u64, u64, Callback, *mut c_void) -> c_int;
    nfs_pwrite_async(Context, Handle, u64, u64, *const c_void, Callback, *mut c_void) -> c_int;
    nfs_fsync_async(Context, Handle, Callback, *mut c_void) -> c_int;
    nfs_ftruncate_async(Context, Handle, u64, Callback, *mut c_void) -> c_int;
    nfs_truncate_async(Context, Text, u64, Callback, *mut c_void) -> c_int;
    nfs_unlink_async(Context, Text, Callback, *mut c_void) -> c_int;
    nfs_mkdir2_async(Context, Text, c_int, Callback, *mut c_void) -> c_int;
    nfs_rmdir_async(Context, Text, Callback, *mut c_void) -> c_int;
    nfs_rename_async(Context, Text, Text, Callback, *mut c_void) -> c_int;
    nfs_stat64_async(Context, Text, Callback, *mut c_void) -> c_int;
}

impl Library {
    /// Loads the library, or returns the one that is loaded.
    pub(crate) fn load() -> Result<Arc<Self>, PeerError> {
        static LOADED: OnceLock<Arc<Library>> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self::open(FILE)?);
        Ok(Arc::clone(LOADED.get_or_init(|| library)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_the_peer_is_told_what_to_install() {
        for file in ["libnfs.so.none", "libc.so.6"] {
            let Err(error) = Library::open(file) else { panic!("{file} is no libnfs") };
            assert!(error.is_missing());
            assert!(error.to_string().contains("libnfs13"), "{error}");
        }
    }
}
