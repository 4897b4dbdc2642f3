//! `dafs ln`: makes a hard link or a symbolic link.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use clap::Args;
use dafs_client::ObjectType;

use super::{last_name, same_server};
use crate::place::{Access, below, open};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The existing object to link to, as a URL; with -s, the text of the symbolic link.
    target: OsString,
    /// The new name, or a directory to put it in.
    url: OsString,
    /// Make a symbolic link instead of a hard link.
    #[arg(short, long)]
    symbolic: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (session, mut path) = open(&arguments.url, &arguments.access)?;
    let is_directory = session.metadata(&path).is_ok_and(|m| m.kind == ObjectType::Directory);
    if arguments.symbolic {
        if is_directory {
            path = below(&path, last_name(&arguments.target)?);
        }
        return Ok(session.symlink(arguments.target.as_bytes(), &path)?);
    }
    let target = same_server(&arguments.url, &arguments.target)?;
    if is_directory {
        path = below(&path, last_name(&target)?);
    }
    Ok(session.hard_link(&target, &path)?)
}
