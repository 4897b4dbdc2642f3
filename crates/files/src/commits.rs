//! Commits, which write dirty data to the file or to stable storage.
//!
//! Invariant: when the reply to a client reports lost data, the loss is marked as reported for the
//! client's open in the same step.

use dafs_filer::Party;
use dafs_ops::{Appended, Commit, Committed, Fault};
use dafs_store::StoreError;
use dafs_store::cache::Progress;
use dafs_types::{ShareAccess, Stability, Status};

use crate::Files;
use crate::caller::Caller;
use crate::left::{CommitTask, RemainingWork, Then};
use crate::outcome::{Ended, Now, Outcome};

impl Files<'_> {
    /// Commits the dirty data of a range of a file to stable storage (COMMIT).
    pub fn commit(&mut self, by: &Caller, ask: &Commit) -> Result<Now<Outcome>, Fault> {
        let (file, borrowed) = match self.cache.find(&ask.file) {
            Some(file) => {
                self.check_use(by, &ask.file)?;
                (file, false)
            }
            // The cache has no data of the file, but the kernel may have data that was written
            // earlier.
            None => (self.borrow_file(by, &ask.file, ShareAccess::Write)?.file, true),
        };
        let (stable, listener) = (Stability::FileSync, self.listener(by.party, file));
        let ticket = self.cache.commit_begin(file, ask.offset, ask.length, stable, listener);
        let then = Then::Committed;
        Ok(Now::later(RemainingWork::Commit(CommitTask { ticket, file, borrowed, then })))
    }

    /// Finishes an operation after its data was written to the file, or the write has failed.
    /// Returns the outcome, and the progress that other requests may wait for. The client may have
    /// disconnected since the request.
    pub fn finish_commit(
        &mut self,
        by: Option<Party>,
        task: &CommitTask,
        result: Result<(), StoreError>,
    ) -> (Now<Outcome>, Option<Progress>) {
        let file = task.file;
        if let Then::Closed { after } = task.then {
            return (Now::Done(self.finish_close(file, after, result)), None);
        }
        if let (Err(_), Some(by)) = (result, by) {
            self.note_heard(by, file);
        }
        let has_place = matches!(task.then, Then::Appended { has_place: true, .. });
        let moved = has_place.then(|| self.leave_end(file));
        if task.borrowed {
            self.cache.close(file);
        }
        let now = match result {
            Ok(()) => self.finish_committed(by, task.then),
            Err(error) => Now::Done(Outcome::failed(error)),
        };
        (now, moved)
    }

    fn finish_committed(&mut self, by: Option<Party>, then: Then) -> Now<Outcome> {
        let ended = match then {
            Then::Written { length, stability } => Ended::Written(self.written(length, stability)),
            Then::Appended { offset, stability: committed, .. } => {
                let verifier = self.verifier();
                Ended::Appended(Appended { offset, committed, verifier })
            }
            Then::Ending(ending) => {
                let ended = by.ok_or(Fault::from(Status::BadSession));
                let ended = ended.and_then(|by| self.end_now(by, &ending));
                return ended.unwrap_or_else(|status| Now::Done(Outcome::failed(status)));
            }
            Then::Closed { .. } => Ended::Closed,
            Then::Committed => Ended::Committed(Committed { verifier: self.verifier() }),
        };
        Now::Done(Outcome::done(ended))
    }
}
