//! An operation on the name space that is being prepared.
//!
//! Invariant: an edit that is dropped has changed nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_store::{AttributeChanges, Result, StoreError};
use dafs_types::{ObjectType, SetTime};

use super::fault::{FaultEffect, FaultOn};
use super::journal::Disk;
use super::tree::{Change, Inode, Meta, Number};

/// The changes of an unfinished operation.
#[derive(Default)]
pub(super) struct Edit {
    made: Option<Inode>,
    metas: BTreeMap<Number, Meta>,
    changes: Vec<Change>,
}

impl Edit {
    /// Creates an edit that adds an object.
    pub(super) fn make(inode: Inode) -> Self {
        let metas = BTreeMap::from([(inode.meta.attributes.file_id, inode.meta)]);
        Self { made: Some(inode), metas, changes: Vec::new() }
    }

    /// Returns the metadata that an object will have after the edit, to change it.
    pub(super) fn meta(&mut self, disk: &Disk, number: Number) -> Result<&mut Meta> {
        match self.metas.entry(number) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::btree_map::Entry::Vacant(slot) => {
                Ok(slot.insert(disk.volatile.get(number)?.meta))
            }
        }
    }

    /// Updates the time stamps for a change of attributes, or of attributes and data.
    pub(super) fn touch(
        &mut self,
        disk: &mut Disk,
        number: Number,
        data: bool,
    ) -> Result<&mut Meta> {
        let (now, change) = disk.stamp();
        let meta = self.meta(disk, number)?;
        meta.attributes.change = change;
        meta.attributes.time_metadata = now;
        if data {
            meta.attributes.time_modify = now;
        }
        Ok(meta)
    }

    pub(super) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(super) fn enter(
        &mut self,
        disk: &mut Disk,
        directory: Number,
        name: &[u8],
        number: Number,
    ) -> Result<()> {
        self.touch(disk, directory, true)?;
        self.push(Change::Enter { directory, name: Arc::from(name), number });
        Ok(())
    }

    pub(super) fn leave(&mut self, disk: &mut Disk, directory: Number, name: &[u8]) -> Result<()> {
        self.touch(disk, directory, true)?;
        self.push(Change::Leave { directory, name: Arc::from(name) });
        Ok(())
    }

    /// Removes one link from an object. Returns true if the object has no link left.
    pub(super) fn unlink(&mut self, disk: &mut Disk, number: Number) -> Result<bool> {
        let found = &mut self.touch(disk, number, false)?.attributes;
        let is_directory = found.kind == ObjectType::Directory;
        found.link_count = if is_directory { 0 } else { found.link_count - 1 };
        let was_last = found.link_count == 0;
        if was_last && !disk.is_open(number) {
            self.push(Change::Free(number));
        }
        Ok(was_last)
    }

    /// Sets the size of a file, within the limits.
    pub(super) fn resize(&mut self, disk: &mut Disk, number: Number, size: u64) -> Result<()> {
        let found = self.meta(disk, number)?.attributes;
        if found.kind != ObjectType::Regular {
            return Err(StoreError::Invalid);
        }
        disk.check_growth(found.size, size)?;
        let meta = self.touch(disk, number, true)?;
        meta.attributes.size = size;
        meta.attributes.space_used = size;
        if size < found.size {
            self.push(Change::Cut(number));
        }
        Ok(())
    }

    /// Sets attributes without checking permissions.
    pub(super) fn set(
        &mut self,
        disk: &mut Disk,
        number: Number,
        changes: &AttributeChanges,
    ) -> Result<()> {
        if let Some(size) = changes.size {
            self.resize(disk, number, size)?;
        }
        let found = &mut self.touch(disk, number, false)?.attributes;
        let now = found.time_metadata;
        let time = |set: SetTime| match set {
            SetTime::Server => now,
            SetTime::Client(time) => time,
        };
        found.mode = changes.mode.map_or(found.mode, |mode| mode & 0o7777);
        found.uid = changes.uid.unwrap_or(found.uid);
        found.gid = changes.gid.unwrap_or(found.gid);
        found.time_access = changes.time_access.map_or(found.time_access, time);
        found.time_modify = changes.time_modify.map_or(found.time_modify, time);
        Ok(())
    }
}

impl Disk {
    /// Executes the changes of an edit as one operation.
    pub(super) fn finish(&mut self, edit: Edit) {
        let made = edit.made.map(Change::Make);
        let metas = edit.metas.into_iter().map(|(number, meta)| Change::Set(number, meta));
        self.commit(made.into_iter().chain(metas).chain(edit.changes).collect());
    }

    /// Executes an atomic operation, unless an injected fault makes it fail.
    pub(super) fn struck<T>(
        &mut self,
        on: FaultOn,
        act: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        match self.strike(on) {
            Some((FaultEffect::Before | FaultEffect::Part(_), error)) => Err(error),
            Some((FaultEffect::After, error)) => act(self).and(Err(error)),
            None => act(self),
        }
    }
}
