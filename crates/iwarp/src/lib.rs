//! iWARP for user space: MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP
//! (RFC 5040) as state machines that touch no socket, no clock and no payload.
//!
//! Invariant: no machine here owns, copies or keeps payload. A [`Transmitter`]
//! hands out header and trailer bytes and says which range of the message lies
//! between them; a [`Receiver`] says where the bytes that follow belong and
//! what their arrival means. The driver moves the data, straight between socket
//! and registered memory, in whatever batches it likes.
//!
//! The life of a stream:
//!
//! 1. [`connect::Initiator`] or [`connect::Responder`] exchange the MPA request
//!    and reply frames and end in an [`Established`].
//! 2. `Transmitter::new(&established, mulpdu)` and `Receiver::new(&established)`
//!    are two independent halves. They share nothing, so they may live under
//!    different locks. What one half must know of the other goes by value:
//!    [`Receiver::open_read`] gives the [`OpenRead`] that
//!    [`Transmitter::read_request`] wants; [`Receiver::on_read_answered`] is told
//!    when a read response has been framed; [`Transmitter::on_peer_spoke`] lifts
//!    the responder's duty of silence; [`Receiver::take_terminate`] gives the
//!    [`Terminate`] that [`Transmitter::terminate`] frames.
//! 3. Every error of the peer is a [`Violation`]; each maps to exactly one
//!    [`TerminateCode`]. Every wrong call of the local side is a [`Refusal`].
//!
//! Markers are neither asked for nor sent. Everything multi-byte is big-endian,
//! except the CRC, whose least significant byte goes first (RFC 5044 4.4).
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
