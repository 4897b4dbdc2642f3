//! Sorting what is larger than memory: sorted runs as large as memory, which are merged.
//!
//! Invariant: records with equal places in the order leave in the order they came in.

mod arena;
mod run;

use std::rc::Rc;

use crate::engine::BlockFile;
use crate::error::Result;
use crate::merge::{Format, MergeOptions, Merged, merge};
use crate::stream::Stream;

use run::Former;

/// What a sort has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Records that were written.
    pub records: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Sorted runs that there were.
    pub runs: usize,
    /// What merging them took; nothing if there was one run.
    pub merged: Merged,
}

/// Sorts streams, one behind the other, into a file. Runs go to files from `temporary`, unless
/// everything fits in memory at once.
///
/// # Errors
/// What engines say; [`crate::Error::Memory`] if a record does not fit the limit.
pub fn sort(
    streams: &[Stream],
    format: &Format,
    temporary: &dyn Fn() -> Result<Rc<dyn BlockFile>>,
    output: Rc<dyn BlockFile>,
    options: &MergeOptions,
) -> Result<Sorted> {
    let former = Former::new(format, options)?;
    let formed = former.form(streams, temporary, &output)?;
    if formed.is_whole {
        let (records, bytes) = (formed.records, formed.bytes);
        return Ok(Sorted { records, bytes, runs: 1, ..Sorted::default() });
    }
    let merged = merge(&formed.runs, format, temporary, output, options)?;
    let (records, bytes) = (merged.records, merged.bytes);
    Ok(Sorted { records, bytes, runs: formed.runs.len(), merged })
}
