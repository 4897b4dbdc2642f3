//! Requests that were under way when their connection was lost.
//!
//! Invariant: a stranded request knows under which stream and number its old session knew
//! it, until its fate is known; then it is either over or asked anew, once.

use std::borrow::Cow;

use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{Open, OpenCreation, OpenTarget};
use dafs_wire::{
    ByteOrder, ChainFlags, HEADER_BYTES, Procedure, ReplayClass, Request, RequestHeader, Response,
    ResponseHeader, decode_request, encode_response,
};

use crate::chain::send::{Member, SharedChain};
use crate::core::{OperationId, Pending, QueuedCall};
use crate::data::Transfer;
use crate::opens::procedure_of;
use crate::path::unwired;

/// What is to be done, with all that is needed to ask for it.
pub(crate) enum Work {
    Call(QueuedCall),
    Transfer(Transfer),
    /// Part of a chain that was cut off.
    Member(Member),
    /// What is left of a chain.
    Chain(SharedChain),
}

/// A request whose answer did not come.
pub(crate) struct Stranded {
    pub stream: StreamId,
    pub sequence: SequenceNumber,
    pub procedure: Procedure,
    /// `None` once it is over.
    pub work: Option<Work>,
    pub fate: Fate,
}

/// What is known of a stranded request.
pub(crate) enum Fate {
    /// Nothing yet.
    Open,
    /// It is to be asked anew.
    Undone,
    /// This OPEN was carried out by a server that has restarted since: what it opened must
    /// be taken back before its answer is worth anything.
    Opened(Vec<u8>),
}

impl Stranded {
    /// From what waited for the answer; `None` if nobody cares.
    pub fn new(stream: StreamId, sequence: SequenceNumber, pending: Pending) -> Option<Self> {
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
            Pending::Silent | Pending::Rescue(_) => return None,
        };
        let fate = if is_saved || is_kept(procedure) { Fate::Open } else { Fate::Undone };
        Some(Self { stream, sequence, procedure, work: Some(work), fate })
    }

    /// Whether the server must be asked what became of it.
    pub fn is_open(&self) -> bool {
        self.work.is_some() && matches!(self.fate, Fate::Open)
    }

    /// The server knows nothing of it any more. Whether it may be asked anew all the same.
    pub fn is_repeatable(&self) -> bool {
        match self.message() {
            Some(message) => decode_request(ByteOrder::NATIVE, &message)
                .is_ok_and(|(_, request)| is_repeatable(&request)),
            // The same octets to the same place, or from it.
            None => true,
        }
    }

    /// What was asked, for people.
    pub fn describe(&self) -> String {
        let message = self.message().unwrap_or_default();
        match decode_request(ByteOrder::NATIVE, &message) {
            Ok((_, request)) => describe(&request),
            Err(_) => self.procedure.name().to_owned(),
        }
    }

    /// The request as it was sent, unless it is a transfer.
    pub fn message(&self) -> Option<Cow<'_, [u8]>> {
        match self.work.as_ref()? {
            Work::Call(call) => Some(Cow::Borrowed(&call.message)),
            Work::Member(member) => {
                let chain = member.chain.borrow();
                let place = chain.members.get(member.number)?.message.clone();
                Some(Cow::Owned(chain.octets[place].to_vec()))
            }
            Work::Transfer(_) | Work::Chain(_) => None,
        }
    }
}

impl Work {
    /// In this order the requests were made.
    pub fn id(&self) -> OperationId {
        match self {
            Self::Call(call) => call.id,
            Self::Transfer(transfer) => transfer.id,
            Self::Member(member) => member.chain.borrow().id,
            Self::Chain(chain) => chain.borrow().id,
        }
    }
}

/// Whether the server keeps the result of a request.
fn is_kept(procedure: Procedure) -> bool {
    match procedure.replay_class() {
        ReplayClass::Always | ReplayClass::WhenComplete => true,
        ReplayClass::Never | ReplayClass::OnRequest => false,
    }
}

/// Whether a request that may have been carried out can be made once more, and nobody is
/// the worse for it.
fn is_repeatable(request: &Request<'_>) -> bool {
    match request {
        Request::Open(open) => is_repeatable_open(open),
        // The size may have been another's business since.
        Request::SetAttrInline(set) => !set.attributes.included().contains(bits::OBJECT_SIZE),
        Request::SetAttrDirect(_)
        | Request::Create(_)
        | Request::Link(_)
        | Request::Remove(_)
        | Request::Rename(_)
        | Request::AppendInline(_)
        | Request::AppendDirect(_) => false,
        // The rest only looks, says the same of the same place, or is about opens and locks
        // that end up as they were asked for.
        _ => true,
    }
}

fn is_repeatable_open(open: &Open<'_>) -> bool {
    match open.creation {
        OpenCreation::NoCreate | OpenCreation::Exclusive(_) => true,
        OpenCreation::Unchecked(attributes) => {
            let truncates = attributes.included().contains(bits::OBJECT_SIZE);
            !truncates || matches!(open.target, OpenTarget::CreateUnlinked { .. })
        }
        OpenCreation::Guarded(_) => matches!(open.target, OpenTarget::CreateUnlinked { .. }),
    }
}

fn describe(request: &Request<'_>) -> String {
    let procedure = request.procedure().name();
    match request {
        Request::Create(create) => format!("{procedure} of {:?}", unwired(create.name)),
        Request::Remove(remove) => format!("{procedure} of {:?}", unwired(remove.name)),
        Request::Link(link) => format!("{procedure} of {:?}", unwired(link.name)),
        Request::Rename(rename) => {
            let (old, new) = (unwired(rename.old_name), unwired(rename.new_name));
            format!("{procedure} of {old:?} to {new:?}")
        }
        Request::Open(Open { target: OpenTarget::Null { path, .. }, .. }) => {
            let names: Vec<&str> = path.iter().collect();
            format!("{procedure} of {:?}", unwired(&names.join("/")))
        }
        _ => procedure.to_owned(),
    }
}

/// An answer as the server would have given it.
pub(crate) fn answer(response: &Response<'_>, status: Status) -> (ResponseHeader, Vec<u8>) {
    let request = RequestHeader::new(StreamId(0), SequenceNumber(0));
    let header = ResponseHeader::answering(&request, status, 1);
    let mut message = vec![0; dafs_types::limits::RESPONSE_BYTES_MAX];
    // Whatever the library says itself fits.
    let length = encode_response(ByteOrder::NATIVE, &header, response, &mut message);
    message.truncate(length.unwrap_or(HEADER_BYTES));
    let header = ResponseHeader::decode(ByteOrder::NATIVE, &message).unwrap_or(header);
    (header, message)
}
