//! Errors of decoding and encoding.
//!
//! Invariant: every error corresponds to one protocol status, by an exhaustive match.

use dafs_types::Status;

/// The reason why bytes from a peer are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header, a fixed section, an array or a string needs more bytes than the message has.
    #[error("message ends before {what}")]
    Truncated {
        /// The name of the incomplete part.
        what: &'static str,
    },
    /// The first four bytes are not the expected magic number in the session's byte order.
    #[error("wrong magic")]
    Magic,
    /// The length in the header differs from the number of bytes received.
    #[error("the header declares {declared} bytes, but {received} arrived")]
    Length {
        /// The length in the header, in bytes.
        declared: u32,
        /// The number of bytes received.
        received: usize,
    },
    /// The message has a protocol version that is not supported.
    #[error("unsupported protocol version {0}")]
    Version(u32),
    /// The procedure number is not assigned.
    #[error("unassigned procedure number {0}")]
    Procedure(u32),
    /// The chain flags contain undefined bits.
    #[error("undefined chain flags {0:#06x}")]
    ChainFlags(u16),
    /// The offset of a variable field points into the fixed section that contains the field, or
    /// outside the message, or is not aligned.
    #[error("invalid offset of {what}")]
    Offset {
        /// The name of the variable field.
        what: &'static str,
    },
    /// Padding or a reserved field is not zero.
    #[error("padding is not zero")]
    Padding,
    /// An integer in the message is not defined by the draft for its enumeration or flags.
    #[error("{value} is not a valid {what}")]
    Value {
        /// The name of the enumeration or flag word.
        what: &'static str,
        /// The integer that was received.
        value: u32,
    },
    /// A word of options has a flag that the draft does not define.
    #[error("undefined option bits {0:#x}")]
    Option(u32),
    /// A name is not valid UTF-8.
    #[error("name is not UTF-8")]
    Utf8,
    /// A name is empty, or a path has no components.
    #[error("name is empty")]
    Empty,
    /// A name or path exceeds its limit.
    #[error("name is too long")]
    NameTooLong,
    /// A string, token or array exceeds its limit.
    #[error("{what} is too long")]
    TooMany {
        /// The name of the field that exceeds its limit.
        what: &'static str,
    },
    /// An attribute block includes attributes of unknown layout, so that the attributes after them
    /// cannot be found, or marks attributes as valid that it does not include. The integer is the
    /// bitmap of these attributes.
    #[error("unknown attribute bits {0:#x}")]
    AttributeBits(u64),
    /// A request sets attributes that this implementation cannot set. The integer is their bitmap.
    #[error("attribute bits {0:#x} cannot be set")]
    NotSettable(u64),
    /// The status of a reply and its results contradict each other.
    #[error("results do not match the status")]
    Results,
}

impl DecodeError {
    /// Returns the status for the reply to the faulty request.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Version(_) => Status::IllegalProt,
            Self::Procedure(_) | Self::Option(_) => Status::NotSupp,
            Self::ChainFlags(_) => Status::ChainForm,
            Self::NameTooLong => Status::NameTooLong,
            Self::Truncated { .. }
            | Self::Magic
            | Self::Length { .. }
            | Self::Offset { .. }
            | Self::Padding
            | Self::Value { .. }
            | Self::Utf8
            | Self::Empty
            | Self::TooMany { .. }
            | Self::AttributeBits(_)
            | Self::NotSettable(_)
            | Self::Results => Status::Inval,
        }
    }
}

/// The reason why a message cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The caller's buffer is too short.
    #[error("the buffer is too short")]
    Space,
    /// A string, list or payload exceeds its limit.
    #[error("{what} is too long")]
    TooMany {
        /// The name of the field that exceeds its limit.
        what: &'static str,
    },
    /// A value cannot be expressed in this field.
    #[error("{what} cannot be encoded")]
    Value {
        /// The name of the field.
        what: &'static str,
    },
}

impl EncodeError {
    /// Returns the status for a reply whose results cannot be encoded.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Space => Status::TooSmall,
            Self::TooMany { .. } => Status::Resource,
            Self::Value { .. } => Status::ServerFault,
        }
    }
}
