//! The virtual directories that lead to the exports.
//!
//! An export whose name is `srv/home` is the entry `home` of the virtual directory `srv`, which is
//! an entry of the virtual root. A virtual directory is visible to a caller if it leads to an
//! export that the caller sees.
//!
//! Invariant: the tree does not change after the start. A handle of a virtual directory depends on
//! its path alone, so it remains valid after a restart.

use std::os::unix::ffi::OsStrExt;

use dafs_types::{CookieVerifier, FileHandle, ObjectType, ReaddirCookie, Timestamp};

use super::list::{Budget, FIRST};
use super::seal::{Facet, Identity, Parts, Sealer};
use super::{ExportRoot, LocalStore, sys};
use crate::attributes::Attributes;
use crate::error::{Result, StoreError};
use crate::store::{ListEntry, ListPage, ListRequest, Object};

/// The virtual directories. The first one is the root.
#[derive(Debug, Default)]
pub(super) struct VirtualTree {
    directories: Vec<VirtualDirectory>,
}

#[derive(Debug)]
struct VirtualDirectory {
    /// The path without a slash at the start; empty for the root.
    path: Vec<u8>,
    handle: FileHandle,
    /// The directory that contains this one. The root contains itself.
    parent: usize,
    /// The entries, in the order of the exports.
    entries: Vec<(Vec<u8>, Entry)>,
}

/// What a name in a virtual directory refers to. A name can refer to an export and to a virtual
/// directory that leads to other exports; a caller that sees the export gets the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Export(usize),
    Directory(usize),
}

impl VirtualTree {
    /// Creates the tree for exports with these names.
    pub(super) fn new(sealer: &Sealer, exports: &[ExportRoot]) -> Self {
        let mut tree = Self::default();
        let root = handle_of(sealer, b"");
        let (path, entries) = (Vec::new(), Vec::new());
        tree.directories.push(VirtualDirectory { path, handle: root, parent: 0, entries });
        for (index, export) in exports.iter().enumerate() {
            let name = export.name.as_bytes();
            let (directories, last) = match name.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => (&name[..slash], &name[slash + 1..]),
                None => (&name[..0], name),
            };
            let mut place = 0;
            for part in directories.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
                place = tree.directory_in(sealer, place, part);
            }
            tree.directories[place].entries.push((last.to_vec(), Entry::Export(index)));
        }
        tree
    }

    /// Returns a directory in another one, which is created if it is missing.
    fn directory_in(&mut self, sealer: &Sealer, parent: usize, name: &[u8]) -> usize {
        let known =
            self.directories[parent].entries.iter().find_map(|(known, entry)| match entry {
                Entry::Directory(index) if known == name => Some(*index),
                Entry::Directory(_) | Entry::Export(_) => None,
            });
        if let Some(index) = known {
            return index;
        }
        let index = self.directories.len();
        let mut path = self.directories[parent].path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let handle = handle_of(sealer, &path);
        self.directories.push(VirtualDirectory { path, handle, parent, entries: Vec::new() });
        self.directories[parent].entries.push((name.to_vec(), Entry::Directory(index)));
        index
    }

    /// Returns the directory with this handle.
    pub(super) fn with_handle(&self, handle: &FileHandle) -> Option<usize> {
        self.directories.iter().position(|directory| directory.handle == *handle)
    }

    /// Returns the directory that contains an export.
    fn parent_of_export(&self, export: usize) -> usize {
        let has = |directory: &VirtualDirectory| {
            directory.entries.iter().any(|(_, entry)| *entry == Entry::Export(export))
        };
        self.directories.iter().position(has).unwrap_or(0)
    }
}

/// Returns the handle of the virtual directory with this path.
fn handle_of(sealer: &Sealer, path: &[u8]) -> FileHandle {
    let number = if path.is_empty() { 0 } else { sealer.virtual_number(path) };
    let (identity, facet) = (Identity::Virtual(number), Facet::Object);
    sealer.seal(&Parts { export: 0, file_system: 0, identity, facet })
}

impl LocalStore {
    /// Returns a virtual directory.
    pub(super) fn virtual_directory(&self, index: usize) -> Object {
        let directory = &self.virtual_tree.directories[index];
        let time = Timestamp::default();
        let attributes = Attributes {
            kind: ObjectType::Directory,
            mode: 0o555,
            uid: 0,
            gid: 0,
            link_count: 2 + directory.entries.len() as u32,
            change: self.started,
            size: 0,
            file_id: 1 + index as u64,
            space_used: 0,
            time_access: time,
            time_create: None,
            time_metadata: time,
            time_modify: time,
            device: Default::default(),
        };
        Object { handle: directory.handle, attributes }
    }

    /// Returns the object with this name in a virtual directory.
    pub(super) fn lookup_virtual(&self, index: usize, name: &[u8]) -> Result<Object> {
        let entries = &self.virtual_tree.directories[index].entries;
        let mut of_name = entries.iter().filter(|(known, _)| known == name);
        let shown = of_name.find(|(name, entry)| self.shows_in(entries, name, *entry));
        let (_, entry) = shown.ok_or(StoreError::NotFound)?;
        self.object_of_entry(*entry)
    }

    /// Returns the directory that contains a virtual directory.
    pub(super) fn parent_of_virtual(&self, index: usize) -> Result<Object> {
        match index {
            0 => Err(StoreError::NotFound),
            index => Ok(self.virtual_directory(self.virtual_tree.directories[index].parent)),
        }
    }

    /// Returns the virtual directory that contains an export.
    pub(super) fn parent_of_export(&self, export: usize) -> Object {
        self.virtual_directory(self.virtual_tree.parent_of_export(export))
    }

    /// Lists a virtual directory.
    pub(super) fn list_virtual(
        &self,
        index: usize,
        request: &ListRequest,
        verifier: CookieVerifier,
    ) -> Result<ListPage> {
        let mut page = ListPage { entries: Vec::new(), verifier, is_end: false };
        let mut budget = Budget::new(request);
        let start = request.cookie.0.saturating_sub(FIRST) as usize;
        let entries = &self.virtual_tree.directories[index].entries;
        for (place, (name, entry)) in entries.iter().enumerate().skip(start) {
            if !self.shows_in(entries, name, *entry) {
                continue;
            }
            if !budget.take(name.len()) {
                return budget.end(page);
            }
            let object = self.object_of_entry(*entry)?;
            page.entries.push(ListEntry {
                cookie: ReaddirCookie(place as u64 + 1 + FIRST),
                name: name.clone(),
                file_id: object.attributes.file_id,
                object: request.want_objects.then_some(object),
            });
        }
        page.is_end = true;
        Ok(page)
    }

    /// Returns true if the caller sees an entry of a directory. It does not see a virtual directory
    /// if it sees an export with the same name.
    fn shows_in(&self, entries: &[(Vec<u8>, Entry)], name: &[u8], entry: Entry) -> bool {
        let is_export = |entry: Entry| matches!(entry, Entry::Export(_));
        let hides = |(other, of): &(Vec<u8>, Entry)| {
            other == name && is_export(*of) && self.shows_entry(*of)
        };
        self.shows_entry(entry) && (is_export(entry) || !entries.iter().any(hides))
    }

    fn object_of_entry(&self, entry: Entry) -> Result<Object> {
        match entry {
            Entry::Directory(index) => Ok(self.virtual_directory(index)),
            Entry::Export(index) => {
                let root = &self.exports[index].root;
                Ok(Object { handle: root.handle, attributes: sys::status(root.fd())?.attributes })
            }
        }
    }

    /// Returns true if the caller sees an export, or a directory that leads to one.
    fn shows_entry(&self, entry: Entry) -> bool {
        match entry {
            Entry::Export(index) => self.is_visible(&self.exports[index].root.handle),
            Entry::Directory(index) => {
                let mut entries = self.virtual_tree.directories[index].entries.iter();
                entries.any(|(_, entry)| self.shows_entry(*entry))
            }
        }
    }
}
