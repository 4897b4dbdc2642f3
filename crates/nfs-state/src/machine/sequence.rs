//! SEQUENCE (RFC 8881 section 18.46): the beginning and the end of every request in a session.

use dafs_types::Moment;

use super::NfsState;
use crate::Nfs4Error;
use crate::clients::Client;
use crate::keys::{ClientKey, SessionId4, SessionKey};
use crate::limits::SEQUENCE_REPLY_BYTES;
use crate::peer::Caller;
use crate::sessions::{Session, SlotDecision};

/// The flags in the reply of SEQUENCE that inform the client about its state.
pub mod status_flags {
    /// The server has no connection on which it can send callbacks to the client.
    pub const CB_PATH_DOWN: u32 = 0x1;
    /// The server released all of the client's state after the lease had expired.
    pub const EXPIRED_ALL_STATE_REVOKED: u32 = 0x8;
    /// The server released some of the client's state after the lease had expired.
    pub const EXPIRED_SOME_STATE_REVOKED: u32 = 0x10;
    /// An administrator has revoked some of the client's state.
    pub const ADMIN_STATE_REVOKED: u32 = 0x20;
    /// The server has revoked a delegation or layout that the client did not return.
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x40;
    /// The server has restarted and the client must reclaim its state.
    pub const RESTART_RECLAIM_NEEDED: u32 = 0x100;
    /// The session has no connection on which the server can send callbacks.
    pub const CB_PATH_DOWN_SESSION: u32 = 0x200;
    /// The client has refused a callback with an error that concerns the session.
    pub const BACKCHANNEL_FAULT: u32 = 0x400;
}

/// The arguments of a SEQUENCE, and properties of the request that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceAsk {
    /// The id of the session.
    pub session: SessionId4,
    /// The sequence number of the request on its slot.
    pub sequence: u32,
    /// The slot of the request.
    pub slot: u32,
    /// The highest slot on which the client has a request at this time.
    pub highest_slot: u32,
    /// True if the server must keep the whole reply for a repeat of the request.
    pub must_keep: bool,
    /// A checksum of the request's credential and of all operations after the SEQUENCE. The
    /// SEQUENCE itself may differ in a repeat.
    pub checksum: u64,
    /// The number of operations of the request, including the SEQUENCE.
    pub operation_count: u32,
    /// The size of the request in bytes, including the RPC header.
    pub request_bytes: u32,
}

/// The results of SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceReply {
    /// The id of the session.
    pub session: SessionId4,
    /// The sequence number of the request on its slot.
    pub sequence: u32,
    /// The slot of the request.
    pub slot: u32,
    /// The highest slot that the client may use.
    pub highest_slot: u32,
    /// The highest slot that the server wants the client to use from now on.
    pub target_highest_slot: u32,
    /// The flags that inform the client about its state, see [`status_flags`].
    pub status_flags: u32,
}

/// Identifies a request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// The session of the request.
    pub session: SessionKey,
    /// The slot of the request.
    pub slot: u32,
    /// The sequence number of the request on its slot.
    pub sequence: u32,
}

/// A request that the server may execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The key of the request, for [`NfsState::finish`].
    pub request: RequestKey,
    /// The client that sent the request.
    pub client: ClientKey,
    /// True if the server must keep the whole reply for a repeat of the request.
    pub must_keep: bool,
    /// The maximum size of the reply in bytes.
    pub reply_bytes_max: u32,
    /// The maximum size in bytes of a reply that the session can keep.
    pub kept_bytes_max: u32,
    /// True if the outcomes of the session's requests must be journaled.
    pub is_persistent: bool,
    /// The results of the SEQUENCE.
    pub reply: SequenceReply,
}

/// The decision of SEQUENCE about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    /// The request is new. The caller must execute it and call [`NfsState::finish`].
    New(Admitted),
    /// The request was executed before a restart of the server. The caller must build the reply
    /// again, using the journaled outcome of the operation, and call [`NfsState::finish`].
    Resume(Admitted),
    /// The request is a repeat. [`NfsState::kept_reply`] returns its reply.
    Repeat(RequestKey),
    /// The request is a repeat whose reply was not kept. The SEQUENCE succeeds, and the operation
    /// after it fails with RETRY_UNCACHED_REP.
    RepeatNotKept(SequenceReply),
}

impl NfsState {
    /// Handles SEQUENCE.
    ///
    /// # Errors
    /// BADSESSION, CONN_NOT_BOUND_TO_SESSION, BADSLOT, BAD_HIGH_SLOT, SEQ_MISORDERED,
    /// SEQ_FALSE_RETRY, TOO_MANY_OPS and REQ_TOO_BIG as RFC 8881 defines them; DELAY for a repeat
    /// of a request in progress; REP_TOO_BIG_TO_CACHE if not even the reply of the SEQUENCE could
    /// be kept. After an error, the slot is unchanged.
    pub fn sequence(
        &mut self,
        ask: &SequenceAsk,
        caller: &Caller<'_>,
        now: Moment,
    ) -> Result<Sequenced, Nfs4Error> {
        let key = self.sessions.find(ask.session)?;
        let session = self.sessions.get(key).ok_or(Nfs4Error::BadSession)?;
        let client_key = session.client;
        let client = self.clients.get(client_key).ok_or(Nfs4Error::BadSession)?;
        let binds_itself = !client.protection.binds_connections();
        let is_bound = self.sessions.touch(key, caller.connection, now);
        if !is_bound && !binds_itself {
            return Err(Nfs4Error::ConnNotBound);
        }
        let session = self.sessions.get(key).ok_or(Nfs4Error::BadSession)?;
        let decision = session.slots.check(ask.slot, ask.sequence, ask.checksum)?;
        if ask.highest_slot >= session.fore.requests_max {
            return Err(Nfs4Error::BadHighSlot);
        }
        if matches!(decision, SlotDecision::New | SlotDecision::Resume) {
            check_size(session, ask)?;
        }
        if !is_bound {
            self.bind(key, caller.connection, true, false, now)?;
        }
        self.clients.renew(client_key, now);
        let request = RequestKey { session: key, slot: ask.slot, sequence: ask.sequence };
        match decision {
            SlotDecision::Repeat => Ok(Sequenced::Repeat(request)),
            SlotDecision::RepeatNotKept => Ok(Sequenced::RepeatNotKept(
                self.sequence_reply(request).ok_or(Nfs4Error::BadSession)?,
            )),
            SlotDecision::New => self.admit(ask, request).map(Sequenced::New),
            SlotDecision::Resume => self.admit(ask, request).map(Sequenced::Resume),
        }
    }

    /// Admits the repeat of a request whose reply was kept, as if it were new. `None` if the
    /// request is no such repeat. Only a server with an injected defect calls this.
    #[doc(hidden)]
    pub fn execute_repeat(&mut self, ask: &SequenceAsk) -> Option<Admitted> {
        let request = self.kept_for(ask)?;
        let session = self.sessions.get(request.session)?;
        let decision = session.slots.check(ask.slot, ask.sequence, ask.checksum);
        matches!(decision, Ok(SlotDecision::Repeat)).then_some(())?;
        self.admit(ask, request).ok()
    }

    /// Returns the request whose reply the slot of a request keeps, with the number of that
    /// request. Only a server with an injected defect calls this.
    #[doc(hidden)]
    #[must_use]
    pub fn kept_for(&self, ask: &SequenceAsk) -> Option<RequestKey> {
        let session = self.sessions.find(ask.session).ok()?;
        self.sessions.get(session)?.slots.reply(ask.slot)?;
        Some(RequestKey { session, slot: ask.slot, sequence: ask.sequence })
    }

    fn admit(&mut self, ask: &SequenceAsk, request: RequestKey) -> Result<Admitted, Nfs4Error> {
        let key = request.session;
        self.sessions.start(key, ask.slot, ask.sequence, ask.checksum, ask.highest_slot);
        let reply = self.sequence_reply(request).ok_or(Nfs4Error::BadSession)?;
        let session = self.sessions.get(key).ok_or(Nfs4Error::BadSession)?;
        if let Some(client) = self.clients.get_mut(session.client) {
            client.running += 1;
        }
        Ok(Admitted {
            request,
            client: session.client,
            must_keep: ask.must_keep,
            reply_bytes_max: session.fore.reply_bytes_max,
            kept_bytes_max: session.fore.kept_bytes_max,
            is_persistent: session.is_persistent(),
            reply,
        })
    }

    /// Ends a request. `reply` is the reply to keep for a repeat; `None` if no reply need be kept.
    /// A reply that is longer than the session's limit is not kept. Returns false if the session
    /// has ended meanwhile, so that no client waits for the reply.
    pub fn finish(&mut self, request: RequestKey, reply: Option<&[u8]>, now: Moment) -> bool {
        let Some(session) = self.sessions.get_mut(request.session) else { return false };
        let limit = session.fore.kept_bytes_max as usize;
        let reply = reply.filter(|reply| reply.len() <= limit);
        if !session.slots.finish(request.slot, request.sequence, reply) {
            return false;
        }
        if let Some(client) = self.clients.get_mut(session.client) {
            client.running -= 1;
            // The time that the server itself takes for a request does not count against the
            // client's lease.
            client.renewed = client.renewed.max(now);
        }
        true
    }

    /// Returns the reply that was kept for a request.
    #[must_use]
    pub fn kept_reply(&self, request: RequestKey) -> Option<&[u8]> {
        self.sessions.get(request.session)?.slots.reply(request.slot)
    }

    fn sequence_reply(&self, request: RequestKey) -> Option<SequenceReply> {
        let session = self.sessions.get(request.session)?;
        let client = self.clients.get(session.client)?;
        Some(SequenceReply {
            session: session.id,
            sequence: request.sequence,
            slot: request.slot,
            highest_slot: session.slots.enforced() - 1,
            target_highest_slot: session.slots.target() - 1,
            status_flags: flags_of(client, session),
        })
    }
}

fn check_size(session: &Session, ask: &SequenceAsk) -> Result<(), Nfs4Error> {
    if ask.operation_count > session.fore.operations_max {
        return Err(Nfs4Error::TooManyOps);
    }
    if ask.request_bytes > session.fore.request_bytes_max {
        return Err(Nfs4Error::ReqTooBig);
    }
    if ask.must_keep && session.fore.kept_bytes_max < SEQUENCE_REPLY_BYTES {
        return Err(Nfs4Error::RepTooBigToCache);
    }
    Ok(())
}

/// Returns the flags that inform a client about its state and its session.
fn flags_of(client: &Client, session: &Session) -> u32 {
    let no_path = client.back_sessions > 0 && client.back_connections == 0;
    let conditions = [
        (no_path, status_flags::CB_PATH_DOWN),
        (client.revoked.expired > 0, status_flags::EXPIRED_SOME_STATE_REVOKED),
        (client.revoked.by_administrator > 0, status_flags::ADMIN_STATE_REVOKED),
        (client.revoked.recallable > 0, status_flags::RECALLABLE_STATE_REVOKED),
        (client.is_restored && client.is_reclaiming, status_flags::RESTART_RECLAIM_NEEDED),
        (session.has_lost_back(), status_flags::CB_PATH_DOWN_SESSION),
        (session.has_back_fault, status_flags::BACKCHANNEL_FAULT),
    ];
    conditions.iter().fold(0, |flags, (holds, flag)| flags | if *holds { *flag } else { 0 })
}
