//! Named attributes: the `user.*` extended attributes of a file or directory, presented as files in
//! a separate directory.
//!
//! Invariant: a named attribute has the permissions, times and change attribute of its object. The
//! attribute is gone when its name is removed, even for clients that have it open.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dafs_memory::Memory;
use dafs_types::attributes::DeviceNumber;
use dafs_types::permission::{READ, WRITE};
use dafs_types::{
    ChangeInfo, CookieVerifier, CreateMode, Credentials, FileHandle, ObjectType, ReaddirCookie,
    ShareAccess,
};
use rustix::fs::XattrFlags;

use super::list::Budget;
use super::node::{Node, Target};
use super::seal::{Facet, Parts};
use super::{LocalStore, lock, sys, xattr};
use crate::attributes::{AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::file::{File, FileKey};
use crate::name;
use crate::rules::{Guard, check_rights};
use crate::store::{Created, ListEntry, ListPage, ListRequest, Object, Removed, Renamed};
use crate::xattrs::check_xattr_object;

/// A named attribute and its object.
struct Attribute {
    node: Arc<Node>,
    /// The full name of the extended attribute, with its prefix `user.`.
    name: Vec<u8>,
    handle: FileHandle,
    /// The inode number to report, which is unique in the file system.
    file_id: u64,
}

impl LocalStore {
    /// Returns the directory of an object's named attributes.
    pub(super) fn attribute_directory(
        &self,
        who: &Credentials,
        handle: &FileHandle,
    ) -> Result<Object> {
        let node = self.resolve_node(handle)?;
        let has_them = matches!(node.kind, ObjectType::Regular | ObjectType::Directory);
        let parts = self.sealer.open(&node.handle).ok_or(StoreError::BadHandle)?;
        if !has_them || !parts.identity.leaves_room() {
            return Err(StoreError::NotSupported);
        }
        let found = self.live_status(&node)?.attributes;
        self.check_either(who, &node, &found)?;
        // Only a query shows whether the file system supports attributes. Any name will do.
        xattr::size(node.fd(), xattr::SOME_NAME)?;
        let handle = self.sealer.seal(&Parts { facet: Facet::AttributeDirectory, ..parts });
        Ok(Object { handle, attributes: self.directory_attributes(&handle, &found) })
    }

    /// Returns the attributes of an attribute directory, derived from those of its object.
    pub(super) fn directory_attributes(
        &self,
        handle: &FileHandle,
        found: &Attributes,
    ) -> Attributes {
        Attributes {
            kind: ObjectType::AttributeDirectory,
            // A caller that may read the entries may also search the directory.
            mode: found.mode & 0o666 | (found.mode & 0o444) >> 2,
            link_count: 1,
            size: 0,
            file_id: self.sealer.file_number(handle),
            space_used: 0,
            time_create: None,
            time_modify: found.time_metadata,
            device: DeviceNumber::default(),
            ..*found
        }
    }

    /// Returns the attributes of a named attribute. `number` is the hash of its name.
    pub(super) fn attribute_attributes(&self, node: &Arc<Node>, number: u64) -> Result<Attributes> {
        self.attribute_numbered(node, number)?.attributes(&self.live_status(node)?.attributes)
    }

    /// Checks that the caller may read or write the object. Other callers must not learn which
    /// named attributes exist.
    fn check_either(&self, who: &Credentials, node: &Node, found: &Attributes) -> Result<()> {
        let acl = self.acl_for(who, node, found)?;
        let guard = Guard::new(found, acl.as_ref());
        let may = guard.allows(who, READ) || guard.allows(who, WRITE);
        if may { Ok(()) } else { Err(StoreError::Access) }
    }

    fn attribute_named(&self, node: &Arc<Node>, name: &[u8]) -> Result<Attribute> {
        name::check(name)?;
        if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
            return Err(StoreError::NameTooLong);
        }
        let parts = self.sealer.open(&node.handle).ok_or(StoreError::BadHandle)?;
        let facet = Facet::Attribute(self.sealer.name_number(name));
        let handle = self.sealer.seal(&Parts { facet, ..parts });
        Ok(Attribute {
            node: node.clone(),
            name: [xattr::USER_PREFIX, name].concat(),
            handle,
            file_id: self.sealer.file_number(&handle),
        })
    }

    /// Finds the named attribute for which `number`, from a handle, is the hash of its name.
    fn attribute_numbered(&self, node: &Arc<Node>, number: u64) -> Result<Attribute> {
        let names = xattr::user_names(node.fd())?;
        let mut names = names.into_iter();
        let name = names.find(|name| self.sealer.name_number(name) == number);
        self.attribute_named(node, &name.ok_or(StoreError::Stale)?)
    }

    /// Looks a name up in an attribute directory.
    pub(super) fn lookup_attribute(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        name: &[u8],
    ) -> Result<Object> {
        let found = self.live_status(node)?.attributes;
        self.check_either(who, node, &found)?;
        let attribute = self.attribute_named(node, name)?;
        match attribute.attributes(&found) {
            Err(StoreError::Stale) => Err(StoreError::NotFound),
            attributes => Ok(Object { handle: attribute.handle, attributes: attributes? }),
        }
    }

    /// Opens a named attribute. `number` is the hash of its name.
    pub(super) fn open_attribute(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        number: u64,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        let attribute = self.attribute_numbered(node, number)?;
        self.check_attribute_rights(who, node, access)?;
        Ok(self.attribute_file(attribute, access))
    }

    pub(super) fn check_attribute_rights(
        &self,
        who: &Credentials,
        node: &Node,
        access: ShareAccess,
    ) -> Result<Attributes> {
        let found = self.live_status(node)?.attributes;
        let acl = self.acl_for(who, node, &found)?;
        check_rights(who, Guard::new(&found, acl.as_ref()), access)?;
        check_xattr_object(who, (&found).into(), access.writes())?;
        if access.writes() {
            self.check_writable(node)?;
        }
        Ok(found)
    }

    fn attribute_file(&self, attribute: Attribute, access: ShareAccess) -> Arc<AttributeFile> {
        let handle = attribute.handle;
        let file = lock(&self.attribute_files).get_or_insert(handle, || AttributeFile {
            key: self.new_key(),
            attribute,
            may_write: AtomicBool::new(false),
            turn: Mutex::new(()),
        });
        file.may_write.fetch_or(access.writes(), Ordering::Relaxed);
        file
    }

    /// Performs an OPEN with creation in an attribute directory. A new attribute has no mode or
    /// times of its own, so the requested mode and times are ignored.
    pub(super) fn make_attribute(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)> {
        let attribute = self.attribute_named(node, name)?;
        if let CreateMode::Exclusive(_) = mode {
            // An attribute cannot store the verifier of an exclusive creation.
            return Err(StoreError::NotSupported);
        }
        let before = self.live_status(node)?.attributes;
        self.check_either(who, node, &before)?;
        let is_there = xattr::size(node.fd(), &attribute.name)?.is_some();
        if is_there && mode == CreateMode::Guarded {
            return Err(StoreError::Exists);
        }
        if !is_there && mode == CreateMode::NoCreate {
            return Err(StoreError::NotFound);
        }
        let cuts = mode == CreateMode::Unchecked && changes.size == Some(0);
        self.check_attribute_rights(who, node, access)?;
        if !is_there || cuts {
            self.check_attribute_rights(who, node, ShareAccess::Write)?;
        }
        let mut is_new = false;
        if !is_there {
            match xattr::set(node.fd(), &attribute.name, &[], XattrFlags::CREATE) {
                Ok(()) => is_new = true,
                Err(StoreError::Exists) if mode == CreateMode::Unchecked => {}
                Err(error) => return Err(error),
            }
        }
        let handle = attribute.handle;
        let file = self.attribute_file(attribute, access);
        if let (true, Some(size)) = (is_new || cuts, changes.size) {
            file.resize(size)?;
        }
        let change = self.after_change(node, &before, None)?;
        let object = Object { handle, attributes: file.attributes()? };
        Ok((Created { object, is_new, change }, file))
    }

    /// Sets the size of a named attribute. Its other attributes cannot be set.
    pub(super) fn change_attribute(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        number: u64,
        changes: &AttributeChanges,
    ) -> Result<Attributes> {
        let rest = AttributeChanges { size: None, ..*changes };
        if !rest.is_empty() {
            return Err(StoreError::NotSupported);
        }
        let attribute = self.attribute_numbered(node, number)?;
        if let Some(size) = changes.size {
            self.check_attribute_rights(who, node, ShareAccess::Write)?;
            // Use the one open file of the attribute, so that changes are serialized.
            self.attribute_file(attribute, ShareAccess::Read).resize(size)?;
        }
        self.attribute_attributes(node, number)
    }

    pub(super) fn remove_attribute(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        name: &[u8],
        may: &mut dyn FnMut(&FileHandle) -> bool,
    ) -> Result<Option<Removed>> {
        let attribute = self.attribute_named(node, name)?;
        let before = self.check_attribute_rights(who, node, ShareAccess::Write)?;
        if !may(&attribute.handle) {
            return Ok(None);
        }
        xattr::remove(node.fd(), &attribute.name)?;
        let change = self.after_change(node, &before, None)?;
        Ok(Some(Removed { handle: attribute.handle, was_last: true, held: 0, change }))
    }

    /// Renames within one attribute directory. The value is copied before the old name is removed,
    /// so a crash in between leaves both.
    pub(super) fn rename_attribute(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        old_name: &[u8],
        new_name: &[u8],
    ) -> Result<Renamed> {
        let old = self.attribute_named(node, old_name)?;
        let new = self.attribute_named(node, new_name)?;
        let before = self.check_attribute_rights(who, node, ShareAccess::Both)?;
        let value = xattr::get(node.fd(), &old.name)?.ok_or(StoreError::NotFound)?;
        let mut replaced = None;
        if old.handle != new.handle {
            // An open attribute is identified by its name, so it cannot be renamed: a client may
            // still write data to it.
            let is_open = |handle| lock(&self.attribute_files).get(handle).is_some();
            if is_open(&old.handle) || is_open(&new.handle) {
                return Err(StoreError::Busy);
            }
            let is_there = xattr::size(node.fd(), &new.name)?.is_some();
            replaced = is_there.then_some(new.handle);
            xattr::set(node.fd(), &new.name, &value, XattrFlags::empty())?;
            xattr::remove(node.fd(), &old.name)?;
        }
        let change: ChangeInfo = self.after_change(node, &before, None)?;
        Ok(Renamed { source: change, target: change, replaced })
    }

    /// Lists an attribute directory. The cookie of an entry is computed from its name alone, and
    /// entries are sorted by their cookies. So the order does not change when other attributes are
    /// added or removed.
    pub(super) fn list_attributes(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        request: &ListRequest,
        verifier: CookieVerifier,
    ) -> Result<ListPage> {
        let found = self.check_attribute_rights(who, node, ShareAccess::Read)?;
        let mut entries: Vec<_> = xattr::user_names(node.fd())?
            .into_iter()
            // Names that no client could request are left out.
            .filter(|name| name::check(name).is_ok())
            .map(|name| ((self.sealer.name_number(&name) >> 1).max(COOKIE_MIN), name))
            .filter(|(cookie, _)| *cookie > request.cookie.0)
            .collect();
        entries.sort_unstable();
        let mut page = ListPage { entries: Vec::new(), verifier, is_end: true };
        let mut budget = Budget::new(request);
        for (cookie, name) in entries {
            if !budget.take(name.len()) {
                page.is_end = false;
                return budget.end(page);
            }
            let attribute = self.attribute_named(node, &name)?;
            let attributes =
                if request.want_objects { attribute.attributes(&found).ok() } else { None };
            page.entries.push(ListEntry {
                cookie: ReaddirCookie(cookie),
                name,
                file_id: attribute.file_id,
                object: attributes
                    .map(|attributes| Object { handle: attribute.handle, attributes }),
            });
        }
        Ok(page)
    }

    /// Returns the object to whose named attributes this handle of an attribute directory leads.
    /// Returns `None` for other handles.
    pub(super) fn in_attributes(&self, handle: &FileHandle) -> Result<Option<Arc<Node>>> {
        match self.resolve(handle)? {
            Target::Attributes(node) => Ok(Some(node)),
            Target::Attribute(..) => Err(StoreError::NotDirectory),
            Target::Virtual(_) | Target::Node(_) => Ok(None),
        }
    }
}

impl Attribute {
    /// Returns the attributes of this named attribute, given those of its object. Fails with
    /// `Stale` if the named attribute was removed.
    fn attributes(&self, object: &Attributes) -> Result<Attributes> {
        let size = xattr::size(self.node.fd(), &self.name)?.ok_or(StoreError::Stale)? as u64;
        Ok(Attributes {
            kind: ObjectType::NamedAttribute,
            mode: object.mode & 0o666,
            link_count: 1,
            size,
            file_id: self.file_id,
            space_used: size,
            time_create: None,
            time_modify: object.time_metadata,
            device: DeviceNumber::default(),
            ..*object
        })
    }
}

/// An open named attribute.
pub(super) struct AttributeFile {
    key: FileKey,
    attribute: Attribute,
    may_write: AtomicBool,
    /// Serializes writes, because a write reads the whole value, changes it, and sets it again.
    turn: Mutex<()>,
}

impl AttributeFile {
    fn fd(&self) -> BorrowedFd<'_> {
        self.attribute.node.fd()
    }

    fn value(&self) -> Result<Vec<u8>> {
        xattr::get(self.fd(), &self.attribute.name)?.ok_or(StoreError::Stale)
    }

    /// Changes the value with a closure. Never recreates a named attribute that was removed
    /// meanwhile.
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let _turn = lock(&self.turn);
        let mut value = self.value()?;
        change(&mut value);
        match xattr::set(self.fd(), &self.attribute.name, &value, XattrFlags::REPLACE) {
            Err(StoreError::NotFound) => Err(StoreError::Stale),
            other => other,
        }
    }

    fn resize(&self, size: u64) -> Result<()> {
        let size = bounded(size)?;
        self.change(|value| value.resize(size, 0))
    }

    fn check_write(&self) -> Result<()> {
        if self.may_write.load(Ordering::Relaxed) { Ok(()) } else { Err(StoreError::Access) }
    }
}

impl File for AttributeFile {
    fn key(&self) -> FileKey {
        self.key
    }

    fn handle(&self) -> FileHandle {
        self.attribute.handle
    }

    fn read_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize> {
        let value = self.value()?;
        let start = usize::try_from(offset).map_or(value.len(), |start| start.min(value.len()));
        let end = start.saturating_add(length).min(value.len());
        memory.write(memory_offset, &value[start..end]);
        Ok(end - start)
    }

    fn write_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()> {
        self.check_write()?;
        let end = bounded(offset.checked_add(length as u64).ok_or(StoreError::TooBig)?)?;
        self.change(|value| {
            value.resize(value.len().max(end), 0);
            memory.read(memory_offset, &mut value[end - length..end]);
        })
    }

    fn sync(&self, _data_only: bool) -> Result<()> {
        // No system call syncs a single attribute, so sync the whole object.
        sys::sync(self.fd(), self.attribute.node.kind)
    }

    fn attributes(&self) -> Result<Attributes> {
        self.attribute.attributes(&sys::status(self.fd())?.attributes)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.check_write()?;
        self.resize(size)
    }
}

/// Checks that a named attribute can have a value of this size, and converts the size.
fn bounded(size: u64) -> Result<usize> {
    let size = usize::try_from(size).map_err(|_| StoreError::TooBig)?;
    if size > xattr::VALUE_BYTES_MAX { Err(StoreError::TooBig) } else { Ok(size) }
}

/// The longest name of a named attribute. Linux allows 255 bytes, including the prefix.
const ATTRIBUTE_NAME_BYTES_MAX: usize = 255 - xattr::USER_PREFIX.len();
/// The first cookie that a store may use. The protocol reserves 0 to 2.
const COOKIE_MIN: u64 = 3;
