//! Requests that were in flight when their connection was lost.
//!
//! Invariant: an interrupted request keeps the stream and sequence number of its old session until
//! its fate is known. Then it either has ended or is sent again once.

use std::borrow::Cow;

use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{
    ByteOrder, ChainFlags, HEADER_BYTES, Procedure, RequestHeader, Response, ResponseHeader,
    decode_request, encode_response,
};

use crate::requests::{describe, is_kept, is_repeatable, procedure_of};
use crate::work::{Pending, Work};

/// A request whose connection was lost before its reply arrived.
pub(crate) struct InterruptedRequest {
    pub stream: StreamId,
    pub sequence: SequenceNumber,
    pub procedure: Procedure,
    /// The operation; `None` once it has ended.
    pub work: Option<Work>,
    pub fate: Fate,
}

/// The state of an interrupted request, as far as the client knows it.
pub(crate) enum Fate {
    /// The client does not know yet whether the request was executed.
    Unknown,
    /// The request was not executed and must be sent again.
    NotDone,
    /// The OPEN was executed by a server incarnation that has ended since. Its reply is useless
    /// until the open is reclaimed.
    Opened(Vec<u8>),
}

impl InterruptedRequest {
    /// Creates the record from the operation that waited for the reply; `None` if no caller waits
    /// for the operation.
    pub(crate) fn new(
        stream: StreamId,
        sequence: SequenceNumber,
        pending: Pending,
    ) -> Option<Self> {
        let mut is_saved = false;
        let (procedure, work) = match pending {
            Pending::Call(call) => (procedure_of(&call.message)?, Work::Call(call)),
            Pending::Transfer(transfer) => (transfer.procedure, Work::Transfer(transfer)),
            Pending::Member(member) => {
                let chain = member.chain.borrow();
                let of = chain.members.get(member.number)?;
                let procedure = of.procedure;
                is_saved = of.flags.contains(ChainFlags::SAVE);
                drop(chain);
                (procedure, Work::Member(member))
            }
            Pending::Ignored | Pending::Recovery(_) => return None,
        };
        let fate = if is_saved || is_kept(procedure) { Fate::Unknown } else { Fate::NotDone };
        Some(Self { stream, sequence, procedure, work: Some(work), fate })
    }

    /// Returns true if the client must ask the server whether the request was executed.
    pub(crate) fn is_open(&self) -> bool {
        self.work.is_some() && matches!(self.fate, Fate::Unknown)
    }

    /// Returns true if the request may be sent again although the server knows nothing about it.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self.message() {
            Some(message) => decode_request(ByteOrder::NATIVE, &message)
                .is_ok_and(|(_, request)| is_repeatable(&request)),
            // Repeating a transfer moves the same bytes to or from the same range.
            None => true,
        }
    }

    /// Describes the request in an error message.
    pub(crate) fn describe(&self) -> String {
        let message = self.message().unwrap_or_default();
        match decode_request(ByteOrder::NATIVE, &message) {
            Ok((_, request)) => describe(&request),
            Err(_) => self.procedure.name().to_owned(),
        }
    }

    /// Returns the request as it was sent, unless it is a transfer.
    pub(crate) fn message(&self) -> Option<Cow<'_, [u8]>> {
        match self.work.as_ref()? {
            Work::Call(call) => Some(Cow::Borrowed(&call.message)),
            Work::Member(member) => {
                let chain = member.chain.borrow();
                let place = chain.members.get(member.number)?.message.clone();
                Some(Cow::Owned(chain.bytes[place].to_vec()))
            }
            Work::Transfer(_) | Work::Chain(_) => None,
        }
    }
}

/// Encodes a reply exactly as the server would have sent it.
pub(crate) fn answer(response: &Response<'_>, status: Status) -> (ResponseHeader, Vec<u8>) {
    let request = RequestHeader::new(StreamId(0), SequenceNumber(0));
    let header = ResponseHeader::answering(&request, status, 1);
    let mut message = vec![0; dafs_types::limits::RESPONSE_BYTES_MAX];
    // Replies that the library encodes itself always fit.
    let length = encode_response(ByteOrder::NATIVE, &header, response, &mut message);
    message.truncate(length.unwrap_or(HEADER_BYTES));
    let header = ResponseHeader::decode(ByteOrder::NATIVE, &message).unwrap_or(header);
    (header, message)
}
