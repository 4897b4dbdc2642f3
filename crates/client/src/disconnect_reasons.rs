//! The reasons for a lost connection, worded for people.
//!
//! Invariant: every reason states what was found, and what to do about it if that is clear.

use std::sync::Arc;

use dafs_dat::{BreakReason, TlsFailure};

use crate::error::SystemCause;

/// The reason for a lost connection.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// The reason in words.
    pub text: String,
    /// The error of the local system, if it ended the connection.
    pub system: Option<SystemCause>,
}

impl From<String> for Loss {
    fn from(text: String) -> Self {
        Self { text, system: None }
    }
}

impl From<&str> for Loss {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Describes the reason why a connection ended.
pub(crate) fn describe(reason: &BreakReason) -> Loss {
    let text = match reason {
        BreakReason::Peer => "the server closed the connection".into(),
        // The error that contains this text already says that connecting failed.
        BreakReason::Unreachable(why) => why.to_string(),
        BreakReason::Tls(failure) => match tls_advice(failure) {
            Some(advice) => format!("{failure}; {advice}"),
            None => failure.to_string(),
        },
        other => other.to_string(),
    };
    let system = reason.system_error().map(|error| SystemCause::from(Arc::clone(error)));
    Loss { text, system }
}

/// Returns advice about a TLS failure; `None` if no advice is known.
fn tls_advice(failure: &TlsFailure) -> Option<&'static str> {
    match failure {
        TlsFailure::Required => Some(TLS_REQUIRED_ADVICE),
        TlsFailure::NotSpoken => Some("write dafs://, or start the server with --tls-cert"),
        TlsFailure::Certificate(_) => {
            Some("check the server's certificate, --tls-ca and --tls-name")
        }
        TlsFailure::Refused(_) => Some("check --tls-cert and the server's trusted certificates"),
        TlsFailure::Truncated | TlsFailure::Protocol(_) => None,
    }
}

/// Advice in the error of a client that was refused because it did not use TLS.
pub(crate) const TLS_REQUIRED_ADVICE: &str = "write dafs+tls:// or give --tls";
