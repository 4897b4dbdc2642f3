//! Undo data: the contents of a file before it was changed under an auto-recovery lock. If the
//! holder of such a lock fails, the server rolls back the changes made under it.
//!
//! Invariant: no byte of the file may be changed before its former value is saved and reported as
//! durable. Each byte is saved once, with its value when the lock was taken. So restoring all saved
//! bytes yields the original file, whichever of the changes in flight survive a crash.
//!
//! If the storage can share blocks between files, saved data need not be copied: a [`CloneJob`]
//! shares the file's blocks with the undo data, and [`UndoLog::save_cloned`] records the shared
//! range.
//!
//! Like the [log](crate::log), this module makes few blocking calls itself: [`UndoLog::save`]
//! buffers bytes, [`UndoLog::take_job`] returns a group to write, [`UndoJob::run`] writes the
//! group, and [`UndoLog::on_done`] takes the result.

mod clone;
#[cfg(test)]
mod crash_tests;
mod error;
mod header;
mod ranges;
mod saved;

use std::ops::Range;
use std::sync::Arc;

use dafs_types::Entropy;

use crate::group::{BLOCK_BYTES, GROUP_BYTES_MAX, GroupBuffer, Lineage, frame_bytes_of};
use crate::storage::{Blob, BlobName, Storage, StorageError, chain_of};
use crate::test_hooks::{Mutation, is_on};
pub use clone::{CloneJob, Cloned};
pub use error::UndoError;
pub use header::HEADER_BYTES_MAX;
use header::{Header, VERSION};
pub use ranges::Ranges;
pub use saved::{Content, Piece, SavedUndo};

/// The id of the undo data of one lock. The owner gives each lock another id and never reuses an
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UndoId(pub u64);

/// The number of a saved piece. Numbers start at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceNumber(pub u64);

/// The size limits of undo data.
#[derive(Clone, Debug)]
pub struct UndoConfig {
    /// The maximum number of bytes saved by one call.
    pub piece_bytes_max: usize,
    /// The maximum number of bytes buffered while a group is in flight. A call that would exceed it
    /// returns [`UndoError::Wait`].
    pub buffered_bytes_max: usize,
    /// The maximum number of bytes of undo data on disk. A call that would exceed it returns
    /// [`UndoError::Full`]. Cloned bytes do not count, because they take no more space than the
    /// file has.
    pub bytes_max: u64,
    /// The maximum number of separate ranges that are tracked. A call that would exceed it returns
    /// [`UndoError::TooScattered`].
    pub range_count_max: usize,
    /// The number of bytes from which on cloning is used instead of copying. Copying takes one sync
    /// and cloning takes three, whatever the number of bytes.
    pub clone_bytes_min: u64,
    /// The maximum number of bytes cloned by one job. Clones begin at multiples of this number. The
    /// number is limited because the time for a clone grows with the number of extents.
    pub clone_bytes_max: u64,
}

impl Default for UndoConfig {
    /// Returns limits of 1 MiB per piece, 4 MiB buffered, 4 GiB in total, and 65,536 ranges; clones
    /// have 256 KiB to 1 GiB.
    fn default() -> Self {
        Self {
            piece_bytes_max: 1 << 20,
            buffered_bytes_max: 4 << 20,
            bytes_max: 4 << 30,
            range_count_max: 1 << 16,
            clone_bytes_min: 256 << 10,
            clone_bytes_max: 1 << 30,
        }
    }
}

impl UndoConfig {
    fn check(&self) -> Result<(), UndoError> {
        // One call may save the bytes between all tracked ranges.
        let scattered = self.range_count_max.saturating_mul(frame_bytes_of(OFFSET_BYTES + 8));
        let longest = frame_bytes_of(OFFSET_BYTES + self.piece_bytes_max);
        let wrong = if self.clone_bytes_max == 0 {
            "clone_bytes_max must be above zero"
        } else if self.piece_bytes_max == 0 || self.range_count_max == 0 {
            "piece_bytes_max and range_count_max must be above zero"
        } else if longest.saturating_add(scattered) > self.buffered_bytes_max {
            "buffered_bytes_max must be above piece_bytes_max and 40 bytes for each range"
        } else if self.buffered_bytes_max > GROUP_BYTES_MAX - BLOCK_BYTES {
            "buffered_bytes_max must be below 64 MiB"
        } else {
            return Ok(());
        };
        Err(UndoError::Config { wrong })
    }
}

/// The undo data of one lock, while it is being written. See the [module](self).
pub struct UndoLog {
    blob: Arc<dyn Blob>,
    config: UndoConfig,
    lineage: Lineage,
    id: UndoId,
    original_size: u64,
    may_clone: bool,
    saved: Ranges,
    /// The offset of the next group.
    position: u64,
    next_number: u64,
    durable: u64,
    /// The number of the first piece in `filling`.
    filling_first: u64,
    filling: GroupBuffer,
    /// The second group buffer. While a group is in flight, the job has it and this buffer is
    /// empty.
    spare: GroupBuffer,
    /// The number of the last piece in the group that is in flight. `None` if no group is in
    /// flight.
    in_flight: Option<u64>,
    poison: Option<String>,
}

impl UndoLog {
    /// Creates undo data for a file of `original_size` bytes, and blocks until the undo data is on
    /// stable storage. `header` is data of the owner, which is returned to the owner after a
    /// restart.
    ///
    /// # Errors
    /// [`UndoError::TooLong`] if `header` has more than [`HEADER_BYTES_MAX`] bytes;
    /// [`UndoError::Config`]; [`UndoError::Storage`], with [`StorageError::Exists`] if the id is in
    /// use.
    pub fn create(
        storage: &dyn Storage,
        id: UndoId,
        config: UndoConfig,
        entropy: &mut dyn Entropy,
        original_size: u64,
        header: &[u8],
    ) -> Result<Self, UndoError> {
        config.check()?;
        if header.len() > HEADER_BYTES_MAX {
            let (length, length_max) = (header.len(), HEADER_BYTES_MAX);
            return Err(UndoError::TooLong { length, length_max });
        }
        let stream = entropy.next_u64();
        let (version, bytes) = (VERSION, header.to_vec());
        let header = Header { version, id, stream, original_size, bytes };
        let blob = storage.create(&name_of(id))?;
        blob.write_at(0, &header.encode()[..])?;
        blob.sync()?;
        if !is_on(Mutation::SkipNamesSync) {
            storage.sync_names()?;
        }
        Ok(Self::over(blob, config, &header))
    }

    /// Reads undo data after a restart, to roll back the changes made under its lock.
    ///
    /// # Errors
    /// [`UndoError::Unfinished`], [`UndoError::Corrupt`], [`UndoError::Version`] or
    /// [`UndoError::Storage`].
    pub fn open(storage: &dyn Storage, id: UndoId) -> Result<SavedUndo, UndoError> {
        SavedUndo::open(storage, id)
    }

    /// Prepares to add to undo data after a restart, because its lock was reclaimed. Reads all of
    /// the undo data and makes it durable. This blocks.
    ///
    /// # Errors
    /// The errors of [`UndoLog::open`], and [`UndoError::Config`].
    pub fn resume(
        storage: &dyn Storage,
        id: UndoId,
        config: UndoConfig,
    ) -> Result<Self, UndoError> {
        config.check()?;
        let mut found = SavedUndo::open(storage, id)?;
        let mut saved = Ranges::default();
        while let Some(piece) = found.next_piece()? {
            saved.insert(piece.offset..piece.offset.saturating_add(piece.length()));
        }
        if !is_on(Mutation::SkipRecoverySync) {
            make_durable(&mut found)?;
            storage.sync_names()?;
        }
        let mut undo = Self::over(found.blob.clone(), config, &found.header);
        undo.saved = saved;
        undo.position = found.position;
        undo.next_number = found.next_number;
        undo.durable = found.next_number - 1;
        undo.filling_first = found.next_number;
        Ok(undo)
    }

    /// Removes undo data. The end of its lock must already be recorded durably elsewhere. The
    /// reason is that a crash may undo the removal, and the owner must then know that the undo data
    /// belongs to no lock.
    ///
    /// # Errors
    /// [`UndoError::Storage`] if the storage fails.
    pub fn remove(storage: &dyn Storage, id: UndoId) -> Result<(), UndoError> {
        let had_clone = match storage.remove(&clone::name_of(id)) {
            Ok(()) => true,
            Err(StorageError::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        match storage.remove(&name_of(id)) {
            // A crash may have removed one of the two names and not the other.
            Err(StorageError::NotFound { .. }) if had_clone => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Returns the ids of all undo data in a storage directory, including that of locks that have
    /// ended.
    ///
    /// # Errors
    /// [`UndoError::Storage`] if the storage fails.
    pub fn list(storage: &dyn Storage) -> Result<Vec<UndoId>, UndoError> {
        let names = storage.list()?;
        let id_of = |name: &BlobName| {
            name.number_behind(PREFIX).or_else(|| name.number_behind(clone::PREFIX))
        };
        let mut ids: Vec<UndoId> = names.iter().filter_map(id_of).map(UndoId).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn over(blob: Arc<dyn Blob>, config: UndoConfig, header: &Header) -> Self {
        Self {
            blob,
            config,
            lineage: header.lineage(),
            id: header.id,
            original_size: header.original_size,
            may_clone: header.may_clone(),
            saved: Ranges::default(),
            position: BLOCK_BYTES as u64,
            next_number: 1,
            durable: 0,
            filling_first: 1,
            filling: GroupBuffer::default(),
            spare: GroupBuffer::default(),
            in_flight: None,
            poison: None,
        }
    }

    /// Returns the id of this undo data.
    #[must_use]
    pub fn id(&self) -> UndoId {
        self.id
    }

    /// Returns the size of the file in bytes when this undo data was created.
    #[must_use]
    pub fn original_size(&self) -> u64 {
        self.original_size
    }

    /// Returns true if the format of this undo data allows sharing blocks with the file.
    #[must_use]
    pub fn may_clone(&self) -> bool {
        self.may_clone
    }

    /// Returns the parts of a range that must be saved before it may be changed, in ascending
    /// order. Bytes beyond the file's original size need not be saved, because a rollback truncates
    /// the file to that size.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.saved.missing(range.start..range.end.min(self.original_size))
    }

    /// Returns true if all bytes of a range are saved. They are durable once
    /// [`UndoLog::last_saved`] is durable.
    #[must_use]
    pub fn covers(&self, range: Range<u64>) -> bool {
        self.missing(range).next().is_none()
    }

    /// Buffers the bytes at `offset` of the file, except bytes that were saved before. This part of
    /// the file may be changed when [`UndoLog::on_done`] has reported the returned number or a
    /// later number.
    ///
    /// # Errors
    /// [`UndoError::Wait`] if the caller must wait and try again. [`UndoError::Full`],
    /// [`UndoError::TooScattered`], [`UndoError::TooLong`] and [`UndoError::Poisoned`] mean that
    /// the change must not be made. On error, nothing is buffered.
    pub fn save(&mut self, offset: u64, bytes: &[u8]) -> Result<PieceNumber, UndoError> {
        self.check_poison()?;
        let (length, length_max) = (bytes.len(), self.config.piece_bytes_max);
        if length > length_max {
            return Err(UndoError::TooLong { length, length_max });
        }
        let end = offset.saturating_add(length as u64).min(self.original_size);
        let range = offset..end.max(offset);
        self.check_room(range.clone(), |gap| (gap.end - gap.start) as usize)?;
        for gap in self.saved.missing(range.clone()) {
            let part = &bytes[(gap.start - offset) as usize..(gap.end - offset) as usize];
            let parts = [&gap.start.to_le_bytes()[..], part];
            self.filling.push(PIECE, 0, self.next_number, &parts);
            self.next_number += 1;
        }
        self.saved.insert(range);
        Ok(self.last_saved())
    }

    /// Returns a job that saves a range by sharing blocks with the file. Returns `None` if part of
    /// the range is already saved or lies beyond the original size. Only one job may run at a time.
    #[must_use]
    pub fn clone_job(&self, range: Range<u64>) -> Option<CloneJob> {
        let is_missing = self.missing(range.clone()).eq(std::iter::once(range.clone()));
        let may = is_missing || is_on(Mutation::CloneSaved);
        (self.may_clone && may).then_some(CloneJob { id: self.id, range })
    }

    /// Like [`UndoLog::save`], but for bytes that were saved in blocks shared with the file.
    /// Buffers only a record of them.
    ///
    /// # Errors
    /// The errors of [`UndoLog::save`].
    ///
    /// # Panics
    /// Panics if the bytes were cloned for other undo data.
    pub fn save_cloned(&mut self, cloned: &Cloned) -> Result<PieceNumber, UndoError> {
        assert_eq!(cloned.id, self.id, "cloned for other undo data");
        self.check_poison()?;
        let range = cloned.range();
        self.check_room(range.clone(), |_| OFFSET_BYTES)?;
        for gap in self.saved.missing(range.clone()) {
            let (offset, length) = (gap.start.to_le_bytes(), (gap.end - gap.start).to_le_bytes());
            self.filling.push(CLONED, 0, self.next_number, &[&offset, &length]);
            self.next_number += 1;
        }
        self.saved.insert(range);
        Ok(self.last_saved())
    }

    /// Returns a job that writes the buffered pieces. Returns `None` if there are no such pieces,
    /// if a group is in flight, or if the undo data has failed. The caller must run the job and
    /// pass the result to [`UndoLog::on_done`].
    pub fn take_job(&mut self) -> Option<UndoJob> {
        if self.poison.is_some() || self.in_flight.is_some() || self.filling.is_empty() {
            return None;
        }
        let (lineage, offset, blob) = (self.lineage, self.position, self.blob.clone());
        self.position += self.filling.padded_length();
        self.in_flight = Some(self.next_number - 1);
        let buffer = std::mem::replace(&mut self.filling, std::mem::take(&mut self.spare));
        let first_number = std::mem::replace(&mut self.filling_first, self.next_number);
        Some(UndoJob { blob, lineage, offset, first_number, buffer })
    }

    /// Takes the result of a job. All pieces up to the returned number are durable.
    ///
    /// # Errors
    /// [`UndoError::Poisoned`] if the write or the sync failed. Nothing can be saved any more then,
    /// and the changes that wait for their bytes to be saved must be refused.
    ///
    /// # Panics
    /// Panics if the result does not belong to the job of this undo log that is in flight.
    pub fn on_done(&mut self, done: UndoDone) -> Result<PieceNumber, UndoError> {
        let last = self.in_flight.take().expect("a group that this undo log has handed out");
        self.spare = done.buffer;
        self.spare.clear();
        match done.result {
            Ok(()) => self.durable = last,
            Err(error) => self.poison = Some(chain_of(&error)),
        }
        self.check_poison()?;
        Ok(self.durable())
    }

    /// Returns the number of the last saved piece; 0 if there is none.
    #[must_use]
    pub fn last_saved(&self) -> PieceNumber {
        PieceNumber(self.next_number - 1)
    }

    /// Returns the number of the last durable piece; 0 if there is none.
    #[must_use]
    pub fn durable(&self) -> PieceNumber {
        PieceNumber(self.durable)
    }

    /// Checks that a range can be saved now. Includes the overhead of each part of it that is not
    /// saved yet.
    fn check_room(
        &self,
        range: Range<u64>,
        bytes_of: impl Fn(&Range<u64>) -> usize,
    ) -> Result<(), UndoError> {
        let (mut bytes, mut count) = (self.filling.frame_bytes(), 0);
        for gap in self.saved.missing(range) {
            bytes += frame_bytes_of(OFFSET_BYTES + bytes_of(&gap));
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let count_max = self.config.range_count_max;
        // This adds at most one range: the saved ranges between the unsaved parts merge with them.
        if self.saved.count() >= count_max {
            return Err(UndoError::TooScattered { count_max });
        }
        if self.position + GroupBuffer::padded_length_of(bytes) > self.config.bytes_max {
            return Err(UndoError::Full { bytes_max: self.config.bytes_max });
        }
        if bytes > self.config.buffered_bytes_max {
            return Err(UndoError::Wait);
        }
        Ok(())
    }

    fn check_poison(&self) -> Result<(), UndoError> {
        match &self.poison {
            Some(cause) => Err(UndoError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }
}

/// A job that writes a group of pieces and makes it durable. Any thread that may block can run it.
pub struct UndoJob {
    blob: Arc<dyn Blob>,
    lineage: Lineage,
    offset: u64,
    first_number: u64,
    buffer: GroupBuffer,
}

/// The result of a job, to be passed to [`UndoLog::on_done`].
pub struct UndoDone {
    buffer: GroupBuffer,
    result: Result<(), StorageError>,
}

impl UndoJob {
    /// Writes the group and waits until it is on stable storage.
    #[must_use = "the undo log waits for it"]
    pub fn run(mut self) -> UndoDone {
        let result = self.write();
        UndoDone { buffer: self.buffer, result }
    }

    /// Returns the result of a job that could not be run. After that, nothing more can be saved.
    #[must_use = "the undo log waits for it"]
    pub fn failed(why: &'static str) -> UndoDone {
        let error =
            StorageError::from_io("write", "a group of undo data", std::io::Error::other(why));
        UndoDone { buffer: GroupBuffer::default(), result: Err(error) }
    }

    fn write(&mut self) -> Result<(), StorageError> {
        let bytes = self.buffer.seal(self.lineage, self.offset, self.first_number);
        self.blob.write_at(self.offset, bytes)?;
        if is_on(Mutation::SkipGroupSync) {
            return Ok(());
        }
        match self.blob.sync() {
            Err(_) if is_on(Mutation::RetrySync) => self.blob.sync(),
            synced => synced,
        }
    }
}

/// Makes the last group durable, because it may be only in the page cache, and removes a torn group
/// after it. `log/open.rs` explains why the group is written again.
fn make_durable(found: &mut SavedUndo) -> Result<(), UndoError> {
    if found.position > found.group_start {
        found.read_last_group_again()?;
        found.blob.write_at(found.group_start, found.group.bytes())?;
        found.blob.sync()?;
    }
    found.blob.set_length(found.position)?;
    found.blob.sync()?;
    Ok(())
}

fn name_of(id: UndoId) -> BlobName {
    BlobName::numbered(PREFIX, id.0)
}

/// The prefix of the names of undo data.
const PREFIX: &str = "undo-";
/// The kind of a frame that contains the offset and the bytes of a piece.
const PIECE: u16 = 1;
/// The kind of a frame that contains the offset and the length of a piece that is shared with the
/// file.
const CLONED: u16 = 2;
const OFFSET_BYTES: usize = 8;
