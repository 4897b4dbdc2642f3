//! Batches of transfers (draft 6.5.5, 6.5.16, 6.6.2). Invariant: chunks and buffers of
//! one request are counted from the start of the array of requests, the scope they
//! stand in.

use dafs_types::{CacheHint, FileHandle, RequestId, StateId, Status};

use crate::array::{Array, DirectBuffers, Element, List};
use crate::checksum::Checksum;
use crate::error::{DecodeError, EncodeError};
use crate::field::{
    Codec, Enum, Flag8, Handle, Long, Opaque64, Outcome, Word, read_enum, wire_enum,
};
use crate::limits::{BATCH_REQUESTS_MAX, COMPLETIONS_MAX, FILE_CHUNKS_MAX};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

wire_enum! {
    /// Which way a transfer goes.
    TransferDirection, "transfer direction" {
        /// From file to memory.
        Read = 1,
        /// From memory to file.
        Write = 2,
    }
}

/// A piece of a file (draft 6.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileChunk {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Use expected.
    pub hint: CacheHint,
}

impl<'a> Element<'a> for FileChunk {
    const SIZE: usize = 16;
    const ALIGN: usize = 8;
    const COUNT_MAX: usize = FILE_CHUNKS_MAX;
    const WHAT: &'static str = "file chunks";

    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        Ok(Self {
            offset: array.u64(at)?,
            length: array.u32(at + 8)?,
            hint: CacheHint(array.u32(at + 12)?),
        })
    }
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        array.put_u64(at, self.offset)?;
        array.put_u32(at + 8, self.length)?;
        array.put_u32(at + 12, self.hint.0)
    }
}

/// One transfer of a batch. Chunks and buffers have the same total but may be cut
/// differently; whoever executes it checks the totals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRequest<'a> {
    /// The file.
    pub file: FileHandle,
    /// The client's name for this transfer, unique in its session.
    pub request: RequestId,
    /// The open or lock it goes under.
    pub state: StateId,
    /// Which way.
    pub direction: TransferDirection,
    /// Pieces of the file.
    pub chunks: Array<'a, FileChunk>,
    /// Pieces of the client's memory.
    pub buffers: DirectBuffers<'a>,
    /// Checksum of the data of a write.
    pub checksum: Checksum,
}

impl<'a> Element<'a> for BatchRequest<'a> {
    const SIZE: usize = 96;
    const ALIGN: usize = 8;
    const COUNT_MAX: usize = BATCH_REQUESTS_MAX;
    const WHAT: &'static str = "batch requests";

    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        Ok(Self {
            file: Handle::read(array, at)?,
            request: Long::read(array, at + 64)?,
            state: Opaque64::read(array, at + 72)?,
            direction: read_enum(array, at + 80)?,
            chunks: Array::read(array, at + 84)?,
            buffers: Array::read(array, at + 88)?,
            checksum: Checksum(array.array(at + 92)?),
        })
    }
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        Handle::write(&self.file, array, at)?;
        Long::write(&self.request, array, at + 64)?;
        Opaque64::write(&self.state, array, at + 72)?;
        Enum::write(&self.direction, array, at + 80)?;
        self.chunks.write(array, at + 84)?;
        self.buffers.write(array, at + 88)?;
        array.put(at + 92, self.checksum.0)
    }
}

/// How one transfer of a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The client's name for the transfer.
    pub request: RequestId,
    /// How it went.
    pub status: Status,
    /// Bytes moved.
    pub length: u32,
    /// Checksum of the data of a read.
    pub checksum: Checksum,
}

impl<'a> Element<'a> for Completion {
    const SIZE: usize = 24;
    const ALIGN: usize = 8;
    const COUNT_MAX: usize = COMPLETIONS_MAX;
    const WHAT: &'static str = "completions";

    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        array.zeros(at + 20, at + 24)?;
        Ok(Self {
            request: Long::read(array, at)?,
            status: Outcome::read(array, at + 8)?,
            length: array.u32(at + 12)?,
            checksum: Checksum(array.array(at + 16)?),
        })
    }
    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        Long::write(&self.request, array, at)?;
        Outcome::write(&self.status, array, at + 8)?;
        array.put_u32(at + 12, self.length)?;
        array.put(at + 16, self.checksum.0)
    }
}

section! {
    /// Arguments of BATCH_SUBMIT (draft 6.5.5).
    BatchSubmit<'a>: 16 {
        /// The transfers, in no order.
        requests: Array<'a, BatchRequest<'a>> => List,
        /// Microseconds the client is content to wait; a hint.
        window_us: u32 => Word,
        /// Completions per notification the client would like; 0 keeps the last value.
        completion_count: u32 => Word,
        /// Whether the answer waits for all of them.
        synchronous: bool => Flag8,
    }
}

section! {
    /// Results of BATCH_SUBMIT (none of an asynchronous one) and arguments of
    /// BC_BATCH_COMPLETION.
    Completions<'a>: 8 {
        /// What has completed.
        completions: Array<'a, Completion> => List,
    }
}

section! {
    /// Arguments of HURRY_UP (draft 6.5.16).
    HurryUp: 8 {
        /// The transfer the client now waits for.
        request: RequestId => Long,
    }
}
