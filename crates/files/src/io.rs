//! Finds the file of a read or write, and checks the access.
//!
//! Invariant: a file is returned for a read or write only if the state id and the locks of other
//! owners allow the access. Without an open, the store's permissions and the delegations must also
//! allow it.

use std::sync::Arc;

use dafs_filer::{ClientKey, FileOperation, Filer, IoKind, Party};
use dafs_ops::Fault;
use dafs_store::cache::CachedFile;
use dafs_store::{File, FileKey, FileVersion};
use dafs_types::{AccessMask, FileHandle, Moment, ShareAccess, StateId, limits};

use crate::Files;
use crate::caller::Caller;
use crate::outcome::NotDone;
use crate::undo::seen::UndoSeen;

/// The file of a read or write whose access was checked.
#[derive(Clone, Copy, Debug)]
pub struct IoFile {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the server has opened the file for this request only.
    pub borrowed: bool,
    /// The state of undo data at the time of the check. Locks that are taken after the check do not
    /// affect the request.
    pub undo_seen: UndoSeen,
}

/// The file to which a state id belongs. The entry is valid as long as the filer accepts the state
/// id.
#[derive(Clone, Copy, Debug)]
pub struct RecentFile {
    state: StateId,
    handle: FileHandle,
    key: FileKey,
    file: CachedFile,
}

/// The files that a client has recently read or written, by state id. Each connection has its own
/// table.
#[derive(Debug, Default)]
pub struct Recent {
    files: [Option<RecentFile>; RECENT_FILES],
}

impl Recent {
    /// Returns the file of a state id that was recently used with the same handle. `None` if it was
    /// not.
    #[inline]
    pub fn find(&self, state: StateId, handle: &FileHandle) -> Option<&RecentFile> {
        let recent = self.files[slot_of(state)].as_ref();
        recent.filter(|r| r.state == state && r.handle == *handle)
    }

    /// Adds an entry for a file to the table. The new entry replaces the entry that uses the same
    /// slot.
    pub fn remember(&mut self, recent: RecentFile) {
        self.files[slot_of(recent.state)] = Some(recent);
    }
}

impl RecentFile {
    /// Returns the file if the filer lets a client access it with the state id. `None` if the full
    /// check must be made.
    #[inline]
    pub fn pass(
        &self,
        filer: &mut Filer,
        by: ClientKey,
        kind: IoKind,
        (undo_seen, now): (UndoSeen, Moment),
    ) -> Result<IoFile, Fault> {
        filer.check_io(by, self.state, dafs_filer::FileKey(self.key.0), kind, now)?;
        Ok(self.opened(undo_seen))
    }

    /// Returns the file after its state id has been checked.
    #[inline]
    pub fn opened(&self, undo_seen: UndoSeen) -> IoFile {
        IoFile { file: self.file, borrowed: false, undo_seen }
    }
}

impl Files<'_> {
    /// Returns the file of an open if its state id allows the access. `None` if the state id does
    /// not belong to an open; the caller then calls [`Files::unopened_file`].
    pub fn opened_file(
        &mut self,
        by: Party,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<Option<RecentFile>, Fault> {
        if state == StateId::ANONYMOUS {
            return Ok(None);
        }
        let record = self.opened.record(state);
        if record.is_none() && self.filer.is_of_delegation(state) {
            return Ok(None);
        }
        // The filer distinguishes state ids that are stale, old or invalid.
        self.filer.check_io(by.client, state, self.opened.key_of(state, handle), kind, self.now)?;
        let record = record.ok_or(Fault::BadState)?;
        Ok(Some(RecentFile { state, handle: *handle, key: record.key, file: record.file }))
    }

    /// Returns the file of a read or write that uses no open. The file is opened for this request
    /// only.
    pub fn unopened_file(
        &mut self,
        by: &Caller,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        match state {
            StateId::ANONYMOUS => self.anonymous_file(by, handle, kind),
            state => Ok(self.delegated_file(by, state, handle, kind)?),
        }
    }

    /// Returns the file of a read or write that uses the anonymous state id. Checks permissions and
    /// the deny modes of other opens.
    fn anonymous_file(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let opened = by.store().open_with_version(by, handle, access_for(kind))?;
        Ok(self.take_anonymous(by, handle, kind, opened)?.0)
    }

    /// Opens a file for a read or write of a client whose protocol has no opens; see
    /// [`Store::open_stateless`](dafs_store::Store::open_stateless). Returns also the key under
    /// which the filer knows the file.
    ///
    /// # Errors
    /// The error of the store, of another client's open, or of a delegation.
    pub fn open_anonymous(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<(IoFile, dafs_filer::FileKey), NotDone> {
        let opened = by.store().open_stateless(by, handle, access_for(kind))?;
        self.take_anonymous(by, handle, kind, opened)
    }

    /// Checks what other clients hold of a file that the store has just opened, and adds the file
    /// to the cache.
    fn take_anonymous(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        kind: IoKind,
        (file, version): (Arc<dyn File>, FileVersion),
    ) -> Result<(IoFile, dafs_filer::FileKey), NotDone> {
        let key = dafs_filer::FileKey(file.key().0);
        self.check_anonymous(by, handle, key, kind)?;
        let file = self.cache.open(file, version)?;
        Ok((IoFile { file, borrowed: true, undo_seen: self.undo_seen() }, key))
    }

    /// Checks whether the opens and delegations of other clients allow a read or write that uses
    /// the anonymous state id.
    ///
    /// # Errors
    /// The error of another client's open or of a delegation.
    #[inline]
    pub fn check_anonymous(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        key: dafs_filer::FileKey,
        kind: IoKind,
    ) -> Result<(), NotDone> {
        self.filer.check_io(by.party.client, StateId::ANONYMOUS, key, kind, self.now)?;
        let touch = match kind {
            IoKind::Read => FileOperation::Read,
            IoKind::Write => FileOperation::Write,
        };
        self.check_delegations(by, handle, touch)
    }

    /// Returns the file of a read or write that uses the state id of a delegation.
    #[cold]
    fn delegated_file(
        &mut self,
        by: &Caller,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, Fault> {
        self.check_delegated(by.party, state, handle, kind)?;
        self.borrow_file(by, handle, access_for(kind))
    }

    /// Checks whether the state id of a delegation allows the access.
    fn check_delegated(
        &mut self,
        by: Party,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<(), Fault> {
        self.filer.check_io(by.client, state, self.delegations.key_of(handle), kind, self.now)
    }

    /// Opens a file for one request only.
    pub fn borrow_file(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<IoFile, Fault> {
        let (file, version) = by.store().open_with_version(by, handle, access)?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true, undo_seen: self.undo_seen() })
    }

    /// Checks whether the caller has permission to read or write a file, owns it, or has it open.
    /// Knowledge of a file's handle gives no rights, so it must not be enough to make the server
    /// sync, prefetch or drop the file's data.
    pub fn check_use(&self, by: &Caller, handle: &FileHandle) -> Result<(), Fault> {
        let rights = AccessMask::READ | AccessMask::MODIFY;
        if by.store().access(by, handle, rights)? != AccessMask::default() {
            return Ok(());
        }
        let key = self.opened.key(handle);
        let is_open = key.is_some_and(|key| self.filer.is_open_by(by.party.client, key));
        let is_own = || by.store().attributes(by, handle).is_ok_and(|found| found.uid == by.uid());
        if is_open || is_own() { Ok(()) } else { Err(Fault::Access) }
    }

    /// Checks whether the locks of other owners allow a read or write. While there are no locks,
    /// the check takes almost no time.
    #[inline]
    pub fn check_locks(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Fault> {
        if self.filer.has_no_locks() {
            return Ok(());
        }
        self.check_locks_of(state, handle, (offset, length), kind)
    }

    /// Checks the locks of other owners, when there are any. See [`Files::check_locks`].
    #[cold]
    pub fn check_locks_of(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Fault> {
        // A lock can outlive its open only if it is in the journal, which then keeps the file open.
        let locked = || self.ledger.as_ref().and_then(|ledger| ledger.locked_file(handle));
        let Some(key) = self.opened.key(handle).or_else(locked) else { return Ok(()) };
        self.filer.check_locks(key, state, offset, length, kind)
    }

    /// Checks whether the opens of other clients allow a use of a file that needs no open. A file
    /// that no client has open has no key, and nothing of it is denied.
    pub fn check_unopened(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<(), Fault> {
        let key = self.opened.key(handle).unwrap_or(dafs_filer::FileKey(u64::MAX));
        self.filer.check_io(by.party.client, StateId::ANONYMOUS, key, kind, self.now)
    }

    /// Checks whether a state id allows this use of a file.
    pub fn check_state(
        &mut self,
        by: &Caller,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<(), Fault> {
        if self.opened.record(state).is_none() && self.filer.is_of_delegation(state) {
            self.check_delegated(by.party, state, handle, kind)?;
            by.store().open(by, handle, access_for(kind))?;
            return Ok(());
        }
        self.filer.check_io(
            by.party.client,
            state,
            self.opened.key_of(state, handle),
            kind,
            self.now,
        )?;
        self.opened.record(state).map(|_| ()).ok_or(Fault::BadState)
    }

    /// Returns true if the client of a waiting request was fenced out of the file. A client that
    /// has disconnected counts as a client without an identity.
    pub fn is_barred(&mut self, by: Option<Party>, file: CachedFile) -> bool {
        self.filer.has_fences() && {
            let handle = self.cache.handle(file);
            self.filer.check_fence(by.and_then(|by| by.fence), &handle).is_err()
        }
    }
}

fn access_for(kind: IoKind) -> ShareAccess {
    match kind {
        IoKind::Read => ShareAccess::Read,
        IoKind::Write => ShareAccess::Write,
    }
}

/// Checks that a range does not end after the largest possible file offset.
#[inline]
pub fn check_range(offset: u64, length: u32) -> Result<(), Fault> {
    if length > limits::TRANSFER_BYTES_MAX {
        return Err(Fault::Invalid);
    }
    match offset.checked_add(u64::from(length)) {
        Some(end) if end <= limits::FILE_OFFSET_MAX => Ok(()),
        _ => Err(Fault::TooBig),
    }
}

/// Returns the slot of a state id. The hash uses all low bits, because some of these bits contain
/// the index of the state.
#[inline]
fn slot_of(state: StateId) -> usize {
    let mixed = state.0 ^ (state.0 >> 20) ^ (state.0 >> 40);
    mixed as usize % RECENT_FILES
}

/// The number of slots for recently used files of a connection.
const RECENT_FILES: usize = 16;
