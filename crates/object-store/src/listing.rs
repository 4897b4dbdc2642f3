//! Lists objects in the order of their paths.
//!
//! Invariant: a directory is read completely before it is listed, because a server returns its
//! entries in no particular order. While a tree is listed, only the directories on the current path
//! are in memory, and at most [`AHEAD`] more at each depth.

use std::rc::Rc;
use std::sync::Arc;

use dafs_client::{DirectoryEntry, FileHandle, ObjectType, Status};
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, Result};

use crate::driver::Driver;
use crate::error::{Fault, about};
use crate::names::{self, RESERVED};
use crate::objects::object_meta;
use crate::worker::Worker;

/// An entry of a directory.
#[derive(Debug)]
pub(crate) enum Entry {
    Object(ObjectMeta),
    Directory(Path, FileHandle),
}

/// The result of removing temporary files from one directory.
pub(crate) struct Swept {
    pub removed: u64,
    pub directories: Vec<FileHandle>,
}

impl Entry {
    /// Returns the path of the entry, and true if the entry is a directory.
    fn key(&self) -> (&str, bool) {
        match self {
            Self::Object(meta) => (meta.location.as_ref(), false),
            Self::Directory(path, _) => (path.as_ref(), true),
        }
    }

    /// Compares two entries by the full paths of the objects below them. In these paths, a slash
    /// follows the name of a directory.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let bytes = |(path, is_directory): (&str, bool)| {
            let slash = is_directory.then_some(b'/');
            path.bytes().chain(slash).collect::<Vec<u8>>()
        };
        bytes(self.key()).cmp(&bytes(other.key()))
    }

    /// True if the entry is an object whose path comes after `offset`, or a directory that may
    /// contain such an object.
    fn is_behind(&self, offset: &Path) -> bool {
        match self {
            Self::Object(meta) => meta.location > *offset,
            Self::Directory(path, _) => {
                // The paths of all objects in a directory begin with its path and a slash.
                let first = format!("{path}/");
                offset.as_ref() < first.as_str() || offset.as_ref().starts_with(&first)
            }
        }
    }
}

impl Worker {
    /// Returns the entries of the directory that a prefix names; no entries if there is no such
    /// directory.
    pub(crate) async fn list_prefix(
        self: Rc<Self>,
        prefix: Path,
        offset: Option<Path>,
    ) -> std::result::Result<Vec<Entry>, Fault> {
        // Temporary files, which have reserved names, are not listed.
        let Some(names) = names::parts(&prefix) else { return Ok(Vec::new()) };
        let site = self.site().await?;
        let shown = prefix.to_string();
        match self.directory(&site, &names, &shown).await {
            Ok(directory) => self.list_directory(directory, prefix, offset).await,
            Err(error) => match Fault::of_existing(error) {
                Fault::Missing(_) => Ok(Vec::new()),
                fault => Err(fault),
            },
        }
    }

    /// Returns the entries of a directory in the order of their paths.
    pub(crate) async fn list_directory(
        self: Rc<Self>,
        directory: FileHandle,
        path: Path,
        offset: Option<Path>,
    ) -> std::result::Result<Vec<Entry>, Fault> {
        let site = self.site().await?;
        let shown = path.to_string();
        let listed = site.session.list_async(directory, &shown).await;
        let listed = match listed.map_err(|error| Fault::of_existing(about(error, &shown))) {
            // The directory was removed meanwhile, or the path is no directory.
            Err(Fault::Missing(_)) => return Ok(Vec::new()),
            Err(fault) if fault.status() == Some(Status::Stale) => return Ok(Vec::new()),
            listed => listed?,
        };
        let entries = listed.into_iter().filter_map(|entry| entry_of(&path, entry));
        let mut entries: Vec<Entry> = match offset {
            Some(offset) => entries.filter(|entry| entry.is_behind(&offset)).collect(),
            None => entries.collect(),
        };
        entries.sort_by(Entry::compare);
        Ok(entries)
    }

    /// Removes temporary files that dead clients have left in a directory.
    pub(crate) async fn sweep_directory(
        self: Rc<Self>,
        directory: Option<FileHandle>,
        prefix: Path,
    ) -> std::result::Result<Swept, Fault> {
        let site = self.site().await?;
        let shown = prefix.to_string();
        let mut swept = Swept { removed: 0, directories: Vec::new() };
        let directory = match directory {
            Some(directory) => directory,
            None => {
                // A prefix with a reserved name contains neither objects nor uploads.
                let Some(names) = names::parts(&prefix) else { return Ok(swept) };
                let found = self.directory(&site, &names, &shown).await;
                found.map_err(Fault::of_existing)?
            }
        };
        let entries = match site.session.list_async(directory, &shown).await {
            Err(error) if matches!(error.status(), Some(Status::NoEnt | Status::Stale)) => {
                return Ok(swept);
            }
            entries => entries?,
        };
        for DirectoryEntry { name, metadata, .. } in entries {
            let Some(metadata) = metadata else { continue };
            let is_own = name.as_encoded_bytes().starts_with(RESERVED.as_bytes());
            match metadata.kind {
                ObjectType::Directory if !is_own => swept.directories.push(metadata.handle),
                ObjectType::Regular if is_own => {
                    let removed = site.session.remove_in_async(directory, &name, &shown).await;
                    match removed {
                        Ok(()) => swept.removed += 1,
                        // The file is being written, or another client has removed it.
                        Err(error)
                            if matches!(
                                error.status(),
                                Some(Status::DenyDispConflict | Status::NoEnt)
                            ) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                _ => {}
            }
        }
        Ok(swept)
    }
}

/// Converts a directory entry. Returns `None` for an entry that is neither a file nor a directory,
/// or whose name cannot be a part of a path.
fn entry_of(path: &Path, entry: DirectoryEntry) -> Option<Entry> {
    let metadata = entry.metadata?;
    let name = entry.name.to_str().filter(|name| !name.starts_with(RESERVED))?;
    let location = match path.is_root() {
        true => Path::parse(name),
        false => Path::parse(format!("{path}/{name}")),
    };
    let location = location.ok()?;
    match metadata.kind {
        ObjectType::Regular => Some(Entry::Object(object_meta(location, &metadata))),
        ObjectType::Directory => Some(Entry::Directory(location, metadata.handle)),
        _ => None,
    }
}

/// Lists all objects below a prefix whose paths come after an offset.
pub(crate) fn list(
    driver: Arc<Driver>,
    prefix: Path,
    offset: Option<Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let begin = async move {
        let (asked, behind) = (prefix.clone(), offset.clone());
        let listed = driver.call(move |worker| worker.list_prefix(asked, behind)).await;
        let entries = listed.map_err(|fault| fault.at(&prefix))?;
        let mut walk = Walk { driver, offset, levels: Vec::new() };
        walk.enter(entries);
        Ok::<_, object_store::Error>(futures_util::stream::unfold(walk, Walk::next))
    };
    futures_util::stream::once(begin).try_flatten().boxed()
}

/// A walk through a tree. It is not recursive, so a deep tree needs memory but no stack.
struct Walk {
    driver: Arc<Driver>,
    offset: Option<Path>,
    /// The remaining entries of each directory on the current path, from the prefix downwards.
    levels: Vec<Level>,
}

/// The remaining entries of a directory, as a stream. The item for an object contains that object
/// alone; the item for a directory contains the directory's entries.
type Level = BoxStream<'static, Result<Vec<Entry>>>;

impl Walk {
    /// Returns the next object, and the walk that continues after it.
    async fn next(mut self) -> Option<(Result<ObjectMeta>, Self)> {
        while let Some(level) = self.levels.last_mut() {
            let mut entries = match level.next().await {
                Some(Ok(entries)) => entries,
                Some(Err(error)) => return Some((Err(error), self)),
                None => {
                    self.levels.pop();
                    continue;
                }
            };
            match (entries.pop(), entries.is_empty()) {
                (Some(Entry::Object(meta)), true) => return Some((Ok(meta), self)),
                (last, _) => {
                    entries.extend(last);
                    self.enter(entries);
                }
            }
        }
        None
    }

    /// Continues with the entries of a directory.
    fn enter(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let (driver, offset) = (self.driver.clone(), self.offset.clone());
        let look = move |entry| {
            let (driver, offset) = (driver.clone(), offset.clone());
            async move {
                match entry {
                    Entry::Object(meta) => Ok(vec![Entry::Object(meta)]),
                    Entry::Directory(path, handle) => {
                        let shown = path.clone();
                        let listed =
                            driver.call(move |worker| worker.list_directory(handle, path, offset));
                        listed.await.map_err(|fault| fault.at(&shown))
                    }
                }
            }
        };
        self.levels.push(futures_util::stream::iter(entries).map(look).buffered(AHEAD).boxed());
    }
}

/// The number of directories that are listed concurrently.
const AHEAD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &str) -> Entry {
        Entry::Directory(Path::parse(path).unwrap(), FileHandle::NULL)
    }

    fn object(path: &str) -> Entry {
        let location = Path::parse(path).unwrap();
        let last_modified = chrono::DateTime::UNIX_EPOCH;
        Entry::Object(ObjectMeta { location, last_modified, size: 0, e_tag: None, version: None })
    }

    #[test]
    fn entries_are_in_the_order_of_the_paths_below_them() {
        let mut entries = [directory("a"), object("a.x"), object("a0"), object("a-"), object("A")];
        entries.sort_by(Entry::compare);
        let paths: Vec<_> = entries.iter().map(|entry| entry.key().0).collect();
        assert_eq!(paths, ["A", "a-", "a.x", "a", "a0"]);
    }

    #[test]
    fn directories_that_end_before_the_offset_are_left_out() {
        let is_behind = |entry: Entry, offset: &str| entry.is_behind(&Path::from(offset));
        assert!(is_behind(directory("b"), "b/x"));
        assert!(is_behind(directory("b"), "b"));
        assert!(is_behind(directory("b"), "a/z"));
        assert!(!is_behind(directory("b"), "b0"));
        assert!(!is_behind(directory("b"), "c"));
        assert!(!is_behind(object("b"), "b"));
        assert!(is_behind(object("b.x"), "b"));
    }
}
