//! Delegations: granting, calling back, and requests that wait for that (draft 6.5.10,
//! 6.5.11, 6.5.24, 6.6.3, 6.6.4).
//!
//! A request that touches a delegated file asks by [`Reactor::touch`] right before it has its
//! effect, and before its intent goes into the journal. If it must wait it ends with
//! [`NotDone::Recalls`] or [`NotDone::Asks`], and whoever carried it out hands its message to
//! [`Reactor::refuse`], which sets it aside instead of replying. It is carried out from its start
//! when the delegation is back, was revoked, or its holder has told what was asked. While nothing
//! is delegated all of that is one comparison; reads and writes under the state id of an open
//! have none.
//!
//! Nothing is granted while a write or a change of size is under way, or may yet be undone:
//! what a holder reads stays what it is until it has heard of a recall.
//!
//! Delegations are volatile: they end with the server, and clients take their opens back
//! without them (`gaps.md`).
//!
//! Invariant: every request set aside is known to the filer or is a question that has a
//! deadline; a file with a delegation is kept open.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{
    ChannelId, DelegationAction, DelegationDecision, DelegationWish, FileKey, Filer,
    GrantedDelegation, RecallAnswer, Touch, WaiterId,
};
use dafs_store::File;
use dafs_store::cache::CachedFile;
use dafs_types::{
    ClientId, FileAttributes, FileHandle, Moment, QuickMap, ShareAccess, StateId, Status,
};
use dafs_wire::RequestHeader;

use crate::back::BackRequest;
use crate::caller::Caller;
use crate::files::Files;
use crate::handles;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::task::ReplyTo;

/// What the server keeps beside the filer's table.
#[derive(Default)]
pub(crate) struct Delegations {
    /// Files with a delegation, and some that had one lately.
    files: QuickMap<FileHandle, Arc<dyn File>>,
    /// Requests set aside.
    held: QuickMap<WaiterId, Held>,
    last_waiter: u64,
}

/// A request that waits.
struct Held {
    to: ReplyTo,
    message: Box<[u8]>,
    /// It waits for an answer to BC_GETATTR, until then.
    asks_until: Option<Moment>,
}

/// What a holder says of its file, or that it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It says this.
    Facts { size: Option<u64>, change: Option<u64> },
    /// It does not reply.
    Nothing,
}

impl Told {
    /// What a request for attributes that has heard this still has to ask for.
    pub fn touch(told: Option<Self>) -> Option<Touch> {
        match told {
            None => Some(Touch::GetAttributes { may_ask: true }),
            Some(Told::Nothing) => Some(Touch::GetAttributes { may_ask: false }),
            Some(Told::Facts { .. }) => None,
        }
    }

    /// What the holder of a write delegation has told goes over what the server knows.
    pub fn overlay(told: Option<Self>, full: &mut FileAttributes) {
        let Some(Told::Facts { size, change }) = told else { return };
        if let Some(size) = size {
            full.size = Some(size);
        }
        if let (Some(theirs), Some(ours)) = (change, full.change) {
            full.change = Some(theirs.max(ours));
        }
    }
}

/// An OPEN that has succeeded.
pub(crate) struct FreshOpen<'o> {
    pub file: &'o Arc<dyn File>,
    pub cached: CachedFile,
    pub handle: FileHandle,
    pub access: ShareAccess,
}

/// What the holder of a delegation is to be asked: what its file is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    client: ClientId,
    file: FileHandle,
    /// What waits for the answer.
    waiter: WaiterId,
}

impl Delegations {
    /// Whether a request may touch a file that may be delegated.
    ///
    /// # Errors
    /// It waits, or may not even do that (DELAY).
    #[cold]
    pub fn touch(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        file: &FileHandle,
        touch: Touch,
        now: Moment,
    ) -> Result<(), NotDone> {
        let Some(file) = self.files.get(file) else { return Ok(()) };
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        match filer.touch(channel, FileKey(file.key().0), touch, waiter, now) {
            DelegationDecision::Proceed => Ok(()),
            DelegationDecision::Wait => Err(NotDone::Recalls(waiter)),
            DelegationDecision::AskAttributes { client, handle: file } => {
                Err(NotDone::Asks(Box::new(Question { client, file, waiter })))
            }
            DelegationDecision::Delay => Err(Status::Delay.into()),
        }
    }

    /// The key of a file that is delegated, or was lately; an impossible one if it was not.
    pub fn key_of(&self, file: &FileHandle) -> FileKey {
        self.files.get(file).map_or(FileKey(u64::MAX), |file| FileKey(file.key().0))
    }

    /// Requests set aside.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Those of them that came over a connection.
    fn held_for(&self, endpoint: EndpointId) -> Vec<WaiterId> {
        let held = self.held.iter().filter(|(_, held)| held.to.endpoint == endpoint);
        held.map(|(waiter, _)| *waiter).collect()
    }

    /// Those whose question has stood for too long.
    fn overdue(&self, now: Moment) -> Vec<WaiterId> {
        let is_overdue = |held: &Held| held.asks_until.is_some_and(|until| until <= now);
        let held = self.held.iter().filter(|(_, held)| is_overdue(held));
        held.map(|(waiter, _)| *waiter).collect()
    }
}

impl Reactor {
    // ---- in the way -----------------------------------------------------------------

    /// A request could not be carried out: it is answered, or waits.
    #[cold]
    pub(crate) fn refuse(&mut self, to: ReplyTo, why: NotDone, message: &[u8]) {
        let to = self.keep_begun(to);
        match why {
            NotDone::Failed(Status::Delay) if self.awaits_search_after_all(to, message) => {}
            NotDone::Failed(status) => self.fail(to, status),
            NotDone::Partly(refusal) => self.fail(to, refusal.fault.into()),
            NotDone::Recalls(waiter) => {
                let held = Held { to, message: message.into(), asks_until: None };
                self.delegations.held.insert(waiter, held);
            }
            NotDone::Asks(question) => {
                let Question { client, file, waiter } = *question;
                let asks_until = Some(self.now.after(ASK_PATIENCE));
                let held = Held { to, message: message.into(), asks_until };
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
                    self.filer.recall_answered(client, state_id, answer, self.now);
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
        let Some(Held { to, message, .. }) = self.delegations.held.remove(&waiter) else {
            return;
        };
        let Some(order) = self.order_of(to.endpoint) else {
            self.abandon(to);
            return;
        };
        // They were decoded before.
        let Ok(header) = RequestHeader::decode(order, &message) else { return };
        let store = &*self.whole_store;
        let Ok(request) = handles::decode(store, order, &header, &message) else { return };
        self.settle();
        if (to.logged || !self.is_gated(to, &request, &message))
            && let Err(why) = self.dispatch_told(to, &header, &request, told)
        {
            self.refuse(to, why, &message);
        }
        self.settle();
    }

    /// A holder has answered BC_RECALL, or never will.
    pub(crate) fn on_recalled(&mut self, client: ClientId, state: StateId, answer: RecallAnswer) {
        self.filer.recall_answered(client, state, answer, self.now);
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
        for waiter in self.delegations.overdue(self.now) {
            self.on_told(waiter, None);
        }
        let filer = &self.filer;
        self.delegations.files.retain(|_, file| filer.is_delegated(FileKey(file.key().0)));
        self.pump_delegations();
    }
}

impl Files<'_> {
    // ---- granting -------------------------------------------------------------------

    /// A delegation for an OPEN that has just succeeded, if there is reason to give one.
    pub fn delegate(
        &mut self,
        by: &Caller,
        can_recall: bool,
        open: &FreshOpen<'_>,
    ) -> Option<GrantedDelegation> {
        if !self.filer.config().delegations.enabled || !can_recall {
            return None;
        }
        // What is under way may change the file after its new holder has read it.
        if self.tasks.is_changing(open.cached) || self.keeps_undo_of(&open.handle) {
            return None;
        }
        let wish = self.delegation_wish(by, can_recall, open);
        let granted = self.filer.grant_delegation(by.channel, &wish, self.now)?;
        self.delegations.files.insert(open.handle, open.file.clone());
        Some(granted)
    }

    /// CLAIM_DELEGATE_PREV.
    pub fn claim_delegation(
        &mut self,
        by: &Caller,
        can_recall: bool,
        open: &FreshOpen<'_>,
    ) -> Result<GrantedDelegation, Status> {
        let wish = self.delegation_wish(by, can_recall, open);
        let granted = self.filer.claim_delegation(by.channel, &wish, self.now)?;
        self.delegations.files.insert(open.handle, open.file.clone());
        Ok(granted)
    }

    fn delegation_wish(
        &self,
        by: &Caller,
        has_back_channel: bool,
        open: &FreshOpen<'_>,
    ) -> DelegationWish {
        let FreshOpen { handle, access, cached, .. } = *open;
        // Growth is promised to writers alone.
        let space = if access.writes() {
            let fs = by.store().fs_attributes(by, &handle).ok();
            fs.and_then(|fs| fs.space_available).unwrap_or(0)
        } else {
            0
        };
        let (file, size) = (FileKey(open.file.key().0), self.cache.size(cached));
        DelegationWish { file, handle, access, has_back_channel, size, space }
    }
}

/// How long a holder may take to tell attributes before its delegation is called back.
const ASK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
