//! `dafs mkdir`: makes directories, with their parents if requested.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use clap::Args;
use dafs_client::{ObjectType, Session, Status};

use super::for_each_operand;
use crate::place::{Access, Sessions, below};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directories to create, as URLs.
    #[arg(required = true)]
    urls: Vec<OsString>,
    /// Make parents as needed. An existing directory is no error.
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut sessions = Sessions::new(&arguments.access)?;
    for_each_operand(&arguments.urls, |url| {
        let (session, path) = sessions.open(url)?;
        if arguments.parents {
            make_with_parents(&session, &path)
        } else {
            Ok(session.create_dir(&path, MODE)?)
        }
    })
}

fn make_with_parents(session: &Session, path: &OsStr) -> Result<()> {
    let mut way = OsString::from("/");
    let names = path.as_bytes().split(|byte| *byte == b'/');
    for name in names.filter(|name| !matches!(*name, b"" | b".")) {
        way = below(&way, OsStr::from_bytes(name));
        if name == b".." {
            continue;
        }
        match session.create_dir(&way, MODE) {
            Err(error) if error.status() == Some(Status::Exist) => {
                if session.metadata(&way)?.kind != ObjectType::Directory {
                    return Err(error.into());
                }
            }
            // An existing directory is fine, even where the user could not create one.
            Err(error) => {
                let is_there =
                    session.metadata(&way).is_ok_and(|m| m.kind == ObjectType::Directory);
                if !is_there {
                    return Err(error.into());
                }
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The mode of new directories, before the umask is applied.
const MODE: u32 = 0o777;
