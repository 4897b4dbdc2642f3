//! `dafs ln`: another name for an object, or a symbolic link.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use clap::Args;

use super::same_server;
use crate::place::{Access, open};

/// Arguments of `dafs ln`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The object, or with -s the text of the link.
    target: OsString,
    /// The new name.
    url: OsString,
    /// Make a symbolic link.
    #[arg(short, long)]
    symbolic: bool,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    if arguments.symbolic {
        return Ok(session.symlink(arguments.target.as_bytes(), &path)?);
    }
    let target = same_server(&arguments.url, &arguments.target)?;
    Ok(session.hard_link(&target, &path)?)
}
