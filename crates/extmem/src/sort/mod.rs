//! Sorts streams larger than memory: makes sorted runs as large as memory and merges them.
//!
//! Invariant: records that compare as equal keep the order of arrival.

mod arena;
mod run;

use std::rc::Rc;

use crate::engine::BlockFile;
use crate::error::Result;
use crate::merge::{Format, MergeOptions, Merged, merge};
use crate::stream::Stream;

use run::Former;

/// The results of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// The number of records written.
    pub records: u64,
    /// The number of bytes written.
    pub bytes: u64,
    /// The number of sorted runs.
    pub runs: usize,
    /// The results of merging the runs; zeros if there was only one.
    pub merged: Merged,
}

/// Sorts the concatenation of streams into a file. Runs go to files created by `temporary`, unless
/// all records fit in memory together.
///
/// # Errors
/// The errors of the engines; [`crate::Error::Memory`] if a record does not fit the limit.
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
