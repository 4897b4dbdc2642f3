//! Calls for mapped memory.

use std::ffi::{c_int, c_void};

use crate::errors::{self, Mapped};
use crate::guard;
use crate::mapping::{MmapRequest, is_tracked};
use crate::report::{self, Call, Miss, missed};
use crate::state::is_ours;
use crate::user_memory;

macro_rules! mapping {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                address: *mut c_void,
                length: usize,
                protection: c_int,
                flags: c_int,
                number: c_int,
                offset: i64,
            ) -> Mapped {
                let replaces = flags & libc::MAP_FIXED != 0;
                if replaces {
                    release(address, length);
                }
                let is_file = is_ours(number) && flags & libc::MAP_ANONYMOUS == 0;
                let mapped = if is_file && !guard::is_inside() {
                    report::served(Call::Map);
                    let request =
                        MmapRequest { address, length, protection, flags, number, offset };
                    super::answer(|state| state.map(request))
                } else {
                    real!($name(
                        address => *mut c_void, length => usize, protection => c_int,
                        flags => c_int, number => c_int, offset => i64,
                    ) -> Mapped)
                };
                if replaces {
                    user_memory::forget();
                }
                mapped
            }
        )+
    };
}

mapping! { mmap mmap64 }

/// Writes back and releases the mappings of files in DAFS in a range that is about to be unmapped
/// or replaced.
fn release(address: *mut c_void, length: usize) {
    if is_tracked() && !guard::is_inside() {
        // Ignore an error: data that cannot be written is lost, as with a failing disk.
        let _ = guard::with(|state| {
            let written = state.write_back(address as usize, length, false);
            state.release_mappings(address as usize, length);
            written
        });
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    release(address, length);
    let answer = real!(munmap(address => *mut c_void, length => usize) -> c_int);
    user_memory::forget();
    answer
}

/// Defines calls after which memory may be gone or protected.
macro_rules! forgetting {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                let answer = real!($name($($argument => $type),*) -> c_int);
                user_memory::forget();
                answer
            }
        )+
    };
}

forgetting! {
    fn mprotect(address: *mut c_void, length: usize, protection: c_int);
    fn pkey_mprotect(address: *mut c_void, length: usize, protection: c_int, key: c_int);
    fn shmdt(address: *const c_void);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn msync(address: *mut c_void, length: usize, flags: c_int) -> c_int {
    if is_tracked() && !guard::is_inside() {
        let is_sync = flags & libc::MS_SYNC != 0;
        let written: c_int =
            super::answer(|state| state.write_back(address as usize, length, is_sync));
        if written == -1 {
            return -1;
        }
    }
    real!(msync(address => *mut c_void, length => usize, flags => c_int) -> c_int)
}

/// True if any part of the range is a mapping of a file in DAFS.
fn stands_for_a_file(address: *mut c_void, length: usize) -> bool {
    let found = || guard::with(|state| Ok(state.mappings.has(address as usize, length)));
    is_tracked() && !guard::is_inside() && found().unwrap_or(false)
}

/// Refuses to grow or move a mapping of a file in DAFS. A mapping that is a copy would not show
/// more of its file, and a moved mapping could not be tracked. Passes other calls to the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mremap(
    address: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> Mapped {
    if stands_for_a_file(address, old) {
        missed(Miss::Mapping);
        errors::set(libc::ENOMEM);
        return Mapped(libc::MAP_FAILED);
    }
    let mapped = real!(mremap(
        address => *mut c_void, old => usize, new => usize, flags => c_int, to => *mut c_void,
    ) -> Mapped);
    user_memory::forget();
    mapped
}

/// Ignores advice to discard the pages of a mapping that is a copy, because the kernel could not
/// read the copy again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn madvise(
    address: *mut c_void,
    length: usize,
    advice: c_int,
) -> c_int {
    let forgets = matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE);
    if forgets && stands_for_a_file(address, length) {
        if advice == libc::MADV_DONTNEED {
            return 0;
        }
        errors::set(libc::EINVAL);
        return -1;
    }
    real!(madvise(address => *mut c_void, length => usize, advice => c_int) -> c_int)
}
