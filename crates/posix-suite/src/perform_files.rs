//! Calls on open files and their contents.

use crate::bytes;
use crate::perform::{
    Brought, Failure, Performer, flags, misuse, mode, nothing, number, shown, size,
};
use crate::raw::{self, Map};

/// Executes a call of this module. Returns `None` for other calls.
pub(crate) fn perform(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    data(by, words).or_else(|| locks(by, words)).or_else(|| maps(by, words))
}

fn data(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["open", path, how] => open(path, how, "0"),
        ["open", path, how, slot] if slot.starts_with(':') => keep(by, slot, path, how, "0"),
        ["open", path, how, bits] => open(path, how, bits),
        ["open", path, how, bits, slot] => keep(by, slot, path, how, bits),
        ["openat", from, path, how] => openat(by, from, path, how, "0", None),
        ["openat", from, path, how, bits] => openat(by, from, path, how, bits, None),
        ["openat", from, path, how, bits, slot] => openat(by, from, path, how, bits, Some(slot)),
        ["close", file] => match by.files.remove(file) {
            Some(file) => nothing(raw::close(file)),
            None => Err(misuse(format!("{file} is not open"))),
        },
        ["dup", file, slot] => by.file(file).and_then(|f| Ok(raw::dup(f)?)).map(|other| {
            by.files.insert(slot.into(), other);
            "ok".into()
        }),
        ["fchdir", file] => by.file(file).and_then(|f| nothing(raw::fchdir(f))),
        ["read", file, count] => read(by, file, count, None),
        ["pread", file, offset, count] => read(by, file, count, Some(offset)),
        ["write", file, text] => write(by, file, text, None),
        ["pwrite", file, offset, text] => write(by, file, text, Some(offset)),
        ["content", path] => content(path),
        ["lseek", file, offset, from] => lseek(by, file, offset, from),
        ["truncate", path, length] => number(length).and_then(|l| nothing(raw::truncate(path, l))),
        ["ftruncate", file, length] => {
            number(length).and_then(|l| nothing(raw::ftruncate(by.file(file)?, l)))
        }
        ["fallocate", file, how, offset, length] => fallocate(by, file, how, offset, length),
        ["fsync", file] => by.file(file).and_then(|f| nothing(raw::fsync(f))),
        ["fdatasync", file] => by.file(file).and_then(|f| nothing(raw::fdatasync(f))),
        ["copyrange", from, from_offset, to, to_offset, length] => {
            copy_range(by, (from, from_offset), (to, to_offset), length)
        }
        ["getfl", file] => getfl(by, file),
        _ => return None,
    })
}

fn open(path: &str, how: &str, bits: &str) -> Brought {
    nothing(raw::close(raw::open(path, flags(how)?, mode(bits)?)?))
}

/// Parses the name of a slot after its colon.
fn slot(text: &str) -> Result<String, Failure> {
    let name = text.strip_prefix(':').ok_or_else(|| misuse(format!("{text}: no :SLOT")))?;
    Ok(name.into())
}

fn keep(by: &mut Performer, at: &str, path: &str, how: &str, bits: &str) -> Brought {
    let file = raw::open(path, flags(how)?, mode(bits)?)?;
    by.files.insert(slot(at)?, file);
    Ok("ok".into())
}

fn openat(
    by: &mut Performer,
    from: &str,
    path: &str,
    how: &str,
    bits: &str,
    at: Option<&str>,
) -> Brought {
    let file = raw::openat(by.file(from)?, path, flags(how)?, mode(bits)?)?;
    match at {
        Some(at) => {
            by.files.insert(slot(at)?, file);
            Ok("ok".into())
        }
        None => nothing(raw::close(file)),
    }
}

fn read(by: &mut Performer, file: &str, count: &str, offset: Option<&str>) -> Brought {
    let mut into = vec![0; size(count)?];
    let file = by.file(file)?;
    let mut length = 0;
    // A read may be short, so repeat it and return the total.
    while length < into.len() {
        let room = &mut into[length..];
        let count = match offset {
            Some(offset) => raw::pread(file, room, number(offset)? + length as i64)?,
            None => raw::read(file, room)?,
        };
        if count == 0 {
            break;
        }
        length += count;
    }
    Ok(shown(&into[..length]))
}

fn write(by: &mut Performer, file: &str, text: &str, offset: Option<&str>) -> Brought {
    let data = bytes::from_text(text).ok_or_else(|| misuse(format!("{text}: no bytes")))?;
    let file = by.file(file)?;
    let count = match offset {
        Some(offset) => raw::pwrite(file, &data, number(offset)?)?,
        None => raw::write(file, &data)?,
    };
    Ok(count.to_string())
}

fn content(path: &str) -> Brought {
    let file = raw::open(path, libc::O_RDONLY, 0)?;
    let mut all = Vec::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match raw::read(&file, &mut block)? {
            0 => return Ok(shown(&all)),
            count => all.extend_from_slice(&block[..count]),
        }
    }
}

fn lseek(by: &mut Performer, file: &str, offset: &str, from: &str) -> Brought {
    let from = match from {
        "set" => libc::SEEK_SET,
        "cur" => libc::SEEK_CUR,
        "end" => libc::SEEK_END,
        "data" => libc::SEEK_DATA,
        "hole" => libc::SEEK_HOLE,
        other => number(other)? as i32,
    };
    Ok(raw::lseek(by.file(file)?, number(offset)?, from)?.to_string())
}

fn fallocate(by: &mut Performer, file: &str, how: &str, offset: &str, length: &str) -> Brought {
    let how = match how {
        "grow" => 0,
        "keep" => libc::FALLOC_FL_KEEP_SIZE,
        "punch" => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        "zero" => libc::FALLOC_FL_ZERO_RANGE,
        other => number(other)? as i32,
    };
    nothing(raw::fallocate(by.file(file)?, how, number(offset)?, number(length)?))
}

fn copy_range(
    by: &mut Performer,
    (from, from_offset): (&str, &str),
    (to, to_offset): (&str, &str),
    length: &str,
) -> Brought {
    let (mut from_offset, mut to_offset) = (number(from_offset)?, number(to_offset)?);
    let (mut left, mut total) = (size(length)?, 0);
    while left > 0 {
        let source = (by.file(from)?, &mut from_offset);
        let count = raw::copy_file_range(source, (by.file(to)?, &mut to_offset), left)?;
        if count == 0 {
            break;
        }
        total += count;
        left -= count;
    }
    Ok(total.to_string())
}

fn getfl(by: &mut Performer, file: &str) -> Brought {
    let flags = raw::fcntl(by.file(file)?, libc::F_GETFL, 0)?;
    let access = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "r",
        libc::O_WRONLY => "w",
        _ => "rw",
    };
    let append = if flags & libc::O_APPEND != 0 { "+append" } else { "" };
    Ok(format!("{access}{append}"))
}

fn locks(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["setlk", file, kind, start, length] => {
            lock(by, libc::F_SETLK, file, kind, (start, length)).map(|_| "ok".into())
        }
        ["setlkw", file, kind, start, length] => {
            lock(by, libc::F_SETLKW, file, kind, (start, length)).map(|_| "ok".into())
        }
        ["ofdlk", file, kind, start, length] => {
            lock(by, libc::F_OFD_SETLK, file, kind, (start, length)).map(|_| "ok".into())
        }
        ["getlk", file, kind, start, length] => {
            lock(by, libc::F_GETLK, file, kind, (start, length))
        }
        ["flock", file, how] => flock(by, file, how),
        _ => return None,
    })
}

/// Requests or tests a lock. A test returns the conflicting lock: type, start, length.
fn lock(
    by: &mut Performer,
    command: i32,
    file: &str,
    kind: &str,
    (start, length): (&str, &str),
) -> Brought {
    let kind = match kind {
        "r" => libc::F_RDLCK,
        "w" => libc::F_WRLCK,
        "un" => libc::F_UNLCK,
        _ => return Err(misuse(format!("{kind}: r, w or un"))),
    };
    let mut asked = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: number(start)?,
        l_len: number(length)?,
        l_pid: 0,
    };
    raw::lock(by.file(file)?, command, &mut asked)?;
    let kind = match i32::from(asked.l_type) {
        libc::F_RDLCK => "r",
        libc::F_WRLCK => "w",
        _ => return Ok("free".into()),
    };
    Ok(format!("{kind},{},{}", asked.l_start, asked.l_len))
}

fn flock(by: &mut Performer, file: &str, how: &str) -> Brought {
    let how = match how {
        "sh" => libc::LOCK_SH | libc::LOCK_NB,
        "ex" => libc::LOCK_EX | libc::LOCK_NB,
        "wait" => libc::LOCK_EX,
        "un" => libc::LOCK_UN,
        _ => return Err(misuse(format!("{how}: sh, ex, wait or un"))),
    };
    nothing(raw::flock(by.file(file)?, how))
}

fn maps(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["mmap", slot, file, length, how] => map(by, slot, file, length, how),
        ["peek", map, offset, count] => peek(by, map, offset, count),
        ["poke", map, offset, text] => poke(by, map, offset, text),
        ["msync", map] => mapped(by, map).and_then(|map| nothing(map.sync())),
        ["munmap", map] => match by.maps.remove(map) {
            Some(_) => Ok("ok".into()),
            None => Err(misuse(format!("{map} is not mapped"))),
        },
        _ => return None,
    })
}

fn mapped<'b>(by: &'b Performer, map: &str) -> Result<&'b Map, Failure> {
    by.maps.get(map).ok_or_else(|| misuse(format!("{map} is not mapped")))
}

fn map(by: &mut Performer, at: &str, file: &str, length: &str, how: &str) -> Brought {
    let (read, both) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    let (protection, flags) = match how {
        "shared" => (both, libc::MAP_SHARED),
        "private" => (both, libc::MAP_PRIVATE),
        "look" => (read, libc::MAP_SHARED),
        _ => return Err(misuse(format!("{how}: shared, private or look"))),
    };
    let map = Map::new(by.file(file)?, (0, size(length)?), protection, flags)?;
    by.maps.insert(slot(at)?, map);
    Ok("ok".into())
}

fn peek(by: &mut Performer, map: &str, offset: &str, count: &str) -> Brought {
    let mut into = vec![0; size(count)?];
    mapped(by, map)?.read(size(offset)?, &mut into);
    Ok(shown(&into))
}

fn poke(by: &mut Performer, map: &str, offset: &str, text: &str) -> Brought {
    let data = bytes::from_text(text).ok_or_else(|| misuse(format!("{text}: no bytes")))?;
    mapped(by, map)?.write(size(offset)?, &data);
    Ok("ok".into())
}
