//! System calls on one path component or one descriptor, with their results converted.
//!
//! Invariant: no call here resolves more than one component, follows a symbolic link, or leaves the
//! directory that it starts from.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_types::attributes::DeviceNumber;
use dafs_types::{ObjectType, SetTime, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, Timestamps};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::attributes::{AttributeChanges, Attributes, Bits};
use crate::change::{self, Clocks};
use crate::error::{Result, StoreError};
use crate::file::FileVersion;
use crate::rules::without_set_ids;

/// The result of a `statx` call.
#[derive(Clone, Copy)]
pub(super) struct Status {
    pub attributes: Attributes,
    /// The device of the file system.
    pub device: (u32, u32),
    pub mount_id: u64,
}

impl Status {
    pub(super) fn place(&self) -> Place {
        let Attributes { file_id: number, time_create: birth, .. } = self.attributes;
        Place { device: self.device, mount_id: self.mount_id, number, birth }
    }
}

/// Identifies an object by its device and inode number and by the mount through which it was
/// reached.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The device of the file system.
    pub device: (u32, u32),
    pub mount_id: u64,
    pub number: u64,
    /// The time of creation, if the file system keeps it.
    pub birth: Option<Timestamp>,
}

/// The status fields that an open needs. The change attribute is not included, because reading its
/// two clocks takes a third of the time of the `statx` call.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub bits: Bits,
    pub version: FileVersion,
    pub link_count: u32,
    pub place: Place,
}

/// Queries the object of a descriptor.
pub(super) fn look(object: BorrowedFd<'_>) -> Result<Look> {
    Ok(look_of(&rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, STATUS)?))
}

/// Queries an entry of a directory; see [`entry_status`].
pub(super) fn entry_look(directory: BorrowedFd<'_>, name: &[u8], is_local: bool) -> Result<Look> {
    Ok(look_of(&rustix::fs::statx(directory, name, entry_flags(is_local), STATUS)?))
}

#[inline]
fn look_of(raw: &Statx) -> Look {
    Look {
        bits: Bits { kind: kind_of(raw), mode: mode_of(raw), uid: raw.stx_uid, gid: raw.stx_gid },
        version: FileVersion {
            size: raw.stx_size,
            time_modify: time(raw.stx_mtime),
            time_metadata: time(raw.stx_ctime),
        },
        link_count: raw.stx_nlink,
        place: Place {
            device: (raw.stx_dev_major, raw.stx_dev_minor),
            mount_id: raw.stx_mnt_id,
            number: raw.stx_ino,
            birth: birth_of(raw),
        },
    }
}

/// Returns the status of a descriptor's object.
pub(super) fn status(object: BorrowedFd<'_>) -> Result<Status> {
    let clocks = Clocks::read();
    Ok(status_of(&rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, STATUS)?, clocks))
}

/// Returns the status of an entry of a directory. If the entry is a symbolic link, it is not
/// followed. If `is_local`, the kernel's cached attributes are used, which are always valid on a
/// local file system. The query does not reach a file system that was mounted over the entry just
/// now.
pub(super) fn entry_status(
    directory: BorrowedFd<'_>,
    name: &[u8],
    is_local: bool,
) -> Result<Status> {
    let clocks = Clocks::read();
    Ok(status_of(&rustix::fs::statx(directory, name, entry_flags(is_local), STATUS)?, clocks))
}

fn entry_flags(is_local: bool) -> AtFlags {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if is_local { flags | AtFlags::STATX_DONT_SYNC } else { flags }
}

fn status_of(raw: &Statx, clocks: Clocks) -> Status {
    let changed = time(raw.stx_ctime);
    Status {
        attributes: Attributes {
            kind: kind_of(raw),
            mode: mode_of(raw),
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            link_count: raw.stx_nlink,
            change: change::shown(changed, clocks),
            size: raw.stx_size,
            file_id: raw.stx_ino,
            space_used: raw.stx_blocks * 512,
            time_access: time(raw.stx_atime),
            time_create: birth_of(raw),
            time_metadata: changed,
            time_modify: time(raw.stx_mtime),
            device: DeviceNumber {
                major: raw.stx_rdev_major.into(),
                minor: raw.stx_rdev_minor.into(),
            },
        },
        device: (raw.stx_dev_major, raw.stx_dev_minor),
        mount_id: raw.stx_mnt_id,
    }
}

fn time(of: rustix::fs::StatxTimestamp) -> Timestamp {
    Timestamp { seconds: of.tv_sec, nanoseconds: of.tv_nsec }
}

fn birth_of(raw: &Statx) -> Option<Timestamp> {
    let has_birth = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    has_birth.then(|| time(raw.stx_btime))
}

fn mode_of(raw: &Statx) -> u32 {
    u32::from(raw.stx_mode) & 0o7777
}

fn kind_of(raw: &Statx) -> ObjectType {
    match FileType::from_raw_mode(raw.stx_mode.into()) {
        FileType::Directory => ObjectType::Directory,
        FileType::Symlink => ObjectType::SymbolicLink,
        FileType::Fifo => ObjectType::Fifo,
        FileType::Socket => ObjectType::Socket,
        FileType::CharacterDevice => ObjectType::CharacterDevice,
        FileType::BlockDevice => ObjectType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => ObjectType::Regular,
    }
}

/// Opens one component as `O_PATH`, without following a symbolic link. If a file system is mounted
/// there, fails with [`CrossDevice`](crate::StoreError::CrossDevice) before any call reaches that
/// file system.
pub(super) fn open_component(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    open_within(directory, name, ResolveFlags::NO_XDEV)
}

/// Opens the root of the mount at one component. Fails if the mount has another id than `mount`.
pub(super) fn open_mount(directory: BorrowedFd<'_>, name: &[u8], mount: u64) -> Result<OwnedFd> {
    let opened = open_within(directory, name, ResolveFlags::empty())?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(&opened, c"", flags, StatxFlags::MNT_ID)?.stx_mnt_id;
    if found == mount { Ok(opened) } else { Err(StoreError::CrossDevice) }
}

fn open_within(directory: BorrowedFd<'_>, name: &[u8], further: ResolveFlags) -> Result<OwnedFd> {
    Ok(rustix::fs::openat2(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | further,
    )?)
}

/// Opens a directory by a path, relative to `root`. The kernel itself has listed each name in the
/// path.
pub(super) fn open_beneath(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    open_component(root, path)
}

/// Opens a directory's parent as `O_PATH`. The caller must prove that the parent is in the export.
pub(super) fn open_parent(directory: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, c"..", flags, Mode::empty())?)
}

/// Opens a directory for listing or syncing.
pub(super) fn open_directory(directory: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |extra| rustix::fs::openat(directory, c".", flags | extra, Mode::empty());
    Ok(open(OFlags::NOATIME).or_else(|_| open(OFlags::empty()))?)
}

/// Opens the object of an `O_PATH` descriptor for I/O. The caller must have checked that the object
/// is a regular file.
pub(super) fn reopen(object: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    let path = magic_path(object);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let open = |extra| rustix::fs::open(path.as_str(), flags | extra, Mode::empty());
    match open(OFlags::NOATIME) {
        Err(Errno::PERM) => Ok(open(OFlags::empty())?),
        other => Ok(other?),
    }
}

/// Returns true if a descriptor refers to the object with this status.
pub(super) fn is_same(object: BorrowedFd<'_>, status: &Status) -> Result<bool> {
    let found = rustix::fs::fstat(object)?;
    let device = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    Ok(found.st_ino == status.attributes.file_id && device == status.device)
}

/// Returns an `O_PATH` descriptor of an open object. Returns `None` if a system call filter forbids
/// the call.
pub(super) fn path_of(object: BorrowedFd<'_>) -> Option<OwnedFd> {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    if IS_REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let opened = rustix::mount::open_tree(object, c"", flags);
    if matches!(opened, Err(Errno::PERM | Errno::NOSYS)) {
        IS_REFUSED.store(true, Ordering::Relaxed);
    }
    opened.ok()
}

/// Returns an `O_PATH` descriptor of an open object through `/proc`, which takes longer than
/// [`path_of`].
pub(super) fn reopen_path(object: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(magic_path(object).as_str(), flags, Mode::empty())?)
}

/// Returns the path of the kernel's own link to a descriptor's object. This is the only kind of
/// path that is followed, because it contains no name from a client.
pub(super) fn magic_path(object: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

/// Returns the current path of an object, as far as the kernel knows it.
pub(super) fn present_path(object: BorrowedFd<'_>) -> Result<Vec<u8>> {
    Ok(rustix::fs::readlink(magic_path(object), Vec::new())?.into_bytes())
}

/// Sets attributes without a permission check. Uses the `O_PATH` descriptor, so that replacing the
/// name meanwhile has no effect.
pub(super) fn apply(object: BorrowedFd<'_>, changes: &AttributeChanges) -> Result<()> {
    if let Some(size) = changes.size {
        let writable = reopen(object, OFlags::WRONLY)?;
        rustix::fs::ftruncate(&writable, size)?;
    }
    if changes.uid.is_some() || changes.gid.is_some() {
        let (user, group) = (
            changes.uid.map(rustix::fs::Uid::from_raw),
            changes.gid.map(rustix::fs::Gid::from_raw),
        );
        rustix::fs::chownat(object, c"", user, group, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = changes.mode {
        // Set the mode after the owner, because a change of owner clears the set-id bits.
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::chmodat(rustix::fs::CWD, magic_path(object), mode, AtFlags::empty())?;
    }
    if changes.time_access.is_some() || changes.time_modify.is_some() {
        let times = Timestamps {
            last_access: timespec(changes.time_access),
            last_modification: timespec(changes.time_modify),
        };
        rustix::fs::utimensat(object, c"", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Clears the set-id bits that a write by a caller other than the superuser clears. The kernel
/// computes the new mode, so that a concurrent change of mode is not lost.
pub(super) fn take_set_ids(object: BorrowedFd<'_>) -> Result<()> {
    let mode = rustix::fs::fstat(object)?.st_mode & 0o7777;
    if without_set_ids(mode) != mode {
        // A change of owner to the same owner clears the set-user-id bit, and the set-group-id bit
        // if the group has execute permission.
        rustix::fs::chownat(object, c"", None, None, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Gives a name in a directory to an object. Fails if the name exists.
pub(super) fn link(object: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let (path, flags) = (magic_path(object), AtFlags::SYMLINK_FOLLOW);
    Ok(rustix::fs::linkat(rustix::fs::CWD, path, directory, name, flags)?)
}

/// Gives an open file a new change time. To do so, sets the access time, which has no other effect
/// that matters.
pub(super) fn stamp(file: BorrowedFd<'_>) -> Result<()> {
    let times = Timestamps {
        last_access: timespec(Some(SetTime::Server)),
        last_modification: timespec(None),
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

fn timespec(time: Option<SetTime>) -> rustix::fs::Timespec {
    match time {
        None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(SetTime::Server) => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(SetTime::Client(time)) => {
            rustix::fs::Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
        }
    }
}

/// Makes the entries of a directory, or the data and metadata of a regular file, durable.
pub(super) fn sync(object: BorrowedFd<'_>, kind: ObjectType) -> Result<()> {
    if kind == ObjectType::Directory {
        return sync_directory(object);
    }
    // A descriptor for reading or for writing will do.
    let opened = reopen(object, OFlags::RDONLY).or_else(|_| reopen(object, OFlags::WRONLY))?;
    Ok(rustix::fs::fsync(opened)?)
}

/// Makes a directory's entries durable.
pub(super) fn sync_directory(directory: BorrowedFd<'_>) -> Result<()> {
    let readable = open_directory(directory)?;
    Ok(rustix::fs::fsync(readable.as_fd())?)
}

/// Reads the coarse monotonic clock in milliseconds. The call is very fast, but the clock may be a
/// few milliseconds late.
pub(super) fn millis() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Reads the clock that file systems use for the times of objects.
pub(super) fn coarse_now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
}

/// The fields that a `statx` call requests for a [`Status`].
const STATUS: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);
