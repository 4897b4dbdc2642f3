//! The 16 bytes that a client sends when it opens a connection (draft appendices C and D): over
//! iWARP in the private data of the MPA request, over shared memory in the private data of the
//! connection (`docs/spec/transport.md`).
//!
//! Invariant: decoded data has the right magic number, which also shows the byte order, and one of
//! the three channel types.
//!
//! ```text
//! 0 magic "DAFS"   4 client instance   8 client session   12 channel type
//! ```

use crate::error::DecodeError;
use crate::header::REQUEST_MAGIC;
use crate::order::{ByteOrder, with_order};
use crate::scope::Scope;

/// The size of the connect data in bytes.
pub const CONNECT_DATA_BYTES: usize = 16;

/// The default TCP port of servers. The draft registers no port, so this project has chosen one.
pub const DEFAULT_TCP_PORT: u16 = 2050;

/// The purpose of a connection, which becomes a channel of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ChannelType {
    /// The connection carries requests of the client.
    Operation = 0x01,
    /// The connection carries requests of the server.
    BackControl = 0x02,
    /// The connection carries the server's RDMA reads.
    RdmaRead = 0x04,
}

impl ChannelType {
    /// Returns the channel type that has this number in messages. `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0x01 => Some(Self::Operation),
            0x02 => Some(Self::BackControl),
            0x04 => Some(Self::RdmaRead),
            _ => None,
        }
    }
}

/// The data that a client sends when it opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectData {
    /// A number that distinguishes client instances on one host.
    pub client_instance: u32,
    /// A number that is equal for all channels of one session and differs between sessions.
    pub client_session: u32,
    /// The purpose of the connection.
    pub channel: ChannelType,
}

impl ConnectData {
    /// Encodes the data in this byte order.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; CONNECT_DATA_BYTES] {
        let words = [REQUEST_MAGIC, self.client_instance, self.client_session, self.channel as u32];
        let mut bytes = [0; CONNECT_DATA_BYTES];
        for (field, word) in bytes.chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&match order {
                ByteOrder::Little => word.to_le_bytes(),
                ByteOrder::Big => word.to_be_bytes(),
            });
        }
        bytes
    }

    /// Decodes the first 16 bytes of a connection's private data. A transport may have added
    /// padding after them.
    ///
    /// # Errors
    /// If the data is truncated, has another magic number, or has an unknown channel type.
    pub fn decode(private_data: &[u8]) -> Result<(ByteOrder, Self), DecodeError> {
        if private_data.len() < CONNECT_DATA_BYTES {
            return Err(DecodeError::Truncated { what: "connect data" });
        }
        let order = ByteOrder::detect(private_data, REQUEST_MAGIC).ok_or(DecodeError::Magic)?;
        let word = |at| with_order!(order, O => Scope::<O>::new(private_data).u32(at));
        let value = word(12)?;
        let channel = ChannelType::from_number(value)
            .ok_or(DecodeError::Value { what: "channel type", value })?;
        Ok((order, Self { client_instance: word(4)?, client_session: word(8)?, channel }))
    }
}
