//! The C library's own functions, behind those of this library.
//!
//! Invariant: a function is looked for once, by its name, and called with the type that its
//! manual gives it.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The address of the next function of a name; null if there is none.
pub fn find(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends with a zero, and RTLD_NEXT is a handle that dlsym takes.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    place.store(found, Ordering::Relaxed);
    found
}

/// Calls the C library's function of a name. Where it has none, the call fails with ENOSYS.
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
            // SAFETY: the C library's function of this name has this type; its arguments are
            // the program's own, or as its manual asks for.
            unsafe {
                let call: unsafe extern "C" fn($($type),*) -> $result =
                    std::mem::transmute::<*mut std::ffi::c_void, _>(found);
                call($($argument),*)
            }
        }
    }};
}
