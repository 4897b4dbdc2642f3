//! Reading, writing, appending and committing data (draft 6.5.3, 6.5.4, 6.5.8, 6.5.27, 6.5.28,
//! 6.5.38, 6.5.39): the hot path.
//!
//! Invariant: inline data comes last in its message, so that a driver can send an encoded prefix
//! and then the data from its own buffer, and can receive data in the same way.

use dafs_types::{CacheHint, FileHandle, Stability, StateId, Verifier};

use crate::array::{Buffer, DirectBuffer, DirectBuffers, List};
use crate::checksum::Checksum;
use crate::error::{DecodeError, EncodeError};
use crate::field::{
    AppendStability, Codec, Enum, Field, Flag32, Handle, Long, Opaque64, Sum, Word,
};
use crate::limits::{ALIGNMENT, HEADER_BYTES};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::{FieldLayout, Section, place, section, size_of};

/// The inline data at the end of a message. Decoding always returns the variant `Here`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineData<'a> {
    /// These bytes are part of the message and are copied after the rest of it.
    Here(&'a [u8]),
    /// The caller sends the bytes after the encoded part of the message.
    Follows {
        /// The number of bytes.
        length: u32,
    },
}

impl<'a> InlineData<'a> {
    /// Returns the number of bytes of data.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::Follows { length } => *length as usize,
        }
    }

    /// Returns true if there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes; `None` if the caller sends them separately.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Here(bytes) => Some(bytes),
            Self::Follows { .. } => None,
        }
    }

    #[inline]
    fn count(&self) -> Result<u32, EncodeError> {
        u32::try_from(self.len()).map_err(|_| EncodeError::TooMany { what: "inline data" })
    }

    #[inline]
    fn following(&self) -> usize {
        match self {
            Self::Here(_) => 0,
            Self::Follows { length } => *length as usize,
        }
    }

    #[inline]
    fn append<O: Order>(&self, writer: &mut Writer<'_, O>) -> Result<(), EncodeError> {
        let Self::Here(bytes) = self else { return Ok(()) };
        let at = writer.allocate(bytes.len())?;
        writer.put_slice(at, bytes)
    }
}

/// The position in the message of an inline write's data (draft 4.2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Directly after the fixed section.
    Packed,
    /// At a given offset from the start of the message. The receiver must compare this offset with
    /// the negotiated `inline_write_header_bytes`.
    Padded {
        /// The offset of the data's first byte from the start of the message.
        header_bytes: u32,
    },
}

/// Returns the inline data at the end of `scope`, after a fixed section of `fixed` bytes.
#[inline]
fn trailing<O: Order>(
    scope: Scope<'_, O>,
    fixed: usize,
    count: u32,
    padded: bool,
) -> Result<(Placement, InlineData<'_>), DecodeError> {
    let bytes = scope.bytes();
    let start = bytes
        .len()
        .checked_sub(count as usize)
        .filter(|start| *start >= fixed)
        .ok_or(DecodeError::Truncated { what: "inline data" })?;
    let placement = if padded {
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(DecodeError::Offset { what: "inline data" });
        }
        scope.zeros(fixed, start)?;
        // A message is shorter than 4 GiB: its header's length is a u32 and was checked.
        Placement::Padded { header_bytes: (HEADER_BYTES + start) as u32 }
    } else if start == fixed {
        Placement::Packed
    } else {
        return Err(DecodeError::Offset { what: "inline data" });
    };
    Ok((placement, InlineData::Here(&bytes[start..])))
}

/// Writes the padding that the placement requires, then the data.
fn place_data<O: Order>(
    writer: &mut Writer<'_, O>,
    placement: Placement,
    data: InlineData<'_>,
) -> Result<(), EncodeError> {
    if let Placement::Padded { header_bytes } = placement {
        let padding = (header_bytes as usize)
            .checked_sub(HEADER_BYTES + writer.length())
            .ok_or(EncodeError::Value { what: "a write header of this size" })?;
        if !(header_bytes as usize).is_multiple_of(ALIGNMENT) {
            return Err(EncodeError::Value { what: "an unaligned write header" });
        }
        let at = writer.allocate(padding)?;
        writer.clear(at, padding)?;
    }
    data.append(writer)
}

section! {
    /// The arguments of READ_INLINE.
    ReadInline: 88 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open or lock under which the data is accessed.
        state: StateId => Opaque64,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The number of bytes that the client requests.
        length: u32 => Word,
        /// A hint about how the client will use the data; see [`CacheHint`].
        hint: CacheHint => Word,
    }
}

/// The results of READ_INLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadInlineResult<'a> {
    /// True if the read reached the end of the file.
    pub end_of_file: bool,
    /// The data that was read.
    pub data: InlineData<'a>,
}

/// The number of bytes before the data in READ_INLINE's results.
const READ_INLINE_RESULT: usize = 8;

impl<'a> Section<'a> for ReadInlineResult<'a> {
    const SIZE: usize = READ_INLINE_RESULT;
    const FIELDS: &'static [FieldLayout] = &place([
        ("end_of_file", Flag32::KIND, 4, 4),
        ("length", Word::KIND, 4, 4),
        ("data", "bytes, to the end of the message", 0, 1),
    ]);

    #[inline(always)]
    fn read<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError> {
        scope.require(Self::SIZE, "ReadInlineResult")?;
        let end_of_file = Flag32::read(scope, 0)?;
        let length = scope.u32(4)? as usize;
        match scope.bytes().get(Self::SIZE..) {
            Some(data) if data.len() == length => {
                Ok(Self { end_of_file, data: InlineData::Here(data) })
            }
            _ => Err(DecodeError::Truncated { what: "inline data" }),
        }
    }

    #[inline(always)]
    fn write<O: Order>(&self, writer: &mut Writer<'_, O>) -> Result<(), EncodeError> {
        Flag32::write(&self.end_of_file, writer, 0)?;
        writer.put_u32(4, self.data.count()?)?;
        self.data.append(writer)
    }

    #[inline(always)]
    fn following(&self) -> usize {
        self.data.following()
    }
}

section! {
    /// The arguments of READ_DIRECT.
    ReadDirect<'a>: 96 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open or lock under which the data is accessed.
        state: StateId => Opaque64,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The number of bytes that the client requests.
        length: u32 => Word,
        /// A hint about how the client will use the data.
        hint: CacheHint => Word,
        /// The ranges of client memory into which the server writes the data.
        buffers: DirectBuffers<'a> => List,
    }
}

section! {
    /// The results of READ_DIRECT.
    ReadDirectResult: 16 {
        /// True if the read reached the end of the file.
        end_of_file: bool => Flag32,
        /// The number of bytes read.
        length: u32 => Word,
        /// The checksum of the bytes read.
        checksum: Checksum => Sum,
    }
}

/// The arguments of WRITE_INLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteInline<'a> {
    /// The handle of the file that the request concerns.
    pub file: FileHandle,
    /// The state id of the open or lock under which the data is accessed.
    pub state: StateId,
    /// The offset in the file of the first byte of the range.
    pub offset: u64,
    /// The parts of the file (data, metadata) that must be on stable storage before the reply.
    pub stability: Stability,
    /// A hint about how the client will use the data.
    pub hint: CacheHint,
    /// The position of the data in the message.
    pub placement: Placement,
    /// The data to write.
    pub data: InlineData<'a>,
}

/// The number of bytes before padding and data in WRITE_INLINE's arguments.
const WRITE_INLINE: usize = 96;

impl<'a> Section<'a> for WriteInline<'a> {
    const SIZE: usize = WRITE_INLINE;
    const FIELDS: &'static [FieldLayout] = &place([
        ("file", Handle::KIND, 64, 8),
        ("state", Opaque64::KIND, 8, 8),
        ("offset", Long::KIND, 8, 8),
        ("length", Word::KIND, 4, 4),
        ("stability", Enum::KIND, 4, 4),
        ("padded", Flag32::KIND, 4, 4),
        ("hint", Word::KIND, 4, 4),
        ("data", "bytes, to the end of the message", 0, 1),
    ]);

    #[inline(always)]
    fn read<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError> {
        scope.require(Self::SIZE, "WriteInline")?;
        let padded = Flag32::read(scope, 88)?;
        let (placement, data) = trailing(scope, Self::SIZE, scope.u32(80)?, padded)?;
        Ok(Self {
            file: Handle::read(scope, 0)?,
            state: Opaque64::read(scope, 64)?,
            offset: scope.u64(72)?,
            stability: Enum::read(scope, 84)?,
            hint: CacheHint(scope.u32(92)?),
            placement,
            data,
        })
    }

    #[inline(always)]
    fn write<O: Order>(&self, writer: &mut Writer<'_, O>) -> Result<(), EncodeError> {
        Handle::write(&self.file, writer, 0)?;
        Opaque64::write(&self.state, writer, 64)?;
        writer.put_u64(72, self.offset)?;
        writer.put_u32(80, self.data.count()?)?;
        Enum::write(&self.stability, writer, 84)?;
        Flag32::write(&(self.placement != Placement::Packed), writer, 88)?;
        writer.put_u32(92, self.hint.0)?;
        place_data(writer, self.placement, self.data)
    }

    #[inline(always)]
    fn following(&self) -> usize {
        self.data.following()
    }
}

section! {
    /// The arguments of WRITE_DIRECT.
    WriteDirect<'a>: 104 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open or lock under which the data is accessed.
        state: StateId => Opaque64,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The number of bytes to write.
        length: u32 => Word,
        /// The parts of the file (data, metadata) that must be on stable storage before the reply.
        stability: Stability => Enum,
        /// A hint about how the client will use the data.
        hint: CacheHint => Word,
        /// The checksum of the data.
        checksum: Checksum => Sum,
        /// The ranges of client memory from which the server reads the data.
        buffers: DirectBuffers<'a> => List,
    }
}

section! {
    /// The results of WRITE_INLINE and WRITE_DIRECT.
    WriteResult: 16 {
        /// The number of bytes written.
        length: u32 => Word,
        /// The parts of the file (data, metadata) that are on stable storage now.
        committed: Stability => Enum,
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier => Opaque64,
    }
}

/// The arguments of APPEND_INLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInline<'a> {
    /// The handle of the file that the request concerns.
    pub file: FileHandle,
    /// The state id of the open or lock under which the data is accessed.
    pub state: StateId,
    /// The parts of the file (data, metadata) that must be on stable storage before the reply.
    /// Never `Unstable`.
    pub stability: Stability,
    /// A hint about how the client will use the data.
    pub hint: CacheHint,
    /// The position of the data in the message.
    pub placement: Placement,
    /// The data to append.
    pub data: InlineData<'a>,
}

/// The number of bytes before padding and data in APPEND_INLINE's arguments.
const APPEND_INLINE: usize = 88;

impl<'a> Section<'a> for AppendInline<'a> {
    const SIZE: usize = APPEND_INLINE;
    const FIELDS: &'static [FieldLayout] = &place([
        ("file", Handle::KIND, 64, 8),
        ("state", Opaque64::KIND, 8, 8),
        ("stability", AppendStability::KIND, 4, 4),
        ("length", Word::KIND, 4, 4),
        ("padded", Flag32::KIND, 4, 4),
        ("hint", Word::KIND, 4, 4),
        ("data", "bytes, to the end of the message", 0, 1),
    ]);

    fn read<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError> {
        scope.require(Self::SIZE, "AppendInline")?;
        let padded = Flag32::read(scope, 80)?;
        let (placement, data) = trailing(scope, Self::SIZE, scope.u32(76)?, padded)?;
        Ok(Self {
            file: Handle::read(scope, 0)?,
            state: Opaque64::read(scope, 64)?,
            stability: AppendStability::read(scope, 72)?,
            hint: CacheHint(scope.u32(84)?),
            placement,
            data,
        })
    }

    fn write<O: Order>(&self, writer: &mut Writer<'_, O>) -> Result<(), EncodeError> {
        Handle::write(&self.file, writer, 0)?;
        Opaque64::write(&self.state, writer, 64)?;
        AppendStability::write(&self.stability, writer, 72)?;
        writer.put_u32(76, self.data.count()?)?;
        Flag32::write(&(self.placement != Placement::Packed), writer, 80)?;
        writer.put_u32(84, self.hint.0)?;
        place_data(writer, self.placement, self.data)
    }

    fn following(&self) -> usize {
        self.data.following()
    }
}

section! {
    /// The arguments of APPEND_DIRECT.
    AppendDirect: 104 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open or lock under which the data is accessed.
        state: StateId => Opaque64,
        /// The parts of the file (data, metadata) that must be on stable storage before the reply.
        /// Never `Unstable`.
        stability: Stability => AppendStability,
        /// The number of bytes to append.
        length: u32 => Word,
        /// A hint about how the client will use the data.
        hint: CacheHint => Word,
        /// The checksum of the data.
        checksum: Checksum => Sum,
        /// The range of client memory from which the server reads the data.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// The results of APPEND_INLINE and APPEND_DIRECT.
    AppendResult: 24 {
        /// The offset in the file of the first appended byte.
        offset: u64 => Long,
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier => Opaque64,
        /// The parts of the file (data, metadata) that are on stable storage now.
        committed: Stability => AppendStability,
    }
}

section! {
    /// The arguments of COMMIT.
    Commit: 80 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The offset in the file of the first byte to commit.
        offset: u64 => Long,
        /// The number of bytes to commit; 0 means all bytes from `offset` on.
        length: u32 => Word,
    }
}

section! {
    /// The results of COMMIT.
    CommitResult: 8 {
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier => Opaque64,
    }
}

const _: () = {
    assert!(size_of(ReadInlineResult::FIELDS) == READ_INLINE_RESULT);
    assert!(size_of(WriteInline::FIELDS) == WRITE_INLINE);
    assert!(size_of(AppendInline::FIELDS) == APPEND_INLINE);
    // A read into one buffer fits in three cache lines, its reply in one.
    assert!(HEADER_BYTES + <ReadDirect<'_> as Section<'_>>::SIZE + 8 + 16 <= 192);
    assert!(HEADER_BYTES + <ReadDirectResult as Section<'_>>::SIZE <= 56);
};
