//! Where the payload of a frame goes.
//!
//! Invariant: a place is a name, looked up in the region table and checked at every
//! use. A region that is withdrawn while a frame is half there is out of reach for
//! the rest of it.

use std::collections::VecDeque;

use dafs_iwarp::{PlacementError, Target};
use dafs_memory::Memory;

use super::segments::SegmentList;
use crate::connection::Context;
use crate::region::{AccessError, RegionTable};
use crate::{Domain, LocalKey, LocalSegment, Stag};

/// A posted receive.
#[derive(Debug)]
pub(super) struct Receive {
    pub cookie: u64,
    pub scatter: SegmentList,
}

/// What places are looked up in.
pub(super) struct Directory<'a> {
    pub regions: &'a RegionTable,
    pub domain: Domain,
    pub receives: &'a VecDeque<Receive>,
    pub reads: &'a VecDeque<SegmentList>,
}

/// The place of one frame's payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    target: PlaceOf,
    length: u32,
    /// Bytes already placed.
    done: u32,
    /// Bytes of pad and CRC that follow.
    pub trailer_length: usize,
}

#[derive(Clone, Copy, Debug)]
enum PlaceOf {
    /// The machine keeps the payload.
    Machine,
    /// A region that the peer named.
    Region { stag: Stag, address: u64 },
    /// The oldest posted receive.
    Receive { message_offset: u32 },
    /// The sink of the oldest open read.
    Read { message_offset: u32 },
}

/// A stretch of contiguous memory.
pub(super) struct Run<'a> {
    pub key: LocalKey,
    pub memory: &'a Memory,
    pub offset: usize,
    pub length: usize,
}

impl Place {
    /// For a frame without payload that takes no receive.
    pub const NOWHERE: Self =
        Self { target: PlaceOf::Machine, length: 0, done: 0, trailer_length: 4 };

    /// The checked place of a frame.
    #[inline]
    pub fn find(
        directory: &Directory<'_>,
        placement: &dafs_iwarp::Placement,
    ) -> Result<Self, PlacementError> {
        let length = placement.payload_length;
        let target = match placement.target {
            // The STag of a frame without payload is not looked at: RFC 5041 7.1.
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

    /// Whether bytes may go to their place without the machine's seeing them, as far
    /// as the place is concerned.
    #[inline]
    pub fn is_memory(&self) -> bool {
        !matches!(self.target, PlaceOf::Machine)
    }

    /// Whether a message is being received.
    pub fn is_message(&self) -> bool {
        matches!(self.target, PlaceOf::Receive { .. })
    }

    /// Bytes of the frame's payload.
    pub fn length(&self) -> u64 {
        u64::from(self.length)
    }

    /// The run that begins `ahead` bytes after those already placed.
    #[inline]
    pub fn run<'a>(
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

    /// Copies bytes to their place.
    pub fn put(
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

    /// Counts bytes that went to their place.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        // A frame's payload is counted in 16 bits on the wire.
        self.done += count as u32;
    }
}

impl<'a> Directory<'a> {
    /// The run that the peer names for writing.
    #[inline]
    pub fn remote(&self, stag: Stag, address: u64, length: u32) -> Result<Run<'a>, PlacementError> {
        let found = self.regions.remote(self.domain, stag, address, length, true);
        let (memory, offset) = found.map_err(access_error)?;
        Ok(Run { key: LocalKey(stag.0), memory, offset, length: length as usize })
    }

    /// The run at `offset` of a scatter list, at most `length` bytes.
    #[inline]
    pub fn local(
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
            // Deregistered while a receive or a read still used it.
            let found = self.regions.local(self.domain, segment);
            let (memory, at) = found.map_err(|_| PlacementError::InvalidStag)?;
            let length = (segment.length - skip).min(length) as usize;
            return Ok(Run { key: segment.key, memory, offset: at + skip as usize, length });
        }
        Err(PlacementError::TooLong)
    }
}

/// What the peer is told when it may not reach a region.
pub(super) fn access_error(error: AccessError) -> PlacementError {
    match error {
        AccessError::InvalidStag => PlacementError::InvalidStag,
        AccessError::WrongDomain => PlacementError::StagNotOfStream,
        AccessError::Bounds => PlacementError::Bounds,
        AccessError::Rights => PlacementError::Access,
        AccessError::Wrap => PlacementError::ToWrap,
    }
}

/// The directory of one call.
pub(super) fn directory<'a>(
    context: &'a Context<'_>,
    receives: &'a VecDeque<Receive>,
    reads: &'a VecDeque<SegmentList>,
) -> Directory<'a> {
    Directory { regions: &*context.regions, domain: context.domain, receives, reads }
}
