//! Protects the server's own state directory from clients. The state directory may be beneath an
//! export: if a user serves a home directory, it contains the directory with the journal and the
//! key that signs file handles.
//!
//! Invariant: the directory is recognized by the inode that it had at the start, not by its name.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::sys;

/// Identifies an inode by its device numbers and inode number.
type Object = ((u32, u32), u64);

/// The server's own directories, which clients may neither enter nor move.
#[derive(Debug, Default)]
pub(super) struct OwnDirectories {
    private: Option<Object>,
    /// The inodes of the state directory's parents, up to the root.
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

    /// Returns true if this is the inode of the state directory.
    pub(super) fn is_private(&self, device: (u32, u32), file_id: u64) -> bool {
        self.private == Some((device, file_id))
    }

    /// Returns true if this is the inode of the state directory or of one of its parents.
    pub(super) fn leads_there(&self, device: (u32, u32), file_id: u64) -> bool {
        self.is_private(device, file_id) || self.above.contains(&(device, file_id))
    }
}

fn object_of(directory: BorrowedFd<'_>) -> Option<Object> {
    let status = sys::status(directory).ok()?;
    Some((status.device, status.attributes.file_id))
}

/// The maximum number of nested directories that a path can name.
const DEPTH_MAX: usize = 2048;
