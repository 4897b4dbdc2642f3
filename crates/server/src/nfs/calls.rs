//! Calls in progress, and the encoding of replies.
//!
//! Invariant: a call gets one reply, or none if its connection has ended.

use dafs_base::{Key, Slab};
use dafs_dat::EndpointId;
use dafs_dat::records::LinkId;
use dafs_nfs_wire::rpc::{self, Auth, AuthStat, Outcome, Rejected, ReplyBody, Versions};
use dafs_nfs_wire::xdr::Writer;
use dafs_types::{SequenceNumber, StreamId};

use super::v3;
use crate::reply_to::ReplyTo;

/// The identification of a call: its connection, its number there, and its user.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallId {
    /// The connection on which the call has arrived.
    pub link: LinkId,
    /// The number that the reply repeats.
    pub xid: u32,
    /// The user of the call, as the server knows it.
    pub user: EndpointId,
}

/// A call that waits for an operation on files.
#[derive(Debug)]
pub(super) struct Waiting {
    pub id: CallId,
    pub what: Suspended,
}

/// The rest of a call, to be done when its operation has ended.
#[derive(Debug)]
pub(super) enum Suspended {
    /// A call of NFSv3.
    V3(v3::Suspended),
}

/// The calls that wait.
#[derive(Debug, Default)]
pub(super) struct Calls {
    waiting: Slab<Waiting>,
}

/// The progress of a call.
#[derive(Debug)]
pub(super) enum Progress {
    /// The reply is in the writer.
    Done,
    /// The call waits. An operation was started with the destination that [`Calls::start`] returned.
    Later,
}

impl Calls {
    /// Adds a call that waits for an operation. Returns the destination for the operation's result.
    pub(super) fn start(&mut self, id: CallId, what: Suspended) -> ReplyTo {
        let key = self.waiting.insert(Waiting { id, what });
        let mut to = ReplyTo::new(id.user, StreamId(0), SequenceNumber(0));
        to.analyzer = key.to_bits();
        to
    }

    /// Removes and returns the call whose operation has ended.
    pub(super) fn end(&mut self, to: ReplyTo) -> Option<Waiting> {
        self.waiting.remove(Key::from_bits(to.analyzer))
    }

    /// Returns the number of calls that wait.
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }
}

/// Begins the reply to a call that was accepted and carried out.
pub(super) fn begin(writer: &mut Writer, xid: u32) {
    writer.clear();
    rpc::encode_reply(xid, rpc::success(Auth::NONE), writer);
}

/// Writes the reply to a call that was accepted but not carried out.
pub(super) fn fail(writer: &mut Writer, xid: u32, outcome: Outcome) {
    refuse(writer, xid, rpc::failure(Auth::NONE, outcome));
}

/// Writes the reply to a call whose credentials are not accepted.
pub(super) fn deny(writer: &mut Writer, xid: u32, why: AuthStat) {
    refuse(writer, xid, ReplyBody::Denied(Rejected::AuthError(why)));
}

/// Writes a reply without results.
pub(super) fn refuse(writer: &mut Writer, xid: u32, body: ReplyBody<'_>) {
    writer.clear();
    rpc::encode_reply(xid, body, writer);
}

/// Returns the outcome of a call to a version that the server does not have.
pub(super) fn mismatch(low: u32, high: u32) -> Outcome {
    Outcome::ProgMismatch(Versions { low, high })
}
