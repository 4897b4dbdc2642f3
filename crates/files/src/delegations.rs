//! Delegations: grants, recalls, and requests that wait for recalls (draft 6.5.10, 6.5.11, 6.5.24,
//! 6.6.3, 6.6.4).
//!
//! A request that accesses a delegated file calls [`crate::Files::check_delegations`] just before
//! it takes effect, and before its intent is journaled. If the request must wait, it ends with
//! [`NotDone::AwaitsRecall`] or [`NotDone::AwaitsHolder`], and the server sets it aside instead of
//! replying. The request is executed again from the start when the delegation is returned or
//! revoked, or when its holder has replied. While no file is delegated, the check costs one
//! comparison per request. Reads and writes with the state id of an open need no check.
//!
//! No delegation is granted while a write or a change of size is in progress, or while a change may
//! still be undone. So the data that the holder of a delegation reads stays valid until the holder
//! gets a recall.
//!
//! Delegations are volatile: they end with the server, and clients reclaim their opens without them
//! (`gaps.md`).
//!
//! Invariants:
//! - Every request that is set aside is known to the filer, or waits with a deadline for a reply
//!   from the holder.
//! - A delegated file is kept open.

use std::sync::Arc;

use dafs_filer::{ClientKey, DelegationDecision, FileKey, FileOperation, Filer, WaiterId};
use dafs_ops::Fault;
use dafs_store::File;
use dafs_store::cache::CachedFile;
use dafs_types::{FileAttributes, FileHandle, Moment, QuickMap, ShareAccess};

use crate::outcome::{HolderQuery, NotDone};

/// The data about delegated files that the filer's table does not contain.
#[derive(Default)]
pub struct Delegations {
    /// The open files that have a delegation, and some files that had a delegation recently.
    files: QuickMap<FileHandle, Arc<dyn File>>,
    last_waiter: u64,
}

/// The reply of a delegation's holder to a request for its file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The holder has replied with attributes.
    Facts {
        /// The size in bytes. `None` if the reply does not contain it.
        size: Option<u64>,
        /// The change attribute. `None` if the reply does not contain it.
        change: Option<u64>,
    },
    /// The holder has not replied.
    Nothing,
}

impl Told {
    /// Returns the operation for which a request for attributes must still be checked after this
    /// reply of a delegation's holder. `None` if no further check is needed.
    pub fn touch(told: Option<Self>) -> Option<FileOperation> {
        match told {
            None => Some(FileOperation::GetAttributes { may_ask: true }),
            Some(Told::Nothing) => Some(FileOperation::GetAttributes { may_ask: false }),
            Some(Told::Facts { .. }) => None,
        }
    }

    /// Replaces attributes with those that the holder of a write delegation has reported.
    pub fn overlay(told: Option<Self>, full: &mut FileAttributes) {
        let Some(Told::Facts { size, change }) = told else { return };
        if let Some(size) = size {
            full.size = Some(size);
        }
        if let (Some(theirs), Some(ours)) = (change, full.change) {
            full.change = Some(theirs.max(ours));
        }
    }
}

/// An OPEN that has succeeded, for which a delegation may be granted.
pub struct FreshOpen<'o> {
    /// The file, open in the store.
    pub file: &'o Arc<dyn File>,
    /// The cache's id of the file.
    pub cached: CachedFile,
    /// The handle of the file.
    pub handle: FileHandle,
    /// The access that the OPEN has granted.
    pub access: ShareAccess,
}

impl Delegations {
    /// Checks whether a request may access a file that may be delegated.
    ///
    /// # Errors
    /// [`NotDone`] if the request must wait for a recall or for a holder's reply, or DELAY if no
    /// more requests may wait.
    #[cold]
    pub fn touch(
        &mut self,
        filer: &mut Filer,
        client: ClientKey,
        file: &FileHandle,
        touch: FileOperation,
        now: Moment,
    ) -> Result<(), NotDone> {
        let Some(file) = self.files.get(file) else { return Ok(()) };
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        match filer.check_delegations(client, FileKey(file.key().0), touch, waiter, now) {
            DelegationDecision::Proceed => Ok(()),
            DelegationDecision::Wait => Err(NotDone::AwaitsRecall(waiter)),
            DelegationDecision::AskAttributes { client, handle: file } => {
                Err(NotDone::AwaitsHolder(Box::new(HolderQuery { client, file, waiter })))
            }
            DelegationDecision::Delay => Err(Fault::WouldWait.into()),
        }
    }

    /// Returns the key of a file that has a delegation or had one recently. For all other files,
    /// returns a key that belongs to no file.
    pub fn key_of(&self, file: &FileHandle) -> FileKey {
        self.files.get(file).map_or(FileKey(u64::MAX), |file| FileKey(file.key().0))
    }

    /// Adds an entry for a delegated file. The entry keeps the file open.
    pub fn enter(&mut self, handle: FileHandle, file: Arc<dyn File>) {
        self.files.insert(handle, file);
    }

    /// Removes the entries of files that are no longer delegated.
    pub fn forget_ended(&mut self, filer: &Filer) {
        self.files.retain(|_, file| filer.is_delegated(FileKey(file.key().0)));
    }
}
