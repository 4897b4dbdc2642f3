//! Replies of what has ended.

use dafs_ops::Partial;
use dafs_types::Status;
use dafs_wire::Procedure;

use super::{done_response, refusal_response, written_response};
use crate::outcome::{Ended, Outcome};
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::respond::ReplyStatus;

impl Reactor {
    /// Replies with what came of an operation.
    pub(crate) fn report(&mut self, to: ReplyTo, outcome: Outcome) {
        let Outcome { result, after } = outcome;
        match &result {
            Ok(Ended::Written(written)) if after.0 == 0 => {
                self.reply_moved(to, &written_response(written));
            }
            Ok(ended) => self.respond(to, ReplyStatus::ok_after(after), &done_response(ended)),
            Err(refusal) => {
                let status = refusal.fault.into();
                // What fails late was a SETATTR or a LOCK, if there is more to say of it.
                let response = match &refusal.partial {
                    Partial::Set { .. } => refusal_response(Procedure::SetAttrInline, refusal),
                    _ => refusal_response(Procedure::Lock, refusal),
                };
                self.respond(to, ReplyStatus { status, after }, &response);
            }
        }
    }

    /// Replies that a request was not carried out, for no fault of its own: its connection is at
    /// its end, and whoever comes back asks for it anew.
    pub(crate) fn report_broken(&mut self, to: ReplyTo) {
        let to = self.abandon(to);
        self.fail(to, Status::Io);
    }
}
