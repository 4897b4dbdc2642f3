//! What can be wrong with bytes from a peer, and with what a caller wants encoded.
//! Invariant: every error names one protocol status, by exhaustive match.

use dafs_types::Status;

/// Why bytes from a peer are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the header, fixed section, array or string needs.
    #[error("message ends before {what}")]
    Truncated {
        /// What was cut off.
        what: &'static str,
    },
    /// The first four bytes are not the expected magic in the session's order.
    #[error("wrong magic")]
    Magic,
    /// The header's length differs from the length received.
    #[error("header says {declared} bytes, {received} came")]
    Length {
        /// Bytes, by the header.
        declared: u32,
        /// Bytes received.
        received: usize,
    },
    /// Another protocol version.
    #[error("protocol version {0}")]
    Version(u32),
    /// Nobody assigned this procedure number.
    #[error("procedure number {0}")]
    Procedure(u32),
    /// Undefined chain flags.
    #[error("chain flags {0:#06x}")]
    ChainFlags(u16),
    /// A variable field's offset points into its own fixed section, outside the
    /// message, or off the alignment it needs.
    #[error("offset of {what} is bad")]
    Offset {
        /// The variable field.
        what: &'static str,
    },
    /// Padding or a reserved field is not zero.
    #[error("padding is not zero")]
    Padding,
    /// A number that no enumeration or flag word of the draft has.
    #[error("{value} is no {what}")]
    Value {
        /// The enumeration.
        what: &'static str,
        /// The number received.
        value: u32,
    },
    /// A flag of an option nobody defined.
    #[error("option bits {0:#x}")]
    Option(u32),
    /// A name that must be UTF-8 is not.
    #[error("name is not UTF-8")]
    Utf8,
    /// A name or path without bytes or components.
    #[error("name is empty")]
    Empty,
    /// A name or path beyond the limit.
    #[error("name is too long")]
    NameTooLong,
    /// A string, token or array beyond its limit.
    #[error("{what} is too long")]
    TooMany {
        /// What is beyond its limit.
        what: &'static str,
    },
    /// An attribute bit without a known layout: nothing behind it can be found.
    #[error("attribute bits {0:#x}")]
    AttributeBits(u64),
    /// An attribute that this implementation cannot set was sent to be set.
    #[error("attribute bits {0:#x} cannot be set")]
    NotSettable(u64),
    /// The status and the results contradict each other.
    #[error("results do not match the status")]
    Results,
}

impl DecodeError {
    /// The status a responder answers with.
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

/// Why a message cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The caller's buffer is too short.
    #[error("the buffer is too short")]
    Space,
    /// A string, list or payload beyond its limit.
    #[error("{what} is too long")]
    TooMany {
        /// What is beyond its limit.
        what: &'static str,
    },
    /// A value the wire has no form for here.
    #[error("{what} has no form on the wire")]
    Value {
        /// The field.
        what: &'static str,
    },
}

impl EncodeError {
    /// The status a responder answers with when its results do not fit.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Space => Status::TooSmall,
            Self::TooMany { .. } => Status::Resource,
            Self::Value { .. } => Status::ServerFault,
        }
    }
}
