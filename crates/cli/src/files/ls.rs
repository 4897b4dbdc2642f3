//! `dafs ls`: lists directories.

use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use clap::Args;
use dafs_client::{DirectoryEntry, ObjectType, Session, shown_path, split_last};

use super::for_each_operand;
use super::show::{letter, permissions, put_name, time, to_json};
use crate::place::{Access, Sessions, below};
use crate::reported::{AlreadyReported, report};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The files and directories to list, as URLs: dafs://host/path or dafs+shm:///socket!/path.
    #[arg(required = true)]
    urls: Vec<OsString>,
    /// Show mode, number of links, owner, size and time of change (UTC) of each object.
    #[arg(short, long)]
    long: bool,
    /// Include names that begin with a dot.
    #[arg(short, long)]
    all: bool,
    /// List the contents of subdirectories, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print JSON, one object per line.
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

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
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
            // A dangling link is listed itself.
            ObjectType::SymbolicLink => {
                session.metadata(&path).is_ok_and(|m| m.kind == ObjectType::Directory)
            }
            _ => false,
        };
        if !is_directory {
            let name = split_last(&path).1.to_owned();
            listing.entry(&DirectoryEntry::new(name, Some(named)), OsStr::new(""), &path)?;
            return Ok(listing.out.flush()?);
        }
        if arguments.urls.len() > 1 && !arguments.json {
            let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
            write!(listing.out, "{gap}")?;
            listing.put(path.as_bytes(), ":\n")?;
        }
        let listed = listing.directory(&path, OsStr::new(""));
        listing.out.flush()?;
        listed
    })
}

impl Listing<'_> {
    fn directory(&mut self, path: &OsStr, prefix: &OsStr) -> Result<()> {
        let mut entries = self.session.read_dir(path)?;
        let is_hidden = |entry: &DirectoryEntry| entry.name.as_bytes().starts_with(b".");
        entries.retain(|entry| self.arguments.all || !is_hidden(entry));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut has_failed = false;
        for entry in &entries {
            let path = below(path, &entry.name);
            self.entry(entry, prefix, &path)?;
            let kind = entry.metadata.as_ref().map(|m| m.kind);
            if self.arguments.recursive && kind == Some(ObjectType::Directory) {
                let prefix = below(below(prefix, &entry.name), "");
                let listed = self.directory(&path, &prefix);
                has_failed |= report(listed)?;
            }
        }
        if has_failed { Err(AlreadyReported.into()) } else { Ok(()) }
    }

    fn entry(&mut self, entry: &DirectoryEntry, prefix: &OsStr, path: &OsStr) -> Result<()> {
        let mut name = [prefix.as_bytes(), entry.name.as_bytes()].concat();
        match &entry.metadata {
            Some(metadata) if self.arguments.json => {
                let mut value = to_json(metadata);
                put_name(&mut value, "name", &name);
                writeln!(self.out, "{value}")?;
            }
            Some(m) if self.arguments.long => {
                if m.kind == ObjectType::SymbolicLink {
                    name.extend_from_slice(b" -> ");
                    name.extend(self.session.read_link(path)?);
                }
                let mode = format!("{}{}", letter(m.kind), permissions(m.mode));
                let time = time(m.time_modify.seconds);
                write!(
                    self.out,
                    "{mode} {:>3} {:>6} {:>6} {:>12} {time} ",
                    m.link_count, m.owner, m.owner_group, m.size
                )?;
                self.put(&name, "\n")?;
            }
            _ => self.put(&name, "\n")?,
        }
        Ok(())
    }

    /// Writes a name and the text after it. Names are escaped only on a terminal.
    fn put(&mut self, name: &[u8], end: &str) -> Result<()> {
        if self.is_terminal {
            let shown = crate::terminal_text::printable(&shown_path(OsStr::from_bytes(name)));
            self.out.write_all(shown.as_bytes())?;
        } else {
            self.out.write_all(name)?;
        }
        Ok(self.out.write_all(end.as_bytes())?)
    }
}
