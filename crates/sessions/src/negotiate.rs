//! The nine values that client and server negotiate when the client connects (draft 3.1.2.2 and
//! 6.2.1).
//!
//! Invariant: whatever a client asks for, the result is within the server's limits, and the server
//! can provide it.

use dafs_types::{ClientId, SessionId, Status, Verifier, limits};
use dafs_wire::ByteOrder;

use crate::SessionConfig;

/// The only protocol version that is supported. The draft does not say which number version 1.0
/// has.
pub const PROTOCOL_VERSION: u32 = 1;

/// The nine negotiated values, in the order of the draft. In a request, 0 asks for the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Nonzero if messages and direct data carry checksums.
    pub use_checksums: u32,
    /// Nonzero if the server stores replies in a response cache (draft 5.2).
    pub use_response_cache: u32,
    /// The number of credentials that the client may register; 0 in a reply to a client that is not
    /// trusted.
    pub max_credentials: u32,
    /// The maximum size of a request, in bytes.
    pub max_request_size: u32,
    /// The maximum size of a reply, in bytes.
    pub max_response_size: u32,
    /// In a request, the number of requests that the client wants to have outstanding; in a reply,
    /// the initial number of credits.
    pub max_requests: u32,
    /// The offset of the data in a padded WRITE_INLINE, in bytes from the start of the message.
    pub inline_write_header_size: u32,
    /// Nonzero if a back-control channel may be bound.
    pub use_back_control_channel: u32,
    /// Nonzero if an RDMA-read channel may be bound.
    pub use_rdma_read_channel: u32,
}

/// The arguments of CLIENT_CONNECT and of the first half of CLIENT_CONNECT_AUTH.
#[derive(Clone, Copy, Debug)]
pub struct ConnectArguments<'a> {
    /// The version from the message header.
    pub protocol_version: u32,
    /// The values that the client asks for.
    pub wanted: Negotiated,
    /// The name of the session for fencing, at most [`dafs_types::limits::FENCE_ID_BYTES_MAX`]
    /// bytes.
    pub fence_id: &'a str,
    /// The name of the client, which has 1 to [`dafs_types::limits::OWNER_BYTES_MAX`] bytes.
    pub client_id_string: &'a [u8],
    /// The verifier, which changes when the client restarts.
    pub client_verifier: Verifier,
    /// The byte order that the client chose.
    pub order: ByteOrder,
}

/// The results of CLIENT_CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResults {
    /// The id of the new session.
    pub session_id: SessionId,
    /// The id of the client.
    pub client_id: ClientId,
    /// The negotiated values, which bind both client and server.
    pub granted: Negotiated,
}

/// The reason why no session was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The status in the header of the reply.
    pub status: Status,
    /// The protocol version in the header of the reply.
    pub protocol_version: u32,
}

/// Returns the values that the server grants to a client that asks for `wanted`. `credits` is the
/// number of credits that the budget allows.
pub(crate) fn negotiate(config: &SessionConfig, wanted: &Negotiated, credits: u16) -> Negotiated {
    let max_request_size = size(
        wanted.max_request_size,
        config.messages.request_bytes_default,
        limits::REQUEST_BYTES_MIN as u32,
        config.messages.request_bytes_max,
    );
    Negotiated {
        // If the client asks for checksums, the server must use them (draft 6.2.1).
        use_checksums: u32::from(wanted.use_checksums != 0 || config.messages.checksums_always),
        use_response_cache: both(wanted.use_response_cache, config.response_cache),
        max_credentials: config.credentials.agree(wanted.max_credentials),
        max_request_size,
        max_response_size: size(
            wanted.max_response_size,
            config.messages.response_bytes_default,
            limits::RESPONSE_BYTES_MIN as u32,
            config.messages.response_bytes_max,
        ),
        max_requests: u32::from(credits),
        inline_write_header_size: size(
            wanted.inline_write_header_size,
            config.messages.inline_write_header_bytes_min,
            config.messages.inline_write_header_bytes_min,
            max_request_size / 2,
        ),
        use_back_control_channel: both(wanted.use_back_control_channel, config.back_control),
        use_rdma_read_channel: both(wanted.use_rdma_read_channel, config.rdma_read),
    }
}

/// Returns 1 if the client asks for a feature and the server provides it, otherwise 0.
fn both(wanted: u32, is_served: bool) -> u32 {
    u32::from(wanted != 0 && is_served)
}

/// Returns two numbers of credits: the number that a new session should start with, if the budget
/// allows it, and the number that the client would like to have later (0 if it has not asked).
pub(crate) fn first_credits(config: &SessionConfig, wanted: &Negotiated) -> (u16, u16) {
    let desired = u16::try_from(wanted.max_requests).unwrap_or(u16::MAX);
    let first = if desired == 0 { config.credits.initial } else { desired };
    (first.min(config.credits.initial), desired)
}

/// Returns a message size within its limits. It is a multiple of 8, as the draft requires (6.1.1).
fn size(wanted: u32, default: u32, least: u32, most: u32) -> u32 {
    let size = if wanted == 0 { default } else { wanted.clamp(least, most) };
    let below = size & !7;
    if below < least { below + 8 } else { below }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_requests_the_defaults() {
        let config = SessionConfig::default();
        let granted = negotiate(&config, &Negotiated::default(), 8);
        assert_eq!(
            granted,
            Negotiated {
                max_request_size: 8192,
                max_response_size: 8192,
                max_requests: 8,
                inline_write_header_size: 192,
                ..Negotiated::default()
            }
        );
    }

    #[test]
    fn values_are_clamped_and_unsupported_features_are_declined() {
        let wanted = Negotiated {
            use_checksums: 7,
            use_response_cache: 1,
            max_credentials: 10,
            max_request_size: u32::MAX,
            max_response_size: 1,
            max_requests: u32::MAX,
            inline_write_header_size: u32::MAX,
            use_back_control_channel: 1,
            use_rdma_read_channel: 1,
        };
        let config = SessionConfig::default();
        assert_eq!(first_credits(&config, &wanted), (8, u16::MAX));
        assert_eq!(
            negotiate(&config, &wanted, 5),
            Negotiated {
                use_checksums: 1,
                use_response_cache: 1,
                max_request_size: 65_536,
                max_response_size: 512,
                max_requests: 5,
                inline_write_header_size: 32_768,
                use_back_control_channel: 1,
                use_rdma_read_channel: 1,
                ..Negotiated::default()
            }
        );
    }

    #[test]
    fn sizes_are_multiples_of_eight() {
        assert_eq!(size(1027, 0, 1024, 4096), 1024);
        assert_eq!(size(5, 0, 100, 4096), 104);
        assert_eq!(first_credits(&SessionConfig::default(), &wants(0)), (8, 0));
        assert_eq!(first_credits(&SessionConfig::default(), &wants(3)), (3, 3));
        assert_eq!(first_credits(&SessionConfig::default(), &wants(300)), (8, 300));
    }

    fn wants(max_requests: u32) -> Negotiated {
        Negotiated { max_requests, ..Negotiated::default() }
    }
}
