//! Determines the status of a reply and the credits that the reply grants, and counts requests.

use dafs_journal::RecordNumber;
use dafs_sessions::Sessions;
use dafs_types::Status;
use dafs_wire::{ByteOrder, ResponseHeader};

use crate::channel::Channel;
use crate::meter::{Meter, Moved};
use crate::reply_to::{ReplyTo, blank};

/// The status of a reply, and the journal record that must be durable before the reply is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyStatus {
    pub status: Status,
    /// The number of the record that must be durable before the reply is sent; 0 means no wait.
    pub after: RecordNumber,
}

impl ReplyStatus {
    /// Creates a status for a reply that is sent immediately.
    #[inline]
    pub(crate) fn now(status: Status) -> Self {
        Self { status, after: RecordNumber(0) }
    }

    /// Creates the status OK for a reply that is sent when a journal record is durable.
    #[inline]
    pub(crate) fn ok_after(after: RecordNumber) -> Self {
        Self { status: Status::Ok, after }
    }

    /// Returns true if the reply may wait for the journal while other replies are sent. Such a
    /// reply takes its credits when it is sent: the client interprets credits in the order of the
    /// replies (draft 3.2.6), and the filer must grant them in the same order.
    #[inline]
    pub(crate) fn may_wait(self, answer: ReplyTo) -> bool {
        answer.logged || self.after.0 != 0
    }
}

/// Takes the credits that a reply grants. The receive buffers for these credits are posted after
/// the reply is sent.
#[inline]
pub(crate) fn grant(
    (sessions, meter): (&mut Sessions, &mut Meter),
    channel: &mut Channel,
    answer: ReplyTo,
    status: Status,
    moved: Moved,
) -> ResponseHeader {
    let header = grant_credits(sessions, channel, answer, status);
    count((sessions, meter), channel, answer, status, moved);
    header
}

#[inline]
fn grant_credits(
    sessions: &mut Sessions,
    channel: &mut Channel,
    answer: ReplyTo,
    status: Status,
) -> ResponseHeader {
    let grant = sessions.finish(channel.id, answer.stream);
    channel.receives_due += grant.receives_to_post;
    blank(answer, status, grant.target_credits)
}

/// Counts a request to which the reply was sent.
#[inline]
pub(crate) fn count(
    (sessions, meter): (&mut Sessions, &mut Meter),
    channel: &mut Channel,
    answer: ReplyTo,
    status: Status,
    moved: Moved,
) {
    meter.add(answer.reading, moved, &mut channel.traffic);
    if let Some(taken) = meter.complete(answer.reading, status, &mut channel.traffic) {
        let outcome = (status, moved.length(), taken);
        meter.tell(sessions, channel, answer, outcome);
    }
}

/// Takes the credits of a reply that was encoded in advance, and writes their number into the
/// encoded message. The caller counts the request after the reply is sent.
#[inline]
pub(crate) fn take_grant(
    sessions: &mut Sessions,
    channel: &mut Channel,
    answer: ReplyTo,
    message: &mut [u8],
) {
    let order = channel.order.unwrap_or(ByteOrder::NATIVE);
    let granted = grant_credits(sessions, channel, answer, Status::Ok);
    ResponseHeader::set_target_credits(order, granted.target_credits, message);
}
