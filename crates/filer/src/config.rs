//! The server's limits.
//!
//! Invariant: a [`FilerConfig`] that passed [`FilerConfig::check`] always leaves one
//! credit for every channel it admits.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_types::{Credentials, limits};

use crate::locks::LockConfig;
use crate::{BatchLimits, CreditWeight};
use crate::{CredentialPolicy, DelegationPolicy, FenceLimits};

/// Most opens a table can number; the index part of a state id has 20 bits.
pub(crate) const OPENS_LIMIT: u32 = 1 << 20;
/// Most channels one filer serves; bounds the preallocated slots.
pub(crate) const CHANNELS_LIMIT: u32 = 1 << 16;

/// Limits and policies. `Default` suits one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilerConfig {
    /// Most open channels, authenticated or not. Each session has one.
    pub channels_max: u32,
    /// Most channels that have not authenticated yet.
    pub unauthenticated_max: u32,
    /// How long a channel may take from opening to authenticated.
    pub authentication_timeout: Duration,
    /// Failed authentications after which a channel is closed.
    pub authentication_attempts_max: u32,
    /// Longest silence of an authenticated session before it is closed; `None`
    /// leaves the detection of dead peers to the transport.
    pub silence_max: Option<Duration>,
    /// Lease of a client's state (LEASE_TIME attribute).
    pub lease: Duration,
    /// Whether clients may have back-control channels (draft 3.1.2.1).
    pub back_control: bool,
    /// Whether clients may have RDMA-read channels. This server needs none: without one it
    /// reads over the operation channel.
    pub rdma_read: bool,
    /// Whether sessions that ask for it have their results kept (draft 5.2).
    pub response_cache: bool,
    /// How long the results of a session are kept once its connection is lost. Its client's
    /// state is kept for [`FilerConfig::lease`].
    pub replies_kept: Duration,
    /// Most sessions without a connection whose results are kept; the oldest make room.
    pub lost_sessions_max: u32,
    /// Whether a client's opens outlive its last channel by `lease`, so that it can
    /// reconnect and go on. Otherwise they are released with the channel.
    pub keep_state_after_loss: bool,
    /// Credits of all channels together: the receives the server ever has posted.
    pub credits_budget: u32,
    /// What clients count when credits are short, by their names; others count 1.
    pub credit_weights: BTreeMap<Box<[u8]>, CreditWeight>,
    /// Credits of a new session.
    pub credits_initial: u16,
    /// Most credits of one session, up to [`limits::CREDITS_MAX`].
    pub credits_session_max: u16,
    /// How long a session may keep credits it was told to give back, sending nothing
    /// while another one would have them, before it is dropped; `None` never drops it.
    pub credits_withheld_max: Option<Duration>,
    /// Request size for clients that ask for the default, in octets.
    pub request_bytes_default: u32,
    /// Largest request size, in octets, up to [`limits::REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
    /// Response size for clients that ask for the default, in octets.
    pub response_bytes_default: u32,
    /// Largest response size, in octets, up to [`limits::RESPONSE_BYTES_MAX`].
    pub response_bytes_max: u32,
    /// Smallest place of the data in a padded WRITE_INLINE, in octets from the start
    /// of the message: header and fixed section must fit before it. Also the default.
    pub inline_write_header_bytes_min: u32,
    /// Whether every session uses checksums, asked or not.
    pub checksums_always: bool,
    /// Identity of remote clients that authenticate with NONE; `None` refuses them.
    pub anonymous: Option<Credentials>,
    /// Whether user name and password are accepted (authentication type TEXT).
    pub text_authentication: bool,
    /// Whether tokens are accepted (authentication type GSS).
    pub gss_authentication: bool,
    /// Most opens of all clients together.
    pub opens_max: u32,
    /// Most opens of one client.
    pub opens_per_client_max: u32,
    /// Limits of fencing lists.
    pub fences: FenceLimits,
    /// Limits and policies of registered credentials.
    pub credentials: CredentialPolicy,
    /// Limits and policies of delegations.
    pub delegations: DelegationPolicy,
    /// Limits and policies of byte-range locks.
    pub locks: LockConfig,
    /// Bounds and policies of batches.
    pub batch: BatchLimits,
    /// A defect on purpose, by which a test shows that it would be noticed: the result
    /// before a request that was not carried out is kept as its own.
    #[doc(hidden)]
    pub reuses_replies: bool,
}

impl Default for FilerConfig {
    fn default() -> Self {
        Self {
            channels_max: 1024,
            unauthenticated_max: 64,
            authentication_timeout: Duration::from_secs(10),
            authentication_attempts_max: 3,
            silence_max: None,
            lease: Duration::from_secs(90),
            back_control: true,
            rdma_read: true,
            response_cache: true,
            replies_kept: Duration::from_secs(600),
            lost_sessions_max: 1024,
            keep_state_after_loss: false,
            credits_budget: 16 * 1024,
            credit_weights: BTreeMap::new(),
            credits_initial: 8,
            credits_session_max: 64,
            credits_withheld_max: None,
            request_bytes_default: 8 * 1024,
            request_bytes_max: limits::REQUEST_BYTES_MAX as u32,
            response_bytes_default: 8 * 1024,
            response_bytes_max: limits::RESPONSE_BYTES_MAX as u32,
            inline_write_header_bytes_min: 192,
            checksums_always: false,
            anonymous: Some(Credentials::nobody()),
            text_authentication: true,
            gss_authentication: false,
            opens_max: 64 * 1024,
            opens_per_client_max: 16 * 1024,
            fences: FenceLimits::default(),
            credentials: CredentialPolicy::default(),
            delegations: DelegationPolicy::default(),
            locks: LockConfig::default(),
            batch: BatchLimits::default(),
            reuses_replies: false,
        }
    }
}

/// Why a configuration cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or beyond what the tables can hold.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
    /// There would be channels without a credit.
    #[error("credits_budget is below channels_max")]
    BudgetTooSmall,
    /// A default lies outside its own bounds.
    #[error("{0} lies outside its bounds")]
    DefaultOutsideBounds(&'static str),
}

impl FilerConfig {
    /// Checks every limit against the tables and against the others.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("channels_max", self.channels_max, 1, CHANNELS_LIMIT),
            ("unauthenticated_max", self.unauthenticated_max, 1, CHANNELS_LIMIT),
            ("authentication_attempts_max", self.authentication_attempts_max, 1, 1000),
            ("opens_max", self.opens_max, 1, OPENS_LIMIT),
            ("opens_per_client_max", self.opens_per_client_max, 1, OPENS_LIMIT),
            (
                "credits_session_max",
                u32::from(self.credits_session_max),
                1,
                u32::from(limits::CREDITS_MAX),
            ),
            (
                "request_bytes_max",
                self.request_bytes_max,
                limits::REQUEST_BYTES_MIN as u32,
                limits::REQUEST_BYTES_MAX as u32,
            ),
            (
                "response_bytes_max",
                self.response_bytes_max,
                limits::RESPONSE_BYTES_MIN as u32,
                limits::RESPONSE_BYTES_MAX as u32,
            ),
            (
                "inline_write_header_bytes_min",
                self.inline_write_header_bytes_min,
                HEADER_BYTES,
                limits::REQUEST_BYTES_MIN as u32 / 2,
            ),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(ConfigError::OutOfRange(name));
            }
        }
        if self.credits_budget < self.channels_max {
            return Err(ConfigError::BudgetTooSmall);
        }
        self.fences.check()?;
        self.credentials.check()?;
        self.delegations.check()?;
        self.locks.check()?;
        self.batch.check()?;
        self.check_defaults()
    }

    fn check_defaults(&self) -> Result<(), ConfigError> {
        let credits = 1..=self.credits_session_max;
        let request = limits::REQUEST_BYTES_MIN as u32..=self.request_bytes_max;
        let response = limits::RESPONSE_BYTES_MIN as u32..=self.response_bytes_max;
        if !credits.contains(&self.credits_initial) {
            Err(ConfigError::DefaultOutsideBounds("credits_initial"))
        } else if !request.contains(&self.request_bytes_default) {
            Err(ConfigError::DefaultOutsideBounds("request_bytes_default"))
        } else if !response.contains(&self.response_bytes_default) {
            Err(ConfigError::DefaultOutsideBounds("response_bytes_default"))
        } else {
            Ok(())
        }
    }
}

/// Octets of a request header (draft 6.1.2).
const HEADER_BYTES: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(FilerConfig::default().check(), Ok(()));
    }

    #[test]
    fn every_channel_must_find_a_credit() {
        let config = FilerConfig { credits_budget: 1023, ..FilerConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::BudgetTooSmall));
    }

    #[test]
    fn limits_and_defaults_are_bounded() {
        let config = FilerConfig { opens_max: OPENS_LIMIT + 1, ..FilerConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::OutOfRange("opens_max")));
        let config = FilerConfig { credits_initial: 65, ..FilerConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::DefaultOutsideBounds("credits_initial")));
        let config = FilerConfig { request_bytes_default: 8, ..FilerConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::DefaultOutsideBounds("request_bytes_default")));
    }
}
