//! Attribute blocks (draft 6.1.5, 6.1.6): two bitmaps, then the value of each included attribute in
//! the order of bits, at its natural alignment.
//!
//! Invariant: an included attribute has its space in the block whether or not it is valid, so that
//! a client can compute offsets from its request. To compute offsets, the layout of every included
//! attribute must be known. So encoders leave unknown attributes out of `included`, and decoders
//! refuse a block that includes one.

mod acl;
pub mod file;
pub mod file_system;

use std::marker::PhantomData;

use dafs_types::Timestamp;
use dafs_types::limits::{MIME_TYPE_BYTES_MAX, OWNER_BYTES_MAX};

use crate::error::{DecodeError, EncodeError};
use crate::field::{Codec, Field, Long, truth};
use crate::order::{ByteOrder, Order, with_order};
use crate::scope::{Scope, Writer};
use crate::section::align_up;

pub use file::FileAttributeBlock;
pub use file_system::FsAttributeBlock;

/// A set of attributes, in which bit n-1 stands for attribute number n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttributeBitmap(pub u64);

impl AttributeBitmap {
    /// The set of no attributes.
    pub const NONE: Self = Self(0);

    /// Creates the set of one attribute, numbered from 1 to 64.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        Self(1 << (number - 1))
    }

    /// Returns true if all of `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Returns the attributes in this set but not in `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl<'a> Codec<'a, AttributeBitmap> for Long {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<AttributeBitmap, DecodeError> {
        scope.u64(at).map(AttributeBitmap)
    }
    fn write<O: Order>(
        value: &AttributeBitmap,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        writer.put_u64(at, value.0)
    }
}

/// The number, name and type of one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeLayout {
    /// The attribute's number in the draft, counted from 1.
    pub number: u32,
    /// The attribute's name in the draft, without the draft's prefix.
    pub name: &'static str,
    /// The type of the attribute's value.
    pub kind: AttributeKind,
}

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeKind {
    /// One byte, 0 or 1.
    Flag,
    /// A 32-bit unsigned integer.
    Word,
    /// A 64-bit unsigned integer.
    Long,
    /// A time: the seconds as an i64, the nanoseconds as a u32, and 4 bytes of padding.
    Time,
    /// A time, then a u32 that selects the server's current time (1) or the given time (2), and 4
    /// bytes of padding.
    SetTime,
    /// Two 64-bit unsigned integers: the major and the minor device number.
    Device,
    /// A file handle of 64 bytes.
    Handle,
    /// A file-system handle of 16 bytes.
    FsHandle,
    /// The offset of a string from the start of the block.
    Text,
    /// The offset of a counted array of access control entries from the start of the block.
    Acl,
    /// The offset, from the start of the block, of a list that this implementation does not decode.
    Other,
}

impl AttributeKind {
    /// Returns the size and the alignment, both in bytes, of a value of this type in the block.
    #[must_use]
    pub const fn layout(self) -> (usize, usize) {
        match self {
            Self::Flag => (1, 1),
            Self::Word | Self::Text | Self::Acl | Self::Other => (4, 4),
            Self::Long => (8, 8),
            Self::Time | Self::Device | Self::FsHandle => (16, 8),
            Self::SetTime => (24, 8),
            Self::Handle => (64, 8),
        }
    }
}

/// The size of the two bitmaps in bytes.
const BITMAPS: usize = 16;

/// Returns the set of all attributes in a table.
pub(crate) const fn known(table: &[AttributeLayout]) -> AttributeBitmap {
    let mut all = AttributeBitmap::NONE;
    let mut index = 0;
    while index < table.len() {
        all = all.with(AttributeBitmap::of(table[index].number));
        index += 1;
    }
    all
}

/// The kinds of attributes that a block may contain: those of files or those of file systems. The
/// trait is sealed.
pub(crate) trait Table: Copy {
    const LAYOUTS: &'static [AttributeLayout];
    const KNOWN: AttributeBitmap = known(Self::LAYOUTS);

    /// Checks the value of a valid attribute.
    fn check<O: Order>(block: Scope<'_, O>, number: u32, at: usize) -> Result<(), DecodeError>;
}

/// An encoded attribute block, which is either inside a message or was created to be put into a
/// message.
#[derive(Clone, Copy)]
pub struct Block<'a, T> {
    order: ByteOrder,
    bytes: &'a [u8],
    table: PhantomData<T>,
}

#[allow(private_bounds, reason = "the two tables are the crate's own")]
impl<'a, T: Table> Block<'a, T> {
    /// Creates a block without attributes, in this byte order.
    #[must_use]
    pub fn empty(order: ByteOrder) -> Self {
        Self { order, bytes: &[0; BITMAPS], table: PhantomData }
    }

    /// Parses the block at the start of `bytes`, which a direct request has transferred.
    ///
    /// # Errors
    /// If the block is truncated, or has unknown attributes, bad offsets or bad values.
    pub fn parse(order: ByteOrder, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        with_order!(order, O => Self::of(Scope::<O>::new(bytes)))
    }

    fn of<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError> {
        let included = AttributeBitmap(scope.u64(0)?);
        let valid = AttributeBitmap(scope.u64(8)?);
        let unknown = included.without(T::KNOWN);
        if unknown != AttributeBitmap::NONE {
            return Err(DecodeError::AttributeBits(unknown.0));
        }
        if !included.contains(valid) {
            return Err(DecodeError::AttributeBits(valid.without(included).0));
        }
        let end = each::<T, _>(included, |number, at| {
            if valid.contains(AttributeBitmap::of(number)) {
                T::check(scope, number, at)
            } else {
                Ok(())
            }
        })?;
        scope.require(end, "attributes")?;
        Ok(Self { order: O::ORDER, bytes: scope.bytes(), table: PhantomData })
    }

    /// Returns the encoded block, for a direct transfer. The slice may contain bytes after the
    /// block.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the attributes that have space in the block.
    #[must_use]
    pub fn included(&self) -> AttributeBitmap {
        self.bitmap(0)
    }

    /// Returns the attributes that have a value.
    #[must_use]
    pub fn valid(&self) -> AttributeBitmap {
        self.bitmap(8)
    }

    fn bitmap(&self, at: usize) -> AttributeBitmap {
        with_order!(self.order, O => AttributeBitmap(
            Scope::<O>::new(self.bytes).u64(at).unwrap_or_default()
        ))
    }

    /// Encodes into `buffer` the attributes of `included` that are known. `put` writes the value of
    /// an attribute, and returns true if there is a value.
    fn encode<O: Order>(
        included: AttributeBitmap,
        buffer: &'a mut [u8],
        mut put: impl FnMut(&mut Writer<'_, O>, u32, usize) -> Result<bool, EncodeError>,
    ) -> Result<Self, EncodeError> {
        let included = included.and(T::KNOWN);
        let fixed = each::<T, _>(included, |_, _| Ok::<(), EncodeError>(()))?;
        let mut writer = Writer::<O>::new(buffer, fixed)?;
        let mut valid = AttributeBitmap::NONE;
        each::<T, _>(included, |number, at| {
            if put(&mut writer, number, at)? {
                valid = valid.with(AttributeBitmap::of(number));
            }
            Ok::<(), EncodeError>(())
        })?;
        writer.put_u64(0, included.0)?;
        writer.put_u64(8, valid.0)?;
        let length = writer.length();
        let bytes = &buffer[..length];
        Ok(Self { order: O::ORDER, bytes, table: PhantomData })
    }

    /// Calls `take` with the number and offset of each valid attribute. Errors cannot occur,
    /// because the block was checked before.
    fn valid_fields<O: Order>(
        &self,
        mut take: impl FnMut(Scope<'a, O>, u32, usize) -> Result<(), DecodeError>,
    ) {
        let (scope, valid) = (Scope::<O>::new(self.bytes), self.valid());
        let outcome = each::<T, _>(self.included(), |number, at| {
            if valid.contains(AttributeBitmap::of(number)) {
                take(scope, number, at)
            } else {
                Ok(())
            }
        });
        debug_assert!(outcome.is_ok());
    }
}

/// Calls `visit` with the number and offset of every attribute that a block includes, in the order
/// of numbers. Returns the offset of the end of the block's fixed part.
fn each<T: Table, E>(
    included: AttributeBitmap,
    mut visit: impl FnMut(u32, usize) -> Result<(), E>,
) -> Result<usize, E> {
    let mut end = BITMAPS;
    for layout in T::LAYOUTS {
        if included.contains(AttributeBitmap::of(layout.number)) {
            let (size, align) = layout.kind.layout();
            let at = align_up(end, align);
            visit(layout.number, at)?;
            end = at + size;
        }
    }
    Ok(end)
}

/// The kind of a field that contains the offset of an attribute block.
pub(crate) enum Attributes {}

impl Field for Attributes {
    const SIZE: usize = 4;
    const ALIGN: usize = 4;
    const KIND: &'static str = "offset of attributes";
}

impl<'a, T: Table> Codec<'a, Block<'a, T>> for Attributes {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Block<'a, T>, DecodeError> {
        Block::of(scope.variable(at, "attributes")?)
    }

    fn write<O: Order>(
        value: &Block<'a, T>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        if value.order != O::ORDER {
            return Err(EncodeError::Value { what: "an attribute block of the other byte order" });
        }
        writer.variable(at, value.bytes.len(), |block| block.put_slice(0, value.bytes))
    }
}

/// The number of nanoseconds in a second.
const SECOND_NS: u32 = 1_000_000_000;

fn read_time<O: Order>(scope: Scope<'_, O>, at: usize) -> Result<Timestamp, DecodeError> {
    let nanoseconds = scope.u32(at + 8)?;
    scope.zeros(at + 12, at + 16)?;
    if nanoseconds >= SECOND_NS {
        return Err(DecodeError::Value { what: "nanoseconds", value: nanoseconds });
    }
    Ok(Timestamp { seconds: scope.u64(at)?.cast_signed(), nanoseconds })
}

fn put_time<O: Order>(
    writer: &mut Writer<'_, O>,
    at: usize,
    time: Timestamp,
) -> Result<(), EncodeError> {
    if time.nanoseconds >= SECOND_NS {
        return Err(EncodeError::Value { what: "a whole second of nanoseconds" });
    }
    writer.put_u64(at, time.seconds.cast_unsigned())?;
    writer.put_u32(at + 8, time.nanoseconds)
}

fn read_flag<O: Order>(scope: Scope<'_, O>, at: usize) -> Result<bool, DecodeError> {
    let [value] = scope.array(at)?;
    truth(u32::from(value))
}

fn read_text<O: Order>(scope: Scope<'_, O>, at: usize) -> Result<&str, DecodeError> {
    let bytes = scope.bytes_at(at, OWNER_BYTES_MAX, "owner")?;
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
}

fn read_mime_type<O: Order>(scope: Scope<'_, O>, at: usize) -> Result<&str, DecodeError> {
    let bytes = scope.bytes_at(at, MIME_TYPE_BYTES_MAX, "MIME type")?;
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
}

fn put_mime_type<O: Order>(
    writer: &mut Writer<'_, O>,
    at: usize,
    text: &str,
) -> Result<(), EncodeError> {
    writer.bytes_at(at, text.as_bytes(), MIME_TYPE_BYTES_MAX, "MIME type")
}

fn put_text<O: Order>(
    writer: &mut Writer<'_, O>,
    at: usize,
    text: &str,
) -> Result<(), EncodeError> {
    writer.bytes_at(at, text.as_bytes(), OWNER_BYTES_MAX, "owner")
}
