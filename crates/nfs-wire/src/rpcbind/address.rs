//! Universal addresses (RFC 5665): an IP address, and the port as two decimal numbers.

use std::net::{IpAddr, SocketAddr};

/// The maximum length of the universal address of an IP address, in bytes.
pub const UNIVERSAL_BYTES_MAX: usize = 64;

/// Returns the universal address of a socket. For example, "192.0.2.1.8.1" is port 2049 (8 * 256 +
/// 1) of 192.0.2.1.
#[must_use]
pub fn universal_address(socket: &SocketAddr) -> String {
    let [high, low] = socket.port().to_be_bytes();
    format!("{}.{high}.{low}", socket.ip())
}

/// Returns the socket address for a universal address; `None` if the bytes are not valid.
#[must_use]
pub fn parse_universal(bytes: &[u8]) -> Option<SocketAddr> {
    if bytes.len() > UNIVERSAL_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let part = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u8>().ok()).flatten()
    };
    let port = u16::from_be_bytes([part(high)?, part(low)?]);
    Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_come_back() {
        for (text, socket) in [
            ("192.0.2.1.8.1", "192.0.2.1:2049"),
            ("0.0.0.0.0.111", "0.0.0.0:111"),
            ("2001:db8::1.255.255", "[2001:db8::1]:65535"),
            ("::.3.232", "[::]:1000"),
        ] {
            let socket: SocketAddr = socket.parse().unwrap();
            assert_eq!(universal_address(&socket), text);
            assert_eq!(parse_universal(text.as_bytes()), Some(socket));
        }
    }

    #[test]
    fn other_text_is_not_an_address() {
        for text in ["", ".", "1.2", "192.0.2.1", "192.0.2.1.8", "192.0.2.1.8.256", "::1.+1.1"] {
            assert_eq!(parse_universal(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_universal(&[b'1'; UNIVERSAL_BYTES_MAX + 1]), None);
        assert_eq!(parse_universal(&[0xff, b'.', b'1', b'.', b'1']), None);
    }
}
