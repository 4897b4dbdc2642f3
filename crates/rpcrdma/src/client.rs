//! The client's end of a connection, for tests and benchmarks: builds the headers of calls, and
//! checks those of replies.
//!
//! Invariants: the caller registers the memory that its chunks name, and this end never names other
//! memory. A reply is accepted only if its lists are those of the call, with lengths that are not
//! larger. At most as many calls are in flight as the server has granted.

use std::collections::BTreeMap;

use crate::credits::{Granted, Received};
use crate::header::{
    Body, Chunk, Chunks, Direction, Handle, Message, ReadSegment, Segment, TransportError, Xid,
    decode, direction, encode, encoded_bytes,
};
use crate::limits::ClientConfig;
use crate::private_data::PrivateData;

/// The client's end of a connection.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    send_bytes: usize,
    credits: Received,
    calls: BTreeMap<Xid, Chunks>,
    callbacks: Granted,
}

/// A call to send.
#[derive(Clone, Debug)]
pub struct Call<'c> {
    /// The identifier of the call.
    pub xid: Xid,
    /// The RPC message, without the data in the Read chunks and without its padding.
    pub rpc: &'c [u8],
    /// The chunks of the call. The Read list has no entry with position zero.
    pub chunks: Chunks,
    /// Registered memory that contains `rpc`, for the case that it does not fit in a Send.
    pub long: &'c [Segment],
}

/// The reason why a call cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallFault {
    /// The server has granted no credit for one more call.
    #[error("there is no credit for one more call")]
    Credits,
    /// A call with this identifier is in flight.
    #[error("a call with this identifier is in flight")]
    InFlight,
    /// The call does not fit in a Send, and no memory was registered for it.
    #[error("the call is too long")]
    Long,
    /// The bytes are not a call, or not a reply, with this identifier.
    #[error("the bytes are not an RPC message with this identifier")]
    NotRpc,
}

/// What a message from the server means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The reply to a call.
    Reply(Reply),
    /// A call has failed. The server may still have executed it.
    Failed {
        /// The identifier of the call.
        xid: Xid,
        /// The reason of the failure.
        failure: Failure,
    },
    /// The server has sent a callback, which awaits [`Client::reply_back`].
    Callback {
        /// The identifier of the callback.
        xid: Xid,
        /// The RPC message.
        rpc: Vec<u8>,
    },
    /// The message is to be ignored.
    Ignored,
    /// This message must be sent to the server, because its callback is not valid.
    Answer(Vec<u8>),
    /// The connection must end: the server has sent more callbacks than it had credits for.
    Overrun,
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The identifier of the call.
    pub xid: Xid,
    /// The RPC message; `None` if it is in the Reply chunk.
    pub rpc: Option<Vec<u8>>,
    /// The number of bytes in the Reply chunk.
    pub reply_bytes: u64,
    /// The number of bytes in each Write chunk.
    pub written: Vec<u64>,
}

/// The reason why a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The server has reported an error of the transport.
    Transport(TransportError),
    /// The lists of the reply are not those of the call, or name more bytes than it offered.
    Lists,
    /// The RPC message is not a reply to the call.
    Rpc,
    /// The server has invalidated memory that does not belong to the call.
    Invalidated,
}

impl Client {
    /// Begins a connection. `peer` is what the server has said about itself.
    #[must_use]
    pub fn new(config: ClientConfig, peer: PrivateData) -> Self {
        let config = config.bounded();
        Self {
            config,
            send_bytes: config.send_bytes.min(peer.receive_bytes) as usize,
            credits: Received::new(config.credits),
            calls: BTreeMap::new(),
            callbacks: Granted::new(config.callbacks),
        }
    }

    /// Returns what this end says about itself, for the connection request.
    #[must_use]
    pub const fn private_data(&self) -> PrivateData {
        PrivateData {
            remote_invalidation: self.config.remote_invalidation,
            send_bytes: self.config.send_bytes,
            receive_bytes: self.config.receive_bytes,
        }
    }

    /// Returns the number of bytes for which a Send has room, after a header with these chunks.
    #[must_use]
    pub fn room(&self, chunks: &Chunks) -> usize {
        self.send_bytes.saturating_sub(encoded_bytes(chunks))
    }

    /// Begins a call, and returns the message to send.
    ///
    /// # Errors
    /// If the call cannot be sent.
    pub fn call(&mut self, call: Call<'_>) -> Result<Vec<u8>, CallFault> {
        let Call { xid, rpc, mut chunks, long } = call;
        if direction(rpc, xid) != Ok(Direction::Call) {
            return Err(CallFault::NotRpc);
        }
        if self.calls.contains_key(&xid) {
            return Err(CallFault::InFlight);
        }
        if !self.credits.allows(self.calls.len()) {
            return Err(CallFault::Credits);
        }
        let is_long = rpc.len() > self.room(&chunks);
        if is_long {
            let length: usize = long.iter().map(|segment| segment.length as usize).sum();
            if length != rpc.len() {
                return Err(CallFault::Long);
            }
            let first = long.iter().map(|segment| ReadSegment { position: 0, segment: *segment });
            chunks.reads.splice(0..0, first);
            if encoded_bytes(&chunks) > self.send_bytes {
                return Err(CallFault::Long);
            }
        }
        self.calls.insert(xid, chunks.clone());
        let body = if is_long { Body::NoMessage { chunks } } else { Body::Message { chunks, rpc } };
        Ok(encoded(xid, self.credits.wanted(), body))
    }

    /// Takes a message from the server. `invalidated` is the memory whose registration the Send has
    /// invalidated.
    pub fn receive(&mut self, message: &[u8], invalidated: Option<Handle>) -> Event {
        let Ok(Message { xid, credits, body }) = decode(message) else { return Event::Ignored };
        match body {
            Body::Done => Event::Ignored,
            Body::Error(error) => match self.calls.remove(&xid) {
                Some(_) => {
                    self.credits.take(credits);
                    Event::Failed { xid, failure: Failure::Transport(error) }
                }
                None => Event::Ignored,
            },
            Body::Message { chunks, rpc } => match direction(rpc, xid) {
                Ok(Direction::Call) => self.begin_callback(xid, credits, &chunks, rpc),
                found => {
                    let is_reply = found == Ok(Direction::Reply);
                    self.end(xid, credits, &chunks, Some((rpc, is_reply)), invalidated)
                }
            },
            Body::NoMessage { chunks } => self.end(xid, credits, &chunks, None, invalidated),
        }
    }

    /// Replies to a callback, and returns the message to send.
    ///
    /// # Errors
    /// If the bytes are not a reply with this identifier, or too long for a Send.
    pub fn reply_back(&mut self, xid: Xid, rpc: &[u8]) -> Result<Vec<u8>, CallFault> {
        if direction(rpc, xid) != Ok(Direction::Reply) {
            return Err(CallFault::NotRpc);
        }
        let chunks = Chunks::default();
        if rpc.len() > self.room(&chunks) {
            return Err(CallFault::Long);
        }
        let credits = self.callbacks.end();
        Ok(encoded(xid, credits, Body::Message { chunks, rpc }))
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn calls_in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Returns true if there is a credit for one more call.
    #[must_use]
    pub fn has_credit(&self) -> bool {
        self.credits.allows(self.calls.len())
    }

    fn begin_callback(&mut self, xid: Xid, asked: u32, chunks: &Chunks, rpc: &[u8]) -> Event {
        if !self.callbacks.begin(asked) {
            return Event::Overrun;
        }
        if chunks.is_empty() {
            return Event::Callback { xid, rpc: rpc.to_vec() };
        }
        let credits = self.callbacks.end();
        Event::Answer(encoded(xid, credits, Body::Error(TransportError::Chunk)))
    }

    /// Ends a call. `rpc` is the RPC message in the Send, and whether it is a reply to the call.
    fn end(
        &mut self,
        xid: Xid,
        granted: u32,
        found: &Chunks,
        rpc: Option<(&[u8], bool)>,
        invalidated: Option<Handle>,
    ) -> Event {
        let Some(offered) = self.calls.remove(&xid) else { return Event::Ignored };
        self.credits.take(granted);
        let failed = |failure| Event::Failed { xid, failure };
        let is_own = |handle| offered.segments().any(|segment| segment.handle == handle);
        if invalidated.is_some_and(|handle| !is_own(handle)) {
            return failed(Failure::Invalidated);
        }
        if rpc.is_some_and(|(_, is_reply)| !is_reply) {
            return failed(Failure::Rpc);
        }
        let Some((written, reply_bytes)) = lengths(&offered, found) else {
            return failed(Failure::Lists);
        };
        // A message is in the Send or in the Reply chunk, and never in both.
        if rpc.is_some() != (reply_bytes == 0) {
            return failed(Failure::Lists);
        }
        let rpc = rpc.map(|(rpc, _)| rpc.to_vec());
        Event::Reply(Reply { xid, rpc, reply_bytes, written })
    }
}

/// Returns the numbers of bytes in the Write chunks and in the Reply chunk; `None` if the lists of
/// the reply do not match those of the call.
fn lengths(offered: &Chunks, found: &Chunks) -> Option<(Vec<u64>, u64)> {
    if !found.reads.is_empty() || found.writes.len() != offered.writes.len() {
        return None;
    }
    let pairs = offered.writes.iter().zip(&found.writes);
    let written = pairs.map(|(offered, found)| length(offered, found)).collect::<Option<_>>()?;
    let reply_bytes = match (&offered.reply, &found.reply) {
        (_, None) => 0,
        (None, Some(_)) => return None,
        (Some(offered), Some(found)) => length(offered, found)?,
    };
    Some((written, reply_bytes))
}

/// Returns the number of bytes in a chunk; `None` if it is not the chunk that was offered, or was
/// not filled from its start.
fn length(offered: &Chunk, found: &Chunk) -> Option<u64> {
    let length = found.length();
    (length <= offered.length() && *found == offered.filled(length)).then_some(length)
}

fn encoded(xid: Xid, credits: u32, body: Body<'_>) -> Vec<u8> {
    let mut message = Vec::new();
    encode(&Message { xid, credits, body }, &mut message);
    message
}
