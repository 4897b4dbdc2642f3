//! What the cache knows of each file.
//!
//! Invariant: an entry lives while the file is open, has segments, has dirty data or
//! has a job under way; never longer.

use std::sync::Arc;

use dafs_types::{CachePattern, FileHandle, Moment, QuickMap, Timestamp};

use super::CachedFile;
use super::numbers::Numbers;
use super::segment::NONE;
use crate::error::StoreError;
use crate::file::{File, FileVersion};

/// One file. The first fields are those a hit needs.
pub(super) struct Entry {
    pub generation: u32,
    /// First segment of the list, in no order.
    pub first_segment: u32,
    /// As clients see it.
    pub size: u64,
    /// Where a sequential reader goes on.
    pub expected_offset: u64,
    /// A sequential reader that gets here wants the next stretch.
    pub ahead_mark: u64,
    /// How far the last stretch reached.
    pub ahead_end: u64,
    /// Bytes fetched at once for a sequential reader; 0 for others.
    pub window: u64,
    pub is_live: bool,
    pub open_count: u32,
    /// Number of its last close.
    pub closed_at: u64,
    pub pattern: CachePattern,
    /// Held while open, dirty or at work.
    pub file: Option<Arc<dyn File>>,
    pub handle: FileHandle,
    /// As the cache saw it last, own changes included.
    pub version: FileVersion,
    /// Numbers of segments with dirty blocks.
    pub dirty: Numbers,
    pub is_queued: bool,
    pub dirty_since: Moment,
    /// Segments behind the file's end on disk that are dirty as a whole, about.
    pub ripe_count: usize,
    pub is_ripe: bool,
    pub is_flushing: bool,
    pub is_syncing: bool,
    /// Syncs that are over.
    pub sync_count: u32,
    pub is_sizing: bool,
    pub fill_count: u32,
    pub writer_count: u32,
    /// Written to the file since the last sync.
    pub is_unsynced: bool,
    /// Lost data nobody was told of yet.
    pub error: Option<StoreError>,
    /// Losses so far, and the last: a commit that spans one reports it, and so does one of somebody
    /// who has heard of fewer.
    pub loss_count: u32,
    pub last_error: StoreError,
    /// When what the cache shows was changed last, by a write, a change of size or a loss.
    pub changed_at: Timestamp,
    /// The same by the clock that file systems stamp changes with: a file that is written later has
    /// no earlier stamp.
    pub stamp: Timestamp,
    /// Whether the change attribute was shown since: the next change must be told from it.
    pub is_shown: bool,
    /// It was shown while the size of the file was ahead of what is cached of it.
    pub is_shown_ahead: bool,
    /// Its last name is gone.
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

    /// Whether something holds the file itself: a job, a write, data to be flushed.
    pub fn is_busy(&self) -> bool {
        self.is_flushing
            || self.is_syncing
            || self.is_sizing
            || self.fill_count > 0
            || self.writer_count > 0
            || !self.dirty.is_empty()
    }
}

/// All entries, by index and by handle.
pub(super) struct Files {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_handle: QuickMap<FileHandle, u32>,
    count_max: usize,
}

impl Files {
    pub fn new(count_max: usize) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), by_handle: QuickMap::default(), count_max }
    }

    pub fn count(&self) -> usize {
        self.by_handle.len()
    }

    pub fn is_full(&self) -> bool {
        self.count() >= self.count_max
    }

    pub fn index_of(&self, handle: &FileHandle) -> Option<u32> {
        self.by_handle.get(handle).copied()
    }

    pub fn insert(&mut self, file: Arc<dyn File>, version: FileVersion) -> u32 {
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

    pub fn remove(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.first_segment == NONE && !entry.is_busy());
        entry.is_live = false;
        entry.file = None;
        self.by_handle.remove(&entry.handle);
        self.free.push(index);
    }

    /// The token for an entry.
    pub fn name(&self, index: u32) -> CachedFile {
        CachedFile { index, generation: self.entries[index as usize].generation }
    }

    /// Whether a token still stands for a live entry.
    pub fn is_current(&self, file: CachedFile) -> bool {
        let entry = self.entries.get(file.index as usize);
        entry.is_some_and(|entry| entry.is_live && entry.generation == file.generation)
    }

    /// Whether that close of a file was its last, and its entry is still there.
    pub fn was_closed_last(&self, file: CachedFile, number: u64) -> bool {
        self.is_current(file) && self.at(file.index).closed_at == number
    }

    #[inline]
    pub fn at(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    #[inline]
    pub fn at_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// The entry of a token.
    ///
    /// # Panics
    /// If the token outlived its last close: the owner's bug.
    #[inline]
    pub fn get(&self, file: CachedFile) -> &Entry {
        let entry = &self.entries[file.index as usize];
        assert_eq!(entry.generation, file.generation, "file used after its last close");
        entry
    }

    /// As [`Files::get`].
    #[inline]
    pub fn get_mut(&mut self, file: CachedFile) -> &mut Entry {
        let entry = &mut self.entries[file.index as usize];
        assert_eq!(entry.generation, file.generation, "file used after its last close");
        entry
    }
}
