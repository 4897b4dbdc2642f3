//! Sessions and credentials (draft 6.2).
//!
//! Invariant: the nine negotiated values are in one structure, in the same order in requests and
//! replies.

use dafs_types::{ClientId, CredHandle, SessionId, Verifier};

use crate::error::{DecodeError, EncodeError};
use crate::field::{Codec, FenceText, Field, Flag8, Opaque32, Opaque64, Owner, Word, kinds, truth};
use crate::messages::authentication::{
    AuthRequest, AuthRequestField, AuthResult, AuthResultField, CredentialData, CredentialField,
};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

/// The negotiated parameters of a session. Zero in a request means that the client requests the
/// server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// True to use checksums in all messages after the connect request and its reply. The server
    /// must agree.
    pub checksums: bool,
    /// True to store results in a response cache for the session.
    pub response_cache: bool,
    /// The maximum number of credentials that the client may register.
    pub credentials_max: u32,
    /// The maximum size of a request in bytes.
    pub request_bytes_max: u32,
    /// The maximum size of a reply in bytes.
    pub response_bytes_max: u32,
    /// The number of credits, which is the maximum number of requests in flight.
    pub requests_max: u32,
    /// The offset of the data in a padded inline write, in bytes from the start of the message.
    pub inline_write_header_bytes: u32,
    /// True if the client may bind a back-control channel.
    pub back_control_channel: bool,
    /// True if the client may bind an RDMA-read channel.
    pub rdma_read_channel: bool,
}

kinds! {
    /// The nine session options, each encoded as a u32.
    Options: 36, 4, "nine u32 of session options";
}

impl<'a> Codec<'a, SessionOptions> for Options {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<SessionOptions, DecodeError> {
        let flag = |index: usize| scope.u32(at + 4 * index).and_then(truth);
        Ok(SessionOptions {
            checksums: flag(0)?,
            response_cache: flag(1)?,
            credentials_max: scope.u32(at + 8)?,
            request_bytes_max: scope.u32(at + 12)?,
            response_bytes_max: scope.u32(at + 16)?,
            requests_max: scope.u32(at + 20)?,
            inline_write_header_bytes: scope.u32(at + 24)?,
            back_control_channel: flag(7)?,
            rdma_read_channel: flag(8)?,
        })
    }

    fn write<O: Order>(
        value: &SessionOptions,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        let words = [
            u32::from(value.checksums),
            u32::from(value.response_cache),
            value.credentials_max,
            value.request_bytes_max,
            value.response_bytes_max,
            value.requests_max,
            value.inline_write_header_bytes,
            u32::from(value.back_control_channel),
            u32::from(value.rdma_read_channel),
        ];
        for (index, word) in words.into_iter().enumerate() {
            writer.put_u32(at + 4 * index, word)?;
        }
        Ok(())
    }
}

section! {
    /// The arguments of CLIENT_CONNECT (draft 6.2.1).
    ClientConnect<'a>: 56 {
        /// The parameters that the client requests.
        options: SessionOptions => Options,
        /// The client's fence identity.
        fence_id: &'a str => FenceText,
        /// The client's name, which stays the same across restarts.
        client_string: &'a [u8] => Owner,
        /// A verifier that changes when the client restarts.
        verifier: Verifier => Opaque64,
    }
}

section! {
    /// The results of CLIENT_CONNECT.
    ClientConnectResult: 56 {
        /// The id of the new session.
        session: SessionId => Opaque64,
        /// The server's id for the client.
        client: ClientId => Opaque64,
        /// The parameters that the server grants.
        options: SessionOptions => Options,
    }
}

section! {
    /// The arguments of CLIENT_CONNECT_AUTH (draft 6.2.4).
    ClientConnectAuth<'a>: 72 {
        /// The parameters that the client requests.
        options: SessionOptions => Options,
        /// The client's fence identity.
        fence_id: &'a str => FenceText,
        /// The client's name, which stays the same across restarts.
        client_string: &'a [u8] => Owner,
        /// A verifier that changes when the client restarts.
        verifier: Verifier => Opaque64,
        /// The proof of the client's identity.
        authentication: AuthRequest<'a> => AuthRequestField,
    }
}

section! {
    /// The results of CLIENT_CONNECT_AUTH.
    ClientConnectAuthResult<'a>: 72 {
        /// The id of the new session.
        session: SessionId => Opaque64,
        /// The server's id for the client.
        client: ClientId => Opaque64,
        /// The parameters that the server grants.
        options: SessionOptions => Options,
        /// The server's reply to the client's proof of identity.
        authentication: AuthResult<'a> => AuthResultField,
        /// True if the client may register credentials.
        trusted: bool => Flag8,
    }
}

/// The purpose of a bound channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ChannelUse {
    /// The channel carries requests from server to client.
    BackControl = 1,
    /// The channel carries the server's RDMA reads.
    RdmaRead = 2,
}

kinds! {
    /// The purpose of a channel, as a u16.
    Channel: 2, 2, "u16 enum";
}

impl<'a> Codec<'a, ChannelUse> for Channel {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<ChannelUse, DecodeError> {
        match scope.u16(at)? {
            1 => Ok(ChannelUse::BackControl),
            2 => Ok(ChannelUse::RdmaRead),
            value => Err(DecodeError::Value { what: "channel use", value: u32::from(value) }),
        }
    }
    fn write<O: Order>(
        value: &ChannelUse,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        writer.put_u16(at, *value as u16)
    }
}

section! {
    /// The arguments of CONNECT_BIND (draft 6.2.5).
    ConnectBind<'a>: 40 {
        /// The id of the session to which the channel is bound.
        session: SessionId => Opaque64,
        /// The purpose of the channel.
        channel_use: ChannelUse => Channel,
        /// The maximum size of a request on the channel in bytes; 0 for the default.
        request_bytes_max: u32 => Word,
        /// The maximum size of a reply on the channel in bytes; 0 for the default.
        response_bytes_max: u32 => Word,
        /// The number of credits on the channel; 0 for the default.
        requests_max: u32 => Word,
        /// The proof that the client is the principal of the session.
        authentication: AuthRequest<'a> => AuthRequestField,
    }
}

section! {
    /// The results of CONNECT_BIND.
    ConnectBindResult<'a>: 32 {
        /// The maximum size of a request on the channel in bytes.
        request_bytes_max: u32 => Word,
        /// The maximum size of a reply on the channel in bytes.
        response_bytes_max: u32 => Word,
        /// The number of credits on the channel.
        requests_max: u32 => Word,
        /// The server's reply to the client's proof of identity.
        authentication: AuthResult<'a> => AuthResultField,
        /// True if the client may register credentials.
        trusted: bool => Flag8,
    }
}

section! {
    /// The arguments of REGISTER_CRED (draft 6.2.8).
    RegisterCred<'a>: 16 {
        /// The credentials to register.
        credentials: CredentialData<'a> => CredentialField,
    }
}

section! {
    /// The results of REGISTER_CRED.
    RegisterCredResult: 8 {
        /// The handle by which requests name the credentials.
        handle: CredHandle => Opaque32,
    }
}

section! {
    /// The arguments of RELEASE_CRED (draft 6.2.9).
    ReleaseCred: 8 {
        /// The handle of the credentials to release.
        handle: CredHandle => Opaque32,
    }
}

section! {
    /// The results of CHANNELS, an extension by which a client asks how many concurrent sessions it
    /// can usefully have with this server.
    ChannelsResult: 8 {
        /// The recommended number of sessions, including the current session. Never 0.
        count: u32 => Word,
    }
}
