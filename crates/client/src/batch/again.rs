//! Submitted batches of a session whose connection was lost.
//!
//! Invariant: a submitted batch is asked for anew only over a back-control channel of the session
//! that has come back, when nothing of the old one runs any more; and only those of its requests
//! whose ends were not told. That they may have been carried out does no harm: the same octets
//! go to the same places.
//!
//! Synchronous batches need none of this: they are requests that wait for their answers
//! (`recovery`).

use std::ops::Range;

use super::plan::Part;
use crate::core::{Core, QueuedCall};
use crate::error::ClientError;
use crate::recovery::{Stranded, Work};

impl Core {
    /// What was submitted is not asked for before its ends can be told.
    pub fn set_submitted_aside(&mut self, index: usize, stranded: &mut Vec<Stranded>) {
        let submitted = self.batches.submitted(index);
        for &(batch, serial) in &submitted {
            if let Some(state) = self.batches.get_mut(batch, serial) {
                state.refused.clear();
            }
        }
        let is_submitted = |call: &QueuedCall| {
            let part = call.part.as_ref().map(|part| (part.batch, part.serial));
            part.is_some_and(|part| submitted.contains(&part))
        };
        let is_other = |work: &Work| match work {
            Work::Call(call) => !is_submitted(call),
            Work::Transfer(_) | Work::Member(_) | Work::Chain(_) => true,
        };
        stranded.retain(|stranded| stranded.work.as_ref().is_none_or(is_other));
        let session = &mut self.sessions[index];
        session.calls.retain(|call| !is_submitted(call));
        if let Some(keeper) = &mut session.keeper {
            keeper.delayed.retain(|delayed| is_other(&delayed.work));
        }
    }

    /// Asks for what is left of submitted batches.
    pub fn submit_again(&mut self, index: usize) {
        for (batch, serial) in self.batches.submitted(index) {
            self.end_cancelled(batch, serial);
            let Some(state) = self.batches.get(batch, serial) else { continue };
            let mut parts = Vec::new();
            for run in runs_of(state.results.iter().map(Option::is_none)) {
                match self.split_batch(index, &state.requests[run.clone()]) {
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
                    Ok(requests) => self.send_part(index, Part { batch, serial, requests }),
                    Err((requests, error)) => {
                        self.fail_part(&Part { batch, serial, requests }, &error);
                    }
                }
            }
        }
    }

    /// What nobody wants any more need not be asked for: its memory is free.
    fn end_cancelled(&mut self, batch: u32, serial: u32) {
        let Some(state) = self.batches.get(batch, serial) else { return };
        let places = state.cancelled.iter().enumerate().filter(|(_, is_cancelled)| **is_cancelled);
        for place in places.map(|(place, _)| place).collect::<Vec<_>>() {
            self.batches.end(batch, serial, place, Err(ClientError::Cancelled));
        }
    }
}

/// The longest ranges of places for which `is_in` has true.
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
