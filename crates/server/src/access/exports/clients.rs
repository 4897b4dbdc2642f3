//! Names of NFS clients, as exports(5) writes them.

use std::fmt;
use std::net::IpAddr;

/// The clients to which an entry of an exports file applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// One host, by its name.
    Host(String),
    /// One address, or all addresses of a network.
    Network {
        /// The first address of the network.
        address: IpAddr,
        /// The number of leading bits of the address that must match.
        bits: u8,
    },
    /// The hosts whose names match a pattern with `*`, `?` or `[...]`.
    Pattern(String),
    /// The hosts of a netgroup.
    Netgroup(String),
    /// Every client.
    Anyone,
}

impl ClientName {
    /// Parses the name of a client.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text == "*" {
            return Ok(Self::Anyone);
        }
        if text.starts_with("gss/") {
            return Err(format!(
                "{text:?} is no client; name the clients, with sec=krb5 as option"
            ));
        }
        if let Some(group) = text.strip_prefix('@') {
            return match is_host_name(group) {
                true => Ok(Self::Netgroup(group.to_owned())),
                false => Err(format!("{text:?} is no netgroup; write @NAME")),
            };
        }
        if let Some((address, mask)) = text.split_once('/') {
            return network(address, mask).ok_or_else(|| {
                format!(
                    "{text:?} is no network; write 192.0.2.0/24, 192.0.2.0/255.255.255.0 or \
                    2001:db8::/32"
                )
            });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network { address, bits: bits_of(address) });
        }
        if text.contains(['*', '?', '[']) {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._*?[]!^".contains(c);
            return match text.chars().all(is_plain) {
                true => Ok(Self::Pattern(text.to_ascii_lowercase())),
                false => Err(format!("{text:?} is no pattern of host names")),
            };
        }
        match is_host_name(text) {
            true => Ok(Self::Host(text.to_ascii_lowercase())),
            false => Err(format!("{text:?} is neither a host, an address nor a network")),
        }
    }

    /// Returns the rank of this kind of name. If several entries match a client, that with the
    /// lowest rank applies.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Host(_) => 0,
            Self::Network { address, bits } if *bits == bits_of(*address) => 0,
            Self::Network { .. } => 1,
            Self::Pattern(_) => 2,
            Self::Netgroup(_) => 3,
            Self::Anyone => 4,
        }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) | Self::Pattern(name) => out.write_str(name),
            Self::Network { address, bits } if *bits == bits_of(*address) => {
                write!(out, "{address}")
            }
            Self::Network { address, bits } => write!(out, "{address}/{bits}"),
            Self::Netgroup(name) => write!(out, "@{name}"),
            Self::Anyone => out.write_str("*"),
        }
    }
}

/// Returns the number of bits of an address.
pub(crate) fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn is_host_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(is_part)
}

/// Parses a network: an address, and a number of bits or a mask with leading ones.
fn network(address: &str, mask: &str) -> Option<ClientName> {
    let address: IpAddr = address.parse().ok()?;
    let bits = match (address, mask.parse::<IpAddr>()) {
        (IpAddr::V4(_), Ok(IpAddr::V4(mask))) => {
            ones(mask.to_bits().leading_ones(), mask.to_bits().count_ones())?
        }
        (IpAddr::V6(_), Ok(IpAddr::V6(mask))) => {
            ones(mask.to_bits().leading_ones(), mask.to_bits().count_ones())?
        }
        (_, Ok(_)) => return None,
        (_, Err(_)) if mask.bytes().all(|byte| byte.is_ascii_digit()) => mask.parse().ok()?,
        (_, Err(_)) => return None,
    };
    (bits <= bits_of(address)).then_some(ClientName::Network { address, bits })
}

/// Returns the number of ones in a mask. `None` if not all of them are leading ones.
fn ones(leading: u32, all: u32) -> Option<u8> {
    u8::try_from(all).ok().filter(|_| leading == all)
}

/// Returns true if a host name matches a pattern. `*` stands for any characters, `?` for one
/// character, and `[...]` for one of several characters. Case does not matter; the pattern is in
/// lower case.
pub(crate) fn is_like(pattern: &str, name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    matches(pattern.as_bytes(), name.as_bytes())
}

/// Matches with one position to return to: the last `*`. So the time is at most the product of the
/// two lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut index) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while index < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, index));
            at += 1;
        } else if let Some(length) = one(&pattern[at..], name[index]) {
            at += length;
            index += 1;
        } else if let Some((back, from)) = star {
            star = Some((back, from + 1));
            (at, index) = (back + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the length of the first element of a pattern if the element matches a character.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            let end = pattern.iter().skip(2).position(|byte| *byte == b']')? + 2;
            let inside = &pattern[1..end];
            let (is_without, inside) = match inside.strip_prefix(b"!") {
                Some(rest) => (true, rest),
                None => match inside.strip_prefix(b"^") {
                    Some(rest) => (true, rest),
                    None => (false, inside),
                },
            };
            (has(inside, byte) != is_without).then_some(end + 1)
        }
        plain => (plain == byte).then_some(1),
    }
}

/// Returns true if a list of characters and ranges, such as `a-z0`, has a character.
fn has(mut list: &[u8], byte: u8) -> bool {
    while let Some(first) = list.first() {
        match list {
            [low, b'-', high, rest @ ..] => {
                if (low..=high).contains(&&byte) {
                    return true;
                }
                list = rest;
            }
            _ => {
                if *first == byte {
                    return true;
                }
                list = &list[1..];
            }
        }
    }
    false
}

/// The maximum length of a host name in bytes.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ClientName, String> {
        ClientName::parse(text)
    }

    #[test]
    fn every_form_of_a_client_is_understood() {
        let net =
            |address: &str, bits| ClientName::Network { address: address.parse().unwrap(), bits };
        for (text, name, rank) in [
            ("*", ClientName::Anyone, 4),
            ("", ClientName::Anyone, 4),
            ("Master.Example.org", ClientName::Host("master.example.org".to_owned()), 0),
            ("proj*.local.domain", ClientName::Pattern("proj*.local.domain".to_owned()), 2),
            ("pc[1-4].x", ClientName::Pattern("pc[1-4].x".to_owned()), 2),
            ("@trusted", ClientName::Netgroup("trusted".to_owned()), 3),
            ("192.0.2.7", net("192.0.2.7", 32), 0),
            ("192.0.2.0/24", net("192.0.2.0", 24), 1),
            ("192.0.2.0/255.255.254.0", net("192.0.2.0", 23), 1),
            ("0.0.0.0/0", net("0.0.0.0", 0), 1),
            ("2001:db8::1", net("2001:db8::1", 128), 0),
            ("2001:db8::/32", net("2001:db8::", 32), 1),
            ("2001:db8::/ffff:ffff::", net("2001:db8::", 32), 1),
        ] {
            let found = parsed(text).unwrap();
            assert_eq!((&found, found.rank()), (&name, rank), "{text}");
        }
        for text in [
            "192.0.2.0/33",
            "192.0.2.0/255.0.255.0",
            "192.0.2.0/-1",
            "192.0.2.0/",
            "2001:db8::/129",
            "192.0.2.0/ffff::",
            "host/24",
            "@",
            "@a b",
            "a b",
            "gss/krb5",
            "fe80::1%eth0",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "A.Example.ORG.", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "a.example.org.evil.net", false),
            ("proj*.x", "proj.x", true),
            ("pc?.x", "pc1.x", true),
            ("pc?.x", "pc.x", false),
            ("pc[1-3a].x", "pc2.x", true),
            ("pc[1-3a].x", "pca.x", true),
            ("pc[1-3a].x", "pc4.x", false),
            ("pc[!1-3].x", "pc4.x", true),
            ("pc[^1-3].x", "pc3.x", false),
            ("pc[1", "pc[1", false),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxbxx", false),
        ] {
            assert_eq!(is_like(pattern, name), expected, "{pattern} {name}");
        }
        let long = "a".repeat(200);
        assert!(!is_like(&"*a".repeat(100), &(long + "b")), "it ends soon");
    }
}
