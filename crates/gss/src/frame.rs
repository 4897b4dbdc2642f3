//! The frame of a context token (RFC 2743 3.1, RFC 4121 4.1): tag, length, mechanism, kind.
//!
//! Invariant: only a complete Kerberos V token of an expected kind passes. So the C library never
//! has to guess the mechanism of a token. A peer cannot invoke SPNEGO or IAKERB, which would make
//! this side contact any host that the peer chooses.

use crate::error::Reason;
use crate::{KERBEROS_OID, TOKEN_BYTES_MAX};

/// The contents of a context token (RFC 4121 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client's request: KRB_AP_REQ.
    Request,
    /// The server's reply: KRB_AP_REP.
    Reply,
    /// The server's refusal: KRB_ERROR.
    Refusal,
}

impl Kind {
    fn bytes(self) -> [u8; 2] {
        match self {
            Self::Request => [1, 0],
            Self::Reply => [2, 0],
            Self::Refusal => [3, 0],
        }
    }
}

/// Checks that the library may process the token.
pub(crate) fn check(token: &[u8], due: &[Kind]) -> Result<(), Reason> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Reason::TokenTooLong);
    }
    let rest = token.strip_prefix(&[0x60]).ok_or(Reason::TokenDefective)?;
    let (length, rest) = length(rest).ok_or(Reason::TokenDefective)?;
    if length != rest.len() {
        return Err(Reason::TokenDefective);
    }
    let (mechanism, rest) = mechanism(rest).ok_or(Reason::TokenDefective)?;
    if mechanism != KERBEROS_OID {
        return Err(Reason::MechanismUnknown);
    }
    let is_due = due.iter().any(|kind| rest.starts_with(&kind.bytes()));
    if is_due { Ok(()) } else { Err(Reason::TokenDefective) }
}

/// Parses a DER length. Returns the length and the bytes after it.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let count = match first {
        0..=0x7f => return Some((usize::from(first), rest)),
        0x81..=0x83 => usize::from(first & 0x7f),
        _ => return None,
    };
    let (bytes, rest) = rest.split_at_checked(count)?;
    Some((bytes.iter().fold(0, |value, &byte| value << 8 | usize::from(byte)), rest))
}

/// Parses an object identifier. Returns the identifier and the bytes after it.
fn mechanism(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&count, rest) = bytes.strip_prefix(&[0x06])?.split_first()?;
    // No identifier has 128 bytes or more.
    if count < 0x80 { rest.split_at_checked(usize::from(count)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a token of a mechanism with `body` bytes after the kind.
    fn framed(oid: &[u8], kind: [u8; 2], body: usize) -> Vec<u8> {
        let mut inner = vec![0x06, oid.len() as u8];
        inner.extend_from_slice(oid);
        inner.extend_from_slice(&kind);
        inner.resize(inner.len() + body, 0x55);
        let mut token = vec![0x60];
        match inner.len() {
            short @ 0..0x80 => token.push(short as u8),
            long @ 0x80..0x1_0000 => token.extend([0x82, (long >> 8) as u8, long as u8]),
            longer => token.extend([0x83, (longer >> 16) as u8, (longer >> 8) as u8, longer as u8]),
        }
        token.extend(inner);
        token
    }

    #[test]
    fn every_form_of_length_is_read() {
        for body in [0, 40, 500, TOKEN_BYTES_MAX - 100] {
            assert_eq!(check(&framed(KERBEROS_OID, [1, 0], body), &[Kind::Request]), Ok(()));
        }
    }

    #[test]
    fn a_kind_that_is_not_due_is_refused() {
        let reply = framed(KERBEROS_OID, [2, 0], 40);
        assert_eq!(check(&reply, &[Kind::Request]), Err(Reason::TokenDefective));
        assert_eq!(check(&reply, &[Kind::Reply, Kind::Refusal]), Ok(()));
    }

    #[test]
    fn other_mechanisms_are_refused() {
        // Tokens of SPNEGO, IAKERB, and NTLM without a frame.
        let spnego = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x02];
        let iakerb = [0x2b, 0x06, 0x01, 0x05, 0x02, 0x05];
        for oid in [&spnego, &iakerb] {
            let token = framed(oid, [1, 0], 60);
            assert_eq!(check(&token, &[Kind::Request]), Err(Reason::MechanismUnknown));
        }
        assert_eq!(check(b"NTLMSSP\0....", &[Kind::Request]), Err(Reason::TokenDefective));
    }

    #[test]
    fn what_is_cut_or_padded_is_refused() {
        let whole = framed(KERBEROS_OID, [1, 0], 300);
        for length in 0..whole.len() {
            assert!(check(&whole[..length], &[Kind::Request]).is_err(), "of {length} bytes");
        }
        let mut padded = whole;
        padded.push(0);
        assert_eq!(check(&padded, &[Kind::Request]), Err(Reason::TokenDefective));
    }

    #[test]
    fn one_byte_too_many_is_too_long() {
        for body in TOKEN_BYTES_MAX - 40..TOKEN_BYTES_MAX {
            let token = framed(KERBEROS_OID, [1, 0], body);
            let fits = token.len() <= TOKEN_BYTES_MAX;
            let verdict = if fits { Ok(()) } else { Err(Reason::TokenTooLong) };
            assert_eq!(check(&token, &[Kind::Request]), verdict, "{} bytes", token.len());
        }
    }
}
