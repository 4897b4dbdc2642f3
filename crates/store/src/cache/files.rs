//! The cache's table of files.
//!
//! Invariant: an entry exists exactly as long as the file is open, has segments, has dirty data or
//! has a job in progress.

use std::sync::Arc;

use dafs_types::{CachePattern, FileHandle, Moment, QuickMap, Timestamp};

use super::CachedFile;
use super::numbers::Numbers;
use super::segment::NONE;
use crate::error::StoreError;
use crate::file::{File, FileVersion};

/// The cached state of one file. The first fields are those that a cache hit needs.
pub(super) struct Entry {
    pub generation: u32,
    /// The slot of the first segment in the file's list of segments. The list is not sorted.
    pub first_segment: u32,
    /// The file's size in bytes, as clients see it.
    pub size: u64,
    /// The offset at which the next read begins if the reader is sequential.
    pub expected_offset: u64,
    /// The offset at which a sequential reader triggers the next prefetch.
    pub ahead_mark: u64,
    /// The end offset of the most recently prefetched range.
    pub ahead_end: u64,
    /// The number of bytes of one prefetch. 0 if the reader is not sequential.
    pub window: u64,
    pub is_live: bool,
    pub open_count: u32,
    /// The number of the file's most recent close. Closes of all files are numbered together.
    pub closed_at: u64,
    pub pattern: CachePattern,
    /// The open file. `None` if the file is not open, has no dirty data and is not used by a job.
    pub file: Option<Arc<dyn File>>,
    pub handle: FileHandle,
    /// The version of the file that the cache last read, or produced itself by a write.
    pub version: FileVersion,
    /// The numbers of segments with dirty blocks.
    pub dirty: Numbers,
    pub is_queued: bool,
    pub dirty_since: Moment,
    /// The approximate number of segments that are entirely dirty and lie after the file's end on
    /// disk.
    pub ripe_count: usize,
    pub is_ripe: bool,
    pub is_flushing: bool,
    pub is_syncing: bool,
    /// The number of syncs of the file that have finished.
    pub sync_count: u32,
    pub is_sizing: bool,
    pub fill_count: u32,
    pub writer_count: u32,
    /// True if data was written to the file since the most recent sync.
    pub is_unsynced: bool,
    /// The error of a loss of data. `None` if every loss was reported to a client.
    pub error: Option<StoreError>,
    /// The number of times that written data of the file was lost. A commit reports the losses that
    /// happen while it runs and the losses that its client was not told about before.
    pub loss_count: u32,
    pub last_error: StoreError,
    /// The time of the last change of the cached content: by a write, a change of size or a loss.
    pub changed_at: Timestamp,
    /// The time of the change at `changed_at`, read from the coarse clock that file systems use for
    /// time stamps. If the data is written to the file later, the file's time stamp is not earlier
    /// than this time.
    pub stamp: Timestamp,
    /// True if the change attribute was reported since the last change. The next change must then
    /// give the file a different change attribute.
    pub is_shown: bool,
    /// True if the change attribute was reported at a time when a change of size had reached the
    /// file but not the cached content.
    pub is_shown_ahead: bool,
    /// True if the file has no name any more.
    pub is_unlinked: bool,
}

impl Entry {
    fn new(generation: u32, file: Arc<dyn File>, version: FileVersion) -> Self {
        Self {
            generation,
            first_segment: NONE,
            size: version.size,
            expected_offset: 0,
            ahead_mark: u64::MAX,
            ahead_end: 0,
            window: 0,
            is_live: true,
            open_count: 0,
            closed_at: 0,
            pattern: CachePattern::Normal,
            handle: file.handle(),
            file: Some(file),
            version,
            dirty: Numbers::default(),
            is_queued: false,
            dirty_since: Moment(0),
            ripe_count: 0,
            is_ripe: false,
            is_flushing: false,
            is_syncing: false,
            sync_count: 0,
            is_sizing: false,
            fill_count: 0,
            writer_count: 0,
            is_unsynced: false,
            error: None,
            loss_count: 0,
            last_error: StoreError::Io,
            changed_at: Timestamp::default(),
            stamp: Timestamp::default(),
            is_shown: false,
            is_shown_ahead: false,
            is_unlinked: false,
        }
    }

    /// Returns true if a job, a write or dirty data needs the file.
    pub(super) fn is_busy(&self) -> bool {
        self.is_flushing
            || self.is_syncing
            || self.is_sizing
            || self.fill_count > 0
            || self.writer_count > 0
            || !self.dirty.is_empty()
    }
}

/// All entries, found by index or by handle.
pub(super) struct Files {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_handle: QuickMap<FileHandle, u32>,
    count_max: usize,
}

impl Files {
    pub(super) fn new(count_max: usize) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), by_handle: QuickMap::default(), count_max }
    }

    pub(super) fn count(&self) -> usize {
        self.by_handle.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.count_max
    }

    pub(super) fn index_of(&self, handle: &FileHandle) -> Option<u32> {
        self.by_handle.get(handle).copied()
    }

    pub(super) fn insert(&mut self, file: Arc<dyn File>, version: FileVersion) -> u32 {
        let handle = file.handle();
        let index = match self.free.pop() {
            Some(index) => {
                let generation = self.entries[index as usize].generation.wrapping_add(1);
                self.entries[index as usize] = Entry::new(generation, file, version);
                index
            }
            None => {
                self.entries.push(Entry::new(0, file, version));
                (self.entries.len() - 1) as u32
            }
        };
        self.by_handle.insert(handle, index);
        index
    }

    pub(super) fn remove(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.first_segment == NONE && !entry.is_busy());
        entry.is_live = false;
        entry.file = None;
        self.by_handle.remove(&entry.handle);
        self.free.push(index);
    }

    /// Returns the token of an entry.
    pub(super) fn name(&self, index: u32) -> CachedFile {
        CachedFile { index, generation: self.entries[index as usize].generation }
    }

    /// Returns true if the entry of a token still exists.
    pub(super) fn is_current(&self, file: CachedFile) -> bool {
        let entry = self.entries.get(file.index as usize);
        entry.is_some_and(|entry| entry.is_live && entry.generation == file.generation)
    }

    /// Returns true if the close with this number was the most recent close of the file, and the
    /// file's entry still exists.
    pub(super) fn was_closed_last(&self, file: CachedFile, number: u64) -> bool {
        self.is_current(file) && self.at(file.index).closed_at == number
    }

    #[inline]
    pub(super) fn at(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// Returns the entry of a token.
    ///
    /// # Panics
    /// If the token was used after its last close, which is a bug of the caller.
    #[inline]
    pub(super) fn get(&self, file: CachedFile) -> &Entry {
        let entry = &self.entries[file.index as usize];
        assert_eq!(entry.generation, file.generation, "file used after its last close");
        entry
    }

    /// Returns the entry of a token for changes. Panics like [`Files::get`].
    #[inline]
    pub(super) fn get_mut(&mut self, file: CachedFile) -> &mut Entry {
        let entry = &mut self.entries[file.index as usize];
        assert_eq!(entry.generation, file.generation, "file used after its last close");
        entry
    }
}
