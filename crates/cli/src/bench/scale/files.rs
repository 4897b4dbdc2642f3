//! The files that clients read, and the directories in which they create files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use dafs_bench::scale::{HOT, HOT_BYTES, LANES, MANY_BYTES, SHARED, directory_of, many, mark};

/// Creates the files that clients read. Each block contains a mark that identifies it.
pub(super) fn fill(directory: &Path, files: usize) -> Result<()> {
    std::fs::create_dir(directory)?;
    let write = |name: String, index, length: usize| -> Result<()> {
        let file = File::create_new(directory.join(&name)).with_context(|| name)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        for offset in (0..length).step_by(BLOCK_BYTES) {
            let mut block = [0x5a; BLOCK_BYTES];
            block[..8].copy_from_slice(&mark(index, offset as u64).to_le_bytes());
            file.write_all(&block)?;
        }
        Ok(file.flush()?)
    };
    write(HOT.into(), None, HOT_BYTES)?;
    (0..files).try_for_each(|index| write(many(index), Some(index), MANY_BYTES))
}

/// Prepares the export of one server: hard links to the files, and empty directories.
pub(super) fn prepare(files: &Path, export: &Path, count: usize, clients: usize) -> Result<()> {
    std::fs::create_dir_all(export)?;
    for name in std::iter::once(HOT.to_owned()).chain((0..count).map(many)) {
        std::fs::hard_link(files.join(&name), export.join(&name)).with_context(|| name)?;
    }
    let own =
        (0..clients).flat_map(|client| (0..LANES).map(move |lane| directory_of(client, lane)));
    for name in std::iter::once(SHARED.to_owned()).chain(own) {
        std::fs::create_dir(export.join(&name)).with_context(|| name)?;
    }
    Ok(())
}

const BLOCK_BYTES: usize = 4096;
