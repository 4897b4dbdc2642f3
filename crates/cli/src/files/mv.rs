//! `dafs mv`: renames objects on one server.
//!
//! Invariant: a failure of one operand is reported and does not keep the others from being moved.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail};
use clap::Args;
use dafs_client::{ClientError, Metadata, ObjectType, Session, Status, shown_path};

use super::{for_each_operand, last_name, same_server};
use crate::place::{Access, Sessions, below};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The objects, followed by the new name or by a directory to move them into, on the same
    /// server.
    #[arg(required = true, num_args = 2..)]
    urls: Vec<OsString>,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Some((into, sources)) = arguments.urls.split_last() else { bail!("no new name") };
    let mut sessions = Sessions::new(&arguments.access)?;
    let (session, target) = sessions.open(into)?;
    let is_directory = session.metadata(&target).is_ok_and(|m| m.kind == ObjectType::Directory);
    if !is_directory && (sources.len() > 1 || target.as_bytes().ends_with(b"/")) {
        // The new name of a directory may end with a slash.
        let is_one = sources.len() == 1;
        if !is_one || !is_directory_there(&mut sessions, &sources[0])? {
            bail!("{} is not a directory; create it with dafs mkdir", shown_path(into));
        }
    }
    for_each_operand(sources, |source| {
        let path = same_server(into, source)?;
        let target = match is_directory {
            true => below(&target, last_name(&path)?),
            false => target.clone(),
        };
        rename(&session, &path, &target)
    })
}

fn is_directory_there(sessions: &mut Sessions<'_>, url: &OsStr) -> Result<bool> {
    let (session, path) = sessions.open(url)?;
    Ok(session.symlink_metadata(&path)?.kind == ObjectType::Directory)
}

fn rename(session: &Session, path: &OsStr, target: &OsStr) -> Result<()> {
    let source = session.symlink_metadata(path)?;
    if path.as_bytes().ends_with(b"/") && source.kind != ObjectType::Directory {
        bail!("{} is no directory", shown_path(path));
    }
    match session.symlink_metadata(target) {
        // For two names of one object, the server would keep both names and report success
        // (rename(2)). For a link, it would replace the link's target by the link itself.
        Ok(there) if is_same(&source, &there) || leads_to(session, path, &source, &there) => {
            bail!("'{}' and '{}' are the same file", shown_path(path), shown_path(target))
        }
        Err(error) if !is_missing(&error) => return Err(error.into()),
        _ => {}
    }
    Ok(session.rename(path, target)?)
}

/// True if `link` is a symbolic link to the object `there`.
fn leads_to(session: &Session, path: &OsStr, link: &Metadata, there: &Metadata) -> bool {
    link.kind == ObjectType::SymbolicLink
        && session.metadata(path).is_ok_and(|led_to| is_same(&led_to, there))
}

/// True if both are the same object, even if reached through two exports.
fn is_same(left: &Metadata, right: &Metadata) -> bool {
    left.handle == right.handle
        || (left.file_id, left.time_metadata) == (right.file_id, right.time_metadata)
}

fn is_missing(error: &ClientError) -> bool {
    error.status() == Some(Status::NoEnt)
}
