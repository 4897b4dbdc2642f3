//! Requests that wait for delegations, and what holders are asked.

use dafs_dat::EndpointId;
use dafs_filer::{DelegationAction, FileKey, RecallAnswer, WaiterId};
use dafs_types::{ClientId, FileAttributes, StateId, Status};
use dafs_wire::Response;

use super::{ASK_PATIENCE, Held, Told};
use crate::answers::refusal_response;
use crate::asks::changes::procedure_of;
use crate::back::BackRequest;
use crate::outcome::{NotDone, Question};
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::respond::ReplyStatus;
use crate::set_aside::Asked;

impl Reactor {
    // ---- in the way -----------------------------------------------------------------

    /// A request could not be carried out: it is answered, or waits.
    #[cold]
    pub(crate) fn refuse(&mut self, to: ReplyTo, why: NotDone, asked: Asked<'_>) {
        let to = self.keep_begun(to);
        match why {
            NotDone::Failed(Status::Delay) if self.awaits_search_after_all(to, asked) => {}
            NotDone::Failed(status) => self.fail(to, status),
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
                let held = Held { to, kept: asked.set_aside(), asks_until: None };
                self.delegations.held.insert(waiter, held);
            }
            NotDone::Asks(question) => {
                let Question { client, file, waiter } = *question;
                let asks_until = Some(self.life.now().after(ASK_PATIENCE));
                let held = Held { to, kept: asked.set_aside(), asks_until };
                self.delegations.held.insert(waiter, held);
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
            NotDone::Failed(status) => status,
            NotDone::Partly(refusal) => refusal.fault.into(),
            NotDone::Recalls(waiter) => {
                self.filer.abandon_waiter(waiter);
                Status::Delay
            }
            // Nobody has been asked yet.
            NotDone::Asks(_) => Status::Delay,
        }
    }

    // ---- doing what the filer wants -------------------------------------------------

    /// Calls back what is to be called back, and lets those go on who waited.
    #[inline]
    pub(crate) fn pump_delegations(&mut self) {
        while let Some(action) = self.filer.take_delegation_action() {
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
                    let answer = RecallAnswer::Undelivered;
                    self.filer.recall_answered(client, state_id, answer, self.life.now());
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
        let sessions: Vec<_> = self.filer.sessions_of(client).collect();
        sessions.into_iter().any(|session| {
            let endpoint = self.channels.endpoint_of(session);
            endpoint.is_some_and(|endpoint| self.tell(endpoint, request.clone()))
        })
    }

    /// Carries out a request that waited.
    fn go_on_with(&mut self, waiter: WaiterId, told: Option<Told>) {
        let Some(Held { to, kept, .. }) = self.delegations.held.remove(&waiter) else {
            return;
        };
        if self.order_of(to.endpoint).is_none() {
            self.abandon(to);
            return;
        }
        self.settle();
        if let Err(why) = self.carry_again(to, &kept, told) {
            self.refuse_again(to, why, &kept);
        }
        self.settle();
    }

    /// A holder has answered BC_RECALL, or never will.
    pub(crate) fn on_recalled(&mut self, client: ClientId, state: StateId, answer: RecallAnswer) {
        self.filer.recall_answered(client, state, answer, self.life.now());
    }

    /// A holder has answered BC_GETATTR, or never will (`None`).
    pub(crate) fn on_told(&mut self, waiter: WaiterId, told: Option<&FileAttributes>) {
        let told = match told {
            Some(told) => Told::Facts { size: told.size, change: told.change },
            None => Told::Nothing,
        };
        self.go_on_with(waiter, Some(told));
    }

    /// A connection is gone, and what waited on it.
    pub(crate) fn drop_held(&mut self, endpoint: EndpointId) {
        for waiter in self.delegations.held_for(endpoint) {
            self.filer.abandon_waiter(waiter);
            if let Some(held) = self.delegations.held.remove(&waiter) {
                self.abandon(held.to);
            }
        }
    }

    /// Gives up questions that nobody answers, and files that nobody holds.
    pub(crate) fn tick_delegations(&mut self) {
        for waiter in self.delegations.overdue(self.life.now()) {
            self.on_told(waiter, None);
        }
        let filer = &self.filer;
        self.delegations.files.retain(|_, file| filer.is_delegated(FileKey(file.key().0)));
        self.tick_given();
        self.pump_delegations();
    }
}
