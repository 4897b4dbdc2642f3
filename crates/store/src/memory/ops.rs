//! The [`Store`] calls on the tree in memory.
//!
//! Invariant: all checks come before the first change, under one lock.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, MutexGuard};

use dafs_ops::XattrMode;
use dafs_types::limits::{ACL_ENTRIES_MAX, LINK_TEXT_BYTES_MAX};
use dafs_types::permission::{self, EXECUTE, READ, WRITE};
use dafs_types::{
    AccessMask, ChangeInfo, CookieVerifier, CreateMode, Credentials, FileHandle,
    FileSystemAttributes, ObjectType, SetTime, ShareAccess,
};

use super::MemoryStore;
use super::file::MemoryFile;
use super::tree::{Content, Entries, Number, ROOT, Tree, lock};
use crate::acl::{self, Lists, PosixAcl};
use crate::attributes::{Altered, AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::file::File;
use crate::name;
use crate::rules::{
    ACL_KINDS, check_changes, check_extras, check_link, check_new, check_open,
    common_fs_attributes, set_group_left,
};
use crate::store::{
    Created, ExtraChanges, Extras, ExtrasWanted, ListPage, ListRequest, NewNode, Object, Removed,
    Renamed, Store,
};
use crate::xattrs::{
    XATTR_VALUE_BYTES_MAX, XattrListRequest, XattrPage, check_xattr_name, check_xattr_object,
};

impl MemoryStore {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    fn open_number(&self, tree: &mut Tree, number: Number) -> Result<Arc<MemoryFile>> {
        let inode = tree.get_mut(number)?;
        if let Some(file) = inode.open.upgrade() {
            return Ok(file);
        }
        let file = Arc::new(MemoryFile { tree: self.tree.clone(), number });
        inode.open = Arc::downgrade(&file);
        Ok(file)
    }
}

impl Tree {
    fn object(&self, number: Number) -> Result<Object> {
        let attributes = self.get(number)?.attributes;
        Ok(Object { handle: Self::handle(number), attributes })
    }

    /// Returns the number of a directory on which the caller has the wanted permissions.
    fn directory(&self, who: &Credentials, handle: &FileHandle, wanted: u32) -> Result<Number> {
        let number = self.resolve(handle)?;
        let found = self.get(number)?;
        if found.attributes.kind != ObjectType::Directory {
            return Err(StoreError::NotDirectory);
        }
        if !found.guard().allows(who, wanted) {
            return Err(StoreError::Access);
        }
        Ok(number)
    }

    /// Returns the number of an object, after checking that the caller has this permission for its
    /// extended attributes.
    fn xattr_object(&self, who: &Credentials, handle: &FileHandle, wanted: u32) -> Result<Number> {
        let number = self.resolve(handle)?;
        let found = self.get(number)?;
        if !found.guard().allows(who, wanted) {
            return Err(StoreError::Access);
        }
        check_xattr_object(who, (&found.attributes).into(), wanted == WRITE)?;
        Ok(number)
    }

    /// Returns a directory in which the caller may change entries, and the object with this name.
    fn entry(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        name: &[u8],
    ) -> Result<(Number, Option<Number>)> {
        name::check(name)?;
        let parent = self.directory(who, handle, EXECUTE | WRITE)?;
        let found = self.entries(parent)?.get(name);
        if let Some(number) = found {
            let (directory, entry) = (self.get(parent)?.attributes, self.get(number)?.attributes);
            if permission::sticky_forbids(who, directory.mode, directory.uid, entry.uid) {
                return Err(StoreError::NotPermitted);
            }
        }
        Ok((parent, found))
    }

    /// Changes the entries of a directory with a closure, and returns the directory's change
    /// information.
    fn change(
        &mut self,
        directory: Number,
        change: impl FnOnce(&mut Entries),
    ) -> Result<ChangeInfo> {
        let before = self.get(directory)?.attributes.change;
        change(self.entries_mut(directory)?);
        self.touch(directory, true);
        Ok(ChangeInfo { before, after: self.get(directory)?.attributes.change, atomic: true })
    }

    /// Removes one link of an object. Returns true if that was the last link.
    fn unlink(&mut self, number: Number) -> Result<bool> {
        let inode = self.get_mut(number)?;
        let is_directory = inode.attributes.kind == ObjectType::Directory;
        let count = &mut inode.attributes.link_count;
        *count = if is_directory { 0 } else { *count - 1 };
        let was_last = *count == 0;
        self.touch(number, false);
        self.drop_if_unused(number);
        Ok(was_last)
    }

    fn apply(&mut self, number: Number, changes: &AttributeChanges) -> Result<()> {
        if let Some(size) = changes.size {
            self.resize(number, size)?;
            self.touch(number, true);
        }
        let now = self.now();
        let time = |set: SetTime| match set {
            SetTime::Server => now,
            SetTime::Client(time) => time,
        };
        let inode = self.get_mut(number)?;
        if let (Some(mode), Some(list)) = (changes.mode, &mut inode.acl) {
            list.set_mode(mode);
        }
        let found = &mut inode.attributes;
        found.mode = changes.mode.map_or(found.mode, |mode| mode & 0o7777);
        found.uid = changes.uid.unwrap_or(found.uid);
        found.gid = changes.gid.unwrap_or(found.gid);
        found.time_access = changes.time_access.map_or(found.time_access, time);
        found.time_modify = changes.time_modify.map_or(found.time_modify, time);
        self.touch(number, false);
        Ok(())
    }

    /// Creates an object without a name that belongs to the caller.
    fn make(
        &mut self,
        who: &Credentials,
        parent: Number,
        kind: ObjectType,
        content: Content,
        changes: &AttributeChanges,
    ) -> Result<Number> {
        check_new(who, changes)?;
        self.has_room()?;
        let inode = self.get(parent)?;
        let directory = inode.attributes;
        let default_acl = inode.default_acl.clone();
        let default_acl = default_acl.filter(|_| kind != ObjectType::SymbolicLink);
        let inherits = directory.mode & 0o2000 != 0;
        let uid = changes.uid.unwrap_or(who.uid());
        let gid = changes.gid.unwrap_or(if inherits { directory.gid } else { who.gid() });
        let is_directory = kind == ObjectType::Directory;
        let default_mode = match kind {
            // Without a requested mode, the default access list limits the mode.
            ObjectType::Directory if default_acl.is_some() => 0o777,
            ObjectType::Directory => 0o700,
            ObjectType::SymbolicLink => 0o777,
            _ if default_acl.is_some() => 0o666,
            _ => 0o600,
        };
        let wanted = changes.mode.filter(|_| kind != ObjectType::SymbolicLink);
        let mut mode = wanted.unwrap_or(default_mode) & 0o7777;
        if is_directory && inherits {
            mode |= 0o2000;
        } else if !is_directory && !who.is_superuser() && !who.in_group(gid) {
            mode &= !0o2000;
        }
        let acl = default_acl.as_ref().map(|list| list.inherited(mode));
        mode = acl.as_ref().map_or(mode, |list| mode & 0o7000 | list.mode());
        let number = self.insert(kind, content, mode, (uid, gid));
        let inode = self.get_mut(number)?;
        inode.acl = acl.filter(|list| !list.is_mode());
        inode.default_acl = default_acl.filter(|_| is_directory);
        let size = changes.size.filter(|_| kind == ObjectType::Regular);
        let rest = AttributeChanges { mode: None, uid: None, gid: None, size, ..*changes };
        if let Err(error) = self.apply(number, &rest) {
            self.inodes.remove(&number);
            return Err(error);
        }
        Ok(number)
    }

    /// Returns true if `inner` is `outer` or is beneath it.
    fn is_beneath(&self, inner: Number, outer: Number) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.get(at).map(|inode| &inode.content) {
                Ok(Content::Directory { parent, .. }) if at != ROOT => at = *parent,
                _ => return false,
            }
        }
    }
}

impl Store for MemoryStore {
    fn root(&self, _who: &Credentials) -> Result<Object> {
        self.tree().object(ROOT)
    }

    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object> {
        name::check(name)?;
        let tree = self.tree();
        let parent = tree.directory(who, directory, EXECUTE)?;
        tree.object(tree.entries(parent)?.get(name).ok_or(StoreError::NotFound)?)
    }

    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object> {
        let tree = self.tree();
        let number = tree.directory(who, directory, EXECUTE)?;
        match &tree.get(number)?.content {
            Content::Directory { parent, .. } if number != ROOT => tree.object(*parent),
            _ => Err(StoreError::NotFound),
        }
    }

    fn attributes(&self, _who: &Credentials, handle: &FileHandle) -> Result<Attributes> {
        let tree = self.tree();
        Ok(tree.get(tree.resolve(handle)?)?.attributes)
    }

    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered> {
        let mut tree = self.tree();
        let number = tree.resolve(handle)?;
        let before = tree.get(number)?.attributes;
        let allowed = check_changes(who, tree.get(number)?.guard(), changes)?;
        tree.apply(number, &allowed)?;
        Ok(Altered { before, after: tree.get(number)?.attributes })
    }

    fn extras(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: ExtrasWanted,
    ) -> Result<Extras> {
        let tree = self.tree();
        let found = tree.get(tree.resolve(handle)?)?;
        let kind = found.attributes.kind;
        let acl = (wanted.acl && kind != ObjectType::SymbolicLink).then(|| {
            let mode = PosixAcl::of_mode(found.attributes.mode);
            let access = found.acl.clone().unwrap_or(mode);
            let lists = Lists { access, default: found.default_acl.clone() };
            acl::to_entries(&lists, kind == ObjectType::Directory)
        });
        let shows_type = wanted.mime_type && found.guard().allows(who, READ);
        Ok(Extras {
            named_attributes: wanted.named_attributes.then_some(false),
            acl: acl.filter(|list| list.len() <= ACL_ENTRIES_MAX),
            mime_type: found.mime_type.clone().filter(|_| shows_type),
        })
    }

    fn set_extras(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &ExtraChanges,
    ) -> Result<()> {
        let mut tree = self.tree();
        let number = tree.resolve(handle)?;
        let guard = tree.get(number)?.guard();
        let lists = check_extras(who, guard, changes)?;
        let inode = tree.get_mut(number)?;
        if let Some(lists) = lists {
            let set_group = set_group_left(who, &inode.attributes);
            inode.attributes.mode =
                inode.attributes.mode & 0o5000 | set_group | lists.access.mode();
            inode.acl = Some(lists.access).filter(|list| !list.is_mode());
            inode.default_acl = lists.default;
        }
        if let Some(text) = &changes.mime_type {
            inode.mime_type = Some(text.clone()).filter(|text| !text.is_empty());
        }
        tree.touch(number, false);
        Ok(())
    }

    fn xattr(&self, who: &Credentials, handle: &FileHandle, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let tree = self.tree();
        let number = tree.xattr_object(who, handle, READ)?;
        tree.get(number)?.xattrs.get(name).cloned().ok_or(StoreError::NoXattr)
    }

    fn set_xattr(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Altered> {
        check_xattr_name(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(StoreError::XattrTooBig);
        }
        let mut tree = self.tree();
        let number = tree.xattr_object(who, handle, WRITE)?;
        let before = tree.get(number)?.attributes;
        match (mode, tree.get(number)?.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(StoreError::Exists),
            (XattrMode::Replace, false) => return Err(StoreError::NoXattr),
            (XattrMode::Either | XattrMode::Create | XattrMode::Replace, _) => {}
        }
        tree.put_xattr(number, name, Some(value))?;
        Ok(Altered { before, after: tree.get(number)?.attributes })
    }

    fn remove_xattr(&self, who: &Credentials, handle: &FileHandle, name: &[u8]) -> Result<Altered> {
        check_xattr_name(name)?;
        let mut tree = self.tree();
        let number = tree.xattr_object(who, handle, WRITE)?;
        let before = tree.get(number)?.attributes;
        if !tree.get(number)?.xattrs.contains_key(name) {
            return Err(StoreError::NoXattr);
        }
        tree.put_xattr(number, name, None)?;
        Ok(Altered { before, after: tree.get(number)?.attributes })
    }

    fn xattrs(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        request: &XattrListRequest,
    ) -> Result<XattrPage> {
        let tree = self.tree();
        let number = tree.xattr_object(who, handle, READ)?;
        let names = tree.get(number)?.xattrs.keys();
        // The hash depends on the name alone, so that lists can continue after changes.
        let cookie = |name: &[u8]| BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        request.page(names.map(|name| (cookie(name).max(1), name.clone())))
    }

    fn fs_attributes(
        &self,
        _who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        let tree = self.tree();
        tree.resolve(handle)?;
        let files_free = tree.limits.object_count_max.saturating_sub(tree.inodes.len()) as u64;
        let space_free = tree.limits.bytes_max - tree.bytes;
        Ok(FileSystemAttributes {
            files_available: Some(files_free),
            files_free: Some(files_free),
            files_total: Some(tree.limits.object_count_max as u64),
            space_available: Some(space_free),
            space_free: Some(space_free),
            space_total: Some(tree.limits.bytes_max),
            acl_support: Some(ACL_KINDS),
            ..common_fs_attributes(handle)
        })
    }

    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask> {
        let tree = self.tree();
        let found = tree.get(tree.resolve(handle)?)?;
        Ok(found.guard().access(who) & wanted)
    }

    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        let mut tree = self.tree();
        let number = tree.resolve(handle)?;
        check_open(who, tree.get(number)?.guard(), access)?;
        Ok(self.open_number(&mut tree, number)?)
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
        name::check(name)?;
        let mut tree = self.tree();
        let parent = tree.directory(who, directory, EXECUTE)?;
        let before = tree.get(parent)?.attributes.change;
        if let Some(number) = tree.entries(parent)?.get(name) {
            take_existing(&mut tree, who, number, mode, changes, access)?;
            let change = ChangeInfo { before, after: before, atomic: true };
            let created = Created { object: tree.object(number)?, is_new: false, change };
            return Ok((created, self.open_number(&mut tree, number)?));
        }
        if mode == CreateMode::NoCreate {
            return Err(StoreError::NotFound);
        }
        tree.directory(who, directory, EXECUTE | WRITE)?;
        let content = Content::Data(Vec::new());
        let number = tree.make(who, parent, ObjectType::Regular, content, changes)?;
        if let CreateMode::Exclusive(verifier) = mode {
            tree.get_mut(number)?.verifier = Some(verifier);
        }
        let change = tree.change(parent, |entries| entries.insert(name, number))?;
        let created = Created { object: tree.object(number)?, is_new: true, change };
        Ok((created, self.open_number(&mut tree, number)?))
    }

    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        let mut tree = self.tree();
        let parent = tree.directory(who, directory, EXECUTE | WRITE)?;
        let content = Content::Data(Vec::new());
        let number = tree.make(who, parent, ObjectType::Regular, content, changes)?;
        tree.get_mut(number)?.attributes.link_count = 0;
        let file = self.open_number(&mut tree, number)?;
        Ok((tree.object(number)?, file))
    }

    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        let mut tree = self.tree();
        let (parent, found) = tree.entry(who, directory, name)?;
        if found.is_some() {
            return Err(StoreError::Exists);
        }
        let (kind, content, device) = describe(who, parent, node)?;
        let number = tree.make(who, parent, kind, content, changes)?;
        tree.get_mut(number)?.attributes.device = device;
        if kind == ObjectType::Directory {
            tree.get_mut(parent)?.attributes.link_count += 1;
        }
        let change = tree.change(parent, |entries| entries.insert(name, number))?;
        Ok(Created { object: tree.object(number)?, is_new: true, change })
    }

    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo> {
        name::check(name)?;
        let mut tree = self.tree();
        let number = tree.resolve(source)?;
        check_link(who, tree.get(number)?.guard())?;
        let parent = tree.directory(who, directory, EXECUTE | WRITE)?;
        if tree.entries(parent)?.get(name).is_some() {
            return Err(StoreError::Exists);
        }
        tree.get_mut(number)?.attributes.link_count += 1;
        tree.touch(number, false);
        tree.change(parent, |entries| entries.insert(name, number))
    }

    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed> {
        let mut tree = self.tree();
        let (parent, found) = tree.entry(who, directory, name)?;
        let number = found.ok_or(StoreError::NotFound)?;
        let is_directory = tree.get(number)?.attributes.kind == ObjectType::Directory;
        if is_directory {
            if !tree.entries(number)?.is_empty() {
                return Err(StoreError::NotEmpty);
            }
            tree.get_mut(parent)?.attributes.link_count -= 1;
        }
        let change = tree.change(parent, |entries| entries.remove(name))?;
        let was_last = tree.unlink(number)?;
        Ok(Removed { handle: Tree::handle(number), was_last, held: 0, change })
    }

    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed> {
        let mut tree = self.tree();
        let (from, moved) = tree.entry(who, source, old_name)?;
        let moved = moved.ok_or(StoreError::NotFound)?;
        let (to, present) = tree.entry(who, target, new_name)?;
        if present == Some(moved) {
            // If both names belong to one object, a rename does nothing (POSIX).
            let change = |tree: &mut Tree, directory| tree.change(directory, |_| {});
            let (source, target) = (change(&mut tree, from)?, change(&mut tree, to)?);
            return Ok(Renamed { source, target, replaced: None });
        }
        let is_directory = tree.get(moved)?.attributes.kind == ObjectType::Directory;
        if is_directory && tree.is_beneath(to, moved) {
            return Err(StoreError::Invalid);
        }
        if is_directory && from != to {
            tree.directory(who, &Tree::handle(moved), WRITE)?;
        }
        if let Some(victim) = present {
            check_replaced(&tree, is_directory, victim)?;
        }
        let source = tree.change(from, |entries| entries.remove(old_name))?;
        let target = tree.change(to, |entries| entries.insert(new_name, moved))?;
        if is_directory {
            tree.get_mut(from)?.attributes.link_count -= 1;
            tree.get_mut(to)?.attributes.link_count += 1;
            if let Content::Directory { parent, .. } = &mut tree.get_mut(moved)?.content {
                *parent = to;
            }
        }
        tree.touch(moved, false);
        let mut replaced = None;
        if let Some(victim) = present {
            if is_directory {
                tree.get_mut(to)?.attributes.link_count -= 1;
            }
            replaced = tree.unlink(victim)?.then(|| Tree::handle(victim));
        }
        Ok(Renamed { source, target, replaced })
    }

    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        let tree = self.tree();
        let number = tree.directory(who, directory, READ)?;
        // A caller that may not search a directory gets no attributes of its objects.
        let may_search = tree.get(number)?.guard().allows(who, EXECUTE);
        let verifier = CookieVerifier(number.to_le_bytes());
        let entries = &tree.entries(number)?.by_cookie;
        request.page(
            verifier,
            |behind| {
                entries.range(behind).map(|(cookie, (name, number))| (*cookie, &**name, *number))
            },
            |number| if may_search { tree.object(number).ok() } else { None },
        )
    }

    fn sync(&self, handle: &FileHandle) -> Result<()> {
        // There is no stable storage, so the only possible error is an invalid handle.
        self.tree().resolve(handle).map(|_| ())
    }

    fn readlink(&self, _who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>> {
        let tree = self.tree();
        match &tree.get(tree.resolve(handle)?)?.content {
            Content::Text(text) => Ok(text.clone()),
            Content::Data(_) | Content::Directory { .. } | Content::Nothing => {
                Err(StoreError::Invalid)
            }
        }
    }
}

/// Handles an OPEN with creation for an object that already exists.
fn take_existing(
    tree: &mut Tree,
    who: &Credentials,
    number: Number,
    mode: CreateMode,
    changes: &AttributeChanges,
    access: ShareAccess,
) -> Result<()> {
    let found = tree.get(number)?;
    match mode {
        CreateMode::Guarded => return Err(StoreError::Exists),
        CreateMode::Exclusive(verifier) if found.verifier != Some(verifier) => {
            return Err(StoreError::Exists);
        }
        CreateMode::NoCreate | CreateMode::Unchecked | CreateMode::Exclusive(_) => {}
    }
    check_open(who, found.guard(), access)?;
    if mode != CreateMode::Unchecked || changes.size != Some(0) {
        return Ok(());
    }
    if !found.guard().allows(who, WRITE) {
        return Err(StoreError::Access);
    }
    let cut = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
    tree.apply(number, &cut)
}

/// Returns the content and the attributes of a new object that is not a regular file.
fn describe(
    who: &Credentials,
    parent: Number,
    node: NewNode<'_>,
) -> Result<(ObjectType, Content, dafs_types::attributes::DeviceNumber)> {
    let none = dafs_types::attributes::DeviceNumber::default();
    let device = |kind, device| {
        if who.is_superuser() {
            Ok((kind, Content::Nothing, device))
        } else {
            Err(StoreError::NotPermitted)
        }
    };
    match node {
        NewNode::Directory => {
            let content = Content::Directory { parent, entries: Entries::default() };
            Ok((ObjectType::Directory, content, none))
        }
        NewNode::SymbolicLink(text) if text.is_empty() || text.contains(&0) => {
            Err(StoreError::Invalid)
        }
        NewNode::SymbolicLink(text) if text.len() > LINK_TEXT_BYTES_MAX => {
            Err(StoreError::NameTooLong)
        }
        NewNode::SymbolicLink(text) => {
            Ok((ObjectType::SymbolicLink, Content::Text(text.to_vec()), none))
        }
        NewNode::Fifo => Ok((ObjectType::Fifo, Content::Nothing, none)),
        NewNode::Socket => Ok((ObjectType::Socket, Content::Nothing, none)),
        NewNode::BlockDevice(number) => device(ObjectType::BlockDevice, number),
        NewNode::CharacterDevice(number) => device(ObjectType::CharacterDevice, number),
    }
}

/// Checks that a rename may replace this object, which has the new name.
fn check_replaced(tree: &Tree, by_directory: bool, victim: Number) -> Result<()> {
    let is_directory = tree.get(victim)?.attributes.kind == ObjectType::Directory;
    match (by_directory, is_directory) {
        (true, false) => Err(StoreError::NotDirectory),
        (false, true) => Err(StoreError::IsDirectory),
        (true, true) if !tree.entries(victim)?.is_empty() => Err(StoreError::NotEmpty),
        (true, true) | (false, false) => Ok(()),
    }
}
