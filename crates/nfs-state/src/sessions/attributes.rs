//! The attributes of channels, and their negotiation by CREATE_SESSION (RFC 8881 section 18.36.3).
//!
//! Invariant: the server never raises a value that a client has asked for.

use crate::Nfs4Error;
use crate::limits::{
    BACK_MESSAGE_BYTES_MIN, BACK_OPERATIONS_MIN, BACK_SLOTS_MAX, KEPT_REPLY_BYTES_MAX,
    MESSAGE_BYTES_MAX, OPERATIONS_MAX, REPLY_BYTES_MIN, REQUEST_BYTES_MIN, SLOTS_MAX,
};

/// The attributes of one channel of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelAttributes {
    /// The number of padding bytes before the data of a message.
    pub header_padding: u32,
    /// The maximum size of a request in bytes.
    pub request_bytes_max: u32,
    /// The maximum size of a reply in bytes.
    pub reply_bytes_max: u32,
    /// The maximum size in bytes of a reply that is kept for a repeat.
    pub kept_bytes_max: u32,
    /// The maximum number of operations of a request.
    pub operations_max: u32,
    /// The maximum number of requests in progress. This is the number of slots.
    pub requests_max: u32,
}

/// Decides on the attributes of a fore channel. The number of slots may be reduced further if there
/// is not enough memory for kept replies.
///
/// # Errors
/// TOOSMALL if no message would fit; INVAL if the client asks for no slots or no operations.
pub(crate) fn negotiate_fore(ask: &ChannelAttributes) -> Result<ChannelAttributes, Nfs4Error> {
    if ask.request_bytes_max < REQUEST_BYTES_MIN || ask.reply_bytes_max < REPLY_BYTES_MIN {
        return Err(Nfs4Error::TooSmall);
    }
    if ask.requests_max == 0 || ask.operations_max == 0 {
        return Err(Nfs4Error::Inval);
    }
    let reply_bytes_max = ask.reply_bytes_max.min(MESSAGE_BYTES_MAX);
    Ok(ChannelAttributes {
        header_padding: 0,
        request_bytes_max: ask.request_bytes_max.min(MESSAGE_BYTES_MAX),
        reply_bytes_max,
        kept_bytes_max: ask.kept_bytes_max.min(KEPT_REPLY_BYTES_MAX).min(reply_bytes_max),
        operations_max: ask.operations_max.min(OPERATIONS_MAX),
        requests_max: ask.requests_max.min(SLOTS_MAX),
    })
}

/// Decides on the attributes of a back channel.
///
/// # Errors
/// TOOSMALL if no callback would fit; INVAL if the client offers no slots.
pub(crate) fn negotiate_back(ask: &ChannelAttributes) -> Result<ChannelAttributes, Nfs4Error> {
    let bytes = ask.request_bytes_max.min(ask.reply_bytes_max);
    if bytes < BACK_MESSAGE_BYTES_MIN || ask.operations_max < BACK_OPERATIONS_MIN {
        return Err(Nfs4Error::TooSmall);
    }
    if ask.requests_max == 0 {
        return Err(Nfs4Error::Inval);
    }
    Ok(ChannelAttributes {
        header_padding: 0,
        request_bytes_max: ask.request_bytes_max.min(MESSAGE_BYTES_MAX),
        reply_bytes_max: ask.reply_bytes_max.min(MESSAGE_BYTES_MAX),
        kept_bytes_max: 0,
        operations_max: ask.operations_max.min(OPERATIONS_MAX),
        requests_max: ask.requests_max.min(BACK_SLOTS_MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: u32) -> ChannelAttributes {
        ChannelAttributes {
            header_padding: value,
            request_bytes_max: value,
            reply_bytes_max: value,
            kept_bytes_max: value,
            operations_max: value,
            requests_max: value,
        }
    }

    fn values(of: ChannelAttributes) -> [u32; 6] {
        let sizes = [of.header_padding, of.request_bytes_max, of.reply_bytes_max];
        let counts = [of.kept_bytes_max, of.operations_max, of.requests_max];
        [sizes, counts].concat().try_into().unwrap()
    }

    #[test]
    fn no_value_is_raised() {
        for value in [256, 400, 4096, 65_536, u32::MAX] {
            let (fore, back) = (negotiate_fore(&all(value)), negotiate_back(&all(value)));
            for granted in [fore.unwrap(), back.unwrap()] {
                assert!(values(granted).iter().all(|granted| *granted <= value), "{granted:?}");
            }
        }
    }

    #[test]
    fn a_channel_that_could_not_carry_a_message_is_refused() {
        let usual = all(1000);
        let too_small = Err(Nfs4Error::TooSmall);
        assert_eq!(negotiate_fore(&ChannelAttributes { reply_bytes_max: 0, ..usual }), too_small);
        assert_eq!(
            negotiate_fore(&ChannelAttributes { request_bytes_max: 20, ..usual }),
            too_small
        );
        assert_eq!(
            negotiate_back(&ChannelAttributes { request_bytes_max: 10, ..usual }),
            too_small
        );
        assert_eq!(negotiate_back(&ChannelAttributes { operations_max: 1, ..usual }), too_small);
        let none = ChannelAttributes { requests_max: 0, ..usual };
        assert_eq!(negotiate_fore(&none), Err(Nfs4Error::Inval));
        assert_eq!(negotiate_back(&none), Err(Nfs4Error::Inval));
        let tiny = ChannelAttributes { kept_bytes_max: 10, ..usual };
        assert_eq!(negotiate_fore(&tiny).unwrap().kept_bytes_max, 10);
    }
}
