//! Calls for extended attributes, directory listings and programs.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::bytes;
use crate::perform::{Brought, Failure, Performer, misuse, nothing, number, shown, size};
use crate::raw::{self, Directory};

/// Executes a call of this module. Returns `None` for other calls.
pub(crate) fn perform(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    xattrs(by, words).or_else(|| directories(by, words)).or_else(|| programs(by, words))
}

fn xattrs(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["setxattr", path, name, value] => setxattr(path, name, value, 0),
        ["setxattr", path, name, value, "create"] => {
            setxattr(path, name, value, libc::XATTR_CREATE)
        }
        ["setxattr", path, name, value, "replace"] => {
            setxattr(path, name, value, libc::XATTR_REPLACE)
        }
        ["fsetxattr", file, name, value] => byte_words(value)
            .and_then(|value| nothing(raw::fsetxattr(by.file(file)?, name, &value, 0))),
        ["getxattr", path, name] => read_xattr(raw::getxattr(path, name, ROOM)),
        ["getxattr", path, name, "size"] => {
            raw::getxattr(path, name, 0).map(|v| v.len().to_string()).map_err(Into::into)
        }
        ["getxattr", path, name, room] => {
            size(room).and_then(|room| read_xattr(raw::getxattr(path, name, room)))
        }
        ["fgetxattr", file, name] => {
            by.file(file).and_then(|file| read_xattr(raw::fgetxattr(file, name, ROOM)))
        }
        ["listxattr", path] => listxattr(path, ROOM),
        ["listxattr", path, room] => size(room).and_then(|room| listxattr(path, room)),
        ["removexattr", path, name] => nothing(raw::removexattr(path, name)),
        _ => return None,
    })
}

/// A buffer size that is sufficient for any attribute.
const ROOM: usize = 65_536;

fn byte_words(text: &str) -> Result<Vec<u8>, Failure> {
    bytes::from_text(text).ok_or_else(|| misuse(format!("{text}: no bytes")))
}

fn setxattr(path: &str, name: &str, value: &str, flags: i32) -> Brought {
    nothing(raw::setxattr(path, name, &byte_words(value)?, flags))
}

fn read_xattr(value: raw::Outcome<Vec<u8>>) -> Brought {
    Ok(shown(&value?))
}

/// Returns the names of `user.*` attributes, sorted.
fn listxattr(path: &str, room: usize) -> Brought {
    let names = raw::listxattr(path, room)?;
    let names = names.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let names: BTreeSet<_> = names.filter(|name| name.starts_with("user.")).collect();
    Ok(joined(names))
}

fn joined(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.as_ref().into()).collect();
    if names.is_empty() { "-".into() } else { names.join(",") }
}

fn directories(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["list", path] => list(path),
        ["count", path] => entries(path).map(|names| names.len().to_string()),
        ["fill", path, prefix, count] => each(path, prefix, count, |name| {
            raw::close(raw::open(name, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644)?)
        }),
        ["drain", path, prefix, count] => each(path, prefix, count, raw::unlink),
        ["nest", path, count] => nest(path, count),
        ["opendir", path, slot] => Directory::open(path).map_err(Into::into).map(|opened| {
            by.directories.insert(slot.into(), opened);
            "ok".into()
        }),
        ["readdir", slot] => readdir(by, slot),
        ["rest", slot] => rest(by, slot),
        ["telldir", slot, position] => by.directory(slot).map(|d| d.tell()).map(|at| {
            by.positions.insert(position.into(), at);
            "ok".into()
        }),
        ["seekdir", slot, position] => seekdir(by, slot, position),
        ["rewinddir", slot] => by.directory(slot).map(|directory| {
            directory.rewind();
            "ok".into()
        }),
        ["closedir", slot] => match by.directories.remove(slot) {
            Some(_) => Ok("ok".into()),
            None => Err(misuse(format!("{slot} is not open"))),
        },
        _ => return None,
    })
}

fn is_dots(name: &str) -> bool {
    name == "." || name == ".."
}

/// Returns all names except `.` and `..`. Fails if a name appears twice.
fn entries(path: &str) -> Result<BTreeSet<String>, Failure> {
    let mut directory = Directory::open(path)?;
    let mut names = BTreeSet::new();
    while let Some((name, _)) = directory.next_entry()? {
        if !is_dots(&name) && !names.insert(name.clone()) {
            return Err(misuse(format!("{name} comes twice")));
        }
    }
    Ok(names)
}

fn list(path: &str) -> Brought {
    Ok(joined(entries(path)?))
}

fn each(path: &str, prefix: &str, count: &str, call: impl Fn(&str) -> raw::Outcome<()>) -> Brought {
    for index in 0..number(count)? {
        call(&format!("{path}/{prefix}{index}"))?;
    }
    Ok("ok".into())
}

/// Makes `count` nested directories.
fn nest(path: &str, count: &str) -> Brought {
    let mut at = path.to_string();
    for _ in 0..number(count)? {
        raw::mkdir(&at, 0o755)?;
        at += "/d";
    }
    Ok("ok".into())
}

/// Returns the next name and its type, or `end`.
fn readdir(by: &mut Performer, slot: &str) -> Brought {
    loop {
        match by.directory(slot)?.next_entry()? {
            Some((name, _)) if is_dots(&name) => {}
            Some((name, _)) => return Ok(name),
            None => return Ok("end".into()),
        }
    }
}

/// Returns the number of remaining names. Fails if a name appears twice.
fn rest(by: &mut Performer, slot: &str) -> Brought {
    let mut names = BTreeSet::new();
    while let Some((name, _)) = by.directory(slot)?.next_entry()? {
        if !is_dots(&name) && !names.insert(name.clone()) {
            return Ok(format!("twice:{name}"));
        }
    }
    Ok(names.len().to_string())
}

fn seekdir(by: &mut Performer, slot: &str, position: &str) -> Brought {
    let at = by.positions.get(position).copied();
    let at = at.ok_or_else(|| misuse(format!("{position} is no position")))?;
    by.directory(slot)?.seek(at);
    Ok("ok".into())
}

fn programs(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["copy", from, to] => std::fs::copy(from, to).map(|_| "ok".into()).map_err(failed),
        ["run", path] => run(path, None),
        ["run", path, argument] => run(path, Some(argument)),
        ["spawn", slot, path, argument] => {
            let mut command = Command::new(here(path));
            let started = command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            started.map_err(failed).map(|child| {
                by.children.insert(slot.into(), child);
                "ok".into()
            })
        }
        ["reap", slot] => match by.children.remove(slot) {
            Some(mut child) => {
                let _ = child.kill();
                child.wait().map(|_| "ok".into()).map_err(failed)
            }
            None => Err(misuse(format!("{slot} does not run"))),
        },
        _ => return None,
    })
}

/// Returns a path with a slash, so that the program is not searched for in `PATH`.
fn here(path: &str) -> String {
    if path.contains('/') { path.into() } else { format!("./{path}") }
}

/// Runs a program to its end and returns its exit code.
fn run(path: &str, argument: Option<&str>) -> Brought {
    let mut command = Command::new(here(path));
    let ended = command.args(argument).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let code = ended.map_err(failed)?.code();
    Ok(code.map_or_else(|| "signal".into(), |code| code.to_string()))
}

fn failed(error: std::io::Error) -> Failure {
    error.raw_os_error().map_or_else(|| misuse(error.to_string()), Failure::Errno)
}
