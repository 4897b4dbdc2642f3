//! Calls on names and attributes.

use crate::bytes;
use crate::perform::{
    Brought, Failure, Performer, flags, id, misuse, mode, nothing, number, shown,
};
use crate::raw::{self, Stat};

/// Executes a call of this module. Returns `None` for other calls.
pub(crate) fn perform(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    names(by, words).or_else(|| attributes(by, words))
}

fn names(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["make", kind, path] => make(by, kind, path, None),
        ["make", kind, path, mode] => make(by, kind, path, Some(mode)),
        ["create", path, mode] => create(path, mode),
        ["put", path, text] => put(path, text),
        ["mkdir", path, bits] => mode(bits).and_then(|m| nothing(raw::mkdir(path, m))),
        ["mkfifo", path, bits] => mode(bits).and_then(|m| nothing(raw::mkfifo(path, m))),
        ["mknod", path, kind, bits] => mknod(path, kind, bits, "0", "0"),
        ["mknod", path, kind, bits, major, minor] => mknod(path, kind, bits, major, minor),
        ["bind", path] => bind(by, path),
        ["link", from, to] => nothing(raw::link(from, to)),
        ["linkat", from, to, "follow"] => nothing(raw::linkat(from, to, libc::AT_SYMLINK_FOLLOW)),
        ["linkat", from, to, flags] => {
            number(flags).and_then(|flags| nothing(raw::linkat(from, to, flags as i32)))
        }
        ["symlink", target, path] => nothing(raw::symlink(target, path)),
        ["readlink", path] => read_link(path, 4096),
        ["readlink", path, room] => crate::perform::size(room).and_then(|r| read_link(path, r)),
        ["rename", from, to] => nothing(raw::rename(from, to)),
        ["renameat2", from, to, how] => {
            rename_flags(how).and_then(|flags| nothing(raw::renameat2(from, to, flags)))
        }
        ["unlink", path] => nothing(raw::unlink(path)),
        ["unlinkat", path, "dir"] => nothing(raw::unlinkat(path, libc::AT_REMOVEDIR)),
        ["unlinkat", path, flags] => {
            number(flags).and_then(|flags| nothing(raw::unlinkat(path, flags as i32)))
        }
        ["rmdir", path] => nothing(raw::rmdir(path)),
        ["chdir", path] => nothing(raw::chdir(path)),
        ["umask", bits] => mode(bits).map(|bits| format!("{:04o}", raw::umask(bits))),
        _ => return None,
    })
}

fn attributes(by: &mut Performer, words: &[&str]) -> Option<Brought> {
    Some(match *words {
        ["chmod", path, bits] => mode(bits).and_then(|m| nothing(raw::chmod(path, m))),
        ["lchmod", path, bits] => {
            mode(bits).and_then(|m| nothing(raw::fchmodat(path, m, libc::AT_SYMLINK_NOFOLLOW)))
        }
        ["fchmod", file, bits] => mode(bits).and_then(|m| nothing(raw::fchmod(by.file(file)?, m))),
        ["chown", path, uid, gid] => {
            ids(uid, gid).and_then(|(u, g)| nothing(raw::chown(path, u, g)))
        }
        ["lchown", path, uid, gid] => {
            ids(uid, gid).and_then(|(u, g)| nothing(raw::lchown(path, u, g)))
        }
        ["fchown", file, uid, gid] => {
            ids(uid, gid).and_then(|(u, g)| nothing(raw::fchown(by.file(file)?, u, g)))
        }
        ["utimens", path, accessed, modified] => utimens(path, accessed, modified, 0),
        ["utimens", path, accessed, modified, "nofollow"] => {
            utimens(path, accessed, modified, libc::AT_SYMLINK_NOFOLLOW)
        }
        ["futimens", file, accessed, modified] => times(accessed, modified)
            .and_then(|times| nothing(raw::futimens(by.file(file)?, times))),
        ["stat", path, fields] => of_stat(raw::stat(path), fields),
        ["lstat", path, fields] => of_stat(raw::lstat(path), fields),
        ["fstat", file, fields] => by.file(file).and_then(|f| of_stat(raw::fstat(f), fields)),
        ["same", one, other] => same(one, other),
        ["access", path, wanted] => access_mode(wanted).and_then(|m| nothing(raw::access(path, m))),
        ["faccess", path, wanted] => {
            access_mode(wanted).and_then(|m| nothing(raw::faccessat(path, m, libc::AT_EACCESS)))
        }
        ["faccess", path, wanted, "nofollow"] => access_mode(wanted)
            .and_then(|m| nothing(raw::faccessat(path, m, libc::AT_SYMLINK_NOFOLLOW))),
        ["mark", path] => mark(by, path),
        ["newer", path, fields] => since_mark(by, path, fields, |then, now| now > then),
        ["unchanged", path, fields] => since_mark(by, path, fields, |then, now| now == then),
        ["statvfs", path, field] => statvfs(path, field),
        _ => return None,
    })
}

/// Makes an object of any type with exactly this mode, regardless of the umask.
fn make(by: &mut Performer, kind: &str, path: &str, bits: Option<&str>) -> Brought {
    let usual = if kind == "dir" { 0o755 } else { 0o644 };
    let bits = bits.map_or(Ok(usual), mode)?;
    let device = libc::makedev(1, 2);
    match kind {
        "file" => {
            raw::close(raw::open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, bits)?)?
        }
        "dir" => raw::mkdir(path, bits)?,
        "fifo" => raw::mkfifo(path, bits)?,
        "block" => raw::mknod(path, libc::S_IFBLK | bits, device)?,
        "char" => raw::mknod(path, libc::S_IFCHR | bits, device)?,
        "socket" => {
            bind(by, path)?;
            raw::chmod(path, bits)?;
        }
        "symlink" => raw::symlink("nowhere", path)?,
        _ => return Err(misuse(format!("{kind}: no kind"))),
    }
    Ok("ok".into())
}

fn create(path: &str, bits: &str) -> Brought {
    let wanted = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    nothing(raw::close(raw::open(path, wanted, mode(bits)?)?))
}

/// Creates a file with this content.
fn put(path: &str, text: &str) -> Brought {
    let file = raw::open(path, flags("O_CREAT,O_TRUNC,O_WRONLY")?, 0o644)?;
    let data = bytes::from_text(text).ok_or_else(|| misuse(format!("{text}: no bytes")))?;
    let count = raw::write(&file, &data)?;
    raw::close(file)?;
    Ok(count.to_string())
}

fn mknod(path: &str, kind: &str, bits: &str, major: &str, minor: &str) -> Brought {
    let part = |text: &str| number(text).map(|number| number as u32);
    let kind = match kind {
        "file" => libc::S_IFREG,
        "fifo" => libc::S_IFIFO,
        "socket" => libc::S_IFSOCK,
        "block" => libc::S_IFBLK,
        "char" => libc::S_IFCHR,
        "dir" => libc::S_IFDIR,
        _ => return Err(misuse(format!("{kind}: no kind"))),
    };
    let device = libc::makedev(part(major)?, part(minor)?);
    nothing(raw::mknod(path, kind | mode(bits)?, device))
}

fn bind(by: &mut Performer, path: &str) -> Brought {
    match std::os::unix::net::UnixListener::bind(path) {
        Ok(socket) => {
            by.sockets.push(socket);
            Ok("ok".into())
        }
        Err(error) => Err(match error.raw_os_error() {
            Some(errno) => Failure::Errno(errno),
            None => misuse(error.to_string()),
        }),
    }
}

fn read_link(path: &str, room: usize) -> Brought {
    Ok(shown(&raw::readlink(path, room)?))
}

fn rename_flags(text: &str) -> Result<u32, Failure> {
    Ok(match text {
        "noreplace" => libc::RENAME_NOREPLACE,
        "exchange" => libc::RENAME_EXCHANGE,
        _ => number(text)? as u32,
    })
}

fn ids(uid: &str, gid: &str) -> Result<(u32, u32), Failure> {
    Ok((id(uid)?, id(gid)?))
}

fn times(accessed: &str, modified: &str) -> Result<[libc::timespec; 2], Failure> {
    let time = |text: &str| -> Result<libc::timespec, Failure> {
        let (tv_sec, tv_nsec) = match (text, text.split_once('.')) {
            ("now", _) => (0, libc::UTIME_NOW),
            ("omit", _) => (0, libc::UTIME_OMIT),
            (_, Some((seconds, part))) => {
                (number(seconds)?, part.parse().map_err(|_| misuse("no time"))?)
            }
            (seconds, None) => (number(seconds)?, 0),
        };
        Ok(libc::timespec { tv_sec, tv_nsec })
    };
    Ok([time(accessed)?, time(modified)?])
}

fn utimens(path: &str, accessed: &str, modified: &str, flags: i32) -> Brought {
    nothing(raw::utimensat(path, times(accessed, modified)?, flags))
}

fn of_stat(found: raw::Outcome<Stat>, fields: &str) -> Brought {
    let found = found?;
    let values: Result<Vec<String>, Failure> =
        fields.split(',').map(|field| field_of(&found, field)).collect();
    Ok(values?.join(","))
}

fn field_of(stat: &Stat, field: &str) -> Brought {
    let time = |seconds: i64, part: i64| match part {
        0 => seconds.to_string(),
        part => format!("{seconds}.{part}"),
    };
    Ok(match field {
        "type" => match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => "file",
            libc::S_IFDIR => "dir",
            libc::S_IFIFO => "fifo",
            libc::S_IFSOCK => "socket",
            libc::S_IFBLK => "block",
            libc::S_IFCHR => "char",
            libc::S_IFLNK => "symlink",
            _ => "?",
        }
        .into(),
        "mode" => format!("{:04o}", stat.st_mode & 0o7777),
        "uid" => stat.st_uid.to_string(),
        "gid" => stat.st_gid.to_string(),
        "size" => stat.st_size.to_string(),
        "nlink" => stat.st_nlink.to_string(),
        "atime" => time(stat.st_atime, stat.st_atime_nsec),
        "mtime" => time(stat.st_mtime, stat.st_mtime_nsec),
        "major" => libc::major(stat.st_rdev).to_string(),
        "minor" => libc::minor(stat.st_rdev).to_string(),
        // Only report whether any blocks are allocated; the number depends on the file system.
        "blocks" => if stat.st_blocks == 0 { "none" } else { "some" }.into(),
        _ => return Err(misuse(format!("{field}: no field of stat"))),
    })
}

fn same(one: &str, other: &str) -> Brought {
    let (one, other) = (raw::lstat(one)?, raw::lstat(other)?);
    let is_same = (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
    Ok(if is_same { "same" } else { "different" }.into())
}

fn access_mode(text: &str) -> Result<i32, Failure> {
    text.chars().try_fold(0, |mode, letter| match letter {
        'r' => Ok(mode | libc::R_OK),
        'w' => Ok(mode | libc::W_OK),
        'x' => Ok(mode | libc::X_OK),
        'f' => Ok(mode),
        _ => Err(misuse(format!("{letter}: rwxf"))),
    })
}

/// Stores the times of an object, after the clock of the file system has advanced.
fn mark(by: &mut Performer, path: &str) -> Brought {
    let found = raw::lstat(path)?;
    let latest = ["atime", "mtime", "ctime"].iter().map(|field| time_of(&found, field)).max();
    let clock = "clock-of-the-file-system";
    loop {
        raw::close(raw::open(clock, flags("O_CREAT,O_WRONLY,O_EXCL")?, 0o600)?)?;
        let now = raw::lstat(clock)?;
        raw::unlink(clock)?;
        // A time in the future was set explicitly and is not the current clock.
        let is_set = found.st_mtime > now.st_ctime + 60 || found.st_atime > now.st_ctime + 60;
        if Some(time_of(&now, "ctime")) > latest || is_set {
            break;
        }
    }
    by.marks.insert(path.into(), found);
    Ok("ok".into())
}

fn time_of(stat: &Stat, field: &str) -> (i64, i64) {
    match field {
        "atime" => (stat.st_atime, stat.st_atime_nsec),
        "mtime" => (stat.st_mtime, stat.st_mtime_nsec),
        _ => (stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn since_mark(
    by: &mut Performer,
    path: &str,
    fields: &str,
    is: fn((i64, i64), (i64, i64)) -> bool,
) -> Brought {
    let then = by.marks.get(path).ok_or_else(|| misuse(format!("{path} is not marked")))?;
    let now = raw::lstat(path)?;
    let is_so = |field: &&str| is(time_of(then, field), time_of(&now, field));
    let others: Vec<_> = fields.split(',').filter(|field| !is_so(field)).collect();
    Ok(if others.is_empty() { "yes".into() } else { format!("not:{}", others.join(",")) })
}

fn statvfs(path: &str, field: &str) -> Brought {
    let found = raw::statvfs(path)?;
    Ok(match field {
        "namemax" => found.f_namemax.to_string(),
        "sane" => {
            let is_sane = found.f_blocks >= found.f_bfree && found.f_bfree >= found.f_bavail;
            if is_sane && found.f_frsize > 0 { "yes" } else { "no" }.into()
        }
        _ => return Err(misuse(format!("{field}: no field of statvfs"))),
    })
}
