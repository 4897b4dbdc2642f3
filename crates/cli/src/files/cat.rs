//! `dafs cat`: writes files to standard output, with read-ahead.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{OpenOptions, ReadStream, shown_path};

use super::for_each_operand;
use crate::copy::is_output;
use crate::place::{Access, Sessions};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The files to print, as URLs.
    #[arg(required = true)]
    urls: Vec<OsString>,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut sessions = Sessions::new(&arguments.access)?;
    let mut out = std::io::stdout().lock();
    for_each_operand(&arguments.urls, |url| {
        let (session, path) = sessions.open(url)?;
        let file = session.open(&path, &OpenOptions::read())?;
        if is_output(sessions.client(), &file)? {
            bail!("{}: the file is also the output, so the copy would never end", shown_path(url));
        }
        let mut stream = ReadStream::new(&file, BLOCKS, BLOCK_BYTES)?;
        std::io::copy(&mut stream, &mut out).with_context(|| shown_path(url).into_owned())?;
        Ok(out.flush()?)
    })
}

/// The number of blocks in flight.
const BLOCKS: usize = 8;
/// The size of a block in bytes.
const BLOCK_BYTES: usize = 256 << 10;
