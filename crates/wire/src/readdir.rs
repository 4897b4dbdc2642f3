//! Directory entries (draft 6.5.29): a counted array of {cookie, offset of attributes, offset of
//! name}, with offsets from the start of the array.
//!
//! Invariant: the encoder never writes beyond the end of its buffer, and an entry that does not fit
//! leaves the result unchanged. Entries are written from the start of the buffer, and their
//! attributes and names from the end. `finish` closes the gap between them, so the number of
//! entries need not be known in advance.

use dafs_types::{FileAttributes, ReaddirCookie};

use crate::attributes::{AttributeBitmap, Attributes, FileAttributeBlock};
use crate::error::{DecodeError, EncodeError};
use crate::field::{Codec, Field, Name, is_too_long};
use crate::limits::{ALIGNMENT, ENTRIES_MAX};
use crate::order::{ByteOrder, Order, with_order};
use crate::scope::{Scope, Writer, offset_u32};

/// The size of one entry in the array, in bytes.
const ENTRY: usize = 16;
/// The number of bytes before the first entry: the count and padding.
const BASE: usize = ALIGNMENT;
/// The smallest cookie that is not reserved (draft 6.5.29).
const COOKIE_MIN: u64 = 3;

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectoryEntry<'a> {
    /// The position at which the listing continues after this entry.
    pub cookie: ReaddirCookie,
    /// The requested attributes of the entry.
    pub attributes: FileAttributeBlock<'a>,
    /// The name, as encoded by [`to_wire`](dafs_types::names::to_wire).
    pub name: &'a str,
}

/// The entries of a directory, as encoded in a message or a direct transfer.
#[derive(Clone, Copy)]
pub struct DirectoryEntries<'a> {
    order: ByteOrder,
    bytes: &'a [u8],
    count: usize,
}

impl<'a> DirectoryEntries<'a> {
    /// Creates an empty list in this byte order.
    #[must_use]
    pub fn empty(order: ByteOrder) -> Self {
        Self { order, bytes: &[0; BASE], count: 0 }
    }

    /// Parses the entries at the start of `bytes`, which a direct request has transferred.
    ///
    /// # Errors
    /// If the bytes are truncated, or there are more entries than the limit.
    pub fn parse(order: ByteOrder, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        with_order!(order, O => Self::of(Scope::<O>::new(bytes)))
    }

    fn of<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError> {
        let count = scope.u32(0)? as usize;
        if count > ENTRIES_MAX {
            return Err(DecodeError::TooMany { what: "directory entries" });
        }
        scope.zeros(4, BASE)?;
        scope.require(BASE + count * ENTRY, "directory entries")?;
        Ok(Self { order: O::ORDER, bytes: scope.bytes(), count })
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the encoded entries, for a direct transfer to the client.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Iterates over the entries in order. Each entry is checked when the iteration reaches it.
    pub fn iter(&self) -> impl Iterator<Item = Result<DirectoryEntry<'a>, DecodeError>> + use<'a> {
        let entries = *self;
        (0..entries.count).map(move |index| {
            with_order!(entries.order, O => entry(Scope::<O>::new(entries.bytes), index))
        })
    }
}

fn entry<O: Order>(array: Scope<'_, O>, index: usize) -> Result<DirectoryEntry<'_>, DecodeError> {
    let at = BASE + index * ENTRY;
    Ok(DirectoryEntry {
        cookie: ReaddirCookie(array.u64(at)?),
        attributes: Attributes::read(array, at + 8)?,
        name: Name::read(array, at + 12)?,
    })
}

impl PartialEq for DirectoryEntries<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for DirectoryEntries<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The kind of a field that contains the offset of the directory entries.
pub(crate) enum Entries {}

impl Field for Entries {
    const SIZE: usize = 4;
    const ALIGN: usize = 4;
    const KIND: &'static str = "offset of entries";
}

impl<'a> Codec<'a, DirectoryEntries<'a>> for Entries {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<DirectoryEntries<'a>, DecodeError> {
        DirectoryEntries::of(scope.variable(at, "directory entries")?)
    }

    fn write<O: Order>(
        value: &DirectoryEntries<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        if value.order != O::ORDER {
            return Err(EncodeError::Value { what: "entries of the other byte order" });
        }
        writer.variable(at, value.bytes.len(), |array| array.put_slice(0, value.bytes))
    }
}

/// Encodes entries into a buffer until it is full.
pub struct ReaddirWriter<'b> {
    order: ByteOrder,
    wanted: AttributeBitmap,
    bytes: &'b mut [u8],
    count: usize,
    /// The offset in the buffer of the attributes and names that were written so far. It is a
    /// multiple of eight.
    top: usize,
}

impl<'b> ReaddirWriter<'b> {
    /// Creates an encoder for entries with the attributes in `wanted`. The size of the buffer
    /// limits the number of entries.
    ///
    /// # Errors
    /// If the buffer has no room even for the count.
    pub fn new(
        order: ByteOrder,
        wanted: AttributeBitmap,
        buffer: &'b mut [u8],
    ) -> Result<Self, EncodeError> {
        let top = buffer.len() / ALIGNMENT * ALIGNMENT;
        if top < BASE {
            return Err(EncodeError::Space);
        }
        let (bytes, _) = buffer.split_at_mut(top);
        Ok(Self { order, wanted, bytes, count: 0, top })
    }

    /// Returns the number of entries added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if no entry was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of bytes that a message or transfer needs for the entries added so far.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        BASE + self.count * ENTRY + (self.bytes.len() - self.top)
    }

    /// Adds an entry. Returns `Ok(false)` if the entry does not fit; the listing must then end
    /// before it.
    ///
    /// # Errors
    /// If the cookie is reserved, the name is empty or too long, or the attributes cannot be
    /// encoded. The entries that were added before are unchanged.
    pub fn push(
        &mut self,
        cookie: ReaddirCookie,
        name: &str,
        attributes: &FileAttributes,
    ) -> Result<bool, EncodeError> {
        if cookie.0 < COOKIE_MIN {
            return Err(EncodeError::Value { what: "a reserved cookie" });
        }
        if name.is_empty() {
            return Err(EncodeError::Value { what: "an empty name" });
        }
        if is_too_long(name) {
            return Err(EncodeError::TooMany { what: "name" });
        }
        if self.count == ENTRIES_MAX {
            return Ok(false);
        }
        match with_order!(self.order, O => self.place::<O>(cookie, name, attributes)) {
            Ok(()) => Ok(true),
            Err(EncodeError::Space) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn place<O: Order>(
        &mut self,
        cookie: ReaddirCookie,
        name: &str,
        attributes: &FileAttributes,
    ) -> Result<(), EncodeError> {
        let at = BASE + self.count * ENTRY;
        let floor = at + ENTRY;
        // Attributes are first encoded directly after the entry, because their length is not known
        // in advance. They contain only offsets from their own start, so they can then be moved.
        let room = self.bytes.get_mut(floor..self.top).ok_or(EncodeError::Space)?;
        let block = FileAttributeBlock::encode_file(self.order, self.wanted, attributes, room)?;
        let length = block.bytes().len();
        let attributes_at = (self.top - length) / ALIGNMENT * ALIGNMENT;
        let name_at = (attributes_at.checked_sub(4 + name.len()).ok_or(EncodeError::Space)?)
            / ALIGNMENT
            * ALIGNMENT;
        if name_at < floor {
            return Err(EncodeError::Space);
        }
        self.bytes.copy_within(floor..floor + length, attributes_at);
        self.bytes[attributes_at + length..self.top].fill(0);
        let text = &mut self.bytes[name_at..attributes_at];
        text.fill(0);
        text[..4].copy_from_slice(&O::u32_bytes(offset_u32(name.len())?));
        text[4..4 + name.len()].copy_from_slice(name.as_bytes());
        let slot = &mut self.bytes[at..floor];
        slot[..8].copy_from_slice(&O::u64_bytes(cookie.0));
        slot[8..12].copy_from_slice(&O::u32_bytes(offset_u32(attributes_at)?));
        slot[12..].copy_from_slice(&O::u32_bytes(offset_u32(name_at)?));
        self.top = name_at;
        self.count += 1;
        Ok(())
    }

    /// Closes the gap between the entries and their attributes, and returns the encoded entries.
    #[must_use]
    pub fn finish(self) -> DirectoryEntries<'b> {
        let (order, count) = (self.order, self.count);
        let bytes = with_order!(order, O => self.close::<O>());
        DirectoryEntries { order, bytes, count }
    }

    fn close<O: Order>(self) -> &'b [u8] {
        let end = BASE + self.count * ENTRY;
        let gap = self.top - end;
        let length = self.bytes.len() - gap;
        self.bytes.copy_within(self.top.., end);
        let (head, _) = self.bytes.split_at_mut(end);
        head[..BASE].fill(0);
        // The count is at most ENTRIES_MAX, which fits in a u32.
        head[..4].copy_from_slice(&O::u32_bytes(self.count as u32));
        for slot in head[BASE..].chunks_exact_mut(ENTRY) {
            for field in slot[8..].chunks_exact_mut(4) {
                let mut offset = [0; 4];
                offset.copy_from_slice(field);
                let moved = O::u32(offset).wrapping_sub(gap as u32);
                field.copy_from_slice(&O::u32_bytes(moved));
            }
        }
        &self.bytes[..length]
    }
}
