//! Credentials and verifiers (RFC 5531 section 8, RFC 9289 for TLS).

use crate::rpc::AuthStat;
use crate::rpc::gss::GssCredential;
use crate::xdr::{Inline, Opaque, Reader, Xdr, decode_whole, xdr};

/// The maximum length of the body of a credential or verifier, in bytes.
pub const AUTH_BYTES_MAX: usize = 400;
/// The maximum length of the name of the client's machine, in bytes.
pub const MACHINE_NAME_BYTES_MAX: usize = 255;
/// The maximum number of supplementary groups in an AUTH_SYS credential.
pub const GROUPS_MAX: usize = 16;
/// The verifier with which a server confirms that it can start TLS (RFC 9289 section 4.1).
pub const START_TLS: &[u8; 8] = b"STARTTLS";

/// The numbers of the authentication flavors.
pub mod flavor {
    /// No authentication at all.
    pub const NONE: u32 = 0;
    /// A user id and group ids, without proof.
    pub const SYS: u32 = 1;
    /// A short form of AUTH_SYS, which this server never issues.
    pub const SHORT: u32 = 2;
    /// RPCSEC_GSS: Kerberos and other mechanisms of GSS-API.
    pub const GSS: u32 = 6;
    /// The request to start TLS (RFC 9289).
    pub const TLS: u32 = 7;
    /// Kerberos for authentication only. Only MOUNT and SECINFO use this number.
    pub const KRB5: u32 = 390_003;
    /// Kerberos with checksums of arguments and results. Only MOUNT and SECINFO use this number.
    pub const KRB5I: u32 = 390_004;
    /// Kerberos with encrypted arguments and results. Only MOUNT and SECINFO use this number.
    pub const KRB5P: u32 = 390_005;
}

xdr! {
    /// A credential or verifier whose body is not decoded.
    #[derive(Copy)]
    struct Auth<'b> {
        /// The number of the flavor: see [`flavor`].
        flavor: u32,
        /// The body, whose encoding depends on the flavor.
        body: Opaque<'b, AUTH_BYTES_MAX>,
    }

    /// The body of an AUTH_SYS credential.
    #[derive(Copy)]
    struct AuthSys<'b> {
        /// A number that the client chooses; servers ignore it.
        stamp: u32,
        /// The name of the client's machine.
        machine_name: Opaque<'b, MACHINE_NAME_BYTES_MAX>,
        /// The user id of the caller.
        uid: u32,
        /// The primary group id of the caller.
        gid: u32,
        /// The supplementary group ids of the caller.
        gids: Inline<u32, GROUPS_MAX>,
    }
}

/// A credential of a flavor that the server knows, with its body decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'b> {
    /// The caller does not identify itself.
    None,
    /// The caller states a user id and group ids without proof.
    Sys(AuthSys<'b>),
    /// The caller uses or creates a context of GSS-API.
    Gss(GssCredential<'b>),
    /// The caller asks to start TLS.
    Tls,
}

impl<'b> Auth<'b> {
    /// The credential or verifier of the flavor NONE, which has an empty body.
    pub const NONE: Auth<'static> = Auth { flavor: flavor::NONE, body: Opaque(&[]) };

    /// Decodes the body of the credential.
    ///
    /// # Errors
    /// The status for the reply, if the flavor is unknown or the body is not valid.
    pub fn credential(&self) -> Result<Credential<'b>, AuthStat> {
        match self.flavor {
            flavor::NONE => Ok(Credential::None),
            flavor::SYS => body(self.body).map(Credential::Sys),
            flavor::GSS => body(self.body).map(Credential::Gss),
            flavor::TLS if self.body.is_empty() => Ok(Credential::Tls),
            flavor::SHORT => Err(AuthStat::RejectedCred),
            _ => Err(AuthStat::BadCred),
        }
    }
}

/// Decodes the body of a credential. Fails if bytes follow the body.
fn body<'b, T: Xdr<'b>>(bytes: Opaque<'b, AUTH_BYTES_MAX>) -> Result<T, AuthStat> {
    decode_whole(bytes.0).map_err(|_| AuthStat::BadCred)
}

impl<'b> AuthSys<'b> {
    /// Decodes the body of an AUTH_SYS credential; `None` if the bytes are not valid.
    #[must_use]
    pub fn from_body(bytes: &'b [u8]) -> Option<Self> {
        Self::decode(&mut Reader::new(bytes)).ok()
    }
}
