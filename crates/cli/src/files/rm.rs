//! `dafs rm`: files, links and directories go.

use anyhow::{Result, bail};
use clap::Args;
use dafs_client::{ObjectType, Session, Status};

use crate::place::{Access, open};

/// Arguments of `dafs rm`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The objects.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    for url in &arguments.urls {
        let (session, path) = open(url, &arguments.access)?;
        if path.split('/').all(|name| matches!(name, "" | "." | "..")) {
            bail!("{url} is the root of the server, which stays; name what is in it");
        }
        match remove(&session, &path, arguments.recursive) {
            Err(error) if arguments.force && is_missing(&error) => {}
            other => other?,
        }
    }
    Ok(())
}

fn remove(session: &Session, path: &str, recursive: bool) -> Result<()> {
    if session.symlink_metadata(path)?.kind != ObjectType::Directory {
        return Ok(session.remove(path)?);
    }
    match session.remove(path) {
        Err(error) if error.status() == Some(Status::NotEmpty) => {
            if !recursive {
                bail!(
                    "{path} is a directory that is not empty; give -r to remove all that is in it"
                );
            }
            remove_contents(session, path)?;
            Ok(session.remove(path)?)
        }
        other => Ok(other?),
    }
}

fn remove_contents(session: &Session, path: &str) -> Result<()> {
    for entry in session.read_dir(path)? {
        let below = format!("{}/{}", path.trim_end_matches('/'), entry.name);
        if entry.metadata.is_some_and(|m| m.kind == ObjectType::Directory) {
            remove_contents(session, &below)?;
        }
        session.remove(&below)?;
    }
    Ok(())
}

fn is_missing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<dafs_client::ClientError>();
    error.is_some_and(|error| error.status() == Some(Status::NoEnt))
}
