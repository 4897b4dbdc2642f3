//! Requests without bulk data: encoding, sending when there is a credit, and handling replies.
//!
//! Invariant: the message of a request is kept until its reply has arrived, since it may have to be
//! sent again.

use dafs_dat::Gather;
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::messages::Empty;
use dafs_wire::{
    ByteOrder, EncodeError, HEADER_BYTES, Request, RequestHeader, ResponseHeader, encode_request,
    seal,
};

use crate::core::Core;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::impersonation::{RegisteredCredentials, acting_bits};
use crate::recovery::delay::means_delay;
use crate::requests::is_quick;
use crate::result_sinks::ReplyTicket;
use crate::state::SessionState;
use crate::work::{Pending, QueuedCall};

impl Core {
    /// Sends a request without bulk data, with the credentials `acting` or, if that is `None`, the
    /// client's own. The reply is delivered to the returned ticket.
    pub(crate) fn start_call(
        &mut self,
        key: SessionKey,
        acting: Option<RegisteredCredentials>,
        request: &Request<'_>,
    ) -> Result<ReplyTicket> {
        let bytes_max = self.sessions.open(key)?.terms.request_bytes_max;
        self.start_call_within(key, bytes_max, acting, request)
    }

    /// Sends a request of at most `bytes_max` bytes, as [`Core::start_call`] does.
    pub(crate) fn start_call_within(
        &mut self,
        key: SessionKey,
        bytes_max: u32,
        acting: Option<RegisteredCredentials>,
        request: &Request<'_>,
    ) -> Result<ReplyTicket> {
        let session = self.sessions.open_mut(key)?;
        session.note_request(request);
        let mut message = session.encode_call(bytes_max, acting, request)?;
        // The caller may use a state id from before a restart of the server.
        session.rewrite_state_ids(&mut message);
        let (id, ticket) = (self.sinks.next_id(), self.sinks.replies.make());
        self.queue_call(key, QueuedCall { ticket: Some(ticket), ..QueuedCall::new(id, message) });
        if self.sessions[key].in_flight.credits.outstanding() == 1 {
            self.transport.interface_mut().await_alone(is_quick(request));
        }
        Ok(ticket)
    }

    /// Sends a request whose reply is ignored.
    pub(crate) fn send_ignoring_reply(
        &mut self,
        key: SessionKey,
        request: &Request<'_>,
    ) -> Result<()> {
        let session = self.sessions.open_mut(key)?;
        session.note_request(request);
        let message = session.encode_call(session.terms.request_bytes_max, None, request)?;
        let id = self.sinks.next_id();
        self.queue_call(key, QueuedCall::new(id, message));
        self.transport.flush();
        Ok(())
    }

    /// Sends an encoded request immediately if there is a credit, and otherwise queues it.
    pub(crate) fn queue_call(&mut self, key: SessionKey, call: QueuedCall) {
        let session = &mut self.sessions[key];
        if session.role.has_channels() {
            return self.queue_behind_transfers(key, call);
        }
        match session.in_flight.credits.take() {
            Some((stream, sequence)) => self.send_call(key, stream, sequence, call),
            None => session.in_flight.push_call(call),
        }
    }

    /// In a session with several channels, queues a request until the transfers that it must not
    /// overtake have ended.
    fn queue_behind_transfers(&mut self, key: SessionKey, call: QueuedCall) {
        match self.sessions[key].hold(call) {
            Some(call) => self.send_or_queue_call(key, call),
            None => self.sessions.note_timer(),
        }
    }

    /// Sends a request that need not wait for any transfer, or queues it if there is no credit.
    pub(crate) fn send_or_queue_call(&mut self, key: SessionKey, call: QueuedCall) {
        let in_flight = &mut self.sessions[key].in_flight;
        match in_flight.credits.take() {
            Some((stream, sequence)) => self.send_call(key, stream, sequence, call),
            None => in_flight.push_call(call),
        }
    }

    pub(crate) fn send_call(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        sequence: SequenceNumber,
        mut call: QueuedCall,
    ) {
        let session = &self.sessions[key];
        session.stamp(&mut call.message, stream, sequence);
        let posted = self.transport.post_renamed(session, &call.message);
        self.note_posted(key, stream, Pending::Call(call), posted);
    }

    /// Sends a NULL request, from which the server learns that this client has given up credits as
    /// the server asked.
    pub(crate) fn send_null(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        if !session.is_open() {
            return;
        }
        let Some((stream, sequence)) = session.in_flight.credits.take() else { return };
        let header = RequestHeader {
            desired_credits: 1,
            analyzer: session.label,
            ..RequestHeader::new(stream, sequence)
        };
        let mut message = [0; HEADER_BYTES];
        let request = Request::Null(Empty);
        let Ok(length) = encode_request(ByteOrder::NATIVE, &header, &request, &mut message) else {
            return;
        };
        if session.terms.checksums {
            seal(&mut message[..length], &[]);
        }
        let link = (key, session.endpoint);
        self.post(link, stream, Pending::Ignored, &[Gather::Bytes(&message[..length])]);
    }

    /// Handles the reply to a request without bulk data.
    pub(crate) fn on_called(
        &mut self,
        key: SessionKey,
        mut call: QueuedCall,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        if means_delay(header.status) {
            call = match self.defer_call(key, call) {
                Some(call) => call,
                None => return,
            };
        }
        let session = &mut self.sessions[key];
        session.note_progress();
        if let Some(machine) = &mut session.recovery {
            machine.opens_mut().note_answer(&call.message, message, header.status);
        }
        if let Some(part) = &call.part {
            self.on_batch_answer(key, part, header, message);
        }
        if let Some(ticket) = call.ticket {
            self.sinks.replies.put(ticket, Ok(message.to_vec()));
        }
    }
}

impl SessionState {
    /// Encodes a request of at most `bytes_max` bytes for this session. Its stream and sequence
    /// number are filled in when it is sent.
    pub(crate) fn encode_call(
        &self,
        bytes_max: u32,
        acting: Option<RegisteredCredentials>,
        request: &Request<'_>,
    ) -> Result<Vec<u8>> {
        let mut message = vec![0; bytes_max as usize];
        let header = RequestHeader {
            desired_credits: self.terms.wanted_credits,
            analyzer: acting_bits(acting) | self.label,
            ..RequestHeader::new(StreamId(0), SequenceNumber(0))
        };
        let encoded = encode_request(ByteOrder::NATIVE, &header, request, &mut message);
        let length = encoded.map_err(|error| ClientError::Status {
            what: format!("{}: {error}", request.procedure().name()),
            status: match error {
                // Only names can make these requests too long.
                EncodeError::TooMany { .. } | EncodeError::Space => Status::NameTooLong,
                other => other.status(),
            },
        })?;
        message.truncate(length);
        Ok(message)
    }
}
