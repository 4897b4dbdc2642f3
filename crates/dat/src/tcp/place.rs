//! The destination of a frame's payload.
//!
//! Invariant: a place is a name that is looked up in the region table and checked at every use. If
//! a region is withdrawn while a frame is incomplete, the remaining bytes of the frame cannot be
//! written to the region.

use std::collections::VecDeque;

use dafs_iwarp::{PlacementError, Target};
use dafs_memory::Memory;

use super::segments::SegmentList;
use crate::connection::Context;
use crate::region::{AccessError, RegionTable};
use crate::{Domain, LocalKey, LocalSegment, Stag};

/// A posted receive and its scatter list.
#[derive(Debug)]
pub(super) struct Receive {
    pub cookie: u64,
    pub scatter: SegmentList,
}

/// The tables in which places are looked up.
pub(super) struct Directory<'a> {
    pub regions: &'a RegionTable,
    pub domain: Domain,
    pub receives: &'a VecDeque<Receive>,
    pub reads: &'a VecDeque<SegmentList>,
}

/// The destination of one frame's payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    target: PlaceOf,
    length: u32,
    /// The number of payload bytes already placed.
    done: u32,
    /// The number of pad and CRC bytes after the payload.
    pub trailer_length: usize,
}

#[derive(Clone, Copy, Debug)]
enum PlaceOf {
    /// The protocol machine itself keeps the payload.
    Machine,
    /// The payload goes to a region that the peer named.
    Region { stag: Stag, address: u64 },
    /// The payload goes to the oldest posted receive.
    Receive { message_offset: u32 },
    /// The payload goes to the scatter list of the oldest open read.
    Read { message_offset: u32 },
}

/// A range of contiguous memory.
pub(super) struct Run<'a> {
    pub key: LocalKey,
    pub memory: &'a Memory,
    pub offset: usize,
    pub length: usize,
}

impl Place {
    /// The place for a frame without payload that consumes no receive.
    pub(super) const NOWHERE: Self =
        Self { target: PlaceOf::Machine, length: 0, done: 0, trailer_length: 4 };

    /// Finds and checks the place of a frame's payload.
    #[inline]
    pub(super) fn find(
        directory: &Directory<'_>,
        placement: &dafs_iwarp::Placement,
    ) -> Result<Self, PlacementError> {
        let length = placement.payload_length;
        let target = match placement.target {
            // The STag of a frame without payload must be ignored (RFC 5041 7.1).
            Target::Write { stag, offset } => {
                let (stag, address) = (Stag(stag.0), offset.0);
                if length > 0 {
                    directory.remote(stag, address, length)?;
                }
                PlaceOf::Region { stag, address }
            }
            Target::ReadResponse { message_offset, .. } => PlaceOf::Read { message_offset },
            Target::Send { message_offset, .. } => {
                let receive = directory.receives.front().ok_or(PlacementError::NoBuffer)?;
                if u64::from(message_offset) + u64::from(length) > receive.scatter.length() {
                    return Err(PlacementError::TooLong);
                }
                PlaceOf::Receive { message_offset }
            }
            Target::ReadRequest { .. } | Target::Terminate => PlaceOf::Machine,
        };
        let trailer_length = usize::from(placement.trailer_length);
        Ok(Self { target, length, done: 0, trailer_length })
    }

    /// Returns true if payload may be read directly into this place without passing through the
    /// protocol machine.
    #[inline]
    pub(super) fn is_memory(&self) -> bool {
        !matches!(self.target, PlaceOf::Machine)
    }

    /// Returns true if the payload belongs to a message.
    pub(super) fn is_message(&self) -> bool {
        matches!(self.target, PlaceOf::Receive { .. })
    }

    /// Returns the length of the frame's payload in bytes.
    pub(super) fn length(&self) -> u64 {
        u64::from(self.length)
    }

    /// Returns the contiguous memory that begins `ahead` bytes after those already placed.
    #[inline]
    pub(super) fn run<'a>(
        &self,
        directory: &Directory<'a>,
        ahead: u32,
    ) -> Result<Run<'a>, PlacementError> {
        let skip = self.done + ahead;
        let left = self.length - skip;
        match self.target {
            PlaceOf::Machine => Err(PlacementError::NoBuffer),
            PlaceOf::Region { stag, address } => {
                directory.remote(stag, address.wrapping_add(u64::from(skip)), left)
            }
            PlaceOf::Receive { message_offset } => {
                let receive = directory.receives.front().ok_or(PlacementError::NoBuffer)?;
                directory.local(receive.scatter.as_slice(), message_offset + skip, left)
            }
            PlaceOf::Read { message_offset } => {
                let scatter = directory.reads.front().ok_or(PlacementError::NoBuffer)?;
                directory.local(scatter.as_slice(), message_offset + skip, left)
            }
        }
    }

    /// Copies payload bytes to their place.
    pub(super) fn put(
        &mut self,
        directory: &Directory<'_>,
        mut bytes: &[u8],
    ) -> Result<(), PlacementError> {
        while !bytes.is_empty() {
            let run = self.run(directory, 0)?;
            let count = bytes.len().min(run.length);
            run.memory.write(run.offset, &bytes[..count]);
            bytes = &bytes[count..];
            self.advance(count);
        }
        Ok(())
    }

    /// Counts payload bytes that have been placed.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        // The frame format limits a payload to 16 bits, so the cast loses nothing.
        self.done += count as u32;
    }
}

impl<'a> Directory<'a> {
    /// Returns the contiguous memory that the peer names for writing.
    #[inline]
    pub(super) fn remote(
        &self,
        stag: Stag,
        address: u64,
        length: u32,
    ) -> Result<Run<'a>, PlacementError> {
        let found = self.regions.remote(self.domain, stag, address, length, true);
        let (memory, offset) = found.map_err(access_error)?;
        Ok(Run { key: LocalKey(stag.0), memory, offset, length: length as usize })
    }

    /// Returns the contiguous memory at `offset` of a scatter list, at most `length` bytes.
    #[inline]
    pub(super) fn local(
        &self,
        scatter: &[LocalSegment],
        offset: u32,
        length: u32,
    ) -> Result<Run<'a>, PlacementError> {
        let mut skip = offset;
        for segment in scatter {
            if skip >= segment.length {
                skip -= segment.length;
                continue;
            }
            // The region was deregistered while a posted receive or read still used it.
            let found = self.regions.local(self.domain, segment);
            let (memory, at) = found.map_err(|_| PlacementError::InvalidStag)?;
            let length = (segment.length - skip).min(length) as usize;
            return Ok(Run { key: segment.key, memory, offset: at + skip as usize, length });
        }
        Err(PlacementError::TooLong)
    }
}

/// Returns the error by which the peer is informed why it may not access a region.
pub(super) fn access_error(error: AccessError) -> PlacementError {
    match error {
        AccessError::InvalidStag => PlacementError::InvalidStag,
        AccessError::WrongDomain => PlacementError::StagNotOfStream,
        AccessError::Bounds => PlacementError::Bounds,
        AccessError::Rights => PlacementError::Access,
        AccessError::Wrap => PlacementError::ToWrap,
    }
}

/// Returns the tables for one call.
pub(super) fn directory<'a>(
    context: &'a Context<'_>,
    receives: &'a VecDeque<Receive>,
    reads: &'a VecDeque<SegmentList>,
) -> Directory<'a> {
    Directory { regions: &*context.regions, domain: context.domain, receives, reads }
}
