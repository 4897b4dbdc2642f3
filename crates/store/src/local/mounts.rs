//! Mounts: determines on which file system an object is, and which mounts may be entered.
//!
//! Invariant: before any call reaches a mounted file system, the kernel's table of mounts decides
//! whether the mount may be entered. The reason is that calls to a file system that depends on
//! another host or process may hang.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags};

use super::{ExportRoot, MOUNT_COUNT_MAX, lock, sys};

/// A line of `/proc/self/mountinfo`.
pub(super) struct MountPoint {
    pub id: u64,
    /// The path, within the mounted file system, of the directory that is mounted.
    pub root: Vec<u8>,
    pub point: Vec<u8>,
    pub medium: Medium,
}

/// The kind of a file system, according to what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A file system that this host's kernel serves from a disk or from memory.
    Local,
    /// A pseudo file system, which shows the state of this host's kernel. Its files are not real
    /// files.
    Pseudo,
    /// A file system that depends on another host or a process, and may hang. All unknown types
    /// count as foreign.
    Foreign,
}

impl Medium {
    /// Returns the medium of a file system type.
    fn of(fs_type: &[u8]) -> Self {
        let is_in = |names: &[&str]| names.iter().any(|name| name.as_bytes() == fs_type);
        if is_in(LOCAL) {
            Self::Local
        } else if is_in(PSEUDO) {
            Self::Pseudo
        } else {
            Self::Foreign
        }
    }
}

/// Returns all mounts of this process's mount namespace, up to a limit.
pub(super) fn mount_points() -> Vec<MountPoint> {
    let text = std::fs::read(TABLE).unwrap_or_default();
    text.split(|byte| *byte == b'\n').take(MOUNT_COUNT_MAX).filter_map(parse).collect()
}

/// The table of mounts beneath the exports. It is read again when the kernel's table has changed.
pub(super) struct Beneath {
    /// The time of the last check for changes, in milliseconds as [`sys::millis`] returns it.
    looked_at: AtomicU64,
    /// True if there are mounts beneath the exports. Usually there are none; names then need no
    /// further check.
    is_any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The kernel's table of mounts, kept open. Polling it reports an event when a mount was added
    /// or removed.
    table: Option<File>,
    /// The last components of the mounts' paths.
    names: HashSet<Vec<u8>>,
    points: Vec<MountPoint>,
    /// True if there are more mounts than the limit, so that the table does not contain all of
    /// them.
    is_cut: bool,
    /// The ids of the mounts that were logged already.
    told: BTreeSet<u64>,
}

impl Beneath {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        let table = File::open(TABLE).ok();
        Self {
            looked_at: AtomicU64::new(0),
            is_any: AtomicBool::new(false),
            known: Mutex::new(Known { table, ..Known::default() }),
        }
    }

    /// Returns true if a file system may be mounted at an entry with this name. This must be
    /// checked before the entry is queried, because the query would reach the mounted file system.
    /// `now` must be a recent result of [`sys::millis`]: a mount that was added after that time may
    /// go unnoticed.
    pub(super) fn may_be_at(&self, name: &[u8], exports: &[ExportRoot], now: u64) -> bool {
        if now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= LOOK_MILLISECONDS {
            self.look(exports);
        }
        if !self.is_any.load(Ordering::Relaxed) {
            return false;
        }
        let known = lock(&self.known);
        known.is_cut || known.names.contains(name)
    }

    /// Returns the id and the kind of the mount at a path, if there is one.
    pub(super) fn at(&self, path: &[u8], exports: &[ExportRoot]) -> Option<(u64, Medium)> {
        self.look(exports);
        let known = lock(&self.known);
        // The last mount at a path hides the earlier ones.
        let mount = known.points.iter().rfind(|mount| mount.point == path)?;
        Some((mount.id, mount.medium))
    }

    /// Returns the paths, relative to `root`, of all mounts beneath it that may be entered.
    pub(super) fn local_beneath(&self, root: &[u8], exports: &[ExportRoot]) -> Vec<Vec<u8>> {
        self.look(exports);
        let known = lock(&self.known);
        let local = known.points.iter().filter(|mount| mount.medium == Medium::Local);
        local.filter_map(|mount| way_from(root, &mount.point).map(<[u8]>::to_vec)).collect()
    }

    /// Returns true if a mount was not logged yet, and records it as logged. Always returns false
    /// after a maximum number of mounts, so that the table of logged mounts stays bounded.
    pub(super) fn is_news(&self, mount_id: u64) -> bool {
        let mut known = lock(&self.known);
        known.told.len() < MOUNT_COUNT_MAX && known.told.insert(mount_id)
    }

    fn look(&self, exports: &[ExportRoot]) {
        let is_first = self.looked_at.swap(sys::millis(), Ordering::Relaxed) == 0;
        let mut known = lock(&self.known);
        if !is_first && !known.table.as_ref().is_some_and(has_changed) {
            return;
        }
        let roots: Vec<_> =
            exports.iter().filter_map(|export| sys::present_path(export.root.fd()).ok()).collect();
        let mut points = mount_points();
        known.is_cut = points.len() >= MOUNT_COUNT_MAX;
        points.retain(|mount| roots.iter().any(|root| way_from(root, &mount.point).is_some()));
        let name = |mount: &MountPoint| {
            mount.point.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec)
        };
        known.names = points.iter().filter_map(name).collect();
        self.is_any.store(known.is_cut || !points.is_empty(), Ordering::Relaxed);
        known.points = points;
    }
}

/// Returns true if the table of mounts has changed since the last call.
fn has_changed(table: &File) -> bool {
    let mut asked = [PollFd::new(table, PollFlags::PRI)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut asked, Some(&at_once)), Ok(0))
}

/// Returns the path of an object relative to a directory that contains it, or `None` if the
/// directory does not contain it.
fn way_from<'p>(root: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(root)?;
    let way = if root == b"/" { rest } else { rest.strip_prefix(b"/")? };
    (!way.is_empty()).then_some(way)
}

fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let root = unescaped(words.nth(2)?);
    let point = unescaped(words.next()?);
    words.find(|word| *word == b"-")?;
    Some(MountPoint { id, root, point, medium: Medium::of(words.next()?) })
}

/// Decodes a path of the kernel's table of mounts, in which blanks and backslashes are written as
/// octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &tail[3..];
            }
            None => {
                path.push(*first);
                rest = tail;
            }
        }
    }
    path
}

const TABLE: &str = "/proc/self/mountinfo";
/// The maximum time in milliseconds for which a new mount may go unnoticed.
const LOOK_MILLISECONDS: u64 = 1000;
/// The types of file systems that this host's kernel serves from a disk or memory of this host.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "iso9660",
    "jfs", "msdos", "nilfs2", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs",
    "tmpfs", "ubifs", "udf", "vfat", "xfs", "zfs",
];
/// The types of file systems that show or control the kernel.
const PSEUDO: &[&str] = &[
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_its_type_behind_the_options() {
        let line = b"36 35 98:0 /a /mnt\\040x rw,noatime master:1 shared:2 - ext4 /dev/root rw";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.medium), (36, Medium::Local));
        assert_eq!((&mount.root[..], &mount.point[..]), (&b"/a"[..], &b"/mnt x"[..]));
        let medium = |fs_type: &str| {
            let line = format!("1 2 0:1 / /p rw - {fs_type} none rw");
            parse(line.as_bytes()).unwrap().medium
        };
        assert_eq!(medium("proc"), Medium::Pseudo);
        for fs_type in ["nfs4", "cifs", "fuse.sshfs", "fuse", "9p", "virtiofs", "of no name"] {
            assert_eq!(medium(fs_type), Medium::Foreign, "{fs_type}");
        }
    }

    #[test]
    fn what_lies_beneath_a_directory_is_no_name_that_begins_alike() {
        assert_eq!(way_from(b"/srv", b"/srv/a/b"), Some(&b"a/b"[..]));
        assert_eq!(way_from(b"/", b"/srv"), Some(&b"srv"[..]));
        for path in [&b"/srv"[..], b"/srvx", b"/other", b"/"] {
            assert_eq!(way_from(b"/srv", path), None);
        }
    }

    #[test]
    fn a_path_with_blanks_and_backslashes_is_as_it_was() {
        assert_eq!(unescaped(b"/a\\040b\\134040c"), b"/a b\\040c");
        assert_eq!(unescaped(b"/a\\9\\"), b"/a\\9\\");
    }
}
