//! Reads fencing lists.

use dafs_filer::{FenceAuthority, FenceId, FencedObject};
use dafs_ops::Fault;
use dafs_types::FileHandle;

use crate::Files;
use crate::caller::Caller;

impl Files<'_> {
    /// Returns the fencing list of an object.
    pub fn fencing_list(
        &mut self,
        by: &Caller,
        is_trusted: bool,
        file: &FileHandle,
    ) -> Result<Vec<FenceId>, Fault> {
        let object = FencedObject::asked_for(file);
        let authority = self.fence_authority(by, is_trusted, file)?;
        Ok(self.filer.fencing_list(&object, authority)?.to_vec())
    }

    /// Returns which changes the caller may make to an object's fencing list (draft 4.4.4.4).
    pub fn fence_authority(
        &mut self,
        by: &Caller,
        is_trusted: bool,
        file: &FileHandle,
    ) -> Result<FenceAuthority, Fault> {
        let is_owner = match FencedObject::asked_for(file) {
            FencedObject::FileSystem(_) => false,
            FencedObject::File(_) => self.attributes_of(by, file)?.uid == by.uid(),
        };
        Ok(FenceAuthority { is_owner, is_trusted })
    }
}
