//! Calls that list directories.

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::{AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_RDONLY, dirent64};

use crate::directories::Stream;
use crate::guard;
use crate::report::{self, Call};

/// A directory stream of the C library, whose layout this library does not know.
type LibcStream = c_void;

on_path! {
    fn [opendir](path: *const c_char) -> *mut LibcStream,
        (AT_FDCWD, path), List, |state, place| {
            let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
            let number = state.open(place, flags, 0)?;
            match Stream::open(state, number) {
                Ok(stream) => Ok(stream.cast()),
                Err(failure) => {
                    let _ = state.close(number);
                    Err(failure)
                }
            }
        };
}

on_descriptor! {
    fn [fdopendir](fd: c_int) -> *mut LibcStream,
        fd, List, |state, _it| Stream::open(state, fd).map(|stream| stream.cast());
}

/// Returns the stream at this address if this library made it. Several threads may use one stream
/// at once, so there are only shared references to it.
///
/// # Safety
/// The address is null or that of a directory stream that is not closed during the call.
unsafe fn ours<'s>(stream: *mut LibcStream) -> Option<&'s Stream> {
    let stream: *const Stream = stream.cast_const().cast();
    // SAFETY: the caller guarantees the address; a stream of ours lives until it is closed.
    unsafe { if Stream::is_ours(stream) { Some(&*stream) } else { None } }
}

macro_rules! on_stream {
    ($(fn [$($name:ident)+]($($argument:ident: $type:ty),*) -> $result:ty,
        |$it:ident| $body:expr;)+) => {
        $(on_stream!(@each [$($name)+] ($($argument: $type),*) $result, |$it| $body);)+
    };
    (@each [$($name:ident)+] $arguments:tt $result:ty, |$it:ident| $body:expr) => {
        $(on_stream!(@one $name $arguments $result, |$it| $body);)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) $result:ty, |$it:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(stream: *mut LibcStream, $($argument: $type),*) -> $result {
            // SAFETY: the program passes a stream.
            if let Some($it) = unsafe { ours(stream) } {
                return $body;
            }
            real!($name(stream => *mut LibcStream, $($argument => $type),*) -> $result)
        }
    };
}

on_stream! {
    fn [readdir readdir64]() -> *mut dirent64, |it| it.next();
    fn [telldir]() -> c_long, |it| it.tell();
    fn [seekdir](position: c_long) -> (), |it| it.seek(position);
    fn [dirfd]() -> c_int, |it| it.number();
    fn [rewinddir]() -> (), |it| {
        report::served(Call::List);
        let number = it.number();
        if let Ok(entries) = guard::with(|state| state.entries(number)) {
            it.rewind(entries);
        }
    };
    fn [readdir_r readdir64_r](entry: *mut dirent64, found: *mut *mut dirent64) -> c_int, |it| {
        // SAFETY: the program passes memory for an entry, and an address.
        unsafe {
            let is_there = it.next_into(entry);
            found.write_unaligned(if is_there { entry } else { std::ptr::null_mut() });
        }
        0
    };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closedir(stream: *mut LibcStream) -> c_int {
    // SAFETY: the program passes a stream.
    let Some(it) = (unsafe { ours(stream) }) else {
        return real!(closedir(stream => *mut LibcStream) -> c_int);
    };
    let number = it.number();
    // SAFETY: `Stream::open` made the stream, and the program no longer uses it.
    drop(unsafe { Box::from_raw(stream.cast::<Stream>()) });
    // SAFETY: `close` accepts any number.
    unsafe { super::fd::close(number) }
}

/// The callback of `scandir` that selects entries.
type Filter = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
/// The callback of `scandir` that orders entries.
type Order = Option<unsafe extern "C" fn(*const *const dirent64, *const *const dirent64) -> c_int>;

macro_rules! scanning {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                path: *const c_char,
                list: *mut *mut *mut dirent64,
                filter: Filter,
                order: Order,
            ) -> c_int {
                // SAFETY: the program's arguments are as the manual of `scandir` requires.
                unsafe {
                    let route = crate::route::route(AT_FDCWD, path);
                    if matches!(route, crate::route::Route::Dafs(_)) {
                        return scan(path, list, filter, order);
                    }
                }
                real!($name(
                    path => *const c_char, list => *mut *mut *mut dirent64, filter => Filter,
                    order => Order,
                ) -> c_int)
            }
        )+
    };
}

scanning! { scandir scandir64 }

/// # Safety
/// The arguments are as the manual of `scandir` requires.
unsafe fn scan(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    order: Order,
) -> c_int {
    // SAFETY: the caller guarantees the arguments; every allocation is as long as what is written
    // to it.
    unsafe {
        let stream = opendir(path);
        if stream.is_null() {
            return -1;
        }
        let (mut found, mut is_complete) = (Vec::<*mut dirent64>::new(), true);
        loop {
            let entry = readdir64(stream);
            if entry.is_null() {
                break;
            }
            if filter.is_none_or(|filter| filter(entry) != 0) {
                let copy: *mut dirent64 = libc::malloc(size_of::<dirent64>()).cast();
                if copy.is_null() {
                    is_complete = false;
                    break;
                }
                copy.write(*entry);
                found.push(copy);
            }
        }
        closedir(stream);
        let bytes = (found.len() * size_of::<*mut dirent64>()).max(1);
        let array: *mut *mut dirent64 = libc::malloc(bytes).cast();
        if array.is_null() || !is_complete {
            found.iter().for_each(|copy| libc::free(copy.cast()));
            libc::free(array.cast());
            crate::errors::set(libc::ENOMEM);
            return -1;
        }
        std::ptr::copy_nonoverlapping(found.as_ptr(), array, found.len());
        if let Some(order) = order {
            let order = std::mem::transmute::<
                unsafe extern "C" fn(*const *const dirent64, *const *const dirent64) -> c_int,
                unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
            >(order);
            let size = size_of::<*mut dirent64>();
            libc::qsort(array.cast(), found.len(), size, Some(order));
        }
        *list = array;
        found.len() as c_int
    }
}
