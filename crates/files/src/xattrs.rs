//! Extended attributes: reading, setting, listing and removing them.
//!
//! Invariant: a change of an extended attribute keeps the cached data of the object, although it
//! changes the object's time stamp.

use dafs_filer::FileOperation;
use dafs_ops::{ListXattrs, SetXattr, Xattr};
use dafs_store::{Altered, StoreError, XattrListRequest, XattrPage};
use dafs_types::{ChangeInfo, FileHandle};

use crate::Files;
use crate::caller::Caller;
use crate::outcome::NotDone;

impl Files<'_> {
    /// Returns the value of an extended attribute.
    pub fn xattr(&mut self, by: &Caller, ask: &Xattr<'_>) -> Result<Vec<u8>, NotDone> {
        self.check_fence(by, &ask.file)?;
        Ok(by.store().xattr(by, &ask.file, ask.name)?)
    }

    /// Returns part of the list of an object's extended attributes.
    pub fn xattrs(&mut self, by: &Caller, ask: &ListXattrs) -> Result<XattrPage, NotDone> {
        self.check_fence(by, &ask.file)?;
        let request = XattrListRequest {
            cookie: ask.cookie,
            count_max: (ask.count_max as usize).min(dafs_ops::LIST_COUNT_MAX),
            name_bytes_max: ask.name_bytes_max as usize,
        };
        Ok(by.store().xattrs(by, &ask.file, &request)?)
    }

    /// Sets an extended attribute. Returns the change attribute of the object before and after the
    /// change.
    pub fn set_xattr(&mut self, by: &Caller, ask: &SetXattr<'_>) -> Result<ChangeInfo, NotDone> {
        self.change_xattr(by, &ask.file, |by| {
            by.store().set_xattr(by, &ask.file, ask.name, ask.value, ask.mode)
        })
    }

    /// Removes an extended attribute. Returns the change attribute of the object before and after
    /// the change.
    pub fn remove_xattr(&mut self, by: &Caller, ask: &Xattr<'_>) -> Result<ChangeInfo, NotDone> {
        self.change_xattr(by, &ask.file, |by| by.store().remove_xattr(by, &ask.file, ask.name))
    }

    fn change_xattr(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        change: impl FnOnce(&Caller) -> Result<Altered, StoreError>,
    ) -> Result<ChangeInfo, NotDone> {
        self.check_fence(by, handle)?;
        self.check_delegations(by, handle, FileOperation::SetAttributes { truncate: false })?;
        let before = self.attributes_of(by, handle)?.change;
        self.note_set(handle, change(by), None)?;
        let after = self.attributes_of(by, handle)?.change;
        Ok(ChangeInfo { before, after, atomic: false })
    }
}
