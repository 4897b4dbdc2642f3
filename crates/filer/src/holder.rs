//! Whom limits are counted for.
//!
//! Invariant: a holder is what the transport or the kernel says of a peer, never what the peer
//! says of itself; whoever has a network of IPv6 addresses is one holder.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Who has a share of what the server has to give, before anybody has logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A user of this host, by the kernel's word.
    User(u32),
    /// Everybody at an address; of IPv6, everybody in a network of 64 bits.
    Address(IpAddr),
    /// A peer of whom nothing is known.
    Elsewhere,
}

impl Holder {
    /// Whoever is at this address.
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

    /// The superuser of this host.
    #[must_use]
    pub const fn is_superuser(&self) -> bool {
        matches!(self, Self::User(0))
    }

    /// A process of this host, for which the kernel vouches.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::User(_))
    }
}

/// Whether whoever has `own` may have one more, if `taken` of `max` are gone.
///
/// A limit that is one number for all is an attacker's tool: whoever takes it all keeps everybody
/// else out. So each holder may have no more than [`SHARE_TIMES`] times what is still free: one
/// alone gets three quarters, and the next three quarters of what is left.
#[must_use]
pub fn fair_share(own: u32, taken: u32, max: u32) -> bool {
    own < max.saturating_sub(taken).saturating_mul(SHARE_TIMES)
}

/// How many times what is free a holder may have.
pub const SHARE_TIMES: u32 = 3;

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(out, "uid {uid} of this host"),
            Self::Address(address) => write!(out, "{address}"),
            Self::Elsewhere => out.write_str("an unknown place"),
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
