//! Dispatches requests from messages to the code of their procedures.
//!
//! Invariant: no argument of a request is used before the request is admitted. Of a damaged
//! request, only the fields that a reply needs are used.

use dafs_dat::{EndpointId, InboxSlot};
use dafs_files::delegations::Told;
use dafs_files::outcome::NotDone;
use dafs_sessions::{
    Admitted, ChainPlace, ChannelId, KeptSession, Refusal, RequestClass, RequestHead, RequestName,
};
use dafs_types::{CredHandle, Status};
use dafs_wire::{
    ByteOrder, ChainFlags, DecodeError, PROTOCOL_VERSION, Procedure, ReplayClass, Request,
    RequestHeader, Response, decode_arguments, is_intact,
};

use crate::handoff::Handoff;
use crate::reactor::Reactor;
use crate::reply_to::{ChainId, ReplyTo};
use crate::requests::chain::Waiting;
use crate::requests::handles;
use crate::requests::respond::ReplyStatus;
use crate::requests::set_aside::Asked;
use crate::requests::translate;
use crate::waiting::fencing::touched;

impl Reactor<'_> {
    /// Serves the message in a slot of the channel's inbox. The message is not copied out of the
    /// slot.
    #[inline]
    pub(crate) fn on_message(&mut self, endpoint: EndpointId, mut slot: InboxSlot, length: u32) {
        self.fetch_ahead();
        let Some(channel) = self.shared.channels.get_mut(endpoint) else { return };
        let message = slot.message(length);
        if channel.back.is_some() {
            self.on_back_message(endpoint, message);
        } else {
            if channel.order.is_none() {
                channel.order = RequestHeader::detect_order(message);
            }
            self.serve(endpoint, message);
        }
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            channel.inbox.give_back(slot);
        }
    }

    fn serve(&mut self, endpoint: EndpointId, message: &mut [u8]) {
        let Some(channel) = self.shared.channels.get(endpoint) else { return };
        let (id, checksums) = (channel.id, channel.checksums);
        let Some(order) = channel.order else {
            tracing::debug!(?endpoint, "the first message is not a DAFS request");
            return self.give_up(endpoint);
        };
        let header = match RequestHeader::decode(order, message) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(?endpoint, %error, "a message without a valid header");
                return self.give_up(endpoint);
            }
        };
        self.fetch_ahead();
        let mut answer = ReplyTo::new(endpoint, header.stream, header.sequence);
        answer.analyzer = header.analyzer;
        answer.reading = self.shared.meter.arrive(header.procedure);
        answer.is_acting = header.credentials != CredHandle::default();
        // If a request is damaged, only the fields that direct the reply are used.
        let is_damaged = checksums && !is_intact(message);
        let head = if is_damaged { head_of_damaged(&header) } else { head_of(&header) };
        let admitted = match self.shared.sessions.admit(
            &mut self.shared.filer,
            id,
            &head,
            self.shared.life.now(),
        ) {
            Ok(admitted) if !is_damaged => admitted,
            Ok(_) => return self.refuse_damaged(answer, id),
            Err(Refusal::Answer(_)) if is_damaged => return self.refuse_damaged(answer, id),
            Err(Refusal::Answer(status)) => {
                self.apply_succession();
                self.know(endpoint);
                self.end_open_chain(endpoint);
                return self.fail(answer, status);
            }
            Err(Refusal::Break(reason)) => {
                tracing::warn!(?endpoint, ?reason, "a client broke the credit rules");
                self.know(endpoint);
                return self.give_up(endpoint);
            }
        };
        self.fetch_ahead();
        // A single branch covers all unusual cases, because each branch adds to the latency of
        // plain requests. The results of reads are never stored, so reads are plain even in a
        // session that stores results. The result of a write that is served immediately is stored
        // after the reply.
        let is_write = header.procedure == Procedure::WriteDirect.number();
        let is_kept = admitted.kept.is_some() && !is_write && is_kept(&header);
        if is_kept | admitted.begins_incarnation | (admitted.place != ChainPlace::Alone) {
            return self.execute_unusual(answer, &admitted, order, &header, message);
        }
        if is_write {
            answer.keep_in_after_reply(admitted.kept);
        }
        self.execute(answer, KeptSession::NONE, order, &header, message);
    }

    #[inline(never)]
    fn execute_unusual(
        &mut self,
        answer: ReplyTo,
        admitted: &Admitted,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        if admitted.begins_incarnation {
            self.apply_succession();
            self.know(answer.endpoint);
        }
        if matches!(admitted.place, ChainPlace::Alone | ChainPlace::First) {
            self.shared.pool.on_request();
        }
        if admitted.place == ChainPlace::Alone {
            self.execute(answer, admitted.kept, order, header, message);
        } else {
            self.take_member(answer, admitted, order, header, message);
        }
    }

    fn refuse_damaged(&mut self, answer: ReplyTo, id: ChannelId) {
        self.apply_succession();
        self.know(answer.endpoint);
        self.shared.sessions.mark_chain_unknown(id);
        self.end_open_chain(answer.endpoint);
        self.fail(answer, Status::Chksum);
    }

    /// Executes an admitted request. The result is stored in the session `kept`, if the server
    /// stores results of this procedure.
    #[inline(always)]
    pub(crate) fn execute(
        &mut self,
        mut answer: ReplyTo,
        kept: KeptSession,
        order: ByteOrder,
        header: &RequestHeader,
        message: &[u8],
    ) {
        let mut decoded = decode_arguments(order, header, message);
        handles::renew_in(&*self.shared.whole_store, &mut decoded);
        match &decoded {
            Ok(request) => {
                let is_plain = matches!(request, Request::ReadDirect(_) | Request::WriteDirect(_));
                if !is_plain {
                    self.settle();
                }
                if kept.is_some() && is_kept(header) {
                    answer.keep_in(kept);
                    // An append is journaled later, when its offset is known.
                    let is_append =
                        matches!(request, Request::AppendInline(_) | Request::AppendDirect(_));
                    answer.logged = is_append && self.shared.ledger.is_some();
                    self.shared.sessions.begin_request(kept, name_of(header));
                }
                if !is_plain
                    && (translate::is_operation(request)
                        && self.execute_as_operation(answer, request)
                        || needs_its_object(request)
                            && self.awaits_search(
                                answer,
                                Asked::Message(message),
                                touched(request),
                            )
                        || self.batch_awaits_search(answer, request, message))
                {
                    return;
                }
                if let Err(why) = self.dispatch(answer, header, request) {
                    self.refuse(answer, why, Asked::Message(message));
                }
            }
            Err(error) => {
                let endpoint = answer.endpoint;
                tracing::debug!(?endpoint, %error, "request refused");
                match *error {
                    // The server supports no lower version, so the reply contains version 0 (draft
                    // 6.1.3). A member of a chain gets the usual reply, because later members
                    // depend on it.
                    DecodeError::Version(asked)
                        if asked < PROTOCOL_VERSION && !answer.chain.is_some() =>
                    {
                        self.refuse_version(answer, error.status(), 0);
                    }
                    _ => self.fail(answer, error.status()),
                }
            }
        }
    }

    /// Serves a request. Returns `Ok` if the reply was sent or the request is parked. On `Err`, the
    /// caller replies with the error.
    pub(crate) fn dispatch(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &Request<'_>,
    ) -> Result<(), NotDone> {
        if self.shared.filer.has_fences() {
            self.check_fences(answer, request)?;
        }
        match request {
            Request::ReadDirect(r) => self.read_direct(answer, r),
            Request::WriteDirect(r) => self.write_direct(answer, r),
            _ => self.ask(answer, header, request, None),
        }
    }

    /// Serves a request that has waited for attributes from the holder of a delegation. See
    /// [`Self::dispatch`].
    #[cold]
    pub(crate) fn dispatch_with_reply(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &Request<'_>,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        if told.is_none() {
            return self.dispatch(answer, header, request);
        }
        self.check_fences(answer, request)?;
        self.ask(answer, header, request, told)
    }

    // ---- members of chains ------------------------------------------------------------

    /// Handles the arrival of a chain member: starts it, or queues it until the members before it
    /// have ended.
    pub(crate) fn take_member(
        &mut self,
        mut answer: ReplyTo,
        admitted: &Admitted,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        let kept = admitted.kept;
        let Some(chain) = self.chain_for(answer.endpoint, admitted.place) else {
            // This is not expected, because the filer enforces the same limits.
            return self.fail(answer, Status::ChainBroken);
        };
        // The field is set in place, because a copy would stall on the store that just wrote it.
        answer.chain = chain;
        if self.shared.waiting.chains().is_busy(chain) {
            // The previous member may be a transfer that is still queued, so queued transfers are
            // finished.
            self.settle();
        }
        if !self.shared.waiting.chains().is_busy(chain) {
            self.execute_member(answer, kept, order, header, message);
        } else if !self.shared.waiting.chains().wait(answer, kept, message) {
            self.shared.waiting.chains().break_off(answer);
            self.fail(answer, Status::Resource);
        }
    }

    /// Returns the chain to which a member belongs. If the member is the first, creates the chain.
    fn chain_for(&mut self, endpoint: EndpointId, place: ChainPlace) -> Option<ChainId> {
        let channel = self.shared.channels.get_mut(endpoint)?;
        match place {
            ChainPlace::Alone => None,
            ChainPlace::First => {
                let chain = self.shared.waiting.chains().make(endpoint);
                channel.open_chain = chain;
                Some(chain)
            }
            ChainPlace::Middle => Some(channel.open_chain).filter(|chain| chain.is_some()),
            ChainPlace::Last => {
                let chain = std::mem::replace(&mut channel.open_chain, ChainId::NONE);
                Some(chain).filter(|chain| chain.is_some())
            }
        }
    }

    /// Ends the chain that a channel has open. Called when a request was refused before its
    /// position in the chain was checked, so that later members of the chain are refused.
    #[cold]
    pub(crate) fn end_open_chain(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            let chain = std::mem::replace(&mut channel.open_chain, ChainId::NONE);
            self.shared.waiting.chains().note_whole(chain);
            self.shared.waiting.chains().free_if_over(chain);
        }
    }

    #[inline(never)]
    fn execute_member(
        &mut self,
        answer: ReplyTo,
        kept: KeptSession,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        match self.shared.waiting.chains().begin(answer, header, message) {
            Ok(()) => self.execute(answer, kept, order, header, message),
            Err(status) => self.fail(answer, status),
        }
    }

    /// Records that the reply to a chain member is ready. The member ends here, unless a journal
    /// record must be durable first.
    #[inline(never)]
    pub(crate) fn note_member(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        response: &Response<'_>,
    ) {
        self.shared.waiting.chains().note(answer, told.status, response);
        if !told.may_wait(answer) {
            self.end_member(answer);
        }
    }

    /// Breaks a chain because the reply of a member could not be encoded and a failure is sent
    /// instead.
    #[cold]
    pub(crate) fn break_chain(&mut self, answer: ReplyTo) {
        self.shared.waiting.chains().break_off(answer);
    }

    /// Ends a chain member, so that the next member may start.
    #[inline]
    pub(crate) fn end_member(&mut self, answer: ReplyTo) {
        if answer.chain.is_some() {
            self.shared.waiting.chains().end(answer);
        }
    }

    /// Starts every member that can start. It is called between events and not at the end of a
    /// member, because otherwise each member of a chain would add a level to the call stack.
    #[inline]
    pub(crate) fn push_chains(&mut self) {
        while let Some(chain) = self.shared.waiting.chains().next_ready() {
            let endpoint = self.shared.waiting.chains().endpoint_of(chain);
            if let Some(endpoint) = endpoint.filter(|endpoint| !self.own.has(*endpoint)) {
                self.shared.handoffs.leave(endpoint.owner(), Handoff::Chain(chain));
                continue;
            }
            self.begin_next(chain);
            self.follow_up();
            if self.shared.waiting.chains().is_none_ready() {
                // The member that was started may be a queued transfer, so queued transfers are
                // finished.
                self.settle();
            }
        }
    }

    fn begin_next(&mut self, chain: ChainId) {
        let Some(Waiting { answer, kept, mut message }) = self.shared.waiting.chains().next(chain)
        else {
            return;
        };
        let Some(order) = self.order_of(answer.endpoint) else { return };
        match RequestHeader::decode(order, &message) {
            Ok(header) => self.execute_member(answer, kept, order, &header, &mut message),
            // This is not expected, because the message was decoded without an error when it
            // arrived.
            Err(error) => self.fail(answer, error.status()),
        }
    }
}

/// Returns true if a request needs the object that its handle names. CLOSE needs only the open.
#[inline]
fn needs_its_object(request: &Request<'_>) -> bool {
    !matches!(request, Request::Close(_))
}

/// Returns true if results of this procedure are stored in a session with a response cache.
#[inline]
fn is_kept(header: &RequestHeader) -> bool {
    match Procedure::from_number(header.procedure).map(Procedure::replay_class) {
        Some(ReplayClass::Always | ReplayClass::WhenComplete) => true,
        Some(ReplayClass::OnRequest) => header.chain_flags.contains(ChainFlags::SAVE),
        Some(ReplayClass::Never) | None => false,
    }
}

fn name_of(header: &RequestHeader) -> RequestName {
    let (stream, sequence) = (header.stream, header.sequence);
    RequestName { stream, sequence, procedure: header.procedure }
}

#[inline]
fn head_of(header: &RequestHeader) -> RequestHead {
    RequestHead {
        stream: header.stream,
        sequence: header.sequence,
        desired_credits: header.desired_credits,
        chain_flags: dafs_sessions::ChainFlags(header.chain_flags.0),
        procedure: header.procedure,
        cred_handle: header.credentials,
        class: RequestClass::of(header.procedure),
    }
}

fn head_of_damaged(header: &RequestHeader) -> RequestHead {
    RequestHead {
        desired_credits: 0,
        chain_flags: dafs_sessions::ChainFlags::default(),
        cred_handle: CredHandle::default(),
        class: RequestClass::Ordinary,
        ..head_of(header)
    }
}
