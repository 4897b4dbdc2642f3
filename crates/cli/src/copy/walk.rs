//! What is in a tree.
//!
//! Invariant: a path in a list leads downwards only: a name that a server gives and
//! that is no single name is an error.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use dafs_client::{Metadata, ObjectType, Session, SetAttributes, SetTime, Timestamp};
use dafs_types::FileHandle;

use super::side::{join, join_local};

/// An object to be copied, its path relative to the top.
pub struct Item {
    pub path: String,
    pub kind: ObjectType,
    pub size: u64,
    pub mode: u32,
    pub modified: Timestamp,
    pub link: String,
    /// Known for objects of a server.
    pub handle: Option<FileHandle>,
}

impl Item {
    /// What the copy gets besides its octets.
    pub fn attributes(&self) -> SetAttributes {
        SetAttributes {
            mode: Some(self.mode),
            time_modify: Some(SetTime::Client(self.modified)),
            ..SetAttributes::default()
        }
    }
}

pub fn walk_local(top: &Path, path: &str, items: &mut Vec<Item>) -> Result<()> {
    let here = join_local(top, path);
    // The top itself may be a link; what is below is taken as it is.
    let metadata = if path.is_empty() { here.metadata() } else { here.symlink_metadata() };
    let metadata = metadata.with_context(|| here.display().to_string())?;
    let kind = if metadata.is_dir() {
        ObjectType::Directory
    } else if metadata.is_symlink() {
        ObjectType::SymbolicLink
    } else if metadata.is_file() {
        ObjectType::Regular
    } else {
        ObjectType::Fifo
    };
    let link = match kind {
        ObjectType::SymbolicLink => text(here.read_link()?.as_os_str(), &here)?,
        _ => String::new(),
    };
    items.push(Item {
        path: path.to_owned(),
        kind,
        size: if kind == ObjectType::Regular { metadata.len() } else { 0 },
        mode: metadata.mode() & 0o7777,
        modified: Timestamp {
            seconds: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        },
        link,
        handle: None,
    });
    if kind == ObjectType::Directory {
        let entries = std::fs::read_dir(&here);
        for entry in entries.with_context(|| format!("listing {}", here.display()))? {
            let name = text(&entry?.file_name(), &here)?;
            walk_local(top, &join_relative(path, &name), items)?;
        }
    }
    Ok(())
}

fn text(name: &std::ffi::OsStr, place: &Path) -> Result<String> {
    let text = name.to_str().with_context(|| {
        format!("{}: the name {name:?} is not UTF-8, which DAFS needs", place.display())
    })?;
    Ok(text.to_owned())
}

pub fn walk_remote(
    session: &Session,
    top: &str,
    path: &str,
    metadata: &Metadata,
    items: &mut Vec<Item>,
) -> Result<()> {
    let whole = join(top, path);
    let link = match metadata.kind {
        ObjectType::SymbolicLink => session.read_link(&whole)?,
        _ => String::new(),
    };
    items.push(Item {
        path: path.to_owned(),
        kind: metadata.kind,
        size: if metadata.kind == ObjectType::Regular { metadata.size } else { 0 },
        mode: metadata.mode,
        modified: metadata.time_modify,
        link,
        handle: Some(metadata.handle),
    });
    if metadata.kind == ObjectType::Directory {
        for entry in session.read_dir(&whole)? {
            if matches!(entry.name.as_str(), "" | "." | "..") || entry.name.contains(['/', '\0']) {
                bail!("{whole}: the server lists {:?}, which is no name", entry.name);
            }
            if let Some(metadata) = &entry.metadata {
                walk_remote(session, top, &join_relative(path, &entry.name), metadata, items)?;
            }
        }
    }
    Ok(())
}

fn join_relative(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
