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
/// The verifier by which a server says that it can start TLS (RFC 9289 section 4.1).
pub const START_TLS: &[u8; 8] = b"STARTTLS";

/// The numbers of the authentication flavors.
pub mod flavor {
    /// No authentication at all.
    pub const NONE: u32 = 0;
    /// Numbers of a user and groups, which the server believes or not.
    pub const SYS: u32 = 1;
    /// A short form of AUTH_SYS, which this server never hands out.
    pub const SHORT: u32 = 2;
    /// Kerberos and other mechanisms of GSS-API.
    pub const GSS: u32 = 6;
    /// The question whether the server can start TLS.
    pub const TLS: u32 = 7;
    /// Kerberos for authentication only, as a pseudo flavor of MOUNT and SECINFO.
    pub const KRB5: u32 = 390_003;
    /// Kerberos with checksums of arguments and results, as a pseudo flavor.
    pub const KRB5I: u32 = 390_004;
    /// Kerberos with encrypted arguments and results, as a pseudo flavor.
    pub const KRB5P: u32 = 390_005;
}

xdr! {
    /// A credential or verifier whose body was not looked at.
    #[derive(Copy)]
    struct Auth<'b> {
        /// The number of the flavor: see [`flavor`].
        flavor: u32,
        /// The body, whose form the flavor decides.
        body: Opaque<'b, AUTH_BYTES_MAX>,
    }

    /// The body of an AUTH_SYS credential.
    #[derive(Copy)]
    struct AuthSys<'b> {
        /// A number that the client chose.
        stamp: u32,
        /// The name of the client's machine.
        machine_name: Opaque<'b, MACHINE_NAME_BYTES_MAX>,
        /// The number of the user.
        uid: u32,
        /// The number of the user's first group.
        gid: u32,
        /// The numbers of the user's other groups.
        gids: Inline<u32, GROUPS_MAX>,
    }
}

/// A credential in a flavor that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'b> {
    /// The caller does not say who it is.
    None,
    /// The caller names a user and groups without a proof.
    Sys(AuthSys<'b>),
    /// The caller has or wants a context of GSS-API.
    Gss(GssCredential<'b>),
    /// The caller asks whether the server can start TLS.
    Tls,
}

impl<'b> Auth<'b> {
    /// The credential or verifier without content.
    pub const NONE: Auth<'static> = Auth { flavor: flavor::NONE, body: Opaque(&[]) };

    /// Returns the credential in the form of its flavor.
    ///
    /// # Errors
    /// The status for the reply, if the flavor is unknown or its body has another form.
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

/// Decodes the body of a credential. Bytes that follow it are a mistake of the client.
fn body<'b, T: Xdr<'b>>(bytes: Opaque<'b, AUTH_BYTES_MAX>) -> Result<T, AuthStat> {
    decode_whole(bytes.0).map_err(|_| AuthStat::BadCred)
}

impl<'b> AuthSys<'b> {
    /// Decodes the body of an AUTH_SYS credential; `None` if it has another form.
    #[must_use]
    pub fn from_body(bytes: &'b [u8]) -> Option<Self> {
        Self::decode(&mut Reader::new(bytes)).ok()
    }
}
