//! The limits of sessions.
//!
//! Invariant: with a [`SessionConfig`] that passed [`SessionConfig::check`] there is always one
//! credit for every channel that is admitted.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_types::{Credentials, limits};

use crate::config_error::ConfigError;
use crate::{BatchLimits, CredentialPolicy, CreditWeight};

/// The maximum number of channels that can be served, which limits the number of preallocated
/// slots.
pub(crate) const CHANNELS_LIMIT: u32 = 1 << 16;

/// Limits and policies of [`crate::Sessions`]. The defaults suit a server on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The maximum number of open channels, authenticated or not. Each session has at least one.
    pub channels_max: u32,
    /// The maximum number of channels that have not authenticated yet.
    pub unauthenticated_max: u32,
    /// The number of concurrent sessions that the server recommends to a client that asks, 1 to
    /// [`limits::CLIENT_CHANNELS_MAX`]. It should be at least the number of the server's reactors.
    /// A client may create more sessions, which are subject only to the limits for all sessions.
    pub client_channels: u16,
    /// The longest time for which an authenticated session may send no request before it is closed.
    /// `None` leaves the detection of dead peers to the transport.
    pub silence_max: Option<Duration>,
    /// True if clients may bind back-control channels (draft 3.1.2.1).
    pub back_control: bool,
    /// True if clients may bind RDMA-read channels. The server does not need such channels, because
    /// without them it reads over the operation channel.
    pub rdma_read: bool,
    /// True if replies are stored for sessions that ask for a response cache (draft 5.2).
    pub response_cache: bool,
    /// How long the stored replies of a session are kept after its connection is lost. The other
    /// state of its client is kept for [`dafs_filer::FilerConfig::lease`].
    pub replies_kept: Duration,
    /// The maximum number of sessions without a connection whose replies are kept. If there are
    /// more, the oldest sessions are dropped.
    pub lost_sessions_max: u32,
    /// True if a client's opens are kept for the time of the lease after its last channel was lost,
    /// so that the client can reconnect and continue. If false, the opens are released when that
    /// channel is lost.
    pub keep_state_after_loss: bool,
    /// The policy of authentication: accepted proofs and time limits.
    pub authentication: AuthPolicy,
    /// The policy of credits: their number and distribution.
    pub credits: CreditPolicy,
    /// The limits on message sizes.
    pub messages: MessageLimits,
    /// Limits and policies of registered credentials.
    pub credentials: CredentialPolicy,
    /// Limits and policies of batches.
    pub batch: BatchLimits,
    /// A defect that a test injects: a request that was not executed gets the stored reply of the
    /// previous request.
    #[doc(hidden)]
    pub reuses_replies: bool,
}

/// The policy of authentication: accepted proofs and time limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthPolicy {
    /// The time that a channel has to authenticate after it was opened.
    pub timeout: Duration,
    /// The number of failed authentications after which a channel is closed.
    pub attempts_max: u32,
    /// The identity of remote clients that authenticate with AUTH_NONE. `None` refuses such
    /// clients.
    pub anonymous: Option<Credentials>,
    /// True if user name and password are accepted (authentication type TEXT).
    pub text: bool,
    /// True if tokens are accepted (authentication type GSS).
    pub gss: bool,
}

/// The policy of credits: their number and distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditPolicy {
    /// The number of credits of all channels in total. The server never has more receive buffers
    /// than this posted for requests.
    pub budget: u32,
    /// The weights of clients for the distribution of scarce credits, by client name. All other
    /// clients have weight 1.
    pub weights: BTreeMap<Box<[u8]>, CreditWeight>,
    /// The number of credits of a new session.
    pub initial: u16,
    /// The maximum number of credits of one session, up to [`limits::CREDITS_MAX`].
    pub session_max: u16,
    /// How long a session may keep credits that it was told to give back, if it sends no requests
    /// while another session needs the credits. After that time the session is dropped. `None`
    /// means never.
    pub withheld_max: Option<Duration>,
}

/// The limits on message sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// The maximum size of a request, in bytes, for clients that ask for the default.
    pub request_bytes_default: u32,
    /// The largest request size that can be negotiated, in bytes, up to
    /// [`limits::REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
    /// The maximum size of a reply, in bytes, for clients that ask for the default.
    pub response_bytes_default: u32,
    /// The largest reply size that can be negotiated, in bytes, up to
    /// [`limits::RESPONSE_BYTES_MAX`].
    pub response_bytes_max: u32,
    /// The smallest offset of the data in a padded WRITE_INLINE, in bytes from the start of the
    /// message. It leaves room for the header and fixed section before the data, and is also the
    /// default offset.
    pub inline_write_header_bytes_min: u32,
    /// True if every session uses checksums, even if its client does not ask for them.
    pub checksums_always: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            channels_max: 1024,
            unauthenticated_max: 64,
            client_channels: 1,
            silence_max: None,
            back_control: true,
            rdma_read: true,
            response_cache: true,
            replies_kept: Duration::from_secs(600),
            lost_sessions_max: 1024,
            keep_state_after_loss: false,
            authentication: AuthPolicy::default(),
            credits: CreditPolicy::default(),
            messages: MessageLimits::default(),
            credentials: CredentialPolicy::default(),
            batch: BatchLimits::default(),
            reuses_replies: false,
        }
    }
}

impl Default for AuthPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            attempts_max: 3,
            anonymous: Some(Credentials::nobody()),
            text: true,
            gss: false,
        }
    }
}

impl Default for CreditPolicy {
    fn default() -> Self {
        Self {
            budget: 16 * 1024,
            weights: BTreeMap::new(),
            initial: 8,
            session_max: 64,
            withheld_max: None,
        }
    }
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            request_bytes_default: 8 * 1024,
            request_bytes_max: limits::REQUEST_BYTES_MAX as u32,
            response_bytes_default: 8 * 1024,
            response_bytes_max: limits::RESPONSE_BYTES_MAX as u32,
            inline_write_header_bytes_min: 192,
            checksums_always: false,
        }
    }
}

impl SessionConfig {
    /// Checks every limit against the capacity of the tables and against the other limits.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first invalid limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (credits, messages) = (&self.credits, &self.messages);
        let (credits_max, attempts_max) =
            (u32::from(credits.session_max), self.authentication.attempts_max);
        let requests = limits::REQUEST_BYTES_MIN as u32..=limits::REQUEST_BYTES_MAX as u32;
        let responses = limits::RESPONSE_BYTES_MIN as u32..=limits::RESPONSE_BYTES_MAX as u32;
        let client_channels = 1..=u32::from(limits::CLIENT_CHANNELS_MAX);
        let headers = HEADER_BYTES..=limits::REQUEST_BYTES_MIN as u32 / 2;
        let ranges = [
            ("channels_max", self.channels_max, 1..=CHANNELS_LIMIT),
            ("unauthenticated_max", self.unauthenticated_max, 1..=CHANNELS_LIMIT),
            ("client_channels", self.client_channels.into(), client_channels),
            ("authentication.attempts_max", attempts_max, 1..=1000),
            ("credits.session_max", credits_max, 1..=u32::from(limits::CREDITS_MAX)),
            ("messages.request_bytes_max", messages.request_bytes_max, requests),
            ("messages.response_bytes_max", messages.response_bytes_max, responses),
            (
                "messages.inline_write_header_bytes_min",
                messages.inline_write_header_bytes_min,
                headers,
            ),
        ];
        for (name, value, range) in ranges {
            if !range.contains(&value) {
                return Err(ConfigError::OutOfRange(name));
            }
        }
        if credits.budget < self.channels_max {
            return Err(ConfigError::BudgetTooSmall);
        }
        self.credentials.check()?;
        self.batch.check()?;
        self.check_defaults()
    }

    fn check_defaults(&self) -> Result<(), ConfigError> {
        let messages = &self.messages;
        let credits = 1..=self.credits.session_max;
        let request = limits::REQUEST_BYTES_MIN as u32..=messages.request_bytes_max;
        let response = limits::RESPONSE_BYTES_MIN as u32..=messages.response_bytes_max;
        if !credits.contains(&self.credits.initial) {
            Err(ConfigError::DefaultOutsideBounds("credits.initial"))
        } else if !request.contains(&messages.request_bytes_default) {
            Err(ConfigError::DefaultOutsideBounds("messages.request_bytes_default"))
        } else if !response.contains(&messages.response_bytes_default) {
            Err(ConfigError::DefaultOutsideBounds("messages.response_bytes_default"))
        } else {
            Ok(())
        }
    }
}

/// The number of bytes of a request header (draft 6.1.2).
const HEADER_BYTES: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(SessionConfig::default().check(), Ok(()));
    }

    #[test]
    fn every_channel_must_have_a_credit() {
        let credits = CreditPolicy { budget: 1023, ..CreditPolicy::default() };
        let config = SessionConfig { credits, ..SessionConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::BudgetTooSmall));
    }

    #[test]
    fn limits_and_defaults_are_bounded() {
        let credits = CreditPolicy { initial: 65, ..CreditPolicy::default() };
        let config = SessionConfig { credits, ..SessionConfig::default() };
        let outside = ConfigError::DefaultOutsideBounds("credits.initial");
        assert_eq!(config.check(), Err(outside));
        let messages = MessageLimits { request_bytes_default: 8, ..MessageLimits::default() };
        let config = SessionConfig { messages, ..SessionConfig::default() };
        let outside = ConfigError::DefaultOutsideBounds("messages.request_bytes_default");
        assert_eq!(config.check(), Err(outside));
    }
}
