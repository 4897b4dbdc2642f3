//! Named attributes: the `user.*` extended attributes of a file or directory, as files in a
//! directory of their own.
//!
//! Invariant: a named attribute is nothing but its object's: its permissions, times and
//! change are those of the object, and it goes with its name, for those who have it open
//! too.

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

/// A named attribute of an object, with the object as it is.
struct Attribute {
    node: Arc<Node>,
    /// With its prefix.
    name: Vec<u8>,
    handle: FileHandle,
    /// Unique in the file system.
    file_id: u64,
}

impl LocalStore {
    /// The directory of an object's named attributes.
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
        // Whether there can be any is known only by asking for one, be it there or not.
        xattr::size(node.fd(), xattr::SOME_NAME)?;
        let handle = self.sealer.seal(&Parts { facet: Facet::AttributeDirectory, ..parts });
        Ok(Object { handle, attributes: self.directory_attributes(&handle, &found) })
    }

    /// The attributes of an attribute directory whose object is as `found` says.
    pub(super) fn directory_attributes(
        &self,
        handle: &FileHandle,
        found: &Attributes,
    ) -> Attributes {
        Attributes {
            kind: ObjectType::AttributeDirectory,
            // Who may read its entries may search it.
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

    /// The attributes of the named attribute with this number.
    pub(super) fn attribute_attributes(&self, node: &Arc<Node>, number: u64) -> Result<Attributes> {
        self.attribute_numbered(node, number)?.attributes(&self.live_status(node)?.attributes)
    }

    /// Whoever may neither read nor write an object has no business with its attributes.
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

    /// Finds the name that a handle has only the number of.
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

    /// Opens the named attribute with this number.
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

    fn check_attribute_rights(
        &self,
        who: &Credentials,
        node: &Node,
        access: ShareAccess,
    ) -> Result<Attributes> {
        let found = self.live_status(node)?.attributes;
        let acl = self.acl_for(who, node, &found)?;
        check_rights(who, Guard::new(&found, acl.as_ref()), access)?;
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

    /// OPEN with creation in an attribute directory. A new attribute has no mode or times
    /// of its own; those asked for are passed over.
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
            // There is no place for the verifier.
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

    /// Sets the size of a named attribute, which is all of it that can be set.
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
            // As an open file, of which there is one at a time: changes take turns.
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

    /// Renames within one attribute directory: the value is copied and the old name goes
    /// then, so that a crash between leaves both.
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
            // An open attribute is its name; what was written to it must get there first.
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

    /// Lists an attribute directory. Cookies are made of the names, and entries come in
    /// their order: it stays the same while others come and go.
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
            // What no client could ask for has no place in its listing.
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

    /// The object of an attribute directory, for the calls that work in one.
    pub(super) fn in_attributes(&self, handle: &FileHandle) -> Result<Option<Arc<Node>>> {
        match self.resolve(handle)? {
            Target::Attributes(node) => Ok(Some(node)),
            Target::Attribute(..) => Err(StoreError::NotDirectory),
            Target::VirtualRoot | Target::Node(_) => Ok(None),
        }
    }
}

impl Attribute {
    /// `Stale` if it is gone.
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
    /// A write reads the whole value and sets it anew: one after the other.
    turn: Mutex<()>,
}

impl AttributeFile {
    fn fd(&self) -> BorrowedFd<'_> {
        self.attribute.node.fd()
    }

    fn value(&self) -> Result<Vec<u8>> {
        xattr::get(self.fd(), &self.attribute.name)?.ok_or(StoreError::Stale)
    }

    /// Changes the value; nobody makes an attribute again that was removed meanwhile.
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
        // No call syncs the attribute without the rest.
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

/// A size that a value may have.
fn bounded(size: u64) -> Result<usize> {
    let size = usize::try_from(size).map_err(|_| StoreError::TooBig)?;
    if size > xattr::VALUE_BYTES_MAX { Err(StoreError::TooBig) } else { Ok(size) }
}

/// Linux has 255 bytes for a name, prefix included.
const ATTRIBUTE_NAME_BYTES_MAX: usize = 255 - xattr::USER_PREFIX.len();
/// First cookie that the protocol leaves to us.
const COOKIE_MIN: u64 = 3;
