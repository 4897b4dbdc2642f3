//! Sends the server's requests to clients, and handles the replies.

use dafs_dat::EndpointId;
use dafs_filer::RecallOutcome;
use dafs_sessions::{ChannelKind, Verified};
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{AuthResult, Completions, Empty, GetAttributes, LockReady, Recall};
use dafs_wire::{
    Array, Procedure, Request, RequestHeader, Response, ResponseHeader, decode_response,
    encode_request, is_intact, seal,
};

use super::{BACK_WAITING_MAX, BackChannel, BackRequest, BackSizes};
use crate::channel::Channel;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::respond::ReplyStatus;
use crate::session::brings_results;

impl Reactor<'_> {
    /// Finishes CONNECT_BIND after its authentication has succeeded or failed.
    pub(crate) fn finish_bind(
        &mut self,
        answer: ReplyTo,
        verified: Result<Verified, Status>,
        sizes: BackSizes,
        authentication: AuthResult<'_>,
    ) {
        let Some(id) = self.shared.channels.get(answer.endpoint).map(|channel| channel.id) else {
            return;
        };
        let operation = match self.shared.sessions.finish_bind(id, verified, self.shared.life.now())
        {
            Ok(operation) => operation,
            Err(status) if brings_results(status, &authentication) => {
                let response = Response::ConnectBind(sizes.result(authentication, false));
                return self.respond(answer, ReplyStatus::now(status), &response);
            }
            Err(status) => return self.fail(answer, status),
        };
        let Some(owner) = self.shared.channels.endpoint_of(operation) else {
            return self.fail(answer, Status::UnknownSession);
        };
        let Some((_, kind)) = self.shared.sessions.bound_to(id) else { return };
        let trusted = self.shared.sessions.is_trusted(operation);
        let response = Response::ConnectBind(sizes.result(authentication, trusted));
        self.reply(answer, &response);
        let checksums = self.has_checksums(owner);
        if let Some(channel) = self.shared.channels.get_mut(answer.endpoint) {
            channel.checksums = checksums;
            channel.back = Some(Box::new(BackChannel::new(owner, kind, sizes)));
        }
        match kind {
            ChannelKind::Operation => {}
            ChannelKind::BackControl => {
                // A bound channel does not count in the distribution of connections over reactors.
                // Otherwise, with two connections for each client, all operation channels would be
                // on the same reactor.
                self.own.interface.discount(answer.endpoint);
                self.open_inbox(answer.endpoint, sizes.requests_max);
                self.ask_client(answer.endpoint, BackRequest::Null);
                self.shared.batches.note_back_channel(
                    &self.shared.sessions,
                    &self.shared.channels,
                    owner,
                    answer.endpoint,
                );
            }
            ChannelKind::RdmaRead => {
                if let Some(owner) = self.shared.channels.get_mut(owner) {
                    owner.reads_over = answer.endpoint;
                }
            }
        }
    }

    /// Posts `count` receive buffers for the replies that the client may send.
    fn open_inbox(&mut self, endpoint: EndpointId, count: u16) {
        let Some(channel) = self.shared.channels.get_mut(endpoint) else { return };
        for _ in 0..count {
            if !channel.inbox.post(&mut self.own.interface, endpoint) {
                return;
            }
        }
    }

    /// Returns the connection that carries the RDMA reads of a session.
    #[inline]
    pub(crate) fn reads_over(&self, endpoint: EndpointId) -> EndpointId {
        self.shared.channels.reads_over(endpoint)
    }

    /// Returns the back-control channel of an operation channel. `None` if the client has bound
    /// none.
    fn back_endpoint(&self, operation: EndpointId) -> Option<EndpointId> {
        let channel = self.shared.channels.get(operation)?;
        self.shared.channels.endpoint_of(self.shared.sessions.back_control(channel.id)?)
    }

    /// Returns true if the client of an operation channel has a back-control channel and has
    /// replied on it.
    pub(crate) fn has_back_channel(&mut self, operation: EndpointId) -> bool {
        let endpoint = self.back_endpoint(operation);
        endpoint.and_then(|endpoint| self.back(endpoint)).is_some_and(|back| back.is_proven)
    }

    /// Sends a request to the client of an operation channel, over its back-control channel.
    /// Returns false if the client has no back-control channel, or does not serve it.
    pub(crate) fn tell(&mut self, operation: EndpointId, request: BackRequest) -> bool {
        let Some(endpoint) = self.back_endpoint(operation) else { return false };
        let listens = |back: &mut BackChannel| match request {
            BackRequest::Null | BackRequest::BatchCompletion { .. } => true,
            BackRequest::LockReady { .. } => back.is_proven && back.knows_locks,
            BackRequest::Recall { .. } | BackRequest::GetAttributes { .. } => back.is_proven,
        };
        let has_room = |back: &mut BackChannel| back.waiting.len() < BACK_WAITING_MAX;
        let is_told = self.back(endpoint).is_some_and(|back| listens(back) && has_room(back));
        if is_told {
            self.ask_client(endpoint, request);
        }
        is_told
    }

    /// Sends a request over a back-control channel, or queues it until the client has a credit.
    pub(crate) fn ask_client(&mut self, endpoint: EndpointId, request: BackRequest) {
        if let Some(back) = self.back(endpoint) {
            back.waiting.push_back(request);
            self.pump_back(endpoint);
        }
    }

    fn back(&mut self, endpoint: EndpointId) -> Option<&mut BackChannel> {
        self.shared.channels.get_mut(endpoint)?.back.as_deref_mut()
    }

    fn pump_back(&mut self, endpoint: EndpointId) {
        while let Some(back) = self.back(endpoint)
            && let Some((stream, sequence, request)) = back.next()
        {
            let room = back.sizes.request_bytes_max as usize;
            let message = self.encode_back(endpoint, stream, sequence, &request, room);
            match message {
                Some(message) => self.send(endpoint, &message),
                // This is not expected, because all requests can be encoded.
                None => return self.give_up(endpoint),
            }
        }
    }

    fn encode_back(
        &self,
        endpoint: EndpointId,
        stream: StreamId,
        sequence: SequenceNumber,
        request: &BackRequest,
        room: usize,
    ) -> Option<Vec<u8>> {
        let channel = self.shared.channels.get(endpoint)?;
        let header = RequestHeader::new(stream, sequence);
        let request = match request {
            BackRequest::Null => Request::BcNull(Empty),
            BackRequest::LockReady { file, state, offset, length } => {
                let (file, state, offset, length) = (*file, *state, *offset, *length);
                Request::BcLockReady(LockReady { file, state, offset, length })
            }
            BackRequest::Recall { file, state, truncate, .. } => {
                let (file, state, truncate) = (*file, *state, *truncate);
                Request::BcRecall(Recall { file, state, truncate })
            }
            BackRequest::GetAttributes { file, .. } => {
                let wanted = bits::OBJECT_SIZE.with(bits::CHANGE);
                Request::BcGetAttr(GetAttributes { file: *file, wanted })
            }
            BackRequest::BatchCompletion { completions } => {
                let completions = Array::from(&completions[..]);
                Request::BcBatchCompletion(Completions { completions })
            }
        };
        let mut message = vec![0; room];
        let length = encode_request(channel.order?, &header, &request, &mut message).ok()?;
        message.truncate(length);
        if channel.checksums {
            seal(&mut message, &[]);
        }
        Some(message)
    }

    /// Handles a message on a bound channel. Any message other than a valid reply breaks the
    /// connection.
    pub(crate) fn on_back_message(&mut self, endpoint: EndpointId, message: &[u8]) {
        if self.take_back_answer(endpoint, message).is_none() {
            tracing::warn!(
                ?endpoint,
                "invalid message on the back-control channel; the connection is broken"
            );
            self.give_up(endpoint);
        }
    }

    fn take_back_answer(&mut self, endpoint: EndpointId, message: &[u8]) -> Option<()> {
        let channel = self.shared.channels.get_mut(endpoint)?;
        let header = ResponseHeader::decode(channel.order?, message).ok()?;
        if channel.checksums && !is_intact(message) {
            return None;
        }
        channel.receives_due += 1;
        let order = channel.order?;
        let back = channel.back.as_deref_mut()?;
        let request = back.answered(&header)?;
        let is_ok = header.status == Status::Ok;
        match request {
            BackRequest::Null => {
                back.is_proven |= is_ok;
                self.note_proven(endpoint);
            }
            // A client that does not support this message requests the lock again without it.
            BackRequest::LockReady { .. } => back.knows_locks &= is_ok,
            BackRequest::Recall { client, state, .. } => {
                let answer = if is_ok { RecallOutcome::Accepted } else { RecallOutcome::Refused };
                self.on_recalled(client, state, answer);
            }
            BackRequest::GetAttributes { waiter, .. } => {
                let decoded = decode_response(order, Procedure::BcGetAttr, message);
                let told = match &decoded {
                    Ok((_, Response::BcGetAttr(told))) if is_ok => Some(told.attributes.file()),
                    _ => None,
                };
                self.on_holder_reply(waiter, told.as_ref());
            }
            BackRequest::BatchCompletion { .. } => {}
        }
        self.owe_receives(endpoint);
        self.pump_back(endpoint);
        // The reply has freed a credit, so another notice may be sent.
        self.shared.batches.wake();
        Some(())
    }

    /// Records the first reply of a client on its back-control channel.
    fn note_proven(&mut self, endpoint: EndpointId) {
        let operation =
            self.back(endpoint).filter(|back| back.is_proven).map(|back| back.operation);
        let channel = operation.and_then(|operation| self.shared.channels.get(operation));
        if let Some(client) = channel.map(|channel| channel.party.client) {
            self.shared.filer.can_recall(client);
        }
    }

    /// Unbinds a bound connection that has ended. The operation channel continues without it.
    pub(crate) fn end_back(&mut self, channel: &Channel) {
        let Some(back) = &channel.back else { return };
        if let Some(owner) = self.shared.channels.get_mut(back.operation)
            && owner.reads_over == channel.endpoint
        {
            owner.reads_over = owner.endpoint;
        }
        if back.kind == ChannelKind::BackControl {
            self.shared.batches.lose_back_channel(
                &self.shared.channels,
                back.operation,
                channel.endpoint,
            );
        }
        for request in back.asked.iter().flatten().chain(&back.waiting) {
            match *request {
                BackRequest::Null
                | BackRequest::LockReady { .. }
                | BackRequest::BatchCompletion { .. } => {}
                BackRequest::Recall { client, state, .. } => {
                    self.on_recalled(client, state, RecallOutcome::Undelivered);
                }
                BackRequest::GetAttributes { waiter, .. } => self.on_holder_reply(waiter, None),
            }
        }
    }
}
