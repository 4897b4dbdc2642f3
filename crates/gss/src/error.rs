//! Errors, each with one of a few reasons that a server or a person can act on.
//!
//! Invariant: the reason is determined by error numbers, never by text. The text is for people.

use std::fmt;

use crate::name::NameError;

/// The reason why a step, or the acquisition of a credential, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The token or message exceeds the length limit.
    TokenTooLong,
    /// The token is incomplete, or it is not of the expected kind.
    TokenDefective,
    /// The token belongs to a mechanism other than Kerberos V.
    MechanismUnknown,
    /// The token was received before.
    Replayed,
    /// Protected messages were repeated, lost or reordered.
    OutOfOrder,
    /// The ticket, credential or context has expired.
    Expired,
    /// The ticket is not valid yet.
    NotYetValid,
    /// The clocks of the two sides differ too much.
    ClockSkew,
    /// The ticket is for a service other than this one.
    WrongService,
    /// The keytab has no key of the version with which the ticket was encrypted.
    KeyMissing,
    /// Decryption with the available key fails: the data is forged or altered, or the keytab
    /// contains another key.
    WrongKey,
    /// A protected message was altered or made by a third party.
    Altered,
    /// The key distribution center does not accept the client's key or password.
    ClientRefused,
    /// The key distribution center does not know the client.
    ClientUnknown,
    /// The key distribution center does not know the service.
    ServiceUnknown,
    /// The key distribution center knows the client and the service, but its policy refuses the
    /// request.
    PolicyRefused,
    /// There is no ticket, or no keytab with a key of the service, or no permission to read it.
    CredentialMissing,
    /// No key distribution center replies, or none is configured.
    CentreUnreachable,
    /// The replay cache cannot be used.
    ReplayCacheUnusable,
    /// The two sides are not bound to the same connection.
    BindingsDiffer,
    /// The client did not ask the server to authenticate.
    NotMutual,
    /// The server did not prove its identity.
    ServerUnproven,
    /// The client is anonymous.
    Anonymous,
    /// The name is malformed or not in UTF-8.
    NameMalformed,
    /// The context, or the message, lacks the requested protection.
    NotProtected,
    /// Another reason, which the text of the error describes.
    Other,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::TokenTooLong => "it exceeds the length limit",
            Self::TokenDefective => "it is incomplete or not the expected token",
            Self::MechanismUnknown => "it belongs to another mechanism than Kerberos V",
            Self::Replayed => "it was received before (a replay)",
            Self::OutOfOrder => "messages were lost or reordered",
            Self::Expired => "the ticket has expired (get a new one with kinit)",
            Self::NotYetValid => "the ticket is not valid yet",
            Self::ClockSkew => "the two clocks differ too much (set them by NTP)",
            Self::WrongService => "the ticket is for another service",
            Self::KeyMissing => {
                "the keytab has no key of that version (export it again with kadmin ktadd; \
                 clients need new tickets)"
            }
            Self::WrongKey => {
                "it cannot be decrypted: it is forged, or the keytab has another key (export the \
                 key again with kadmin ktadd)"
            }
            Self::Altered => "it was altered or forged",
            Self::ClientRefused => "the password or key is wrong",
            Self::ClientUnknown => "the realm does not know the client",
            Self::ServiceUnknown => {
                "the realm does not know the service (add it with kadmin addprinc -randkey)"
            }
            Self::PolicyRefused => "the realm does not allow it",
            Self::CredentialMissing => {
                "there is no usable credential (a server needs a readable keytab with its key, \
                 a client a ticket from kinit)"
            }
            Self::CentreUnreachable => {
                "no key distribution center of the realm replies (see krb5.conf)"
            }
            Self::ReplayCacheUnusable => "the replay cache cannot be used",
            Self::BindingsDiffer => "it was made for another connection",
            Self::NotMutual => "the client does not ask for mutual authentication",
            Self::ServerUnproven => "the server did not prove its identity",
            Self::Anonymous => "the client is anonymous",
            Self::NameMalformed => "the name is malformed",
            Self::NotProtected => "the context or the message lacks this protection",
            Self::Other => "the Kerberos library failed",
        })
    }
}

/// An error, with the text of the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct GssError {
    action: &'static str,
    reason: Reason,
    major: u32,
    minor: u32,
    details: String,
    reply: Option<Vec<u8>>,
}

impl GssError {
    /// Creates an error that the library has reported.
    pub(crate) fn reported(action: &'static str, major: u32, minor: u32, details: String) -> Self {
        Self { action, reason: classify(major, minor), major, minor, details, reply: None }
    }

    /// Creates an error found without the library. Its major status is the one that the library
    /// would have returned.
    pub(crate) fn found(action: &'static str, reason: Reason) -> Self {
        let major = routine_of(reason) << ROUTINE_SHIFT;
        Self { action, reason, major, minor: 0, details: String::new(), reply: None }
    }

    /// Creates the error of an invalid name.
    pub(crate) fn misnamed(action: &'static str, error: &NameError) -> Self {
        Self { details: error.to_string(), ..Self::found(action, Reason::NameMalformed) }
    }

    pub(crate) fn with_reason(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Removes the details if they say nothing useful.
    pub(crate) fn without_details(self) -> Self {
        Self { details: String::new(), ..self }
    }

    pub(crate) fn with_reply(self, reply: Vec<u8>) -> Self {
        Self { reply: (!reply.is_empty()).then_some(reply), ..self }
    }

    /// Returns the reason, for programs.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the major status of RFC 2744, never 0.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Returns the mechanism's own status; 0 if it has none.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// Returns the token that reports the error to the peer, if any. The token contains no secret.
    #[must_use]
    pub fn reply(&self) -> Option<&[u8]> {
        self.reply.as_deref()
    }
}

impl fmt::Display for GssError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.action, self.reason)?;
        if self.details.is_empty() { Ok(()) } else { write!(out, " [{}]", self.details) }
    }
}

/// The position of the routine error in a major status.
const ROUTINE_SHIFT: u32 = 16;
/// The supplementary bit of a major status for a message that was received before
/// (GSS_S_DUPLICATE_TOKEN).
const DUPLICATE: u32 = 1 << 1;
const OLD: u32 = 1 << 2;
const UNORDERED: u32 = 1 << 3;
const GAP: u32 = 1 << 4;
/// All supplementary bits for repeated or misplaced messages.
pub(crate) const DISORDER: u32 = DUPLICATE | OLD | UNORDERED | GAP;

/// True if a major status contains a calling or routine error.
pub(crate) fn is_failure(major: u32) -> bool {
    major >> ROUTINE_SHIFT != 0
}

/// The first code of the table `krb5` (`krb5_err.et`).
const KERBEROS_CODES: u32 = 0x96c7_3a00;
/// The first code of the table `asn1`.
const ASN1_CODES: u32 = 0x6eda_3600;
/// The number of codes in the table `asn1`.
const ASN1_COUNT: u32 = 16;
/// `KRB5_NO_LOCALNAME` and `KRB5_LNAME_NOTRANS`: no local user corresponds to the principal.
const NO_LOCAL_NAME: [u32; 2] = [KERBEROS_CODES + 157, KERBEROS_CODES + 176];

/// True if the error is that a principal has no local user.
pub(crate) fn is_without_local_name(error: &GssError) -> bool {
    const UNAVAILABLE: u32 = 16;
    NO_LOCAL_NAME.contains(&error.minor) || error.major >> ROUTINE_SHIFT == UNAVAILABLE
}

/// Determines the reason by the mechanism's code or, if that is unknown, by the major status.
fn classify(major: u32, minor: u32) -> Reason {
    by_minor(minor).unwrap_or_else(|| by_major(major))
}

fn by_minor(minor: u32) -> Option<Reason> {
    if minor.wrapping_sub(ASN1_CODES) < ASN1_COUNT {
        return Some(Reason::TokenDefective);
    }
    Some(match minor.wrapping_sub(KERBEROS_CODES) {
        1 | 2 | 12 | 13 | 18..=23 => Reason::PolicyRefused,
        6 => Reason::ClientUnknown,
        7 | 155 => Reason::ServiceUnknown,
        11 | 33 | 145 => Reason::NotYetValid,
        24 | 210 => Reason::ClientRefused,
        31 | 41 => Reason::WrongKey,
        32 => Reason::Expired,
        34 | 163 => Reason::Replayed,
        35 | 36 | 144 => Reason::WrongService,
        37 | 148 => Reason::ClockSkew,
        39 | 40 => Reason::TokenDefective,
        44 | 45 => Reason::KeyMissing,
        46 | 158 => Reason::ServerUnproven,
        141 | 181 | 184 | 193..=195 => Reason::CredentialMissing,
        154 | 156 => Reason::CentreUnreachable,
        159..=162 | 164..=172 | 211 | 215 => Reason::ReplayCacheUnusable,
        _ => return None,
    })
}

fn by_major(major: u32) -> Reason {
    match major >> ROUTINE_SHIFT & 0xff {
        1 => Reason::MechanismUnknown,
        2 | 3 => Reason::NameMalformed,
        4 => Reason::BindingsDiffer,
        6 => Reason::Altered,
        7 => Reason::CredentialMissing,
        9 => Reason::TokenDefective,
        11 | 12 => Reason::Expired,
        0 if major & DUPLICATE != 0 => Reason::Replayed,
        0 if major & DISORDER != 0 => Reason::OutOfOrder,
        _ => Reason::Other,
    }
}

/// Returns the routine error (RFC 2744 3.9.1) that corresponds to a reason.
fn routine_of(reason: Reason) -> u32 {
    const BAD_MECHANISM: u32 = 1;
    const BAD_NAME: u32 = 2;
    const BAD_BINDINGS: u32 = 4;
    const BAD_SIGNATURE: u32 = 6;
    const NO_CREDENTIAL: u32 = 7;
    const DEFECTIVE_TOKEN: u32 = 9;
    const EXPIRED: u32 = 11;
    const FAILURE: u32 = 13;
    const UNAUTHORIZED: u32 = 15;
    const UNAVAILABLE: u32 = 16;
    match reason {
        Reason::TokenTooLong | Reason::TokenDefective => DEFECTIVE_TOKEN,
        Reason::MechanismUnknown => BAD_MECHANISM,
        Reason::NameMalformed => BAD_NAME,
        Reason::BindingsDiffer => BAD_BINDINGS,
        Reason::WrongKey | Reason::Altered => BAD_SIGNATURE,
        Reason::CredentialMissing | Reason::KeyMissing => NO_CREDENTIAL,
        Reason::Expired => EXPIRED,
        Reason::NotMutual | Reason::Anonymous | Reason::ServerUnproven => UNAUTHORIZED,
        Reason::NotProtected => UNAVAILABLE,
        Reason::Replayed
        | Reason::OutOfOrder
        | Reason::NotYetValid
        | Reason::ClockSkew
        | Reason::WrongService
        | Reason::ClientRefused
        | Reason::ClientUnknown
        | Reason::ServiceUnknown
        | Reason::PolicyRefused
        | Reason::CentreUnreachable
        | Reason::ReplayCacheUnusable
        | Reason::Other => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mechanisms_code_goes_before_the_major_status() {
        let failure = 13 << ROUTINE_SHIFT;
        assert_eq!(classify(failure, KERBEROS_CODES + 34), Reason::Replayed);
        assert_eq!(classify(7 << ROUTINE_SHIFT, KERBEROS_CODES + 24), Reason::ClientRefused);
        assert_eq!(classify(7 << ROUTINE_SHIFT, 2), Reason::CredentialMissing);
        assert_eq!(classify(failure, ASN1_CODES + 5), Reason::TokenDefective);
        assert_eq!(classify(failure, 0), Reason::Other);
        assert_eq!(classify(DUPLICATE, 0), Reason::Replayed);
        assert_eq!(classify(GAP, 0), Reason::OutOfOrder);
    }

    #[test]
    fn what_we_find_ourselves_is_a_failure_on_the_wire() {
        for reason in [Reason::TokenTooLong, Reason::NotMutual, Reason::NotProtected] {
            let error = GssError::found("cannot do it", reason);
            assert!(is_failure(error.major()) && error.minor() == 0);
            assert_eq!(error.to_string(), format!("cannot do it: {reason}"));
        }
    }
}
