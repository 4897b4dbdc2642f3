//! Where the parts of a call are: in its Send or in Read chunks (RFC 8166 sections 3.4.5 and 3.5).
//!
//! Invariant: a layout exists only for a call whose parts neither overlap nor leave a gap, and
//! whose length is within the limit. It is computed from the header alone, before anything is read.

use std::ops::Range;

use dafs_nfs_wire::xdr::{Place, Reader, padding};

use super::actions::CallId;
use crate::header::{Chunks, Fault, Segment, Xid};
use crate::limits::READ_CHUNKS_MAX;

/// The size in bytes of the part of an RPC message that cannot be in a Read chunk of its own:
/// identifier and direction.
pub const RPC_BYTES_MIN: usize = 8;

/// A part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the Send: a range of [`IncomingCall::inline`].
    Inline(Range<usize>),
    /// Bytes that were read from the peer's memory: a range of the call's buffer.
    Fetched(Range<usize>),
    /// This number of zeros, which the peer has left out because they are only padding.
    Zeros(usize),
}

/// A call that has arrived completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingCall {
    /// The number of the call on this connection.
    pub id: CallId,
    /// The identifier of the call.
    pub xid: Xid,
    layout: Layout,
}

/// The parts of a call, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// The bytes of the Send after its header. Padding that the peer has left out is added.
    inline: Vec<u8>,
    pieces: Vec<Piece>,
    /// The data in Read chunks, as ranges of the whole call.
    chunks: Vec<Place>,
    /// The segments to read, and their offsets in the buffer.
    reads: Vec<(Segment, usize)>,
    fetched_bytes: usize,
    length: usize,
    is_long: bool,
}

/// A Read chunk: the segments with one position.
struct ReadChunk {
    position: usize,
    segments: Vec<Segment>,
    length: usize,
}

impl IncomingCall {
    pub(super) fn new(id: CallId, xid: Xid, layout: Layout) -> Self {
        Self { id, xid, layout }
    }

    /// Returns the parts of the call, in their order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.layout.pieces
    }

    /// Returns the bytes that arrived in the Send.
    #[must_use]
    pub fn inline(&self) -> &[u8] {
        &self.layout.inline
    }

    /// Returns the length of the whole call in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.layout.length
    }

    /// Returns the length of the call's buffer in bytes; 0 if it has none.
    #[must_use]
    pub const fn fetched_bytes(&self) -> usize {
        self.layout.fetched_bytes
    }

    /// Returns the data that arrived in Read chunks with a position, as ranges of the whole call.
    /// [`check_call`](crate::binding::check_call) checks that they are allowed.
    #[must_use]
    pub fn chunks(&self) -> &[Place] {
        &self.layout.chunks
    }

    /// Returns a reader for the call, which copies nothing. `fetched` is the call's buffer. If the
    /// call has one Read chunk, its data is decoded as
    /// [`Payload::Elsewhere`](dafs_nfs_wire::xdr::Payload). Returns `None` if the call has more
    /// parts than a reader can handle; then use [`IncomingCall::assemble`].
    #[must_use]
    pub fn reader<'c>(&'c self, fetched: &'c [u8]) -> Option<Reader<'c>> {
        match &self.layout.pieces[..] {
            [Piece::Inline(_)] => Some(Reader::new(self.inline())),
            [Piece::Fetched(all)] if self.layout.is_long => {
                fetched.get(all.clone()).map(Reader::new)
            }
            [Piece::Inline(head), Piece::Fetched(data), ..] if self.layout.chunks.len() == 1 => {
                let (head, tail) = self.inline().split_at_checked(head.end)?;
                Some(Reader::around(head, data.len(), tail))
            }
            _ => None,
        }
    }

    /// Returns a copy of the whole call, as it would arrive over TCP. `fetched` is the call's
    /// buffer.
    ///
    /// # Panics
    /// If `fetched` is shorter than [`IncomingCall::fetched_bytes`].
    #[must_use]
    pub fn assemble(&self, fetched: &[u8]) -> Vec<u8> {
        self.assemble_from(|range, call| call.extend_from_slice(&fetched[range]))
    }

    /// Does the same with a buffer from which `fetch` appends a range to the call.
    pub fn assemble_from(&self, mut fetch: impl FnMut(Range<usize>, &mut Vec<u8>)) -> Vec<u8> {
        let mut call = Vec::with_capacity(self.length());
        for piece in self.pieces() {
            match piece {
                Piece::Inline(range) => call.extend_from_slice(&self.inline()[range.clone()]),
                Piece::Fetched(range) => fetch(range.clone(), &mut call),
                Piece::Zeros(count) => call.resize(call.len() + count, 0),
            }
        }
        call
    }
}

impl Layout {
    /// Computes the layout of a call. `rpc` is the part of the call in the Send; `None` if the
    /// call is in the Read chunk with position zero.
    ///
    /// # Errors
    /// If the chunks of the call are not valid, or if it has more than `bytes_max` bytes.
    pub(super) fn new(
        chunks: &Chunks,
        rpc: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Self, Fault> {
        let mut chunks = read_chunks(chunks, bytes_max)?;
        let mut layout = Self { is_long: rpc.is_none(), ..Self::default() };
        let base = match rpc {
            Some(rpc) => rpc.len(),
            None => {
                let is_first = chunks.first().is_some_and(|chunk| chunk.position == 0);
                if !is_first {
                    return Err(Fault::Nothing);
                }
                let first = chunks.remove(0);
                layout.fetch(&first);
                first.length
            }
        };
        if base < RPC_BYTES_MIN {
            return Err(Fault::RpcShort);
        }
        let mut taken = 0;
        for chunk in &chunks {
            if chunk.position < RPC_BYTES_MIN || chunk.position % 4 != 0 {
                return Err(Fault::Position);
            }
            let gap = chunk.position.checked_sub(layout.length).ok_or(Fault::Position)?;
            if gap > base - taken {
                return Err(Fault::Position);
            }
            layout.take(taken..taken + gap, rpc);
            taken += gap;
            layout.chunks.push(Place { start: layout.length, length: chunk.length });
            let range = layout.fetch(chunk);
            layout.length += range.len();
            layout.pieces.push(Piece::Fetched(range));
            layout.pad(padding(chunk.length));
        }
        layout.take(taken..base, rpc);
        if layout.length > bytes_max {
            return Err(Fault::Long);
        }
        Ok(layout)
    }

    /// Returns the segments to read, and their offsets in the buffer.
    pub(super) fn reads(&self) -> &[(Segment, usize)] {
        &self.reads
    }

    pub(super) const fn fetched_bytes(&self) -> usize {
        self.fetched_bytes
    }

    /// Returns true if the call is in the Read chunk with position zero.
    pub(super) const fn is_long(&self) -> bool {
        self.is_long
    }

    /// Adds the segments of a chunk to those that are to be read. Returns the range of the buffer.
    fn fetch(&mut self, chunk: &ReadChunk) -> Range<usize> {
        let start = self.fetched_bytes;
        for segment in chunk.segments.iter().filter(|segment| segment.length > 0) {
            self.reads.push((*segment, self.fetched_bytes));
            self.fetched_bytes += segment.length as usize;
        }
        start..self.fetched_bytes
    }

    /// Appends a range of the Send, or of the Read chunk that stands for it.
    fn take(&mut self, range: Range<usize>, rpc: Option<&[u8]>) {
        if range.is_empty() {
            return;
        }
        self.length += range.len();
        let Some(rpc) = rpc else { return self.pieces.push(Piece::Fetched(range)) };
        // Padding may have been added to the bytes before.
        let start = self.inline.len();
        self.inline.extend_from_slice(&rpc[range]);
        let end = self.inline.len();
        match self.pieces.last_mut() {
            Some(Piece::Inline(last)) if last.end == start => last.end = end,
            _ => self.pieces.push(Piece::Inline(start..end)),
        }
    }

    fn pad(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.length += count;
        if self.is_long {
            return self.pieces.push(Piece::Zeros(count));
        }
        let start = self.inline.len();
        self.inline.resize(start + count, 0);
        self.pieces.push(Piece::Inline(start..start + count));
    }
}

/// Collects the entries of the Read list into chunks, sorted by position.
fn read_chunks(chunks: &Chunks, bytes_max: usize) -> Result<Vec<ReadChunk>, Fault> {
    let mut reads = chunks.reads.clone();
    reads.sort_by_key(|read| read.position);
    let mut found: Vec<ReadChunk> = Vec::new();
    let mut total = 0_usize;
    for read in reads {
        let length = read.segment.length as usize;
        total = total.saturating_add(length);
        if total > bytes_max {
            return Err(Fault::Long);
        }
        let position = read.position as usize;
        if let Some(chunk) = found.last_mut().filter(|chunk| chunk.position == position) {
            chunk.segments.push(read.segment);
            chunk.length += length;
        } else if found.len() == READ_CHUNKS_MAX {
            return Err(Fault::Chunks);
        } else {
            found.push(ReadChunk { position, segments: vec![read.segment], length });
        }
    }
    Ok(found)
}
