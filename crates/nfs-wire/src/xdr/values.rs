//! The basic types of declarations: numbers, bytes, lists, options and payloads.
//!
//! Invariant: a value with a variable length has a bound, which decoding and encoding check.

use std::fmt;
use std::ops::Deref;

use super::{Reader, Shape, Writer, Xdr, XdrError};

/// The maximum length of the data of one READ or WRITE, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// At most `MAX` bytes, which are borrowed from the message. This type is used for strings, too,
/// because names in NFS need not be valid UTF-8.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opaque<'b, const MAX: usize>(pub &'b [u8]);

/// The data of a READ or WRITE, which this crate never copies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Payload<'b> {
    /// The data is in the message.
    Here(&'b [u8]),
    /// The data is not in the message's bytes. The value is its length in bytes. See
    /// [`Reader::place`] and [`Writer::payload`].
    Elsewhere(usize),
}

/// A list of at most `MAX` items, which is encoded with its count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

/// A linked list of at most `MAX` items. Each item is preceded by a true, and a false follows the
/// last item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain<T, const MAX: usize>(pub Vec<T>);

/// A list of at most `MAX` small items, which is encoded with its count and needs no allocation.
#[derive(Clone, Copy)]
pub struct Inline<T, const MAX: usize> {
    items: [T; MAX],
    count: usize,
}

impl<const MAX: usize> Deref for Opaque<'_, MAX> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<const MAX: usize> fmt::Debug for Opaque<'_, MAX> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

impl Payload<'_> {
    /// Returns the length of the data in bytes.
    #[must_use]
    #[inline]
    pub const fn length(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::Elsewhere(length) => *length,
        }
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(bytes) => write!(out, "{} bytes", bytes.len()),
            Self::Elsewhere(length) => write!(out, "{length} bytes elsewhere"),
        }
    }
}

impl<T: Copy + Default, const MAX: usize> Inline<T, MAX> {
    /// Returns a list of these items; `None` if there are more than `MAX`.
    #[must_use]
    pub fn new(from: &[T]) -> Option<Self> {
        let mut items = [T::default(); MAX];
        items.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { items, count: from.len() })
    }

    /// Appends an item; returns false if the list is full.
    pub fn push(&mut self, item: T) -> bool {
        let Some(place) = self.items.get_mut(self.count) else { return false };
        *place = item;
        self.count += 1;
        true
    }
}

impl<T: Copy + Default, const MAX: usize> Default for Inline<T, MAX> {
    fn default() -> Self {
        Self { items: [T::default(); MAX], count: 0 }
    }
}

impl<T, const MAX: usize> Deref for Inline<T, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items[..self.count]
    }
}

impl<T: fmt::Debug, const MAX: usize> fmt::Debug for Inline<T, MAX> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

impl<T: PartialEq, const MAX: usize> PartialEq for Inline<T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const MAX: usize> Eq for Inline<T, MAX> {}

macro_rules! numbers {
    ($($type:ty: $shape:ident $method:ident $wide:ty;)*) => {$(
        impl<'b> Xdr<'b> for $type {
            const LEAST: usize = size_of::<Self>();
            const SHAPE: &'static Shape = &Shape::$shape;
            #[inline]
            fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
                reader.$method().map(|value| value as Self)
            }
            #[inline]
            fn encode(&self, writer: &mut Writer) {
                writer.$method(*self as $wide);
            }
        }
    )*};
}

numbers! {
    u32: U32 u32 u32;
    i32: I32 u32 u32;
    u64: U64 u64 u64;
    i64: I64 u64 u64;
}

impl<'b> Xdr<'b> for bool {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Bool;
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        match reader.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::Value { kind: "bool", value }),
        }
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.u32(u32::from(*self));
    }
}

impl<'b> Xdr<'b> for () {
    const LEAST: usize = 0;
    const SHAPE: &'static Shape = &Shape::Void;
    #[inline]
    fn decode(_: &mut Reader<'b>) -> Result<Self, XdrError> {
        Ok(())
    }
    #[inline]
    fn encode(&self, _: &mut Writer) {}
}

impl<'b, const LENGTH: usize> Xdr<'b> for [u8; LENGTH] {
    const LEAST: usize = LENGTH + super::padding(LENGTH);
    const SHAPE: &'static Shape = &Shape::Fixed(LENGTH);
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        let bytes = reader.padded(LENGTH)?;
        let mut copy = [0; LENGTH];
        copy.copy_from_slice(bytes);
        Ok(copy)
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.padded(self);
    }
}

impl<'b, const MAX: usize> Xdr<'b> for Opaque<'b, MAX> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Opaque { bytes_max: MAX };
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        let length = reader.count(MAX, 1)?;
        reader.padded(length).map(Self)
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.count(self.0.len(), MAX);
        writer.padded(self.0);
    }
}

impl<'b> Xdr<'b> for Payload<'b> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Payload;
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        reader.payload()
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Here(bytes) => Opaque::<PAYLOAD_BYTES_MAX>(bytes).encode(writer),
            Self::Elsewhere(length) => writer.payload(*length),
        }
    }
}

impl<'b, T: Xdr<'b>> Xdr<'b> for Option<T> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Option(T::SHAPE);
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        if bool::decode(reader)? { T::decode(reader).map(Some) } else { Ok(None) }
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        self.is_some().encode(writer);
        if let Some(value) = self {
            value.encode(writer);
        }
    }
}

impl<'b, T: Xdr<'b>, const MAX: usize> Xdr<'b> for List<T, MAX> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::List { item: T::SHAPE, count_max: MAX };
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        const { assert!(T::LEAST > 0, "items without bytes cannot be counted by bytes") };
        let count = reader.count(MAX, T::LEAST)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::decode(reader)?);
        }
        Ok(Self(items))
    }
    fn encode(&self, writer: &mut Writer) {
        writer.count(self.0.len(), MAX);
        self.0.iter().for_each(|item| item.encode(writer));
    }
}

impl<'b, T: Xdr<'b>, const MAX: usize> Xdr<'b> for Chain<T, MAX> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Chain { item: T::SHAPE, count_max: MAX };
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        let mut items = Vec::new();
        while bool::decode(reader)? {
            if items.len() == MAX {
                return Err(XdrError::TooMany { count: MAX + 1, bound: MAX });
            }
            items.push(T::decode(reader)?);
        }
        Ok(Self(items))
    }
    fn encode(&self, writer: &mut Writer) {
        if self.0.len() > MAX {
            return writer.fail(XdrError::TooMany { count: self.0.len(), bound: MAX });
        }
        for item in &self.0 {
            true.encode(writer);
            item.encode(writer);
        }
        false.encode(writer);
    }
}

impl<'b, T: Xdr<'b> + Copy + Default, const MAX: usize> Xdr<'b> for Inline<T, MAX> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::List { item: T::SHAPE, count_max: MAX };
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        let count = reader.count(MAX, T::LEAST)?;
        let mut list = Self { count, ..Self::default() };
        for place in &mut list.items[..count] {
            *place = T::decode(reader)?;
        }
        Ok(list)
    }
    fn encode(&self, writer: &mut Writer) {
        writer.count(self.len(), MAX);
        self.iter().for_each(|item| item.encode(writer));
    }
}

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> Default for Chain<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> Deref for List<T, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MAX: usize> Deref for Chain<T, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}
