//! Starting programs: their environment, and programs that are files in DAFS.
//!
//! Invariant: a program that this process starts has the same mappings and the same working
//! directory, whatever environment the caller gives to it.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::MemfdFlags;

use crate::config;
use crate::data::Piece;
use crate::errors::{Failure, Outcome, fail};
use crate::opening::TO_RUN;
use crate::route::{self, Place};
use crate::state::State;
use crate::user_memory;

/// A list of strings, as `exec` takes it, with the memory of the strings.
pub(crate) struct Strings {
    _held: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new(held: Vec<CString>) -> Self {
        let pointers = held.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { _held: held, pointers }
    }

    /// Returns a pointer to the list.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Returns the environment for a started program: the given environment and the variables of this
/// library.
///
/// # Safety
/// The list does not change during the call.
///
/// # Errors
/// EFAULT if the list is not readable, as from the kernel.
pub(crate) unsafe fn environment(given: *const *const c_char) -> Outcome<Strings> {
    let own = &config::get().environment;
    // SAFETY: the caller guarantees the list.
    let given = unsafe { user_memory::texts(given) }?;
    let is_ours = |text: &CString| {
        let begins = |entry: &[u8]| {
            let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
            let text = text.to_bytes();
            text.starts_with(name) && text.get(name.len()) == Some(&b'=')
        };
        own.iter().any(|entry| begins(entry) && !entry.starts_with(config::LIBRARIES.as_bytes()))
            || begins(config::DIRECTORY.as_bytes())
    };
    let mut held: Vec<CString> = given.into_iter().filter(|text| !is_ours(text)).collect();
    for entry in own {
        let libraries = format!("{}=", config::LIBRARIES);
        match entry.strip_prefix(libraries.as_bytes()) {
            // The program may have changed the list of preloaded libraries, so add this library.
            Some(library) => put_library(&mut held, &libraries, library),
            None => held.extend(CString::new(entry.clone())),
        }
    }
    if let Some(directory) = route::directory() {
        let entry = [config::DIRECTORY.as_bytes(), b"=", directory.as_bytes()].concat();
        held.extend(CString::new(entry));
    }
    Ok(Strings::new(held))
}

fn put_library(held: &mut Vec<CString>, name: &str, library: &[u8]) {
    let given = held.iter().position(|text| text.to_bytes().starts_with(name.as_bytes()));
    let before = given.map(|at| held.swap_remove(at).into_bytes()[name.len()..].to_vec());
    let value = match before {
        None => library.to_vec(),
        Some(before) if before.windows(library.len()).any(|part| part == library) => before,
        Some(before) => [library, b":", &before].concat(),
    };
    held.extend(CString::new([name.as_bytes(), &value].concat()));
}

/// The way to run a program that is a file in DAFS.
pub(crate) enum Program {
    /// Execute the descriptor of a local copy.
    Copy(RawFd),
    /// Run this interpreter with its optional argument and the path of the script.
    Script(CString, Option<CString>),
}

impl State {
    /// Determines the way to run the program in the file at `place`.
    pub(crate) fn program(&mut self, place: &Place) -> Outcome<Program> {
        self.access(place, libc::X_OK, true)?;
        let number = self.open(place, libc::O_RDONLY | libc::O_CLOEXEC | TO_RUN, 0)?;
        let copied = self.copy_of(number);
        let _ = self.close(number);
        let bytes = copied?;
        if let Some(line) = bytes.strip_prefix(b"#!") {
            return script(line);
        }
        let copy = rustix::fs::memfd_create("program", MemfdFlags::CLOEXEC);
        let copy = copy.map_err(|error| Failure::Errno(error.raw_os_error()))?;
        let mut copy = std::fs::File::from(copy);
        use std::io::Write;
        copy.write_all(&bytes).map_err(|_| Failure::Errno(libc::ENOMEM))?;
        Ok(Program::Copy(std::os::fd::IntoRawFd::into_raw_fd(copy)))
    }

    /// Reads the whole contents of a file.
    fn copy_of(&mut self, number: RawFd) -> Outcome<Vec<u8>> {
        let of = self.get(number)?;
        let mut bytes = Vec::new();
        loop {
            let held = bytes.len();
            // The server says how long the file is, so the length must not end the program.
            let room = bytes.try_reserve(COPIED_AT_ONCE);
            if held > PROGRAM_BYTES_MAX || room.is_err() {
                return fail(libc::ENOMEM);
            }
            bytes.resize(held + COPIED_AT_ONCE, 0);
            let piece = Piece { start: bytes[held..].as_mut_ptr(), length: COPIED_AT_ONCE };
            let read = self.read_at(&of, &[piece], held as i64)? as usize;
            bytes.truncate(held + read);
            if read < COPIED_AT_ONCE {
                return Ok(bytes);
            }
        }
    }
}

fn script(line: &[u8]) -> Outcome<Program> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let at = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, argument) = (&line[..at], line[at..].trim_ascii());
    let string = |text: &[u8]| CString::new(text).map_err(|_| Failure::Errno(libc::ENOEXEC));
    if interpreter.is_empty() {
        return fail(libc::ENOEXEC);
    }
    let argument = if argument.is_empty() { None } else { Some(string(argument)?) };
    Ok(Program::Script(string(interpreter)?, argument))
}

/// Returns the arguments for an interpreter that runs a script.
///
/// # Safety
/// The list `given` does not change during the call.
///
/// # Errors
/// EFAULT if the list is not readable, as from the kernel.
pub(crate) unsafe fn script_arguments(
    interpreter: &CStr,
    argument: Option<&CStr>,
    script: &CStr,
    given: *const *const c_char,
) -> Outcome<Strings> {
    let mut held = vec![interpreter.to_owned()];
    held.extend(argument.map(CStr::to_owned));
    held.push(script.to_owned());
    // SAFETY: the caller guarantees the list.
    held.extend(unsafe { user_memory::texts(given) }?.into_iter().skip(1));
    Ok(Strings::new(held))
}

const COPIED_AT_ONCE: usize = 1 << 20;
/// The maximum length in bytes of a program in DAFS, which is copied into memory.
const PROGRAM_BYTES_MAX: usize = 4 << 30;
