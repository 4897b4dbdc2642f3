//! An open file on the simulated disk, which can lose power.
//!
//! Invariant: an open file becomes stale when the process that opened it dies. As long as a file is
//! open, the disk keeps its contents, even if its last name has been removed.

use std::fs::File as SystemFile;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use dafs_memory::{Memory, Pages};
use dafs_store::{Attributes, File, FileKey, Result, StoreError};
use dafs_types::limits::FILE_OFFSET_MAX;
use dafs_types::{CloneSource, FileHandle};

use super::edit::Edit;
use super::fault::{FaultEffect, FaultOn, part_of};
use super::journal::Disk;
use super::lock;
use super::platter::BLOCK_BYTES;
use super::tree::{Change, Number};

/// An open file on a simulated disk.
pub(super) struct CrashFile {
    disk: Arc<Mutex<Disk>>,
    number: Number,
    epoch: u64,
}

impl CrashFile {
    /// Opens an object again. The caller holds the lock of `disk` and passes its guard as `locked`.
    pub(super) fn new(disk: &Arc<Mutex<Disk>>, locked: &mut Disk, number: Number) -> Arc<Self> {
        locked.open(number);
        Arc::new(Self { disk: disk.clone(), number, epoch: locked.epoch })
    }

    /// Locks the disk. Fails if the process that opened this file has died.
    fn live(&self) -> Result<MutexGuard<'_, Disk>> {
        let disk = lock(&self.disk);
        if disk.epoch == self.epoch { Ok(disk) } else { Err(StoreError::Stale) }
    }
}

impl Drop for CrashFile {
    fn drop(&mut self) {
        if let Ok(mut disk) = self.live() {
            disk.close(self.number);
        }
    }
}

impl File for CrashFile {
    fn key(&self) -> FileKey {
        FileKey(self.number)
    }

    fn handle(&self) -> FileHandle {
        Disk::handle(self.number)
    }

    fn read_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize> {
        let disk = self.live()?;
        let size = disk.volatile.attributes(self.number)?.size;
        let blocks = disk.volatile.blocks(self.number)?;
        let count = (length as u64).min(size.saturating_sub(offset)) as usize;
        for chunk in chunks(offset, count) {
            let at = memory_offset + chunk.done;
            match blocks.get(&chunk.index) {
                Some(block) => {
                    let bytes = disk.platter.read(*block);
                    memory.write(at, &bytes[chunk.within..][..chunk.length]);
                }
                None => memory.zero(at, chunk.length),
            }
        }
        Ok(count)
    }

    fn write_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()> {
        let mut disk = self.live()?;
        let fault = disk.strike(FaultOn::Write);
        let length = match fault {
            Some((FaultEffect::Before, error)) => return Err(error),
            Some((FaultEffect::Part(thousandths), _)) => part_of(length, thousandths),
            Some((FaultEffect::After, _)) | None => length,
        };
        disk.write(self.number, memory, memory_offset, length, offset)?;
        fault.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        let mut disk = self.live()?;
        let fault = disk.strike(FaultOn::Sync);
        match fault {
            Some((FaultEffect::Before, error)) => return Err(error),
            Some((FaultEffect::Part(thousandths), error)) => {
                let count = disk.platter.dirty_of(self.number).len();
                disk.sync_data(self.number, part_of(count, thousandths));
                disk.forget_data(self.number);
                return Err(error);
            }
            Some((FaultEffect::After, _)) | None => {}
        }
        disk.sync_metadata(self.number, data_only);
        disk.sync_data(self.number, usize::MAX);
        fault.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn attributes(&self) -> Result<Attributes> {
        self.live()?.volatile.attributes(self.number)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let mut disk = self.live()?;
        disk.struck(FaultOn::Write, |disk| {
            let mut edit = Edit::default();
            edit.resize(disk, self.number, size)?;
            disk.finish(edit);
            Ok(())
        })
    }

    fn clone_source(&self) -> Result<Option<Box<dyn CloneSource>>> {
        let mut disk = self.live()?;
        let file = Self::new(&self.disk, &mut disk, self.number);
        Ok(Some(Box::new(Blocks(file))))
    }
}

/// The file, in the form in which its blocks are shared. The blocks are copied, whereas a real file
/// system shares them.
struct Blocks(Arc<CrashFile>);

impl CloneSource for Blocks {
    fn file(&self) -> Option<&SystemFile> {
        None
    }

    fn size(&self) -> io::Result<u64> {
        self.0.attributes().map(|found| found.size).map_err(io::Error::other)
    }

    /// Returns a block size that is smaller than that of real file systems, so that small files
    /// have several blocks.
    fn block_bytes(&self) -> io::Result<u64> {
        Ok(128)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let memory = Memory::anonymous(buffer.len(), Pages::Small)?;
        let count = self.0.read_at(&memory, 0, buffer.len(), offset).map_err(io::Error::other)?;
        memory.read(0, &mut buffer[..count]);
        Ok(count)
    }
}

impl Disk {
    /// Writes a range of memory into a file. Each block by which the file grows is a separate
    /// operation of the journal, so that a crash may leave any length between the old and the new.
    fn write(
        &mut self,
        number: Number,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let end = offset.checked_add(length as u64).ok_or(StoreError::TooBig)?;
        let size = self.volatile.attributes(number)?.size;
        self.check_growth(size, size.max(end))?;
        for chunk in chunks(offset, length) {
            let mapped = self.volatile.blocks(number)?.get(&chunk.index).copied();
            let block = mapped.unwrap_or_else(|| self.platter.allocate());
            self.platter.write(number, block, |bytes| {
                let at = memory_offset + chunk.done;
                memory.read(at, &mut bytes[chunk.within..][..chunk.length]);
            });
            let reached = offset + (chunk.done + chunk.length) as u64;
            let size = self.volatile.attributes(number)?.size;
            let is_last = chunk.done + chunk.length == length;
            if mapped.is_some() && reached <= size && !is_last {
                continue;
            }
            let mut edit = Edit::default();
            let meta = edit.touch(self, number, true)?;
            meta.attributes.size = size.max(reached);
            meta.attributes.space_used = meta.attributes.size;
            if mapped.is_none() {
                edit.push(Change::Map { number, index: chunk.index, block });
            }
            self.finish(edit);
        }
        Ok(())
    }

    /// Checks that the limits allow a file to grow.
    pub(super) fn check_growth(&self, from: u64, to: u64) -> Result<()> {
        if to > FILE_OFFSET_MAX {
            return Err(StoreError::TooBig);
        }
        let total = self.volatile.bytes - from + to;
        if total > self.limits.bytes_max { Err(StoreError::NoSpace) } else { Ok(()) }
    }
}

/// The part of a range that is contained in one block.
struct Chunk {
    index: u64,
    within: usize,
    length: usize,
    /// The number of bytes of the range before this part.
    done: usize,
}

fn chunks(offset: u64, length: usize) -> impl Iterator<Item = Chunk> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK_BYTES as u64) as usize;
        let part = (BLOCK_BYTES - within).min(length - done);
        let chunk = Chunk { index: at / BLOCK_BYTES as u64, within, length: part, done };
        done += part;
        (part > 0).then_some(chunk)
    })
}
