//! Converts and sets attributes: `stat`, `statx`, `statfs` and the calls that set them.
//!
//! Invariant: an object has the same device and inode number in every call, and in every process
//! that maps the same prefixes.

use dafs_client::{FileSystemAttributes, Metadata, SetAttributes, SetTime, Timestamp};
use dafs_posix::stat::Stat;
use libc::{stat, statfs, statvfs, statx, statx_timestamp, timespec};

use crate::errors::{Outcome, fail};
use crate::state::{Description, State};
use crate::walk::attributes;

impl State {
    /// Returns the attributes of the object that a descriptor refers to.
    pub(crate) fn metadata_of(&mut self, description: &Description) -> Outcome<Metadata> {
        let identity = &description.identity;
        let (session, _) = self.connection.mount(identity.mount)?;
        attributes(&session, identity.handle)
    }
}

fn device(mount: usize) -> u64 {
    libc::makedev(MAJOR, mount as u32 + 1)
}

impl State {
    /// Converts attributes to the C library's `stat`.
    pub(crate) fn shown(&self, metadata: &Metadata, mount: usize) -> stat {
        let from = Stat::of(metadata, &self.names);
        // SAFETY: all-zero bytes are a valid `stat`.
        let mut told: stat = unsafe { std::mem::zeroed() };
        told.st_dev = device(mount);
        told.st_ino = from.ino;
        told.st_mode = from.mode;
        told.st_nlink = from.links.into();
        told.st_uid = from.uid;
        told.st_gid = from.gid;
        told.st_rdev = libc::makedev(metadata.device.major as u32, metadata.device.minor as u32);
        told.st_size = from.size as i64;
        told.st_blksize = BLOCK as libc::blksize_t;
        told.st_blocks = from.blocks as i64;
        (told.st_atime, told.st_atime_nsec) = seconds(&from.accessed);
        (told.st_mtime, told.st_mtime_nsec) = seconds(&from.modified);
        (told.st_ctime, told.st_ctime_nsec) = seconds(&from.changed);
        told
    }

    /// Converts attributes to the C library's `statx`.
    pub(crate) fn shown_more(&self, metadata: &Metadata, mount: usize) -> statx {
        let from = Stat::of(metadata, &self.names);
        // SAFETY: all-zero bytes are a valid `statx`.
        let mut told: statx = unsafe { std::mem::zeroed() };
        let stamp = |time: &Timestamp| {
            // SAFETY: all-zero bytes are a valid `statx_timestamp`.
            let mut stamp: statx_timestamp = unsafe { std::mem::zeroed() };
            (stamp.tv_sec, stamp.tv_nsec) = (time.seconds, time.nanoseconds);
            stamp
        };
        told.stx_mask = libc::STATX_BASIC_STATS;
        told.stx_blksize = BLOCK;
        told.stx_nlink = from.links;
        (told.stx_uid, told.stx_gid) = (from.uid, from.gid);
        told.stx_mode = from.mode as u16;
        told.stx_ino = from.ino;
        told.stx_size = from.size;
        told.stx_blocks = from.blocks;
        told.stx_atime = stamp(&from.accessed);
        told.stx_ctime = stamp(&from.changed);
        told.stx_mtime = stamp(&from.modified);
        (told.stx_rdev_major, told.stx_rdev_minor) =
            (metadata.device.major as u32, metadata.device.minor as u32);
        (told.stx_dev_major, told.stx_dev_minor) = (MAJOR, mount as u32 + 1);
        told
    }
}

fn seconds(time: &Timestamp) -> (i64, i64) {
    (time.seconds, time.nanoseconds.into())
}

/// Converts file system attributes to `statvfs`.
pub(crate) fn to_statvfs(told: &FileSystemAttributes) -> statvfs {
    // SAFETY: all-zero bytes are a valid `statvfs`.
    let mut shown: statvfs = unsafe { std::mem::zeroed() };
    (shown.f_bsize, shown.f_frsize) = (FRAGMENT, FRAGMENT);
    shown.f_blocks = told.space_total.unwrap_or(0) / FRAGMENT;
    shown.f_bfree = told.space_free.unwrap_or(0) / FRAGMENT;
    shown.f_bavail = told.space_available.unwrap_or(0) / FRAGMENT;
    shown.f_files = told.files_total.unwrap_or(0);
    shown.f_ffree = told.files_free.unwrap_or(0);
    shown.f_favail = told.files_available.unwrap_or(0);
    shown.f_namemax = told.max_name.unwrap_or(255).into();
    shown
}

/// Converts file system attributes to `statfs`.
pub(crate) fn to_statfs(told: &FileSystemAttributes) -> statfs {
    let from = to_statvfs(told);
    // SAFETY: all-zero bytes are a valid `statfs`.
    let mut shown: statfs = unsafe { std::mem::zeroed() };
    shown.f_type = FILE_SYSTEM_TYPE;
    (shown.f_bsize, shown.f_frsize) = (FRAGMENT as i64, FRAGMENT as i64);
    (shown.f_blocks, shown.f_bfree, shown.f_bavail) = (from.f_blocks, from.f_bfree, from.f_bavail);
    (shown.f_files, shown.f_ffree) = (from.f_files, from.f_ffree);
    shown.f_namelen = from.f_namemax as i64;
    shown
}

/// Returns the attributes that `utimensat` sets, or `None` if both times stay unchanged.
pub(crate) fn times(access: timespec, modify: timespec) -> Outcome<Option<SetAttributes>> {
    let wanted = |time: timespec| match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Server)),
        libc::UTIME_OMIT => Ok(None),
        nanoseconds @ 0..1_000_000_000 => Ok(Some(SetTime::Client(Timestamp {
            seconds: time.tv_sec,
            nanoseconds: nanoseconds as u32,
        }))),
        _ => fail(libc::EINVAL),
    };
    let (time_access, time_modify) = (wanted(access)?, wanted(modify)?);
    if time_access.is_none() && time_modify.is_none() {
        return Ok(None);
    }
    Ok(Some(SetAttributes { time_access, time_modify, ..SetAttributes::default() }))
}

/// Returns the attributes that `chown` sets, or `None` if neither the user nor the group changes.
pub(crate) fn owners(user: u32, group: u32) -> Option<SetAttributes> {
    let wanted = |id: u32| (id != u32::MAX).then(|| id.to_string());
    let (owner, owner_group) = (wanted(user), wanted(group));
    let is_wanted = owner.is_some() || owner_group.is_some();
    is_wanted.then(|| SetAttributes { owner, owner_group, ..SetAttributes::default() })
}

/// The major device number that DAFS files report. No device of Linux uses this number.
const MAJOR: u32 = 0xdaf;
/// The preferred transfer size in bytes.
const BLOCK: u32 = 65536;
const FRAGMENT: u64 = 4096;
/// The file system type in `statfs`: the bytes "DAFS".
const FILE_SYSTEM_TYPE: i64 = 0x4441_4653;
