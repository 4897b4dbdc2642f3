//! The response cache (draft 6.3) and fencing (draft 6.4). Invariant: fetched results
//! are passed on as bytes; only the original procedure can say what they mean.

pub use dafs_types::{FenceAccess, FenceObject, FenceUpdate};
use dafs_types::{FileHandle, SequenceNumber, SessionId, StreamId};

use crate::array::{Array, List};
use crate::error::{DecodeError, EncodeError};
use crate::field::{Enum, Handle, Opaque64, Short, Word, numbered};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::{FieldLayout, Section, section};

section! {
    /// Arguments of CHECK_RESPONSE and FETCH_RESPONSE (draft 6.3.1, 6.3.2).
    CachedResponse: 16 {
        /// The session that broke.
        session: SessionId => Opaque64,
        /// Stream of the request asked for.
        stream: StreamId => Short,
        /// Its number on that stream.
        sequence: SequenceNumber => Short,
        /// Number of its procedure.
        procedure: u32 => Word,
    }
}

section! {
    /// Arguments of DISCARD_RESPONSES (draft 6.3.3).
    DiscardResponses: 8 {
        /// The session whose responses are of no more use.
        session: SessionId => Opaque64,
    }
}

/// Results of FETCH_RESPONSE: those of the original request, as bytes. A client
/// decodes the message as an answer to the original procedure instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchedResults<'a> {
    /// Everything behind the header.
    pub bytes: &'a [u8],
}

impl<'a> Section<'a> for FetchedResults<'a> {
    const SIZE: usize = 0;
    const FIELDS: &'static [FieldLayout] = &[];

    fn read<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError> {
        Ok(Self { bytes: scope.bytes() })
    }

    fn write<O: Order>(&self, writer: &mut Writer<'_, O>) -> Result<(), EncodeError> {
        let at = writer.allocate(self.bytes.len())?;
        writer.put_slice(at, self.bytes)
    }
}

numbered! {
    FenceObject = "fence object";
    FenceAccess = "fence access";
    FenceUpdate = "fence update";
}

section! {
    /// Arguments of GET_FENCING_LIST (draft 6.4.1).
    GetFencingList: 64 {
        /// The file, or a file of the file system.
        file: FileHandle => Handle,
    }
}

section! {
    /// Results of GET_FENCING_LIST.
    FencingList<'a>: 8 {
        /// Who may enter; empty if everybody may.
        fence_ids: Array<'a, &'a str> => List,
    }
}

section! {
    /// Arguments of SET_FENCING_LIST (draft 6.4.2).
    SetFencingList<'a>: 80 {
        /// The file, or a file of the file system.
        file: FileHandle => Handle,
        /// Which of the two.
        object: FenceObject => Enum,
        /// What the list says.
        access: FenceAccess => Enum,
        /// How it is applied.
        update: FenceUpdate => Enum,
        /// The list.
        fence_ids: Array<'a, &'a str> => List,
    }
}
