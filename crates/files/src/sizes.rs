//! Changes of file sizes and times that must wait for data to be written.
//!
//! Invariants:
//! - A size is set only while no job or transfer of the file is in progress that could revert it.
//! - Times are set when the data is in the file, because writing the data changes the times.

use dafs_filer::Party;
use dafs_ops::AttributeSet;
use dafs_store::StoreError;

use crate::Files;
use crate::attributes::{BEHIND_DATA, SIZE, all_set, set_in_part};
use crate::left::{SizeReply, SizeTask, TimesTask};
use crate::outcome::{Now, Outcome};

impl Files<'_> {
    /// Sets times after the data was written to the file or lost. A loss of data is not reported
    /// here, but to requests that concern the data.
    pub fn finish_times(&mut self, by: Option<Party>, task: &TimesTask) -> Outcome {
        let who = &task.who;
        let done = match self.is_barred(by, task.file) {
            true => Err(StoreError::Access),
            false => {
                let altered = who.store().set_attributes(who, &task.handle, &task.times);
                self.note_set(&task.handle, altered, task.times.time_modify)
            }
        };
        if task.borrowed {
            self.cache.close(task.file);
        }
        match done {
            Ok(()) => all_set(task.set),
            Err(error) => set_in_part(error, task.set.without(BEHIND_DATA)),
        }
    }

    /// Finishes a change of size, whether it succeeded or failed, and sets the other attributes.
    /// The client may have disconnected since the request.
    pub fn finish_size(
        &mut self,
        by: Option<Party>,
        task: &SizeTask,
        result: Result<(), StoreError>,
    ) -> Now<Outcome> {
        let outcome = match (&task.reply, result) {
            (SizeReply::Open(opened), result) => self.finish_open(by, opened, result),
            (SizeReply::SetAttributes, Err(error)) => set_in_part(error, AttributeSet::NONE),
            (SizeReply::SetAttributes, Ok(())) => match self.set_rest(task) {
                Ok(None) => all_set(task.set),
                // The remaining work now owns the reference to the file.
                Ok(Some(left)) => return Now::later(left),
                Err(error) => set_in_part(error, SIZE),
            },
        };
        if task.borrowed {
            self.cache.close(task.file);
        }
        Now::Done(outcome)
    }
}
