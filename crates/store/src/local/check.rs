//! The checks that every call on local directories makes first.
//!
//! Invariant: permission is decided before the first change, from the object's permission bits and
//! access control list and from the caller's identity. The server's own permissions never replace
//! the caller's.

use std::sync::Arc;

use dafs_types::permission::{self, EXECUTE, WRITE};
use dafs_types::{ChangeInfo, Credentials, FileHandle, ObjectType, ShareAccess};

use super::acting::Acting;
use super::file::LocalFile;
use super::node::{Node, Target};
use super::{LocalStore, extras, sys};
use crate::acl::PosixAcl;
use crate::attributes::{Attributes, Bits};
use crate::change::{self, Clocks};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};
use crate::name;
use crate::rules::{Guard, check_open};

/// An entry that the caller wants to change, and its directory, in which the caller may change
/// entries.
pub(super) struct Entry {
    pub parent: Arc<Node>,
    pub before: Attributes,
    /// The readings of the clocks just before the change of the directory.
    pub begun: Clocks,
    pub found: Option<(Arc<Node>, Attributes)>,
    /// True if only the owner of the entry's object may remove the entry, because the directory has
    /// the sticky bit.
    pub is_owners: bool,
}

impl LocalStore {
    /// Returns the access control list that decides about the caller's access to an object. Returns
    /// `None` for the superuser and the owner, because the mode contains their permissions.
    pub(super) fn acl_for(
        &self,
        who: &Credentials,
        node: &Node,
        found: impl Into<Bits>,
    ) -> Result<Option<PosixAcl>> {
        let found = found.into();
        if who.is_superuser() || who.uid() == found.uid || found.kind == ObjectType::SymbolicLink {
            return Ok(None);
        }
        extras::access_list(node.fd())
    }

    /// Returns true if the caller has the wanted permission bits on an object with these
    /// attributes.
    pub(super) fn allows(
        &self,
        who: &Credentials,
        node: &Node,
        found: impl Into<Bits>,
        wanted: u32,
    ) -> Result<bool> {
        let found = found.into();
        let acl = self.acl_for(who, node, found)?;
        Ok(Guard::new(found, acl.as_ref()).allows(who, wanted))
    }

    /// Returns the attributes of a directory on which the caller has the wanted permissions.
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
        if self.allows(who, node, &found, wanted)? { Ok(found) } else { Err(StoreError::Access) }
    }

    pub(super) fn check_writable(&self, node: &Node) -> Result<()> {
        if self.terms[node.export].read_only { Err(StoreError::ReadOnly) } else { Ok(()) }
    }

    /// Checks a directory that is about to be changed, like `check_directory`. Also returns the
    /// readings of the clocks before the change.
    pub(super) fn before_change(
        &self,
        who: &Credentials,
        node: &Node,
        wanted: u32,
    ) -> Result<(Attributes, Clocks)> {
        let begun = Clocks::read();
        Ok((self.check_directory(who, node, wanted)?, begun))
    }

    /// Returns the change information of a directory after a modification. The information is not
    /// atomic, because local processes may have changed the directory too. If the modification was
    /// made after `begun`, the change attribute is usually known without a query.
    pub(super) fn after_change(
        &self,
        node: &Node,
        before: &Attributes,
        begun: Option<Clocks>,
    ) -> Result<ChangeInfo> {
        if self.durable_names {
            sys::sync(node.fd(), node.kind)?;
        }
        // The files of another host are stamped by that host's clock, so always query those.
        let begun = begun.filter(|_| self.exports[node.export].is_local);
        let known = begun.and_then(|begun| change::shown_just_after(begun, Clocks::read()));
        let after = match known {
            Some(after) => after,
            None => sys::status(node.fd())?.attributes.change,
        };
        Ok(ChangeInfo { before: before.change, after, atomic: false })
    }

    /// Finds an entry in a directory, after checking that the caller may change the directory's
    /// entries.
    pub(super) fn entry(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<Entry> {
        name::check(name)?;
        let parent = self.resolve_node(directory)?;
        self.check_writable(&parent)?;
        let (before, begun) = self.before_change(who, &parent, EXECUTE | WRITE)?;
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
        let is_owners = permission::sticky_forbids(who, before.mode, before.uid, NOBODYS);
        Ok(Entry { parent, before, begun, found, is_owners })
    }

    /// Starts to act as the caller, so that the kernel compares the caller with the owner of an
    /// object whose name is removed. Returns `None` if the owner does not matter, or if this
    /// process cannot act for others.
    pub(super) fn act_for(&self, who: &Credentials, is_owners: bool) -> Option<Acting> {
        if is_owners && self.effective_uid == 0 { Acting::begin(who.uid()) } else { None }
    }

    /// Opens an object whose attributes the caller has just read.
    pub(super) fn open_found(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        found: impl Into<Bits>,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        let found = found.into();
        let acl = self.acl_for(who, node, found)?;
        check_open(who, Guard::new(found, acl.as_ref()), access)?;
        self.open_checked(who, node, access)
    }

    /// Opens an object after a check that the caller may open it.
    fn open_checked(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        if access.writes() {
            self.check_writable(node)?;
        }
        let file = self.file_for(node.handle, |key| LocalFile::new(key, node.clone()));
        file.allow(access.writes(), !who.is_superuser())?;
        Ok(file)
    }

    /// Opens a regular file that the mode does not let the caller open, if the caller is its owner,
    /// or may execute the file and wants to read it. See [`Store::open_stateless`].
    ///
    /// [`Store::open_stateless`]: crate::Store::open_stateless
    pub(super) fn open_as_owner(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        let who = &*self.entering(who, handle);
        let Target::Node(node) = self.resolve(handle)? else { return Err(StoreError::Access) };
        let found = self.live_look(&node)?;
        let bits = found.bits;
        let acl = self.acl_for(who, &node, bits)?;
        let may_run = Guard::new(bits, acl.as_ref()).allows(who, EXECUTE);
        if who.uid() != bits.uid && (access.writes() || !may_run) {
            return Err(StoreError::Access);
        }
        Ok((self.open_checked(who, &node, access)?, found.version))
    }

    /// Makes an object's own metadata stable.
    pub(super) fn sync_node(&self, node: &Node) -> Result<()> {
        let synced = match node.kind {
            ObjectType::Directory | ObjectType::Regular => sys::sync(node.fd(), node.kind),
            // Opening a pipe or a device has side effects; the other types cannot be opened.
            ObjectType::SymbolicLink
            | ObjectType::BlockDevice
            | ObjectType::CharacterDevice
            | ObjectType::Socket
            | ObjectType::Fifo
            | ObjectType::AttributeDirectory
            | ObjectType::NamedAttribute => Err(StoreError::Access),
        };
        match synced {
            // Sync the whole file system of an object that this process may not open.
            Err(StoreError::Access | StoreError::NotPermitted) => {
                Ok(rustix::fs::syncfs(self.mount_of(node.export, node.file_system)?)?)
            }
            synced => synced,
        }
    }
}

/// A user id that no user has. It stands for the owner of an entry that does not exist.
const NOBODYS: u32 = u32::MAX;
