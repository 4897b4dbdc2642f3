//! The binding of NFS (RFC 8267): which data of calls and replies may travel in chunks, and how
//! much memory a client must offer for a reply.
//!
//! Invariant: data is eligible (DDP-eligible) only if [`ROWS`] lists it. Programs without a row,
//! such as MOUNT and the callbacks, have no eligible data. With RPCSEC_GSS checksums or encryption,
//! no data is eligible, because the protected bytes must stay together.

mod calls;
mod replies;
mod sizes;

pub use calls::{BindingFault, call_items, check_assembled, check_call};
pub use replies::{reply_items, written_items};
pub use sizes::{
    RPC_REPLY_BYTES_MAX, ReplySize, nfs3_reply_size, nfs4_reply_size, shape_bytes_max,
};

use dafs_nfs_wire::nfs3::{self, NFS3};
use dafs_nfs_wire::nfs4::{self, NFS4, OperationKind};

/// A protocol whose data may travel in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// NFS version 3.
    Nfs3,
    /// NFS version 4, in all of its minor versions.
    Nfs4,
}

impl Protocol {
    /// Returns the protocol of a program; `None` if the program has no eligible data.
    #[must_use]
    pub fn of(program: u32, version: u32) -> Option<Self> {
        match (program, version) {
            _ if (program, version) == (NFS3.number, NFS3.version) => Some(Self::Nfs3),
            _ if (program, version) == (NFS4.number, NFS4.version) => Some(Self::Nfs4),
            _ => None,
        }
    }
}

/// A procedure or operation with eligible data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The protocol of the procedure or operation.
    pub protocol: Protocol,
    /// The number of the procedure, or in version 4 of the operation.
    pub number: u32,
    /// The data of the call that may be in a Read chunk.
    pub in_call: Option<&'static str>,
    /// The data of the reply that may be in a Write chunk.
    pub in_reply: Option<&'static str>,
}

/// All procedures and operations with eligible data.
///
/// READ_PLUS is not among them: its results may have any number of parts, so that a client cannot
/// tell which part belongs to which Write chunk. Its data stays in the message, which may be in the
/// Reply chunk, and it takes no Write chunk of the call.
pub const ROWS: &[Row] = &[
    row(Protocol::Nfs3, nfs3::Procedure::ReadLink.number(), None, Some("text of the link")),
    row(Protocol::Nfs3, nfs3::Procedure::Read.number(), None, Some("data of the file")),
    row(Protocol::Nfs3, nfs3::Procedure::Write.number(), Some("data of the file"), None),
    row(Protocol::Nfs3, nfs3::Procedure::SymLink.number(), Some("text of the link"), None),
    row(Protocol::Nfs4, OperationKind::Create.number(), Some("text of the link"), None),
    row(Protocol::Nfs4, OperationKind::Read.number(), None, Some("data of the file")),
    row(Protocol::Nfs4, OperationKind::ReadLink.number(), None, Some("text of the link")),
    row(Protocol::Nfs4, OperationKind::Write.number(), Some("data of the file"), None),
];

const fn row(
    protocol: Protocol,
    number: u32,
    in_call: Option<&'static str>,
    in_reply: Option<&'static str>,
) -> Row {
    Row { protocol, number, in_call, in_reply }
}

/// Returns true if data of this operation's reply may be in a Write chunk.
fn is_in_reply(protocol: Protocol, number: u32) -> bool {
    ROWS.iter()
        .any(|row| row.protocol == protocol && row.number == number && row.in_reply.is_some())
}

/// The number of COMPOUND, the procedure of version 4 that has operations.
const COMPOUND: u32 = nfs4::compound::Procedure::Compound.number();
