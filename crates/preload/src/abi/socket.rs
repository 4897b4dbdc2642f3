//! Calls with addresses of local sockets.

use std::ffi::{CString, c_int};

use libc::{AT_FDCWD, sockaddr_un, socklen_t};

use crate::config;
use crate::errors::{Failure, Outcome};
use crate::guard;
use crate::route::{Place, Route, route};
use crate::state::State;
use crate::user_memory::{Purpose, must_have};

const PATH: usize = std::mem::offset_of!(sockaddr_un, sun_path);

/// Returns the place of a local socket's address, if it is in DAFS.
///
/// # Safety
/// The address has `length` bytes.
unsafe fn place_of(address: *const sockaddr_un, length: socklen_t) -> Option<Place> {
    let length = (length as usize).min(size_of::<sockaddr_un>());
    if config::get().mounts.is_empty() || guard::is_inside() || address.is_null() || length <= PATH
    {
        return None;
    }
    // If the pointer is invalid, the kernel's call reports the error.
    must_have(address.cast(), length, Purpose::Reading).ok()?;
    // SAFETY: the caller guarantees the address, and it was checked to be readable. It may be
    // unaligned, so only its bytes are referred to.
    let (family, path) = unsafe {
        let path = address.cast::<u8>().add(PATH);
        let family = (&raw const (*address).sun_family).read_unaligned();
        (family, std::slice::from_raw_parts(path, length - PATH))
    };
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    if i32::from(family) != libc::AF_UNIX || path.is_empty() {
        return None;
    }
    let path = CString::new(path).ok()?;
    // SAFETY: the path ends with a zero.
    match unsafe { route(AT_FDCWD, path.as_ptr()) } {
        Route::Dafs(place) => Some(place),
        Route::Kernel | Route::KernelAt(_) | Route::Refused(_) => None,
    }
}

/// Returns the kernel's address for an abstract socket name, which is not in the file system.
fn address_of(name: &[u8]) -> (sockaddr_un, socklen_t) {
    // SAFETY: all-zero bytes are a valid `sockaddr_un`.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = *from as _;
    }
    (address, (PATH + name.len().min(address.sun_path.len())) as socklen_t)
}

macro_rules! addressing {
    ($($name:ident, $behind:expr;)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                fd: c_int,
                given: *const sockaddr_un,
                length: socklen_t,
            ) -> c_int {
                // SAFETY: the program passes an address of this length.
                let place = unsafe { place_of(given, length) };
                let (mut address, mut length) = (given, length);
                let held;
                if let Some(place) = &place {
                    let find: fn(&mut State, &Place) -> Outcome<Vec<u8>> = $behind;
                    match guard::with(|state| find(state, place)) {
                        Ok(name) => held = address_of(&name),
                        Err(Failure::Elsewhere(_)) => {
                            return guard::refused(&Failure::Errno(libc::EOPNOTSUPP));
                        }
                        Err(failure) => return guard::refused(&failure),
                    }
                    (address, length) = (&raw const held.0, held.1);
                }
                real!($name(
                    fd => c_int, address => *const sockaddr_un, length => socklen_t,
                ) -> c_int)
            }
        )+
    };
}

addressing! {
    bind, |state, place| state.bind(place);
    connect, |state, place| state.listener(place);
}
