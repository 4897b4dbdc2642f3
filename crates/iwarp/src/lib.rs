//! iWARP in user space: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040) as state
//! machines that use no socket and no clock and do not touch payload.
//!
//! Invariant: no state machine of this crate owns, copies or stores payload. A [`Transmitter`]
//! returns header and trailer bytes, and the range of the message that goes between them. A
//! [`Receiver`] returns where the following bytes must be placed and which events they complete.
//! The driver moves the data directly between the socket and registered memory, in batches of any
//! size.
//!
//! A stream works as follows:
//!
//! 1. An [`Initiator`] and a [`Responder`] exchange the MPA request and reply frames. The result is
//!    an [`Established`].
//! 2. `Transmitter::new(&established, mulpdu)` and `Receiver::new(&established)` create two
//!    independent halves. They share nothing, so each may have its own lock. The driver passes
//!    information between them by value:
//!    - [`Receiver::open_read`] returns the [`OpenRead`] that [`Transmitter::read_request`] takes.
//!    - [`Receiver::on_read_answered`] records that a read response has been framed.
//!    - [`Transmitter::on_peer_spoke`] allows a responder to send.
//!    - [`Receiver::take_terminate`] returns the [`Terminate`] that [`Transmitter::terminate`]
//!      frames.
//! 3. Every protocol error of the peer is a [`Violation`], which maps to exactly one
//!    [`TerminateCode`]. Every invalid call of the local side is a [`Refusal`].
//!
//! The crate neither requests nor sends markers. All integers are big-endian, except the CRC,
//! whose least significant byte comes first (RFC 5044 4.4).
//!
//! An example with both sides of a stream in one process: the start-up, and an RDMA write of one
//! frame.
//!
//! ```
//! use dafs_iwarp::{
//!     ConnectConfig, Event, HEADER_BYTES_MAX, Initiator, InitiatorOutcome, Outbound, Receiver,
//!     Responder, Stag, TRAILER_BYTES_MAX, TaggedOffset, Target, Transmitter,
//! };
//!
//! // The start-up frames.
//! let config = ConnectConfig::default();
//! let mut initiator = Initiator::new(config, b"hello")?;
//! let mut responder = Responder::new();
//! responder.on_bytes(initiator.request())?;
//! let (reply, there) = responder.accept(&config, b"welcome")?;
//! let outcome = initiator.on_bytes(&reply)?.outcome;
//! let Some(InitiatorOutcome::Accepted { established: here, .. }) = outcome else {
//!     panic!("the responder accepts");
//! };
//!
//! // The initiator writes to steering tag 7 of the responder, from offset 64 on.
//! let payload = [5; 1000];
//! let mut transmitter = Transmitter::new(&here, 1440);
//! let write = Outbound::Write { stag: Stag(7), offset: TaggedOffset(64) };
//! let mut segments = transmitter.begin(write, payload.len() as u32)?;
//! let (mut header, mut trailer) = ([0; HEADER_BYTES_MAX], [0; TRAILER_BYTES_MAX]);
//! let mut network = Vec::new();
//! while let Some(segment) = segments.next_segment(&mut header) {
//!     let body = &payload[segment.offset as usize..][..segment.length as usize];
//!     if transmitter.crc_in_use() {
//!         let mut checksum = segment.checksum(&header);
//!         checksum.update(body);
//!         segment.finish(checksum, &mut trailer);
//!     }
//!     network.extend_from_slice(&header[..segment.header_length]);
//!     network.extend_from_slice(body);
//!     network.extend_from_slice(&trailer[..segment.trailer_length]);
//! }
//!
//! // The responder takes whole frames off its buffer and places the payload.
//! let mut memory = [0; 2048];
//! let mut receiver = Receiver::new(&there);
//! while let Some(frame) = receiver.on_fpdu(&network)? {
//!     let Target::Write { stag, offset } = frame.placement.target else {
//!         panic!("the frame belongs to a write");
//!     };
//!     assert_eq!(stag, Stag(7));
//!     memory[offset.0 as usize..][..frame.payload.len()].copy_from_slice(frame.payload);
//!     assert!(matches!(frame.event, Event::Written));
//!     let length = frame.total_length;
//!     network.drain(..length);
//! }
//! assert_eq!(memory[64..1064], payload);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod connect;
mod crc;
mod fpdu;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod ids;
mod read;
mod receive;
mod terminate;
mod transmit;
mod violation;

pub use connect::{
    ConnectConfig, ConnectRequest, DEPTH_NOT_NEGOTIATED, Established, FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES, Initiator, InitiatorOutcome, PRIVATE_DATA_BYTES_MAX,
    PRIVATE_DATA_OUT_BYTES_MAX, Progress, ReadyToReceive, ReadyToReceiveSet, Responder, Role,
};
pub use crc::{Checksum, checksum_of};
pub use fpdu::{
    CRC_BYTES, FPDU_BYTES_MIN, FpduShape, HEADER_BYTES_MAX, LENGTH_FIELD_BYTES, MULPDU_MAX,
    MULPDU_MIN, TAGGED_DDP_BYTES, TAGGED_HEADER_BYTES, TRAILER_BYTES_MAX, TRAILER_WITHOUT_CRC,
    UNTAGGED_DDP_BYTES, UNTAGGED_HEADER_BYTES, fpdu_length, mulpdu_for_segment_size,
    trailer_length,
};
pub use ids::{MessageSequence, QueueNumber, Stag, TaggedOffset};
pub use read::{OpenRead, READ_REQUEST_BYTES, ReadRequest};
pub use receive::{Event, Fpdu, Placement, Receiver, Step, Target, WriteHeader, write_header};
pub use terminate::{TERMINATE_BYTES_MAX, Terminate, TerminateCode, TerminatedHeader};
pub use transmit::{
    Outbound, READ_REQUEST_FPDU_BYTES, Segment, Segments, TERMINATE_FPDU_BYTES_MAX, Transmitter,
    payload_max, segment_count,
};
pub use violation::{PlacementContext, PlacementError, Refusal, Violation};

/// The example in the README, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
