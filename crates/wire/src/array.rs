//! Counted arrays and path names (draft 6.1.1.3.1).
//!
//! Invariant: an array from a peer is checked once, from start to end and against its limit, when
//! it is decoded. Iterating over it later cannot fail.

use std::fmt;

use dafs_types::limits::{
    DIRECT_BUFFERS_MAX, FENCE_ID_BYTES_MAX, NAME_WIRE_BYTES_MAX, PATH_BYTES_MAX,
    PATH_COMPONENTS_MAX,
};
use dafs_types::{RmrContext, RmrTarget, names};

use crate::error::{DecodeError, EncodeError};
use crate::field::{Codec, Field, check_name, is_too_long};
use crate::limits::{ALIGNMENT, FENCE_IDS_MAX, GROUPS_MAX};
use crate::order::{ByteOrder, Order, with_order};
use crate::scope::{Scope, Writer, offset_u32};
use crate::section::align_up;

/// An element type of a counted array. In its functions, `at` is the offset of an element from the
/// start of the array.
pub(crate) trait Element<'a>: Copy {
    const SIZE: usize;
    const ALIGN: usize;
    const COUNT_MAX: usize;
    const WHAT: &'static str;
    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError>;
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError>;
}

/// A list of elements: either a slice that the caller provides, or an array that is still encoded
/// in a message.
pub struct Array<'a, T>(Source<'a, T>);

enum Source<'a, T> {
    Values(&'a [T]),
    Wire { order: ByteOrder, bytes: &'a [u8], count: usize },
}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<'_, T> {}

impl<T> Clone for Source<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Source<'_, T> {}

impl<'a, T> From<&'a [T]> for Array<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self(Source::Values(values))
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for Array<'a, T> {
    fn from(values: &'a [T; N]) -> Self {
        Self(Source::Values(values))
    }
}

impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Self(Source::Values(&[]))
    }
}

#[allow(private_bounds, reason = "elements are the crate's own types")]
impl<'a, T: Element<'a>> Array<'a, T> {
    /// Returns the number of elements.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Values(values) => values.len(),
            Source::Wire { count, .. } => count,
        }
    }

    /// Returns true if the array has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element at `index`. `None` if `index` is not less than the number of elements.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<T> {
        match self.0 {
            Source::Values(values) => values.get(index).copied(),
            Source::Wire { order, bytes, count } if index < count => {
                let at = base::<T>() + index * T::SIZE;
                with_order!(order, O => T::read(Scope::<O>::new(bytes), at)).ok()
            }
            Source::Wire { .. } => None,
        }
    }

    /// Iterates over the elements in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let array = *self;
        (0..array.len()).map_while(move |index| array.get(index))
    }

    #[inline(always)]
    pub(crate) fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        let array = scope.variable(at, T::WHAT)?;
        let count = array.u32(0)? as usize;
        if count > T::COUNT_MAX {
            return Err(DecodeError::TooMany { what: T::WHAT });
        }
        array.require(base::<T>() + count * T::SIZE, T::WHAT)?;
        array.zeros(4, base::<T>())?;
        for index in 0..count {
            T::read(array, base::<T>() + index * T::SIZE)?;
        }
        Ok(Self(Source::Wire { order: O::ORDER, bytes: array.bytes(), count }))
    }

    #[inline(always)]
    pub(crate) fn write<O: Order>(
        &self,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        let count = self.len();
        if count > T::COUNT_MAX {
            return Err(EncodeError::TooMany { what: T::WHAT });
        }
        writer.variable(at, base::<T>() + count * T::SIZE, |array| {
            array.put_u32(0, offset_u32(count)?)?;
            for (index, element) in self.iter().enumerate() {
                element.write(array, base::<T>() + index * T::SIZE)?;
            }
            Ok(())
        })
    }
}

/// Returns the number of bytes before the first element: the count, and four bytes of padding if
/// elements must be aligned to eight bytes.
const fn base<'a, T: Element<'a>>() -> usize {
    align_up(4, T::ALIGN)
}

#[allow(private_bounds, reason = "elements are the crate's own types")]
impl<'a, T: Element<'a> + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

#[allow(private_bounds, reason = "elements are the crate's own types")]
impl<'a, T: Element<'a> + fmt::Debug> fmt::Debug for Array<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The kind of a field that contains the offset of a counted array.
pub(crate) enum List {}

impl Field for List {
    const SIZE: usize = 4;
    const ALIGN: usize = 4;
    const KIND: &'static str = "offset of array";
}

impl<'a, T: Element<'a>> Codec<'a, Array<'a, T>> for List {
    #[inline(always)]
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Array<'a, T>, DecodeError> {
        Array::read(scope, at)
    }
    #[inline(always)]
    fn write<O: Order>(
        value: &Array<'a, T>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        value.write(writer, at)
    }
}

/// A range of the client's memory that the server reads or writes by RDMA (draft 6.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectBuffer {
    /// The address of the range, in the address space of the memory region.
    pub target: RmrTarget,
    /// The length of the range in bytes.
    pub length: u32,
    /// The handle of the memory region.
    pub context: RmrContext,
}

impl<'a> Element<'a> for DirectBuffer {
    const SIZE: usize = 16;
    const ALIGN: usize = 8;
    const COUNT_MAX: usize = DIRECT_BUFFERS_MAX;
    const WHAT: &'static str = "direct buffers";

    #[inline(always)]
    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        Ok(Self {
            target: RmrTarget(array.u64(at)?),
            length: array.u32(at + 8)?,
            context: RmrContext(array.u32(at + 12)?),
        })
    }

    #[inline(always)]
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        array.put_u64(at, self.target.0)?;
        array.put_u32(at + 8, self.length)?;
        array.put_u32(at + 12, self.context.0)
    }
}

/// The ranges of client memory in a request for direct transfer.
pub type DirectBuffers<'a> = Array<'a, DirectBuffer>;

impl DirectBuffers<'_> {
    /// Returns the total length of all ranges in bytes; at most 64 times 4 GiB.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.iter().map(|buffer| u64::from(buffer.length)).sum()
    }
}

/// The kind of a field that is itself a direct buffer.
pub(crate) enum Buffer {}

impl Field for Buffer {
    const SIZE: usize = 16;
    const ALIGN: usize = 8;
    const KIND: &'static str = "direct buffer";
}

impl<'a> Codec<'a, DirectBuffer> for Buffer {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<DirectBuffer, DecodeError> {
        <DirectBuffer as Element>::read(scope, at)
    }
    fn write<O: Order>(
        value: &DirectBuffer,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        Element::write(value, writer, at)
    }
}

impl<'a> Element<'a> for u32 {
    const SIZE: usize = 4;
    const ALIGN: usize = 4;
    const COUNT_MAX: usize = GROUPS_MAX;
    const WHAT: &'static str = "groups";

    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        array.u32(at)
    }
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        array.put_u32(at, *self)
    }
}

/// The elements of lists of fence identities. The array contains offsets of strings
/// (`docs/spec/gaps.md`).
impl<'a> Element<'a> for &'a str {
    const SIZE: usize = 4;
    const ALIGN: usize = 4;
    const COUNT_MAX: usize = FENCE_IDS_MAX;
    const WHAT: &'static str = "fence identities";

    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        let bytes = array.bytes_at(at, FENCE_ID_BYTES_MAX, "fence id")?;
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
    }
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        array.bytes_at(at, self.as_bytes(), FENCE_ID_BYTES_MAX, "fence id")
    }
}

/// A path, which has one or more names. Each name is UTF-8, not empty, and encoded by
/// [`to_wire`](dafs_types::names::to_wire).
#[derive(Clone, Copy)]
pub struct Path<'a>(PathSource<'a>);

#[derive(Clone, Copy)]
enum PathSource<'a> {
    Names(&'a [&'a str]),
    Slashed(&'a str),
    Wire { order: ByteOrder, bytes: &'a [u8], count: usize },
}

impl<'a> Path<'a> {
    /// Creates a path from its components, which are already encoded for messages.
    #[must_use]
    pub fn new(names: &'a [&'a str]) -> Self {
        Self(PathSource::Names(names))
    }

    /// Creates a path from a text by splitting it at slashes. Empty components are left out.
    #[must_use]
    pub fn split(text: &'a str) -> Self {
        Self(PathSource::Slashed(text))
    }

    /// Returns the number of components.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            PathSource::Names(names) => names.len(),
            PathSource::Slashed(_) => self.iter().count(),
            PathSource::Wire { count, .. } => count,
        }
    }

    /// Returns true if the path has no components. No message may contain such a path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the components in order.
    #[must_use]
    pub fn iter(&self) -> PathNames<'a> {
        PathNames(match self.0 {
            PathSource::Names(names) => NamesSource::Names(names.iter()),
            PathSource::Slashed(text) => NamesSource::Slashed(text),
            PathSource::Wire { order, bytes, count } => {
                NamesSource::Wire { order, bytes, left: count, at: ALIGNMENT }
            }
        })
    }
}

/// An iterator over the components of a [`Path`].
#[derive(Clone)]
pub struct PathNames<'a>(NamesSource<'a>);

#[derive(Clone)]
enum NamesSource<'a> {
    Names(std::slice::Iter<'a, &'a str>),
    Slashed(&'a str),
    Wire { order: ByteOrder, bytes: &'a [u8], left: usize, at: usize },
}

impl<'a> Iterator for PathNames<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        match &mut self.0 {
            NamesSource::Names(names) => names.next().copied(),
            NamesSource::Slashed(text) => {
                let rest = text.trim_start_matches('/');
                let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
                *text = rest;
                (!name.is_empty()).then_some(name)
            }
            NamesSource::Wire { order, bytes, left, at } => {
                *left = left.checked_sub(1)?;
                let rest = bytes.get(*at..)?;
                let (name, size) =
                    with_order!(*order, O => component(Scope::<O>::new(rest))).ok()?;
                *at += align_up(size, ALIGNMENT);
                Some(name)
            }
        }
    }
}

/// Reads one component of an inline path name. Returns it and its length in bytes without padding.
fn component<O: Order>(scope: Scope<'_, O>) -> Result<(&str, usize), DecodeError> {
    match scope.counted(NAME_WIRE_BYTES_MAX, "path") {
        Ok(bytes) => Ok((check_name(bytes)?, 4 + bytes.len())),
        Err(DecodeError::TooMany { .. }) => Err(DecodeError::NameTooLong),
        Err(error) => Err(error),
    }
}

impl PartialEq for Path<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The kind of a field that contains the offset of a path.
pub(crate) enum PathName {}

impl Field for PathName {
    const SIZE: usize = 4;
    const ALIGN: usize = 4;
    const KIND: &'static str = "offset of path name";
}

impl<'a> Codec<'a, Path<'a>> for PathName {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Path<'a>, DecodeError> {
        let path = scope.variable(at, "path")?;
        let count = path.u32(0)? as usize;
        path.zeros(4, ALIGNMENT)?;
        if count == 0 {
            return Err(DecodeError::Empty);
        }
        if count > PATH_COMPONENTS_MAX {
            return Err(DecodeError::NameTooLong);
        }
        let (mut next, mut length) = (ALIGNMENT, 0);
        for _ in 0..count {
            let rest = path.bytes().get(next..).ok_or(DecodeError::Truncated { what: "path" })?;
            let (name, size) = component(Scope::<O>::new(rest))?;
            length += names::length_of_wire(name) + 1;
            next += align_up(size, ALIGNMENT);
        }
        if length > PATH_BYTES_MAX + 1 {
            return Err(DecodeError::NameTooLong);
        }
        Ok(Path(PathSource::Wire { order: O::ORDER, bytes: path.bytes(), count }))
    }

    fn write<O: Order>(
        value: &Path<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        writer.variable(at, ALIGNMENT, |path| {
            let (mut count, mut length) = (0, 0);
            for name in value.iter() {
                (count, length) = (count + 1, length + names::length_of_wire(name) + 1);
                if count > PATH_COMPONENTS_MAX || length > PATH_BYTES_MAX + 1 {
                    return Err(EncodeError::TooMany { what: "path" });
                }
                if name.is_empty() {
                    return Err(EncodeError::Value { what: "an empty path" });
                }
                if is_too_long(name) {
                    return Err(EncodeError::TooMany { what: "name" });
                }
                path.counted(name.as_bytes(), NAME_WIRE_BYTES_MAX, "name")?;
            }
            if count == 0 {
                return Err(EncodeError::Value { what: "an empty path" });
            }
            path.put_u32(0, offset_u32(count)?)
        })
    }
}
