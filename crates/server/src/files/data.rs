//! Files as reads and writes want them.

use dafs_filer::{IoKind, Touch};
use dafs_ops::{Commit, Hint};
use dafs_store::cache::FillJob;
use dafs_types::{AccessMask, FileHandle, ShareAccess, Stability, StateId, Status};

use crate::caller::Caller;
use crate::data::{IoFile, access_for};
use crate::files::Files;
use crate::outcome::{NotDone, Now, Outcome};
use crate::task::{CommitReply, CommitTask, Work};

impl Files<'_> {
    /// Says how part of a file will be used. What is to be read for that.
    pub fn hint(&mut self, by: &Caller, ask: &Hint) -> Result<Vec<FillJob>, Status> {
        self.check_use(by, &ask.file)?;
        let mut jobs = Vec::new();
        if let Some(file) = self.cache.find(&ask.file) {
            self.cache.hint(file, ask.offset, ask.length, ask.pattern, ask.hint, &mut jobs);
        }
        Ok(jobs)
    }

    /// Has what was written to a part of a file go to stable storage.
    pub fn commit(&mut self, by: &Caller, ask: &Commit) -> Result<Now<Outcome>, Status> {
        let (file, borrowed) = match self.cache.find(&ask.file) {
            Some(file) => {
                self.check_use(by, &ask.file)?;
                (file, false)
            }
            // Nothing of it is in the cache; what was written before is the kernel's.
            None => (self.borrow_file(by, &ask.file, ShareAccess::Write)?.file, true),
        };
        let (stable, listener) = (Stability::FileSync, self.listener(by.channel, file));
        let ticket = self.cache.commit_begin(file, ask.offset, ask.length, stable, listener);
        let reply = CommitReply::Commit;
        Ok(Now::later(Work::Commit(CommitTask { ticket, file, reply, borrowed })))
    }

    /// Whether a file's data is any business of the asker's: they may read or write it, or own it,
    /// or have it open since they might. A handle alone, which says where the file is, does not
    /// let anybody have the server sync it, fetch it or drop it.
    pub fn check_use(&self, by: &Caller, handle: &FileHandle) -> Result<(), Status> {
        let rights = AccessMask::READ | AccessMask::MODIFY;
        if by.store().access(by, handle, rights)? != AccessMask::default() {
            return Ok(());
        }
        let key = self.opened.key(handle);
        let is_open = key.is_some_and(|key| self.filer.is_open_by(by.channel, key));
        let is_own = || by.store().attributes(by, handle).is_ok_and(|found| found.uid == by.uid());
        if is_open || is_own() { Ok(()) } else { Err(Status::Access) }
    }

    /// Whether locks of others let a read or write through. Nearly free while there are none.
    #[inline]
    pub fn check_locks(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Status> {
        if self.filer.has_no_locks() {
            return Ok(());
        }
        self.check_locks_of(state, handle, (offset, length), kind)
    }

    #[cold]
    pub fn check_locks_of(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Status> {
        // Locks outlive opens only on record, and those keep their file.
        let locked = || self.ledger.as_ref().and_then(|ledger| ledger.locked_file(handle));
        let Some(key) = self.opened.key(handle).or_else(locked) else { return Ok(()) };
        self.filer.check_locks(key, state, offset, length, kind)
    }

    /// Whether a state id may be used so with a file.
    pub fn check_state(
        &mut self,
        by: &Caller,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<(), Status> {
        if self.opened.record(state).is_none() && self.filer.is_of_delegation(state) {
            self.filer.check_io(by.channel, state, self.delegations.key_of(handle), kind)?;
            by.store().open(by, handle, access_for(kind))?;
            return Ok(());
        }
        self.filer.check_io(by.channel, state, self.opened.key_of(state, handle), kind)?;
        self.opened.record(state).map(|_| ()).ok_or(Status::BadStateId)
    }

    /// I/O without an open: permission is checked now, deny modes of others too.
    pub fn anonymous_file(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let file = by.store().open(by, handle, access_for(kind))?;
        let key = dafs_filer::FileKey(file.key().0);
        self.filer.check_io(by.channel, StateId::ANONYMOUS, key, kind)?;
        let touch = match kind {
            IoKind::Read => Touch::Read,
            IoKind::Write => Touch::Write,
        };
        self.touch(by, handle, touch)?;
        let version = file.version()?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true, undo_seen: self.undo_seen() })
    }

    /// The file of a READ or WRITE under a delegation's state id, opened for this alone.
    #[cold]
    pub fn delegated_file(
        &mut self,
        by: &Caller,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, Status> {
        self.filer.check_io(by.channel, state, self.delegations.key_of(handle), kind)?;
        self.borrow_file(by, handle, access_for(kind))
    }

    /// Opens a file for one request.
    pub fn borrow_file(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<IoFile, Status> {
        let file = by.store().open(by, handle, access)?;
        let version = file.version()?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true, undo_seen: self.undo_seen() })
    }
}
