//! Holders: a holder is a user of this host, or a network address, and shared limits are counted
//! for each holder.
//!
//! Invariants:
//! - A holder is derived from facts that the transport or the kernel reports about a peer, never
//!   from the peer's own claims.
//! - All addresses of one IPv6 /64 network are one holder.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The user or address from which a peer connects, known before the peer authenticates. Each holder
/// gets a fair share of the server's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A user of this host, with the user id that the kernel reports.
    User(u32),
    /// An IPv4 address, or an IPv6 address of which only the first 64 bits count.
    Address(IpAddr),
    /// A peer whose origin is not known.
    Elsewhere,
}

impl Holder {
    /// Returns the holder of this address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        })
    }

    /// Returns true for the superuser (user 0) of this host.
    #[must_use]
    pub const fn is_superuser(&self) -> bool {
        matches!(self, Self::User(0))
    }

    /// Returns true for any user of this host.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::User(_))
    }
}

/// Returns true if a holder with `own` units may take one more, when `taken` of `max` units are in
/// use by all holders.
///
/// A single limit for all peers would help an attacker, because a peer that uses up the limit would
/// lock all others out. So each holder may have at most [`SHARE_TIMES`] times as many units as are
/// still free. A single holder gets at most three quarters of the limit, the next holder three
/// quarters of the remaining units, and so on.
#[must_use]
pub fn fair_share(own: u32, taken: u32, max: u32) -> bool {
    own < max.saturating_sub(taken).saturating_mul(SHARE_TIMES)
}

/// The limit of one holder, as a multiple of the number of units that are free.
pub const SHARE_TIMES: u32 = 3;

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(out, "uid {uid} of this host"),
            Self::Address(address) => write!(out, "{address}"),
            Self::Elsewhere => out.write_str("an unknown address"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_holder_and_a_mapped_address_is_its_own() {
        let at = |text: &str| Holder::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        assert_eq!(at("::1").to_string(), "::1");
    }
}
