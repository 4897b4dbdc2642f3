//! What is said of a connection that ended.
//!
//! Invariant: every reason says what was found, and what to do about it where that is plain.

use dafs_dat::{BreakReason, TlsFailure};

/// Why a connection ended, for people.
pub(crate) fn describe(reason: &BreakReason) -> String {
    match reason {
        BreakReason::Peer => "the server closed the connection".into(),
        // That it is about connecting says the error it becomes.
        BreakReason::Unreachable(why) => why.clone(),
        BreakReason::Tls(failure) => match tls_advice(failure) {
            Some(advice) => format!("{failure}; {advice}"),
            None => failure.to_string(),
        },
        other => other.to_string(),
    }
}

/// What to do about it, where that is plain.
fn tls_advice(failure: &TlsFailure) -> Option<&'static str> {
    match failure {
        TlsFailure::Required => Some(TLS_REQUIRED_ADVICE),
        TlsFailure::NotSpoken => Some("write dafs://, or have it serve with --tls-cert"),
        TlsFailure::Certificate(_) => {
            Some("look at the server's certificate, --tls-ca and --tls-name")
        }
        TlsFailure::Refused(_) => Some("look at --tls-cert, and at what the server trusts"),
        TlsFailure::Truncated | TlsFailure::Protocol(_) => None,
    }
}

/// For who was turned away for want of TLS.
pub(crate) const TLS_REQUIRED_ADVICE: &str = "write dafs+tls:// or give --tls";
