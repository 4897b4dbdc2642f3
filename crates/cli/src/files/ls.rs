//! `dafs ls`: what is in a directory.

use std::io::{BufWriter, IsTerminal, Write};

use anyhow::Result;
use clap::Args;
use dafs_client::{DirectoryEntry, ObjectType, Session};
use serde_json::json;

use super::for_each_operand;
use super::show::{letter, link_text, permissions, printable, time, to_json};
use crate::place::{Access, Sessions};
use crate::told::{Told, told};

/// Arguments of `dafs ls`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to list: dafs://host/path or dafs+shm:///socket!/path.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Mode, links, owner, size and time (UTC).
    #[arg(short, long)]
    long: bool,
    /// Names that begin with a dot, too.
    #[arg(short, long)]
    all: bool,
    /// Directories below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// As JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

struct Listing<'l> {
    arguments: &'l Arguments,
    session: &'l Session,
    out: &'l mut BufWriter<std::io::StdoutLock<'static>>,
    is_terminal: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut sessions = Sessions::new(&arguments.access)?;
    let mut is_first = true;
    for_each_operand(&arguments.urls, |url| {
        let (session, path) = sessions.open(url)?;
        let mut listing = Listing { arguments, session: &session, out: &mut out, is_terminal };
        let named = session.symlink_metadata(&path)?;
        let is_directory = match named.kind {
            ObjectType::Directory => true,
            // One that leads nowhere is shown itself.
            ObjectType::SymbolicLink => {
                session.metadata(&path).is_ok_and(|m| m.kind == ObjectType::Directory)
            }
            _ => false,
        };
        if !is_directory {
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            listing.entry(&DirectoryEntry { name, metadata: Some(named) }, "", &path)?;
            return Ok(listing.out.flush()?);
        }
        if arguments.urls.len() > 1 && !arguments.json {
            let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
            let name = listing.shown(path.clone());
            writeln!(listing.out, "{gap}{name}:")?;
        }
        let listed = listing.directory(&path, "");
        listing.out.flush()?;
        listed
    })
}

impl Listing<'_> {
    fn directory(&mut self, path: &str, prefix: &str) -> Result<()> {
        let mut entries = self.session.read_dir(path)?;
        entries.retain(|entry| self.arguments.all || !entry.name.starts_with('.'));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut has_failed = false;
        for entry in &entries {
            let below = format!("{}/{}", path.trim_end_matches('/'), entry.name);
            self.entry(entry, prefix, &below)?;
            let kind = entry.metadata.as_ref().map(|m| m.kind);
            if self.arguments.recursive && kind == Some(ObjectType::Directory) {
                let listed = self.directory(&below, &format!("{prefix}{}/", entry.name));
                has_failed |= told(listed)?;
            }
        }
        if has_failed { Err(Told.into()) } else { Ok(()) }
    }

    fn entry(&mut self, entry: &DirectoryEntry, prefix: &str, path: &str) -> Result<()> {
        let mut name = format!("{prefix}{}", entry.name);
        match &entry.metadata {
            Some(metadata) if self.arguments.json => {
                let mut value = to_json(metadata);
                value["name"] = json!(name);
                writeln!(self.out, "{value}")?;
            }
            Some(m) if self.arguments.long => {
                if m.kind == ObjectType::SymbolicLink {
                    name = format!("{name} -> {}", link_text(&self.session.read_link(path)?));
                }
                let mode = format!("{}{}", letter(m.kind), permissions(m.mode));
                let time = time(m.time_modify.seconds);
                let name = self.shown(name);
                writeln!(
                    self.out,
                    "{mode} {:>3} {:>6} {:>6} {:>12} {time} {name}",
                    m.link_count, m.owner, m.owner_group, m.size
                )?;
            }
            _ => {
                let name = self.shown(name);
                writeln!(self.out, "{name}")?;
            }
        }
        Ok(())
    }

    /// Whatever else reads the list gets the names as they are.
    fn shown(&self, name: String) -> String {
        if self.is_terminal { printable(&name) } else { name }
    }
}
