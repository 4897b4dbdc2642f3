//! Calls about mapped memory.

use std::ffi::{c_int, c_void};

use crate::errors::Mapped;
use crate::guard;
use crate::mapping::{Wish, is_tracked};
use crate::report::{self, Call};
use crate::state::is_ours;

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
                if is_ours(number) && flags & libc::MAP_ANONYMOUS == 0 && !guard::is_inside() {
                    report::served(Call::Map);
                    let wish = Wish { address, length, protection, flags, number, offset };
                    return super::answer(|state| state.map(wish));
                }
                real!($name(
                    address => *mut c_void, length => usize, protection => c_int, flags => c_int,
                    number => c_int, offset => i64,
                ) -> Mapped)
            }
        )+
    };
}

mapping! { mmap mmap64 }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    if is_tracked() && !guard::is_inside() {
        // What cannot be written is lost with the mapping, as on a disk that fails.
        let _ = guard::with(|state| {
            let written = state.write_back(address as usize, length, false);
            state.let_go_of_mappings(address as usize, length);
            written
        });
    }
    real!(munmap(address => *mut c_void, length => usize) -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(address: *mut c_void, length: usize, flags: c_int) -> c_int {
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
