//! The unions for authentication (draft 6.1.9, 6.2).
//!
//! Invariant: in a message, the type that selects the arm of a union precedes the arm, and the
//! bytes that the arm does not use are zero.

use dafs_types::AuthType;

use crate::array::{Array, Element, List};
use crate::error::{DecodeError, EncodeError};
use crate::field::{Codec, Enum, Field, Flag8, Principal, Token, kinds, read_enum, wire_enum};
use crate::limits::AUTH_METHODS_MAX;
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

wire_enum! {
    /// The step of a GSS exchange that a request belongs to.
    GssProcedure, "GSS procedure" {
        /// The request contains the first token.
        Init = 1,
        /// The request contains a later token.
        Continue = 2,
    }
}

wire_enum! {
    /// The level of protection that GSS provides.
    GssService, "GSS service" {
        /// Authentication only, no protection of messages.
        Authentication = 1,
        /// Integrity of messages.
        Integrity = 2,
        /// Privacy of messages.
        Privacy = 3,
    }
}

/// The proof of identity that a client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AuthRequest<'a> {
    /// No proof of identity.
    None,
    /// A user name and a password in clear text.
    Text {
        /// The name of the user.
        identity: &'a str,
        /// The user's password.
        password: &'a str,
    },
    /// A token that the client's GSS-API library has created.
    Gss {
        /// The step of the exchange.
        procedure: GssProcedure,
        /// The protection that the client requests.
        service: GssService,
        /// The bytes of the token.
        token: &'a [u8],
    },
    /// The client asks for the server's default credentials.
    Default,
}

/// The server's part of an authentication, sent in the reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AuthResult<'a> {
    /// The reply to [`AuthRequest::None`].
    None,
    /// The reply to [`AuthRequest::Text`].
    Text,
    /// The reply to [`AuthRequest::Gss`].
    Gss {
        /// The major status of GSS-API.
        major: u32,
        /// The minor status of GSS-API.
        minor: u32,
        /// The token for the client.
        token: &'a [u8],
    },
    /// The reply to [`AuthRequest::Default`].
    Default,
}

/// The proof of identity that a server sends to a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerProof<'a> {
    /// No proof of identity.
    None,
    /// A name and a password in clear text.
    Text {
        /// The name of the server.
        identity: &'a str,
        /// The server's password.
        password: &'a str,
    },
    /// No data, because GSS-API has already authenticated both sides.
    Gss,
    /// No data, because the client uses the default credentials.
    Default,
}

/// An authentication method that the server offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AuthMethod<'a> {
    /// No authentication is needed.
    None,
    /// A user name and a password.
    Text,
    /// A mechanism of GSS-API.
    Gss {
        /// The object identifier of the mechanism, without its length byte.
        oid: &'a [u8],
        /// The quality of protection (QOP) that the mechanism offers.
        quality: u32,
        /// The level of protection that the mechanism offers.
        service: GssService,
    },
    /// The server's default credentials are used.
    Default,
}

kinds! {
    /// The union `dafs_auth_req`, with the type that selects its arm before it.
    AuthRequestField: 16, 4, "auth type, union(text | gss)";
    /// The union `dafs_auth_res`, with the type that selects its arm before it.
    AuthResultField: 16, 4, "auth type, union(gss)";
    /// The union in the results of SERVER_AUTH, with the type that selects its arm before it.
    ServerProofField: 12, 4, "auth type, union(text)";
}

impl<'a> Codec<'a, AuthRequest<'a>> for AuthRequestField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<AuthRequest<'a>, DecodeError> {
        match read_enum(scope, at)? {
            AuthType::None => scope.zeros(at + 4, at + 16).map(|()| AuthRequest::None),
            AuthType::Default => scope.zeros(at + 4, at + 16).map(|()| AuthRequest::Default),
            AuthType::Text => {
                scope.zeros(at + 12, at + 16)?;
                let identity = Principal::read(scope, at + 4)?;
                Ok(AuthRequest::Text { identity, password: Principal::read(scope, at + 8)? })
            }
            AuthType::Gss => Ok(AuthRequest::Gss {
                procedure: read_enum(scope, at + 4)?,
                service: read_enum(scope, at + 8)?,
                token: Token::read(scope, at + 12)?,
            }),
        }
    }

    fn write<O: Order>(
        value: &AuthRequest<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        match value {
            AuthRequest::None => Enum::write(&AuthType::None, writer, at),
            AuthRequest::Default => Enum::write(&AuthType::Default, writer, at),
            AuthRequest::Text { identity, password } => {
                Enum::write(&AuthType::Text, writer, at)?;
                Principal::write(identity, writer, at + 4)?;
                Principal::write(password, writer, at + 8)
            }
            AuthRequest::Gss { procedure, service, token } => {
                Enum::write(&AuthType::Gss, writer, at)?;
                Enum::write(procedure, writer, at + 4)?;
                Enum::write(service, writer, at + 8)?;
                Token::write(token, writer, at + 12)
            }
        }
    }
}

impl<'a> Codec<'a, AuthResult<'a>> for AuthResultField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<AuthResult<'a>, DecodeError> {
        let plain = match read_enum(scope, at)? {
            AuthType::None => AuthResult::None,
            AuthType::Text => AuthResult::Text,
            AuthType::Default => AuthResult::Default,
            AuthType::Gss => {
                return Ok(AuthResult::Gss {
                    major: scope.u32(at + 4)?,
                    minor: scope.u32(at + 8)?,
                    token: Token::read(scope, at + 12)?,
                });
            }
        };
        scope.zeros(at + 4, at + 16)?;
        Ok(plain)
    }

    fn write<O: Order>(
        value: &AuthResult<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        match value {
            AuthResult::None => Enum::write(&AuthType::None, writer, at),
            AuthResult::Text => Enum::write(&AuthType::Text, writer, at),
            AuthResult::Default => Enum::write(&AuthType::Default, writer, at),
            AuthResult::Gss { major, minor, token } => {
                Enum::write(&AuthType::Gss, writer, at)?;
                writer.put_u32(at + 4, *major)?;
                writer.put_u32(at + 8, *minor)?;
                Token::write(token, writer, at + 12)
            }
        }
    }
}

impl<'a> Codec<'a, ServerProof<'a>> for ServerProofField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<ServerProof<'a>, DecodeError> {
        let plain = match read_enum(scope, at)? {
            AuthType::None => ServerProof::None,
            AuthType::Gss => ServerProof::Gss,
            AuthType::Default => ServerProof::Default,
            AuthType::Text => {
                let identity = Principal::read(scope, at + 4)?;
                let password = Principal::read(scope, at + 8)?;
                return Ok(ServerProof::Text { identity, password });
            }
        };
        scope.zeros(at + 4, at + 12)?;
        Ok(plain)
    }

    fn write<O: Order>(
        value: &ServerProof<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        match value {
            ServerProof::None => Enum::write(&AuthType::None, writer, at),
            ServerProof::Gss => Enum::write(&AuthType::Gss, writer, at),
            ServerProof::Default => Enum::write(&AuthType::Default, writer, at),
            ServerProof::Text { identity, password } => {
                Enum::write(&AuthType::Text, writer, at)?;
                Principal::write(identity, writer, at + 4)?;
                Principal::write(password, writer, at + 8)
            }
        }
    }
}

impl<'a> Element<'a> for AuthMethod<'a> {
    const SIZE: usize = 16;
    const ALIGN: usize = 4;
    const COUNT_MAX: usize = AUTH_METHODS_MAX;
    const WHAT: &'static str = "authentication methods";

    fn read<O: Order>(array: Scope<'a, O>, at: usize) -> Result<Self, DecodeError> {
        let plain = match read_enum(array, at)? {
            AuthType::None => Self::None,
            AuthType::Text => Self::Text,
            AuthType::Default => Self::Default,
            AuthType::Gss => {
                return Ok(Self::Gss {
                    oid: Token::read(array, at + 4)?,
                    quality: array.u32(at + 8)?,
                    service: read_enum(array, at + 12)?,
                });
            }
        };
        array.zeros(at + 4, at + 16)?;
        Ok(plain)
    }

    fn write<O: Order>(&self, array: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        match self {
            Self::None => Enum::write(&AuthType::None, array, at),
            Self::Text => Enum::write(&AuthType::Text, array, at),
            Self::Default => Enum::write(&AuthType::Default, array, at),
            Self::Gss { oid, quality, service } => {
                Enum::write(&AuthType::Gss, array, at)?;
                Token::write(oid, array, at + 4)?;
                array.put_u32(at + 8, *quality)?;
                Enum::write(service, array, at + 12)
            }
        }
    }
}

section! {
    /// The arguments of CLIENT_AUTH (draft 6.2.2).
    ClientAuth<'a>: 16 {
        /// The proof of the client's identity.
        authentication: AuthRequest<'a> => AuthRequestField,
    }
}

section! {
    /// The results of CLIENT_AUTH.
    ClientAuthResult<'a>: 24 {
        /// The server's reply to the client's proof of identity.
        authentication: AuthResult<'a> => AuthResultField,
        /// True if the client may register credentials.
        trusted: bool => Flag8,
    }
}

section! {
    /// The arguments of SERVER_AUTH (draft 6.2.3).
    ServerAuth: 8 {
        /// The kind of proof that the client requests.
        auth_type: AuthType => Enum,
    }
}

section! {
    /// The results of SERVER_AUTH.
    ServerAuthResult<'a>: 16 {
        /// The proof of the server's identity.
        proof: ServerProof<'a> => ServerProofField,
    }
}

section! {
    /// The results of SECINFO (draft 6.2.7).
    SecurityMethods<'a>: 8 {
        /// The authentication methods that the server supports.
        methods: Array<'a, AuthMethod<'a>> => List,
    }
}

/// The credentials to register (draft 6.2.8).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CredentialData<'a> {
    /// The name of a user.
    Name(&'a str),
    /// POSIX user and group ids.
    Id {
        /// The user id. It is a signed integer in the draft; the bits are the same.
        uid: u32,
        /// The primary group id.
        gid: u32,
        /// The supplementary group ids.
        groups: Array<'a, u32>,
    },
    /// The name of a user in the form of a GSS mechanism.
    Gss(&'a [u8]),
    /// The server's default user.
    Default,
}

kinds! {
    /// The type of the credentials, then the union for this type.
    CredentialField: 16, 4, "type, union(name | id | gss)";
}

impl<'a> Codec<'a, CredentialData<'a>> for CredentialField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<CredentialData<'a>, DecodeError> {
        match scope.u32(at)? {
            0 => {
                scope.zeros(at + 8, at + 16)?;
                Ok(CredentialData::Name(Principal::read(scope, at + 4)?))
            }
            1 => Ok(CredentialData::Id {
                uid: scope.u32(at + 4)?,
                gid: scope.u32(at + 8)?,
                groups: Array::read(scope, at + 12)?,
            }),
            2 => {
                scope.zeros(at + 8, at + 16)?;
                Ok(CredentialData::Gss(Token::read(scope, at + 4)?))
            }
            3 => scope.zeros(at + 4, at + 16).map(|()| CredentialData::Default),
            value => Err(DecodeError::Value { what: "credential type", value }),
        }
    }

    fn write<O: Order>(
        value: &CredentialData<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        match value {
            CredentialData::Name(name) => Principal::write(name, writer, at + 4),
            CredentialData::Id { uid, gid, groups } => {
                writer.put_u32(at, 1)?;
                writer.put_u32(at + 4, *uid)?;
                writer.put_u32(at + 8, *gid)?;
                groups.write(writer, at + 12)
            }
            CredentialData::Gss(name) => {
                writer.put_u32(at, 2)?;
                Token::write(name, writer, at + 4)
            }
            CredentialData::Default => writer.put_u32(at, 3),
        }
    }
}
