//! The packets that travel between two endpoints.
//!
//! Invariant: a packet refers to memory of its sender only by [`Piece`]s, which keep that memory
//! alive, and to memory of its receiver only by STag and address.

use dafs_memory::Memory;

use crate::{BreakReason, Stag};

/// A local segment that has been looked up in the region table.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) memory: Memory,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// Returns the total length of all pieces in bytes.
pub(crate) fn length_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.length as u64).sum()
}

/// Copies `bytes` to the pieces in order. The pieces must have room for all bytes.
pub(crate) fn scatter(pieces: &[Piece], bytes: &[u8]) {
    let mut rest = bytes;
    for piece in pieces {
        let (here, after) = rest.split_at(piece.length.min(rest.len()));
        piece.memory.write(piece.offset, here);
        rest = after;
    }
    debug_assert!(rest.is_empty(), "the pieces hold the bytes");
}

/// The data that a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// The data was fetched, so that the sender may use its memory again.
    Bytes(Vec<u8>),
    /// The data is still in the sender's memory.
    Lent(Vec<Piece>),
}

impl Payload {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::Lent(pieces) => length_of(pieces),
        }
    }

    /// Fetches data that is still in the sender's memory.
    pub(crate) fn fetch(&mut self) -> &mut Vec<u8> {
        if let Payload::Lent(pieces) = self {
            let mut bytes = Vec::with_capacity(usize::try_from(length_of(pieces)).unwrap_or(0));
            for piece in pieces.iter() {
                bytes.extend_from_slice(&piece.memory.to_vec(piece.offset, piece.length));
            }
            *self = Payload::Bytes(bytes);
        }
        match self {
            Payload::Bytes(bytes) => bytes,
            Payload::Lent(_) => unreachable!("just fetched"),
        }
    }
}

/// The reason that a side gives when it closes.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// The side closed the connection in the regular way.
    Orderly,
    /// The peer's work with this sequence number was refused.
    Refused { sequence: u64, reason: BreakReason },
}

/// The initiator's data in a connect request.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) private_data: Box<[u8]>,
    pub(crate) read_depth: u16,
    pub(crate) node: u32,
}

/// One packet in flight from one side to the other.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Connect(Greeting),
    Accept {
        private_data: Box<[u8]>,
        read_depth: u16,
    },
    Reject {
        private_data: Box<[u8]>,
    },
    Send {
        sequence: u64,
        payload: Payload,
        invalidate: Option<Stag>,
        early: bool,
    },
    Write {
        sequence: u64,
        payload: Payload,
        stag: Stag,
        address: u64,
        early: bool,
    },
    ReadRequest {
        sequence: u64,
        stag: Stag,
        address: u64,
        length: u32,
    },
    ReadResponse {
        sequence: u64,
        payload: Payload,
    },
    Acknowledge {
        sequence: u64,
    },
    Close(Cause),
    /// The connection is lost; the network itself reports this, not the peer.
    Lost(BreakReason),
}

impl Packet {
    /// Returns the data that a fault can affect.
    pub(crate) fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Packet::Send { payload, .. }
            | Packet::Write { payload, .. }
            | Packet::ReadResponse { payload, .. } => Some(payload),
            _ => None,
        }
    }

    pub(crate) fn carries_data(&self) -> bool {
        matches!(self, Packet::Send { .. } | Packet::Write { .. } | Packet::ReadResponse { .. })
    }

    /// Returns true if the packet counts against the limit of work in flight.
    pub(crate) fn is_work(&self) -> bool {
        matches!(self, Packet::Send { .. } | Packet::Write { .. } | Packet::ReadRequest { .. })
    }

    /// Returns the packet's name and length for the trace. Addresses are left out, because they
    /// differ between runs.
    pub(crate) fn label(&self) -> (&'static str, u64) {
        match self {
            Packet::Connect(greeting) => ("connect", greeting.private_data.len() as u64),
            Packet::Accept { private_data, .. } => ("accept", private_data.len() as u64),
            Packet::Reject { private_data } => ("reject", private_data.len() as u64),
            Packet::Send { payload, .. } => ("send", payload.length()),
            Packet::Write { payload, .. } => ("write", payload.length()),
            Packet::ReadRequest { length, .. } => ("read", u64::from(*length)),
            Packet::ReadResponse { payload, .. } => ("response", payload.length()),
            Packet::Acknowledge { sequence } => ("acknowledge", *sequence),
            Packet::Close(_) => ("close", 0),
            Packet::Lost(_) => ("lost", 0),
        }
    }
}
