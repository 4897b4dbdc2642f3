//! The limits of sessions.
//!
//! Invariant: a [`SessionConfig`] that passed [`SessionConfig::check`] always leaves one
//! credit for every channel it admits.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_types::{Credentials, limits};

use crate::unkept::ConfigError;
use crate::{BatchLimits, CredentialPolicy, CreditWeight};

/// Most channels that are served; bounds the preallocated slots.
pub(crate) const CHANNELS_LIMIT: u32 = 1 << 16;

/// Limits and policies. `Default` suits one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Most open channels, authenticated or not. Each session has one.
    pub channels_max: u32,
    /// Most channels that have not authenticated yet.
    pub unauthenticated_max: u32,
    /// How many sessions at once are of use to one client: what it is told if it asks, 1 to
    /// [`limits::CLIENT_CHANNELS_MAX`]. A server says at least as many as it has threads that
    /// serve connections. A client may make more: those are bounded as all sessions are.
    pub client_channels: u16,
    /// Longest silence of an authenticated session before it is closed; `None`
    /// leaves the detection of dead peers to the transport.
    pub silence_max: Option<Duration>,
    /// Whether clients may have back-control channels (draft 3.1.2.1).
    pub back_control: bool,
    /// Whether clients may have RDMA-read channels. This server needs none: without one it
    /// reads over the operation channel.
    pub rdma_read: bool,
    /// Whether sessions that ask for it have their results kept (draft 5.2).
    pub response_cache: bool,
    /// How long the results of a session are kept once its connection is lost. Its client's
    /// state is kept for [`dafs_filer::FilerConfig::lease`].
    pub replies_kept: Duration,
    /// Most sessions without a connection whose results are kept; the oldest make room.
    pub lost_sessions_max: u32,
    /// Whether a client's opens outlive its last channel by the lease, so that it can
    /// reconnect and go on. Otherwise they are released with the channel.
    pub keep_state_after_loss: bool,
    /// How clients prove who they are.
    pub authentication: AuthPolicy,
    /// How much clients may ask for at once.
    pub credits: CreditPolicy,
    /// How long messages may be.
    pub messages: MessageLimits,
    /// Limits and policies of registered credentials.
    pub credentials: CredentialPolicy,
    /// Bounds and policies of batches.
    pub batch: BatchLimits,
    /// A defect on purpose, by which a test shows that it would be noticed: the result
    /// before a request that was not carried out is kept as its own.
    #[doc(hidden)]
    pub reuses_replies: bool,
}

/// How clients prove who they are, and how long they may take for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthPolicy {
    /// How long a channel may take from opening to authenticated.
    pub timeout: Duration,
    /// Failed authentications after which a channel is closed.
    pub attempts_max: u32,
    /// Identity of remote clients that authenticate with NONE; `None` refuses them.
    pub anonymous: Option<Credentials>,
    /// Whether user name and password are accepted (authentication type TEXT).
    pub text: bool,
    /// Whether tokens are accepted (authentication type GSS).
    pub gss: bool,
}

/// How many credits there are, and who has how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditPolicy {
    /// Credits of all channels together: the receives the server ever has posted.
    pub budget: u32,
    /// What clients count when credits are short, by their names; others count 1.
    pub weights: BTreeMap<Box<[u8]>, CreditWeight>,
    /// Credits of a new session.
    pub initial: u16,
    /// Most credits of one session, up to [`limits::CREDITS_MAX`].
    pub session_max: u16,
    /// How long a session may keep credits it was told to give back, sending nothing
    /// while another one would have them, before it is dropped; `None` never drops it.
    pub withheld_max: Option<Duration>,
}

/// How long messages may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Request size for clients that ask for the default, in bytes.
    pub request_bytes_default: u32,
    /// Largest request size, in bytes, up to [`limits::REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
    /// Response size for clients that ask for the default, in bytes.
    pub response_bytes_default: u32,
    /// Largest response size, in bytes, up to [`limits::RESPONSE_BYTES_MAX`].
    pub response_bytes_max: u32,
    /// Smallest place of the data in a padded WRITE_INLINE, in bytes from the start
    /// of the message: header and fixed section must fit before it. Also the default.
    pub inline_write_header_bytes_min: u32,
    /// Whether every session uses checksums, asked or not.
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
    /// Checks every limit against the tables and against the others.
    ///
    /// # Errors
    /// The first limit that cannot be kept.
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

/// Bytes of a request header (draft 6.1.2).
const HEADER_BYTES: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(SessionConfig::default().check(), Ok(()));
    }

    #[test]
    fn every_channel_must_find_a_credit() {
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
