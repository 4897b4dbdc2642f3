//! `dafs cp`: trees between here and servers, or between servers.
//!
//! Blocks of a file move side by side through a few registered buffers; a block goes
//! from the socket or the server's cache into its buffer and from there to the file,
//! without another copy.

use std::collections::HashMap;
use std::fs::File as LocalFile;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{
    Buffer, Client, ClientConfig, File, Group, Metadata, ObjectType, OpenOptions, Session,
    SetAttributes, SetTime, Stability, Timestamp,
};
use dafs_types::FileHandle;
use indicatif::{ProgressBar, ProgressStyle};

use crate::place::{Access, Place, connect_by};

/// Arguments of `dafs cp`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to copy: local paths or URLs; the last one is the target.
    #[arg(required = true, num_args = 2..)]
    places: Vec<String>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Read both sides again afterwards and compare every octet.
    #[arg(long)]
    verify: bool,
    /// Bring every file to stable storage on the target server.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    access: Access,
}

/// What a copy did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub files: u64,
    pub bytes: u64,
    pub skipped: u64,
    pub differing: u64,
    pub copying: Duration,
    pub verifying: Duration,
}

/// One end of a copy.
pub enum Side {
    Local(PathBuf),
    Remote(Session, String),
}

/// An object to be copied, its path relative to the top.
#[derive(Clone)]
struct Item {
    path: String,
    kind: ObjectType,
    size: u64,
    mode: u32,
    modified: Timestamp,
    link: String,
    /// Known for objects of a server.
    handle: Option<FileHandle>,
}

enum Open {
    Local(LocalFile),
    Remote(Box<File>),
}

/// The registered buffers that everything passes through.
pub struct Mover {
    client: Client,
    buffers: Vec<Buffer>,
    group: Group,
    /// Directories of the target server, by path.
    directories: HashMap<String, FileHandle>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let client = Client::new(ClientConfig::default())?;
    let mut mover = Mover::new(&client)?;
    let Some((target, sources)) = arguments.places.split_last() else { bail!("no target") };
    for text in sources {
        let source = side(&client, text, arguments)?;
        let mut target = side(&client, target, arguments)?;
        if target.is_directory()
            && !(arguments.recursive && source.is_directory() && text.ends_with('/'))
        {
            let name = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            target = target.below(name);
        }
        if source.is_directory() && !arguments.recursive {
            bail!("{text} is a directory; give -r to copy it with all that is in it");
        }
        let outcome = copy(&mut mover, &source, &target, arguments.verify, arguments.sync)?;
        report(&source, &target, &outcome);
        if outcome.differing > 0 {
            bail!("{} files differ after copying", outcome.differing);
        }
    }
    Ok(())
}

fn side(client: &Client, text: &str, arguments: &Arguments) -> Result<Side> {
    Ok(match Place::parse(text)? {
        Place::Local(path) => Side::Local(path),
        Place::Remote(location) => {
            Side::Remote(connect_by(client, &location, &arguments.access)?, location.path)
        }
    })
}

fn report(source: &Side, target: &Side, outcome: &Outcome) {
    let seconds = outcome.copying.as_secs_f64().max(1e-9);
    let way: Vec<String> = [source, target]
        .iter()
        .filter_map(|side| match side {
            Side::Local(_) => None,
            Side::Remote(session, _) => Some(session.address().to_string()),
        })
        .collect();
    eprintln!(
        "{} files, {} octets in {seconds:.2} s, {:.0} MB/s over {}{}{}",
        outcome.files,
        outcome.bytes,
        outcome.bytes as f64 / seconds / 1e6,
        if way.is_empty() { "local access".into() } else { way.join(" and ") },
        if outcome.skipped > 0 {
            format!(", {} special files skipped", outcome.skipped)
        } else {
            String::new()
        },
        if outcome.verifying.is_zero() {
            String::new()
        } else {
            format!(", verified in {:.2} s", outcome.verifying.as_secs_f64())
        },
    );
}

/// Copies a tree, or one file.
pub fn copy(
    mover: &mut Mover,
    source: &Side,
    target: &Side,
    verify: bool,
    sync: bool,
) -> Result<Outcome> {
    let items = source.items()?;
    let bar = progress(items.iter().map(|item| item.size).sum());
    let mut outcome = Outcome::default();
    let start = Instant::now();
    for item in &items {
        copy_item(mover, source, target, item, sync, &mut outcome)
            .with_context(|| format!("copying {}", source.name(&item.path)))?;
        bar.set_position(outcome.bytes);
    }
    // Times of directories last: making what is in them changes them.
    for item in items.iter().rev().filter(|item| item.kind == ObjectType::Directory) {
        target.set_times(item)?;
    }
    outcome.copying = start.elapsed();
    if verify {
        let start = Instant::now();
        bar.set_position(0);
        for item in items.iter().filter(|item| item.kind == ObjectType::Regular) {
            let same = compare(mover, source, target, item)
                .with_context(|| format!("verifying {}", source.name(&item.path)))?;
            if !same {
                eprintln!("differs: {}", target.name(&item.path));
                outcome.differing += 1;
            }
            bar.inc(item.size);
        }
        outcome.verifying = start.elapsed();
    }
    bar.finish_and_clear();
    Ok(outcome)
}

fn copy_item(
    mover: &mut Mover,
    source: &Side,
    target: &Side,
    item: &Item,
    sync: bool,
    outcome: &mut Outcome,
) -> Result<()> {
    match item.kind {
        ObjectType::Directory => target.make_directory(item),
        ObjectType::SymbolicLink => target.make_link(item),
        ObjectType::Regular => {
            let from = source.open_to_read(item)?;
            let to = target.open_to_write(mover, item)?;
            mover.transfer(&from, &to, item.size)?;
            outcome.files += 1;
            outcome.bytes += item.size;
            if let Open::Remote(file) = to {
                if sync {
                    file.commit()?;
                }
                // Times after the close, which brings the data to the file.
                let (session, handle) = (file.session().clone(), file.handle());
                let path = file.path().to_owned();
                file.close()?;
                return Ok(session.set_attributes_by_handle(handle, &item.attributes(), &path)?);
            }
            target.set_times(item)
        }
        _ => {
            outcome.skipped += 1;
            Ok(())
        }
    }
}

fn compare(mover: &mut Mover, source: &Side, target: &Side, item: &Item) -> Result<bool> {
    let from = source.open_to_read(item)?;
    let to = target.open_to_read(&Item { handle: None, ..item.clone() })?;
    let mut offset = 0;
    while offset < item.size {
        let first = mover.load(&from, 0, offset)?;
        let second = mover.load(&to, 1, offset)?;
        if first == 0 || first != second {
            return Ok(false);
        }
        let bytes = |index: usize| mover.buffers[index].memory().to_vec(0, first);
        if bytes(0) != bytes(1) {
            return Ok(false);
        }
        offset += first as u64;
    }
    // A short block has shown the end of both already.
    let is_known = !offset.is_multiple_of(BLOCK_BYTES as u64);
    Ok(is_known || mover.load(&to, 1, offset)? == 0)
}

impl Mover {
    pub fn new(client: &Client) -> Result<Self> {
        let buffers =
            (0..BUFFERS).map(|_| client.allocate(BLOCK_BYTES)).collect::<Result<_, _>>()?;
        let directories = HashMap::new();
        Ok(Self { client: client.clone(), buffers, group: client.group(), directories })
    }

    /// Moves a file's octets, several blocks side by side.
    fn transfer(&mut self, from: &Open, to: &Open, size: u64) -> Result<()> {
        let mut free: Vec<usize> = (0..BUFFERS).collect();
        let mut blocks = [(0u64, 0usize); BUFFERS];
        let (mut next, mut under_way) = (0, 0);
        loop {
            while next < size
                && let Some(index) = free.pop()
            {
                let length = usize::try_from(size - next).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
                blocks[index] = (next, length);
                next += length as u64;
                match from {
                    Open::Remote(file) => {
                        let slice = self.buffers[index].slice(0, length)?;
                        let offset = blocks[index].0;
                        let context = index as u64;
                        file.session().submit_read(file, offset, slice, self.group, context)?;
                        under_way += 1;
                    }
                    Open::Local(file) => {
                        let memory = self.buffers[index].memory();
                        let count = memory.read_file(0, length, file.as_fd(), blocks[index].0)?;
                        under_way += self.store(to, index, blocks[index].0, count, &mut free)?;
                    }
                }
            }
            if under_way == 0 {
                return Ok(());
            }
            self.client.wait(self.group, 1, None);
            while let Some(done) = self.client.next(self.group) {
                under_way -= 1;
                let transferred = done.result?;
                let index = (done.context & INDEX_MASK) as usize;
                if done.context & WRITTEN != 0 {
                    if let Open::Remote(file) = to {
                        file.note_unstable(transferred.verifier)?;
                    }
                    free.push(index);
                } else {
                    let count = transferred.length as usize;
                    under_way += self.store(to, index, blocks[index].0, count, &mut free)?;
                }
            }
        }
    }

    /// Writes a block out of its buffer. Returns the transfers now under way for it.
    fn store(
        &self,
        to: &Open,
        index: usize,
        offset: u64,
        count: usize,
        free: &mut Vec<usize>,
    ) -> Result<usize> {
        match to {
            Open::Local(file) => {
                self.buffers[index].memory().write_file(0, count, file.as_fd(), offset)?;
                free.push(index);
                Ok(0)
            }
            Open::Remote(file) => {
                let slice = self.buffers[index].slice(0, count)?;
                let context = index as u64 | WRITTEN;
                let stability = Stability::Unstable;
                let session = file.session();
                session.submit_write(file, offset, slice, stability, self.group, context)?;
                Ok(1)
            }
        }
    }

    /// Reads one block into a buffer; returns its octets.
    fn load(&mut self, from: &Open, index: usize, offset: u64) -> Result<usize> {
        Ok(match from {
            Open::Local(file) => {
                let memory = self.buffers[index].memory();
                memory.read_file(0, BLOCK_BYTES, file.as_fd(), offset)?
            }
            Open::Remote(file) => {
                let slice = self.buffers[index].slice(0, BLOCK_BYTES)?;
                file.read_into(offset, slice)?.length as usize
            }
        })
    }
}

impl Side {
    fn below(self, name: &str) -> Self {
        match self {
            Side::Local(path) => Side::Local(path.join(name)),
            Side::Remote(session, path) => {
                Side::Remote(session, format!("{}/{name}", path.trim_end_matches('/')))
            }
        }
    }

    fn name(&self, path: &str) -> String {
        match self {
            Side::Local(top) => join_local(top, path).display().to_string(),
            Side::Remote(_, top) => join(top, path),
        }
    }

    fn is_directory(&self) -> bool {
        match self {
            Side::Local(path) => path.is_dir(),
            Side::Remote(session, path) => {
                session.metadata(path).is_ok_and(|m| m.kind == ObjectType::Directory)
            }
        }
    }

    /// Everything at and below the top, directories before what is in them.
    fn items(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        match self {
            Side::Local(top) => walk_local(top, "", &mut items)
                .with_context(|| format!("listing {}", top.display()))?,
            Side::Remote(session, top) => {
                let metadata = session.metadata(top)?;
                walk_remote(session, top, "", &metadata, &mut items)?;
            }
        }
        Ok(items)
    }

    fn make_directory(&self, item: &Item) -> Result<()> {
        match self {
            Side::Local(top) => match std::fs::create_dir(join_local(top, &item.path)) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
                other => Ok(other?),
            },
            Side::Remote(session, top) => {
                // Writable while it is being filled; its mode comes with its times.
                match session.create_dir(&join(top, &item.path), 0o700 | item.mode) {
                    Err(error) if error.status() == Some(dafs_client::Status::Exist) => Ok(()),
                    other => Ok(other?),
                }
            }
        }
    }

    fn make_link(&self, item: &Item) -> Result<()> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let _ = std::fs::remove_file(&path);
                Ok(std::os::unix::fs::symlink(&item.link, path)?)
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                match session.symlink(&item.link, &path) {
                    Err(error) if error.status() == Some(dafs_client::Status::Exist) => {
                        session.remove(&path)?;
                        Ok(session.symlink(&item.link, &path)?)
                    }
                    other => Ok(other?),
                }
            }
        }
    }

    fn open_to_read(&self, item: &Item) -> Result<Open> {
        Ok(match (self, item.handle) {
            (Side::Local(top), _) => Open::Local(LocalFile::open(join_local(top, &item.path))?),
            // One block needs no open.
            (Side::Remote(session, top), Some(handle)) if item.size <= BLOCK_BYTES as u64 => {
                Open::Remote(Box::new(session.reader(handle, &join(top, &item.path))))
            }
            (Side::Remote(session, top), _) => {
                let path = join(top, &item.path);
                Open::Remote(Box::new(session.open(&path, &OpenOptions::read())?))
            }
        })
    }

    fn open_to_write(&self, mover: &mut Mover, item: &Item) -> Result<Open> {
        Ok(match self {
            Side::Local(top) => Open::Local(
                LocalFile::options()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(item.mode | 0o200)
                    .open(join_local(top, &item.path))?,
            ),
            Side::Remote(session, top) => {
                let options =
                    OpenOptions { truncate: true, mode: item.mode | 0o200, ..OpenOptions::write() };
                let path = join(top, &item.path);
                let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
                let handle = match mover.directories.get(directory) {
                    Some(handle) => *handle,
                    None => {
                        let above = if directory.is_empty() { "/" } else { directory };
                        let handle = session.metadata(above)?.handle;
                        mover.directories.insert(directory.to_owned(), handle);
                        handle
                    }
                };
                Open::Remote(Box::new(session.open_in(handle, name, &path, &options)?))
            }
        })
    }

    /// Mode and modification time as those of the source.
    fn set_times(&self, item: &Item) -> Result<()> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(item.mode))?;
                let since = Duration::new(
                    u64::try_from(item.modified.seconds).unwrap_or(0),
                    item.modified.nanoseconds,
                );
                Ok(LocalFile::open(&path)?.set_modified(SystemTime::UNIX_EPOCH + since)?)
            }
            Side::Remote(session, top) => {
                Ok(session.set_attributes(&join(top, &item.path), &item.attributes())?)
            }
        }
    }
}

impl Item {
    /// What the copy gets besides its octets.
    fn attributes(&self) -> SetAttributes {
        SetAttributes {
            mode: Some(self.mode),
            time_modify: Some(SetTime::Client(self.modified)),
            ..SetAttributes::default()
        }
    }
}

fn walk_local(top: &Path, path: &str, items: &mut Vec<Item>) -> Result<()> {
    let here = join_local(top, path);
    // The top itself may be a link; what is below is taken as it is.
    let metadata = if path.is_empty() { here.metadata()? } else { here.symlink_metadata()? };
    let kind = if metadata.is_dir() {
        ObjectType::Directory
    } else if metadata.is_symlink() {
        ObjectType::SymbolicLink
    } else if metadata.is_file() {
        ObjectType::Regular
    } else {
        ObjectType::Fifo
    };
    let link = if kind == ObjectType::SymbolicLink {
        here.read_link()?.to_string_lossy().into_owned()
    } else {
        String::new()
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
        for entry in std::fs::read_dir(&here)? {
            let name = entry?.file_name();
            let name = name.to_str().with_context(|| {
                format!("{}: the name {name:?} is not UTF-8, which DAFS needs", here.display())
            })?;
            walk_local(top, &join_relative(path, name), items)?;
        }
    }
    Ok(())
}

fn walk_remote(
    session: &Session,
    top: &str,
    path: &str,
    metadata: &Metadata,
    items: &mut Vec<Item>,
) -> Result<()> {
    let whole = join(top, path);
    let link = if metadata.kind == ObjectType::SymbolicLink {
        session.read_link(&whole)?
    } else {
        String::new()
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

fn join(top: &str, path: &str) -> String {
    if path.is_empty() { top.to_owned() } else { format!("{}/{path}", top.trim_end_matches('/')) }
}

fn join_local(top: &Path, path: &str) -> PathBuf {
    if path.is_empty() { top.to_path_buf() } else { top.join(path) }
}

fn progress(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Blocks under way at once, and octets of each.
const BUFFERS: usize = 8;
const BLOCK_BYTES: usize = 512 << 10;
/// A completion's context: the buffer's index, and whether it was written.
const WRITTEN: u64 = 1 << 32;
const INDEX_MASK: u64 = WRITTEN - 1;
