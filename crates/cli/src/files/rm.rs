//! `dafs rm`: files, links and directories go.
//!
//! Invariant: a tree is gone through by the handles of its directories, so that no symbolic link
//! is followed, whatever takes a directory's place meanwhile. What stays is told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{
    Client, ClientError, DirectoryEntry, FileHandle, ObjectType, Session, Status, block_on,
    shown_path,
};

use super::{for_each_operand, last_name};
use crate::place::{Access, Sessions, below};
use crate::shown::message;
use crate::told::Told;

/// Arguments of `dafs rm`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The objects.
    #[arg(required_unless_present = "force")]
    urls: Vec<OsString>,
    /// Directories with all that is in them.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Empty directories, too.
    #[arg(short, long)]
    dir: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut sessions = Sessions::new(&arguments.access)?;
    let client = sessions.client().clone();
    for_each_operand(&arguments.urls, |url| {
        let (session, path) = sessions.open(url)?;
        let removal = Removal { client: &client, session: &session, is_forced: arguments.force };
        match removal.operand(&path, url, arguments) {
            // As rm(1): what cannot be there is not there.
            Err(error)
                if arguments.force && is_status(&error, &[Status::NoEnt, Status::NotDir]) =>
            {
                Ok(())
            }
            other => other,
        }
    })
}

/// What goes, and how.
struct Removal<'r> {
    client: &'r Client,
    session: &'r Session,
    is_forced: bool,
}

/// A directory on the way down: what is left in it, and its own name in the one above.
struct Level {
    handle: FileHandle,
    path: OsString,
    name: OsString,
    left: std::vec::IntoIter<DirectoryEntry>,
}

impl Removal<'_> {
    fn operand(&self, path: &OsStr, url: &OsStr, arguments: &Arguments) -> Result<()> {
        let url = shown_path(url);
        let mut names = path.as_bytes().split(|octet| *octet == b'/');
        if names.all(|name| matches!(name, b"" | b"." | b"..")) {
            bail!("{url} is the root of the server, which stays; name what is in it");
        }
        let Ok(name) = last_name(path) else {
            bail!("refusing to remove '.' or '..' directory: skipping {url}");
        };
        let (parent, handle) = block_on(self.client, async {
            let parent = self.session.resolve_parent_async(path).await?.directory;
            Ok::<_, ClientError>((parent, self.session.lookup_in_async(parent, name, path).await?))
        })?;
        let found = block_on(self.client, self.session.metadata_async(handle, path))?;
        if found.kind != ObjectType::Directory {
            if path.as_bytes().ends_with(b"/") {
                bail!("cannot remove {}: it is no directory", shown_path(path));
            }
            return Ok(self.remove(parent, name, path)?);
        }
        match (arguments.recursive, arguments.dir) {
            (true, _) => self.tree(parent, name, handle, path),
            (false, true) => Ok(self.remove(parent, name, path)?),
            (false, false) => bail!(
                "cannot remove {}: it is a directory; give -r to remove it with all that is in \
                 it, or -d if it is empty",
                shown_path(path)
            ),
        }
    }

    fn remove(&self, directory: FileHandle, name: &OsStr, path: &OsStr) -> Result<(), ClientError> {
        block_on(self.client, self.session.remove_in_async(directory, name, path))
    }

    /// Removes a directory and all that is in it, as far as it goes.
    fn tree(
        &self,
        parent: FileHandle,
        name: &OsStr,
        handle: FileHandle,
        path: &OsStr,
    ) -> Result<()> {
        let mut has_failed = false;
        let mut way = Vec::new();
        let top = self.enter(handle, name, path.to_owned());
        self.take(top, &mut way, &mut has_failed);
        while let Some(level) = way.last_mut() {
            let Some(entry) = level.left.next() else {
                let done = way.pop().context("a level is there")?;
                let above = way.last().map_or(parent, |above| above.handle);
                self.note(self.remove(above, &done.name, &done.path), &mut has_failed);
                continue;
            };
            let below = below(&level.path, &entry.name);
            let is_directory =
                entry.metadata.as_ref().is_some_and(|m| m.kind == ObjectType::Directory);
            if !is_directory {
                let removed = self.remove(level.handle, &entry.name, &below);
                self.note(removed, &mut has_failed);
                continue;
            }
            let directory = level.handle;
            let found = self.session.lookup_in_async(directory, &entry.name, &below);
            match block_on(self.client, found) {
                Ok(handle) => {
                    let level = self.enter(handle, &entry.name, below);
                    self.take(level, &mut way, &mut has_failed);
                }
                Err(error) => self.note(Err(error), &mut has_failed),
            }
        }
        if has_failed { Err(Told.into()) } else { Ok(()) }
    }

    /// Goes down into a directory. One that cannot be listed may be empty, and is tried as it is.
    fn enter(
        &self,
        handle: FileHandle,
        name: &OsStr,
        path: OsString,
    ) -> (Level, Option<ClientError>) {
        let listed = block_on(self.client, self.session.list_async(handle, &path));
        let (left, error) = match listed {
            Ok(entries) => (entries, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        (Level { handle, path, name: name.to_owned(), left: left.into_iter() }, error)
    }

    fn take(
        &self,
        (level, error): (Level, Option<ClientError>),
        way: &mut Vec<Level>,
        has_failed: &mut bool,
    ) {
        if let Some(error) = error {
            self.note(Err(error), has_failed);
        }
        way.push(level);
    }

    /// Tells what has failed. What somebody else has removed meanwhile is gone as it should be.
    fn note(&self, done: Result<(), ClientError>, has_failed: &mut bool) {
        match done {
            Ok(()) => {}
            Err(error) if self.is_forced && error.status() == Some(Status::NoEnt) => {}
            Err(error) => {
                eprintln!("dafs: cannot remove {}", message(&error.to_string()));
                *has_failed = true;
            }
        }
    }
}

fn is_status(error: &anyhow::Error, statuses: &[Status]) -> bool {
    let error = error.downcast_ref::<ClientError>();
    error.and_then(ClientError::status).is_some_and(|status| statuses.contains(&status))
}
