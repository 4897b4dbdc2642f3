//! Errors of decoding and encoding.
//!
//! Invariant: every error corresponds to one protocol status, by an exhaustive match.

use dafs_types::Status;

/// The reason why bytes from a peer are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header, fixed section, array or string needs more bytes than there are.
    #[error("message ends before {what}")]
    Truncated {
        /// The part that is incomplete.
        what: &'static str,
    },
    /// The first four bytes are not the expected magic in the session's byte order.
    #[error("wrong magic")]
    Magic,
    /// The length in the header differs from the length received.
    #[error("the header declares {declared} bytes, but {received} arrived")]
    Length {
        /// The length in the header, in bytes.
        declared: u32,
        /// The number of bytes received.
        received: usize,
    },
    /// The message has another protocol version.
    #[error("unsupported protocol version {0}")]
    Version(u32),
    /// The procedure number is not assigned.
    #[error("unassigned procedure number {0}")]
    Procedure(u32),
    /// The chain flags contain undefined bits.
    #[error("undefined chain flags {0:#06x}")]
    ChainFlags(u16),
    /// The offset of a variable field points into its own fixed section or outside the message, or
    /// is not aligned.
    #[error("invalid offset of {what}")]
    Offset {
        /// The name of the variable field.
        what: &'static str,
    },
    /// Padding or a reserved field is not zero.
    #[error("padding is not zero")]
    Padding,
    /// A number is not defined by the draft's enumeration or flags.
    #[error("{value} is not a valid {what}")]
    Value {
        /// The enumeration or flag word.
        what: &'static str,
        /// The number that was received.
        value: u32,
    },
    /// An option word has an undefined flag.
    #[error("undefined option bits {0:#x}")]
    Option(u32),
    /// A name is not valid UTF-8.
    #[error("name is not UTF-8")]
    Utf8,
    /// A name has no bytes, or a path has no components.
    #[error("name is empty")]
    Empty,
    /// A name or path exceeds its limit.
    #[error("name is too long")]
    NameTooLong,
    /// A string, token or array exceeds its limit.
    #[error("{what} is too long")]
    TooMany {
        /// The field that exceeds its limit.
        what: &'static str,
    },
    /// An attribute has no known layout, so the attributes after it cannot be found.
    #[error("unknown attribute bits {0:#x}")]
    AttributeBits(u64),
    /// A request sets an attribute that this implementation cannot set.
    #[error("attribute bits {0:#x} cannot be set")]
    NotSettable(u64),
    /// The status and the results contradict each other.
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
        /// The field that exceeds its limit.
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
