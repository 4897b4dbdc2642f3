//! `dafs merge`: merges sorted files into one.

use anyhow::Result;
use dafs_extmem::merge;

use super::{Arguments, Job};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let job = Job::prepare(arguments)?;
    job.bar.set_length(job.input_bytes());
    let merged = job.run(|temporary, output| {
        merge(&job.streams, &job.format, temporary, output, &job.options)
    })?;
    let how = match merged.passes {
        1 => format!("{} merged", counted(job.streams.len() as u64, "file")),
        passes => {
            format!("{} merged in {passes} passes", counted(job.streams.len() as u64, "file"))
        }
    };
    job.report(merged.records, merged.bytes, &how);
    Ok(())
}

pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
