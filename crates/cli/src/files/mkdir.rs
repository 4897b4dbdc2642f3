//! `dafs mkdir`: directories, with their parents if asked.

use anyhow::Result;
use clap::Args;
use dafs_client::{ObjectType, Session, Status};

use crate::place::{Access, open};

/// Arguments of `dafs mkdir`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The directories.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Parents as needed; one that exists is no error.
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    for url in &arguments.urls {
        let (session, path) = open(url, &arguments.access)?;
        if arguments.parents {
            make_with_parents(&session, &path)?;
        } else {
            session.create_dir(&path, MODE)?;
        }
    }
    Ok(())
}

fn make_with_parents(session: &Session, path: &str) -> Result<()> {
    let mut way = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        way = format!("{way}/{name}");
        match session.create_dir(&way, MODE) {
            Err(error) if error.status() == Some(Status::Exist) => {
                if session.metadata(&way)?.kind != ObjectType::Directory {
                    return Err(error.into());
                }
            }
            other => other?,
        }
    }
    Ok(())
}

const MODE: u32 = 0o755;
