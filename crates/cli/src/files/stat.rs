//! `dafs stat`: shows all attributes of an object.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use anyhow::Result;
use clap::Args;
use dafs_client::{ObjectType, Session, shown_path};

use super::for_each_operand;
use super::show::{put_name, to_json};
use crate::place::{Access, Sessions};
use crate::terminal_text::printable;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The objects to show, as URLs. For a symbolic link, the link itself is shown.
    #[arg(required = true)]
    urls: Vec<OsString>,
    /// Print the attributes as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut sessions = Sessions::new(&arguments.access)?;
    for_each_operand(&arguments.urls, |url| {
        let (session, path) = sessions.open(url)?;
        show(&session, &path, arguments)
    })
}

fn show(session: &Session, path: &OsStr, arguments: &Arguments) -> Result<()> {
    let metadata = session.symlink_metadata(path)?;
    let mut value = to_json(&metadata);
    if metadata.kind == ObjectType::SymbolicLink {
        put_name(&mut value, "target", &session.read_link(path)?);
    }
    if arguments.json {
        writeln!(std::io::stdout(), "{value}")?;
        return Ok(());
    }
    writeln!(std::io::stdout(), "{} over {}", printable(&shown_path(path)), session.address())?;
    for (key, value) in value.as_object().into_iter().flatten() {
        let value = value.to_string();
        writeln!(std::io::stdout(), "  {key:16} {}", printable(value.trim_matches('"')))?;
    }
    Ok(())
}
