//! The errors of decoding and encoding.

/// The reason why a value cannot be decoded or encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The message ends before the end of the value.
    #[error("the message ends before the value does: {needed} bytes needed, {left} left")]
    Short {
        /// The minimum number of bytes that the value still needs.
        needed: usize,
        /// The number of bytes that are left in the message.
        left: usize,
    },
    /// The value is in a part of the message that has not arrived yet.
    #[error("the value is in a part of the message that has not arrived yet")]
    Absent,
    /// A count or length is larger than the declaration allows.
    #[error("a count of {count} is larger than the bound of {bound}")]
    TooMany {
        /// The count in the message, or the count of the items to be encoded.
        count: usize,
        /// The largest allowed count.
        bound: usize,
    },
    /// A number is not a value of its enumeration, or not a discriminant of its union.
    #[error("{value} is not a value of {kind}")]
    Value {
        /// The name of the enumeration or union.
        kind: &'static str,
        /// The number in the message.
        value: u32,
    },
    /// Bytes follow the last value of a message.
    #[error("{0} bytes follow the last value")]
    Trailing(usize),
    /// A message with an external payload is needed as one contiguous slice, which is impossible.
    #[error("the payload of this message is elsewhere")]
    Elsewhere,
    /// The encoded message is longer than the writer's limit.
    #[error("the encoded message is longer than its limit of {0} bytes")]
    Limit(usize),
}
