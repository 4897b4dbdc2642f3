//! The current and the saved file handle of a compound, and the state ids that belong to them (RFC
//! 8881 section 16.2.3.1).

use dafs_types::FileHandle;

use super::Compound;
use crate::Nfs4Error;
use crate::state_ids::{SpecialId, Stateid4};

impl Compound {
    /// Returns the current file handle.
    ///
    /// # Errors
    /// NOFILEHANDLE if no operation has set a file handle.
    pub fn current(&self) -> Result<&FileHandle, Nfs4Error> {
        self.current.as_ref().ok_or(Nfs4Error::NoFileHandle)
    }

    /// Returns the saved file handle.
    ///
    /// # Errors
    /// NOFILEHANDLE if no SAVEFH has saved a file handle.
    pub fn saved(&self) -> Result<&FileHandle, Nfs4Error> {
        self.saved.as_ref().ok_or(Nfs4Error::NoFileHandle)
    }

    /// Sets the current file handle: PUTFH, PUTROOTFH, PUTPUBFH, LOOKUP, LOOKUPP, CREATE, OPEN,
    /// OPENATTR. Clears the current state id.
    pub fn set_current(&mut self, handle: FileHandle) {
        self.current = Some(handle);
        self.current_id = None;
    }

    /// Clears the current file handle, as SECINFO and SECINFO_NO_NAME do.
    pub fn clear_current(&mut self) {
        self.current = None;
        self.current_id = None;
    }

    /// Handles SAVEFH: saves the current file handle and its state id.
    ///
    /// # Errors
    /// NOFILEHANDLE if there is no current file handle.
    pub fn save(&mut self) -> Result<(), Nfs4Error> {
        self.saved = Some(*self.current()?);
        self.saved_id = self.current_id;
        Ok(())
    }

    /// Handles RESTOREFH: the saved file handle and its state id become the current ones.
    ///
    /// # Errors
    /// RESTOREFH if no SAVEFH has saved a file handle.
    pub fn restore(&mut self) -> Result<(), Nfs4Error> {
        self.current = Some(*self.saved.as_ref().ok_or(Nfs4Error::RestoreFh)?);
        self.current_id = self.saved_id;
        Ok(())
    }

    /// Sets the current state id to the one in the result of an operation: OPEN, OPEN_DOWNGRADE,
    /// LOCK, LOCKU, CLOSE, LAYOUTGET and others.
    pub fn set_state(&mut self, id: Stateid4) {
        self.current_id = Some(id);
    }

    /// Replaces [`Stateid4::CURRENT`] by the current state id. Returns other ids unchanged.
    ///
    /// # Errors
    /// BAD_STATEID if there is no current state id.
    pub fn resolve(&self, id: Stateid4) -> Result<Stateid4, Nfs4Error> {
        resolved(id, self.current_id)
    }

    /// Replaces [`Stateid4::CURRENT`] by the state id that was saved with the file handle, for the
    /// source of COPY and CLONE. Returns other ids unchanged.
    ///
    /// # Errors
    /// BAD_STATEID if there is no saved state id.
    pub fn resolve_saved(&self, id: Stateid4) -> Result<Stateid4, Nfs4Error> {
        resolved(id, self.saved_id)
    }
}

fn resolved(id: Stateid4, meant: Option<Stateid4>) -> Result<Stateid4, Nfs4Error> {
    match id.special() {
        Some(SpecialId::Current) => meant.ok_or(Nfs4Error::BadStateId),
        Some(SpecialId::Anonymous | SpecialId::Bypass | SpecialId::Invalid) | None => Ok(id),
    }
}
