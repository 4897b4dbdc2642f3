//! The server's own directory, which may lie beneath what it serves: somebody who serves his home
//! serves the place where the key of file handles and the journal are.
//!
//! Invariant: it is known by what it is, not by its name, as it was when the server started.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::sys;

/// An inode of a file system.
type Object = ((u32, u32), u64);

/// Directories that clients neither enter nor move.
#[derive(Debug, Default)]
pub(super) struct OwnDirectories {
    private: Option<Object>,
    /// Those that it lies in, up to the root.
    above: Vec<Object>,
}

impl OwnDirectories {
    /// The directory at a path, and those above it.
    pub fn of(path: &Path) -> Self {
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
            // The root is its own parent.
            if object == below {
                break;
            }
            found.above.extend(object);
            (directory, below) = (parent, object);
        }
        found
    }

    /// Whether this is the server's own.
    pub fn is_private(&self, device: (u32, u32), file_id: u64) -> bool {
        self.private == Some((device, file_id))
    }

    /// Whether the server's own is this, or lies in it.
    pub fn leads_there(&self, device: (u32, u32), file_id: u64) -> bool {
        self.is_private(device, file_id) || self.above.contains(&(device, file_id))
    }
}

fn object_of(directory: BorrowedFd<'_>) -> Option<Object> {
    let status = sys::status(directory).ok()?;
    Some((status.device, status.attributes.file_id))
}

/// More directories one in another no path can name.
const DEPTH_MAX: usize = 2048;
