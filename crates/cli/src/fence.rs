//! `dafs fence`: controls which clients may access a file or a file system.
//!
//! Invariant: after a change, the list is read from the server again, so that the printed list is
//! the list in force.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use dafs_client::{
    ClientError, FenceAccess, FenceObject, FenceUpdate, Session, Status, shown_path,
};
use serde_json::json;

use crate::place::{Access, open};
use crate::terminal_text::message;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the identities that may enter, one per line. Prints none if there is no fence.
    List(Target),
    /// Allow access only to these identities. Creates a fence or replaces its list.
    Set(Change),
    /// Add these identities to the list. Without a fence all clients have access already, and
    /// nothing changes.
    Allow(Change),
    /// Remove these identities from the list. Returns when no earlier request of these identities
    /// can change the object any more. A fence must exist, and at least one identity must remain.
    Deny(Change),
    /// Remove the fence, so that it blocks no client any more.
    Clear(Target),
}

#[derive(Debug, Args)]
struct Target {
    /// The file, or any object of the file system. The root of the file system is best: it can be
    /// reached from outside a fence, too.
    url: OsString,
    /// Fence the whole file system that contains the object, not only the object.
    #[arg(long)]
    file_system: bool,
    /// Print the fencing list as JSON.
    #[arg(long)]
    json: bool,
    /// Seconds to wait while another client changes the same list.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    patience: u64,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    target: Target,
    /// Fence identities, as clients set them with --fence-id or DAFS_FENCE_ID.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    use FenceAccess::{Allow, Deny};
    use FenceUpdate::{Append, Overwrite, Remove};
    match &arguments.action {
        Action::List(target) => {
            let fence = Fence::at(target)?;
            fence.print(&fence.list()?);
            Ok(())
        }
        Action::Set(Change { target, ids }) => Fence::at(target)?.change(Allow, Overwrite, ids),
        Action::Allow(Change { target, ids }) => {
            let fence = Fence::at(target)?;
            let list = fence.list()?;
            if list.is_empty() || ids.iter().all(|id| list.contains(id)) {
                fence.print(&list);
                return Ok(());
            }
            fence.change(Allow, Append, ids)
        }
        Action::Deny(Change { target, ids }) => Fence::at(target)?.change(Deny, Remove, ids),
        Action::Clear(target) => Fence::at(target)?.change(Allow, Overwrite, &[]),
    }
}

/// The fenced object, and the session used to query it.
struct Fence<'t> {
    target: &'t Target,
    session: Session,
    path: OsString,
    object: FenceObject,
}

impl<'t> Fence<'t> {
    fn at(target: &'t Target) -> Result<Self> {
        let (session, path) = open(&target.url, &target.access)?;
        let object = if target.file_system { FenceObject::FileSystem } else { FenceObject::File };
        Ok(Self { target, session, path, object })
    }

    fn list(&self) -> Result<Vec<String>> {
        let list = self.session.fencing_list(&self.path, self.object);
        list.map_err(|error| self.explain(error, "reading the fence's list"))
    }

    fn change(&self, access: FenceAccess, update: FenceUpdate, ids: &[String]) -> Result<()> {
        if ids.iter().any(String::is_empty) {
            bail!("an identity is empty: clients without an identity cannot be listed");
        }
        let texts: Vec<&str> = ids.iter().map(String::as_str).collect();
        let begun = Instant::now();
        loop {
            let changed = self.session.set_fence(&self.path, self.object, access, update, &texts);
            match changed {
                Ok(()) => break,
                Err(error) if error.status() == Some(Status::Delay) => {
                    if begun.elapsed() >= Duration::from_secs(self.target.patience) {
                        bail!(
                            "the list of {} is still being changed by another client after {} \
                             seconds; ask again",
                            self.what(),
                            self.target.patience
                        );
                    }
                    std::thread::sleep(RETRY_PAUSE);
                }
                Err(error) if error.status() == Some(Status::Inval) => {
                    return Err(self.explain_denial(error));
                }
                Err(error) => return Err(self.explain(error, "changing the fence's list")),
            }
        }
        let list = self.list().context("the change was made, but reading it back failed")?;
        let is_in = |id: &&String| list.contains(id);
        if access == FenceAccess::Deny
            && let Some(id) = ids.iter().find(is_in)
        {
            bail!(
                "{id} was removed from the list of {}, but another client has added it again",
                self.what()
            );
        }
        self.print(&list);
        Ok(())
    }

    fn print(&self, list: &[String]) {
        if self.target.json {
            let object = match self.object {
                FenceObject::File => "file",
                FenceObject::FileSystem => "file-system",
            };
            let fenced = !list.is_empty();
            let (path, ids) = (&self.path, list);
            println!(
                "{}",
                json!({
                    "path": shown_path(path),
                    "object": object,
                    "fenced": fenced,
                    "fence_ids": ids,
                })
            );
            return;
        }
        for id in list {
            println!("{}", message(id));
        }
        if list.is_empty() {
            // Print to standard error, because scripts read identities from standard output.
            eprintln!("no fence around {}: all clients may enter", message(&self.what()));
        }
    }

    fn what(&self) -> String {
        let path = if self.path.is_empty() { "/".into() } else { shown_path(&self.path) };
        match self.object {
            FenceObject::File => path.into_owned(),
            FenceObject::FileSystem => format!("the file system of {path}"),
        }
    }

    fn explain_denial(&self, error: ClientError) -> anyhow::Error {
        let advice = match self.session.fencing_list(&self.path, self.object) {
            Ok(list) if list.is_empty() => {
                "there is no fence, so all clients may enter; create one with `dafs fence set` \
                and the identities of all clients that may enter"
            }
            Ok(_) => {
                "the list would be empty, and an empty list lets all clients in; use `dafs fence \
                set` with an identity that no client has"
            }
            Err(_) => "the server rejects it",
        };
        anyhow::Error::from(error).context(format!("{}: {advice}", self.what()))
    }

    fn explain(&self, error: ClientError, doing: &str) -> anyhow::Error {
        let advice = match (error.status(), self.object) {
            (Some(Status::NotAuthorized), FenceObject::File) => {
                "; only the owner of the file and trusted clients may"
            }
            (Some(Status::NotAuthorized), FenceObject::FileSystem) => {
                "; only trusted clients may: the superuser over shared memory, or with a password"
            }
            (Some(Status::Access), _) => {
                "; from outside of the fence only the root of its file system can be reached: \
                name that, or give --fence-id with an identity that may enter"
            }
            _ => "",
        };
        anyhow::Error::from(error).context(format!("{doing} {}{advice}", self.what()))
    }
}

/// The pause between two attempts while another client changes the list.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
