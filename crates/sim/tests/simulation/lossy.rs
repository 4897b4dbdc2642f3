//! A store that loses one write.
//!
//! Invariant: otherwise it behaves like the store that it wraps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dafs_memory::Memory;
use dafs_store::{
    Altered, AttributeChanges, Attributes, Created, File, FileKey, ListPage, ListRequest, NewNode,
    Object, Removed, Renamed, Result, Store,
};
use dafs_types::{
    AccessMask, ChangeInfo, CreateMode, Credentials, FileHandle, FileSystemAttributes, ShareAccess,
};

/// A store that loses one write.
pub(crate) struct LossyStore {
    inner: Arc<dyn Store>,
    fate: Arc<Fate>,
}

struct Fate {
    /// The number of writes before the lost one.
    left: AtomicU64,
    is_lost: Arc<AtomicBool>,
}

impl LossyStore {
    /// Loses the write after `skip` others.
    pub(crate) fn new(inner: Arc<dyn Store>, skip: u64) -> Self {
        let fate = Fate { left: AtomicU64::new(skip), is_lost: Arc::default() };
        Self { inner, fate: Arc::new(fate) }
    }

    /// Returns a flag that is set when the write was lost.
    pub(crate) fn lost(&self) -> Arc<AtomicBool> {
        self.fate.is_lost.clone()
    }

    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(LossyFile { inner, fate: self.fate.clone() })
    }
}

struct LossyFile {
    inner: Arc<dyn File>,
    fate: Arc<Fate>,
}

impl File for LossyFile {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn handle(&self) -> FileHandle {
        self.inner.handle()
    }

    fn read_at(&self, memory: &Memory, at: usize, length: usize, offset: u64) -> Result<usize> {
        self.inner.read_at(memory, at, length, offset)
    }

    fn write_at(&self, memory: &Memory, at: usize, length: usize, offset: u64) -> Result<()> {
        if self.fate.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.fate.is_lost.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.write_at(memory, at, length, offset)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.inner.sync(data_only)
    }

    fn attributes(&self) -> Result<Attributes> {
        self.inner.attributes()
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.inner.set_size(size)
    }
}

impl Store for LossyStore {
    fn root(&self, who: &Credentials) -> Result<Object> {
        self.inner.root(who)
    }

    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object> {
        self.inner.lookup(who, directory, name)
    }

    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object> {
        self.inner.lookup_parent(who, directory)
    }

    fn attributes(&self, who: &Credentials, handle: &FileHandle) -> Result<Attributes> {
        self.inner.attributes(who, handle)
    }

    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered> {
        self.inner.set_attributes(who, handle, changes)
    }

    fn fs_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        self.inner.fs_attributes(who, handle)
    }

    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask> {
        self.inner.access(who, handle, wanted)
    }

    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        self.inner.open(who, handle, access).map(|file| self.wrap(file))
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
        let (created, file) =
            self.inner.create_file(who, directory, name, mode, changes, access)?;
        Ok((created, self.wrap(file)))
    }

    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        let (object, file) = self.inner.create_unlinked(who, directory, changes)?;
        Ok((object, self.wrap(file)))
    }

    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        self.inner.create_node(who, directory, name, node, changes)
    }

    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo> {
        self.inner.link(who, source, directory, name)
    }

    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed> {
        self.inner.remove(who, directory, name)
    }

    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed> {
        self.inner.rename(who, source, old_name, target, new_name)
    }

    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        self.inner.readdir(who, directory, request)
    }

    fn sync(&self, handle: &FileHandle) -> Result<()> {
        self.inner.sync(handle)
    }

    fn readlink(&self, who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>> {
        self.inner.readlink(who, handle)
    }
}
