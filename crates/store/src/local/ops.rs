//! The [`Store`] calls on local directories.
//!
//! Invariant: every call first determines the identity with which the caller uses the export. The
//! checks that follow are in `check.rs`. Named attributes are handled in `attribute.rs`.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use dafs_ops::XattrMode;
use dafs_types::limits::LINK_TEXT_BYTES_MAX;
use dafs_types::permission::{self, EXECUTE, READ, WRITE};
use dafs_types::{
    AccessMask, ChangeInfo, CreateMode, Credentials, FileHandle, FileSystemAttributes, ObjectType,
    ShareAccess,
};
use rustix::fs::RenameFlags;

use super::node::{Node, Target};
use super::remove::not_empty;
use super::sys::{self, Status};
use super::{ExportRoot, LocalStore, lock};
use crate::attributes::{Altered, AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};
use crate::name;
use crate::rules::{Guard, check_changes, check_link};
use crate::store::{
    Created, ExtraChanges, Extras, ExtrasWanted, ListPage, ListRequest, NewNode, Object, Removed,
    Renamed, Store, open_by_creating,
};
use crate::terms::ExportTerms;
use crate::xattrs::{XattrListRequest, XattrPage};

impl LocalStore {
    fn object(node: &Node, status: &Status) -> Object {
        Object { handle: node.handle, attributes: status.attributes }
    }
}

impl Store for LocalStore {
    fn on_terms(&self, terms: &[ExportTerms]) -> Option<Arc<dyn Store>> {
        let both = |(place, own): (usize, &ExportTerms)| match terms.get(place) {
            Some(wanted) => ExportTerms {
                is_visible: own.is_visible && wanted.is_visible,
                read_only: own.read_only || wanted.read_only,
                ..wanted.clone()
            },
            // If there are terms for fewer exports than exist, the other exports are hidden.
            None => ExportTerms { is_visible: false, ..own.clone() },
        };
        let terms = self.terms.iter().enumerate().map(both).collect();
        Some(Arc::new(Self { shared: self.shared.clone(), terms }))
    }

    fn export_names(&self) -> Vec<OsString> {
        self.exports.iter().map(|export| export.name.clone()).collect()
    }

    fn export_paths(&self) -> Vec<OsString> {
        let path = |export: &ExportRoot| match self.has_virtual_root() {
            true => [OsStr::new("/"), &export.name].into_iter().collect(),
            false => "/".into(),
        };
        self.exports.iter().map(path).collect()
    }

    fn shows(&self, handle: &FileHandle) -> bool {
        self.is_visible(handle)
    }

    fn may_read_directly(&self, who: &Credentials, handle: &FileHandle) -> Result<bool> {
        let node = self.resolve_node(handle)?;
        let found = self.live_status(&node)?.attributes;
        if node.kind != ObjectType::Regular || *self.entering(who, handle) != *who {
            return Ok(false);
        }
        let acl = self.acl_for(who, &node, &found)?;
        let given = Guard::new(&found, acl.as_ref()).access(who);
        let may_change =
            who.uid() == found.uid || given & AccessMask::MODIFY != AccessMask::default();
        let takes_changes = !self.terms[node.export].read_only;
        Ok(given & AccessMask::READ != AccessMask::default() && (takes_changes || !may_change))
    }

    fn renewed(&self, handle: &FileHandle) -> Option<FileHandle> {
        self.renew(handle)
    }

    fn defer_searches(&self) -> bool {
        self.defer()
    }

    fn must_search(&self, handle: &FileHandle) -> bool {
        self.is_to_be_searched(handle)
    }

    fn search(&self, handles: &[FileHandle]) {
        self.search_for(handles);
    }

    fn close_removed(&self) {
        // Dropping the nodes closes their descriptors, after the lock is released.
        let _dead = lock(&self.nodes).take_dead();
    }

    fn release_removed(&self, elapsed: Duration) -> Vec<FileHandle> {
        self.release_removed_nodes(elapsed)
    }

    fn root(&self, _who: &Credentials) -> Result<Object> {
        if self.has_virtual_root() {
            return Ok(self.virtual_directory(0));
        }
        let root = &self.exports[0].root;
        if !self.is_visible(&root.handle) {
            return Err(StoreError::Access);
        }
        Ok(Self::object(root, &sys::status(root.fd())?))
    }

    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object> {
        name::check(name)?;
        let who = &*self.entering(who, directory);
        match self.resolve(directory)? {
            Target::Virtual(index) => self.lookup_virtual(index, name),
            Target::Node(parent) => {
                self.check_directory(who, &parent, EXECUTE)?;
                let (node, status) = self.child(&parent, name)?;
                Ok(Self::object(&node, &status))
            }
            Target::Attributes(node) => self.lookup_attribute(who, &node, name),
            Target::Attribute(..) => Err(StoreError::NotDirectory),
        }
    }

    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object> {
        let who = &*self.entering(who, directory);
        let node = match self.resolve(directory)? {
            Target::Node(node) => node,
            Target::Virtual(index) => return self.parent_of_virtual(index),
            // The parent of an attribute directory is the object that has the attributes.
            Target::Attributes(node) => return Ok(Self::object(&node, &self.live_status(&node)?)),
            Target::Attribute(..) => return Err(StoreError::NotDirectory),
        };
        self.check_directory(who, &node, EXECUTE)?;
        if node.handle == self.exports[node.export].root.handle {
            return if self.has_virtual_root() {
                Ok(self.parent_of_export(node.export))
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
            Target::Virtual(index) => Ok(self.virtual_directory(index).attributes),
            Target::Node(node) => Ok(self.live_status(&node)?.attributes),
            Target::Attributes(node) => {
                let found = self.live_status(&node)?.attributes;
                Ok(self.directory_attributes(handle, &found))
            }
            Target::Attribute(node, number) => self.attribute_attributes(&node, number),
        }
    }

    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered> {
        let who = &*self.entering(who, handle);
        let node = match self.resolve(handle)? {
            Target::Node(node) => node,
            Target::Attribute(node, number) => {
                let before = self.attribute_attributes(&node, number)?;
                let after = self.change_attribute(who, &node, number, changes)?;
                return Ok(Altered { before, after });
            }
            Target::Virtual(_) => return Err(StoreError::ReadOnly),
            Target::Attributes(_) => return Err(StoreError::NotSupported),
        };
        self.check_writable(&node)?;
        let found = self.live_status(&node)?.attributes;
        let acl = self.acl_for(who, &node, &found)?;
        let guard = Guard::new(&found, acl.as_ref());
        let mut set = check_changes(who, guard, changes)?;
        let sets_times = set.time_access.is_some() || set.time_modify.is_some();
        let keeps_bits = set.size.is_none() && set.uid.is_none() && set.gid.is_none();
        if sets_times && keeps_bits && set.mode == Some(found.mode) {
            // The mode is already set, and setting the times also updates the change attribute.
            set.mode = None;
        }
        if set.size.is_some() && changes.mode.is_none() && !who.is_superuser() {
            // Do not set the mode computed above: `take_set_ids` clears the bits of the mode that
            // the file has after the change of size.
            set.mode = None;
            let size = set.size.take();
            sys::apply(node.fd(), &AttributeChanges { size, ..AttributeChanges::default() })?;
            sys::take_set_ids(node.fd())?;
        }
        sys::apply(node.fd(), &set)?;
        Ok(Altered { before: found, after: sys::status(node.fd())?.attributes })
    }

    fn extras(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: ExtrasWanted,
    ) -> Result<Extras> {
        let who = &*self.entering(who, handle);
        match self.resolve(handle)? {
            Target::Node(node) => self.node_extras(who, &node, wanted),
            Target::Virtual(_) | Target::Attributes(_) | Target::Attribute(..) => {
                let named_attributes = wanted.named_attributes.then_some(false);
                Ok(Extras { named_attributes, ..Extras::default() })
            }
        }
    }

    fn set_extras(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &ExtraChanges,
    ) -> Result<()> {
        let who = &*self.entering(who, handle);
        self.set_node_extras(who, &*self.resolve_node(handle)?, changes)
    }

    fn open_attributes(&self, who: &Credentials, handle: &FileHandle) -> Result<Object> {
        self.attribute_directory(&self.entering(who, handle), handle)
    }

    fn fs_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        self.file_system(&self.entering(who, handle), handle)
    }

    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask> {
        let who = &*self.entering(who, handle);
        let (node, kind) = match self.resolve(handle)? {
            Target::Virtual(index) => {
                let found = self.virtual_directory(index).attributes;
                return Ok(Guard::new(&found, None).access(who) & wanted);
            }
            Target::Node(node) => (node, None),
            Target::Attributes(node) => (node, Some(ObjectType::AttributeDirectory)),
            Target::Attribute(node, _) => (node, Some(ObjectType::NamedAttribute)),
        };
        let found = self.live_status(&node)?.attributes;
        let acl = self.acl_for(who, &node, &found)?;
        let mut given = Guard::new(&found, acl.as_ref()).access(who);
        if let Some(kind) = kind {
            given = attribute_access(given, kind);
        }
        if self.terms[node.export].read_only {
            let refused = AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
            given = AccessMask(given.0 & !refused.0);
        }
        Ok(given & wanted)
    }

    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        Ok(self.open_with_version(who, handle, access)?.0)
    }

    fn open_with_version(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        let who = &*self.entering(who, handle);
        let node = match self.resolve(handle)? {
            Target::Node(node) => node,
            Target::Virtual(_) | Target::Attributes(_) => return Err(StoreError::IsDirectory),
            Target::Attribute(node, number) => {
                let file = self.open_attribute(who, &node, number, access)?;
                let version = file.version()?;
                return Ok((file, version));
            }
        };
        let found = self.live_look(&node)?;
        Ok((self.open_found(who, &node, found.bits, access)?, found.version))
    }

    fn open_stateless(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        match self.open_with_version(who, handle, access) {
            Err(StoreError::Access) => self.open_as_owner(who, handle, access),
            opened => opened,
        }
    }

    fn open_entry(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        // The clock is read once for all decisions about ages.
        let mut now = sys::millis();
        let parent = match self.resolve_known(directory, now)? {
            Some(parent) => parent,
            None => match self.resolve(directory)? {
                Target::Node(parent) => {
                    // Finding the directory may have taken long, so read the clock again.
                    now = sys::millis();
                    parent
                }
                Target::Virtual(_) | Target::Attributes(_) | Target::Attribute(..) => {
                    return open_by_creating(self, who, directory, name, access);
                }
            },
        };
        let who = &*self.entering(who, directory);
        self.open_known(who, (&parent, now), name, access)
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
        let who = &*self.entering(who, directory);
        match self.in_attributes(directory)? {
            Some(node) => self.make_attribute(who, &node, name, mode, changes, access),
            None => self.make_file(who, directory, name, mode, changes, access),
        }
    }

    fn xattr(&self, who: &Credentials, handle: &FileHandle, name: &[u8]) -> Result<Vec<u8>> {
        self.user_xattr(&self.entering(who, handle), handle, name)
    }

    fn set_xattr(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Altered> {
        self.set_user_xattr(&self.entering(who, handle), handle, (name, value), mode)
    }

    fn remove_xattr(&self, who: &Credentials, handle: &FileHandle, name: &[u8]) -> Result<Altered> {
        self.remove_user_xattr(&self.entering(who, handle), handle, name)
    }

    fn xattrs(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        request: &XattrListRequest,
    ) -> Result<XattrPage> {
        self.user_xattrs(&self.entering(who, handle), handle, request)
    }

    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        self.make_unlinked(&self.entering(who, directory), directory, changes)
    }

    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        self.make_node(&self.entering(who, directory), directory, name, node, changes)
    }

    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo> {
        name::check(name)?;
        let who = &*self.entering(who, directory);
        let object = self.resolve_node(source)?;
        let parent = self.resolve_node(directory)?;
        if object.export != parent.export {
            return Err(StoreError::CrossDevice);
        }
        let found = self.live_status(&object)?.attributes;
        let acl = self.acl_for(who, &object, &found)?;
        self.check_writable(&parent)?;
        let (before, begun) = self.before_change(who, &parent, EXECUTE | WRITE)?;
        check_link(who, Guard::new(&found, acl.as_ref()))?;
        sys::link(object.fd(), parent.fd(), name)?;
        self.searches.absent().note_present(&object.handle);
        self.after_change(&parent, &before, Some(begun))
    }

    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed> {
        let removed = self.remove_if(who, directory, name, &mut |_| true)?;
        self.close_removed();
        removed.ok_or(StoreError::NotFound)
    }

    fn remove_if(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        may: &mut dyn FnMut(&FileHandle) -> bool,
    ) -> Result<Option<Removed>> {
        let who = &*self.entering(who, directory);
        match self.in_attributes(directory)? {
            Some(node) => self.remove_attribute(who, &node, name, may),
            None => self.remove_entry(who, directory, name, may),
        }
    }

    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed> {
        let who = &*self.entering(who, source);
        match (self.in_attributes(source)?, self.in_attributes(target)?) {
            (None, None) => {}
            (Some(node), Some(_)) if source == target => {
                return self.rename_attribute(who, &node, old_name, new_name);
            }
            (Some(_), _) | (_, Some(_)) => return Err(StoreError::CrossDevice),
        }
        let from = self.entry(who, source, old_name)?;
        let (moved, found) = from.found.ok_or(StoreError::NotFound)?;
        if self.own_directories.leads_there(moved.device, found.file_id) {
            return Err(StoreError::Access);
        }
        let to = self.entry(who, target, new_name)?;
        if from.parent.export != to.parent.export {
            return Err(StoreError::CrossDevice);
        }
        let is_directory = found.kind == ObjectType::Directory;
        if is_directory && from.parent.handle != to.parent.handle {
            // A moved directory's own `..` entry changes, which needs write permission on it.
            self.check_directory(who, &moved, WRITE)?;
        }
        let acting = self.act_for(who, from.is_owners || to.is_owners);
        // If the target name did not exist, no owner was checked, so the rename must not replace an
        // object that got the name meanwhile.
        let is_free = to.found.is_none() && to.is_owners && acting.is_none();
        let flags = if is_free { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        let (here, there) = (from.parent.fd(), to.parent.fd());
        let renamed = rustix::fs::renameat_with(here, old_name, there, new_name, flags);
        drop(acting);
        renamed.map_err(if is_free { StoreError::from } else { not_empty })?;
        let replaced = to.found.map(|(node, _)| node).filter(|node| node.handle != moved.handle);
        let replaced = replaced.filter(|node| {
            let is_gone = |status: Status| status.attributes.link_count == 0;
            sys::status(node.fd()).is_ok_and(is_gone) || node.kind == ObjectType::Directory
        });
        if let Some(node) = &replaced {
            lock(&self.nodes).remove(&node.handle);
        }
        Ok(Renamed {
            // A rename between two names of one object changes nothing.
            source: self.after_change(&from.parent, &from.before, None)?,
            target: self.after_change(&to.parent, &to.before, None)?,
            replaced: replaced.map(|node| node.handle),
        })
    }

    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        self.list(&self.entering(who, directory), directory, request)
    }

    fn sync(&self, handle: &FileHandle) -> Result<()> {
        // The list of exports is part of the configuration, so nothing needs a sync.
        match self.resolve(handle)? {
            Target::Virtual(_) => Ok(()),
            Target::Node(node) | Target::Attributes(node) | Target::Attribute(node, _) => {
                self.sync_node(&node)
            }
        }
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

/// Returns the access rights of a caller to an attribute directory, or to a named attribute in it.
/// `object` contains the caller's access rights to the object.
fn attribute_access(object: AccessMask, kind: ObjectType) -> AccessMask {
    let has = |right: AccessMask| object & right == right;
    let bits = [(AccessMask::READ, READ), (AccessMask::MODIFY, WRITE)];
    let bits = bits.into_iter().filter(|(right, _)| has(*right)).fold(0, |all, (_, bit)| all | bit);
    if kind == ObjectType::NamedAttribute {
        return permission::access_of(kind, bits);
    }
    // A caller that may read or write the object may also look up names of attributes.
    let search = if bits == 0 { 0 } else { EXECUTE };
    permission::access_of(ObjectType::Directory, bits | search)
}
