//! What is done to files, seen from the operations: the parts of the server that names, opens and
//! data are looked up and changed with. An operation has these parts and nothing else: no
//! connection, no message and no way to reply. Of a read or write it says where in the cache the
//! bytes are, and what must be done first; whoever asked moves them.
//!
//! Invariant: whoever may not pass a fence, or must wait for a delegation, is stopped before
//! anything is changed.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod caller;
mod commits;
pub mod defect;
mod delegated;
pub mod delegations;
pub mod ends;
mod fences;
pub mod handing;
pub mod holdings;
pub mod io;
pub mod ledger;
pub mod left;
pub mod lock_waits;
pub mod locks;
mod losses;
mod names;
pub mod needs;
mod open;
pub mod opened;
pub mod outcome;
pub mod reading;
pub mod settings;
mod sizes;
pub mod under_way;
pub mod undo;
pub mod writing;

use std::collections::VecDeque;

use dafs_filer::locks::RollbackId;
use dafs_filer::{Filer, Touch};
use dafs_journal::RecordNumber;
use dafs_ops::Fault;
use dafs_store::cache::{Cache, CommitStep, CommitTicket, FillJob, FlushJob, Progress, SyncJob};
use dafs_store::{PathLookup, StoreError};
use dafs_types::{FileHandle, Moment};

use crate::caller::Caller;
use crate::delegations::Delegations;
use crate::ends::Ends;
use crate::ledger::Ledger;
use crate::lock_waits::{LockWaiter, LockWaits};
use crate::opened::Opened;
use crate::outcome::NotDone;
use crate::under_way::{TaskId, UnderWay};
use crate::undo::UndoTask;

/// The parts that operations on files work with.
pub struct Files<'r> {
    /// Opens, locks, delegations, fences and clients.
    pub filer: &'r mut Filer,
    /// The cached blocks of files.
    pub cache: &'r mut Cache,
    /// What state ids stand for.
    pub opened: &'r mut Opened,
    /// What is delegated.
    pub delegations: &'r mut Delegations,
    /// Who waits for locks.
    pub lock_waits: &'r mut LockWaits,
    /// The journal, if there is one.
    pub ledger: &'r mut Option<Ledger>,
    /// Ends of files that appends are about to move.
    pub ends: &'r mut Ends,
    /// What is under way.
    pub under_way: &'r UnderWay,
    /// For whoever can tell clients something, and go on with what waits.
    pub notices: &'r mut VecDeque<Notice>,
    /// The number of the server's life: no other has had it.
    pub boot: u64,
    /// What time it is for all of it.
    pub now: Moment,
}

/// What operations have to say to others than those who asked for them.
pub enum Notice {
    /// The turn of a lock request has come.
    LockReady(LockWaiter),
    /// A task need not wait any more for what it overwrites to be saved.
    Resume(TaskId),
    /// This is to be done, by whoever may block.
    Do(Box<FileJob>),
    /// Something has moved.
    Moved(Progress),
    /// What was changed under locks is taken back. Whoever waits for that may be told once a record
    /// is durable.
    RolledBack {
        /// The rollback that is over.
        id: RollbackId,
        /// The record that must be durable first.
        after: RecordNumber,
    },
}

/// What operations have others do. What comes of it comes back to the cache, or to the undo data
/// that it is about.
pub enum FileJob {
    /// Blocks are read into the cache.
    Fill(FillJob),
    /// Written blocks go to their file.
    Flush(FlushJob),
    /// A file goes to stable storage.
    Sync(SyncJob),
    /// Something about undo data.
    Undo(UndoTask),
}

impl Files<'_> {
    /// Has something done that may block.
    pub fn submit(&mut self, job: FileJob) {
        self.notices.push_back(Notice::Do(Box::new(job)));
    }

    /// Brings data to where a commit is to have it, as far as that goes now. `None` if it goes on
    /// when something moves on the file.
    pub fn push_commit(&mut self, ticket: &mut CommitTicket) -> Option<Result<(), StoreError>> {
        match self.cache.commit_step(ticket) {
            CommitStep::Flush(job) => self.submit(FileJob::Flush(job)),
            CommitStep::Sync(job) => self.submit(FileJob::Sync(job)),
            CommitStep::Wait => {}
            CommitStep::Done(result) => return Some(result),
        }
        None
    }

    /// Whether a request may touch an object that it has found.
    ///
    /// # Errors
    /// ACCES if its session is fenced out.
    pub fn pass_file(&mut self, by: &Caller, file: &FileHandle) -> Result<(), Fault> {
        if !self.filer.has_fences() {
            return Ok(());
        }
        self.filer.pass_fence(by.party.fence, file)
    }

    /// The same for whatever has a name now.
    ///
    /// # Errors
    /// As [`Files::pass_file`]; none if there is nothing.
    pub fn pass_name(
        &mut self,
        by: &Caller,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<(), Fault> {
        if !self.filer.has_fences() {
            return Ok(());
        }
        match by.store().lookup(by, directory, name) {
            Ok(object) => self.pass_file(by, &object.handle),
            // Whoever does something with the name will say so.
            Err(_) => Ok(()),
        }
    }

    /// Looks a path up; every directory on the way is passed before it is searched.
    pub fn walk(&mut self, by: &Caller, directory: &FileHandle, names: &[&[u8]]) -> PathLookup {
        let mut reached = PathLookup::starting_at(*directory);
        if names.is_empty() {
            return reached;
        }
        if !self.filer.has_fences() {
            return by.store().lookup_path(by, directory, names);
        }
        for name in names {
            let found = match self.pass_file(by, &reached.handle) {
                Ok(()) => by.store().lookup(by, &reached.handle, name),
                Err(_) => Err(StoreError::Access),
            };
            if !reached.advance(found) {
                break;
            }
        }
        reached
    }

    /// Whether a request may touch a file, as far as delegations go. It must not have had any
    /// effect yet.
    ///
    /// # Errors
    /// It waits, or may not even do that (DELAY).
    #[inline]
    pub fn touch(&mut self, by: &Caller, file: &FileHandle, touch: Touch) -> Result<(), NotDone> {
        if self.filer.has_no_delegations() {
            return Ok(());
        }
        self.delegations.touch(self.filer, by.party.client, file, touch, self.now)
    }

    /// An object has a name, which it may not have had before.
    pub fn named_again(&mut self, handle: &FileHandle) {
        if let Some(key) = self.opened.key(handle) {
            self.filer.file_linked(key);
        }
        self.cache.remember(handle);
    }

    /// An object has lost its last name.
    pub fn forget_object(&mut self, handle: &FileHandle) {
        match self.opened.key(handle) {
            Some(key) => drop(self.filer.file_unlinked(key)),
            None => self.filer.fenced_file_removed(handle),
        }
        self.cache.forget(handle);
    }
}
