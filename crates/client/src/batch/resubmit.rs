//! Resubmits batches of a session that has reconnected.
//!
//! Invariant: a submitted batch is sent again only after its session has reconnected and opened a
//! new back-control channel, because then no request of the old connection is still running. Only
//! requests whose completions were not reported are sent again. Some may have been executed before;
//! repeating them is harmless, because the same bytes are written to the same ranges.
//!
//! Synchronous batches are ordinary requests that wait for their replies, so the general recovery
//! covers them (`recovery`).

use std::ops::Range;

use crate::batch::plan::split_batch;
use crate::batch::table::{BatchKey, Part};
use crate::core::Core;
use crate::error::ClientError;
use crate::ids::SessionKey;
use crate::recovery::interrupted::InterruptedRequest;
use crate::work::{QueuedCall, Work};

impl Core {
    /// Removes submitted batches from the requests that recovery is about to send again: they must
    /// wait until the back-control channel, which reports their completions, is open.
    pub(crate) fn set_submitted_aside(
        &mut self,
        key: SessionKey,
        interrupted: &mut Vec<InterruptedRequest>,
    ) {
        let submitted = self.batches.submitted(key);
        for &batch in &submitted {
            if let Some(state) = self.batches.get_mut(batch) {
                state.refused.clear();
            }
        }
        let is_submitted = |call: &QueuedCall| {
            call.part.as_ref().is_some_and(|part| submitted.contains(&part.batch))
        };
        let is_other = |work: &Work| match work {
            Work::Call(call) => !is_submitted(call),
            Work::Transfer(_) | Work::Member(_) | Work::Chain(_) => true,
        };
        interrupted.retain(|interrupted| interrupted.work.as_ref().is_none_or(is_other));
        let session = &mut self.sessions[key];
        session.in_flight.retain_calls(|call| !is_submitted(call));
        if let Some(machine) = &mut session.recovery {
            drop(machine.extract_delayed(|work| !is_other(work)));
        }
    }

    /// Sends the unreported requests of submitted batches again.
    pub(crate) fn submit_again(&mut self, key: SessionKey) {
        for batch in self.batches.submitted(key) {
            self.end_cancelled(batch);
            let Some(state) = self.batches.get(batch) else { continue };
            let mut parts = Vec::new();
            for run in runs_of(state.results.iter().map(Option::is_none)) {
                match split_batch(&self.sessions[key].terms, &state.requests[run.clone()]) {
                    Ok(ranges) => {
                        let moved =
                            |part: Range<usize>| part.start + run.start..part.end + run.start;
                        parts.extend(ranges.into_iter().map(moved).map(Ok));
                    }
                    Err(error) => parts.push(Err((run, error))),
                }
            }
            for part in parts {
                match part {
                    Ok(requests) => self.send_part(key, Part { batch, requests }),
                    Err((requests, error)) => {
                        self.batches.fail_part(&Part { batch, requests }, &error);
                    }
                }
            }
        }
    }

    /// Ends cancelled requests instead of sending them again, because no server accesses their
    /// memory any more.
    fn end_cancelled(&mut self, batch: BatchKey) {
        let Some(state) = self.batches.get(batch) else { return };
        let places = state.cancelled.iter().enumerate().filter(|(_, is_cancelled)| **is_cancelled);
        for place in places.map(|(place, _)| place).collect::<Vec<_>>() {
            self.batches.end(batch, place, Err(ClientError::Cancelled));
        }
    }
}

/// Returns the maximal runs of consecutive positions at which `is_in` yields true.
pub(super) fn runs_of(is_in: impl Iterator<Item = bool>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (place, _) in is_in.enumerate().filter(|(_, is_in)| *is_in) {
        match runs.last_mut() {
            Some(run) if run.end == place => run.end += 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_lies_together() {
        let runs = |bits: &[u8]| runs_of(bits.iter().map(|bit| *bit == 1));
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[0, 0]), []);
        assert_eq!(runs(&[1, 1, 0, 1, 0, 0, 1]), [0..2, 3..4, 6..7]);
    }
}
