//! Protects the server's own state directory from clients. It may be beneath an export: a user who
//! serves a home directory also serves the directory with the key of file handles and the journal.
//!
//! Invariant: the directory is recognized by the inode that it had at the start, not by its name.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::sys;

/// Device and number of an inode.
type Object = ((u32, u32), u64);

/// The directories that clients may neither enter nor move.
#[derive(Debug, Default)]
pub(super) struct OwnDirectories {
    private: Option<Object>,
    /// The parents of the state directory, up to the root.
    above: Vec<Object>,
}

impl OwnDirectories {
    /// Finds the inodes of the directory at a path, and of its parents.
    pub(super) fn of(path: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut found = Self::default();
        let Ok(mut directory) = rustix::fs::open(path, flags, Mode::empty()) else { return found };
        found.private = object_of(directory.as_fd());
        let mut below = found.private;
        while found.above.len() < DEPTH_MAX {
            let Ok(parent) = rustix::fs::openat(&directory, c"..", flags, Mode::empty()) else {
                break;
            };
            let object = object_of(parent.as_fd());
            // The root is its own parent, so the walk ends here.
            if object == below {
                break;
            }
            found.above.extend(object);
            (directory, below) = (parent, object);
        }
        found
    }

    /// Returns true if this inode is the state directory.
    pub(super) fn is_private(&self, device: (u32, u32), file_id: u64) -> bool {
        self.private == Some((device, file_id))
    }

    /// Returns true if this inode is the state directory or one of its parents.
    pub(super) fn leads_there(&self, device: (u32, u32), file_id: u64) -> bool {
        self.is_private(device, file_id) || self.above.contains(&(device, file_id))
    }
}

fn object_of(directory: BorrowedFd<'_>) -> Option<Object> {
    let status = sys::status(directory).ok()?;
    Some((status.device, status.attributes.file_id))
}

/// The maximum number of nested directories: more cannot be named by a path.
const DEPTH_MAX: usize = 2048;
