//! The [`Store`] calls on local directories.
//!
//! Invariant: permission is decided here from the object's own bits and the asker's
//! identity, before the first change; the server's own rights never stand in for it.

use std::os::fd::AsFd;
use std::sync::Arc;

use dafs_types::limits::LINK_TEXT_BYTES_MAX;
use dafs_types::permission::{self, EXECUTE, WRITE};
use dafs_types::{
    AccessMask, ChangeInfo, CreateMode, Credentials, FileHandle, FileSystemAttributes, ObjectType,
    ShareAccess, Timestamp,
};
use rustix::fs::{AtFlags, OFlags};

use super::file::LocalFile;
use super::node::{Node, Target};
use super::sys::{self, Status};
use super::{LocalStore, lock};
use crate::attributes::{AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::file::File;
use crate::name;
use crate::rules::{check_changes, check_open, common_fs_attributes};
use crate::store::{Created, ListPage, ListRequest, NewNode, Object, Removed, Renamed, Store};

impl LocalStore {
    /// Attributes of a directory in which the asker has the wanted rights.
    pub(super) fn check_directory(
        &self,
        who: &Credentials,
        node: &Node,
        wanted: u32,
    ) -> Result<Attributes> {
        if node.kind != ObjectType::Directory {
            return Err(StoreError::NotDirectory);
        }
        let found = self.live_status(node)?.attributes;
        if !permission::allows(who, found.kind, found.uid, found.gid, found.mode, wanted) {
            return Err(StoreError::Access);
        }
        Ok(found)
    }

    pub(super) fn check_writable(&self, node: &Node) -> Result<()> {
        if self.exports[node.export].read_only { Err(StoreError::ReadOnly) } else { Ok(()) }
    }

    /// The directory's change behind a modification. Not atomic: local processes may have
    /// been there too.
    pub(super) fn after_change(&self, node: &Node, before: &Attributes) -> Result<ChangeInfo> {
        if self.durable_names {
            sys::sync_directory(node.fd())?;
        }
        let after = sys::status(node.fd())?.attributes.change;
        Ok(ChangeInfo { before: before.change, after, atomic: false })
    }

    fn object(node: &Node, status: &Status) -> Object {
        Object { handle: node.handle, attributes: status.attributes }
    }

    fn virtual_root(&self) -> Object {
        let time = Timestamp::default();
        let attributes = Attributes {
            kind: ObjectType::Directory,
            mode: 0o555,
            uid: 0,
            gid: 0,
            link_count: 2 + self.exports.len() as u32,
            change: self.exports.len() as u64,
            size: 0,
            file_id: 1,
            space_used: 0,
            time_access: time,
            time_create: None,
            time_metadata: time,
            time_modify: time,
            device: Default::default(),
        };
        Object { handle: self.virtual_root, attributes }
    }

    /// A directory whose entries the asker may change, and the entry in question.
    fn entry(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Entry> {
        name::check(name)?;
        let parent = self.resolve_node(directory)?;
        self.check_writable(&parent)?;
        let before = self.check_directory(who, &parent, EXECUTE | WRITE)?;
        let found = match self.child(&parent, name) {
            Ok((node, status)) => {
                let owner = status.attributes.uid;
                if permission::sticky_forbids(who, before.mode, before.uid, owner) {
                    return Err(StoreError::NotPermitted);
                }
                Some((node, status.attributes))
            }
            Err(StoreError::NotFound) => None,
            Err(error) => return Err(error),
        };
        Ok(Entry { parent, before, found })
    }

    /// Brings an object's own metadata to stable storage.
    fn sync_node(&self, node: &Node) -> Result<()> {
        let opened = match node.kind {
            ObjectType::Directory => sys::open_directory(node.fd()),
            ObjectType::Regular => sys::reopen(node.fd(), OFlags::RDONLY),
            // A pipe or a device would notice that it is opened; the rest cannot be.
            ObjectType::SymbolicLink
            | ObjectType::BlockDevice
            | ObjectType::CharacterDevice
            | ObjectType::Socket
            | ObjectType::Fifo
            | ObjectType::AttributeDirectory
            | ObjectType::NamedAttribute => Err(StoreError::Access),
        };
        match opened {
            Ok(fd) => Ok(rustix::fs::fsync(fd)?),
            // What may not be opened is synced with all else that its file system has.
            Err(StoreError::Access | StoreError::NotPermitted) => {
                Ok(rustix::fs::syncfs(self.mount_of(node.export, node.file_system)?)?)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens an object that is as `found` says.
    pub(super) fn open_found(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        found: &Attributes,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        check_open(who, found, access)?;
        if access.writes() {
            self.check_writable(node)?;
        }
        let file = match self.open_file(&node.handle) {
            Some(file) => file,
            None => self.file_for(node.handle, |key| LocalFile::new(key, node.clone())),
        };
        file.allow(access.writes(), !who.is_superuser())?;
        Ok(file)
    }
}

struct Entry {
    parent: Arc<Node>,
    before: Attributes,
    found: Option<(Arc<Node>, Attributes)>,
}

impl Store for LocalStore {
    fn root(&self, _who: &Credentials) -> Result<Object> {
        if self.has_virtual_root() {
            return Ok(self.virtual_root());
        }
        let root = &self.exports[0].root;
        Ok(Self::object(root, &sys::status(root.fd())?))
    }

    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object> {
        name::check(name)?;
        match self.resolve(directory)? {
            Target::VirtualRoot => {
                let wanted = self.exports.iter().find(|e| e.name.as_bytes() == name);
                let root = &wanted.ok_or(StoreError::NotFound)?.root;
                Ok(Self::object(root, &sys::status(root.fd())?))
            }
            Target::Node(parent) => {
                self.check_directory(who, &parent, EXECUTE)?;
                let (node, status) = self.child(&parent, name)?;
                Ok(Self::object(&node, &status))
            }
        }
    }

    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object> {
        let Target::Node(node) = self.resolve(directory)? else {
            return Err(StoreError::NotFound);
        };
        self.check_directory(who, &node, EXECUTE)?;
        if node.handle == self.exports[node.export].root.handle {
            return if self.has_virtual_root() {
                Ok(self.virtual_root())
            } else {
                Err(StoreError::NotFound)
            };
        }
        let (parent, status) = {
            let fd = sys::open_parent(node.fd())?;
            let status = sys::status(fd.as_fd())?;
            let number = self.file_system_of(node.export, fd.as_fd(), &status)?;
            (Arc::new(self.make(fd, node.export, number, &status)), status)
        };
        if !self.is_beneath(&parent)? {
            return Err(StoreError::Stale);
        }
        lock(&self.nodes).insert(parent.clone());
        Ok(Self::object(&parent, &status))
    }

    fn attributes(&self, _who: &Credentials, handle: &FileHandle) -> Result<Attributes> {
        match self.resolve(handle)? {
            Target::VirtualRoot => Ok(self.virtual_root().attributes),
            Target::Node(node) => Ok(self.live_status(&node)?.attributes),
        }
    }

    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Attributes> {
        let node = self.resolve_node(handle)?;
        self.check_writable(&node)?;
        let found = self.live_status(&node)?.attributes;
        let mut set = check_changes(who, &found, changes)?;
        let sets_times = set.time_access.is_some() || set.time_modify.is_some();
        let keeps_bits = set.size.is_none() && set.uid.is_none() && set.gid.is_none();
        if sets_times && keeps_bits && set.mode == Some(found.mode) {
            // It is so already, and the change of times is seen as a change.
            set.mode = None;
        }
        sys::apply(node.fd(), &set)?;
        Ok(sys::status(node.fd())?.attributes)
    }

    fn fs_attributes(
        &self,
        _who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        let node = match self.resolve(handle)? {
            Target::VirtualRoot => self.exports[0].root.clone(),
            Target::Node(node) => node,
        };
        let space = rustix::fs::fstatvfs(node.fd())?;
        Ok(FileSystemAttributes {
            max_link: None,
            files_available: Some(space.f_favail),
            files_free: Some(space.f_ffree),
            files_total: Some(space.f_files),
            space_available: Some(space.f_bavail.saturating_mul(space.f_frsize)),
            space_free: Some(space.f_bfree.saturating_mul(space.f_frsize)),
            space_total: Some(space.f_blocks.saturating_mul(space.f_frsize)),
            ..common_fs_attributes(handle)
        })
    }

    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask> {
        let mut refused = AccessMask::default();
        let found = match self.resolve(handle)? {
            Target::VirtualRoot => self.virtual_root().attributes,
            Target::Node(node) => {
                if self.exports[node.export].read_only {
                    refused = AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
                }
                self.live_status(&node)?.attributes
            }
        };
        let given = permission::access_mask(who, found.kind, found.uid, found.gid, found.mode);
        Ok(AccessMask(given.0 & wanted.0 & !refused.0))
    }

    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        let Target::Node(node) = self.resolve(handle)? else {
            return Err(StoreError::IsDirectory);
        };
        let found = self.live_status(&node)?.attributes;
        self.open_found(who, &node, &found, access)
    }

    fn create_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)> {
        self.make_file(who, directory, name, mode, changes, access)
    }

    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        self.make_unlinked(who, directory, changes)
    }

    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        self.make_node(who, directory, name, node, changes)
    }

    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo> {
        name::check(name)?;
        let object = self.resolve_node(source)?;
        let parent = self.resolve_node(directory)?;
        if object.export != parent.export {
            return Err(StoreError::CrossDevice);
        }
        if self.live_status(&object)?.attributes.kind == ObjectType::Directory {
            return Err(StoreError::IsDirectory);
        }
        self.check_writable(&parent)?;
        let before = self.check_directory(who, &parent, EXECUTE | WRITE)?;
        let path = sys::magic_path(object.fd());
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, path, parent.fd(), name, flags)?;
        self.after_change(&parent, &before)
    }

    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed> {
        let entry = self.entry(who, directory, name)?;
        let (node, found) = entry.found.ok_or(StoreError::NotFound)?;
        let is_directory = found.kind == ObjectType::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(entry.parent.fd(), name, flags).map_err(not_empty)?;
        let was_last = sys::status(node.fd())?.attributes.link_count == 0 || is_directory;
        if was_last {
            lock(&self.nodes).remove(&node.handle);
        }
        let change = self.after_change(&entry.parent, &entry.before)?;
        Ok(Removed { handle: node.handle, was_last, change })
    }

    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed> {
        let from = self.entry(who, source, old_name)?;
        let (moved, found) = from.found.ok_or(StoreError::NotFound)?;
        let to = self.entry(who, target, new_name)?;
        if from.parent.export != to.parent.export {
            return Err(StoreError::CrossDevice);
        }
        let is_directory = found.kind == ObjectType::Directory;
        if is_directory && from.parent.handle != to.parent.handle {
            // Its own `..` changes.
            self.check_directory(who, &moved, WRITE)?;
        }
        rustix::fs::renameat(from.parent.fd(), old_name, to.parent.fd(), new_name)
            .map_err(not_empty)?;
        let replaced = to.found.map(|(node, _)| node).filter(|node| node.handle != moved.handle);
        let replaced = replaced.filter(|node| {
            let is_gone = |status: Status| status.attributes.link_count == 0;
            sys::status(node.fd()).is_ok_and(is_gone) || node.kind == ObjectType::Directory
        });
        if let Some(node) = &replaced {
            lock(&self.nodes).remove(&node.handle);
        }
        Ok(Renamed {
            source: self.after_change(&from.parent, &from.before)?,
            target: self.after_change(&to.parent, &to.before)?,
            replaced: replaced.map(|node| node.handle),
        })
    }

    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        self.list(who, directory, request)
    }

    fn sync(&self, handle: &FileHandle) -> Result<()> {
        // Exports come and go with the configuration: there is nothing to bring anywhere.
        let Target::Node(node) = self.resolve(handle)? else { return Ok(()) };
        self.sync_node(&node)
    }

    fn readlink(&self, _who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>> {
        let Target::Node(node) = self.resolve(handle)? else { return Err(StoreError::Invalid) };
        if node.kind != ObjectType::SymbolicLink {
            return Err(StoreError::Invalid);
        }
        let text = rustix::fs::readlinkat(node.fd(), c"", Vec::with_capacity(LINK_TEXT_BYTES_MAX))?;
        Ok(text.into_bytes())
    }
}

/// Some file systems say EEXIST for a directory with entries.
fn not_empty(errno: rustix::io::Errno) -> StoreError {
    match StoreError::from(errno) {
        StoreError::Exists => StoreError::NotEmpty,
        other => other,
    }
}
