//! Calls that open files.

use std::ffi::{c_char, c_int};

use libc::{AT_FDCWD, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY};

use crate::errors;
use crate::guard;
use crate::route::{Route, route};

on_path! {
    fn [open open64](path: *const c_char, flags: c_int, mode: u32) -> c_int,
        (AT_FDCWD, path), Open, |state, place| state.open(place, flags, mode);
    fn [openat openat64](at: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int,
        (at, path), Open, |state, place| state.open(place, flags, mode);
    fn [creat creat64](path: *const c_char, mode: u32) -> c_int,
        (AT_FDCWD, path), Open,
        |state, place| state.open(place, O_CREAT | O_TRUNC | O_WRONLY, mode);
    fn [__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int,
        (AT_FDCWD, path), Open, |state, place| state.open(place, flags, 0);
    fn [__openat_2 __openat64_2](at: c_int, path: *const c_char, flags: c_int) -> c_int,
        (at, path), Open, |state, place| state.open(place, flags, 0);
}

/// True if the directory of a file name template is in DAFS.
///
/// # Safety
/// The template ends with a zero.
unsafe fn is_served(template: *const c_char) -> bool {
    // SAFETY: the caller guarantees the template.
    matches!(unsafe { route(AT_FDCWD, template) }, Route::Dafs(_))
}

/// Fills a template with random names until `make` succeeds with one.
///
/// # Safety
/// The template is writable and ends with a zero.
unsafe fn with_new_name(
    template: *mut c_char,
    suffix: c_int,
    mut try_name: impl FnMut() -> c_int,
) -> c_int {
    // SAFETY: the caller guarantees the template.
    let length = unsafe { libc::strlen(template) };
    let Some(at) = length.checked_sub(6 + suffix.max(0) as usize) else {
        return invalid();
    };
    // SAFETY: these six bytes are within the template. They are not kept as a reference, because
    // `try_name` reads them, too.
    let letters = unsafe { template.add(at).cast::<[u8; 6]>() };
    // SAFETY: as above; the bytes need no alignment.
    if unsafe { letters.read() } != *b"XXXXXX" {
        return invalid();
    }
    for _ in 0..TRIES_MAX {
        let mut bits = 0_u64;
        // SAFETY: the buffer has 8 bytes.
        guard::without_interception(|| unsafe { libc::getrandom((&raw mut bits).cast(), 8, 0) });
        let chosen = std::array::from_fn(|_| {
            let letter = LETTERS[(bits % LETTERS.len() as u64) as usize];
            bits /= LETTERS.len() as u64;
            letter
        });
        // SAFETY: the caller guarantees that the template is writable.
        unsafe { letters.write(chosen) };
        let made = try_name();
        if made != -1 || errors::get() != libc::EEXIST {
            return made;
        }
    }
    errors::set(libc::EEXIST);
    -1
}

fn invalid() -> c_int {
    errors::set(libc::EINVAL);
    -1
}

unsafe fn make_file(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let flags = flags & !libc::O_ACCMODE | O_RDWR | O_CREAT | O_EXCL;
    // SAFETY: the program passes a template as the manual requires.
    unsafe { with_new_name(template, suffix, || open(template, flags, 0o600)) }
}

macro_rules! temporary {
    ($(fn [$($name:ident)+] $arguments:tt, $template:ident, $suffix:expr, $flags:expr;)+) => {
        $($(temporary!(@one $name $arguments, $template, $suffix, $flags);)+)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*), $template:ident, $suffix:expr,
        $flags:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the program passes a template as the manual requires.
            unsafe {
                if is_served($template) {
                    return make_file($template, $suffix, $flags);
                }
            }
            real!($name($($argument => $type),*) -> c_int)
        }
    };
}

temporary! {
    fn [mkstemp mkstemp64](template: *mut c_char), template, 0, 0;
    fn [mkostemp mkostemp64](template: *mut c_char, flags: c_int), template, 0, flags;
    fn [mkstemps mkstemps64](template: *mut c_char, suffix: c_int), template, suffix, 0;
    fn [mkostemps mkostemps64](template: *mut c_char, suffix: c_int, flags: c_int),
        template, suffix, flags;
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the program passes a template as the manual requires.
    if !unsafe { is_served(template) } {
        return real!(mkdtemp(template => *mut c_char) -> *mut c_char);
    }
    // SAFETY: the program passes a template as the manual requires.
    unsafe {
        match with_new_name(template, 0, || super::namespace::mkdir(template, 0o700)) {
            -1 => std::ptr::null_mut(),
            _ => template,
        }
    }
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const TRIES_MAX: u32 = 1000;
