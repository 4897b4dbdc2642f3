//! Calls to the C library's own functions, which this library shadows.
//!
//! Invariant: each function is looked up once by its name, and is called with the type in its
//! manual.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns the address of the C library's function with a name, or null if there is none. Caches
/// the address in `place`.
pub(crate) fn find(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends with a zero, and RTLD_NEXT is a valid handle for dlsym.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    place.store(found, Ordering::Relaxed);
    found
}

/// Calls the C library's function with this name. If there is none, the call fails with ENOSYS.
macro_rules! real {
    ($name:ident($($argument:expr => $type:ty),* $(,)?) -> $result:ty) => {{
        static PLACE: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let name = concat!(stringify!($name), "\0");
        let name = std::ffi::CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
        let found = $crate::real::find(&PLACE, name);
        if found.is_null() {
            $crate::errors::set(libc::ENOSYS);
            <$result as $crate::errors::Answer>::FAILED
        } else {
            // SAFETY: the C library's function with this name has this type. Its arguments are the
            // program's own, or valid according to its manual.
            unsafe {
                let call: unsafe extern "C" fn($($type),*) -> $result =
                    std::mem::transmute::<*mut std::ffi::c_void, _>(found);
                call($($argument),*)
            }
        }
    }};
}
