//! Delegations: grants, recalls, and requests that wait for recalls (draft 6.5.10, 6.5.11, 6.5.24,
//! 6.6.3, 6.6.4).
//!
//! A request that accesses a delegated file calls [`crate::Files::check_delegations`] just before
//! it takes effect, and before its intent goes into the journal. If it must wait, it ends with
//! [`NotDone::AwaitsRecall`] or [`NotDone::AwaitsHolder`], and its caller passes it to the server,
//! which sets it aside instead of replying. It is executed from its start when the delegation is
//! returned or revoked, or when its holder has replied. As long as nothing is delegated, all of
//! this costs one comparison; reads and writes with the state id of an open do not even make that.
//!
//! No delegation is granted while a write or a change of size is in progress, or while a change may
//! still be undone. So the data that a holder reads stays valid until it is told of a recall.
//!
//! Delegations are volatile: they end with the server, and clients reclaim their opens without them
//! (`gaps.md`).
//!
//! Invariants:
//! - Every request that is set aside is known to the filer, or waits for a reply with a deadline.
//! - A delegated file is kept open.

use std::sync::Arc;

use dafs_filer::{ClientKey, DelegationDecision, FileKey, FileOperation, Filer, WaiterId};
use dafs_ops::Fault;
use dafs_store::File;
use dafs_store::cache::CachedFile;
use dafs_types::{FileAttributes, FileHandle, Moment, QuickMap, ShareAccess};

use crate::outcome::{HolderQuery, NotDone};

/// The server's data about delegations beside the filer's table.
#[derive(Default)]
pub struct Delegations {
    /// Files with a delegation, and some that had one recently.
    files: QuickMap<FileHandle, Arc<dyn File>>,
    last_waiter: u64,
}

/// The reply of a delegation's holder about its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The holder has replied.
    Facts {
        /// The size, if the reply contains it.
        size: Option<u64>,
        /// The change attribute, if the reply contains it.
        change: Option<u64>,
    },
    /// The holder does not reply.
    Nothing,
}

impl Told {
    /// The access that a request for attributes still needs to check after this reply.
    pub fn touch(told: Option<Self>) -> Option<FileOperation> {
        match told {
            None => Some(FileOperation::GetAttributes { may_ask: true }),
            Some(Told::Nothing) => Some(FileOperation::GetAttributes { may_ask: false }),
            Some(Told::Facts { .. }) => None,
        }
    }

    /// Replaces attributes by those that the holder of a write delegation has reported.
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

/// An OPEN that has succeeded.
pub struct FreshOpen<'o> {
    /// The open file of the store.
    pub file: &'o Arc<dyn File>,
    /// The cache's id of the file.
    pub cached: CachedFile,
    /// The handle of the file.
    pub handle: FileHandle,
    /// The access that the open allows.
    pub access: ShareAccess,
}

impl Delegations {
    /// Checks whether a request may access a file that may be delegated.
    ///
    /// # Errors
    /// The request must wait for a recall or a reply, or may not even do that (DELAY).
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

    /// The key of a file that is or was recently delegated, else a key that no file has.
    pub fn key_of(&self, file: &FileHandle) -> FileKey {
        self.files.get(file).map_or(FileKey(u64::MAX), |file| FileKey(file.key().0))
    }

    /// Notes a delegated file, and keeps it open.
    pub fn enter(&mut self, handle: FileHandle, file: Arc<dyn File>) {
        self.files.insert(handle, file);
    }

    /// Drops files that are no longer delegated.
    pub fn forget_ended(&mut self, filer: &Filer) {
        self.files.retain(|_, file| filer.is_delegated(FileKey(file.key().0)));
    }
}
