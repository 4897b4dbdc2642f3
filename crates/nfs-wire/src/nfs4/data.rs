//! Operations on the bytes and the space of files (RFC 8881 sections 18.3, 18.22 and 18.32; RFC
//! 7862 sections 15.1, 15.4, 15.5 and 15.10 to 15.12).
//!
//! Invariant: the data of READ, READ_PLUS and WRITE is never copied: see [`Payload`].

use crate::xdr::{List, Opaque, Payload, xdr};

use super::bitmap::Bitmap;
use super::limits::{CONTENTS_MAX, PATTERN_BYTES_MAX};
use super::types::{Content, Stability, StateId, Verifier};

xdr! {
    /// Arguments of COMMIT. If offset and count are both 0, COMMIT concerns the whole file.
    #[derive(Copy, Default)]
    struct CommitArgs {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; 0 means up to the end of the file.
        count: u32,
    }
    /// Arguments of READ and READ_PLUS.
    #[derive(Copy, Default)]
    struct ReadArgs {
        /// The state id of the open, lock or delegation that allows the read.
        state: StateId,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The maximum number of bytes to read.
        count: u32,
    }
    /// Results of READ.
    #[derive(Copy)]
    struct ReadDone<'b> {
        /// True if the data reaches the end of the file, or starts after it.
        is_end: bool,
        /// The bytes of the file.
        data: Payload<'b>,
    }
    /// Arguments of WRITE.
    #[derive(Copy)]
    struct WriteArgs<'b> {
        /// The state id of the open, lock or delegation that allows the write.
        state: StateId,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The guarantee that the client wants for the data.
        stability: Stability,
        /// The bytes to write.
        data: Payload<'b>,
    }
    /// Results of WRITE.
    #[derive(Copy, Default)]
    struct WriteDone {
        /// The number of bytes that were written.
        count: u32,
        /// The guarantee that the server gives for these bytes.
        committed: Stability,
        /// A value that changes if the server may have lost unstable data, for example by a
        /// restart.
        verifier: Verifier,
    }
    /// Arguments of ALLOCATE and DEALLOCATE.
    #[derive(Copy, Default)]
    struct RangeArgs {
        /// The state id of the open, lock or delegation that allows the change.
        state: StateId,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    }
    /// Arguments of IO_ADVISE.
    #[derive(Copy, Default)]
    struct IoAdviseArgs {
        /// The state id of the open, lock or delegation that the advice applies to.
        state: StateId,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; 0 means up to the end of the file.
        count: u64,
        /// The hints: the numbers of [`Advice`].
        hints: Bitmap,
    }
    /// The expected use of a range of a file.
    enum Advice {
        /// The client has no special expectation.
        Normal = 0,
        /// The client will read the bytes in ascending order.
        Sequential = 1,
        /// The client will read the bytes in descending order.
        SequentialBackwards = 2,
        /// The client will read the bytes in random order.
        Random = 3,
        /// The client will read the bytes soon.
        WillNeed = 4,
        /// The client may read the bytes soon.
        WillNeedOpportunistic = 5,
        /// The client will not read the bytes soon.
        DontNeed = 6,
        /// The client will read the bytes only once.
        NoReuse = 7,
        /// The client will mostly read the range.
        Read = 8,
        /// The client will mostly write the range.
        Write = 9,
        /// The server should store the file near the client.
        InitProximity = 10,
    }
    /// Results of READ_PLUS.
    #[derive(Default)]
    struct ReadPlusDone<'b> {
        /// True if the parts reach the end of the file.
        is_end: bool,
        /// The parts of the range, in ascending order.
        parts: List<Part<'b>, CONTENTS_MAX>,
    }
    /// A part of a range: data or a hole.
    #[derive(Copy)]
    union Part<'b> on u32 {
        /// A part with data.
        0 => Data(DataPart<'b>),
        /// A hole, which is read as zeros.
        1 => Hole(HolePart),
    }
    /// A part of a file with data.
    #[derive(Copy)]
    struct DataPart<'b> {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The bytes of this part.
        data: Payload<'b>,
    }
    /// A hole of a file.
    #[derive(Copy, Default)]
    struct HolePart {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The length in bytes.
        length: u64,
    }
    /// Arguments of SEEK.
    #[derive(Copy)]
    struct SeekArgs {
        /// The state id of the open, lock or delegation that allows the read.
        state: StateId,
        /// The offset to start from.
        offset: u64,
        /// The kind of content to search for.
        content: Content,
    }
    /// Results of SEEK.
    #[derive(Copy, Default)]
    struct SeekDone {
        /// True if the end of the file was reached.
        is_end: bool,
        /// The offset of the content that was found.
        offset: u64,
    }
    /// Arguments of WRITE_SAME: a pattern that is repeated.
    #[derive(Copy, Default)]
    struct WriteSameArgs<'b> {
        /// The state id of the open, lock or delegation that allows the write.
        state: StateId,
        /// The guarantee that the client wants for the data.
        stability: Stability,
        /// The offset of the first block.
        offset: u64,
        /// The length of a block in bytes.
        block_bytes: u64,
        /// The number of blocks.
        block_count: u64,
        /// The offset in each block at which the block's number is written; all bits set for none.
        number_offset: u64,
        /// The number of the first block.
        first_number: u32,
        /// The offset in each block at which the pattern is written.
        pattern_offset: u64,
        /// The bytes of the pattern.
        pattern: Opaque<'b, PATTERN_BYTES_MAX>,
    }
}
