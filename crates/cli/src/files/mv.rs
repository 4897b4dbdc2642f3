//! `dafs mv`: another name on the same server.

use anyhow::{Result, bail};
use clap::Args;
use dafs_client::ObjectType;

use super::same_server;
use crate::place::{Access, open};

/// Arguments of `dafs mv`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The object.
    from: String,
    /// Its new name, or a directory to put it in, on the same server.
    to: String,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let target = same_server(&arguments.from, &arguments.to)?;
    let (session, path) = open(&arguments.from, &arguments.access)?;
    let into = session.metadata(&target).is_ok_and(|m| m.kind == ObjectType::Directory);
    if !into {
        return Ok(session.rename(&path, &target)?);
    }
    match path.trim_end_matches('/').rsplit('/').next() {
        Some(name) if !name.is_empty() => {
            let target = format!("{}/{name}", target.trim_end_matches('/'));
            Ok(session.rename(&path, &target)?)
        }
        _ => bail!("the root cannot be moved"),
    }
}
