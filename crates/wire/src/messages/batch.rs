//! Batches of transfers (draft 6.5.5, 6.5.16, 6.6.2).
//!
//! Invariant: the offsets of a request's chunks and buffers are relative to the start of the array
//! of requests.

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
    /// The direction of a transfer.
    TransferDirection, "transfer direction" {
        /// From the file to client memory.
        Read = 1,
        /// From client memory to the file.
        Write = 2,
    }
}

/// A range of a file (draft 6.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileChunk {
    /// The offset in the file of the first byte of the range.
    pub offset: u64,
    /// The length of the range in bytes.
    pub length: u32,
    /// A hint about how the client will use the data.
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

/// One transfer of a batch. The chunks and the buffers have the same total length but may be
/// divided differently. The totals are not compared here, but by the code that executes the
/// transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRequest<'a> {
    /// The handle of the file to read or write.
    pub file: FileHandle,
    /// The client's id for this transfer, unique in its session.
    pub request: RequestId,
    /// The state id of the open or lock under which the data is accessed.
    pub state: StateId,
    /// The direction of the transfer.
    pub direction: TransferDirection,
    /// The ranges of the file to transfer.
    pub chunks: Array<'a, FileChunk>,
    /// The ranges of the client's memory to transfer.
    pub buffers: DirectBuffers<'a>,
    /// The checksum of the data if the transfer is a write.
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

/// The result of one transfer of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The client's id for the transfer.
    pub request: RequestId,
    /// The status of the transfer.
    pub status: Status,
    /// The number of bytes that were transferred.
    pub length: u32,
    /// The checksum of the data if the transfer is a read.
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
    /// The arguments of BATCH_SUBMIT (draft 6.5.5).
    BatchSubmit<'a>: 16 {
        /// The transfers, in no particular order.
        requests: Array<'a, BatchRequest<'a>> => List,
        /// The time in microseconds for which the server may delay the transfers. The server may
        /// ignore it.
        window_us: u32 => Word,
        /// The number of completions that the client wants in each notice; 0 keeps the previous
        /// number.
        completion_count: u32 => Word,
        /// True if the server must reply only after all transfers have ended.
        synchronous: bool => Flag8,
    }
}

section! {
    /// The results of BATCH_SUBMIT (empty for an asynchronous batch), and the arguments of
    /// BC_BATCH_COMPLETION.
    Completions<'a>: 8 {
        /// The results of the completed transfers.
        completions: Array<'a, Completion> => List,
    }
}

section! {
    /// The arguments of HURRY_UP (draft 6.5.16).
    HurryUp: 8 {
        /// The id of the transfer that the client now waits for.
        request: RequestId => Long,
    }
}
