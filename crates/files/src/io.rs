//! Which file a read or write is about, and whether it may be.
//!
//! Invariant: a file is handed out for a read or write only after the state id, the locks of
//! others, and for whoever has no open the store and the delegations, have let it through.

use dafs_filer::{ClientKey, Filer, IoKind, Party, Touch};
use dafs_ops::Fault;
use dafs_store::FileKey;
use dafs_store::cache::CachedFile;
use dafs_types::{AccessMask, FileHandle, Moment, ShareAccess, StateId, limits};

use crate::Files;
use crate::caller::Caller;
use crate::outcome::NotDone;
use crate::undo::seen::UndoSeen;

/// The file of a read or write, and whether it was opened for this request alone.
#[derive(Clone, Copy, Debug)]
pub struct IoFile {
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// Whether the file was opened for this request alone.
    pub borrowed: bool,
    /// Undo that was kept when it was let in. What comes later is for others' changes.
    pub undo_seen: UndoSeen,
}

/// What a state id stands for. Good as long as the filer says that the state is.
#[derive(Clone, Copy, Debug)]
pub struct RecentFile {
    state: StateId,
    handle: FileHandle,
    key: FileKey,
    file: CachedFile,
}

/// Files that somebody has lately read or written, by state id. Whoever asks keeps it.
#[derive(Debug, Default)]
pub struct Recent {
    files: [Option<RecentFile>; RECENT_FILES],
}

impl Recent {
    /// The file of a state id, if it was used lately with this very handle.
    #[inline]
    pub fn find(&self, state: StateId, handle: &FileHandle) -> Option<&RecentFile> {
        let recent = self.files[slot_of(state)].as_ref();
        recent.filter(|r| r.state == state && r.handle == *handle)
    }

    /// Remembers a file.
    pub fn remember(&mut self, recent: RecentFile) {
        self.files[slot_of(recent.state)] = Some(recent);
    }
}

impl RecentFile {
    /// The file, if its state id may be used so by a client.
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

    /// The file, after its state id has passed.
    #[inline]
    pub fn opened(&self, undo_seen: UndoSeen) -> IoFile {
        IoFile { file: self.file, borrowed: false, undo_seen }
    }
}

impl Files<'_> {
    /// What stands behind the state id of an open, if it may be used so. `None` if it is not an
    /// open's: then [`Files::unopened_file`] has the file.
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
        // The filer tells stale, old and plainly wrong state ids apart.
        self.filer.check_io(by.client, state, self.opened.key_of(state, handle), kind, self.now)?;
        let record = record.ok_or(Fault::BadState)?;
        Ok(Some(RecentFile { state, handle: *handle, key: record.key, file: record.file }))
    }

    /// The file of a read or write without an open, opened for this alone.
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

    /// I/O without an open: permission is checked now, deny modes of others too.
    fn anonymous_file(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let (file, version) = by.store().open_with_version(by, handle, access_for(kind))?;
        let key = dafs_filer::FileKey(file.key().0);
        self.filer.check_io(by.party.client, StateId::ANONYMOUS, key, kind, self.now)?;
        let touch = match kind {
            IoKind::Read => Touch::Read,
            IoKind::Write => Touch::Write,
        };
        self.touch(by, handle, touch)?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true, undo_seen: self.undo_seen() })
    }

    /// The file of a read or write under a delegation's state id.
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

    /// Whether a delegation's state id may be used so.
    fn check_delegated(
        &mut self,
        by: Party,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<(), Fault> {
        self.filer.check_io(by.client, state, self.delegations.key_of(handle), kind, self.now)
    }

    /// Opens a file for one request.
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

    /// Whether a file's data is any business of the asker's: they may read or write it, or own it,
    /// or have it open since they might. A handle alone, which says where the file is, does not
    /// let anybody have the server sync it, fetch it or drop it.
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

    /// Whether locks of others let a read or write through. Nearly free while there are none.
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

    /// The same where there are locks.
    #[cold]
    pub fn check_locks_of(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Fault> {
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

    /// Whether a request that waited may not go on: its client is fenced out by now. One whose
    /// client is gone counts as of a client without an identity.
    pub fn is_barred(&mut self, by: Option<Party>, file: CachedFile) -> bool {
        self.filer.has_fences() && {
            let handle = self.cache.handle(file);
            self.filer.pass_fence(by.and_then(|by| by.fence), &handle).is_err()
        }
    }
}

fn access_for(kind: IoKind) -> ShareAccess {
    match kind {
        IoKind::Read => ShareAccess::Read,
        IoKind::Write => ShareAccess::Write,
    }
}

/// Whether a request may be about such a range at all.
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

/// State ids carry their index in some of their low bits; all of them take part.
#[inline]
fn slot_of(state: StateId) -> usize {
    let mixed = state.0 ^ (state.0 >> 20) ^ (state.0 >> 40);
    mixed as usize % RECENT_FILES
}

/// Files that are remembered for each who asks.
const RECENT_FILES: usize = 16;
