//! `dafs rm`: removes files, links and directories.
//!
//! Invariant: everything that could not be removed is reported. The client library removes trees;
//! it follows no symbolic link, even if one replaces a directory meanwhile.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail};
use clap::Args;
use dafs_client::{
    Client, ClientError, FileHandle, ObjectType, Session, Status, block_on, shown_path,
};

use super::{for_each_operand, last_name};
use crate::place::{Access, Sessions};
use crate::reported::AlreadyReported;
use crate::terminal_text::message;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The files, links or directories to remove, as URLs.
    #[arg(required_unless_present = "force")]
    urls: Vec<OsString>,
    /// Remove directories together with everything in them.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Also remove directories, if they are empty.
    #[arg(short, long)]
    dir: bool,
    /// Ignore objects that do not exist.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut sessions = Sessions::new(&arguments.access)?;
    let client = sessions.client().clone();
    for_each_operand(&arguments.urls, |url| {
        let (session, path) = sessions.open(url)?;
        let removal = Removal { client: &client, session: &session };
        match removal.operand(&path, url, arguments) {
            // As with rm(1), a path below a file counts as missing.
            Err(error)
                if arguments.force && is_status(&error, &[Status::NoEnt, Status::NotDir]) =>
            {
                Ok(())
            }
            other => other,
        }
    })
}

/// A removal that is in progress, with its options.
struct Removal<'r> {
    client: &'r Client,
    session: &'r Session,
}

impl Removal<'_> {
    fn operand(&self, path: &OsStr, url: &OsStr, arguments: &Arguments) -> Result<()> {
        let url = shown_path(url);
        let mut names = path.as_bytes().split(|byte| *byte == b'/');
        if names.all(|name| matches!(name, b"" | b"." | b"..")) {
            bail!(
                "{url} is the root of the server, which cannot be removed; name its entries instead"
            );
        }
        let Ok(name) = last_name(path) else {
            bail!("refusing to remove '.' or '..' directory: skipping {url}");
        };
        let parent = block_on(self.client, self.session.resolve_parent_async(path))?.directory;
        let ends_as_directory = path.as_bytes().ends_with(b"/");
        if arguments.recursive && !ends_as_directory {
            return self.tree(parent, name, path);
        }
        let handle = block_on(self.client, self.session.lookup_in_async(parent, name, path))?;
        let found = block_on(self.client, self.session.metadata_async(handle, path))?;
        match (found.kind == ObjectType::Directory, arguments.recursive, arguments.dir) {
            (false, ..) if ends_as_directory => {
                bail!("cannot remove {}: it is not a directory", shown_path(path))
            }
            (true, true, _) => self.tree(parent, name, path),
            (false, ..) | (true, false, true) => {
                Ok(block_on(self.client, self.session.remove_in_async(parent, name, path))?)
            }
            (true, false, false) => bail!(
                "cannot remove {}: it is a directory; give -r to remove it recursively, or -d if \
                it is empty",
                shown_path(path)
            ),
        }
    }

    /// Removes an object and everything in it, as far as possible.
    fn tree(&self, parent: FileHandle, name: &OsStr, path: &OsStr) -> Result<()> {
        let mut has_failed = false;
        let mut tell = |error: ClientError| {
            eprintln!("dafs: cannot remove {}", message(&error.to_string()));
            has_failed = true;
        };
        let removal = self.session.remove_tree_in_async(parent, name, path, None, &mut tell);
        block_on(self.client, removal)?;
        if has_failed { Err(AlreadyReported.into()) } else { Ok(()) }
    }
}

fn is_status(error: &anyhow::Error, statuses: &[Status]) -> bool {
    let error = error.downcast_ref::<ClientError>();
    error.and_then(ClientError::status).is_some_and(|status| statuses.contains(&status))
}
