//! Requests that cannot be carried out at once, and those whose turn has come.

use dafs_dat::EndpointId;
use dafs_filer::{DelegationAction, FenceKey, RecallAnswer, WaiterId};
use dafs_files::delegations::Told;
use dafs_files::outcome::{NotDone, Question};
use dafs_ops::Operation;
use dafs_types::{ClientId, FileAttributes, FileHandle, StateId, Status};
use dafs_wire::messages::{DiscardResponses, Empty};
use dafs_wire::{Request, RequestHeader, Response};

use super::Query;
use crate::handoff::Handoff;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::answers::refusal_response;
use crate::requests::asks::changes::procedure_of;
use crate::requests::decode::Scratch;
use crate::requests::handles;
use crate::requests::respond::ReplyStatus;
use crate::requests::set_aside::{Asked, SetAside};
use crate::requests::translate;
use crate::session::back::BackRequest;

impl Reactor<'_> {
    // ---- carrying out -----------------------------------------------------------------

    /// Has a request carried out that is an operation to be set aside as one. False if it is
    /// another; then nothing was done.
    #[inline(never)]
    pub(crate) fn carry_as_operation(&mut self, to: ReplyTo, request: &Request<'_>) -> bool {
        let mut scratch = Scratch::new();
        let translated = translate::operation(request, &mut scratch);
        // Who carries it out says what is wrong with one that cannot be asked for. It is looked at
        // where it is: it is large.
        let Ok(Some(operation)) = &translated else {
            return false;
        };
        let waits = has_effect_early(operation)
            && self.awaits_search(to, Asked::Operation(operation), operation.touched());
        if !waits
            && !self.is_gated(to, operation)
            && let Err(why) = self.carry_out(to, operation)
        {
            self.refuse(to, why, Asked::Operation(operation));
        }
        true
    }

    /// Carries an operation out, if no fence stands in its way.
    pub(crate) fn carry_out(
        &mut self,
        to: ReplyTo,
        operation: &Operation<'_>,
    ) -> Result<(), NotDone> {
        if self.shared.filer.has_fences() {
            self.pass_all(to, operation.touched())?;
        }
        self.operate(to, operation)
    }

    /// Carries a request out that was set aside, from its start: it may have to wait for something
    /// else. It was whole when it was set aside.
    ///
    /// # Errors
    /// As [`Reactor::dispatch`]: the caller replies, or sets it aside again.
    pub(crate) fn carry_again(
        &mut self,
        to: ReplyTo,
        kept: &SetAside,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        match kept {
            SetAside::Operation(bytes) => {
                let operation = Operation::decode(bytes).ok_or(Status::ServerFault)?;
                match to.logged || !self.is_gated(to, &operation) {
                    true => self.carry_out(to, &operation),
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
                self.dispatch_told(to, &header, &request, told)
            }
        }
    }

    /// The turn of a request has come that was set aside: it is carried out, or set aside again.
    /// If its connection is gone, so is in whose name that would be done.
    pub(crate) fn take_up(&mut self, to: ReplyTo, kept: SetAside, told: Option<Told>) {
        self.take_up_in(to, kept, told, true);
    }

    /// The same. `may_search` says whether it has not waited for a search before. What it asks for
    /// is done by the reactor that has its connection.
    pub(crate) fn take_up_in(
        &mut self,
        to: ReplyTo,
        kept: SetAside,
        told: Option<Told>,
        may_search: bool,
    ) {
        if self.order_of(to.endpoint).is_none() {
            self.abandon(to);
            return;
        }
        if !self.own.has(to.endpoint) {
            let work = Handoff::TakeUp { to, kept, told, may_search };
            return self.shared.handoffs.leave(to.endpoint.owner(), work);
        }
        if let Err(why) = self.carry_again(to, &kept, told) {
            self.refuse_again(to, why, &kept, may_search);
        }
    }

    /// A request that was set aside, and that could not be carried out when it was tried again.
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
        }
    }

    // ---- in the way -------------------------------------------------------------------

    /// A request could not be carried out: it is answered, or waits.
    #[cold]
    pub(crate) fn refuse(&mut self, to: ReplyTo, why: NotDone, asked: Asked<'_>) {
        self.refuse_in(to, why, asked, true);
    }

    /// The same. `may_search` says whether it has not waited for a search before.
    fn refuse_in(&mut self, to: ReplyTo, why: NotDone, asked: Asked<'_>, may_search: bool) {
        let to = self.keep_begun(to);
        if may_search && is_put_off(&why, asked) && self.awaits_search_after_all(to, asked) {
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
            NotDone::Recalls(waiter) => {
                self.shared.waiting.held.hold(waiter, to, asked.set_aside())
            }
            NotDone::Asks(question) => {
                let Question { client, file, waiter } = *question;
                let kept = asked.set_aside();
                self.shared.waiting.held.hold_until_told(waiter, to, kept, self.shared.life.now());
                if !self.tell_client(client, &BackRequest::GetAttributes { file, waiter }) {
                    self.on_told(waiter, None);
                }
            }
        }
    }

    /// The status for a request that has no message to be set aside: the recall goes on without
    /// it.
    #[cold]
    pub(crate) fn without_waiting(&mut self, why: NotDone) -> Status {
        match why {
            NotDone::Failed(fault) => fault.into(),
            NotDone::Partly(refusal) => refusal.fault.into(),
            NotDone::Recalls(waiter) => {
                self.shared.filer.abandon_waiter(waiter);
                Status::Delay
            }
            // Nobody has been asked yet.
            NotDone::Asks(_) => Status::Delay,
        }
    }

    // ---- delegations ------------------------------------------------------------------

    /// Calls back what is to be called back, and lets those go on who waited.
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
                if !self.tell_client(client, &recall) {
                    self.on_recalled(client, state_id, RecallAnswer::Undelivered);
                }
            }
            DelegationAction::Resume { waiter } => self.go_on_with(waiter, None),
            DelegationAction::Revoked { client, handle } => {
                tracing::warn!(?client, ?handle, "a delegation was not returned in time: revoked");
            }
        }
    }

    /// Asks one of a client's sessions. False if none listens.
    fn tell_client(&mut self, client: ClientId, request: &BackRequest) -> bool {
        let sessions: Vec<_> = self.shared.sessions.of_client(client).collect();
        sessions.into_iter().any(|session| {
            let endpoint = self.shared.channels.endpoint_of(session);
            endpoint.is_some_and(|endpoint| self.tell(endpoint, request.clone()))
        })
    }

    fn go_on_with(&mut self, waiter: WaiterId, told: Option<Told>) {
        if let Some((to, kept)) = self.shared.waiting.held.take(waiter) {
            self.settle();
            self.take_up(to, kept, told);
            self.settle();
        }
    }

    /// A holder has answered BC_RECALL, or never will.
    pub(crate) fn on_recalled(&mut self, client: ClientId, state: StateId, answer: RecallAnswer) {
        self.shared.filer.recall_answered(client, state, answer, self.shared.life.now());
    }

    /// A holder has answered BC_GETATTR, or never will (`None`).
    pub(crate) fn on_told(&mut self, waiter: WaiterId, told: Option<&FileAttributes>) {
        let told = match told {
            Some(told) => Told::Facts { size: told.size, change: told.change },
            None => Told::Nothing,
        };
        self.go_on_with(waiter, Some(told));
    }

    /// Gives up questions that nobody answers, and files that nobody holds.
    pub(crate) fn tick_delegations(&mut self) {
        for waiter in self.shared.waiting.held.overdue(self.shared.life.now()) {
            self.on_told(waiter, None);
        }
        self.shared.holdings.delegations().forget_ended(&self.shared.filer);
        self.shared.loans.files().end_lapsed(&mut self.shared.filer);
        self.pump_delegations();
    }

    /// A connection is gone, and what waited on it.
    pub(crate) fn drop_waiting(&mut self, endpoint: EndpointId, fence: Option<FenceKey>) {
        self.shared.holdings.lock_waits().forget_all(fence);
        for to in self.shared.waiting.forget(&mut self.shared.filer, endpoint) {
            self.abandon(to);
        }
    }

    // ---- searches ---------------------------------------------------------------------

    /// Whether a request waits until an object that it names has been looked for. It must not
    /// have had any effect yet.
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

    /// The same of a batch. False of what is none.
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

    /// The same of a request that has failed with DELAY.
    #[cold]
    fn awaits_search_after_all(&mut self, to: ReplyTo, asked: Asked<'_>) -> bool {
        if !self.shared.waiting.searching.is_possible() {
            return false;
        }
        let message = match asked {
            Asked::Operation(operation) => {
                return self.awaits_search(to, asked, operation.named());
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

    /// Has an object looked for, though no request waits for it: whoever asked was told DELAY.
    #[cold]
    pub(crate) fn search_later(&mut self, handle: &FileHandle) {
        self.shared.waiting.searching.want(&self.shared.whole_store, &mut self.shared.pool, handle);
    }

    /// A search is over, or has failed: those that waited for it are carried out, and fail with
    /// DELAY where they would have to wait once more.
    pub(crate) fn on_searched(&mut self) {
        for (to, kept) in self.shared.waiting.searching.end() {
            self.settle();
            self.take_up_in(to, kept, None, false);
            self.settle();
        }
        self.shared.waiting.searching.start(&self.shared.whole_store, &mut self.shared.pool);
    }

    // ---- questions --------------------------------------------------------------------

    /// CHECK_RESPONSE and FETCH_RESPONSE.
    pub(crate) fn ask_about(&mut self, query: Query) -> Result<(), Status> {
        let (sessions, channels) = (&mut self.shared.sessions, &mut self.shared.channels);
        let Some(found) = self.shared.waiting.questions.ask(sessions, channels, query)? else {
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

    /// DISCARD_RESPONSES.
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

    /// Something has come to rest: the questions that waited are asked again.
    pub(crate) fn ask_again(&mut self) {
        for query in self.shared.waiting.questions.take() {
            if let Err(status) = self.ask_about(query) {
                self.fail(query.to, status);
            }
        }
    }

    /// Keeps the result of a request for a client that may not get it.
    #[inline]
    pub(crate) fn keep(&mut self, to: ReplyTo, status: Status, bytes: &[u8]) {
        if self.shared.sessions.keep_reply(to.kept(), to.stream, status, bytes) {
            self.ask_again();
        }
    }
}

/// Whether a request was put off that has had no effect yet.
fn is_put_off(why: &NotDone, asked: Asked<'_>) -> bool {
    match why {
        NotDone::Failed(fault) => Status::from(*fault) == Status::Delay,
        // Others were searched for before they began.
        NotDone::Partly(refusal) => {
            let is_late = matches!(asked, Asked::Operation(it) if !has_effect_early(it));
            is_late && Status::from(refusal.fault) == Status::Delay
        }
        NotDone::Recalls(_) | NotDone::Asks(_) => false,
    }
}

/// Whether an operation may have had an effect by the time it finds out that an object must be
/// searched for. An OPEN that makes nothing has not: it waits then.
#[inline]
fn has_effect_early(operation: &Operation<'_>) -> bool {
    !matches!(operation, Operation::Open(open) if !open.creation.is_any())
}
