//! Reads undo data that an earlier process has written.
//!
//! Invariant: pieces do not overlap, so they may be restored in any order. An incomplete group at
//! the end is left out, because the changes that waited for this group never began. Only one group
//! is in memory at a time.

use std::sync::Arc;

use super::header::Header;
use super::{CLONED, OFFSET_BYTES, PIECE, UndoError, UndoId, clone, name_of};
use crate::group::{BLOCK_BYTES, Found, GroupRead, HEADER_BYTES, find_later_group, get_u64};
use crate::storage::{Blob, BlobName, Storage, StorageError, read_whole};

/// The undo data of one lock, as found after a restart.
pub struct SavedUndo {
    pub(super) blob: Arc<dyn Blob>,
    /// The blob that shares blocks with the file, if there is one.
    cloned: Option<Arc<dyn Blob>>,
    pub(super) header: Header,
    name: BlobName,
    limit: u64,
    /// The offset of the group that was read most recently, and of the group after it.
    pub(super) group_start: u64,
    pub(super) position: u64,
    pub(super) next_number: u64,
    pub(super) group: GroupRead,
    next_frame: usize,
}

/// A range of the file, with the contents that it had before it was first changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The offset in the file.
    pub offset: u64,
    /// The contents of the range, or where they are.
    pub content: Content<'a>,
}

/// The saved contents of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The bytes themselves.
    Copied(&'a [u8]),
    /// The bytes are in shared blocks; [`SavedUndo::read_cloned`] reads them.
    Cloned {
        /// The number of bytes in the shared blocks.
        length: u64,
    },
}

impl Piece<'_> {
    /// Returns the number of bytes of the piece.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self.content {
            Content::Copied(bytes) => bytes.len() as u64,
            Content::Cloned { length } => length,
        }
    }
}

impl SavedUndo {
    pub(super) fn open(storage: &dyn Storage, id: UndoId) -> Result<Self, UndoError> {
        let name = name_of(id);
        let blob = storage.open(&name)?;
        let cloned = match storage.open(&clone::name_of(id)) {
            Err(StorageError::NotFound { .. }) => None,
            opened => Some(opened?),
        };
        let header = Header::read(&*blob, id, &name)?;
        let limit = blob.length()?;
        let group = GroupRead::default();
        let (start, next_frame) = (BLOCK_BYTES as u64, HEADER_BYTES);
        Ok(Self {
            blob,
            cloned,
            header,
            name,
            limit,
            group_start: start,
            position: start,
            next_number: 1,
            group,
            next_frame,
        })
    }

    /// Returns the id of this undo data.
    #[must_use]
    pub fn id(&self) -> UndoId {
        self.header.id
    }

    /// Returns the data that the owner passed to [`UndoLog::create`](super::UndoLog::create).
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header.bytes
    }

    /// Returns the size of the file in bytes when the lock was taken. Truncate or extend the file
    /// to this size before restoring the pieces.
    #[must_use]
    pub fn original_size(&self) -> u64 {
        self.header.original_size
    }

    /// Returns to the first piece.
    pub fn rewind(&mut self) {
        self.position = BLOCK_BYTES as u64;
        self.group_start = self.position;
        self.next_number = 1;
        self.group = GroupRead::default();
        self.next_frame = HEADER_BYTES;
    }

    /// Returns the next piece, or `None` after the last one.
    ///
    /// # Errors
    /// [`UndoError::Corrupt`] if durable data is damaged; [`UndoError::Storage`] if the storage
    /// fails.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, UndoError> {
        while self.group.frame_at(self.next_frame).is_none() {
            if !self.read_group()? {
                return Ok(None);
            }
        }
        let Some((frame, next)) = self.group.frame_at(self.next_frame) else { return Ok(None) };
        let has_length = match frame.kind {
            PIECE => frame.payload.len() >= OFFSET_BYTES,
            CLONED => frame.payload.len() == 2 * OFFSET_BYTES && self.header.may_clone(),
            _ => false,
        };
        if frame.number != self.next_number || !has_length {
            return Err(self.damage("a piece is out of order"));
        }
        self.next_number += 1;
        self.next_frame = next;
        let (offset, bytes) = frame.payload.split_at(OFFSET_BYTES);
        let content = match frame.kind {
            CLONED => Content::Cloned { length: get_u64(bytes, 0) },
            _ => Content::Copied(bytes),
        };
        Ok(Some(Piece { offset: get_u64(offset, 0), content }))
    }

    /// Reads bytes of a cloned piece, starting at `offset` of the file.
    ///
    /// # Errors
    /// [`UndoError::Corrupt`] if the bytes are missing; [`UndoError::Storage`] if the storage
    /// fails.
    pub fn read_cloned(&self, offset: u64, bytes: &mut [u8]) -> Result<(), UndoError> {
        let is_there = match &self.cloned {
            Some(blob) => read_whole(&**blob, offset, bytes)?,
            None => false,
        };
        let name = || clone::name_of(self.header.id);
        let what = "the blocks that it shares with the file are gone";
        if is_there { Ok(()) } else { Err(UndoError::Corrupt { name: name(), offset, what }) }
    }

    /// Reads the next group. Returns false if there is none.
    fn read_group(&mut self) -> Result<bool, UndoError> {
        let (lineage, at) = (self.header.lineage(), self.position);
        if at >= self.limit {
            return Ok(false);
        }
        match self.group.read(&*self.blob, lineage, at, self.limit, self.next_number)? {
            Found::Group(length) => {
                self.group_start = at;
                self.position += length;
                self.next_frame = HEADER_BYTES;
                Ok(true)
            }
            Found::Nothing(what) => {
                let behind = at + BLOCK_BYTES as u64;
                match find_later_group(&*self.blob, lineage, behind, self.limit)? {
                    Some(_) => Err(self.damage(what)),
                    None => {
                        self.limit = at;
                        Ok(false)
                    }
                }
            }
        }
    }

    /// Reads the last group again, after an attempt to read the group that would follow it.
    pub(super) fn read_last_group_again(&mut self) -> Result<(), UndoError> {
        let (lineage, at) = (self.header.lineage(), self.group_start);
        match self.group.read_as_it_stands(&*self.blob, lineage, at, self.position)? {
            Found::Group(_) => Ok(()),
            Found::Nothing(what) => Err(self.damage(what)),
        }
    }

    fn damage(&self, what: &'static str) -> UndoError {
        UndoError::Corrupt { name: self.name.clone(), offset: self.position, what }
    }
}
