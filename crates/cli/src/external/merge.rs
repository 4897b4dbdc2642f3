//! `dafs merge`: one sorted file of several.

use anyhow::Result;
use clap::Args;
use dafs_extmem::merge;

use super::Job;

/// Arguments of `dafs merge`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: super::Arguments,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let job = Job::prepare(&arguments.common)?;
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
    job.report(merged.records, merged.octets, &how);
    Ok(())
}

pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
