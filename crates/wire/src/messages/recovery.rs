//! The response cache (draft 6.3) and fencing (draft 6.4).
//!
//! Invariant: fetched results are passed on as bytes, because decoding them requires the procedure
//! of the original request.

pub use dafs_types::{FenceAccess, FenceObject, FenceUpdate};
use dafs_types::{FileHandle, SequenceNumber, SessionId, StreamId};

use crate::array::{Array, List};
use crate::error::{DecodeError, EncodeError};
use crate::field::{Enum, Handle, Opaque64, Short, Word, numbered};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::{FieldLayout, Section, section};

section! {
    /// The arguments of CHECK_RESPONSE and FETCH_RESPONSE (draft 6.3.1, 6.3.2).
    CachedResponse: 16 {
        /// The id of the session whose connection was lost.
        session: SessionId => Opaque64,
        /// The stream of the original request.
        stream: StreamId => Short,
        /// The sequence number of the original request.
        sequence: SequenceNumber => Short,
        /// The procedure number of the original request.
        procedure: u32 => Word,
    }
}

section! {
    /// The arguments of DISCARD_RESPONSES (draft 6.3.3).
    DiscardResponses: 8 {
        /// The id of the session whose results are no longer needed.
        session: SessionId => Opaque64,
    }
}

/// The results of FETCH_RESPONSE: the results of the original request, as bytes. A client does not
/// use this type: it decodes the message as a reply to the original procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchedResults<'a> {
    /// All bytes of the message after the header.
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
    /// The arguments of GET_FENCING_LIST (draft 6.4.1).
    GetFencingList: 64 {
        /// The handle of the file, or of any file in the file system.
        file: FileHandle => Handle,
    }
}

section! {
    /// The results of GET_FENCING_LIST.
    FencingList<'a>: 8 {
        /// The fence identities that have access. If the list is empty, there is no fence and all
        /// clients have access.
        fence_ids: Array<'a, &'a str> => List,
    }
}

section! {
    /// The arguments of SET_FENCING_LIST (draft 6.4.2).
    SetFencingList<'a>: 80 {
        /// The handle of the file, or of any file in the file system.
        file: FileHandle => Handle,
        /// Says whether the request concerns the file's list or the list of its file system.
        object: FenceObject => Enum,
        /// Says whether the listed identities gain or lose access.
        access: FenceAccess => Enum,
        /// Says how the listed identities change the existing list.
        update: FenceUpdate => Enum,
        /// The fence identities that gain or lose access.
        fence_ids: Array<'a, &'a str> => List,
    }
}
