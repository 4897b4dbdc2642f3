//! Sends replies.
//!
//! Invariants:
//! - The receive buffers for the credits that a reply grants are posted before the reply (draft
//!   3.2.6.4.2).
//! - The stream of a request becomes free when the reply is posted.

use dafs_dat::{EndpointId, Gather, SendOptions, Signal};
use dafs_files::outcome::{Ended, Outcome};
use dafs_ops::Partial;
use dafs_types::Status;
use dafs_wire::{
    ByteOrder, EncodeError, HEADER_BYTES, Procedure, Response, ResponseHeader,
    TRANSFER_ANSWER_BYTES, encode_response, seal,
};

use crate::guests::{GuestResult, GuestResults};
use crate::meter::Moved;
use crate::meter::reading::Reading;
use crate::moving::transfer::Cookie;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, blank};
use crate::requests::answers::{done_response, refusal_response, written_response};
pub(crate) use crate::requests::granting::ReplyStatus;
use crate::requests::granting::grant;

/// A reply that could not be encoded.
struct Unsent {
    error: EncodeError,
    /// The header, for which credits have already been taken. `None` if the connection has ended.
    header: Option<ResponseHeader>,
}

impl Unsent {
    fn without_header(what: &'static str) -> Self {
        Self { error: EncodeError::Value { what }, header: None }
    }
}

impl Reactor<'_> {
    /// Replies with status OK and these results.
    pub(crate) fn reply(&mut self, answer: ReplyTo, response: &Response<'_>) {
        self.respond(answer, ReplyStatus::now(Status::Ok), response);
    }

    /// Replies with a failure status and without results.
    pub(crate) fn fail(&mut self, answer: ReplyTo, status: Status) {
        self.respond(answer, ReplyStatus::now(status), &Response::Failed);
    }

    /// Replies with a status. The results are included if the procedure has results for this
    /// status.
    pub(crate) fn respond(&mut self, answer: ReplyTo, told: ReplyStatus, response: &Response<'_>) {
        if let Some(results) = self.results_of(answer.endpoint) {
            // Results of guests are outcomes. Only failures of the server's own arrive here.
            return results.push(answer, GuestResult::Outcome(Outcome::failed(told.status)));
        }
        let mut message = [0; RESPONSE_HEAD_BYTES];
        match self.encode(answer, told, response, &mut message) {
            Err(Unsent { error: EncodeError::Space, header: Some(header) }) => {
                // Only directory listings and link texts do not fit into the buffer on the stack.
                // The long buffer has the negotiated size of the largest reply.
                let mut long = vec![0; self.response_bytes_max(answer.endpoint)];
                let encoded = self.encode_again(answer, header, response, &mut long);
                self.send_encoded(answer, told, encoded, &long);
            }
            encoded => self.send_encoded(answer, told, encoded, &message),
        }
    }

    /// Replies to a READ or WRITE that succeeded.
    pub(crate) fn reply_moved(&mut self, answer: ReplyTo, response: &Response<'_>) {
        let mut message = [0; TRANSFER_ANSWER_BYTES];
        let told = ReplyStatus::now(Status::Ok);
        let encoded = self.encode(answer, told, response, &mut message);
        self.send_encoded(answer, told, encoded, &message);
    }

    /// Sends the encoded reply at the start of `message`, or a failure if the reply could not be
    /// encoded.
    #[inline]
    fn send_encoded(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        encoded: Result<usize, Unsent>,
        message: &[u8],
    ) {
        match encoded {
            Ok(length) => self.deliver(answer, told, &message[..length]),
            Err(Unsent { error, header }) => {
                self.send_failure(answer, ReplyStatus { status: error.status(), ..told }, header);
            }
        }
    }

    /// Sends results whose data is in `segments` of the cache's arena. A completion with `cookie`
    /// reports when the transport has finished reading the data.
    pub(crate) fn reply_with_data(
        &mut self,
        answer: ReplyTo,
        response: &Response<'_>,
        segments: &[dafs_dat::LocalSegment],
        cookie: Cookie,
    ) {
        let mut message = [0; RESPONSE_HEAD_BYTES];
        let length = match self.encode(answer, ReplyStatus::now(Status::Ok), response, &mut message)
        {
            Ok(length) => length,
            Err(Unsent { header, .. }) => {
                self.send_failure(answer, ReplyStatus::now(Status::ServerFault), header);
                // The connection has ended, so the loan ends here.
                return self.on_loan_done(cookie);
            }
        };
        if self.has_checksums(answer.endpoint) {
            self.send_sealed(answer.endpoint, &mut message[..length], segments);
            return self.on_loan_done(cookie);
        }
        let mut gather = arrayvec::ArrayVec::<Gather<'_>, GATHER_MAX>::new();
        gather.push(Gather::Bytes(&message[..length]));
        gather.extend(segments.iter().map(|segment| Gather::Segment(*segment)));
        let options = SendOptions { signal: Signal::Always, invalidate: None };
        let posted = self.own.interface.post_send(answer.endpoint, cookie.pack(), &gather, options);
        self.owe_receives(answer.endpoint);
        if posted.is_err() {
            self.give_up(answer.endpoint);
            self.on_loan_done(cookie);
        }
    }

    /// Refuses a connect request. The header of the reply contains the version that the server
    /// supports.
    pub(crate) fn refuse_version(&mut self, answer: ReplyTo, status: Status, version: u32) {
        let Some(order) = self.order_of(answer.endpoint) else { return };
        let Some(channel) = self.shared.channels.get_mut(answer.endpoint) else { return };
        let books = (&mut self.shared.sessions, &mut self.shared.meter);
        let mut header = grant(books, channel, answer, status, Moved::Nothing);
        header.version = version;
        let mut message = [0; RESPONSE_HEAD_BYTES];
        if let Ok(length) = encode_response(order, &header, &Response::Failed, &mut message) {
            self.send(answer.endpoint, &message[..length]);
        }
    }

    #[inline]
    fn encode(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        response: &Response<'_>,
        message: &mut [u8],
    ) -> Result<usize, Unsent> {
        if answer.chain.is_some() {
            self.note_member(answer, told, response);
        }
        let Some(channel) = self.shared.channels.get_mut(answer.endpoint) else {
            if answer.kept().is_some() {
                self.conclude_undelivered(answer, told, response);
            }
            return Err(Unsent::without_header("a reply without a channel"));
        };
        let Some(order) = channel.order else {
            return Err(Unsent::without_header("a reply before a request"));
        };
        let limit = channel.response_bytes_max.min(message.len());
        let has_checksums = channel.checksums;
        let header = match told.may_wait(answer) {
            true => blank(answer, told.status, NO_TARGET),
            false => {
                let books = (&mut self.shared.sessions, &mut self.shared.meter);
                grant(books, channel, answer, told.status, Moved::by(response))
            }
        };
        let encoded = encode_response(order, &header, response, &mut message[..limit]);
        let length = encoded.map_err(|error| Unsent { error, header: Some(header) })?;
        if has_checksums {
            seal(&mut message[..length], &[]);
        }
        Ok(length)
    }

    /// Sends a reply that may have waited for the journal.
    pub(crate) fn send_waited(&mut self, answer: ReplyTo, message: &[u8]) {
        let order = self.order_of(answer.endpoint).unwrap_or(ByteOrder::NATIVE);
        let has_checksums = self.has_checksums(answer.endpoint);
        let Ok(header) = ResponseHeader::decode(order, message) else { return };
        let Some(channel) = self.shared.channels.get_mut(answer.endpoint) else { return };
        if header.target_credits != NO_TARGET {
            return self.send(answer.endpoint, message);
        }
        let books = (&mut self.shared.sessions, &mut self.shared.meter);
        let granted = grant(books, channel, answer, header.status, Moved::Nothing);
        let mut message = message.to_vec();
        ResponseHeader::set_target_credits(order, granted.target_credits, &mut message);
        if has_checksums {
            seal(&mut message, &[]);
        }
        self.send(answer.endpoint, &message);
    }

    /// Encodes a reply again, into a longer buffer, because it did not fit. Reuses the header of
    /// the first attempt, for which credits have already been taken.
    fn encode_again(
        &mut self,
        answer: ReplyTo,
        header: ResponseHeader,
        response: &Response<'_>,
        message: &mut [u8],
    ) -> Result<usize, Unsent> {
        let unsent = |error| Unsent { error, header: Some(header) };
        let order = self.order_of(answer.endpoint).ok_or(unsent(EncodeError::Space))?;
        let length = encode_response(order, &header, response, message).map_err(unsent)?;
        if self.has_checksums(answer.endpoint) {
            seal(&mut message[..length], &[]);
        }
        Ok(length)
    }

    /// Sends a failure instead of results that could not be encoded. Reuses the header, for which
    /// credits have already been taken.
    fn send_failure(&mut self, answer: ReplyTo, told: ReplyStatus, header: Option<ResponseHeader>) {
        let Some(mut header) = header else { return };
        let Some(order) = self.order_of(answer.endpoint) else { return };
        if answer.chain.is_some() {
            self.break_chain(answer);
        }
        header.status = told.status;
        let mut message = [0; RESPONSE_HEAD_BYTES];
        if let Ok(length) = encode_response(order, &header, &Response::Failed, &mut message) {
            if self.has_checksums(answer.endpoint) {
                seal(&mut message[..length], &[]);
            }
            self.deliver(answer, told, &message[..length]);
        }
    }

    /// Sends a reply. If the result must be stored, stores it first.
    #[inline]
    fn deliver(&mut self, answer: ReplyTo, told: ReplyStatus, message: &[u8]) {
        if answer.kept().is_some() {
            let bytes = &message[HEADER_BYTES..];
            return self.conclude_kept(answer, told, bytes, Some(message));
        }
        if told.after.0 != 0 {
            return self.delay_answer(answer, told.after, message);
        }
        self.send(answer.endpoint, message);
    }

    /// Counts the bytes that a request has moved, if its reply does not contain their number.
    pub(crate) fn note_moved(&mut self, endpoint: EndpointId, reading: Reading, moved: Moved) {
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            self.shared.meter.add(reading, moved, &mut channel.traffic);
        }
    }

    #[inline]
    pub(crate) fn send(&mut self, endpoint: EndpointId, message: &[u8]) {
        if !self.own.has(endpoint) {
            self.shared.handoffs.owe_receives(endpoint);
            return self.shared.handoffs.send(endpoint, message);
        }
        let gather = [Gather::Bytes(message)];
        let silent = Cookie::Silent.pack();
        let is_posted = self.own.interface.post_send(endpoint, silent, &gather, QUIET).is_ok();
        self.end_send(endpoint, is_posted);
    }

    /// Does the work that must follow the posting of a reply.
    #[inline]
    pub(crate) fn end_send(&mut self, endpoint: EndpointId, is_posted: bool) {
        if !is_posted {
            self.give_up(endpoint);
        }
        self.fetch_ahead();
        self.fetch_ahead();
        self.owe_receives(endpoint);
    }

    /// Defers the posting of the receive buffers for the credits that a reply grants.
    #[inline]
    pub(crate) fn owe_receives(&mut self, endpoint: EndpointId) {
        if !self.own.has(endpoint) {
            return self.shared.handoffs.owe_receives(endpoint);
        }
        self.shared.channels.owe_receives(endpoint, &mut self.own.interface);
    }

    /// Sends data with a checksum. The data is copied first, because a write could change the
    /// cached bytes before the transport has read them.
    fn send_sealed(
        &mut self,
        endpoint: EndpointId,
        prefix: &mut [u8],
        segments: &[dafs_dat::LocalSegment],
    ) {
        let mut message = prefix.to_vec();
        for segment in segments {
            let offset = usize::try_from(segment.offset).unwrap_or(usize::MAX);
            message.extend(self.shared.cache.arena().to_vec(offset, segment.length as usize));
        }
        seal(&mut message, &[]);
        self.send(endpoint, &message);
    }

    // ---- outcomes of operations -------------------------------------------------------

    /// Returns the queue of results for a request of a guest. `None` for a request of a DAFS
    /// connection, which the reactor of guests may end too, for example when it grants a lock.
    pub(crate) fn results_of(&mut self, endpoint: EndpointId) -> Option<&mut GuestResults> {
        let results = self.own.guest_results.as_mut()?;
        self.shared.channels.guests().is_guest(endpoint).then_some(results)
    }

    /// Replies with the outcome of an operation.
    pub(crate) fn report(&mut self, to: ReplyTo, outcome: Outcome) {
        if let Some(results) = self.results_of(to.endpoint) {
            return results.push(to, GuestResult::Outcome(outcome));
        }
        let Outcome { result, after } = outcome;
        match &result {
            Ok(Ended::Written(written)) if after.0 == 0 => {
                self.reply_moved(to, &written_response(written));
            }
            Ok(ended) => self.respond(to, ReplyStatus::ok_after(after), &done_response(ended)),
            Err(refusal) => {
                let status = refusal.fault.into();
                // Of the operations that fail after a wait with partial results, only SETATTR and
                // LOCK have results for that.
                let response = match &refusal.partial {
                    Partial::Set { .. } => refusal_response(Procedure::SetAttrInline, refusal),
                    _ => refusal_response(Procedure::Lock, refusal),
                };
                self.respond(to, ReplyStatus { status, after }, &response);
            }
        }
    }

    /// Ends a request that was not executed because its connection is closing. A client that
    /// reconnects sends the request again.
    pub(crate) fn report_broken(&mut self, to: ReplyTo) {
        let to = self.abandon(to);
        self.fail(to, Status::Io);
    }
}

/// Send options that request a completion only if the send fails.
pub(crate) const QUIET: SendOptions = SendOptions { signal: Signal::OnError, invalidate: None };
/// The value in a header for which no credits were taken yet. It is distinct from every grant,
/// because a grant is never zero.
const NO_TARGET: u16 = 0;
/// The size in bytes of a buffer that has room for any reply except listings and link texts.
const RESPONSE_HEAD_BYTES: usize = 512;
/// The maximum number of segments that the reply to an inline read consists of: the header and the
/// pieces of data.
const GATHER_MAX: usize = dafs_store::cache::PIECE_COUNT_MAX + 1;
