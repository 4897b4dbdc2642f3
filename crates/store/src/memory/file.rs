//! An open file of the memory store.
//!
//! Invariant: the object of an open file stays in the tree until its last open is closed.

use std::sync::{Arc, Mutex};

use dafs_memory::Memory;
use dafs_types::FileHandle;

use super::tree::{Content, Number, Tree, lock};
use crate::attributes::Attributes;
use crate::error::{Result, StoreError};
use crate::file::{File, FileKey};

/// An open file of the memory store; see the [module](self).
pub(super) struct MemoryFile {
    pub tree: Arc<Mutex<Tree>>,
    pub number: Number,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        lock(&self.tree).drop_if_unused(self.number);
    }
}

impl File for MemoryFile {
    fn key(&self) -> FileKey {
        FileKey(self.number)
    }

    fn handle(&self) -> FileHandle {
        Tree::handle(self.number)
    }

    fn read_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize> {
        let tree = lock(&self.tree);
        let Content::Data(data) = &tree.get(self.number)?.content else {
            return Err(StoreError::Invalid);
        };
        let start = usize::try_from(offset).map_or(data.len(), |offset| offset.min(data.len()));
        let end = start.saturating_add(length).min(data.len());
        memory.write(memory_offset, &data[start..end]);
        Ok(end - start)
    }

    fn write_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()> {
        let mut tree = lock(&self.tree);
        let end = offset.checked_add(length as u64).ok_or(StoreError::TooBig)?;
        if end > tree.get(self.number)?.attributes.size {
            tree.resize(self.number, end)?;
        }
        if let Content::Data(data) = &mut tree.get_mut(self.number)?.content {
            memory.read(memory_offset, &mut data[offset as usize..end as usize]);
        }
        tree.touch(self.number, true);
        Ok(())
    }

    fn sync(&self, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn attributes(&self) -> Result<Attributes> {
        Ok(lock(&self.tree).get(self.number)?.attributes)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let mut tree = lock(&self.tree);
        let end = offset.checked_add(length).ok_or(StoreError::TooBig)?;
        if end > tree.get(self.number)?.attributes.size {
            tree.resize(self.number, end)?;
        }
        tree.touch(self.number, true);
        Ok(())
    }

    fn deallocate(&self, offset: u64, length: u64) -> Result<()> {
        let mut tree = lock(&self.tree);
        if let Content::Data(data) = &mut tree.get_mut(self.number)?.content {
            let place =
                |offset| usize::try_from(offset).map_or(data.len(), |at| at.min(data.len()));
            let (start, end) = (place(offset), place(offset.saturating_add(length)));
            data[start..end].fill(0);
        }
        tree.touch(self.number, true);
        Ok(())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let mut tree = lock(&self.tree);
        tree.resize(self.number, size)?;
        tree.touch(self.number, true);
        Ok(())
    }
}
