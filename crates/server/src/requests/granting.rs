//! What goes along with an answer: its status, the credits that it grants, and that it is counted.

use dafs_journal::RecordNumber;
use dafs_sessions::Sessions;
use dafs_types::Status;
use dafs_wire::{ByteOrder, ResponseHeader};

use crate::channel::Channel;
use crate::meter::{Meter, Moved};
use crate::reply_to::{ReplyTo, blank};

/// The status that a reply has, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyStatus {
    pub status: Status,
    /// Not before this record is durable; 0 waits for none.
    pub after: RecordNumber,
}

impl ReplyStatus {
    /// This status, at once.
    #[inline]
    pub fn now(status: Status) -> Self {
        Self { status, after: RecordNumber(0) }
    }

    /// Success, once a record is durable.
    #[inline]
    pub fn ok_after(after: RecordNumber) -> Self {
        Self { status: Status::Ok, after }
    }

    /// Whether the reply may be held back by the journal, so that others are sent before
    /// it: it takes its grant when it is sent. Grants are for the client what the order of
    /// replies makes of them (draft 3.2.6), and the filer must see the same order.
    #[inline]
    pub fn may_wait(self, answer: ReplyTo) -> bool {
        answer.logged || self.after.0 != 0
    }
}

/// Takes the grant that goes along with an answer; its receives are posted once that is out.
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
    blank(answer, status, grant.target_nreq)
}

/// Counts a request that is answered.
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

/// Takes the grant of an answer that was made before, with the credits it would likely bring. It
/// is to be counted once it is out.
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
