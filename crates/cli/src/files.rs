//! Commands on names: ls, stat, cat, mv, rm, mkdir, ln, df, ping.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{
    DirectoryEntry, Location, Metadata, ObjectType, OpenOptions, ReadStream, Session,
};
use serde_json::json;

use crate::place::{Access, connect, open};

/// Arguments of `dafs ls`.
#[derive(Debug, Args)]
pub struct List {
    /// What to list: dafs://host/path or dafs+shm:///socket!/path.
    url: String,
    /// Mode, links, owner, size and time.
    #[arg(short)]
    long: bool,
    /// Directories below, too.
    #[arg(short = 'R')]
    recursive: bool,
    /// As JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub fn list(arguments: &List) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    if session.metadata(&path)?.kind == ObjectType::Directory {
        return list_directory(arguments, &session, &path, "");
    }
    let metadata = Some(session.symlink_metadata(&path)?);
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    print_entry(arguments, &DirectoryEntry { name, metadata }, "")
}

fn list_directory(arguments: &List, session: &Session, path: &str, prefix: &str) -> Result<()> {
    let mut entries = session.read_dir(path)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        print_entry(arguments, entry, prefix)?;
        let is_directory = entry.metadata.as_ref().is_some_and(|m| m.kind == ObjectType::Directory);
        if arguments.recursive && is_directory {
            let below = format!("{}/{}", path.trim_end_matches('/'), entry.name);
            list_directory(arguments, session, &below, &format!("{prefix}{}/", entry.name))?;
        }
    }
    Ok(())
}

fn print_entry(arguments: &List, entry: &DirectoryEntry, prefix: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let name = format!("{prefix}{}", entry.name);
    match &entry.metadata {
        Some(metadata) if arguments.json => {
            let mut value = to_json(metadata);
            value["name"] = json!(name);
            writeln!(out, "{value}")?;
        }
        Some(m) if arguments.long => {
            let mode = format!("{}{}", letter(m.kind), permissions(m.mode));
            writeln!(
                out,
                "{mode} {:>3} {:>6} {:>6} {:>12} {:>11} {name}",
                m.link_count, m.owner, m.owner_group, m.size, m.time_modify.seconds
            )?;
        }
        _ => writeln!(out, "{name}")?,
    }
    Ok(())
}

fn letter(kind: ObjectType) -> char {
    match kind {
        ObjectType::Regular | ObjectType::NamedAttribute => '-',
        ObjectType::Directory | ObjectType::AttributeDirectory => 'd',
        ObjectType::BlockDevice => 'b',
        ObjectType::CharacterDevice => 'c',
        ObjectType::SymbolicLink => 'l',
        ObjectType::Socket => 's',
        ObjectType::Fifo => 'p',
    }
}

fn permissions(mode: u32) -> String {
    (0..9)
        .map(|bit| if mode & (0o400 >> bit) != 0 { b"rwx"[bit % 3] as char } else { '-' })
        .collect()
}

fn to_json(m: &Metadata) -> serde_json::Value {
    json!({
        "type": format!("{:?}", m.kind), "mode": format!("{:o}", m.mode), "size": m.size,
        "links": m.link_count, "owner": m.owner, "group": m.owner_group,
        "file_id": m.file_id, "space_used": m.space_used, "change": m.change,
        "modified": m.time_modify.seconds, "accessed": m.time_access.seconds,
        "metadata_changed": m.time_metadata.seconds,
    })
}

/// Arguments of `dafs stat`.
#[derive(Debug, Args)]
pub struct Stat {
    /// The object.
    url: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub fn stat(arguments: &Stat) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    let value = to_json(&session.symlink_metadata(&path)?);
    if arguments.json {
        println!("{value}");
        return Ok(());
    }
    println!("{path} over {}", session.address());
    for (key, value) in value.as_object().into_iter().flatten() {
        println!("  {key:16} {}", value.to_string().trim_matches('"'));
    }
    Ok(())
}

/// Arguments of `dafs cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// The files.
    #[arg(required = true)]
    urls: Vec<String>,
    #[command(flatten)]
    access: Access,
}

pub fn cat(arguments: &Cat) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for url in &arguments.urls {
        let (session, path) = open(url, &arguments.access)?;
        let file = session.open(&path, &OpenOptions::read())?;
        let mut stream = ReadStream::new(&file, 8, 256 << 10)?;
        std::io::copy(&mut stream, &mut out).with_context(|| url.clone())?;
    }
    Ok(out.flush()?)
}

/// Arguments of `dafs mv`.
#[derive(Debug, Args)]
pub struct Move {
    /// The object.
    from: String,
    /// Its new name, on the same server.
    to: String,
    #[command(flatten)]
    access: Access,
}

pub fn rename(arguments: &Move) -> Result<()> {
    let (session, path) = open(&arguments.from, &arguments.access)?;
    let target = same_server(&arguments.from, &arguments.to)?;
    Ok(session.rename(&path, &target)?)
}

/// The path of the second URL, which must be on the server of the first.
fn same_server(first: &str, second: &str) -> Result<String> {
    let (first, second) = (Location::parse(first)?, Location::parse(second)?);
    if first.server != second.server {
        bail!("{} and {} are different servers; use dafs cp", first.server, second.server);
    }
    Ok(second.path)
}

/// Arguments of `dafs rm`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The objects.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Directories with all that is in them.
    #[arg(short)]
    recursive: bool,
    #[command(flatten)]
    access: Access,
}

pub fn remove(arguments: &Remove) -> Result<()> {
    for url in &arguments.urls {
        let (session, path) = open(url, &arguments.access)?;
        if arguments.recursive {
            remove_tree(&session, &path)?;
        } else {
            session.remove(&path)?;
        }
    }
    Ok(())
}

fn remove_tree(session: &Session, path: &str) -> Result<()> {
    if session.symlink_metadata(path)?.kind == ObjectType::Directory {
        for entry in session.read_dir(path)? {
            remove_tree(session, &format!("{}/{}", path.trim_end_matches('/'), entry.name))?;
        }
    }
    Ok(session.remove(path)?)
}

/// Arguments of `dafs mkdir`.
#[derive(Debug, Args)]
pub struct MakeDirectory {
    /// The directories.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Parents as needed; one that exists is no error.
    #[arg(short)]
    parents: bool,
    #[command(flatten)]
    access: Access,
}

pub fn make_directory(arguments: &MakeDirectory) -> Result<()> {
    for url in &arguments.urls {
        let (session, path) = open(url, &arguments.access)?;
        if !arguments.parents {
            session.create_dir(&path, 0o755)?;
            continue;
        }
        let mut way = String::new();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            way = format!("{way}/{name}");
            match session.create_dir(&way, 0o755) {
                Err(error) if error.status() == Some(dafs_client::Status::Exist) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// Arguments of `dafs ln`.
#[derive(Debug, Args)]
pub struct Link {
    /// The object, or with -s the text of the link.
    target: String,
    /// The new name.
    url: String,
    /// Make a symbolic link.
    #[arg(short)]
    symbolic: bool,
    #[command(flatten)]
    access: Access,
}

pub fn link(arguments: &Link) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    if arguments.symbolic {
        return Ok(session.symlink(&arguments.target, &path)?);
    }
    let target = same_server(&arguments.url, &arguments.target)?;
    Ok(session.hard_link(&target, &path)?)
}

/// Arguments of `dafs df`.
#[derive(Debug, Args)]
pub struct Space {
    /// Any path in the file system.
    url: String,
    #[command(flatten)]
    access: Access,
}

pub fn space(arguments: &Space) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    let limits = session.file_system(&path)?;
    let show = |value: Option<u64>| value.map_or("-".into(), |v| (v >> 20).to_string());
    println!("{:>12} {:>12} {:>12} MiB", "total", "free", "available");
    println!(
        "{:>12} {:>12} {:>12}",
        show(limits.space_total),
        show(limits.space_free),
        show(limits.space_available)
    );
    Ok(())
}

/// Arguments of `dafs ping`.
#[derive(Debug, Args)]
pub struct Ping {
    /// The server.
    url: String,
    /// Round trips.
    #[arg(short, default_value_t = 1000)]
    count: usize,
    #[command(flatten)]
    access: Access,
}

pub fn ping(arguments: &Ping) -> Result<()> {
    let session = connect(&Location::parse(&arguments.url)?, &arguments.access)?;
    let mut times: Vec<Duration> = Vec::with_capacity(arguments.count);
    for _ in 0..arguments.count.max(1) {
        let start = Instant::now();
        session.ping()?;
        times.push(start.elapsed());
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{} round trips over {}", times.len(), session.address());
    println!("min {:?}  median {:?}  p99 {:?}  max {:?}", at(0.0), at(0.5), at(0.99), at(1.0));
    Ok(())
}
