//! Splits a request into transfers that are contiguous in both the file and the client's memory
//! (draft 6.5.5).
//!
//! Invariant: the cuts of a request follow each other without gap or overlap, in the order of the
//! chunks and of the buffers. No cut is empty, and none crosses a multiple of `cut_bytes` in the
//! file.

use dafs_types::{CacheHint, RmrTarget, limits};
use dafs_wire::DirectBuffer;
use dafs_wire::messages::FileChunk;

use super::types::InvalidBatch;

/// A contiguous file range and a contiguous client buffer of the same length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// The offset of the transfer in the request's data. The data is the concatenation of all
    /// chunks, and also of all buffers.
    pub at: u32,
    /// The offset in the file.
    pub offset: u64,
    /// The client's buffer for the transfer. The buffer and the file range have the same length.
    pub buffer: DirectBuffer,
    pub hint: CacheHint,
}

/// Returns the number of bytes of a request. Does not allocate.
///
/// # Errors
/// The reason why the request cannot be executed.
pub(super) fn total(chunks: &[FileChunk], buffers: &[DirectBuffer]) -> Result<u32, InvalidBatch> {
    let mut in_file: u64 = 0;
    for chunk in chunks {
        let end = chunk.offset.checked_add(u64::from(chunk.length));
        if end.is_none_or(|end| end > limits::FILE_OFFSET_MAX) {
            return Err(InvalidBatch::OffsetTooLarge);
        }
        in_file = in_file.saturating_add(u64::from(chunk.length));
    }
    let mut in_memory: u64 = 0;
    for buffer in buffers {
        if buffer.target.0.checked_add(u64::from(buffer.length)).is_none() {
            return Err(InvalidBatch::AddressTooLarge);
        }
        in_memory = in_memory.saturating_add(u64::from(buffer.length));
    }
    if in_file != in_memory {
        return Err(InvalidBatch::TotalsDiffer);
    }
    // The number of bytes in a completion has 32 bits.
    u32::try_from(in_file).map_err(|_| InvalidBatch::RequestTooLarge)
}

/// Returns the transfers of a request, which [`total`] has already accepted. A transfer ends
/// wherever a chunk or a buffer ends.
pub(super) fn cuts<'a>(
    chunks: &'a [FileChunk],
    buffers: &'a [DirectBuffer],
    cut_bytes: u32,
) -> impl Iterator<Item = Cut> + 'a {
    let (mut chunk, mut in_chunk) = (0, 0u32);
    let (mut buffer, mut in_buffer) = (0, 0u32);
    let mut at = 0u32;
    std::iter::from_fn(move || {
        while chunks.get(chunk)?.length == in_chunk {
            (chunk, in_chunk) = (chunk + 1, 0);
        }
        while buffers.get(buffer)?.length == in_buffer {
            (buffer, in_buffer) = (buffer + 1, 0);
        }
        let (range, memory) = (&chunks[chunk], &buffers[buffer]);
        let offset = range.offset + u64::from(in_chunk);
        let to_multiple = cut_bytes - (offset % u64::from(cut_bytes)) as u32;
        let length = (range.length - in_chunk).min(memory.length - in_buffer).min(to_multiple);
        let target = RmrTarget(memory.target.0 + u64::from(in_buffer));
        let cut = Cut {
            at,
            offset,
            buffer: DirectBuffer { target, length, context: memory.context },
            hint: range.hint,
        };
        (in_chunk, in_buffer, at) = (in_chunk + length, in_buffer + length, at + length);
        Some(cut)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dafs_types::RmrContext;

    fn chunk(offset: u64, length: u32) -> FileChunk {
        FileChunk { offset, length, hint: CacheHint(0) }
    }

    fn buffer(target: u64, length: u32, context: u32) -> DirectBuffer {
        DirectBuffer { target: RmrTarget(target), length, context: RmrContext(context) }
    }

    #[test]
    fn every_boundary_of_either_list_and_every_multiple_cuts() {
        let chunks = [chunk(90, 20), chunk(0, 0), chunk(500, 10)];
        let buffers = [buffer(1000, 5, 1), buffer(7, 0, 9), buffer(2000, 25, 2)];
        assert_eq!(total(&chunks, &buffers), Ok(30));
        let found: Vec<_> = cuts(&chunks, &buffers, 100)
            .map(|cut| (cut.at, cut.offset, cut.buffer.target.0, cut.buffer.length))
            .collect();
        let wanted = [(0, 90, 1000, 5), (5, 95, 2000, 5), (10, 100, 2005, 10), (20, 500, 2015, 10)];
        assert_eq!(found, wanted);
    }

    #[test]
    fn invalid_requests_are_distinguished() {
        let one = [buffer(0, 1, 1)];
        assert_eq!(total(&[chunk(0, 2)], &one), Err(InvalidBatch::TotalsDiffer));
        assert_eq!(total(&[chunk(u64::MAX, 1)], &one), Err(InvalidBatch::OffsetTooLarge));
        let beyond = [chunk(limits::FILE_OFFSET_MAX, 1)];
        assert_eq!(total(&beyond, &one), Err(InvalidBatch::OffsetTooLarge));
        let wraps = [buffer(u64::MAX, 1, 1)];
        assert_eq!(total(&[chunk(0, 1)], &wraps), Err(InvalidBatch::AddressTooLarge));
        let chunks = [chunk(0, u32::MAX), chunk(0, 1)];
        let buffers = [buffer(0, u32::MAX, 1), buffer(0, 1, 1)];
        assert_eq!(total(&chunks, &buffers), Err(InvalidBatch::RequestTooLarge));
        assert_eq!(total(&[], &[]), Ok(0));
    }
}
