//! Sets aside requests that cannot be executed immediately, and executes them later.

use dafs_dat::EndpointId;
use dafs_filer::{DelegationAction, FenceKey, RecallOutcome, WaiterId};
use dafs_files::delegations::Told;
use dafs_files::outcome::{HolderQuery, NotDone};
use dafs_ops::Operation;
use dafs_types::{ClientId, FileAttributes, FileHandle, StateId, Status};
use dafs_wire::messages::{DiscardResponses, Empty};
use dafs_wire::{Request, RequestHeader, Response};

use super::ResultQuery;
use crate::guests::GuestResult;
use crate::guests::table::GuestNotice;
use crate::handoff::Handoff;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::answers::refusal_response;
use crate::requests::decode::Scratch;
use crate::requests::handles;
use crate::requests::procedures::changes::procedure_of;
use crate::requests::respond::ReplyStatus;
use crate::requests::set_aside::{Asked, SetAside};
use crate::requests::translate;
use crate::session::back::BackRequest;

impl Reactor<'_> {
    // ---- execution --------------------------------------------------------------------

    /// Executes a request as an operation. Returns false, without any effect, if the request cannot
    /// be converted to an operation.
    #[inline(never)]
    pub(crate) fn execute_as_operation(&mut self, to: ReplyTo, request: &Request<'_>) -> bool {
        let mut scratch = Scratch::new();
        let translated = translate::operation(request, &mut scratch);
        // A malformed request is reported by the code that executes it. The value is borrowed in
        // place, because it is too large to move.
        let Ok(Some(operation)) = &translated else {
            return false;
        };
        let waits = has_effect_early(operation)
            && self.awaits_search(to, Asked::Operation(operation), operation.fenced_objects());
        if !waits
            && !self.journal_if_needed(to, operation)
            && let Err(why) = self.execute_operation(to, operation)
        {
            self.refuse(to, why, Asked::Operation(operation));
        }
        true
    }

    /// Executes an operation, provided that the fencing lists allow it.
    pub(crate) fn execute_operation(
        &mut self,
        to: ReplyTo,
        operation: &Operation<'_>,
    ) -> Result<(), NotDone> {
        if self.shared.filer.has_fences() {
            self.check_fences_of(to, operation.fenced_objects())?;
        }
        self.operate(to, operation)
    }

    /// Executes a request that was set aside, from its start. The request may have to wait again,
    /// for another event. Its message was valid when it was set aside.
    ///
    /// # Errors
    /// See [`Reactor::dispatch`]: the caller replies with the error, or sets the request aside
    /// again.
    pub(crate) fn execute_set_aside(
        &mut self,
        to: ReplyTo,
        kept: &SetAside,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        match kept {
            SetAside::Operation(bytes) => {
                let operation = Operation::decode(bytes).ok_or(Status::ServerFault)?;
                match to.logged || !self.journal_if_needed(to, &operation) {
                    true => self.execute_operation(to, &operation),
                    false => Ok(()),
                }
            }
            SetAside::Message(message) => {
                let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
                let store = self.shared.whole_store.clone();
                let decoded = RequestHeader::decode(order, message).and_then(|header| {
                    Ok((header, handles::decode(&*store, order, &header, message)?))
                });
                let (header, request) = decoded.map_err(|error| error.status())?;
                self.dispatch_with_reply(to, &header, &request, told)
            }
            SetAside::Guest => Err(Status::ServerFault.into()),
        }
    }

    /// Executes a request that was set aside, or sets it aside again if it still cannot be
    /// executed. Drops a request whose connection has ended, because its caller is no longer known.
    pub(crate) fn resume_request(&mut self, to: ReplyTo, kept: SetAside, told: Option<Told>) {
        self.resume_request_in(to, kept, told, true);
    }

    /// Executes a request that was set aside, on the reactor of its connection. `may_search` is
    /// true if the request has not waited for a search before. See [`Self::resume_request`].
    pub(crate) fn resume_request_in(
        &mut self,
        to: ReplyTo,
        kept: SetAside,
        told: Option<Told>,
        may_search: bool,
    ) {
        if let SetAside::Guest = kept {
            return self.report_to_guest(to, GuestResult::Told(told.unwrap_or(Told::Nothing)));
        }
        if self.order_of(to.endpoint).is_none() {
            self.abandon(to);
            return;
        }
        if !self.own.has(to.endpoint) {
            let work = Handoff::TakeUp { to, kept, told, may_search };
            return self.shared.handoffs.leave(to.endpoint.owner(), work);
        }
        if let Err(why) = self.execute_set_aside(to, &kept, told) {
            self.refuse_again(to, why, &kept, may_search);
        }
    }

    /// Handles a request that was set aside earlier and now, when it was executed again, has failed
    /// again.
    fn refuse_again(&mut self, to: ReplyTo, why: NotDone, kept: &SetAside, may_search: bool) {
        match kept {
            SetAside::Operation(bytes) => match Operation::decode(bytes) {
                Some(operation) => {
                    self.refuse_in(to, why, Asked::Operation(&operation), may_search);
                }
                None => self.fail(to, Status::ServerFault),
            },
            SetAside::Message(message) => {
                self.refuse_in(to, why, Asked::Message(message), may_search);
            }
            SetAside::Guest => {}
        }
    }

    // ---- obstacles --------------------------------------------------------------------

    /// Handles a request that could not be executed: replies to it, or sets it aside.
    #[cold]
    pub(crate) fn refuse(&mut self, to: ReplyTo, why: NotDone, asked: Asked<'_>) {
        self.refuse_in(to, why, asked, true);
    }

    /// Handles a request that could not be executed. `may_search` is true if the request has not
    /// waited for a search before. See [`Self::refuse`].
    fn refuse_in(&mut self, to: ReplyTo, why: NotDone, asked: Asked<'_>, may_search: bool) {
        let to = self.keep_begun(to);
        if may_search && had_no_effect(&why, asked) && self.awaits_search_after_all(to, asked) {
            return;
        }
        match why {
            NotDone::Failed(fault) => self.fail(to, fault.into()),
            NotDone::Partly(refusal) => {
                let told = ReplyStatus::now(refusal.fault.into());
                let response = match asked {
                    Asked::Operation(operation) => {
                        refusal_response(procedure_of(operation), &refusal)
                    }
                    Asked::Message(_) => Response::Failed,
                };
                self.respond(to, told, &response);
            }
            NotDone::AwaitsRecall(waiter) => {
                self.shared.waiting.held.hold(waiter, to, asked.set_aside())
            }
            NotDone::AwaitsHolder(question) => self.ask_holder(to, *question, asked.set_aside()),
        }
    }

    /// Sets a request aside and asks the holder of a delegation for the attributes that the request
    /// needs.
    fn ask_holder(&mut self, to: ReplyTo, question: HolderQuery, kept: SetAside) {
        let HolderQuery { client, file, waiter } = question;
        self.shared.waiting.held.hold_until_told(waiter, to, kept, self.shared.life.now());
        if !self.tell_client(client, &BackRequest::GetAttributes { file, waiter })
            && !self.notify_guest(client, GuestNotice::AskAttributes { client, file, waiter })
        {
            self.on_holder_told(waiter, Told::Nothing);
        }
    }

    /// Does the same for the call of a guest. The call continues with [`GuestResult::Told`].
    pub(crate) fn ask_holder_for_guest(&mut self, to: ReplyTo, question: HolderQuery) {
        self.ask_holder(to, question, SetAside::Guest);
    }

    /// Returns the failure status of a request that cannot be set aside. If the request has caused
    /// a recall, the recall continues.
    #[cold]
    pub(crate) fn without_waiting(&mut self, why: NotDone) -> Status {
        match why {
            NotDone::Failed(fault) => fault.into(),
            NotDone::Partly(refusal) => refusal.fault.into(),
            NotDone::AwaitsRecall(waiter) => {
                self.shared.filer.abandon_waiter(waiter);
                Status::Delay
            }
            // The holder of the delegation has not been asked yet.
            NotDone::AwaitsHolder(_) => Status::Delay,
        }
    }

    // ---- delegations ------------------------------------------------------------------

    /// Sends pending recalls, and continues requests that waited for the return of delegations.
    #[inline]
    pub(crate) fn pump_delegations(&mut self) {
        while let Some(action) = self.shared.filer.take_delegation_action() {
            self.act_on_delegation(action);
        }
    }

    #[cold]
    fn act_on_delegation(&mut self, action: DelegationAction) {
        match action {
            DelegationAction::Recall { client, handle, state_id, truncate } => {
                let (file, state) = (handle, state_id);
                let recall = BackRequest::Recall { client, file, state, truncate };
                let notice = GuestNotice::Recall { state: state_id, truncate };
                if !self.tell_client(client, &recall) && !self.notify_guest(client, notice) {
                    self.on_recalled(client, state_id, RecallOutcome::Undelivered);
                }
            }
            DelegationAction::Resume { waiter } => self.continue_with(waiter, None),
            DelegationAction::Revoked { client, handle } => {
                self.notify_guest(client, GuestNotice::Revoked { client, file: handle });
                tracing::warn!(
                    ?client,
                    ?handle,
                    "a delegation was not returned in time and is revoked"
                );
            }
        }
    }

    /// Tells the reactor of guests about a delegation or a lock of one of their clients. Returns
    /// false if the client is not one of guests.
    pub(crate) fn notify_guest(&mut self, client: ClientId, notice: GuestNotice) -> bool {
        let guests = self.shared.channels.guests_mut();
        let is_guest = guests.notify(client, notice);
        let reactor = guests.reactor();
        if is_guest && reactor != self.own.number {
            self.shared.handoffs.nudge(reactor);
        }
        is_guest
    }

    /// Sends a request to a client over one of its sessions. Returns false if none of its sessions
    /// has a back-control channel that the client serves.
    fn tell_client(&mut self, client: ClientId, request: &BackRequest) -> bool {
        let sessions: Vec<_> = self.shared.sessions.of_client(client).collect();
        sessions.into_iter().any(|session| {
            let endpoint = self.shared.channels.endpoint_of(session);
            endpoint.is_some_and(|endpoint| self.tell(endpoint, request.clone()))
        })
    }

    fn continue_with(&mut self, waiter: WaiterId, told: Option<Told>) {
        if let Some((to, kept)) = self.shared.waiting.held.take(waiter) {
            self.settle();
            self.resume_request(to, kept, told);
            self.settle();
        }
    }

    /// Handles the reply of a delegation's holder to BC_RECALL, or a missing reply.
    pub(crate) fn on_recalled(&mut self, client: ClientId, state: StateId, answer: RecallOutcome) {
        self.shared.filer.recall_done(client, state, answer, self.shared.life.now());
    }

    /// Handles the reply of a delegation's holder to BC_GETATTR. `told` is `None` if there was no
    /// reply.
    pub(crate) fn on_holder_reply(&mut self, waiter: WaiterId, told: Option<&FileAttributes>) {
        let told = match told {
            Some(told) => Told::Facts { size: told.size, change: told.change },
            None => Told::Nothing,
        };
        self.on_holder_told(waiter, told);
    }

    /// Continues the request that waits for what the holder of a delegation reports, unless it has
    /// waited for too long.
    pub(crate) fn on_holder_told(&mut self, waiter: WaiterId, told: Told) {
        self.continue_with(waiter, Some(told));
    }

    /// Ends the requests to delegation holders whose deadline has passed, and removes the entries
    /// of handed-over files whose delegations have ended.
    pub(crate) fn tick_delegations(&mut self) {
        for waiter in self.shared.waiting.held.overdue(self.shared.life.now()) {
            self.on_holder_reply(waiter, None);
        }
        self.shared.holdings.delegations().forget_ended(&self.shared.filer);
        self.shared.loans.files().end_lapsed(&mut self.shared.filer);
        self.pump_delegations();
    }

    /// Drops all requests that wait on a connection that has ended.
    pub(crate) fn drop_waiting(&mut self, endpoint: EndpointId, fence: Option<FenceKey>) {
        self.shared.holdings.lock_waits().forget_all(fence);
        for to in self.shared.waiting.forget(&mut self.shared.filer, endpoint) {
            self.abandon(to);
        }
    }

    // ---- searches ---------------------------------------------------------------------

    /// Returns true if the request was queued until the search for an object that it names ends.
    /// The request must not have had any effect yet.
    #[inline]
    pub(crate) fn awaits_search(
        &mut self,
        to: ReplyTo,
        asked: Asked<'_>,
        named: [Option<&FileHandle>; 2],
    ) -> bool {
        let searching = &mut self.shared.waiting.searching;
        searching.is_possible()
            && searching.awaits((&self.shared.whole_store, &mut self.shared.pool), to, asked, named)
    }

    /// Returns true if the request is a batch and was queued until a search ends.
    pub(crate) fn batch_awaits_search(
        &mut self,
        to: ReplyTo,
        request: &Request<'_>,
        message: &[u8],
    ) -> bool {
        let Request::BatchSubmit(batch) = request else { return false };
        let searching = &mut self.shared.waiting.searching;
        searching.is_possible()
            && searching.batch_awaits(
                (&self.shared.whole_store, &mut self.shared.pool),
                to,
                batch,
                message,
            )
    }

    /// Returns true if a request that has failed with DELAY was queued until a search ends.
    #[cold]
    fn awaits_search_after_all(&mut self, to: ReplyTo, asked: Asked<'_>) -> bool {
        if !self.shared.waiting.searching.is_possible() {
            return false;
        }
        let message = match asked {
            Asked::Operation(operation) => {
                return self.awaits_search(to, asked, operation.handles());
            }
            Asked::Message(message) => message,
        };
        let Some(order) = self.order_of(to.endpoint) else { return false };
        let Ok(header) = RequestHeader::decode(order, message) else { return false };
        let store = self.shared.whole_store.clone();
        match handles::decode(&*store, order, &header, message) {
            Ok(request) => self.awaits_search(to, asked, handles::named(&request)),
            Err(_) => false,
        }
    }

    /// Starts the search for an object whose request got the reply DELAY, so that a retry finds it.
    #[cold]
    pub(crate) fn search_later(&mut self, handle: &FileHandle) {
        self.shared.waiting.searching.want(&self.shared.whole_store, &mut self.shared.pool, handle);
    }

    /// Handles the end of a search. Executes the requests that waited for it. A request that would
    /// have to wait for another search fails with DELAY.
    pub(crate) fn on_searched(&mut self) {
        for (to, kept) in self.shared.waiting.searching.end() {
            self.settle();
            self.resume_request_in(to, kept, None, false);
            self.settle();
        }
        self.shared.waiting.searching.start(&self.shared.whole_store, &mut self.shared.pool);
    }

    // ---- queries of results -----------------------------------------------------------

    /// Handles CHECK_RESPONSE and FETCH_RESPONSE.
    pub(crate) fn query_results(&mut self, query: ResultQuery) -> Result<(), Status> {
        let (sessions, channels) = (&mut self.shared.sessions, &mut self.shared.channels);
        let Some(found) = self.shared.waiting.result_queries.ask(sessions, channels, query)? else {
            return Ok(());
        };
        let to = query.to;
        if !query.wants_result {
            self.reply(to, &Response::CheckResponse(Empty));
            return Ok(());
        }
        let told = ReplyStatus::now(found.status);
        found.in_order(self.order_of(to.endpoint), to, |response| self.respond(to, told, response))
    }

    /// Handles DISCARD_RESPONSES.
    pub(crate) fn discard_responses(
        &mut self,
        to: ReplyTo,
        request: &DiscardResponses,
    ) -> Result<(), Status> {
        let id = self.shared.channels.get(to.endpoint).ok_or(Status::BadSession)?.id;
        self.shared.sessions.discard_replies(id, request.session)?;
        self.note_forgotten();
        self.reply(to, &Response::DiscardResponses(Empty));
        Ok(())
    }

    /// Repeats the queries that waited for a session to become idle.
    pub(crate) fn retry_queries(&mut self) {
        for query in self.shared.waiting.result_queries.take() {
            if let Err(status) = self.query_results(query) {
                self.fail(query.to, status);
            }
        }
    }

    /// Stores the result of a request for a client that may not receive the reply.
    #[inline]
    pub(crate) fn keep(&mut self, to: ReplyTo, status: Status, bytes: &[u8]) {
        if self.shared.sessions.keep_reply(to.kept(), to.stream, status, bytes) {
            self.retry_queries();
        }
    }
}

/// Returns true if a request that could not be executed has had no effect.
fn had_no_effect(why: &NotDone, asked: Asked<'_>) -> bool {
    match why {
        NotDone::Failed(fault) => Status::from(*fault) == Status::Delay,
        // For other requests the search was done before the request started.
        NotDone::Partly(refusal) => {
            let is_late = matches!(asked, Asked::Operation(it) if !has_effect_early(it));
            is_late && Status::from(refusal.fault) == Status::Delay
        }
        NotDone::AwaitsRecall(_) | NotDone::AwaitsHolder(_) => false,
    }
}

/// Returns true if an operation may have an effect before it finds that the store must search for
/// an object. An OPEN that creates no file has no such effect, so it may wait.
#[inline]
fn has_effect_early(operation: &Operation<'_>) -> bool {
    !matches!(operation, Operation::Open(open) if !open.creation.is_any())
}
