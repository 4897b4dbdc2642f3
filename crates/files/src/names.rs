//! Operations on names: look up, create, link, remove, rename, and list directories.
//!
//! Invariant: the store checks names and permissions. This module checks only fencing lists, and
//! the opens and delegations of other clients.

use dafs_filer::{FileOperation, RemoveDecision};
use dafs_ops::Fault;
use dafs_store::{
    Created, ExtraChanges, ExtrasWanted, FileVersion, ListEntry, NewNode, Renamed, StoreError,
};
use dafs_types::{
    ChangeInfo, CreateMode, FileAttributes, FileHandle, RemoveMode, SetAttributes, ShareAccess,
};

use crate::Files;
use crate::attributes::add_extras;
use crate::caller::Caller;
use crate::outcome::NotDone;
use crate::settings::changes_in;

/// The handle of a directory, and a name in that directory.
pub(crate) type DirectoryName<'n> = (&'n FileHandle, &'n [u8]);

/// The results of removing a name.
pub struct Removed {
    /// The change information of the directory.
    pub directory: ChangeInfo,
    /// The number of bytes that the system frees when the object is closed. `None` if the object
    /// has other names.
    pub held: Option<u64>,
}

impl Files<'_> {
    /// Creates an object that is not a regular file (CREATE).
    pub fn create_node(
        &mut self,
        by: &Caller,
        (directory, name): DirectoryName<'_>,
        node: NewNode<'_>,
        settings: &SetAttributes,
    ) -> Result<Created, Fault> {
        let (changes, extras) = changes_in(settings)?;
        let created = by.store().create_node(by, directory, name, node, &changes)?;
        self.apply_creation_attributes(by, (directory, name), &created, &extras)?;
        Ok(created)
    }

    /// Creates a regular file without opening it for a client, as CREATE of NFSv3 does. A file that
    /// exists is returned unchanged in mode `Unchecked`; the caller truncates it if that is wanted.
    pub fn create_file(
        &mut self,
        by: &Caller,
        (directory, name): DirectoryName<'_>,
        mode: CreateMode,
        settings: &SetAttributes,
    ) -> Result<Created, Fault> {
        let (mut changes, extras) = changes_in(settings)?;
        changes.size = changes.size.filter(|size| *size != 0);
        let found = by.store().create_file(by, directory, name, mode, &changes, ShareAccess::Read);
        let created = match (found, mode) {
            (Ok((created, _)), _) => created,
            // The file exists, but the caller may not read it. A file that is only named need not
            // be read.
            (Err(StoreError::Access), CreateMode::Unchecked) => {
                let object = match by.store().lookup(by, directory, name) {
                    // There is no such file, and the caller may not create it.
                    Err(StoreError::NotFound) => return Err(Fault::Access),
                    found => found?,
                };
                Created { object, is_new: false, change: ChangeInfo::default() }
            }
            (Err(error), _) => return Err(error.into()),
        };
        self.check_fence(by, &created.object.handle)?;
        self.apply_creation_attributes(by, (directory, name), &created, &extras)?;
        Ok(created)
    }

    /// Applies the remaining creation attributes to a new object. If that fails, removes the object
    /// again. Returns true if there were attributes to apply.
    pub fn apply_creation_attributes(
        &self,
        by: &Caller,
        (directory, name): DirectoryName<'_>,
        created: &Created,
        extras: &ExtraChanges,
    ) -> Result<bool, Fault> {
        if extras.is_empty() || !created.is_new {
            return Ok(false);
        }
        let handle = created.object.handle;
        if let Err(error) = by.store().set_extras(by, &handle, extras) {
            // The object is removed if it still has the name. An error of the removal is ignored,
            // because the reply already reports another error.
            let is_it = &mut |object: &FileHandle| *object == handle;
            let _ = by.store().remove_if(by, directory, name, is_it);
            return Err(error.into());
        }
        Ok(true)
    }

    /// Gives an object an additional name (LINK).
    pub fn link(
        &mut self,
        by: &Caller,
        source: &FileHandle,
        (directory, name): DirectoryName<'_>,
    ) -> Result<ChangeInfo, NotDone> {
        self.check_delegations(by, source, FileOperation::Link)?;
        let changed = by.store().link(by, source, directory, name)?;
        self.note_name(source);
        Ok(changed)
    }

    /// Removes a name from a directory (REMOVE).
    pub fn remove(
        &mut self,
        by: &Caller,
        (directory, name): DirectoryName<'_>,
        mode: RemoveMode,
    ) -> Result<Removed, NotDone> {
        self.filer.check_grace(by.party.client, self.now)?;
        let mut refused = Ok(());
        let removed = by.store().remove_if(by, directory, name, &mut |object| {
            refused = self.check_removal(by, object, mode);
            refused.is_ok()
        })?;
        let Some(removed) = removed else {
            refused?;
            return Err(Fault::Broken.into());
        };
        if removed.was_last {
            self.note_unnamed(&removed.handle);
        }
        let held = removed.was_last.then_some(removed.held);
        Ok(Removed { directory: removed.change, held })
    }

    /// Renames an object (RENAME). If another object has the new name, that object loses the name.
    pub fn rename(
        &mut self,
        by: &Caller,
        (source, old): DirectoryName<'_>,
        (target, new): DirectoryName<'_>,
    ) -> Result<Renamed, NotDone> {
        self.filer.check_grace(by.party.client, self.now)?;
        match by.store().lookup(by, target, new) {
            Ok(object) => self.check_removal(by, &object.handle, RemoveMode::Unchecked)?,
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        self.check_fence_of_name(by, source, old)?;
        if !self.filer.has_no_delegations() {
            let object = by.store().lookup(by, source, old)?;
            self.check_delegations(by, &object.handle, FileOperation::Rename)?;
        }
        let renamed = by.store().rename(by, source, old, target, new)?;
        if let Some(replaced) = &renamed.replaced {
            self.note_unnamed(replaced);
        }
        Ok(renamed)
    }

    /// Checks whether opens, delegations and fencing lists allow the removal of an object's name.
    fn check_removal(
        &mut self,
        by: &Caller,
        object: &FileHandle,
        mode: RemoveMode,
    ) -> Result<(), NotDone> {
        self.check_fence(by, object)?;
        self.check_opens(object, mode)?;
        self.check_delegations(by, object, FileOperation::Remove)
    }

    /// Checks whether the opens of an object allow the removal of its name.
    fn check_opens(&self, handle: &FileHandle, mode: RemoveMode) -> Result<(), Fault> {
        let Some(key) = self.opened.key(handle) else { return Ok(()) };
        match self.filer.remove_check(key, mode)? {
            RemoveDecision::Now | RemoveDecision::KeepDataUntilLastClose => Ok(()),
        }
    }

    /// Returns the requested attributes of an entry in a directory listing.
    pub fn attributes_of_entry(
        &mut self,
        by: &Caller,
        entry: &ListEntry,
        extras: ExtrasWanted,
    ) -> FileAttributes {
        let Some(object) = &entry.object else {
            let file_id = Some(entry.file_id);
            return FileAttributes { file_id, ..FileAttributes::default() };
        };
        let mut attributes = object.attributes;
        if let Some(file) = self.cache.find(&object.handle) {
            self.cache.revalidate(file, FileVersion::from(&attributes));
            self.cache.overlay(file, &mut attributes);
        }
        let mut full = attributes.to_file_attributes(object.handle);
        if extras.is_any() {
            let found = by.store().extras(by, &object.handle, extras);
            add_extras(&mut full, found.unwrap_or_default());
        }
        full
    }
}
