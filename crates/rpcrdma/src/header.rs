//! The transport header of RPC-over-RDMA version 1 (RFC 8166 section 4).
//!
//! Invariants: decoding reads nothing outside of the message, checks every count before it
//! allocates, and says of each message that is not valid whether the peer gets an error for it, and
//! which one. A header that decodes is encoded as the same bytes again.

use dafs_nfs_wire::xdr::{Reader, XdrError};

use crate::limits::{SEGMENTS_MAX, WRITE_CHUNKS_MAX};

/// The version of RPC-over-RDMA that this crate knows.
pub const VERSION: u32 = 1;
/// The size in bytes of a header without chunks.
pub const HEADER_BYTES_MIN: usize = 28;
/// The size in bytes of an encoded segment.
pub const SEGMENT_BYTES: usize = 16;

/// The size in bytes of the part of the header that all versions and procedures share.
const PREFIX_BYTES: usize = 16;

/// The identifier of a call, which its reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u32);

/// The name of registered memory: a steering tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// A range of registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The name of the registered memory.
    pub handle: Handle,
    /// The length of the range in bytes.
    pub length: u32,
    /// The offset of the first byte, as the owner of the memory counts.
    pub offset: u64,
}

/// An entry of a Read list. Entries with the same position belong to one Read chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadSegment {
    /// The offset of the chunk's data in the call.
    pub position: u32,
    /// The memory with the data.
    pub segment: Segment,
}

/// A Write chunk or a Reply chunk: memory that the server fills, one segment after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chunk(pub Vec<Segment>);

impl Chunk {
    /// Returns the sum of the lengths of the segments, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.0.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// Returns the segments with the lengths that they have if `length` bytes are written to them.
    /// Unused segments have the length 0.
    #[must_use]
    pub fn filled(&self, length: u64) -> Self {
        let mut left = length;
        let fill = |segment: &Segment| {
            let taken = left.min(u64::from(segment.length)) as u32;
            left -= u64::from(taken);
            Segment { length: taken, ..*segment }
        };
        Self(self.0.iter().map(fill).collect())
    }
}

/// The chunks that a header names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chunks {
    /// The Read list: data of a call.
    pub reads: Vec<ReadSegment>,
    /// The Write list: one chunk for each part of a reply that can be placed directly.
    pub writes: Vec<Chunk>,
    /// The Reply chunk: memory for a whole reply.
    pub reply: Option<Chunk>,
}

impl Chunks {
    /// Returns true if there is no chunk.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// Returns the segments of all chunks.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        let reads = self.reads.iter().map(|read| &read.segment);
        reads.chain(self.writes.iter().chain(&self.reply).flat_map(|chunk| &chunk.0))
    }
}

/// The error that a server reports instead of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportError {
    /// ERR_VERS: the version is unknown. The sender knows these versions.
    Version {
        /// The lowest version that the sender of the error knows.
        low: u32,
        /// The highest version that the sender of the error knows.
        high: u32,
    },
    /// ERR_CHUNK: the header is not valid, or the memory for the reply is too small.
    Chunk,
}

impl TransportError {
    /// The error for a header of another version.
    pub const VERSION: Self = Self::Version { low: VERSION, high: VERSION };
}

/// A message of the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// The identifier of the call that the message is, or belongs to.
    pub xid: Xid,
    /// In a call: the number of credits that the sender wants. Otherwise: the number that it
    /// grants.
    pub credits: u32,
    /// The content of the message.
    pub body: Body<'b>,
}

/// The content of a message, by its procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'b> {
    /// RDMA_MSG: an RPC message follows the header.
    Message {
        /// The chunks of the message.
        chunks: Chunks,
        /// The RPC message, without the data of its chunks.
        rpc: &'b [u8],
    },
    /// RDMA_NOMSG: the RPC message is in the first Read chunk or in the Reply chunk.
    NoMessage {
        /// The chunks of the message.
        chunks: Chunks,
    },
    /// RDMA_DONE: no sender may use it, and receivers ignore it.
    Done,
    /// RDMA_ERROR: the call failed in the transport.
    Error(TransportError),
}

/// The reason why a message is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The message is too short to have an identifier, a version and a procedure.
    #[error("the message is shorter than any header")]
    Short,
    /// The version of the transport is unknown.
    #[error("version {0} of the transport is unknown")]
    Version(u32),
    /// The procedure is unknown.
    #[error("procedure {0} of the transport is unknown")]
    Procedure(u32),
    /// The procedure is RDMA_MSGP, which no sender may use.
    #[error("the procedure RDMA_MSGP is not supported")]
    Padded,
    /// The message ends inside its header.
    #[error("the message ends inside its header")]
    Truncated,
    /// A list is continued by a number other than 0 and 1.
    #[error("a list is continued by {0} instead of 0 or 1")]
    Mark(u32),
    /// There are too many segments.
    #[error("there are more than {SEGMENTS_MAX} segments")]
    Segments,
    /// There are too many chunks.
    #[error("there are too many chunks")]
    Chunks,
    /// The offsets of a segment's bytes exceed 64 bits.
    #[error("a segment does not fit into the address space")]
    Wraps,
    /// Bytes follow the header of a message that has no content there.
    #[error("bytes follow the header")]
    Trailing,
    /// A header of RDMA_NOMSG names no memory that could contain an RPC message.
    #[error("the message has neither an RPC message nor a chunk with one")]
    Nothing,
    /// An error has an unknown number or is incomplete.
    #[error("the error cannot be decoded")]
    Error,
    /// The RPC message is too short to have an identifier and a direction.
    #[error("the RPC message is incomplete")]
    RpcShort,
    /// The identifier of the RPC message is not that of the header.
    #[error("the RPC message has another identifier than the header")]
    RpcXid,
    /// The RPC message is neither a call nor a reply.
    #[error("the RPC message is neither a call nor a reply")]
    Direction,
    /// A Read chunk has a position that is not valid: unaligned, inside other data, or after the
    /// end of the call.
    #[error("a Read chunk has a position that is not valid")]
    Position,
    /// A call with its Read chunks is too long.
    #[error("the call is too long")]
    Long,
}

/// A message that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The identifier in the header, which is 0 if the message is too short.
    pub xid: Xid,
    /// The number of credits in the header, which is 0 if the message is too short.
    pub credits: u32,
    /// The reason why the message is not valid.
    pub fault: Fault,
}

impl Fault {
    /// Returns the error that the receiver sends; `None` if it ignores the message. An error is
    /// never the reply to an error, so that two ends cannot send errors forever.
    #[must_use]
    pub const fn error(self) -> Option<TransportError> {
        match self {
            Self::Short | Self::Error => None,
            Self::Version(_) => Some(TransportError::VERSION),
            Self::Procedure(_)
            | Self::Padded
            | Self::Truncated
            | Self::Mark(_)
            | Self::Segments
            | Self::Chunks
            | Self::Wraps
            | Self::Trailing
            | Self::Nothing
            | Self::RpcShort
            | Self::RpcXid
            | Self::Direction
            | Self::Position
            | Self::Long => Some(TransportError::Chunk),
        }
    }
}

impl From<XdrError> for Fault {
    fn from(_: XdrError) -> Self {
        Self::Truncated
    }
}

/// Decodes a message.
///
/// # Errors
/// If the message is not valid; see [`Fault`].
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut prefix = [0; PREFIX_BYTES / 4];
    for word in &mut prefix {
        let short = Malformed { xid: Xid(0), credits: 0, fault: Fault::Short };
        *word = reader.u32().map_err(|_| short)?;
    }
    let [xid, version, credits, procedure] = prefix;
    let xid = Xid(xid);
    let malformed = |fault| Malformed { xid, credits, fault };
    if version != VERSION {
        return Err(malformed(Fault::Version(version)));
    }
    let body = decode_body(procedure, &mut reader).map_err(malformed)?;
    Ok(Message { xid, credits, body })
}

fn decode_body<'b>(procedure: u32, reader: &mut Reader<'b>) -> Result<Body<'b>, Fault> {
    match procedure {
        procedure::MESSAGE => {
            let chunks = decode_chunks(reader)?;
            Ok(Body::Message { chunks, rpc: reader.rest() })
        }
        procedure::NO_MESSAGE => {
            let chunks = decode_chunks(reader)?;
            if reader.left() > 0 {
                return Err(Fault::Trailing);
            }
            if chunks.is_empty() {
                return Err(Fault::Nothing);
            }
            Ok(Body::NoMessage { chunks })
        }
        procedure::PADDED => Err(Fault::Padded),
        procedure::DONE => Ok(Body::Done),
        procedure::ERROR => decode_error(reader).map(Body::Error).map_err(|_| Fault::Error),
        other => Err(Fault::Procedure(other)),
    }
}

fn decode_error(reader: &mut Reader<'_>) -> Result<TransportError, Fault> {
    match reader.u32()? {
        error::VERSION => Ok(TransportError::Version { low: reader.u32()?, high: reader.u32()? }),
        error::CHUNK => Ok(TransportError::Chunk),
        _ => Err(Fault::Error),
    }
}

fn decode_chunks(reader: &mut Reader<'_>) -> Result<Chunks, Fault> {
    let mut chunks = Chunks::default();
    let mut left = SEGMENTS_MAX;
    while decode_mark(reader)? {
        left = left.checked_sub(1).ok_or(Fault::Segments)?;
        let position = reader.u32()?;
        chunks.reads.push(ReadSegment { position, segment: decode_segment(reader)? });
    }
    while decode_mark(reader)? {
        if chunks.writes.len() == WRITE_CHUNKS_MAX {
            return Err(Fault::Chunks);
        }
        chunks.writes.push(decode_chunk(reader, &mut left)?);
    }
    if decode_mark(reader)? {
        chunks.reply = Some(decode_chunk(reader, &mut left)?);
    }
    Ok(chunks)
}

/// Decodes the number that says whether a list goes on.
fn decode_mark(reader: &mut Reader<'_>) -> Result<bool, Fault> {
    match reader.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::Mark(other)),
    }
}

fn decode_chunk(reader: &mut Reader<'_>, left: &mut usize) -> Result<Chunk, Fault> {
    let count = reader.count(*left, SEGMENT_BYTES).map_err(|error| match error {
        XdrError::TooMany { .. } => Fault::Segments,
        _ => Fault::Truncated,
    })?;
    *left -= count;
    (0..count).map(|_| decode_segment(reader)).collect::<Result<_, _>>().map(Chunk)
}

fn decode_segment(reader: &mut Reader<'_>) -> Result<Segment, Fault> {
    let handle = Handle(reader.u32()?);
    let length = reader.u32()?;
    let offset = reader.u64()?;
    match offset.checked_add(u64::from(length)) {
        Some(_) => Ok(Segment { handle, length, offset }),
        None => Err(Fault::Wraps),
    }
}

/// Appends an encoded message.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    out.reserve(match &message.body {
        Body::Message { chunks, rpc } => encoded_bytes(chunks) + rpc.len(),
        Body::NoMessage { chunks } => encoded_bytes(chunks),
        Body::Done | Body::Error(_) => HEADER_BYTES_MIN,
    });
    let prefix = |procedure: u32, out: &mut Vec<u8>| {
        put(out, &[message.xid.0, VERSION, message.credits, procedure]);
    };
    match &message.body {
        Body::Message { chunks, rpc } => {
            prefix(procedure::MESSAGE, out);
            encode_chunks(chunks, out);
            out.extend_from_slice(rpc);
        }
        Body::NoMessage { chunks } => {
            prefix(procedure::NO_MESSAGE, out);
            encode_chunks(chunks, out);
        }
        Body::Done => prefix(procedure::DONE, out),
        Body::Error(error) => {
            prefix(procedure::ERROR, out);
            match error {
                TransportError::Version { low, high } => put(out, &[error::VERSION, *low, *high]),
                TransportError::Chunk => put(out, &[error::CHUNK]),
            }
        }
    }
}

/// Returns the size in bytes of an encoded header with these chunks.
#[must_use]
pub fn encoded_bytes(chunks: &Chunks) -> usize {
    let chunk = |chunk: &Chunk| 4 + chunk.0.len() * SEGMENT_BYTES;
    let reads = chunks.reads.len() * (8 + SEGMENT_BYTES);
    let writes: usize = chunks.writes.iter().map(|write| 4 + chunk(write)).sum();
    HEADER_BYTES_MIN + reads + writes + chunks.reply.as_ref().map_or(0, chunk)
}

fn encode_chunks(chunks: &Chunks, out: &mut Vec<u8>) {
    for read in &chunks.reads {
        put(out, &[1, read.position]);
        encode_segment(&read.segment, out);
    }
    put(out, &[0]);
    for write in &chunks.writes {
        put(out, &[1]);
        encode_chunk(write, out);
    }
    put(out, &[0, u32::from(chunks.reply.is_some())]);
    if let Some(reply) = &chunks.reply {
        encode_chunk(reply, out);
    }
}

fn encode_chunk(chunk: &Chunk, out: &mut Vec<u8>) {
    put(out, &[u32::try_from(chunk.0.len()).unwrap_or(u32::MAX)]);
    chunk.0.iter().for_each(|segment| encode_segment(segment, out));
}

fn encode_segment(segment: &Segment, out: &mut Vec<u8>) {
    put(out, &[segment.handle.0, segment.length]);
    out.extend_from_slice(&segment.offset.to_be_bytes());
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

/// The direction of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The message is a call.
    Call,
    /// The message is a reply.
    Reply,
}

/// Returns the direction of an RPC message, of which only the first eight bytes are needed.
///
/// # Errors
/// If the message is incomplete, is of another call than `xid`, or has no direction.
pub fn direction(rpc: &[u8], xid: Xid) -> Result<Direction, Fault> {
    let mut reader = Reader::new(rpc);
    let found = reader.u32().map_err(|_| Fault::RpcShort)?;
    let direction = reader.u32().map_err(|_| Fault::RpcShort)?;
    if found != xid.0 {
        return Err(Fault::RpcXid);
    }
    match direction {
        0 => Ok(Direction::Call),
        1 => Ok(Direction::Reply),
        _ => Err(Fault::Direction),
    }
}

/// The numbers of the procedures.
mod procedure {
    pub(super) const MESSAGE: u32 = 0;
    pub(super) const NO_MESSAGE: u32 = 1;
    pub(super) const PADDED: u32 = 2;
    pub(super) const DONE: u32 = 3;
    pub(super) const ERROR: u32 = 4;
}

/// The numbers of the errors.
mod error {
    pub(super) const VERSION: u32 = 1;
    pub(super) const CHUNK: u32 = 2;
}
