//! Sessions and credentials (draft 6.2). Invariant: the nine negotiated words stand in
//! one structure, in one order, in both directions.

use dafs_types::{ClientId, CredHandle, SessionId, Verifier};

use crate::error::{DecodeError, EncodeError};
use crate::field::{Codec, FenceText, Field, Flag8, Opaque32, Opaque64, Owner, Word, kinds, truth};
use crate::messages::authentication::{
    AuthRequest, AuthRequestField, AuthResult, AuthResultField, CredentialData, CredentialField,
};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

/// What is negotiated for a session. Zero in a request asks for the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Checksum every message but the connect exchange. A server must agree.
    pub checksums: bool,
    /// Keep a response cache.
    pub response_cache: bool,
    /// Most credentials of this client.
    pub credentials_max: u32,
    /// Largest request, bytes.
    pub request_bytes_max: u32,
    /// Largest response, bytes.
    pub response_bytes_max: u32,
    /// Credits.
    pub requests_max: u32,
    /// Bytes from the start of a padded inline write to its data.
    pub inline_write_header_bytes: u32,
    /// A back-control channel may be bound.
    pub back_control_channel: bool,
    /// An RDMA-read channel may be bound.
    pub rdma_read_channel: bool,
}

kinds! {
    /// The nine words.
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
    /// Arguments of CLIENT_CONNECT (draft 6.2.1).
    ClientConnect<'a>: 56 {
        /// What the client would like.
        options: SessionOptions => Options,
        /// The client's fence identity.
        fence_id: &'a str => FenceText,
        /// Names the client across restarts.
        client_string: &'a [u8] => Owner,
        /// Changes when the client restarts.
        verifier: Verifier => Opaque64,
    }
}

section! {
    /// Results of CLIENT_CONNECT.
    ClientConnectResult: 56 {
        /// The new session.
        session: SessionId => Opaque64,
        /// The client's short name.
        client: ClientId => Opaque64,
        /// What holds.
        options: SessionOptions => Options,
    }
}

section! {
    /// Arguments of CLIENT_CONNECT_AUTH (draft 6.2.4).
    ClientConnectAuth<'a>: 72 {
        /// What the client would like.
        options: SessionOptions => Options,
        /// The client's fence identity.
        fence_id: &'a str => FenceText,
        /// Names the client across restarts.
        client_string: &'a [u8] => Owner,
        /// Changes when the client restarts.
        verifier: Verifier => Opaque64,
        /// Proof of who the client is.
        authentication: AuthRequest<'a> => AuthRequestField,
    }
}

section! {
    /// Results of CLIENT_CONNECT_AUTH.
    ClientConnectAuthResult<'a>: 72 {
        /// The new session.
        session: SessionId => Opaque64,
        /// The client's short name.
        client: ClientId => Opaque64,
        /// What holds.
        options: SessionOptions => Options,
        /// The server's part of the exchange.
        authentication: AuthResult<'a> => AuthResultField,
        /// Whether the client may register credentials.
        trusted: bool => Flag8,
    }
}

/// What a bound channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ChannelUse {
    /// Requests from server to client.
    BackControl = 1,
    /// The server's RDMA reads.
    RdmaRead = 2,
}

kinds! {
    /// A channel use, u16.
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
    /// Arguments of CONNECT_BIND (draft 6.2.5).
    ConnectBind<'a>: 40 {
        /// The session that gets the channel.
        session: SessionId => Opaque64,
        /// What the channel is for.
        channel_use: ChannelUse => Channel,
        /// Largest request on it, bytes; 0 for the default.
        request_bytes_max: u32 => Word,
        /// Largest response on it, bytes; 0 for the default.
        response_bytes_max: u32 => Word,
        /// Credits on it; 0 for the default.
        requests_max: u32 => Word,
        /// Proof of being the session's principal.
        authentication: AuthRequest<'a> => AuthRequestField,
    }
}

section! {
    /// Results of CONNECT_BIND.
    ConnectBindResult<'a>: 32 {
        /// Largest request, bytes.
        request_bytes_max: u32 => Word,
        /// Largest response, bytes.
        response_bytes_max: u32 => Word,
        /// Credits.
        requests_max: u32 => Word,
        /// The server's part of the exchange.
        authentication: AuthResult<'a> => AuthResultField,
        /// Whether the client may register credentials.
        trusted: bool => Flag8,
    }
}

section! {
    /// Arguments of REGISTER_CRED (draft 6.2.8).
    RegisterCred<'a>: 16 {
        /// The credentials.
        credentials: CredentialData<'a> => CredentialField,
    }
}

section! {
    /// Results of REGISTER_CRED.
    RegisterCredResult: 8 {
        /// Names them from now on.
        handle: CredHandle => Opaque32,
    }
}

section! {
    /// Arguments of RELEASE_CRED (draft 6.2.9).
    ReleaseCred: 8 {
        /// Credentials no longer needed.
        handle: CredHandle => Opaque32,
    }
}

section! {
    /// Results of CHANNELS, an extension: the client asks by how many sessions at once it can make
    /// use of this server.
    ChannelsResult: 8 {
        /// Sessions, the one that asks among them; never 0.
        count: u32 => Word,
    }
}
