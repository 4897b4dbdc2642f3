//! Operations on the bytes and the space of files (RFC 8881 sections 18.3, 18.22 and 18.32; RFC
//! 7862 sections 15.1, 15.4, 15.5 and 15.10 to 15.12).
//!
//! Invariant: the data of READ, READ_PLUS and WRITE is never copied: see [`Payload`].

use crate::xdr::{List, Opaque, Payload, xdr};

use super::bitmap::Bitmap;
use super::limits::{CONTENTS_MAX, PATTERN_BYTES_MAX};
use super::types::{Content, Stability, StateId, Verifier};

xdr! {
    /// Arguments of COMMIT; both zero for the whole file.
    #[derive(Copy, Default)]
    struct CommitArgs {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; 0 for all that follow.
        count: u32,
    }
    /// Arguments of READ and READ_PLUS.
    #[derive(Copy, Default)]
    struct ReadArgs {
        /// The open, lock or delegation that allows the reading.
        state: StateId,
        /// The offset of the first byte.
        offset: u64,
        /// The maximum number of bytes.
        count: u32,
    }
    /// Results of READ.
    #[derive(Copy)]
    struct ReadDone<'b> {
        /// Whether the data ends at the end of the file or after it.
        is_end: bool,
        /// The bytes of the file.
        data: Payload<'b>,
    }
    /// Arguments of WRITE.
    #[derive(Copy)]
    struct WriteArgs<'b> {
        /// The open, lock or delegation that allows the writing.
        state: StateId,
        /// The offset of the first byte.
        offset: u64,
        /// The stability that the client wants.
        stability: Stability,
        /// The bytes to write.
        data: Payload<'b>,
    }
    /// Results of WRITE.
    #[derive(Copy, Default)]
    struct WriteDone {
        /// The number of bytes that were written.
        count: u32,
        /// The stability of these bytes.
        committed: Stability,
        /// The verifier of the server's current instance.
        verifier: Verifier,
    }
    /// Arguments of ALLOCATE and DEALLOCATE.
    #[derive(Copy, Default)]
    struct RangeArgs {
        /// The open, lock or delegation that allows the change.
        state: StateId,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    }
    /// Arguments of IO_ADVISE.
    #[derive(Copy, Default)]
    struct IoAdviseArgs {
        /// The open, lock or delegation that the advice is about.
        state: StateId,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; 0 for all that follow.
        count: u64,
        /// The hints: numbers of [`Advice`].
        hints: Bitmap,
    }
    /// The expected use of a range of a file.
    enum Advice {
        /// Nothing special is expected.
        Normal = 0,
        /// The bytes are read in ascending order.
        Sequential = 1,
        /// The bytes are read in descending order.
        SequentialBackwards = 2,
        /// The bytes are read in random order.
        Random = 3,
        /// The bytes are read soon.
        WillNeed = 4,
        /// The bytes may be read soon.
        WillNeedOpportunistic = 5,
        /// The bytes are not read soon.
        DontNeed = 6,
        /// The bytes are read once only.
        NoReuse = 7,
        /// The range is mostly read.
        Read = 8,
        /// The range is mostly written.
        Write = 9,
        /// The file should be near the client.
        InitProximity = 10,
    }
    /// Results of READ_PLUS.
    #[derive(Default)]
    struct ReadPlusDone<'b> {
        /// Whether the parts reach the end of the file.
        is_end: bool,
        /// The parts of the range, in ascending order.
        parts: List<Part<'b>, CONTENTS_MAX>,
    }
    /// A part of a file.
    #[derive(Copy)]
    union Part<'b> on u32 {
        /// Bytes that were written.
        0 => Data(DataPart<'b>),
        /// A hole, which reads as zeros.
        1 => Hole(HolePart),
    }
    /// Bytes of a file.
    #[derive(Copy)]
    struct DataPart<'b> {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes of the file.
        data: Payload<'b>,
    }
    /// A hole of a file.
    #[derive(Copy, Default)]
    struct HolePart {
        /// The offset of the first byte.
        offset: u64,
        /// The length in bytes.
        length: u64,
    }
    /// Arguments of SEEK.
    #[derive(Copy)]
    struct SeekArgs {
        /// The open, lock or delegation that allows the reading.
        state: StateId,
        /// The offset to start from.
        offset: u64,
        /// The content to find.
        content: Content,
    }
    /// Results of SEEK.
    #[derive(Copy, Default)]
    struct SeekDone {
        /// Whether the end of the file was reached.
        is_end: bool,
        /// The offset of the content that was found.
        offset: u64,
    }
    /// Arguments of WRITE_SAME: a pattern that is repeated.
    #[derive(Copy, Default)]
    struct WriteSameArgs<'b> {
        /// The open, lock or delegation that allows the writing.
        state: StateId,
        /// The stability that the client wants.
        stability: Stability,
        /// The offset of the first block.
        offset: u64,
        /// The length of a block in bytes.
        block_bytes: u64,
        /// The number of blocks.
        block_count: u64,
        /// The offset of the block's number in the block; all ones for none.
        number_offset: u64,
        /// The number of the first block.
        first_number: u32,
        /// The offset of the pattern in the block.
        pattern_offset: u64,
        /// The pattern itself.
        pattern: Opaque<'b, PATTERN_BYTES_MAX>,
    }
}
