//! Delegations: granting, calling back, and requests that wait for that (draft 6.5.10,
//! 6.5.11, 6.5.24, 6.6.3, 6.6.4).
//!
//! A request that touches a delegated file asks by [`Reactor::touch`] right before it has its
//! effect, and before its intent goes into the journal. If it must wait it fails with DELAY,
//! and whoever carried it out hands its message to [`Reactor::refuse`], which sets it aside
//! instead of answering. It is carried out from its start when the delegation is back, was
//! revoked, or its holder has told what was asked. While nothing is delegated all of
//! that is one comparison; reads and writes under the state id of an open have none.
//!
//! Nothing is granted while a write or a change of size is under way, or may yet be undone:
//! what a holder reads stays what it is until it has heard of a recall.
//!
//! Delegations are volatile: they end with the server, and clients take their opens back
//! without them (`gaps.md`).
//!
//! Invariant: `parked` is empty between requests; every request set aside is known to the
//! filer or is a question that has a deadline; a file with a delegation is kept open.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{
    DelegationAction, DelegationDecision, DelegationKind, DelegationWish, FileKey,
    GrantedDelegation, IoKind, RecallAnswer, Touch, WaiterId,
};
use dafs_store::File;
use dafs_store::cache::CachedFile;
use dafs_types::{
    ClientId, FileAttributes, FileHandle, Moment, QuickMap, ShareAccess, ShareDeny, StateId, Status,
};
use dafs_wire::messages::{AccessEntry, DelegReturn, Delegation, Empty, SpaceLimit};
use dafs_wire::{RequestHeader, Response};

use crate::back::BackRequest;
use crate::credentials::Asker;
use crate::data::IoFile;
use crate::handles;
use crate::reactor::Reactor;
use crate::task::Answer;

/// What the server keeps beside the filer's table.
#[derive(Default)]
pub(crate) struct Delegations {
    /// Files with a delegation, and some that had one lately.
    files: QuickMap<FileHandle, Arc<dyn File>>,
    /// Requests set aside.
    held: QuickMap<WaiterId, Held>,
    last_waiter: u64,
    /// The request that is being carried out waits.
    parked: Option<Parked>,
    /// A request that is carried out once more, with what the holder has told it.
    told: Option<Told>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
struct Parked {
    waiter: WaiterId,
    /// The answer to BC_GETATTR, not the end of a delegation.
    asks: bool,
}

/// A request that waits.
struct Held {
    answer: Answer,
    message: Box<[u8]>,
    /// It waits for an answer to BC_GETATTR, until then.
    asks_until: Option<Moment>,
}

/// What a holder says of its file, or that it says nothing.
#[derive(Clone, Copy, Debug)]
struct Told {
    size: Option<u64>,
    change: Option<u64>,
    is_silent: bool,
}

/// An OPEN that has succeeded.
pub(crate) struct FreshOpen<'o> {
    pub file: &'o Arc<dyn File>,
    pub cached: CachedFile,
    pub handle: FileHandle,
    pub access: ShareAccess,
}

impl Reactor {
    // ---- in the way -----------------------------------------------------------------

    /// Whether a request may touch a file. It must not have had any effect yet.
    ///
    /// # Errors
    /// DELAY: it waits, or may not even do that; hand it to [`Reactor::refuse`].
    #[inline]
    pub(crate) fn touch(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
        touch: Touch,
    ) -> Result<(), Status> {
        if self.filer.has_no_delegations() {
            return Ok(());
        }
        self.touch_delegated(answer, handle, touch)
    }

    #[cold]
    fn touch_delegated(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
        touch: Touch,
    ) -> Result<(), Status> {
        let Some(file) = self.delegations.files.get(handle) else { return Ok(()) };
        let key = FileKey(file.key().0);
        let Some(channel) = self.channels.get(answer.endpoint).map(|channel| channel.id) else {
            return Ok(());
        };
        let touch = match (touch, &self.delegations.told) {
            (Touch::GetAttributes { .. }, Some(told)) if !told.is_silent => return Ok(()),
            (Touch::GetAttributes { .. }, Some(_)) => Touch::GetAttributes { may_ask: false },
            (touch, _) => touch,
        };
        self.delegations.last_waiter += 1;
        let waiter = WaiterId(self.delegations.last_waiter);
        let mut decision = self.filer.touch(channel, key, touch, waiter, self.now);
        if let DelegationDecision::AskAttributes { client, handle } = decision {
            let question = BackRequest::GetAttributes { file: handle, waiter };
            if self.tell_client(client, &question) {
                self.delegations.parked = Some(Parked { waiter, asks: true });
                return Err(Status::Delay);
            }
            let touch = Touch::GetAttributes { may_ask: false };
            decision = self.filer.touch(channel, key, touch, waiter, self.now);
        }
        match decision {
            DelegationDecision::Proceed => return Ok(()),
            DelegationDecision::Wait => {
                self.delegations.parked = Some(Parked { waiter, asks: false });
            }
            // The second time nobody is asked.
            DelegationDecision::Delay | DelegationDecision::AskAttributes { .. } => {}
        }
        Err(Status::Delay)
    }

    /// A request could not be carried out: it is answered, or waits.
    #[cold]
    pub(crate) fn refuse(&mut self, answer: Answer, status: Status, message: &[u8]) {
        let answer = self.keep_begun(answer);
        let Some(Parked { waiter, asks }) = self.delegations.parked.take() else {
            if status == Status::Delay && self.awaits_search_after_all(answer, message) {
                return;
            }
            return self.fail(answer, status);
        };
        let asks_until = asks.then(|| self.now.after(ASK_PATIENCE));
        let held = Held { answer, message: message.into(), asks_until };
        self.delegations.held.insert(waiter, held);
    }

    /// Whether the request that failed just now is to be set aside.
    pub(crate) fn is_parked(&self) -> bool {
        self.delegations.parked.is_some()
    }

    /// A request that has no message to be set aside: it is answered, and the recall goes on.
    #[cold]
    pub(crate) fn unpark(&mut self) {
        if let Some(Parked { waiter, .. }) = self.delegations.parked.take() {
            self.filer.abandon_waiter(waiter);
        }
    }

    /// What the holder of a write delegation has told goes over what the server knows.
    pub(crate) fn overlay_told(&self, full: &mut FileAttributes) {
        let Some(Told { size, change, is_silent: false }) = self.delegations.told else { return };
        if let Some(size) = size {
            full.size = Some(size);
        }
        if let (Some(theirs), Some(ours)) = (change, full.change) {
            full.change = Some(theirs.max(ours));
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
        let Some(Held { answer, message, .. }) = self.delegations.held.remove(&waiter) else {
            return;
        };
        let Some(order) = self.order_of(answer.endpoint) else {
            self.abandon(answer);
            return;
        };
        // They were decoded before.
        let Ok(header) = RequestHeader::decode(order, &message) else { return };
        let store = &*self.whole_store;
        let Ok(request) = handles::decode(store, order, &header, &message) else { return };
        self.settle();
        self.delegations.told = told;
        if (answer.logged || !self.is_gated(answer, &request, &message))
            && let Err(status) = self.dispatch(answer, &header, &request)
        {
            self.refuse(answer, status, &message);
        }
        self.settle();
        self.delegations.told = None;
    }

    /// A holder has answered BC_RECALL, or never will.
    pub(crate) fn on_recalled(&mut self, client: ClientId, state: StateId, answer: RecallAnswer) {
        self.filer.recall_answered(client, state, answer, self.now);
    }

    /// A holder has answered BC_GETATTR, or never will (`None`).
    pub(crate) fn on_told(&mut self, waiter: WaiterId, told: Option<&FileAttributes>) {
        let told = match told {
            Some(told) => {
                let (size, change) = (told.size, told.change);
                Told { size, change, is_silent: false }
            }
            None => Told { size: None, change: None, is_silent: true },
        };
        self.go_on_with(waiter, Some(told));
    }

    /// A connection is gone, and what waited on it.
    pub(crate) fn drop_held(&mut self, endpoint: EndpointId) {
        if self.delegations.held.is_empty() {
            return;
        }
        let of_it = |held: &Held| held.answer.endpoint == endpoint;
        let held: Vec<WaiterId> = self
            .delegations
            .held
            .iter()
            .filter(|(_, held)| of_it(held))
            .map(|(waiter, _)| *waiter)
            .collect();
        for waiter in held {
            self.filer.abandon_waiter(waiter);
            if let Some(held) = self.delegations.held.remove(&waiter) {
                self.abandon(held.answer);
            }
        }
    }

    /// Gives up questions that nobody answers, and files that nobody holds.
    pub(crate) fn tick_delegations(&mut self) {
        let overdue = |held: &Held| held.asks_until.is_some_and(|until| until <= self.now);
        let held = self.delegations.held.iter();
        let silent: Vec<_> = held.filter(|(_, held)| overdue(held)).map(|(id, _)| *id).collect();
        for waiter in silent {
            self.on_told(waiter, None);
        }
        let filer = &self.filer;
        self.delegations.files.retain(|_, file| filer.is_delegated(FileKey(file.key().0)));
        self.pump_delegations();
    }

    /// Requests set aside.
    pub(crate) fn held_count(&self) -> usize {
        self.delegations.held.len()
    }

    // ---- granting -------------------------------------------------------------------

    /// A delegation for an OPEN that has just succeeded, if there is reason to give one.
    pub(crate) fn delegate(
        &mut self,
        answer: Answer,
        who: &Asker,
        open: &FreshOpen<'_>,
    ) -> Option<GrantedDelegation> {
        if !self.filer.config().delegations.enabled || !self.has_back_channel(answer.endpoint) {
            return None;
        }
        // What is under way may change the file after its new holder has read it.
        if self.tasks.is_changing(open.cached) || self.keeps_undo_of(&open.handle) {
            return None;
        }
        let wish = self.delegation_wish(answer, who, open)?;
        let channel = self.channels.get(answer.endpoint)?.id;
        let granted = self.filer.grant_delegation(channel, &wish, self.now)?;
        self.delegations.files.insert(open.handle, open.file.clone());
        Some(granted)
    }

    /// CLAIM_DELEGATE_PREV.
    pub(crate) fn claim_delegation(
        &mut self,
        answer: Answer,
        who: &Asker,
        open: &FreshOpen<'_>,
    ) -> Result<GrantedDelegation, Status> {
        let wish = self.delegation_wish(answer, who, open).ok_or(Status::ServerFault)?;
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let granted = self.filer.claim_delegation(channel, &wish, self.now)?;
        self.delegations.files.insert(open.handle, open.file.clone());
        Ok(granted)
    }

    fn delegation_wish(
        &mut self,
        answer: Answer,
        who: &Asker,
        open: &FreshOpen<'_>,
    ) -> Option<DelegationWish> {
        let FreshOpen { handle, access, cached, .. } = *open;
        // Growth is promised to writers alone.
        let space = if access.writes() {
            let fs = who.store().fs_attributes(who, &handle).ok();
            fs.and_then(|fs| fs.space_available).unwrap_or(0)
        } else {
            0
        };
        Some(DelegationWish {
            file: FileKey(open.file.key().0),
            handle,
            access,
            has_back_channel: self.has_back_channel(answer.endpoint),
            size: self.cache.size(cached),
            space,
        })
    }

    /// Whether CLAIM_DELEGATE_CUR may open this file so.
    pub(crate) fn covers_open(
        &mut self,
        answer: Answer,
        state: StateId,
        key: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<(), Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.covers_open(channel, state, key, access, deny)
    }

    // ---- giving back ----------------------------------------------------------------

    pub(crate) fn return_delegation(
        &mut self,
        answer: Answer,
        request: &DelegReturn,
    ) -> Result<(), Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.return_delegation(channel, request.state, self.now)?;
        self.reply(answer, &Response::DelegReturn(Empty));
        Ok(())
    }

    pub(crate) fn purge_delegations(&mut self, answer: Answer) -> Result<(), Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let ended = self.filer.purge_delegations(channel, self.now)?;
        tracing::debug!(ended, "delegations of an earlier life are given up");
        self.reply(answer, &Response::DelegPurge(Empty));
        Ok(())
    }

    /// An open was undone: its delegation too.
    pub(crate) fn undo_delegation(&mut self, answer: Answer, granted: Option<GrantedDelegation>) {
        if let (Some(granted), Some(channel)) = (granted, self.channels.get(answer.endpoint)) {
            // It was granted just now, and nobody has heard of it.
            let _ = self.filer.return_delegation(channel.id, granted.state_id, self.now);
        }
    }

    // ---- reading and writing under one ----------------------------------------------

    /// The file of a READ or WRITE under a delegation's state id, opened for this alone.
    #[cold]
    pub(crate) fn delegated_file(
        &mut self,
        answer: Answer,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let file = self.delegations.files.get(handle);
        let key = file.map_or(FileKey(u64::MAX), |file| FileKey(file.key().0));
        self.filer.check_io(channel, state, key, kind)?;
        let who = self.who(answer);
        let access = match kind {
            IoKind::Read => ShareAccess::Read,
            IoKind::Write => ShareAccess::Write,
        };
        self.borrow_file(&who, handle, access)
    }
}

/// A delegation as the answer to OPEN has it. Its entry denies everybody: whoever else
/// would open under it asks the server, which alone knows who may.
pub(crate) fn shown(granted: Option<&GrantedDelegation>) -> Delegation<'static> {
    let Some(&GrantedDelegation { state_id: state, kind, recall, limit }) = granted else {
        return Delegation::None;
    };
    let entry = AccessEntry { entry_type: 1, flags: 0, mask: EVERYTHING, who: "EVERYONE@" };
    match kind {
        DelegationKind::Read => Delegation::Read { state, recall, entry },
        DelegationKind::Write => {
            let limit = limit.unwrap_or(SpaceLimit::Size(0));
            Delegation::Write { state, recall, limit, entry }
        }
    }
}

/// How long a holder may take to tell attributes before its delegation is called back.
const ASK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
/// Rights to read, write and append, and to execute.
const EVERYTHING: u32 = 0x27;
