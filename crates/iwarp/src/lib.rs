//! iWARP in user space: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040) as state
//! machines that use no socket and no clock and do not touch payload.
//!
//! Invariant: no machine of this crate owns, copies or stores payload. A [`Transmitter`] returns
//! header and trailer bytes, and the range of the message that goes between them. A [`Receiver`]
//! says where the following bytes belong and what their arrival means. The driver moves the data
//! directly between the socket and registered memory, in batches of any size.
//!
//! A stream works as follows:
//!
//! 1. A [`connect::Initiator`] and a [`connect::Responder`] exchange the MPA request and reply
//!    frames. The result is an [`Established`].
//! 2. `Transmitter::new(&established, mulpdu)` and `Receiver::new(&established)` create two
//!    independent halves. They share nothing, so each may have its own lock. The driver passes
//!    information between them by value:
//!    - [`Receiver::open_read`] returns the [`OpenRead`] that [`Transmitter::read_request`] takes.
//!    - [`Receiver::on_read_answered`] records that a read response has been framed.
//!    - [`Transmitter::on_peer_spoke`] allows a responder to send.
//!    - [`Receiver::take_terminate`] returns the [`Terminate`] that [`Transmitter::terminate`]
//!      frames.
//! 3. Every error of the peer is a [`Violation`], which maps to exactly one [`TerminateCode`].
//!    Every invalid call of the local side is a [`Refusal`].
//!
//! The crate neither requests nor sends markers. All integers are big-endian, except the CRC,
//! whose least significant byte comes first (RFC 5044 4.4).
#![forbid(unsafe_code)]

pub mod connect;
pub mod crc;
pub mod fpdu;
#[doc(hidden)]
pub mod fuzzing;
pub mod header;
pub mod ids;
pub mod read;
pub mod receive;
pub mod terminate;
pub mod transmit;
pub mod violation;

pub use connect::{ConnectConfig, Established, ReadyToReceive, ReadyToReceiveSet, Role};
pub use crc::Checksum;
pub use fpdu::{FpduShape, fpdu_length, mulpdu_for_segment_size, trailer_length};
pub use header::Opcode;
pub use ids::{MessageSequence, QueueNumber, Stag, TaggedOffset};
pub use read::{OpenRead, ReadRequest};
pub use receive::{Event, Fpdu, Placement, Receiver, Step, Target};
pub use terminate::{Terminate, TerminateCode};
pub use transmit::{Outbound, Segment, Segments, Transmitter};
pub use violation::{PlacementContext, PlacementError, Refusal, Violation};
