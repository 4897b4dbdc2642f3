//! DAFS 1.0 messages (draft-wittle-dafs-00): converts bytes to typed messages and back.
//!
//! Invariant: all functions are pure functions of their arguments, and support both byte orders. No
//! message from a peer can make them panic, allocate without a limit, or read outside the message;
//! all values that they return were checked. Where the draft leaves a gap, `docs/spec/gaps.md`
//! records the decision; `docs/spec/messages.md` shows all fixed sections.
//!
//! A message consists of a 40-byte header, the fixed section of its procedure, and a heap that the
//! fixed section points into. [`decode_request`], [`encode_request`], [`decode_response`] and
//! [`encode_response`] convert whole messages; [`Procedure`] is the table of all procedures.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod limits;
pub mod messages;
pub mod procedure;

mod array;
mod chain;
mod checksum;
mod connect_data;
mod error;
mod field;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod message;
mod order;
mod readdir;
mod scope;
mod section;

pub use array::{Array, DirectBuffer, DirectBuffers, Path, PathNames};
pub use attributes::{AttributeBitmap, FileAttributeBlock, FsAttributeBlock};
pub use checksum::{Checksum, ChecksumPart, DirectChecksum, is_intact, message_checksum, seal};
pub use connect_data::{CONNECT_DATA_BYTES, ChannelType, ConnectData, DEFAULT_TCP_PORT};
pub use error::{DecodeError, EncodeError};
pub use header::{ChainFlags, RequestHeader, ResponseHeader, SpecialConditions};
pub use limits::{HEADER_BYTES, PROTOCOL_VERSION};
pub use message::{
    OPEN_ANSWER_BYTES, Request, RequestError, Response, TRANSFER_ANSWER_BYTES, decode_arguments,
    decode_request, decode_response, decode_results, encode_link_text, encode_request,
    encode_response, parse_link_text,
};
pub use order::ByteOrder;
pub use procedure::{ChainClass, Procedure, ReplayClass, ReplyBound, RightsClass};
pub use readdir::{DirectoryEntries, DirectoryEntry, ReaddirWriter};
pub use section::FieldLayout;
