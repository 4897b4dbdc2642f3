//! Sending answers.
//!
//! Invariant: the receives a grant asks for are posted before the response that
//! carries it (draft 3.2.6.4.2), and a stream is free once its answer is posted.

use dafs_dat::{EndpointId, Gather, SendOptions, Signal};
use dafs_filer::Filer;
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{
    ByteOrder, Checksum, EncodeError, HEADER_BYTES, PROTOCOL_VERSION, Response, ResponseHeader,
    SpecialConditions, TRANSFER_ANSWER_BYTES, encode_response, seal,
};

use crate::channel::{Channel, RECEIVES_SPARE};
use crate::follow;
use crate::meter::{Meter, Moved, Reading};
use crate::reactor::Reactor;
use crate::task::Answer;
use crate::transfer::Cookie;

impl Reactor {
    /// Answers with results.
    pub(crate) fn reply(&mut self, answer: Answer, response: &Response<'_>) {
        self.respond(answer, Status::Ok, response);
    }

    /// Answers with a failure that has no results.
    pub(crate) fn fail(&mut self, answer: Answer, status: Status) {
        self.respond(answer, status, &Response::Failed);
    }

    /// Answers with a status and, where the protocol has them, results.
    pub(crate) fn respond(&mut self, answer: Answer, status: Status, response: &Response<'_>) {
        let mut message = [0; RESPONSE_HEAD_BYTES];
        match self.encode(answer, status, response, &mut message) {
            Err(EncodeError::Space) => {
                // Only directory listings and link texts are longer than the stack
                // buffer; they are bounded by the response size.
                let mut long = vec![0; self.response_bytes_max(answer.endpoint)];
                let encoded = self.encode_again(answer, response, &mut long);
                self.send_encoded(answer, status, encoded, &long);
            }
            encoded => self.send_encoded(answer, status, encoded, &message),
        }
    }

    /// Answers a transfer that succeeded.
    pub(crate) fn reply_moved(&mut self, answer: Answer, response: &Response<'_>) {
        let mut message = [0; TRANSFER_ANSWER_BYTES];
        let encoded = self.encode(answer, Status::Ok, response, &mut message);
        self.send_encoded(answer, Status::Ok, encoded, &message);
    }

    /// Sends the answer at the front of `message`, or that it could not be encoded.
    #[inline]
    pub(crate) fn send_encoded(
        &mut self,
        answer: Answer,
        status: Status,
        encoded: Result<usize, EncodeError>,
        message: &[u8],
    ) {
        match encoded {
            Ok(length) => self.deliver(answer, status, &message[..length]),
            Err(error) => self.send_failure(answer, error.status()),
        }
    }

    /// Sends results whose data follows in `segments` of the cache's arena; the cookie
    /// tells when they have been read.
    pub(crate) fn reply_with_data(
        &mut self,
        answer: Answer,
        response: &Response<'_>,
        segments: &[dafs_dat::LocalSegment],
        cookie: Cookie,
    ) {
        let mut message = [0; RESPONSE_HEAD_BYTES];
        let Ok(length) = self.encode(answer, Status::Ok, response, &mut message) else {
            self.send_failure(answer, Status::ServerFault);
            // The connection is gone, and what was lent with it.
            return self.on_loan_done(cookie);
        };
        if self.has_checksums(answer.endpoint) {
            self.send_sealed(answer.endpoint, &mut message[..length], segments);
            return self.on_loan_done(cookie);
        }
        let mut gather = arrayvec::ArrayVec::<Gather<'_>, GATHER_MAX>::new();
        gather.push(Gather::Bytes(&message[..length]));
        gather.extend(segments.iter().map(|segment| Gather::Segment(*segment)));
        let options = SendOptions { signal: Signal::Always, invalidate: None };
        let posted = self.interface.post_send(answer.endpoint, cookie.pack(), &gather, options);
        self.owe_receives(answer.endpoint);
        if posted.is_err() {
            self.give_up(answer.endpoint);
            self.on_loan_done(cookie);
        }
    }

    /// A refused connect: the header shows the version the server has.
    pub(crate) fn refuse_version(&mut self, answer: Answer, status: Status, version: u32) {
        let Some(order) = self.order_of(answer.endpoint) else { return };
        let Some(channel) = self.channels.get_mut(answer.endpoint) else { return };
        let books = (&mut self.filer, &mut self.meter);
        let mut header = grant(books, channel, answer, status, Moved::Nothing);
        header.version = version;
        let mut message = [0; RESPONSE_HEAD_BYTES];
        if let Ok(length) = encode_response(order, &header, &Response::Failed, &mut message) {
            self.send(answer.endpoint, &message[..length]);
        }
    }

    #[inline]
    pub(crate) fn encode(
        &mut self,
        answer: Answer,
        status: Status,
        response: &Response<'_>,
        message: &mut [u8],
    ) -> Result<usize, EncodeError> {
        if answer.chain.is_some() {
            self.note_member(answer, status, response);
        }
        let may_wait = self.may_wait(answer);
        let Some(channel) = self.channels.get_mut(answer.endpoint) else {
            if answer.kept().is_some() {
                self.conclude_undelivered(answer, status, response);
            }
            return Err(EncodeError::Value { what: "an answer without a channel" });
        };
        let Some(order) = channel.order else {
            return Err(EncodeError::Value { what: "an answer before a request" });
        };
        let limit = channel.response_bytes_max.min(message.len());
        let has_checksums = channel.checksums;
        let header = match may_wait {
            true => blank(answer, status, NO_TARGET),
            false => {
                let books = (&mut self.filer, &mut self.meter);
                grant(books, channel, answer, status, Moved::by(response))
            }
        };
        let encoded = encode_response(order, &header, response, &mut message[..limit]);
        let length = encoded.inspect_err(|_| self.unsent = Some(header))?;
        if has_checksums {
            seal(&mut message[..length], &[]);
        }
        Ok(length)
    }

    /// Whether an answer may be held back by the journal, so that others are sent before
    /// it: it takes its grant when it is sent. Grants are for the client what the order of
    /// answers makes of them (draft 3.2.6), and the filer must see the same order.
    #[inline]
    fn may_wait(&self, answer: Answer) -> bool {
        answer.logged || self.answer_after.0 != 0
    }

    /// Sends an answer that may have waited.
    pub(crate) fn send_waited(&mut self, answer: Answer, message: &[u8]) {
        let order = self.order_of(answer.endpoint).unwrap_or(ByteOrder::NATIVE);
        let has_checksums = self.has_checksums(answer.endpoint);
        let Ok(header) = ResponseHeader::decode(order, message) else { return };
        let Some(channel) = self.channels.get_mut(answer.endpoint) else { return };
        if header.target_credits != NO_TARGET {
            return self.send(answer.endpoint, message);
        }
        let books = (&mut self.filer, &mut self.meter);
        let granted = grant(books, channel, answer, header.status, Moved::Nothing);
        let mut message = message.to_vec();
        ResponseHeader::set_target_credits(order, granted.target_credits, &mut message);
        if has_checksums {
            seal(&mut message, &[]);
        }
        self.send(answer.endpoint, &message);
    }

    /// Encodes into a longer buffer; the grant was taken by the first try.
    fn encode_again(
        &mut self,
        answer: Answer,
        response: &Response<'_>,
        message: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let header = self.unsent.ok_or(EncodeError::Space)?;
        let order = self.order_of(answer.endpoint).ok_or(EncodeError::Space)?;
        let length = encode_response(order, &header, response, message)?;
        self.unsent = None;
        if self.has_checksums(answer.endpoint) {
            seal(&mut message[..length], &[]);
        }
        Ok(length)
    }

    /// Sends a failure under the header whose results could not be encoded.
    pub(crate) fn send_failure(&mut self, answer: Answer, status: Status) {
        let Some(mut header) = self.unsent.take() else { return };
        let Some(order) = self.order_of(answer.endpoint) else { return };
        if answer.chain.is_some() {
            self.break_chain(answer);
        }
        header.status = status;
        let mut message = [0; RESPONSE_HEAD_BYTES];
        if let Ok(length) = encode_response(order, &header, &Response::Failed, &mut message) {
            if self.has_checksums(answer.endpoint) {
                seal(&mut message[..length], &[]);
            }
            self.deliver(answer, status, &message[..length]);
        }
    }

    /// Sends an answer; keeps it first if it is to be kept.
    #[inline]
    fn deliver(&mut self, answer: Answer, status: Status, message: &[u8]) {
        if answer.kept().is_some() {
            let octets = &message[HEADER_BYTES..];
            return self.conclude_kept(answer, status, octets, Some(message));
        }
        if self.answer_after.0 != 0 {
            return self.delay_answer(answer, message);
        }
        self.send(answer.endpoint, message);
    }

    /// Octets were moved for a request whose answer does not say how many.
    pub(crate) fn note_moved(&mut self, endpoint: EndpointId, reading: Reading, moved: Moved) {
        if let Some(channel) = self.channels.get_mut(endpoint) {
            self.meter.add(reading, moved, &mut channel.traffic);
        }
    }

    #[inline]
    pub(crate) fn send(&mut self, endpoint: EndpointId, message: &[u8]) {
        let gather = [Gather::Bytes(message)];
        let silent = Cookie::Silent.pack();
        let is_posted = self.interface.post_send(endpoint, silent, &gather, QUIET).is_ok();
        self.end_send(endpoint, is_posted);
    }

    /// What follows upon the post of an answer.
    #[inline]
    pub(crate) fn end_send(&mut self, endpoint: EndpointId, is_posted: bool) {
        if !is_posted {
            self.give_up(endpoint);
        }
        self.fetch_ahead();
        self.fetch_ahead();
        self.owe_receives(endpoint);
    }

    /// Answers have brought the client credits: receives are to be posted for them, once the
    /// answers are out. Until then there are spare ones.
    #[inline]
    pub(crate) fn owe_receives(&mut self, endpoint: EndpointId) {
        let Some(channel) = self.channels.get(endpoint) else { return };
        if channel.receives_due >= RECEIVES_SPARE {
            self.post_receives(endpoint);
        } else if channel.receives_due > 0 && self.owing.last() != Some(&endpoint) {
            self.owing.push(endpoint);
        }
    }

    /// Posts all receives that are owed. The answers are out.
    #[inline]
    pub(crate) fn pay_receives(&mut self) {
        while let Some(endpoint) = self.owing.pop() {
            self.post_receives(endpoint);
        }
    }

    fn post_receives(&mut self, endpoint: EndpointId) {
        let Some(channel) = self.channels.get_mut(endpoint) else { return };
        while channel.receives_due > 0 && channel.inbox.post(&mut self.interface, endpoint) {
            channel.receives_due -= 1;
        }
    }

    /// Sends data with a checksum. It is copied: where it lies, a write may change it
    /// before the transport has fetched it.
    fn send_sealed(
        &mut self,
        endpoint: EndpointId,
        prefix: &mut [u8],
        segments: &[dafs_dat::LocalSegment],
    ) {
        let mut message = prefix.to_vec();
        for segment in segments {
            let offset = usize::try_from(segment.offset).unwrap_or(usize::MAX);
            message.extend(self.cache.arena().to_vec(offset, segment.length as usize));
        }
        seal(&mut message, &[]);
        self.send(endpoint, &message);
    }
}

/// Takes the grant that goes along with an answer; its receives are posted once that is out.
#[inline]
fn grant(
    (filer, meter): (&mut Filer, &mut Meter),
    channel: &mut Channel,
    answer: Answer,
    status: Status,
    moved: Moved,
) -> ResponseHeader {
    let header = grant_credits(filer, channel, answer, status);
    count((filer, meter), channel, answer, status, moved);
    header
}

#[inline]
fn grant_credits(
    filer: &mut Filer,
    channel: &mut Channel,
    answer: Answer,
    status: Status,
) -> ResponseHeader {
    let grant = filer.finish(channel.id, answer.stream);
    channel.receives_due += grant.receives_to_post;
    blank(answer, status, grant.target_nreq)
}

/// Counts a request that is answered.
#[inline]
pub(crate) fn count(
    (filer, meter): (&mut Filer, &mut Meter),
    channel: &mut Channel,
    answer: Answer,
    status: Status,
    moved: Moved,
) {
    meter.add(answer.reading, moved, &mut channel.traffic);
    if let Some(taken) = meter.complete(answer.reading, status, &mut channel.traffic) {
        let outcome = (status, moved.length(), taken);
        follow::tell(&mut meter.followers, filer, channel, answer, outcome);
    }
}

/// Takes the grant of an answer that was made before, with the credits it would likely bring. It
/// is to be counted once it is out.
#[inline]
pub(crate) fn take_grant(
    filer: &mut Filer,
    channel: &mut Channel,
    answer: Answer,
    message: &mut [u8],
) {
    let order = channel.order.unwrap_or(ByteOrder::NATIVE);
    let granted = grant_credits(filer, channel, answer, Status::Ok);
    ResponseHeader::set_target_credits(order, granted.target_credits, message);
}

/// A header for results that are kept and not sent.
pub(crate) fn blank_header(stream: StreamId, status: Status) -> ResponseHeader {
    ResponseHeader {
        version: PROTOCOL_VERSION,
        target_credits: 1,
        conditions: SpecialConditions(0),
        stream,
        sequence: SequenceNumber(0),
        analyzer: 0,
        checksum: Checksum::NONE,
        status,
        length: 0,
    }
}

#[inline]
pub(crate) fn blank(answer: Answer, status: Status, target_credits: u16) -> ResponseHeader {
    ResponseHeader {
        version: PROTOCOL_VERSION,
        target_credits,
        conditions: SpecialConditions(0),
        stream: answer.stream,
        sequence: answer.sequence,
        analyzer: answer.analyzer,
        checksum: Checksum::NONE,
        status,
        length: 0,
    }
}

/// Of an answer that went out nothing more is to be heard.
pub(crate) const QUIET: SendOptions = SendOptions { signal: Signal::OnError, invalidate: None };
/// In a header whose grant has not been taken yet; no grant is for nothing.
const NO_TARGET: u16 = 0;
/// Room for any response that is not a listing.
const RESPONSE_HEAD_BYTES: usize = 512;
/// Header and the pieces of one inline read.
const GATHER_MAX: usize = dafs_store::cache::PIECE_COUNT_MAX + 1;
