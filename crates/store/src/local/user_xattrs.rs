//! The extended attributes of users, as single calls (RFC 8276).
//!
//! Invariant: the object's permissions apply, as they do to its named attributes: a caller that may
//! read the object may read and list its attributes, and a caller that may write it may change
//! them.

use std::sync::Arc;

use dafs_ops::XattrMode;
use dafs_types::{Credentials, FileHandle, ShareAccess};
use rustix::fs::XattrFlags;

use super::node::Node;
use super::{LocalStore, sys, xattr};
use crate::attributes::{Altered, Attributes};
use crate::error::{Result, StoreError};
use crate::xattrs::{XATTR_VALUE_BYTES_MAX, XattrListRequest, XattrPage, check_xattr_name};

impl LocalStore {
    pub(super) fn user_xattr(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let (node, _) = self.xattr_node(who, handle, ShareAccess::Read)?;
        xattr::get(node.fd(), &full_name(name))?.ok_or(StoreError::NoXattr)
    }

    pub(super) fn set_user_xattr(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> Result<Altered> {
        check_xattr_name(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(StoreError::XattrTooBig);
        }
        let flags = match mode {
            XattrMode::Either => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        let (node, before) = self.xattr_node(who, handle, ShareAccess::Write)?;
        match xattr::set(node.fd(), &full_name(name), value, flags) {
            Err(StoreError::NotFound) => Err(StoreError::NoXattr),
            Err(StoreError::TooBig) => Err(StoreError::XattrTooBig),
            Err(error) => Err(error),
            Ok(()) => self.xattr_altered(&node, before),
        }
    }

    pub(super) fn remove_user_xattr(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        name: &[u8],
    ) -> Result<Altered> {
        check_xattr_name(name)?;
        let (node, before) = self.xattr_node(who, handle, ShareAccess::Write)?;
        match xattr::remove(node.fd(), &full_name(name)) {
            Err(StoreError::NotFound) => Err(StoreError::NoXattr),
            Err(error) => Err(error),
            Ok(()) => self.xattr_altered(&node, before),
        }
    }

    pub(super) fn user_xattrs(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        request: &XattrListRequest,
    ) -> Result<XattrPage> {
        let (node, _) = self.xattr_node(who, handle, ShareAccess::Read)?;
        // A file system without attributes must not look like one whose objects have none.
        xattr::size(node.fd(), xattr::SOME_NAME)?;
        let names = xattr::user_names(node.fd())?.into_iter();
        let names = names.filter(|name| check_xattr_name(name).is_ok());
        // A cookie of 0 would be taken for the start of the list.
        request.page(names.map(|name| (self.sealer.name_number(&name).max(1), name)))
    }

    /// Returns the object of a handle, after checking that the caller has this access to its
    /// attributes.
    fn xattr_node(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<(Arc<Node>, Attributes)> {
        let node = self.resolve_node(handle)?;
        let found = self.check_attribute_rights(who, &node, access)?;
        Ok((node, found))
    }

    fn xattr_altered(&self, node: &Node, before: Attributes) -> Result<Altered> {
        if self.durable_names {
            sys::sync(node.fd(), node.kind)?;
        }
        Ok(Altered { before, after: sys::status(node.fd())?.attributes })
    }
}

/// Returns the name of an attribute in the file system.
fn full_name(name: &[u8]) -> Vec<u8> {
    [xattr::USER_PREFIX, name].concat()
}
