//! Lists the objects of a tree.
//!
//! Invariant: paths in the list only lead downwards. A name from a server that is not a single path
//! component is an error. Directories precede their contents. Objects that cannot be copied are in
//! the list of failures, never silently left out.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use dafs_client::{
    Client, DirectoryEntry, Metadata, ObjectType, Session, SetAttributes, SetTime, Status,
    Timestamp, shown_path, split_last,
};
use dafs_types::FileHandle;

use super::is_end;
use super::side::{join, join_local};
use super::tasks::for_each;
use crate::place::below;

/// An object to copy. Its path is relative to the top of the tree.
pub(crate) struct Item {
    pub path: OsString,
    /// The index of the parent directory in the list. The top has its own index here.
    pub parent: usize,
    /// The number of directories between the object and the top, plus one; 0 for the top.
    pub depth: usize,
    pub kind: ObjectType,
    pub size: u64,
    pub mode: u32,
    pub modified: Timestamp,
    pub link: Vec<u8>,
    /// The handle of an object on a server; `None` for a local object.
    pub handle: Option<FileHandle>,
}

/// All objects of a tree, and the errors of objects that could not be listed.
#[derive(Default)]
pub(crate) struct Tree {
    pub items: Vec<Item>,
    /// The errors of objects that could not be listed, one for each.
    pub failures: Vec<Error>,
}

impl Item {
    /// Returns the attributes to set on the copy.
    pub(crate) fn attributes(&self) -> SetAttributes {
        SetAttributes {
            mode: Some(self.mode),
            time_modify: Some(SetTime::Client(self.modified)),
            ..SetAttributes::default()
        }
    }

    /// Returns the object's name in its directory.
    pub(crate) fn name(&self) -> &OsStr {
        split_last(&self.path).1
    }
}

impl Tree {
    fn add(&mut self, parent: usize, path: OsString, item: Item) {
        let depth = if path.is_empty() { 0 } else { self.items[parent].depth + 1 };
        self.items.push(Item { path, parent, depth, ..item });
    }
}

pub(super) fn walk_local(top: &Path) -> Result<Tree> {
    let mut tree = Tree::default();
    // The top may be a symbolic link and is followed; links below it are not.
    let metadata = top.metadata().with_context(|| top.display().to_string())?;
    tree.add(0, OsString::new(), local_item(top, &metadata)?);
    let mut next = 0;
    while next < tree.items.len() {
        if tree.items[next].kind == ObjectType::Directory
            && let Err(error) = list_local(top, next, &mut tree)
        {
            if next == 0 {
                return Err(error);
            }
            tree.failures.push(error);
        }
        next += 1;
    }
    Ok(tree)
}

fn list_local(top: &Path, parent: usize, tree: &mut Tree) -> Result<()> {
    let here = join_local(top, &tree.items[parent].path);
    let listing = || format!("listing {}", here.display());
    for entry in here.read_dir().with_context(listing)? {
        let entry = entry.with_context(listing)?;
        let path = entry.path();
        let item = match entry.metadata() {
            Ok(metadata) => local_item(&path, &metadata),
            Err(error) => Err(Error::new(error).context(path.display().to_string())),
        };
        match item {
            Ok(item) => {
                let path = below(&tree.items[parent].path, entry.file_name());
                tree.add(parent, path, item);
            }
            Err(error) => tree.failures.push(error),
        }
    }
    Ok(())
}

fn local_item(path: &Path, metadata: &std::fs::Metadata) -> Result<Item> {
    let kind = kind_of(metadata.file_type())?;
    let link = match kind {
        ObjectType::SymbolicLink => {
            let text = path.read_link().with_context(|| path.display().to_string())?;
            text.into_os_string().into_vec()
        }
        _ => Vec::new(),
    };
    Ok(Item {
        path: OsString::new(),
        parent: 0,
        depth: 0,
        kind,
        size: if kind == ObjectType::Regular { metadata.len() } else { 0 },
        mode: metadata.mode() & COPIED_MODE,
        modified: Timestamp {
            seconds: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        },
        link,
        handle: None,
    })
}

fn kind_of(kind: std::fs::FileType) -> Result<ObjectType> {
    Ok(match kind {
        _ if kind.is_dir() => ObjectType::Directory,
        _ if kind.is_symlink() => ObjectType::SymbolicLink,
        _ if kind.is_file() => ObjectType::Regular,
        _ if kind.is_fifo() => ObjectType::Fifo,
        _ if kind.is_socket() => ObjectType::Socket,
        _ if kind.is_block_device() => ObjectType::BlockDevice,
        _ if kind.is_char_device() => ObjectType::CharacterDevice,
        _ => bail!("it is of a kind that cannot be copied"),
    })
}

/// Lists a tree on a server, many directories concurrently.
pub(super) fn walk_remote(client: &Client, session: &Session, top: &OsStr) -> Result<Tree> {
    let mut first = Tree::default();
    let metadata = session.metadata(top)?;
    first.add(0, OsString::new(), remote_item(&metadata, Vec::new()));
    let mut from = 0;
    let tree = RefCell::new(first);
    loop {
        let level: Vec<usize> = {
            let items = &tree.borrow().items;
            let is_directory = |index: &usize| items[*index].kind == ObjectType::Directory;
            (from..items.len()).filter(is_directory).collect()
        };
        from = tree.borrow().items.len();
        if level.is_empty() {
            return Ok(tree.into_inner());
        }
        let walker = Walker { session, top, tree: &tree };
        for_each(client, level, |parent| walker.list(parent))?;
    }
}

struct Walker<'w> {
    session: &'w Session,
    top: &'w OsStr,
    tree: &'w RefCell<Tree>,
}

impl Walker<'_> {
    async fn list(&self, parent: usize) -> Result<()> {
        let (path, handle) = {
            let item = &self.tree.borrow().items[parent];
            (item.path.clone(), item.handle.unwrap_or(FileHandle::NULL))
        };
        let whole = join(self.top, &path);
        let entries = match self.session.list_async(handle, &whole).await {
            Ok(entries) => entries,
            Err(error) => {
                let listing = format!("listing {}", shown_path(&whole));
                return self.fail(Error::new(error).context(listing));
            }
        };
        for entry in entries {
            let name = entry.name.as_bytes();
            if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
                let whole = shown_path(&whole);
                bail!("{whole}: the server lists {:?}, which is not a valid name", entry.name);
            }
            match self.item(handle, &whole, &entry).await {
                Ok(Some(item)) => {
                    let path = below(&path, &entry.name);
                    self.tree.borrow_mut().add(parent, path, item);
                }
                Ok(None) => {}
                Err(error) => self.fail(error)?,
            }
        }
        Ok(())
    }

    /// Returns a directory entry as an item, or `None` if it no longer exists.
    async fn item(
        &self,
        directory: FileHandle,
        whole: &OsStr,
        entry: &DirectoryEntry,
    ) -> Result<Option<Item>> {
        let path = join(whole, &entry.name);
        let found;
        let metadata = match &entry.metadata {
            Some(metadata) => metadata,
            None => match self.look(directory, &entry.name, &path).await {
                Ok(metadata) => {
                    found = metadata;
                    &found
                }
                Err(error) if error.status() == Some(Status::NoEnt) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        let link = match metadata.kind {
            ObjectType::SymbolicLink => {
                self.session.read_link_async(metadata.handle, &path).await?
            }
            _ => Vec::new(),
        };
        Ok(Some(remote_item(metadata, link)))
    }

    async fn look(
        &self,
        directory: FileHandle,
        name: &OsStr,
        path: &OsStr,
    ) -> dafs_client::Result<Metadata> {
        let handle = self.session.lookup_in_async(directory, name, path).await?;
        self.session.metadata_async(handle, path).await
    }

    fn fail(&self, error: Error) -> Result<()> {
        if is_end(&error) {
            return Err(error);
        }
        self.tree.borrow_mut().failures.push(error);
        Ok(())
    }
}

fn remote_item(metadata: &Metadata, link: Vec<u8>) -> Item {
    Item {
        path: OsString::new(),
        parent: 0,
        depth: 0,
        kind: metadata.kind,
        size: if metadata.kind == ObjectType::Regular { metadata.size } else { 0 },
        mode: metadata.mode & COPIED_MODE,
        modified: metadata.time_modify,
        link,
        handle: Some(metadata.handle),
    }
}

/// The mode bits that are copied. The owner and group are not copied. Therefore the setuid and
/// setgid bits must not be copied either, because the program would run as the user who made the
/// copy.
const COPIED_MODE: u32 = 0o1777;
