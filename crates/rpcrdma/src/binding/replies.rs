//! The bulk data of replies.
//!
//! Invariant: the items of a reply are found in the order in which the Write chunks of its call
//! belong to them: the first READ or READLINK that succeeded has the first chunk, and so on (RFC
//! 8267 section 4). Data without bytes is an item, too, so that the order stays.

use dafs_nfs_wire::nfs3::{self, Attributes};
use dafs_nfs_wire::nfs4::limits::{CONTENTS_MAX, OPERATIONS_MAX, TAG_BYTES_MAX};
use dafs_nfs_wire::nfs4::{Answer, OperationKind};
use dafs_nfs_wire::rpc::{Outcome, Reply, ReplyBody, Target};
use dafs_nfs_wire::xdr::{PAYLOAD_BYTES_MAX, Piece, Reader, Writer, Xdr, XdrError, padding};

use super::{COMPOUND, Protocol, is_in_reply};
use crate::server::Item;

/// Finds the bulk data of a reply. `target` is what its call named. The results must not be
/// encrypted or have a checksum: such replies have no items.
///
/// # Errors
/// If the reply cannot be decoded.
pub fn reply_items(target: &Target, reply: &Writer) -> Result<Vec<Item>, XdrError> {
    if Protocol::of(target.program, target.version).is_none() {
        return no_items(reply);
    }
    let mut walker = Walker::new(reply);
    walker.walk(target)?;
    // Data outside of the encoded bytes must not be lost.
    if walker.gaps.is_empty() { Ok(walker.items) } else { Err(XdrError::Elsewhere) }
}

/// Finds the places of bulk data that is not in a reply, but in Write chunks. `target` is what the
/// call named, `written` the number of bytes in each chunk.
///
/// # Errors
/// If the reply cannot be decoded, or a chunk does not belong to a result.
pub fn written_items(
    target: &Target,
    reply: &[u8],
    written: &[u64],
) -> Result<Vec<Item>, XdrError> {
    let mut walker = Walker {
        bytes: reply,
        at: 0,
        gaps: Vec::new(),
        written: written.iter(),
        items: Vec::new(),
    };
    walker.walk(target)?;
    // A chunk for an operation that did not succeed stays empty.
    if walker.written.all(|bytes| *bytes == 0) {
        Ok(walker.items)
    } else {
        Err(XdrError::Elsewhere)
    }
}

fn no_items(reply: &Writer) -> Result<Vec<Item>, XdrError> {
    if reply.payload_count() == 0 { Ok(Vec::new()) } else { Err(XdrError::Elsewhere) }
}

/// Walks over the encoded bytes of a reply, from which the data of some items is left out.
struct Walker<'w> {
    bytes: &'w [u8],
    at: usize,
    /// The positions and lengths of the data that is left out, from here on.
    gaps: Vec<(usize, usize)>,
    /// The numbers of bytes in the Write chunks that were not reached yet, in a reply that has
    /// arrived.
    written: std::slice::Iter<'w, u64>,
    items: Vec<Item>,
}

impl<'w> Walker<'w> {
    fn new(reply: &'w Writer) -> Self {
        let mut at = 0;
        let mut gaps = Vec::new();
        for piece in reply.pieces() {
            match piece {
                Piece::Bytes(bytes) => at += bytes.len(),
                Piece::Payload(length) => gaps.push((at, length)),
            }
        }
        gaps.reverse();
        let written = [].iter();
        Self { bytes: reply.bytes(), at: 0, gaps, written, items: Vec::new() }
    }

    fn walk(&mut self, target: &Target) -> Result<(), XdrError> {
        let Some(protocol) = Protocol::of(target.program, target.version) else { return Ok(()) };
        let header: Reply<'_> = self.value()?;
        match header.body {
            ReplyBody::Accepted(accepted) if accepted.outcome == Outcome::Success => {}
            _ => return Ok(()),
        }
        match protocol {
            Protocol::Nfs3 => self.nfs3(target.procedure),
            Protocol::Nfs4 if target.procedure == COMPOUND => self.compound(),
            Protocol::Nfs4 => Ok(()),
        }
    }

    fn nfs3(&mut self, procedure: u32) -> Result<(), XdrError> {
        let is_read = procedure == nfs3::Procedure::Read.number();
        if !is_in_reply(Protocol::Nfs3, procedure) || self.value::<u32>()? != 0 {
            return Ok(());
        }
        self.value::<Option<Attributes>>()?;
        if is_read {
            // The count and the end of the file.
            self.value::<u32>()?;
            self.value::<bool>()?;
        }
        self.item(true)
    }

    fn compound(&mut self) -> Result<(), XdrError> {
        self.value::<u32>()?;
        self.value::<dafs_nfs_wire::xdr::Opaque<'_, TAG_BYTES_MAX>>()?;
        let count = self.value::<u32>()?;
        if count as usize > OPERATIONS_MAX {
            return Err(XdrError::TooMany { count: count as usize, bound: OPERATIONS_MAX });
        }
        (0..count).try_for_each(|_| self.answer())
    }

    fn answer(&mut self) -> Result<(), XdrError> {
        let start = self.at;
        let number = self.value::<u32>()?;
        let status = self.value::<u32>()?;
        match OperationKind::from_number(number) {
            Some(OperationKind::Read) if status == 0 => {
                self.value::<bool>()?;
                self.item(true)
            }
            Some(OperationKind::ReadLink) if status == 0 => self.item(true),
            Some(OperationKind::ReadPlus) if status == 0 => self.read_plus(),
            _ => {
                self.at = start;
                self.value::<Answer<'_>>().map(|_| ())
            }
        }
    }

    fn read_plus(&mut self) -> Result<(), XdrError> {
        self.value::<bool>()?;
        let count = self.value::<u32>()?;
        if count as usize > CONTENTS_MAX {
            return Err(XdrError::TooMany { count: count as usize, bound: CONTENTS_MAX });
        }
        for _ in 0..count {
            let kind = self.value::<u32>()?;
            // The offset.
            self.value::<u64>()?;
            match kind {
                0 => self.item(false)?,
                1 => self.value::<u64>().map(|_| ())?,
                value => return Err(XdrError::Value { kind: "Part", value }),
            }
        }
        Ok(())
    }

    /// Takes the length, the data and the padding of an item.
    fn item(&mut self, is_eligible: bool) -> Result<(), XdrError> {
        let length = self.value::<u32>()? as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(XdrError::TooMany { count: length, bound: PAYLOAD_BYTES_MAX });
        }
        if is_eligible && let Some(written) = self.written.next() {
            if *written != length as u64 {
                return Err(XdrError::Elsewhere);
            }
            // Its padding is not in the message either.
            self.items.push(Item { at: self.at, length, is_outside: true, is_eligible });
            return Ok(());
        }
        let is_outside = self.gaps.last() == Some(&(self.at, length));
        if is_outside {
            self.gaps.pop();
        }
        self.items.push(Item { at: self.at, length, is_outside, is_eligible });
        let inside = if is_outside { 0 } else { length };
        self.at += inside + padding(length);
        match self.bytes.len().checked_sub(self.at) {
            Some(_) => Ok(()),
            None => Err(XdrError::Short { needed: length, left: 0 }),
        }
    }

    fn value<T: Xdr<'w>>(&mut self) -> Result<T, XdrError> {
        let mut reader = Reader::new(self.bytes.get(self.at..).unwrap_or_default());
        let value = T::decode(&mut reader)?;
        self.at += reader.position();
        Ok(value)
    }
}
