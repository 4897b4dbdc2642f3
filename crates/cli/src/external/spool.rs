//! Inputs whose size nobody knows beforehand: they are brought into a temporary file first.
//!
//! Invariant: what is read from a pipe, a device or a file of the kernel's is read to its end; a
//! size that such a file says is not believed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use anyhow::{Context, Result};
use dafs_client::shown_path;
use dafs_extmem::{BlockFile, Channel, Watch};

use crate::copy::read_next;

/// A file that was brought here, under its own name.
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

/// The input of a name, if it must be read to know how much it is: `-` is the standard input.
pub fn unsized_input(path: &OsStr) -> Result<Option<File>> {
    if path == "-" {
        use std::os::fd::AsFd;
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        return Ok(Some(File::from(input.context("the standard input")?)));
    }
    let opening = || format!("opening {}", shown_path(path));
    let found = std::fs::metadata(path).with_context(opening)?;
    // Files of the kernel's say nothing, or a page, and take no space.
    let is_of_kernel = found.is_file() && found.blocks() == 0 && found.len() <= PAGE_BYTES_MAX;
    if found.is_dir() || (found.is_file() && !is_of_kernel) {
        return Ok(None);
    }
    Ok(Some(File::open(path).with_context(opening)?))
}

/// Reads an input to its end into a temporary file.
pub fn spool(
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
        block = channel.wait()?.context("a write has no end")?.block;
    }
}

const BLOCK_BYTES: usize = 256 << 10;
/// The largest page of a processor that Linux runs on.
const PAGE_BYTES_MAX: u64 = 64 << 10;
