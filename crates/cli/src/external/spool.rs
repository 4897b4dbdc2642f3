//! Copies inputs of unknown size into a temporary file first.
//!
//! Invariant: a pipe, a device or a kernel file (/proc, /sys) is read to its end, whatever size it
//! reports.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use anyhow::{Context, Result};
use dafs_client::shown_path;
use dafs_extmem::{BlockFile, Channel, Watch};

use crate::copy::read_next;

/// A temporary copy with the name of its input.
struct Spooled {
    name: String,
    file: Rc<dyn BlockFile>,
}

impl BlockFile for Spooled {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> dafs_extmem::Result<u64> {
        self.file.size()
    }

    fn channel(self: Rc<Self>) -> Box<dyn Channel> {
        self.file.clone().channel()
    }
}

/// Opens an input that must be read to learn its size. `-` is the standard input.
pub(super) fn unsized_input(path: &OsStr) -> Result<Option<File>> {
    if path == "-" {
        use std::os::fd::AsFd;
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        return Ok(Some(File::from(input.context("the standard input")?)));
    }
    let opening = || format!("opening {}", shown_path(path));
    let found = std::fs::metadata(path).with_context(opening)?;
    // Kernel files report a size of zero or one page, and use no blocks.
    let is_of_kernel = found.is_file() && found.blocks() == 0 && found.len() <= PAGE_BYTES_MAX;
    if found.is_dir() || (found.is_file() && !is_of_kernel) {
        return Ok(None);
    }
    Ok(Some(File::open(path).with_context(opening)?))
}

/// Reads an input to its end into a temporary file.
pub(super) fn spool(
    name: &str,
    input: &File,
    file: Rc<dyn BlockFile>,
    watch: &Watch,
) -> Result<Rc<dyn BlockFile>> {
    let mut channel = file.clone().channel();
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut block = channel.allocate(BLOCK_BYTES)?;
    let mut offset = 0;
    loop {
        let count = read_next(input, &mut bytes, || Ok(watch.check()?))
            .with_context(|| format!("reading {name}"))?;
        watch.check()?;
        if count == 0 {
            return Ok(Rc::new(Spooled { name: name.to_owned(), file }));
        }
        block.memory().write(0, &bytes[..count]);
        channel.submit_write(block, offset, count)?;
        offset += count as u64;
        block = channel.wait()?.context("a write did not complete")?.block;
    }
}

const BLOCK_BYTES: usize = 256 << 10;
/// The largest page size in bytes of any processor that Linux runs on.
const PAGE_BYTES_MAX: u64 = 64 << 10;
