//! How a reply travels: in the Send, in Write chunks, or in the Reply chunk (RFC 8166 sections
//! 3.4.6 and 3.5, RFC 8267 section 2).
//!
//! Invariants: nothing is written outside of the segments that the call has named. Padding is never
//! written to a Write chunk. Data that is not eligible stays in the message.

use dafs_nfs_wire::xdr::padding;

use super::actions::Source;
use crate::header::{Chunk, Chunks, Segment, encoded_bytes};

/// An RPC reply. The message consists of `bytes`, with the data of outside items inserted.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'r> {
    /// The encoded bytes of the reply.
    pub bytes: &'r [u8],
    /// The bulk data of the reply, sorted by position.
    pub items: &'r [Item],
}

/// Bulk data of a reply. Its padding follows in the encoded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The offset in the encoded bytes at which the data begins or must be inserted.
    pub at: usize,
    /// The length of the data in bytes.
    pub length: usize,
    /// True if the data is not among the encoded bytes.
    pub is_outside: bool,
    /// True if the binding allows to place the data directly (DDP-eligible). The first eligible
    /// item belongs to the first Write chunk, and so on.
    pub is_eligible: bool,
}

/// The reason why a reply cannot be sent. The caller may send a shorter reply, or refuse the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFault {
    /// The data of an item is longer than its Write chunk.
    #[error("an item of {length} bytes does not fit into a Write chunk of {room} bytes")]
    WriteChunk {
        /// The length of the data in bytes.
        length: usize,
        /// The length of the chunk in bytes.
        room: u64,
    },
    /// The message fits neither in a Send nor in the Reply chunk.
    #[error("{length} bytes fit neither in a Send ({inline}) nor in a Reply chunk ({room})")]
    Long {
        /// The length of the message in bytes, without the data in Write chunks.
        length: usize,
        /// The number of bytes for which a Send has room.
        inline: usize,
        /// The length of the Reply chunk in bytes.
        room: u64,
    },
    /// The positions of the items are not valid.
    #[error("the positions of the items are not valid")]
    Items,
    /// No such call waits for a reply.
    #[error("no such call waits for a reply")]
    Unknown,
}

/// The room that a call has for its reply, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The maximum length of a message in a Send.
    pub inline: usize,
    /// The length of the Reply chunk; 0 if there is none.
    pub reply: u64,
    /// The lengths of the Write chunks.
    pub writes: Vec<u64>,
}

/// How one reply travels.
#[derive(Debug)]
pub(super) struct Plan {
    /// The RDMA writes, in their order.
    pub(super) writes: Vec<(Source, Segment)>,
    /// The chunks of the reply's header.
    pub(super) chunks: Chunks,
    /// The parts of the reply in the Send.
    pub(super) body: Vec<Source>,
}

impl Room {
    pub(super) fn new(offered: &Chunks, send_bytes: usize) -> Self {
        let header = Chunks { writes: offered.writes.clone(), ..Chunks::default() };
        Self {
            inline: send_bytes.saturating_sub(encoded_bytes(&header)),
            reply: offered.reply.as_ref().map_or(0, Chunk::length),
            writes: offered.writes.iter().map(Chunk::length).collect(),
        }
    }
}

impl Plan {
    /// Plans a reply. `offered` are the chunks of the call, and `send_bytes` is the size of the
    /// largest Send.
    pub(super) fn new(
        reply: &Reply<'_>,
        offered: &Chunks,
        send_bytes: usize,
    ) -> Result<Self, ReplyFault> {
        let mut plan = Self { writes: Vec::new(), chunks: Chunks::default(), body: Vec::new() };
        plan.reduce(reply, offered)?;
        let length: usize = plan.body.iter().map(Source::length).sum();
        let room = Room::new(offered, send_bytes);
        if length <= room.inline && encoded_bytes(&plan.chunks) <= send_bytes {
            return Ok(plan);
        }
        let too_long = ReplyFault::Long { length, inline: room.inline, room: room.reply };
        let Some(chunk) = offered.reply.as_ref().filter(|_| length as u64 <= room.reply) else {
            return Err(too_long);
        };
        let body = std::mem::take(&mut plan.body);
        plan.fill(&body, chunk);
        plan.chunks.reply = Some(chunk.filled(length as u64));
        if encoded_bytes(&plan.chunks) > send_bytes { Err(too_long) } else { Ok(plan) }
    }

    /// Puts eligible items into Write chunks, and collects the rest of the message.
    fn reduce(&mut self, reply: &Reply<'_>, offered: &Chunks) -> Result<(), ReplyFault> {
        let mut chunks = offered.writes.iter();
        let mut taken = 0;
        for (index, item) in reply.items.iter().enumerate() {
            let inside = if item.is_outside { 0 } else { item.length };
            let end = item.at.checked_add(inside).ok_or(ReplyFault::Items)?;
            let pad = padding(item.length);
            let is_valid = item.at >= taken && reply.bytes.len().checked_sub(pad) >= Some(end);
            if !is_valid {
                return Err(ReplyFault::Items);
            }
            self.push(Source::Bytes { start: taken, length: item.at - taken });
            let data = match item.is_outside {
                true => Source::Item { index, start: 0, length: item.length },
                false => Source::Bytes { start: item.at, length: item.length },
            };
            let chunk = if item.is_eligible { chunks.next() } else { None };
            let room = chunk.map_or(0, Chunk::length);
            taken = end;
            match chunk {
                Some(chunk) if item.length as u64 <= room => {
                    self.fill(&[data], chunk);
                    self.chunks.writes.push(chunk.filled(item.length as u64));
                    taken += pad;
                }
                // An empty chunk says that the data of this item should be in the message.
                Some(chunk) if room == 0 => {
                    self.chunks.writes.push(chunk.clone());
                    self.push(data);
                }
                Some(_) => return Err(ReplyFault::WriteChunk { length: item.length, room }),
                None => self.push(data),
            }
        }
        self.push(Source::Bytes { start: taken, length: reply.bytes.len() - taken });
        self.chunks.writes.extend(chunks.map(|unused| unused.filled(0)));
        Ok(())
    }

    fn push(&mut self, source: Source) {
        if source.length() > 0 {
            self.body.push(source);
        }
    }

    /// Distributes sources over the segments of a chunk, which has room for all of them.
    fn fill(&mut self, sources: &[Source], chunk: &Chunk) {
        let mut segments = chunk.0.iter().copied();
        let mut room = Segment::default();
        for source in sources {
            let mut from = 0;
            while from < source.length() {
                while room.length == 0 {
                    let Some(next) = segments.next() else { return };
                    room = next;
                }
                let length = (source.length() - from).min(room.length as usize);
                self.writes
                    .push((source.part(from, length), Segment { length: length as u32, ..room }));
                from += length;
                room.length -= length as u32;
                room.offset += length as u64;
            }
        }
    }
}
