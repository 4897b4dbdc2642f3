//! The record of one incarnation of a client.

use dafs_types::{ClientId, Moment, Verifier};
use smallvec::SmallVec;

use super::created::CreatedSession;
use crate::keys::{ClientKey, SessionKey};
use crate::peer::{Caller, PeerId, Principal, Protection};

/// The record of one incarnation of a client: the owner and verifier of its EXCHANGE_ID, and
/// everything that belongs to that incarnation.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: ClientId,
    pub owner: Box<[u8]>,
    pub verifier: Verifier,
    pub principal: Principal,
    pub peer: PeerId,
    pub protection: Protection,
    pub is_confirmed: bool,
    /// True until the client has sent RECLAIM_COMPLETE.
    pub is_reclaiming: bool,
    /// True if the record is from before a restart of the server.
    pub is_restored: bool,
    /// True if the record is from before a restart, and the client has sent nothing since.
    pub is_awaited: bool,
    /// The sequence number of the last CREATE_SESSION.
    pub sequence: u32,
    /// The result of the last CREATE_SESSION.
    pub created: Option<CreatedSession>,
    /// The time of the last request that renewed the lease.
    pub renewed: Moment,
    pub is_courtesy: bool,
    /// The number of the client's requests that are in progress.
    pub running: u32,
    pub sessions: SmallVec<[SessionKey; 2]>,
    /// The number of the client's sessions that have asked for a back channel.
    pub back_sessions: u32,
    /// The number of the client's connections that are bound to the back channel of a session.
    pub back_connections: u32,
    /// The number of the client's valid state ids.
    pub states: u32,
    pub revoked: RevokedStates,
}

/// The counts of state ids that the server has revoked and the client has not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RevokedStates {
    pub expired: u32,
    pub by_administrator: u32,
    pub recallable: u32,
}

impl Client {
    /// Returns true if the sender of a request may be the client itself: it has proved that it is
    /// the client's principal, or it is at the client's address.
    pub(crate) fn is_from(&self, caller: &Caller<'_>) -> bool {
        self.peer == caller.peer
            || self.principal.is_proved() && self.principal == *caller.principal
    }

    /// Returns true if the client has sessions or state, which it would lose with its record.
    pub(crate) fn has_state(&self) -> bool {
        !self.sessions.is_empty() || self.states > 0
    }
}

/// The reason why a client's record was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The next incarnation of the client was confirmed, or another client has taken over a name
    /// whose record had no state.
    Replaced,
    /// The lease had expired, and the courtesy time had ended or the client's state or memory was
    /// needed.
    Expired,
    /// The client sent DESTROY_CLIENTID.
    Destroyed,
    /// An administrator or a fence ended the client.
    Revoked,
}

/// A client whose record was removed. The caller must release its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedClient {
    /// The key of the removed record.
    pub key: ClientKey,
    /// The client id of the removed record.
    pub id: ClientId,
    /// True if the record was confirmed, so that state may belong to it.
    pub was_confirmed: bool,
    /// The reason why the record was removed.
    pub reason: EndReason,
    /// The sessions of the client.
    pub(crate) sessions: SmallVec<[SessionKey; 2]>,
}

/// The visible part of a client's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientView<'a> {
    /// The client id that EXCHANGE_ID returned.
    pub id: ClientId,
    /// The name by which the client calls itself.
    pub owner: &'a [u8],
    /// The verifier of this incarnation of the client.
    pub verifier: Verifier,
    /// The principal that sent EXCHANGE_ID.
    pub principal: &'a Principal,
    /// The host that sent EXCHANGE_ID.
    pub peer: PeerId,
    /// The protection of the client's state.
    pub protection: Protection,
    /// True after the first CREATE_SESSION.
    pub is_confirmed: bool,
    /// True while the server keeps the client's state although the lease has expired.
    pub is_courtesy: bool,
    /// True until the client sends RECLAIM_COMPLETE.
    pub is_reclaiming: bool,
    /// The number of sessions of the client.
    pub session_count: u32,
    /// The number of state ids of the client.
    pub state_count: u32,
    /// The time of the last renewal of the lease.
    pub renewed: Moment,
}
