//! Reads undo data in batches, from which a rollback restores the file.
//!
//! For cloned data (undo data that shares blocks with the file), only the ranges that may have
//! changed are restored. All other ranges are intact in the file. Their blocks may still be shared
//! with the clone, and writing to shared blocks would need space that a full disk does not have. A
//! server that has checked every change since the clone was made knows the changed ranges. Any
//! other server, such as the server after a restart, compares both versions. Ranges that compare as
//! equal must also be equal on the disk, because the lock's owner may have changed a range and
//! changed it back only in the kernel's memory.
//!
//! Invariant: each byte that was changed under the lock, and whose change is on stable storage, is
//! in some batch with its old value.

use std::ops::Range;
use std::sync::Arc;

use dafs_journal::undo::{Content, SavedUndo};
use dafs_journal::{Ranges, Storage, StorageError, UndoError, UndoId, UndoLog};
use dafs_memory::{Memory, Pages};
use dafs_store::File;

/// The source from which batches are read.
pub struct Source {
    storage: Arc<dyn Storage>,
    id: UndoId,
    /// The undo data, opened for reading. `None` before the first batch.
    saved: Option<SavedUndo>,
    /// The range of a cloned piece that is still to be read.
    cloned: Range<u64>,
    /// The range to restore. Undo data outside this range is skipped.
    wanted: Range<u64>,
    changed: Changed,
    /// True if the file was synced successfully, false if the sync has failed. `None` before the
    /// sync.
    is_stable: Option<bool>,
}

/// The ranges that may have changed in the cloned parts of a file.
pub enum Changed {
    /// Only these ranges may have changed.
    Within(Ranges),
    /// The changed ranges are unknown, so the undo data must be compared with this file, to which
    /// all changes have been written.
    Unknown(Arc<dyn File>),
}

/// A batch of undo data, with the source of the next batch.
pub struct Batch {
    pub pieces: Vec<(u64, Vec<u8>)>,
    /// The source of the next batch. `None` if this is the last batch.
    pub more: Option<Box<Source>>,
    /// The size of the file when the undo data was created, in bytes.
    pub size: u64,
}

impl Source {
    pub fn new(
        storage: Arc<dyn Storage>,
        id: UndoId,
        wanted: Range<u64>,
        changed: Changed,
    ) -> Self {
        Self { storage, id, saved: None, cloned: 0..0, wanted, changed, is_stable: None }
    }

    /// Reads the next batch. `None` if no undo data was ever saved. This blocks.
    pub fn read(mut self: Box<Self>) -> Result<Option<Batch>, UndoError> {
        let mut saved = match self.saved.take() {
            Some(saved) => saved,
            None => match UndoLog::open(&*self.storage, self.id) {
                Ok(saved) => saved,
                // The undo data was never completely created, so no change was made.
                Err(
                    UndoError::Unfinished { .. }
                    | UndoError::Storage { source: StorageError::NotFound { .. } },
                ) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let size = saved.original_size();
        // Compared bytes count like found bytes, so that each job is short and other jobs get their
        // turn.
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            if !self.cloned.is_empty() {
                bytes += self.read_cloned(&saved, &mut pieces)?;
                continue;
            }
            match saved.next_piece()? {
                Some(piece) => match piece.content {
                    Content::Copied(data) => {
                        bytes += data.len() as u64;
                        pieces.push((piece.offset, data.to_vec()));
                    }
                    Content::Cloned { length } => {
                        let end = piece.offset.saturating_add(length).min(self.wanted.end);
                        self.cloned = piece.offset.max(self.wanted.start)..end;
                    }
                },
                None => return Ok(Some(Batch { pieces, more: None, size })),
            }
        }
        self.saved = Some(saved);
        Ok(Some(Batch { pieces, more: Some(self), size }))
    }

    /// Reads the next chunk of a part that was saved by cloning. Returns the number of bytes read.
    fn read_cloned(
        &mut self,
        saved: &SavedUndo,
        pieces: &mut Vec<(u64, Vec<u8>)>,
    ) -> Result<u64, UndoError> {
        let rest = self.cloned.clone();
        let chunk = match &self.changed {
            Changed::Within(ranges) => ranges.within(rest.clone()).next(),
            Changed::Unknown(_) => Some(rest.clone()),
        };
        let Some(chunk) = chunk else {
            self.cloned = 0..0;
            return Ok(0);
        };
        let chunk = chunk.start..chunk.end.min(chunk.start.saturating_add(CHUNK_BYTES));
        self.cloned = chunk.end..rest.end;
        let mut before = vec![0; (chunk.end - chunk.start) as usize];
        saved.read_cloned(chunk.start, &mut before)?;
        match &self.changed {
            Changed::Within(_) => pieces.push((chunk.start, before)),
            Changed::Unknown(file) => {
                let is_stable = *self.is_stable.get_or_insert_with(|| file.sync(false).is_ok());
                let length = if is_stable { before.len() } else { 0 };
                let now = present(&**file, chunk.start, length);
                let differing = differing(&before, &now);
                let pieces_of =
                    |part: Range<usize>| (chunk.start + part.start as u64, before[part].to_vec());
                pieces.extend(differing.into_iter().map(pieces_of));
            }
        }
        Ok(chunk.end - chunk.start)
    }
}

/// Returns the present content of a range of a file. Returns no bytes if the file cannot be read,
/// so that the whole range is restored.
fn present(file: &dyn File, offset: u64, length: usize) -> Vec<u8> {
    let Ok(memory) = Memory::anonymous(length.max(1), Pages::Small) else { return Vec::new() };
    let count = file.read_at(&memory, 0, length, offset).unwrap_or(0);
    memory.to_vec(0, count)
}

/// Returns the block-aligned ranges in which two versions differ. Missing bytes count as different.
fn differing(before: &[u8], now: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in (0..before.len()).step_by(BLOCK_BYTES) {
        let end = before.len().min(start + BLOCK_BYTES);
        if now.get(start..end) == Some(&before[start..end]) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => found.push(start..end),
        }
    }
    found
}

/// The approximate number of bytes in a batch.
const BATCH_BYTES: u64 = 4 << 20;
/// The number of bytes that are read with one call from a part that was saved by cloning.
const CHUNK_BYTES: u64 = 1 << 20;
/// The size in bytes of the blocks in which two versions are compared.
const BLOCK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    use dafs_journal::{CrashStorage, UndoConfig};
    use dafs_store::{Attributes, FileKey, StoreError};
    use dafs_types::{CloneSource, FileHandle, Random};

    use super::*;

    /// A storage in a test whose bytes can be read only after a sync.
    struct Bytes {
        content: Vec<u8>,
        can_sync: bool,
        is_synced: AtomicBool,
    }

    impl Bytes {
        fn new(content: Vec<u8>, can_sync: bool) -> Arc<Self> {
            Arc::new(Self { content, can_sync, is_synced: AtomicBool::new(false) })
        }
    }

    impl CloneSource for Bytes {
        fn file(&self) -> Option<&std::fs::File> {
            None
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.content.len() as u64)
        }

        fn block_bytes(&self) -> io::Result<u64> {
            Ok(BLOCK_BYTES as u64)
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.copy_from_slice(&self.content[offset as usize..][..buffer.len()]);
            Ok(buffer.len())
        }
    }

    impl File for Bytes {
        fn key(&self) -> FileKey {
            FileKey(1)
        }

        fn handle(&self) -> FileHandle {
            FileHandle([0; FileHandle::LENGTH])
        }

        fn read_at(
            &self,
            to: &Memory,
            at: usize,
            length: usize,
            from: u64,
        ) -> Result<usize, StoreError> {
            assert!(length == 0 || self.is_synced.load(Ordering::Relaxed), "read before the sync");
            to.write(at, &self.content[from as usize..][..length]);
            Ok(length)
        }

        fn write_at(&self, _: &Memory, _: usize, _: usize, _: u64) -> Result<(), StoreError> {
            Err(StoreError::Access)
        }

        fn sync(&self, _data_only: bool) -> Result<(), StoreError> {
            self.is_synced.store(self.can_sync, Ordering::Relaxed);
            if self.can_sync { Ok(()) } else { Err(StoreError::Io) }
        }

        fn attributes(&self) -> Result<Attributes, StoreError> {
            Err(StoreError::Io)
        }

        fn set_size(&self, _size: u64) -> Result<(), StoreError> {
            Err(StoreError::Access)
        }
    }

    /// Creates undo data in a test that has cloned a file of three blocks.
    fn cloned(before: &Arc<Bytes>) -> Arc<dyn Storage> {
        let (storage, size) = (CrashStorage::new(), before.content.len() as u64);
        storage.set_reflinks(true);
        let (config, mut random) = (UndoConfig::default(), Random::new(1));
        let undo = UndoLog::create(&storage, UndoId(1), config, &mut random, size, b"");
        let mut undo = undo.unwrap();
        let cloned = undo.clone_job(0..size).unwrap().run(&storage, &**before).unwrap();
        undo.save_cloned(&cloned).unwrap();
        let done = undo.take_job().unwrap().run();
        undo.on_done(done).unwrap();
        Arc::new(storage)
    }

    fn pieces(before: &Arc<Bytes>, wanted: Range<u64>, changed: Changed) -> Vec<Range<u64>> {
        let source = Source::new(cloned(before), UndoId(1), wanted, changed);
        let batch = Box::new(source).read().unwrap().unwrap();
        assert!(batch.more.is_none());
        let place = |(offset, bytes): &(u64, Vec<u8>)| {
            let range = *offset..offset + bytes.len() as u64;
            assert_eq!(bytes[..], before.content[range.start as usize..range.end as usize]);
            range
        };
        batch.pieces.iter().map(place).collect()
    }

    #[test]
    fn of_what_was_cloned_only_what_may_have_changed_is_put_back() {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let before = Bytes::new(Random::new(2).bytes(3 * BLOCK_BYTES), true);
        let mut known = Ranges::default();
        known.insert(10..20);
        known.insert(2 * BLOCK..u64::MAX);
        let found = pieces(&before, 5..3 * BLOCK - 7, Changed::Within(known));
        assert_eq!(found, [10..20, 2 * BLOCK..3 * BLOCK - 7]);
        let mut now = before.content.clone();
        now[BLOCK_BYTES] ^= 1;
        for (can_sync, expected) in [(true, BLOCK..2 * BLOCK), (false, 0..3 * BLOCK)] {
            let file = Bytes::new(now.clone(), can_sync);
            let found = pieces(&before, 0..u64::MAX, Changed::Unknown(file));
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn stretches_that_differ_are_found_in_whole_blocks() {
        let before: Vec<u8> = vec![1; 4 * BLOCK_BYTES + 100];
        assert_eq!(differing(&before, &before), []);
        let mut now = before.clone();
        now[BLOCK_BYTES - 1] = 2;
        now[BLOCK_BYTES] = 2;
        now[4 * BLOCK_BYTES] = 2;
        let end = before.len();
        assert_eq!(differing(&before, &now), [0..2 * BLOCK_BYTES, 4 * BLOCK_BYTES..end]);
        let short = &before[..3 * BLOCK_BYTES + 1];
        assert_eq!(differing(&before, short), [Range { start: 3 * BLOCK_BYTES, end }]);
        let whole = [Range { start: 0, end }];
        assert_eq!(differing(&before, &[]), whole);
    }
}
