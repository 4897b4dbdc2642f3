//! The 40-byte headers that begin every message (draft 6.1.2, 6.1.3).
//!
//! Invariant: a decoded header has the right magic number for the session's byte order, and its
//! length field equals the length of the received message. Its other values are not checked yet.
//!
//! ```text
//! request   0 magic  4 version  8 desired_credits 10 chain_flags 12 stream 14 seq
//!          16 analyzer  24 checksum  28 cred_handle  32 procedure  36 length
//! response  0 magic  4 version  8 target_nreq 10 spec_cond 12 stream 14 seq
//!          16 analyzer  24 checksum  28 status  32 length  36 reserved
//! ```

use dafs_types::{CredHandle, SequenceNumber, Status, StreamId};

use crate::checksum::Checksum;
use crate::error::{DecodeError, EncodeError};
use crate::limits::{HEADER_BYTES, PROTOCOL_VERSION};
use crate::order::{ByteOrder, Order, with_order};
use crate::scope::{Scope, Writer};

/// The magic number of requests: "DAFS" in big-endian order.
pub(crate) const REQUEST_MAGIC: u32 = 0x4441_4653;
/// The magic number of replies: "DAFR" in big-endian order.
pub(crate) const RESPONSE_MAGIC: u32 = 0x4441_4652;

/// The chain flags of a request (draft 4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChainFlags(pub u16);

impl ChainFlags {
    /// Set if another request of this chain follows the request.
    pub const FORWARD: Self = Self(0x01);
    /// Set if the request continues a chain.
    pub const BACK: Self = Self(0x02);
    /// Set if the server must store the result of this request in the response cache, even if the
    /// request changes nothing.
    pub const SAVE: Self = Self(0x04);
    /// Set if the request uses the file handle that the previous member of the chain produced.
    pub const FILE_HANDLE: Self = Self(0x08);
    /// Set if the request uses the state id that the previous member of the chain produced.
    pub const STATE_ID: Self = Self(0x10);
    /// All flags that the draft defines.
    pub const ALL: Self = Self(0x1f);

    /// Returns true if all of `flags` are set.
    #[must_use]
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the union of both sets of flags.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// The special conditions that a reply reports (draft 6.1.3). Undefined bits are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpecialConditions(pub u16);

impl SpecialConditions {
    /// Set if a lease has moved to another server.
    pub const LEASE_MOVED: Self = Self(0x0001);
    /// Set if the failover locations have changed.
    pub const FAILOVER_CHANGED: Self = Self(0x0002);

    /// Returns true if all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// The decoded header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The protocol version; [`PROTOCOL_VERSION`] unless the peer uses another.
    pub version: u32,
    /// The number of credits that the client requests.
    pub desired_credits: u16,
    /// The flags that place the request in a chain.
    pub chain_flags: ChainFlags,
    /// The number of the stream on which the request is sent. It is less than the number of
    /// credits.
    pub stream: StreamId,
    /// The sequence number of the request on its stream.
    pub sequence: SequenceNumber,
    /// A value that the server returns unchanged. It is kept as one integer with the bytes in
    /// memory order, and not as eight bytes, because the processor would stall if it loaded the
    /// integer right after storing its bytes one by one.
    pub analyzer: u64,
    /// The checksum of the message; [`Checksum::NONE`] when encoding (see `seal`).
    pub checksum: Checksum,
    /// The handle of the registered credentials to use for the request; 0 means the session's own.
    pub credentials: CredHandle,
    /// The number of the procedure, which may be unassigned. Ignored when encoding.
    pub procedure: u32,
    /// The length of the message in bytes. Ignored when encoding.
    pub length: u32,
}

impl RequestHeader {
    /// Creates a header of the current version without flags, requested credits or credentials.
    #[must_use]
    pub const fn new(stream: StreamId, sequence: SequenceNumber) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            desired_credits: 1,
            chain_flags: ChainFlags(0),
            stream,
            sequence,
            analyzer: 0,
            checksum: Checksum::NONE,
            credentials: CredHandle(0),
            procedure: 0,
            length: 0,
        }
    }

    /// Returns the byte order in which a client's first message is encoded. `None` if the message
    /// is not a request.
    #[must_use]
    pub fn detect_order(message: &[u8]) -> Option<ByteOrder> {
        ByteOrder::detect(message, REQUEST_MAGIC)
    }

    /// Decodes the header of a whole message.
    ///
    /// # Errors
    /// If the message is truncated, has the wrong magic number for `order`, or a length other than
    /// `message.len()`.
    #[inline]
    pub fn decode(order: ByteOrder, message: &[u8]) -> Result<Self, DecodeError> {
        with_order!(order, O => Self::read(Scope::<O>::new(message)))
    }

    #[inline(always)]
    pub(crate) fn read<O: Order>(scope: Scope<'_, O>) -> Result<Self, DecodeError> {
        scope.require(HEADER_BYTES, "header")?;
        if scope.u32(0)? != REQUEST_MAGIC {
            return Err(DecodeError::Magic);
        }
        let header = Self {
            version: scope.u32(4)?,
            desired_credits: scope.u16(8)?,
            chain_flags: ChainFlags(scope.u16(10)?),
            stream: StreamId(scope.u16(12)?),
            sequence: SequenceNumber(scope.u16(14)?),
            analyzer: u64::from_ne_bytes(scope.array(16)?),
            checksum: Checksum(scope.array(24)?),
            // Opaque: the same bytes name the same credentials in either byte order.
            credentials: CredHandle(u32::from_le_bytes(scope.array(28)?)),
            procedure: scope.u32(32)?,
            length: scope.u32(36)?,
        };
        check_length(header.length, scope.bytes().len())?;
        Ok(header)
    }

    #[inline(always)]
    pub(crate) fn write<O: Order>(
        &self,
        writer: &mut Writer<'_, O>,
        procedure: u32,
        length: u32,
    ) -> Result<(), EncodeError> {
        writer.put_u32(0, REQUEST_MAGIC)?;
        writer.put_u32(4, self.version)?;
        writer.put_u16(8, self.desired_credits)?;
        writer.put_u16(10, self.chain_flags.0)?;
        writer.put_u16(12, self.stream.0)?;
        writer.put_u16(14, self.sequence.0)?;
        writer.put(16, self.analyzer.to_ne_bytes())?;
        writer.put(24, self.checksum.0)?;
        writer.put(28, self.credentials.0.to_le_bytes())?;
        writer.put_u32(32, procedure)?;
        writer.put_u32(36, length)
    }
}

/// The decoded header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The protocol version. In the reply to a request with an unsupported version: the next lower
    /// version that the server supports, or 0 if there is none.
    pub version: u32,
    /// The number of credits that the client should have from now on.
    pub target_credits: u16,
    /// Conditions that the client should act upon.
    pub conditions: SpecialConditions,
    /// The stream, copied from the request.
    pub stream: StreamId,
    /// The sequence number, copied from the request.
    pub sequence: SequenceNumber,
    /// The analyzer value, copied from the request.
    pub analyzer: u64,
    /// The checksum of the message; [`Checksum::NONE`] when encoding (see `seal`).
    pub checksum: Checksum,
    /// The result of the request. Unassigned numbers are decoded as `ServerFault`.
    pub status: Status,
    /// The length of the message in bytes. Ignored when encoding.
    pub length: u32,
}

/// The bytes of a reply's header that contain the number of credits.
const TARGET_CREDITS: std::ops::Range<usize> = 8..10;

impl ResponseHeader {
    /// Creates the header for the reply to `request`.
    #[must_use]
    #[inline]
    pub const fn answering(request: &RequestHeader, status: Status, target_credits: u16) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            target_credits,
            conditions: SpecialConditions(0),
            stream: request.stream,
            sequence: request.sequence,
            analyzer: request.analyzer,
            checksum: Checksum::NONE,
            status,
            length: 0,
        }
    }

    /// Decodes the header of a whole message.
    ///
    /// # Errors
    /// If the message is truncated, has the wrong magic number for `order`, a length other than
    /// `message.len()`, or a reserved field that is not zero.
    #[inline]
    pub fn decode(order: ByteOrder, message: &[u8]) -> Result<Self, DecodeError> {
        with_order!(order, O => Self::read(Scope::<O>::new(message)))
    }

    /// Sets the number of credits in the header of an encoded reply. A message shorter than a
    /// header is left unchanged.
    pub fn set_target_credits(order: ByteOrder, target_credits: u16, message: &mut [u8]) {
        let bytes = match order {
            ByteOrder::Little => target_credits.to_le_bytes(),
            ByteOrder::Big => target_credits.to_be_bytes(),
        };
        // The store is skipped if the field already has this value, because sending right after a
        // store of two bytes would stall.
        if let Some(field) = message.get_mut(TARGET_CREDITS).filter(|field| **field != bytes) {
            field.copy_from_slice(&bytes);
        }
    }

    #[inline(always)]
    pub(crate) fn read<O: Order>(scope: Scope<'_, O>) -> Result<Self, DecodeError> {
        scope.require(HEADER_BYTES, "header")?;
        if scope.u32(0)? != RESPONSE_MAGIC {
            return Err(DecodeError::Magic);
        }
        let header = Self {
            version: scope.u32(4)?,
            target_credits: scope.u16(8)?,
            conditions: SpecialConditions(scope.u16(10)?),
            stream: StreamId(scope.u16(12)?),
            sequence: SequenceNumber(scope.u16(14)?),
            analyzer: u64::from_ne_bytes(scope.array(16)?),
            checksum: Checksum(scope.array(24)?),
            status: status_from(scope.u32(28)?),
            length: scope.u32(32)?,
        };
        check_length(header.length, scope.bytes().len())?;
        scope.zeros(36, HEADER_BYTES)?;
        Ok(header)
    }

    #[inline(always)]
    pub(crate) fn write<O: Order>(
        &self,
        writer: &mut Writer<'_, O>,
        length: u32,
    ) -> Result<(), EncodeError> {
        writer.put_u32(0, RESPONSE_MAGIC)?;
        writer.put_u32(4, self.version)?;
        writer.put_u16(8, self.target_credits)?;
        writer.put_u16(10, self.conditions.0)?;
        writer.put_u16(12, self.stream.0)?;
        writer.put_u16(14, self.sequence.0)?;
        writer.put(16, self.analyzer.to_ne_bytes())?;
        writer.put(24, self.checksum.0)?;
        writer.put_u32(28, self.status.number())?;
        writer.put_u32(32, length)?;
        writer.put_u32(36, 0)
    }
}

/// Returns the status that has this number in messages. Success is tested first, because it is by
/// far the most frequent.
#[inline(always)]
pub(crate) fn status_from(number: u32) -> Status {
    if number == 0 {
        return Status::Ok;
    }
    Status::from_number(number).unwrap_or(Status::ServerFault)
}

#[inline(always)]
fn check_length(declared: u32, received: usize) -> Result<(), DecodeError> {
    if declared as usize == received {
        Ok(())
    } else {
        Err(DecodeError::Length { declared, received })
    }
}
