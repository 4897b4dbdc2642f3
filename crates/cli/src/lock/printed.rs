//! Collects the output of a command under a lock and writes it into the locked file.
//!
//! Invariant: unless the server keeps undo data, the file does not change before the command has
//! succeeded. Until then, the output is kept in memory up to a limit, and in an unnamed local file
//! beyond it.

use std::fs::File as LocalFile;
use std::io::{Read, Seek, Write};

use anyhow::{Context, Result};
use dafs_client::File;
use tempfile::SpooledTempFile;

use crate::copy::read_next;

/// The complete output of a command.
pub(super) struct Printed(SpooledTempFile);

impl Printed {
    /// Reads the output until the command closes it. Calls `idle` regularly while it waits.
    pub(super) fn take(from: &LocalFile, idle: impl Fn() -> Result<()>) -> Result<Self> {
        let mut spool = tempfile::spooled_tempfile(MEMORY_BYTES_MAX);
        let keeping = || format!("storing the output of the command in {}", place());
        for_each_block(from, idle, |bytes| spool.write_all(bytes).with_context(keeping))?;
        Ok(Self(spool))
    }

    /// Replaces the content of a file by the output, flushes it, and truncates the file to the new
    /// length.
    pub(super) fn replace(mut self, file: &File) -> Result<()> {
        let again = || format!("reading the stored output of the command from {}", place());
        self.0.rewind().with_context(again)?;
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut at = 0;
        loop {
            let got = self.0.read(&mut bytes).with_context(again)?;
            if got == 0 {
                return end_at(file, at);
            }
            file.write_at(&bytes[..got], at)?;
            at += got as u64;
        }
    }
}

/// Writes the output of a command into a file while the command runs, then flushes and truncates
/// the file. Used under a lock that undoes the changes if the command fails.
pub(super) fn write_through(
    from: &LocalFile,
    file: &File,
    idle: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    for_each_block(from, idle, |bytes| {
        file.write_at(bytes, at)?;
        at += bytes.len() as u64;
        Ok(())
    })?;
    end_at(file, at)
}

fn for_each_block(
    from: &LocalFile,
    idle: impl Fn() -> Result<()>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = vec![0; BLOCK_BYTES];
    loop {
        let got =
            read_next(from, &mut bytes, &idle).context("reading the output of the command")?;
        if got == 0 {
            return Ok(());
        }
        take(&bytes[..got])?;
    }
}

fn end_at(file: &File, size: u64) -> Result<()> {
    file.set_len(size)?;
    Ok(file.commit()?)
}

fn place() -> String {
    std::env::temp_dir().display().to_string()
}

const BLOCK_BYTES: usize = 1 << 20;
/// The largest output that is kept in memory, in bytes. A larger output is kept in a file.
const MEMORY_BYTES_MAX: usize = 8 << 20;
