//! Requests: from a message to whoever serves its procedure.
//!
//! Invariant: nothing of a request is believed before it was admitted, and of a damaged one
//! nothing but where its answer goes.

use dafs_dat::{EndpointId, InboxSlot};
use dafs_filer::{
    Admitted, ChainPlace, ChannelId, KeptSession, Refusal, RequestClass, RequestHead, RequestName,
};
use dafs_types::CredHandle;
use dafs_wire::{
    ByteOrder, ChainFlags, DecodeError, PROTOCOL_VERSION, Procedure, ReplayClass, Request,
    RequestHeader, is_intact,
};

use crate::handles;
use crate::reactor::Reactor;
use crate::task::Answer;

impl Reactor {
    /// A message is in a slot of its channel's inbox, and is read where it lies.
    #[inline]
    pub(crate) fn on_message(&mut self, endpoint: EndpointId, mut slot: InboxSlot, length: u32) {
        self.fetch_ahead();
        let Some(channel) = self.channels.get_mut(endpoint) else { return };
        let message = slot.message(length);
        if channel.back.is_some() {
            self.on_back_message(endpoint, message);
        } else {
            if channel.order.is_none() {
                channel.order = RequestHeader::detect_order(message);
            }
            self.serve(endpoint, message);
        }
        if let Some(channel) = self.channels.get_mut(endpoint) {
            channel.inbox.give_back(slot);
        }
    }

    fn serve(&mut self, endpoint: EndpointId, message: &mut [u8]) {
        self.requests += 1;
        let Some(channel) = self.channels.get(endpoint) else { return };
        let (id, checksums) = (channel.id, channel.checksums);
        let Some(order) = channel.order else {
            tracing::debug!(?endpoint, "first message is no DAFS request");
            return self.give_up(endpoint);
        };
        let header = match RequestHeader::decode(order, message) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(?endpoint, %error, "message without a readable header");
                return self.give_up(endpoint);
            }
        };
        self.fetch_ahead();
        let mut answer = Answer::new(endpoint, header.stream, header.sequence);
        answer.analyzer = header.analyzer;
        answer.reading = self.meter.arrive(header.procedure);
        answer.is_acting = header.credentials != CredHandle::default();
        // Of a damaged request nothing is believed but where its answer goes.
        let is_damaged = checksums && !is_intact(message);
        let head = if is_damaged { head_of_damaged(&header) } else { head_of(&header) };
        let admitted = match self.filer.admit(id, &head, self.now) {
            Ok(admitted) if !is_damaged => admitted,
            Ok(_) => return self.refuse_damaged(answer, id),
            Err(Refusal::Answer(_)) if is_damaged => return self.refuse_damaged(answer, id),
            Err(Refusal::Answer(status)) => {
                self.succeed();
                self.end_open_chain(endpoint);
                return self.fail(answer, status);
            }
            Err(Refusal::Break(reason)) => {
                tracing::warn!(?endpoint, ?reason, "client broke the credit rules");
                return self.give_up(endpoint);
            }
        };
        self.fetch_ahead();
        // One branch for all that is not usual: the way of a plain request is counted in them.
        // Reads of a session that keeps results are plain: theirs are not kept. Those of writes
        // that are served at once are kept when the answer is out.
        let is_write = header.procedure == Procedure::WriteDirect.number();
        let is_kept = admitted.kept.is_some() && !is_write && is_kept(&header);
        if is_kept | admitted.begins_life | (admitted.place != ChainPlace::Alone) {
            return self.carry_unusual(answer, &admitted, order, &header, message);
        }
        if is_write {
            answer.keep_later_in(admitted.kept);
        }
        self.carry(answer, KeptSession::NONE, order, &header, message);
    }

    #[inline(never)]
    fn carry_unusual(
        &mut self,
        answer: Answer,
        admitted: &Admitted,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        if admitted.begins_life {
            self.succeed();
        }
        if matches!(admitted.place, ChainPlace::Alone | ChainPlace::First) {
            self.crowd.on_request();
        }
        if admitted.place == ChainPlace::Alone {
            self.carry(answer, admitted.kept, order, header, message);
        } else {
            self.take_member(answer, admitted, order, header, message);
        }
    }

    fn refuse_damaged(&mut self, answer: Answer, id: ChannelId) {
        self.succeed();
        self.filer.doubt_chain(id);
        self.end_open_chain(answer.endpoint);
        self.fail(answer, dafs_types::Status::Chksum);
    }

    /// Has a request carried out that was let in. Its result is kept in `kept`, if it is of
    /// those that are.
    #[inline(always)]
    pub(crate) fn carry(
        &mut self,
        mut answer: Answer,
        kept: KeptSession,
        order: ByteOrder,
        header: &RequestHeader,
        message: &[u8],
    ) {
        // Looked at where it is: a request is a few cache lines.
        match &handles::decode(&*self.whole_store, order, header, message) {
            Ok(request) => {
                let is_plain = matches!(request, Request::ReadDirect(_) | Request::WriteDirect(_));
                if !is_plain {
                    self.settle();
                }
                if kept.is_some() && is_kept(header) {
                    answer.keep_in(kept);
                    // Appends go through the journal once they have their place.
                    let is_append =
                        matches!(request, Request::AppendInline(_) | Request::AppendDirect(_));
                    answer.logged = is_append && self.ledger.is_some();
                    self.filer.begin_request(kept, name_of(header));
                }
                if !is_plain
                    && (self.awaits_search(answer, request, message)
                        || self.is_gated(answer, request, message))
                {
                    return;
                }
                if let Err(status) = self.dispatch(answer, header, request) {
                    self.refuse(answer, status, message);
                }
            }
            Err(error) => {
                let endpoint = answer.endpoint;
                tracing::debug!(?endpoint, %error, "request refused");
                match *error {
                    // No lower version is served, so 0 is told (draft 6.1.3). A member of a
                    // chain is answered as any, for the sake of those behind it.
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

    /// Serves one request. `Err` is answered by the caller; `Ok` means that the
    /// answer is sent or that the request is parked.
    pub(crate) fn dispatch(
        &mut self,
        answer: Answer,
        header: &RequestHeader,
        request: &Request<'_>,
    ) -> Result<(), dafs_types::Status> {
        if self.filer.has_fences() {
            self.pass(answer, request)?;
        }
        match request {
            Request::ReadDirect(r) => self.read_direct(answer, r),
            Request::ReadInline(r) => self.read_inline(answer, r),
            Request::WriteDirect(r) => self.write_direct(answer, r),
            Request::WriteInline(r) => self.write_inline(answer, r),
            Request::AppendInline(r) => self.append_inline(answer, r),
            Request::AppendDirect(r) => self.append_direct(answer, r),
            Request::Commit(r) => self.commit(answer, r),
            Request::CacheHint(r) => self.cache_hint(answer, r),
            Request::ClientConnect(r) => self.client_connect(answer, header, r),
            Request::ClientConnectAuth(r) => self.client_connect_auth(answer, header, r),
            Request::ClientAuth(r) => self.client_auth(answer, r),
            Request::ConnectBind(r) => self.connect_bind(answer, header, r),
            Request::SecInfo(_) => self.security_info(answer),
            Request::Disconnect(_) => self.disconnect(answer),
            Request::Null(_) => self.null(answer),
            Request::GetRootHandle(_) => self.root_handle(answer),
            Request::Lookup(r) => self.lookup(answer, r),
            Request::LookupP(r) => self.lookup_parent(answer, r),
            Request::Access(r) => self.access(answer, r),
            Request::GetAttrInline(r) => self.get_attributes(answer, r),
            Request::GetAttrDirect(r) => self.get_attributes_direct(answer, r),
            Request::GetFsAttr(r) => self.get_fs_attributes(answer, r),
            Request::SetAttrInline(r) => self.set_attributes(answer, r),
            Request::SetAttrDirect(r) => self.set_attributes_direct(answer, r),
            Request::Verify(r) => self.verify(answer, r, true),
            Request::NVerify(r) => self.verify(answer, r, false),
            Request::Open(r) => self.open(answer, r),
            Request::OpenDowngrade(r) => self.open_downgrade(answer, r),
            Request::Close(r) => self.close(answer, r),
            Request::Create(r) => self.create(answer, r),
            Request::Link(r) => self.link(answer, r),
            Request::Remove(r) => self.remove(answer, r),
            Request::Rename(r) => self.rename(answer, r),
            Request::OpenAttr(r) => self.open_attributes(answer, r),
            Request::ReadDirInline(r) => self.read_directory(answer, r),
            Request::ReadDirDirect(r) => self.read_directory_direct(answer, r),
            Request::ReadLinkInline(r) => self.read_link(answer, r),
            Request::ReadLinkDirect(r) => self.read_link_direct(answer, r),
            Request::Lock(r) => self.lock(answer, r),
            Request::LockT(r) => self.lock_test(answer, r),
            Request::LockU(r) => self.unlock(answer, r),
            Request::CheckResponse(r) => self.check_response(answer, r),
            Request::FetchResponse(r) => self.fetch_response(answer, r),
            Request::DiscardResponses(r) => self.discard_responses(answer, r),
            Request::BatchSubmit(r) => self.batch_submit(answer, r),
            Request::HurryUp(r) => self.hurry_up(answer, r),
            Request::RegisterCred(r) => self.register_credentials(answer, r),
            Request::ReleaseCred(r) => self.release_credentials(answer, r),
            Request::ServerAuth(r) => self.server_auth(answer, r),
            Request::GetFencingList(r) => self.get_fencing_list(answer, r),
            Request::SetFencingList(r) => self.set_fencing_list(answer, r),
            Request::DelegReturn(r) => self.return_delegation(answer, r),
            Request::DelegPurge(_) => self.purge_delegations(answer),
            // Asked by servers alone.
            Request::BcGetAttr(_)
            | Request::BcNull(_)
            | Request::BcRecall(_)
            | Request::BcLockReady(_)
            | Request::BcBatchCompletion(_) => Err(dafs_types::Status::NotSupp),
        }
    }
}

/// Whether the result of a request is kept in a session that has a response cache.
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
        desired_nreq: header.desired_credits,
        chain_flags: dafs_filer::ChainFlags(header.chain_flags.0),
        procedure: header.procedure,
        cred_handle: header.credentials,
        class: RequestClass::of(header.procedure),
    }
}

fn head_of_damaged(header: &RequestHeader) -> RequestHead {
    RequestHead {
        desired_nreq: 0,
        chain_flags: dafs_filer::ChainFlags::default(),
        cred_handle: CredHandle::default(),
        class: RequestClass::Ordinary,
        ..head_of(header)
    }
}
