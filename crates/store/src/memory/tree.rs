//! Objects, and the names that lead to them.
//!
//! Invariant: an object is in the table as long as it has a link or an open file.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use dafs_types::attributes::DeviceNumber;
use dafs_types::{FileHandle, FsHandle, ObjectType, Timestamp, Verifier};

use super::MemoryLimits;
use super::file::MemoryFile;
use crate::acl::PosixAcl;
use crate::attributes::Attributes;
use crate::error::{Result, StoreError};
use crate::rules::Guard;
use crate::store::FIRST_COOKIE;

/// The number of an object, which is never reused.
pub(super) type Number = u64;

/// The whole tree.
pub(super) struct Tree {
    pub limits: MemoryLimits,
    pub inodes: HashMap<Number, Inode>,
    pub bytes: u64,
    next: Number,
    clock: u64,
}

/// An object of the tree, such as a file or a directory.
pub(super) struct Inode {
    pub attributes: Attributes,
    pub content: Content,
    pub open: Weak<MemoryFile>,
    /// The access control list, or `None` if the mode expresses all of it.
    pub acl: Option<PosixAcl>,
    /// The default list for new objects in this directory.
    pub default_acl: Option<PosixAcl>,
    /// The MIME type of the object's content.
    pub mime_type: Option<String>,
    /// The extended attributes of users.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The verifier of the exclusive creation that made the object. `None` if the object was made
    /// in another way.
    pub verifier: Option<Verifier>,
}

impl Inode {
    /// Returns the attributes that decide about access to the object.
    pub(super) fn guard(&self) -> Guard<'_> {
        Guard::new(&self.attributes, self.acl.as_ref())
    }

    /// Returns the number of bytes of all extended attributes.
    fn xattr_bytes(&self) -> u64 {
        self.xattrs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
    }
}

/// The content of an object.
pub(super) enum Content {
    Data(Vec<u8>),
    Directory { parent: Number, entries: Entries },
    Text(Vec<u8>),
    Nothing,
}

/// The entries of a directory, sorted by their cookies. Cookies are never reused.
#[derive(Default)]
pub(super) struct Entries {
    pub by_cookie: BTreeMap<u64, (Vec<u8>, Number)>,
    by_name: HashMap<Vec<u8>, u64>,
    next_cookie: u64,
}

impl Entries {
    pub(super) fn get(&self, name: &[u8]) -> Option<Number> {
        self.by_name.get(name).map(|cookie| self.by_cookie[cookie].1)
    }

    pub(super) fn insert(&mut self, name: &[u8], number: Number) {
        self.remove(name);
        let cookie = self.next_cookie.max(FIRST_COOKIE);
        self.next_cookie = cookie + 1;
        self.by_name.insert(name.to_vec(), cookie);
        self.by_cookie.insert(cookie, (name.to_vec(), number));
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(cookie) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl Tree {
    pub(super) fn new(limits: MemoryLimits, owner: (u32, u32)) -> Self {
        let mut tree = Self { limits, inodes: HashMap::new(), bytes: 0, next: ROOT, clock: 0 };
        let content = Content::Directory { parent: ROOT, entries: Entries::default() };
        tree.insert(ObjectType::Directory, content, 0o755, owner);
        tree
    }

    /// Returns a time stamp that is later than all stamps returned before.
    pub(super) fn now(&mut self) -> Timestamp {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.clock = (real.as_nanos() as u64).max(self.clock + 1);
        let (seconds, rest) = (self.clock / SECOND, self.clock % SECOND);
        Timestamp { seconds: seconds as i64, nanoseconds: rest as u32 }
    }

    /// Adds an object without a name. The caller has checked the limits.
    pub(super) fn insert(
        &mut self,
        kind: ObjectType,
        content: Content,
        mode: u32,
        owner: (u32, u32),
    ) -> Number {
        let number = self.next;
        self.next += 1;
        let now = self.now();
        let size = if let Content::Text(text) = &content { text.len() as u64 } else { 0 };
        let attributes = Attributes {
            kind,
            mode,
            uid: owner.0,
            gid: owner.1,
            link_count: if kind == ObjectType::Directory { 2 } else { 1 },
            change: self.clock,
            size,
            file_id: number,
            space_used: 0,
            time_access: now,
            time_create: Some(now),
            time_metadata: now,
            time_modify: now,
            device: DeviceNumber::default(),
        };
        let inode = Inode {
            attributes,
            content,
            open: Weak::new(),
            acl: None,
            default_acl: None,
            mime_type: None,
            xattrs: BTreeMap::new(),
            verifier: None,
        };
        self.inodes.insert(number, inode);
        number
    }

    pub(super) fn has_room(&self) -> Result<()> {
        let is_full = self.inodes.len() >= self.limits.object_count_max;
        if is_full { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    pub(super) fn get(&self, number: Number) -> Result<&Inode> {
        self.inodes.get(&number).ok_or(StoreError::Stale)
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or(StoreError::Stale)
    }

    pub(super) fn entries(&self, number: Number) -> Result<&Entries> {
        match &self.get(number)?.content {
            Content::Directory { entries, .. } => Ok(entries),
            Content::Data(_) | Content::Text(_) | Content::Nothing => Err(StoreError::NotDirectory),
        }
    }

    pub(super) fn entries_mut(&mut self, number: Number) -> Result<&mut Entries> {
        match &mut self.get_mut(number)?.content {
            Content::Directory { entries, .. } => Ok(entries),
            Content::Data(_) | Content::Text(_) | Content::Nothing => Err(StoreError::NotDirectory),
        }
    }

    /// Sets the time stamps for a change of attributes and, if `data` is true, also for a change of
    /// data.
    pub(super) fn touch(&mut self, number: Number, data: bool) {
        let now = self.now();
        let change = self.clock;
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.attributes.time_metadata = now;
            inode.attributes.change = change;
            if data {
                inode.attributes.time_modify = now;
            }
        }
    }

    /// Removes an object from the table if it has neither links nor opens.
    pub(super) fn drop_if_unused(&mut self, number: Number) {
        let is_unused = self.inodes.get(&number).is_some_and(|inode| {
            inode.attributes.link_count == 0 && inode.open.strong_count() == 0
        });
        if is_unused && let Some(inode) = self.inodes.remove(&number) {
            self.bytes -= inode.xattr_bytes();
            if let Content::Data(data) = inode.content {
                self.bytes -= data.len() as u64;
            }
        }
    }

    /// Sets the size of a file, within the limits.
    pub(super) fn resize(&mut self, number: Number, size: u64) -> Result<()> {
        let bytes_max = self.limits.bytes_max;
        let bytes = self.bytes;
        let inode = self.get_mut(number)?;
        let Content::Data(data) = &mut inode.content else { return Err(StoreError::Invalid) };
        let total = bytes - data.len() as u64 + size.min(u64::MAX / 2);
        if total > bytes_max {
            return Err(StoreError::NoSpace);
        }
        data.resize(size as usize, 0);
        inode.attributes.size = size;
        inode.attributes.space_used = size;
        self.bytes = total;
        Ok(())
    }

    /// Sets or removes an extended attribute, within the limits.
    pub(super) fn put_xattr(
        &mut self,
        number: Number,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (bytes, bytes_max) = (self.bytes, self.limits.bytes_max);
        let inode = self.get_mut(number)?;
        let old = inode.xattrs.get(name).map_or(0, |old| (name.len() + old.len()) as u64);
        let new = value.map_or(0, |value| (name.len() + value.len()) as u64);
        let total = bytes - old + new;
        let is_full = inode.xattr_bytes() - old + new > XATTR_BYTES_MAX;
        if new > old && (total > bytes_max || is_full) {
            return Err(StoreError::NoSpace);
        }
        match value {
            Some(value) => inode.xattrs.insert(name.to_vec(), value.to_vec()),
            None => inode.xattrs.remove(name),
        };
        self.bytes = total;
        self.touch(number, false);
        Ok(())
    }

    pub(super) fn handle(number: Number) -> FileHandle {
        let mut id = [0; 48];
        id[..8].copy_from_slice(&number.to_le_bytes());
        FileHandle::new(FsHandle(*FS_NAME), id)
    }

    /// Returns the number of the object that a handle names. Fails if it no longer exists.
    pub(super) fn resolve(&self, handle: &FileHandle) -> Result<Number> {
        let id = handle.file_id();
        let is_ours = handle.fs().0 == *FS_NAME && id[8..] == [0; 40];
        let number = id[..8].try_into().map(u64::from_le_bytes).unwrap_or(0);
        if !is_ours || number < ROOT || number >= self.next {
            return Err(StoreError::BadHandle);
        }
        self.get(number).map(|_| number)
    }
}

/// Locks the tree, even after a panic of another thread, because every change to the tree is
/// complete before a call can panic.
pub(super) fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The maximum number of bytes of an object's extended attributes, names and values together.
const XATTR_BYTES_MAX: u64 = 256 << 10;
/// The number of the root directory.
pub(super) const ROOT: Number = 1;
const FS_NAME: &[u8; 16] = b"dafs-memory-tree";
const SECOND: u64 = 1_000_000_000;
