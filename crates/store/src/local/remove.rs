//! Removes names.
//!
//! Invariant: the directory and the entry are queried once, for the permission check and for the
//! caller's own condition together. If the permission depends on the entry's owner, the kernel
//! checks the owner again when it removes the entry.

use dafs_types::{Credentials, FileHandle, ObjectType};
use rustix::fs::AtFlags;

use super::{LocalStore, lock, sys};
use crate::error::{Result, StoreError};
use crate::store::Removed;

impl LocalStore {
    pub(super) fn remove_entry(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        may: &mut dyn FnMut(&FileHandle) -> bool,
    ) -> Result<Option<Removed>> {
        let entry = self.entry(who, directory, name)?;
        let (node, found) = entry.found.ok_or(StoreError::NotFound)?;
        if !may(&node.handle) {
            return Ok(None);
        }
        let is_directory = found.kind == ObjectType::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let acting = self.act_for(who, entry.is_owners);
        let unlinked = rustix::fs::unlinkat(entry.parent.fd(), name, flags);
        drop(acting);
        unlinked.map_err(not_empty)?;
        let left = sys::status(node.fd())?.attributes;
        let was_last = left.link_count == 0 || is_directory;
        let handle = node.handle;
        if was_last {
            lock(&self.nodes).retire(node);
            self.searches.absent().note_removed(handle);
        }
        let change = self.after_change(&entry.parent, &entry.before, Some(entry.begun))?;
        Ok(Some(Removed { handle, was_last, held: left.space_used, change }))
    }
}

/// Converts an error of a removal to a store error. EEXIST is treated like ENOTEMPTY, because some
/// file systems return it for a directory with entries.
pub(super) fn not_empty(errno: rustix::io::Errno) -> StoreError {
    match StoreError::from(errno) {
        StoreError::Exists => StoreError::NotEmpty,
        other => other,
    }
}
