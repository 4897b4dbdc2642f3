//! Mounts: what lies on which file system, and what may be entered.
//!
//! Invariant: whether a mount is entered is decided by the kernel's table of mounts, before its
//! file system is asked anything: one that somebody else answers for may never answer.

/// A line of `/proc/self/mountinfo`.
pub(super) struct MountPoint {
    pub id: u64,
    /// Which directory of its file system it shows.
    pub root: Vec<u8>,
    pub point: Vec<u8>,
    pub medium: Medium,
}

/// Who answers for a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// This host's kernel, from its disks or memory.
    Local,
    /// This host's kernel, about itself: its files are no files.
    Pseudo,
    /// Another host, or a process: it may make everybody wait. Also what we do not know.
    Foreign,
}

impl Medium {
    /// By the name of its type.
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

/// All mounts of this process's name space, up to a bound.
pub(super) fn mount_points() -> Vec<MountPoint> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').take(super::MOUNT_COUNT_MAX).filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let root = unescaped(words.nth(2)?);
    let point = unescaped(words.next()?);
    words.find(|word| *word == b"-")?;
    Some(MountPoint { id, root, point, medium: Medium::of(words.next()?) })
}

/// A path as it is: the table has blanks and backslashes as three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(octet) => {
                path.push(octet);
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

/// File systems that the kernel answers for by itself, from a medium of this host.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "iso9660",
    "jfs", "msdos", "nilfs2", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs",
    "tmpfs", "ubifs", "udf", "vfat", "xfs", "zfs",
];
/// File systems that show or steer the kernel.
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
    fn a_path_with_blanks_and_backslashes_is_as_it_was() {
        assert_eq!(unescaped(b"/a\\040b\\134040c"), b"/a b\\040c");
        assert_eq!(unescaped(b"/a\\9\\"), b"/a\\9\\");
    }
}
