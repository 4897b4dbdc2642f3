//! Operations on files, which look up and change names, opens and data. An operation has access to
//! some components of the server's state, but to no connection and no message, and it cannot send
//! replies. For a read or write it returns the location of the bytes in the cache, and the work
//! that must be done first; the caller transfers the bytes.
//!
//! Invariant: an operation whose caller is fenced out, or must wait for a delegation, stops before
//! it changes any state.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod caller;
mod commits;
pub mod defect;
mod delegated;
pub mod delegations;
pub mod ends;
mod fences;
pub mod hand_over;
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
pub mod ranges;
pub mod reading;
pub mod settings;
mod sizes;
pub mod under_way;
pub mod undo;
pub mod writing;
mod xattrs;

use std::collections::VecDeque;

use dafs_filer::locks::RollbackId;
use dafs_filer::{FileOperation, Filer};
use dafs_journal::RecordNumber;
use dafs_ops::Fault;
use dafs_store::cache::{Cache, CommitStep, CommitTicket, FillJob, FlushJob, Progress, SyncJob};
use dafs_store::{PathLookup, StoreError};
use dafs_types::{ClientId, FileHandle, Moment};

use crate::caller::Caller;
use crate::delegations::Delegations;
use crate::ends::FileEnds;
use crate::ledger::Ledger;
use crate::lock_waits::{LockWaiter, LockWaits};
use crate::opened::Opened;
use crate::outcome::NotDone;
use crate::under_way::{TaskId, UnderWay};
use crate::undo::UndoTask;

/// The components of the server's state that operations on files work with.
pub struct Files<'r> {
    /// The filer, which knows the clients and their opens, locks and delegations, and the fencing
    /// lists.
    pub filer: &'r mut Filer,
    /// The cached blocks of files.
    pub cache: &'r mut Cache,
    /// The table of open files.
    pub opened: &'r mut Opened,
    /// The files that are delegated.
    pub delegations: &'r mut Delegations,
    /// The lock requests that wait.
    pub lock_waits: &'r mut LockWaits,
    /// The journal. `None` if the server keeps no journal.
    pub ledger: &'r mut Option<Ledger>,
    /// The files whose ends are reserved by appends.
    pub ends: &'r mut FileEnds,
    /// The ranges of files that waiting requests may still access.
    pub under_way: &'r UnderWay,
    /// The queue of notices to the server, which handles them after the operation.
    pub notices: &'r mut VecDeque<Notice>,
    /// The boot number, which no other start of the server has.
    pub boot: u64,
    /// The current time, which stays constant during an operation.
    pub now: Moment,
}

/// A message from an operation to the server, in addition to the operation's result.
pub enum Notice {
    /// The lock that this request waits for can be granted now.
    LockReady(LockWaiter),
    /// A lock that [`Files::watch_lock`] watches can be taken now.
    LockFree {
        /// The client of the owner that watches.
        client: ClientId,
        /// The name of the lock owner.
        owner: Box<[u8]>,
        /// The file to lock.
        handle: FileHandle,
        /// The number that was given with the watch.
        word: u64,
    },
    /// The undo data that this task waits for is available, so the task must be retried.
    Resume(TaskId),
    /// The server must execute this job, which may block.
    Do(Box<FileJob>),
    /// A file or the cache has made progress, so requests that wait for it must be retried.
    Moved(Progress),
    /// A rollback has finished. The requests that wait for it get their replies when a record is
    /// durable.
    RolledBack {
        /// The id of the rollback.
        id: RollbackId,
        /// The number of the record that must be durable before the replies are sent.
        after: RecordNumber,
    },
}

/// A job that may block. Its result is passed to the cache or to the undo data.
pub enum FileJob {
    /// Reads blocks into the cache.
    Fill(FillJob),
    /// Writes dirty blocks to their file.
    Flush(FlushJob),
    /// Syncs a file to stable storage.
    Sync(SyncJob),
    /// Executes a job about undo data.
    Undo(UndoTask),
}

impl Files<'_> {
    /// Asks the server to execute a job that may block.
    pub fn submit(&mut self, job: FileJob) {
        self.notices.push_back(Notice::Do(Box::new(job)));
    }

    /// Advances a commit as far as possible. Returns its result, or `None` if the commit must wait
    /// for progress of the file.
    pub fn push_commit(&mut self, ticket: &mut CommitTicket) -> Option<Result<(), StoreError>> {
        match self.cache.commit_step(ticket) {
            CommitStep::Flush(job) => self.submit(FileJob::Flush(job)),
            CommitStep::Sync(job) => self.submit(FileJob::Sync(job)),
            CommitStep::Wait => {}
            CommitStep::Done(result) => return Some(result),
        }
        None
    }

    /// Checks the fencing lists for an object that a request has found.
    ///
    /// # Errors
    /// ACCES if the caller's session is fenced out.
    pub fn check_fence(&mut self, by: &Caller, file: &FileHandle) -> Result<(), Fault> {
        if !self.filer.has_fences() {
            return Ok(());
        }
        self.filer.check_fence(by.party.fence, file)
    }

    /// Checks the fencing lists for the object that has this name now. Succeeds if no object has
    /// the name.
    ///
    /// # Errors
    /// See [`Files::check_fence`].
    pub fn check_fence_of_name(
        &mut self,
        by: &Caller,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<(), Fault> {
        if !self.filer.has_fences() {
            return Ok(());
        }
        match by.store().lookup(by, directory, name) {
            Ok(object) => self.check_fence(by, &object.handle),
            // The operation itself returns the error of the lookup.
            Err(_) => Ok(()),
        }
    }

    /// Looks up a path. Checks the fencing lists for each directory before searching the directory.
    pub fn walk(&mut self, by: &Caller, directory: &FileHandle, names: &[&[u8]]) -> PathLookup {
        let mut reached = PathLookup::starting_at(*directory);
        if names.is_empty() {
            return reached;
        }
        if !self.filer.has_fences() {
            return by.store().lookup_path(by, directory, names);
        }
        for name in names {
            let found = match self.check_fence(by, &reached.handle) {
                Ok(()) => by.store().lookup(by, &reached.handle, name),
                Err(_) => Err(StoreError::Access),
            };
            if !reached.advance(found) {
                break;
            }
        }
        reached
    }

    /// Checks whether a request may access a file that may be delegated. The request must not have
    /// had any effect yet.
    ///
    /// # Errors
    /// [`NotDone`] if the request must wait for the return of a delegation, or DELAY if no more
    /// requests may wait.
    #[inline]
    pub fn check_delegations(
        &mut self,
        by: &Caller,
        file: &FileHandle,
        touch: FileOperation,
    ) -> Result<(), NotDone> {
        if self.filer.has_no_delegations() {
            return Ok(());
        }
        self.delegations.touch(self.filer, by.party.client, file, touch, self.now)
    }

    /// Records that an object was given a name, which may be its first name.
    pub fn note_name(&mut self, handle: &FileHandle) {
        if let Some(key) = self.opened.key(handle) {
            self.filer.file_linked(key);
        }
        self.cache.remember(handle);
    }

    /// Records that an object has lost its last name.
    pub fn note_unnamed(&mut self, handle: &FileHandle) {
        match self.opened.key(handle) {
            Some(key) => drop(self.filer.file_unlinked(key)),
            None => self.filer.fenced_file_removed(handle),
        }
        self.cache.forget(handle);
    }
}
