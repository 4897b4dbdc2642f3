//! Delegations: granting, calling back, and requests that wait for that (draft 6.5.10,
//! 6.5.11, 6.5.24, 6.6.3, 6.6.4).
//!
//! A request that touches a delegated file asks by [`crate::Files::touch`] right before it
//! has its effect, and before its intent goes into the journal. If it must wait it ends with
//! [`NotDone::Recalls`] or [`NotDone::Asks`], and whoever carried it out hands what it asks for to
//! the server, which sets it aside instead of replying. It is carried out
//! from its start when the delegation is back, was revoked, or its holder has told what was asked.
//! While nothing is delegated all of that is one comparison; reads and writes under the state id
//! of an open have none.
//!
//! Nothing is granted while a write or a change of size is under way, or may yet be undone:
//! what a holder reads stays what it is until it has heard of a recall.
//!
//! Delegations are volatile: they end with the server, and clients take their opens back
//! without them (`gaps.md`).
//!
//! Invariant: every request set aside is known to the filer or is a question that has a
//! deadline; a file with a delegation is kept open.

use std::sync::Arc;

use dafs_filer::{ClientKey, DelegationDecision, FileKey, Filer, Touch, WaiterId};
use dafs_ops::Fault;
use dafs_store::File;
use dafs_store::cache::CachedFile;
use dafs_types::{FileAttributes, FileHandle, Moment, QuickMap, ShareAccess};

use crate::outcome::{NotDone, Question};

/// What the server keeps beside the filer's table.
#[derive(Default)]
pub struct Delegations {
    /// Files with a delegation, and some that had one lately.
    files: QuickMap<FileHandle, Arc<dyn File>>,
    last_waiter: u64,
}

/// What a holder says of its file, or that it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It says this.
    Facts {
        /// The size, if it is told.
        size: Option<u64>,
        /// The change attribute, if it is told.
        change: Option<u64>,
    },
    /// It does not reply.
    Nothing,
}

impl Told {
    /// What a request for attributes that has heard this still has to ask for.
    pub fn touch(told: Option<Self>) -> Option<Touch> {
        match told {
            None => Some(Touch::GetAttributes { may_ask: true }),
            Some(Told::Nothing) => Some(Touch::GetAttributes { may_ask: false }),
            Some(Told::Facts { .. }) => None,
        }
    }

    /// What the holder of a write delegation has told goes over what the server knows.
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
    /// The file, open.
    pub file: &'o Arc<dyn File>,
    /// The same, as the cache knows it.
    pub cached: CachedFile,
    /// The file's handle.
    pub handle: FileHandle,
    /// What the open may do.
    pub access: ShareAccess,
}

impl Delegations {
    /// Whether a request may touch a file that may be delegated.
    ///
    /// # Errors
    /// It waits, or may not even do that (DELAY).
    #[cold]
    pub fn touch(
        &mut self,
        filer: &mut Filer,
        client: ClientKey,
        file: &FileHandle,
        touch: Touch,
        now: Moment,
    ) -> Result<(), NotDone> {
        let Some(file) = self.files.get(file) else { return Ok(()) };
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        match filer.touch(client, FileKey(file.key().0), touch, waiter, now) {
            DelegationDecision::Proceed => Ok(()),
            DelegationDecision::Wait => Err(NotDone::Recalls(waiter)),
            DelegationDecision::AskAttributes { client, handle: file } => {
                Err(NotDone::Asks(Box::new(Question { client, file, waiter })))
            }
            DelegationDecision::Delay => Err(Fault::WouldWait.into()),
        }
    }

    /// The key of a file that is delegated, or was lately; an impossible one if it was not.
    pub fn key_of(&self, file: &FileHandle) -> FileKey {
        self.files.get(file).map_or(FileKey(u64::MAX), |file| FileKey(file.key().0))
    }

    /// A file is delegated: it is kept open as long as that lasts.
    pub fn enter(&mut self, handle: FileHandle, file: Arc<dyn File>) {
        self.files.insert(handle, file);
    }

    /// Forgets files that nobody holds any more.
    pub fn forget_ended(&mut self, filer: &Filer) {
        self.files.retain(|_, file| filer.is_delegated(FileKey(file.key().0)));
    }
}
