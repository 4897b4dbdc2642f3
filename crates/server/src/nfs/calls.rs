//! Calls in progress, and the encoding of replies.
//!
//! Invariant: a call gets one reply, or none if its connection has ended.

use dafs_base::{Key, Slab};
use dafs_dat::EndpointId;
use dafs_files::caller::Caller;
use dafs_journal::RecordNumber;
use dafs_nfs_wire::rpc::{self, Auth, AuthStat, Outcome, Rejected, ReplyBody, Versions};
use dafs_nfs_wire::xdr::Writer;
use dafs_ops::Origin;
use dafs_types::{SequenceNumber, StreamId};

use super::gss::Route;
use super::recent::Recent;
use super::side::pending::Pending;
use super::side::state::Side;
use super::users::Users;
use super::v3::suspended::Suspended as SuspendedV3;
use super::v4::state::State;
use super::v4::waiting::Compound;
use crate::reply_to::ReplyTo;

/// The identity of a call: its connection, its number on that connection, and its user.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallId {
    /// The connection on which the call has arrived, and the protection of the reply.
    pub to: Route,
    /// The call's number, which the client has chosen and the reply repeats.
    pub xid: u32,
    /// The endpoint id that stands for the user of the call.
    pub user: EndpointId,
    /// The origin by which a repeat of the call is recognized. `None` for a call that may be
    /// executed again.
    pub origin: Option<Origin>,
    /// The record number of the call's intent; 0 if it has none.
    pub intent: RecordNumber,
    /// True if the call has arrived as a datagram, so that the reply must fit one.
    pub is_datagram: bool,
}

impl CallId {
    /// Creates the identity of a call that may be executed again.
    pub(super) fn new(to: Route, xid: u32, user: EndpointId) -> Self {
        Self { to, xid, user, origin: None, intent: RecordNumber(0), is_datagram: false }
    }
}

/// A call that waits for an operation on files.
#[derive(Debug)]
pub(super) struct Waiting {
    pub id: CallId,
    /// The data for finishing the call. `None` while the operation is being started.
    what: Option<Suspended>,
}

/// The data that is needed to finish a call when the operation that it waits for has ended.
#[derive(Debug)]
pub(super) enum Suspended {
    /// A call of NFS version 3, and the caller on whose behalf it is executed.
    V3(Caller, SuspendedV3),
    /// A call of NFS version 3 that was executed, and its reply without the header.
    Replied(Box<[u8]>),
    /// A compound of NFSv4.
    V4(Box<Compound>),
    /// A copy of version 4.2, which continues after the reply to its call; its number.
    Copy(u64),
    /// A call of a program beside NFS.
    Side(Box<Pending>),
}

/// The calls that wait for operations on files.
#[derive(Debug, Default)]
pub(super) struct Calls {
    waiting: Slab<Waiting>,
    /// The call whose operation is being started.
    reserved: Option<Key<Waiting>>,
}

/// The parts of the service that are needed to serve a call.
pub(super) struct Desk<'f> {
    pub calls: &'f mut Calls,
    pub writer: &'f mut Writer,
    pub users: &'f mut Users,
    pub recent: &'f mut Recent,
    pub v4: &'f mut State,
    pub side: &'f mut Side,
}

/// The progress of a call.
#[derive(Debug)]
pub(super) enum Progress {
    /// The complete reply is in the writer.
    Done,
    /// The call waits for an operation, whose result goes to the destination that [`Calls::start`]
    /// returned.
    Later,
}

impl Calls {
    /// Adds a call that waits for an operation. Returns the destination for the operation's result.
    pub(super) fn start(&mut self, id: CallId, what: Suspended) -> ReplyTo {
        let key = self.waiting.insert(Waiting { id, what: Some(what) });
        Self::destination(key, id)
    }

    /// Adds a call whose operation is being started. Returns the destination for the operation's
    /// result. The caller must add the data for finishing the call with [`Calls::hold`] before the
    /// result arrives.
    pub(super) fn reserve(&mut self, id: CallId) -> ReplyTo {
        let key = self.waiting.insert(Waiting { id, what: None });
        self.reserved = Some(key);
        Self::destination(key, id)
    }

    /// Returns the destination for the result of an operation that no call waits for.
    pub(super) fn unanswered(id: CallId) -> ReplyTo {
        Self::destination(Key::NULL, id)
    }

    /// Adds the data for finishing the call that [`Calls::reserve`] added last.
    pub(super) fn hold(&mut self, what: Suspended) {
        let reserved = self.reserved.take();
        if let Some(waiting) = reserved.and_then(|key| self.waiting.get_mut(key)) {
            waiting.what = Some(what);
        }
    }

    fn destination(key: Key<Waiting>, id: CallId) -> ReplyTo {
        let mut to = ReplyTo::new(id.user, StreamId(0), SequenceNumber(0));
        to.analyzer = key.to_bits();
        to
    }

    /// Removes and returns the call whose operation has ended. `None` if there is no such call any
    /// more.
    pub(super) fn end(&mut self, to: ReplyTo) -> Option<(CallId, Suspended)> {
        let key = Key::from_bits(to.analyzer);
        self.waiting.get(key).filter(|waiting| waiting.id.user == to.endpoint)?;
        let waiting = self.waiting.remove(key)?;
        Some((waiting.id, waiting.what?))
    }
}

/// Writes the header of the reply to a call that is executed. The caller appends the results.
pub(super) fn begin(writer: &mut Writer, xid: u32) {
    begin_verified(writer, xid, Auth::NONE);
}

/// Writes the header like [`begin`], with a verifier.
pub(super) fn begin_verified(writer: &mut Writer, xid: u32, verifier: Auth<'_>) {
    writer.clear();
    rpc::encode_reply(xid, rpc::success(verifier), writer);
}

/// Writes the reply to a call that was accepted but not executed.
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

/// Returns the outcome of a call to an unsupported version of a program. `low` and `high` are the
/// lowest and the highest supported version.
pub(super) fn mismatch(low: u32, high: u32) -> Outcome {
    Outcome::ProgMismatch(Versions { low, high })
}

/// Returns the results in a reply. `None` if the call was accepted but not executed.
pub(super) fn results_of(reply: &[u8]) -> Option<&[u8]> {
    let (header, results) = reply.split_at_checked(REPLY_HEADER_BYTES)?;
    header.ends_with(&[0; 4]).then_some(results)
}

/// The length of the header of a reply to a call that was executed: xid, kind, accepted, an empty
/// verifier, and success.
const REPLY_HEADER_BYTES: usize = 24;
/// The maximum length of a call in bytes: a WRITE of 1 MiB and its header.
pub(super) const CALL_BYTES_MAX: usize = (1 << 20) + (64 << 10);
