//! `dafs sort`: sorts files, larger than memory or not.

use anyhow::Result;
use dafs_extmem::sort;

use super::merge::counted;
use super::{Arguments, Job};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let job = Job::prepare(arguments)?;
    let input = job.input_bytes();
    // Data that does not fit in memory is read a second time for the merge.
    let is_large = input > job.options.budget.bytes() as u64;
    job.bar.set_length(if is_large { 2 * input } else { input });
    let sorted = job.run(|temporary, output| {
        sort(&job.streams, &job.format, temporary, output, &job.options)
    })?;
    let how = match sorted.runs {
        1 => "sorted in memory".to_owned(),
        runs => {
            let passes = counted(sorted.merged.passes.into(), "pass").replace("passs", "passes");
            format!("{runs} sorted runs merged in {passes}")
        }
    };
    job.report(sorted.records, sorted.bytes, &how);
    Ok(())
}
