//! The maximum sizes of replies, from which a client computes the chunks that it must offer (RFC
//! 8267 sections 3.2 and 4.2).
//!
//! Invariant: a size is never less than that of the largest reply which a server may send. A client
//! that offers less memory would lose the reply of a call that was executed.

use std::sync::LazyLock;

use dafs_nfs_wire::nfs3;
use dafs_nfs_wire::nfs4::attributes::attribute_row;
use dafs_nfs_wire::nfs4::{self, Answer, Bitmap, Operation};
use dafs_nfs_wire::rpc::AUTH_BYTES_MAX;
use dafs_nfs_wire::xdr::{PAYLOAD_BYTES_MAX, Shape, Xdr, padding};

/// The maximum size in bytes of the header of an RPC reply that is not an error: identifier,
/// direction, status, verifier and outcome.
pub const RPC_REPLY_BYTES_MAX: u64 = 24 + AUTH_BYTES_MAX as u64;

/// The maximum size of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplySize {
    /// The maximum length in bytes of the message, without eligible items and their padding.
    pub message: u64,
    /// The maximum length in bytes of each eligible item, in the order of the Write chunks.
    pub items: Vec<u64>,
}

impl ReplySize {
    /// Returns the maximum length in bytes of the message with all of its items.
    #[must_use]
    pub fn whole(&self) -> u64 {
        let padded = |length: &u64| length.saturating_add(3) & !3;
        self.items.iter().map(padded).fold(self.message, u64::saturating_add)
    }

    /// Returns the lengths of the Write chunks to offer, if a Send has room for `inline` bytes. If
    /// everything fits in the Send, no chunk is needed. If the message does not fit even without
    /// its items, the client offers a Reply chunk instead: see [`ReplySize::reply_chunk`].
    #[must_use]
    pub fn write_chunks(&self, inline: u64) -> &[u64] {
        let is_useful = self.whole() > inline && self.message <= inline;
        if is_useful { &self.items } else { &[] }
    }

    /// Returns the length of the Reply chunk to offer, if a Send has room for `inline` bytes.
    #[must_use]
    pub fn reply_chunk(&self, inline: u64) -> Option<u64> {
        (self.message > inline).then(|| self.whole())
    }

    /// Adds the results of one operation.
    fn add(&mut self, bytes: u64) {
        self.message = self.message.saturating_add(bytes);
    }
}

/// Returns the maximum size of the reply to a call of NFS version 3.
#[must_use]
pub fn nfs3_reply_size(arguments: &nfs3::Arguments<'_>) -> ReplySize {
    static ATTRIBUTES_BYTES: LazyLock<u64> =
        LazyLock::new(|| shape_bytes_max(<Option<nfs3::Attributes> as Xdr<'_>>::SHAPE));
    let attributes = *ATTRIBUTES_BYTES;
    let mut size = ReplySize { message: RPC_REPLY_BYTES_MAX, items: Vec::new() };
    match arguments {
        nfs3::Arguments::Read(read) => {
            // Status, count, end of the file, and length.
            size.add(attributes + 16);
            size.items.push(u64::from(read.count));
        }
        nfs3::Arguments::ReadLink(_) => {
            size.add(attributes + 8);
            size.items.push(nfs3::LINK_TEXT_BYTES_MAX as u64);
        }
        nfs3::Arguments::ReadDir(list) => size.add(attributes + 4 + u64::from(list.count)),
        nfs3::Arguments::ReadDirPlus(list) => {
            size.add(attributes + 4 + u64::from(list.count_max));
        }
        other => {
            let number = other.procedure().number();
            let row = nfs3::NFS3.rows.iter().find(|row| row.number == number);
            size.add(row.map_or(0, |row| shape_bytes_max(row.results.shape)));
        }
    }
    size
}

/// Returns the maximum size of the reply to a compound with these operations. `bytes_max` is the
/// maximum size of replies that was agreed on for the session.
#[must_use]
pub fn nfs4_reply_size<'a, 'b: 'a>(
    tag_bytes: usize,
    operations: impl Iterator<Item = &'a Operation<'b>>,
    bytes_max: u64,
) -> ReplySize {
    let tag = (tag_bytes + padding(tag_bytes)) as u64;
    // The status, the tag and the number of results.
    let mut size = ReplySize { message: RPC_REPLY_BYTES_MAX + 12 + tag, items: Vec::new() };
    for operation in operations {
        // The number and the status of the operation.
        size.add(8);
        match operation {
            Operation::Read(read) => {
                size.add(8);
                size.items.push(u64::from(read.count));
            }
            Operation::ReadLink => {
                size.add(4);
                size.items.push(nfs4::limits::LINK_TEXT_BYTES_MAX as u64);
            }
            // Each part takes 16 bytes and its padding beside its data.
            Operation::ReadPlus(read) => {
                let parts = nfs4::limits::CONTENTS_MAX as u64;
                size.add(8 + u64::from(read.count) + parts * 20);
            }
            Operation::ReadDir(list) => size.add(u64::from(list.bytes_max)),
            Operation::GetAttr(wanted) => size.add(attributes_bytes_max(wanted)),
            other => size.add(answer_bytes_max(other.kind().number())),
        }
    }
    size.message = size.message.min(bytes_max);
    for item in &mut size.items {
        *item = (*item).min(bytes_max);
    }
    size
}

/// Returns the maximum size in bytes of the attributes of one object.
fn attributes_bytes_max(wanted: &Bitmap) -> u64 {
    let bytes = |number| attribute_row(number).map_or(0, |row| shape_bytes_max(row.codec.shape));
    let mask = 4 + 4 * nfs4::limits::BITMAP_WORDS_MAX as u64;
    wanted.iter().map(bytes).fold(mask + 4, u64::saturating_add)
}

/// Returns the maximum size in bytes of the result of an operation, without its number.
fn answer_bytes_max(number: u32) -> u64 {
    let Shape::Union { arms, .. } = <Answer<'_> as Xdr<'_>>::SHAPE else { return u64::MAX };
    let arm = arms.iter().find(|(arm, _, _)| *arm == number);
    arm.map_or(u64::MAX, |(_, _, shape)| shape_bytes_max(shape))
}

/// Returns the size in bytes of the longest value of an encoding.
#[must_use]
pub fn shape_bytes_max(shape: &Shape) -> u64 {
    let opaque = |bytes: usize| 4 + (bytes + padding(bytes)) as u64;
    let list = |item: &Shape, count: usize, extra: u64| {
        4_u64.saturating_add((shape_bytes_max(item) + extra).saturating_mul(count as u64))
    };
    match shape {
        Shape::Void => 0,
        Shape::U32 | Shape::I32 | Shape::Bool | Shape::Enum { .. } => 4,
        Shape::U64 | Shape::I64 => 8,
        Shape::Fixed(bytes) => (bytes + padding(*bytes)) as u64,
        Shape::Opaque { bytes_max } => opaque(*bytes_max),
        Shape::Payload => opaque(PAYLOAD_BYTES_MAX),
        Shape::Option(item) => shape_bytes_max(item).saturating_add(4),
        Shape::List { item, count_max } => list(item, *count_max, 0),
        Shape::Chain { item, count_max } => list(item, *count_max, 4),
        Shape::Struct { fields, .. } => {
            let sizes = fields.iter().map(|(_, field)| shape_bytes_max(field));
            sizes.fold(0, u64::saturating_add)
        }
        Shape::Flags { number, .. } => shape_bytes_max(number),
        Shape::Union { on, arms, other, .. } => {
            let contents = arms.iter().map(|(_, _, content)| shape_bytes_max(content));
            let other = other.map_or(0, |(_, content)| shape_bytes_max(content));
            contents.fold(other, u64::max).saturating_add(shape_bytes_max(on))
        }
    }
}
