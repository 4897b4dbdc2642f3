//! Callbacks: calls that this server sends to a client, over a connection that the client has
//! opened.
//!
//! [`dafs_nfs_state`] chooses the session, the slot and the connection of each callback. It also
//! repeats a callback if necessary. This file encodes callbacks and decodes the replies.
//! Nothing here waits for a reply.
//!
//! Invariant: a callback that has not ended has one entry in
//! [`contents`](super::recalls::Callbacks::contents).

use dafs_dat::records::LinkId;
use dafs_filer::{RecallOutcome, WaiterId};
use dafs_nfs_state::{
    CallbackEvent, CallbackOutcome, CallbackReply, CallbackSecurity, CallbackToSend,
    ClientKey as Nfs4Client, ReferringCall,
};
use dafs_nfs_wire::nfs4::Status;
use dafs_nfs_wire::nfs4::callbacks::{
    Callback, CallbackAnswer, CbNotifyLockArgs, CbRecallArgs, CbSequenceArgs,
    ReferringCall as ShownCall, ReferringSession,
};
use dafs_nfs_wire::nfs4::compound::{CallWriter, ReplyReader};
use dafs_nfs_wire::nfs4::types::{ClientId as ShownClient, SessionId, StateOwner};
use dafs_nfs_wire::rpc::{self, Accepted, Auth, AuthSys, Outcome, Reply, ReplyBody, flavor};
use dafs_nfs_wire::xdr::{self, Inline, List, Opaque, Reader, Writer, Xdr};
use dafs_types::{ClientId, FileHandle, Moment};

use super::recalls::{Content, InFlight, LockFree, Recall, Report};
use super::state::State;
use super::{asking, locks, offload};
use crate::reactor::Reactor;

impl State {
    /// Queues the recall of a delegation.
    pub(super) fn queue_recall(
        &mut self,
        reactor: &mut Reactor<'_>,
        client: Nfs4Client,
        recall: Recall,
        referring: Option<ReferringCall>,
    ) {
        let now = reactor.shared.life.now();
        let patience = reactor.shared.filer.config().lease;
        self.callbacks.last_content += 1;
        let word = self.callbacks.last_content;
        match self.machine.call_back(client, word, referring, patience, now) {
            Ok(_) => {
                self.callbacks.contents.insert(word, Content::Recall(recall));
            }
            Err(_) => {
                reactor.on_recalled(recall.client, recall.state, RecallOutcome::Undelivered);
            }
        }
    }

    /// Queues the notice that a denied lock can be taken. `name` is the name of the lock owner in
    /// the filer. The notice is only a hint: a client that does not get it asks again anyway.
    pub(super) fn tell_of_lock(
        &mut self,
        reactor: &Reactor<'_>,
        nfs_client: u64,
        name: &[u8],
        file: FileHandle,
    ) {
        let nfs_client = Nfs4Client::from_bits(nfs_client);
        let id = self.clients.get(&nfs_client).and_then(|key| reactor.shared.filer.client_id(*key));
        let shown = self.machine.clients().view(nfs_client).map(|view| view.id);
        let (Some(client), Some(shown)) = (id, shown) else { return };
        let now = reactor.shared.life.now();
        let patience = reactor.shared.filer.config().lease;
        self.callbacks.last_content += 1;
        let word = self.callbacks.last_content;
        if self.machine.call_back(nfs_client, word, None, patience, now).is_ok() {
            let owner = locks::owner_of(name).into();
            let content = Content::LockFree(LockFree { client, shown, owner, file });
            self.callbacks.contents.insert(word, content);
        }
    }

    /// Handles the end of a callback.
    pub(super) fn end_callback(&mut self, reactor: &mut Reactor<'_>, event: CallbackEvent) {
        let recall = match self.callbacks.contents.remove(&event.word) {
            Some(Content::Recall(recall)) => recall,
            Some(Content::Ask(ask)) => return self.end_ask(reactor, ask, event.outcome),
            Some(Content::Offload(offloaded)) => {
                return self.end_told_copy(offloaded.number, event.outcome);
            }
            Some(Content::LockFree(_)) | None => return,
        };
        let outcome = match event.outcome {
            CallbackOutcome::Replied(0) => RecallOutcome::Accepted,
            CallbackOutcome::Replied(_) => RecallOutcome::Refused,
            CallbackOutcome::TimedOut => RecallOutcome::Undelivered,
        };
        reactor.on_recalled(recall.client, recall.state, outcome);
    }

    /// Removes the callbacks of a client that has ended. Returns the requests that wait for its
    /// replies.
    pub(super) fn forget_callbacks(&mut self, client: ClientId) -> Vec<WaiterId> {
        let mut waiting = Vec::new();
        self.callbacks.contents.retain(|_, content| {
            if content.client() != client {
                return true;
            }
            if let Content::Ask(ask) = content {
                waiting.extend(ask.waiters.iter().copied());
            }
            false
        });
        waiting
    }

    /// Writes the next callback that must be sent now. Returns the connection on which the caller
    /// must send it; `None` if there is no callback to send. `link_of` finds a connection by its
    /// number.
    pub(in crate::nfs) fn write_callback(
        &mut self,
        writer: &mut Writer,
        now: Moment,
        link_of: impl Fn(u64) -> Option<LinkId>,
    ) -> Option<LinkId> {
        loop {
            let call = self.machine.next_callback(now)?;
            let Some(link) = link_of(call.connection.0) else {
                // The end of the connection is reported to the machine, which repeats the callback.
                continue;
            };
            // A callback that has ended may still have to be repeated, because its slot stays in
            // use until the client replies. Then the CB_SEQUENCE alone is sent.
            if let Some(Content::Ask(ask)) = self.callbacks.contents.get_mut(&call.word) {
                ask.is_sent = true;
            }
            let content = self.callbacks.contents.get(&call.word).cloned();
            let xid = self.begin_call(link, &call, content.is_some());
            let minor = self.minors.get(&call.client).copied().unwrap_or(1);
            encode(writer, xid, minor, &call, content.as_ref());
            return Some(link);
        }
    }

    /// Adds an entry for a call that is about to be sent. Returns its RPC identifier.
    fn begin_call(&mut self, link: LinkId, call: &CallbackToSend, has_content: bool) -> u32 {
        let Self { callbacks, machine, .. } = self;
        if callbacks.in_flight.len() >= IN_FLIGHT_MAX {
            // A session that has ended expects no replies.
            let sessions = machine.sessions();
            callbacks.in_flight.retain(|_, sent| sessions.view(sent.session).is_some());
        }
        callbacks.last_xid = callbacks.last_xid.wrapping_add(1);
        let (session, slot, sequence) = (call.session_key, call.slot, call.sequence);
        let sent = InFlight { link, session, slot, sequence, word: call.word, has_content };
        callbacks.in_flight.insert(callbacks.last_xid, sent);
        callbacks.last_xid
    }

    /// Removes the calls that were sent on a connection that has ended.
    pub(super) fn forget_calls(&mut self, link: LinkId) {
        self.callbacks.in_flight.retain(|_, sent| sent.link != link);
    }

    /// Handles a record that is a reply. Returns false if the record is no reply to a callback that
    /// was sent on this connection.
    pub(in crate::nfs) fn on_reply(&mut self, link: LinkId, record: &[u8], now: Moment) -> bool {
        let mut reader = Reader::new(record);
        let Ok(reply) = Reply::decode(&mut reader) else { return false };
        let Some(sent) = self.callbacks.in_flight.get(&reply.xid).copied() else { return false };
        if sent.link != link {
            return false;
        }
        self.callbacks.in_flight.remove(&reply.xid);
        let (replied, report) = match reply.body {
            ReplyBody::Accepted(Accepted { outcome: Outcome::Success, .. }) => {
                meaning_of(reader, sent.has_content)
            }
            _ => (CallbackReply::SessionFault, None),
        };
        if let Some(Content::Ask(ask)) = self.callbacks.contents.get_mut(&sent.word) {
            ask.reply = report;
        }
        let InFlight { session, slot, sequence, .. } = sent;
        self.machine.callback_replied(session, slot, sequence, replied, now);
        true
    }
}

/// Decodes the results of a CB_COMPOUND: those of CB_SEQUENCE and, if there was one, of the
/// operation after it. Also returns the attributes in a result of CB_GETATTR.
fn meaning_of(reader: Reader<'_>, has_content: bool) -> (CallbackReply, Option<Report>) {
    let without_report = |reply| (reply, None);
    let Ok(mut answers) = ReplyReader::<Callback<'_>>::new(reader) else {
        return without_report(CallbackReply::SessionFault);
    };
    match answers.next_answer() {
        Some(Ok(answer @ CallbackAnswer::Sequence(_))) => match answer.status() {
            Status::Ok => {}
            Status::Delay => return without_report(CallbackReply::Busy),
            _ => return without_report(CallbackReply::SessionFault),
        },
        _ => return without_report(CallbackReply::SessionFault),
    }
    if !has_content {
        return without_report(CallbackReply::Done(Status::Ok.number()));
    }
    match answers.next_answer() {
        Some(Ok(answer)) if answer.status() == Status::Delay => {
            without_report(CallbackReply::Postponed)
        }
        Some(Ok(answer)) => {
            (CallbackReply::Done(answer.status().number()), asking::report_of(&answer))
        }
        _ => without_report(CallbackReply::SessionFault),
    }
}

/// Writes the call of a callback.
fn encode(
    writer: &mut Writer,
    xid: u32,
    minor: u32,
    call: &CallbackToSend,
    content: Option<&Content>,
) {
    let body = match call.parameters.security {
        CallbackSecurity::System { user: uid, group: gid } => {
            let machine_name = Opaque(MACHINE_NAME);
            let sys = AuthSys { stamp: 0, machine_name, uid, gid, gids: Inline::default() };
            xdr::encode_whole(&sys).ok()
        }
        CallbackSecurity::None | CallbackSecurity::Gss => None,
    };
    let credential = match &body {
        Some(body) => Auth { flavor: flavor::SYS, body: Opaque(body) },
        None => Auth::NONE,
    };
    writer.clear();
    let header = rpc::Call {
        xid,
        program: call.parameters.program,
        version: CALLBACK_VERSION,
        procedure: PROCEDURE_CB_COMPOUND,
        credential,
        verifier: Auth::NONE,
        header: &[],
    };
    rpc::encode_call(&header, writer);
    let mut operations = CallWriter::<Callback<'_>>::new(writer, Opaque(&[]), minor, 0);
    let referring = call.referring.map(|referring| ReferringSession {
        session: SessionId(referring.session.0),
        calls: List(vec![ShownCall { sequence: referring.sequence, slot: referring.slot }]),
    });
    let sequence = CbSequenceArgs {
        session: SessionId(call.session.0),
        sequence: call.sequence,
        slot: call.slot,
        highest_slot: call.highest_slot,
        cache_this: false,
        referring: List(referring.into_iter().collect()),
    };
    operations.push(writer, &Callback::Sequence(sequence));
    match content {
        Some(Content::Recall(Recall { shown, file, truncate, .. })) => {
            let (state, truncate, handle) = (*shown, *truncate, Opaque(&file.0[..]));
            operations.push(writer, &Callback::Recall(CbRecallArgs { state, truncate, handle }));
        }
        Some(Content::LockFree(LockFree { shown, owner, file, .. })) => {
            let handle = Opaque(&file.0[..]);
            let owner = StateOwner { client: ShownClient(shown.0), owner: Opaque(owner) };
            operations.push(writer, &Callback::NotifyLock(CbNotifyLockArgs { handle, owner }));
        }
        Some(Content::Ask(ask)) => operations.push(writer, &asking::question_of(ask)),
        Some(Content::Offload(offloaded)) => {
            operations.push(writer, &offload::notice_of(offloaded));
        }
        None => {}
    }
}

/// The version of the callback program.
const CALLBACK_VERSION: u32 = 1;
/// The number of the procedure CB_COMPOUND.
const PROCEDURE_CB_COMPOUND: u32 = 1;
/// The name by which this server calls itself in the credentials of callbacks.
const MACHINE_NAME: &[u8] = b"dafs";
/// The number of calls without a reply above which those of ended sessions are forgotten.
const IN_FLIGHT_MAX: usize = 4096;
