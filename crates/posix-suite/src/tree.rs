//! A model of a directory tree: names and objects in memory.
//!
//! Invariant: each method has the same effect or error as the POSIX call of the same name on a tree
//! that no other process changes.

use std::collections::BTreeMap;

use crate::raw::Errno;

/// Identifies an object of the model.
pub type NodeId = usize;

/// The type of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file with its contents.
    File(Vec<u8>),
    /// A directory with its entries.
    Directory(BTreeMap<String, NodeId>),
    /// A symbolic link with its text.
    Link(String),
}

/// An object of the model.
#[derive(Clone, Debug)]
pub struct Node {
    /// The type and contents.
    pub kind: Kind,
    /// The permission bits of the object.
    pub mode: u32,
    /// The number of names.
    pub links: libc::nlink_t,
    /// The extended attributes of the object.
    pub attributes: BTreeMap<String, Vec<u8>>,
}

/// The tree with all its objects.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
}

/// A name: the path of its directory, and the name in it.
pub type Place<'p> = (&'p str, &'p str);

impl Default for Tree {
    fn default() -> Self {
        let root = Node::new(Kind::Directory(BTreeMap::new()), 0o755);
        Self { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 }
    }
}

impl Node {
    fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, links: 1, attributes: BTreeMap::new() }
    }

    /// Returns the contents of a file; `None` for other objects.
    pub fn data(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.kind {
            Kind::File(data) => Some(data),
            Kind::Directory(_) | Kind::Link(_) => None,
        }
    }

    /// Returns the entries of a directory; `None` for other objects.
    pub fn names(&self) -> Option<&BTreeMap<String, NodeId>> {
        match &self.kind {
            Kind::Directory(names) => Some(names),
            Kind::File(_) | Kind::Link(_) => None,
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }
}

impl Tree {
    /// Returns an object, which exists as long as a name or an open file refers to it.
    pub fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("an object is there as long as somebody has it")
    }

    /// Returns the paths of all directories, relative to the root. The path of the root is empty.
    pub fn directories(&self) -> Vec<String> {
        let mut found = vec![String::new()];
        let mut index = 0;
        while index < found.len() {
            let path = found[index].clone();
            let id = self.walk(&path).unwrap_or(ROOT);
            for (name, child) in self.nodes[&id].names().into_iter().flatten() {
                if self.nodes[child].is_directory() {
                    found.push(format!("{path}/{name}"));
                }
            }
            index += 1;
        }
        found
    }

    fn walk(&self, path: &str) -> Option<NodeId> {
        path.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(ROOT, |at, part| self.nodes.get(&at)?.names()?.get(part).copied())
    }

    /// Returns the object with a name.
    pub fn find(&self, (directory, name): Place<'_>) -> Result<NodeId, Errno> {
        let directory = self.walk(directory).ok_or(libc::ENOENT)?;
        let names = self.nodes[&directory].names().ok_or(libc::ENOTDIR)?;
        names.get(name).copied().ok_or(libc::ENOENT)
    }

    /// Returns the object at a path.
    pub fn at(&self, path: &str) -> Option<NodeId> {
        self.walk(path)
    }

    fn names_of(&mut self, directory: &str) -> &mut BTreeMap<String, NodeId> {
        let id = self.walk(directory).expect("directories are taken from the tree");
        match &mut self.nodes.get_mut(&id).expect("just found").kind {
            Kind::Directory(names) => names,
            Kind::File(_) | Kind::Link(_) => unreachable!("directories are taken from the tree"),
        }
    }

    /// Makes an object of a kind.
    pub fn make(&mut self, place: Place<'_>, kind: Kind, mode: u32) -> Result<NodeId, Errno> {
        if self.find(place).is_ok() {
            return Err(libc::EEXIST);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node::new(kind, mode));
        self.names_of(place.0).insert(place.1.into(), id);
        Ok(id)
    }

    /// Makes a hard link.
    pub fn link(&mut self, from: Place<'_>, to: Place<'_>) -> Result<(), Errno> {
        let id = self.find(from)?;
        if self.find(to).is_ok() {
            return Err(libc::EEXIST);
        }
        if self.nodes[&id].is_directory() {
            return Err(libc::EPERM);
        }
        self.names_of(to.0).insert(to.1.into(), id);
        self.node(id).links += 1;
        Ok(())
    }

    /// Removes a name of an object.
    pub fn unlink(&mut self, place: Place<'_>) -> Result<(), Errno> {
        let id = self.find(place)?;
        if self.nodes[&id].is_directory() {
            return Err(libc::EISDIR);
        }
        self.names_of(place.0).remove(place.1);
        self.node(id).links -= 1;
        Ok(())
    }

    /// Removes a directory that is empty.
    pub fn rmdir(&mut self, place: Place<'_>) -> Result<(), Errno> {
        let id = self.find(place)?;
        let names = self.nodes[&id].names().ok_or(libc::ENOTDIR)?;
        if !names.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.names_of(place.0).remove(place.1);
        self.nodes.remove(&id);
        Ok(())
    }

    /// Removes objects without a name, except those that are kept.
    pub fn forget_lost(&mut self, is_kept: impl Fn(NodeId) -> bool) {
        self.nodes.retain(|id, node| node.links > 0 || is_kept(*id));
    }

    /// Renames an object in the tree.
    pub fn rename(&mut self, from: Place<'_>, to: Place<'_>) -> Result<(), Errno> {
        let path = |(directory, name): Place<'_>| format!("{directory}/{name}");
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
        };
        let id = self.find(from)?;
        if is_within(&path(to), &path(from)) {
            return Err(libc::EINVAL);
        }
        if is_within(&path(from), &path(to)) {
            return Err(libc::ENOTEMPTY);
        }
        if let Ok(there) = self.find(to) {
            if there == id {
                return Ok(());
            }
            let (moved, replaced) = (&self.nodes[&id], &self.nodes[&there]);
            match (moved.is_directory(), replaced.names()) {
                (true, None) => return Err(libc::ENOTDIR),
                (false, Some(_)) => return Err(libc::EISDIR),
                (true, Some(names)) if !names.is_empty() => return Err(libc::ENOTEMPTY),
                (true, Some(_)) => drop(self.nodes.remove(&there)),
                (false, None) => self.node(there).links -= 1,
            }
        }
        self.names_of(from.0).remove(from.1);
        self.names_of(to.0).insert(to.1.into(), id);
        Ok(())
    }
}

const ROOT: NodeId = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Kind {
        Kind::File(Vec::new())
    }

    #[test]
    fn names_come_and_go() {
        let mut tree = Tree::default();
        let f = tree.make(("", "f"), file(), 0o644).unwrap();
        assert_eq!(tree.make(("", "f"), file(), 0o644), Err(libc::EEXIST));
        tree.make(("", "d"), Kind::Directory(BTreeMap::new()), 0o755).unwrap();
        tree.link(("", "f"), ("/d", "g")).unwrap();
        assert_eq!(tree.node(f).links, 2);
        assert_eq!(tree.rmdir(("", "d")), Err(libc::ENOTEMPTY));
        assert_eq!(tree.rename(("", "d"), ("/d", "x")), Err(libc::EINVAL));
        assert_eq!(tree.rename(("/d", "g"), ("", "d")), Err(libc::ENOTEMPTY));
        assert_eq!(tree.rename(("", "f"), ("/d", "g")), Ok(()), "they are one");
        assert_eq!(tree.node(f).links, 2);
        tree.unlink(("/d", "g")).unwrap();
        assert_eq!(tree.rename(("", "f"), ("", "d")), Err(libc::EISDIR));
        assert_eq!(tree.rename(("", "d"), ("", "f")), Err(libc::ENOTDIR));
        tree.rename(("", "f"), ("/d", "h")).unwrap();
        assert_eq!(tree.directories(), ["", "/d"]);
        assert_eq!(tree.find(("/d", "h")), Ok(f));
    }
}
