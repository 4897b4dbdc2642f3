//! Hides passwords in arguments, which every user can read in the process list.
//!
//! Invariant: once the program runs, its arguments show no password. They are visible for a moment
//! before that, so `--password-from` is better.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use dafs_client::password_range;

static TYPED: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns the original arguments, passwords included.
pub(crate) fn arguments() -> &'static [OsString] {
    TYPED.get_or_init(|| std::env::args_os().collect())
}

/// Overwrites the passwords in the arguments that other users can read.
pub(crate) fn hide() {
    let arguments = arguments();
    if !arguments.iter().any(|argument| range_in(argument).is_some()) {
        return;
    }
    if let Err(error) = overwrite(arguments) {
        eprintln!(
            "dafs: other users can see the password in the process list, because it cannot be \
            overwritten there ({error}); give --password-from FILE"
        );
    }
}

/// Returns the range of the password in an argument, which may not be UTF-8.
fn range_in(argument: &OsStr) -> Option<Range<usize>> {
    let ascii = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { 'x' };
    let text: String = argument.as_bytes().iter().map(ascii).collect();
    password_range(&text)
}

/// Overwrites arguments in this process's memory, where the kernel keeps them one after the other.
fn overwrite(arguments: &[OsString]) -> Result<()> {
    let (start, end) = place()?;
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let mut at = start;
    for argument in arguments {
        let bytes = argument.as_bytes();
        let behind = at + bytes.len() as u64;
        if behind > end || !is_at(&memory, at, bytes)? {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the arguments are not where they were",
            ));
        }
        if let Some(range) = range_in(argument) {
            memory.write_all_at(&vec![b'*'; range.len()], at + range.start as u64)?;
        }
        at = behind + 1;
    }
    Ok(())
}

fn is_at(memory: &File, at: u64, bytes: &[u8]) -> Result<bool> {
    let mut found = vec![0; bytes.len()];
    memory.read_exact_at(&mut found, at)?;
    Ok(found == bytes)
}

/// Returns the addresses where the arguments begin and end: fields 48 and 49 of proc_pid_stat(5).
fn place() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The second field, a name in parentheses, may contain any character.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse().ok());
    let places = field(48).zip(field(49));
    places.ok_or_else(|| Error::new(ErrorKind::InvalidData, "the kernel does not report where"))
}
