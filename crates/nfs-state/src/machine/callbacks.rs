//! Callbacks: chooses the session, the slot and the connection for each callback.

use std::time::Duration;

use dafs_types::Moment;

use super::{NfsState, Notice};
use crate::Nfs4Error;
use crate::callbacks::{
    Callback, CallbackEvent, CallbackOutcome, CallbackReply, Phase, ReferringCall,
};
use crate::keys::{CallbackKey, ClientKey, SessionId4, SessionKey};
use crate::limits::{CALLBACK_REPLY_TIME, CALLBACK_RETRY_TIME};
use crate::peer::ConnectionId;
use crate::sessions::{CallbackParameters, Session};

/// A callback that the caller must send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackToSend {
    /// The key of the callback.
    pub key: CallbackKey,
    /// The client that the callback is for.
    pub client: ClientKey,
    /// The caller's number for the callback.
    pub word: u64,
    /// The connection on which the callback must be sent.
    pub connection: ConnectionId,
    /// The RPC program of the client's callback service, and the credential for it.
    pub parameters: CallbackParameters,
    /// The id of the session, for the CB_SEQUENCE.
    pub session: SessionId4,
    /// The key of the session, for [`NfsState::callback_replied`].
    pub session_key: SessionKey,
    /// The slot of the callback, for the CB_SEQUENCE.
    pub slot: u32,
    /// The sequence number of the callback on its slot, for the CB_SEQUENCE.
    pub sequence: u32,
    /// The highest slot on which a callback is in flight, for the CB_SEQUENCE.
    pub highest_slot: u32,
    /// The request to which the callback refers, if there is one.
    pub referring: Option<ReferringCall>,
    /// True if the callback was sent before on a connection that was lost.
    pub is_repeat: bool,
    /// The maximum size of the request in bytes.
    pub request_bytes_max: u32,
}

impl NfsState {
    /// Queues a callback. `word` is the caller's number for it. If the client does not reply within
    /// `patience`, the callback ends with [`CallbackOutcome::TimedOut`].
    ///
    /// # Errors
    /// STALE_CLIENTID if the client's record was removed; NOSPC if too many callbacks are queued.
    pub fn call_back(
        &mut self,
        client: ClientKey,
        word: u64,
        referring: Option<ReferringCall>,
        patience: Duration,
        now: Moment,
    ) -> Result<CallbackKey, Nfs4Error> {
        self.clients.get(client).ok_or(Nfs4Error::StaleClientId)?;
        let (deadline, phase) = (now.after(patience), Phase::Waiting);
        let (not_before, is_over) = (now, false);
        self.callbacks.add(Callback {
            client,
            word,
            deadline,
            not_before,
            referring,
            phase,
            is_over,
        })
    }

    /// Ends a callback that is no longer necessary, for example because the client has already
    /// returned the delegation. There will be no event for the callback.
    pub fn cancel_callback(&mut self, key: CallbackKey) {
        self.give_up(key);
    }

    /// Returns true if the server has a connection on which it can send callbacks to a client. Only
    /// then may it grant delegations and layouts, which it might have to recall.
    #[must_use]
    pub fn has_back_channel(&self, client: ClientKey) -> bool {
        let client = self.clients.get(client);
        client.is_some_and(|client| {
            let sessions = client.sessions.iter().filter_map(|key| self.sessions.get(*key));
            sessions.into_iter().any(Session::can_call_back)
        })
    }

    /// Returns the next callback to send. After each call of another function, the caller must call
    /// this until it returns `None`.
    pub fn next_callback(&mut self, now: Moment) -> Option<CallbackToSend> {
        while let Some(client) = self.callbacks.touched() {
            match self.send_one(client, now) {
                Some(callback) => return Some(callback),
                None => self.callbacks.untouch(client),
            }
        }
        None
    }

    /// Prepares one callback of a client for sending; `None` if no callback can be sent now.
    fn send_one(&mut self, client: ClientKey, now: Moment) -> Option<CallbackToSend> {
        let repeated = self.callbacks.of_client(client).find_map(|(key, callback)| {
            let Phase::Stranded { session, slot } = callback.phase else { return None };
            if callback.not_before > now {
                return None;
            }
            let connection = self.sessions.get(session)?.back_connection()?;
            Some((key, session, slot, connection))
        });
        if let Some((key, session, slot, connection)) = repeated {
            return self.dispatch(key, session, slot, connection, true, now);
        }
        let is_due =
            |callback: &Callback| callback.phase == Phase::Waiting && callback.not_before <= now;
        let (key, _) = self.callbacks.of_client(client).find(|(_, callback)| is_due(callback))?;
        for session in self.clients.get(client)?.sessions.clone() {
            let Some(found) = self.sessions.get_mut(session) else { continue };
            if !found.can_call_back() {
                continue;
            }
            let Some(connection) = found.back_connection() else { continue };
            if let Some(slot) = found.back_slots.take(key) {
                return self.dispatch(key, session, slot, connection, false, now);
            }
        }
        None
    }

    fn dispatch(
        &mut self,
        key: CallbackKey,
        session_key: SessionKey,
        slot: u32,
        connection: ConnectionId,
        is_repeat: bool,
        now: Moment,
    ) -> Option<CallbackToSend> {
        let session = self.sessions.get(session_key)?;
        let parameters = session.callbacks.clone()?;
        let callback = self.callbacks.get_mut(key)?;
        callback.phase = Phase::InFlight { session: session_key, slot, connection, sent: now };
        Some(CallbackToSend {
            key,
            client: callback.client,
            word: callback.word,
            connection,
            parameters,
            session: session.id,
            session_key,
            slot,
            sequence: session.back_slots.sequence(slot),
            highest_slot: session.back_slots.highest(),
            referring: callback.referring,
            is_repeat,
            request_bytes_max: session.back.request_bytes_max,
        })
    }

    /// Handles the reply to a callback. Replies that belong to no callback in flight are ignored.
    pub fn callback_replied(
        &mut self,
        session_key: SessionKey,
        slot: u32,
        sequence: u32,
        reply: CallbackReply,
        now: Moment,
    ) {
        let Some(session) = self.sessions.get_mut(session_key) else { return };
        let Some(key) = session.back_slots.user(slot, sequence) else { return };
        let Some(callback) = self.callbacks.get_mut(key) else { return };
        session.is_back_silent = false;
        if reply == CallbackReply::Busy {
            // The client may still process the request with this sequence number, so the slot keeps
            // the number.
            callback.phase = Phase::Stranded { session: session_key, slot };
            callback.not_before = now.after(CALLBACK_RETRY_TIME);
            return;
        }
        let is_fault = reply == CallbackReply::SessionFault;
        session.back_slots.free(slot, !is_fault, is_fault);
        session.has_back_fault |= is_fault;
        callback.phase = Phase::Waiting;
        match reply {
            CallbackReply::Done(status) => {
                self.end_callback(key, CallbackOutcome::Replied(status));
            }
            _ if callback.is_over => {
                self.callbacks.remove(key);
            }
            CallbackReply::Postponed | CallbackReply::Busy | CallbackReply::SessionFault => {
                if !is_fault {
                    callback.not_before = now.after(CALLBACK_RETRY_TIME);
                }
                // Other callbacks may use the slot, or this one may use another session.
                let client = callback.client;
                self.callbacks.touch(client);
            }
        }
    }

    /// Ends callbacks whose deadline has passed, and marks back channels on which the client does
    /// not reply.
    pub(super) fn on_callback_time(&mut self, now: Moment) {
        let mut late = Vec::new();
        let mut due = Vec::new();
        for (key, callback) in self.callbacks.iter() {
            if let Phase::InFlight { session, sent, .. } = callback.phase
                && now.since(sent) > CALLBACK_REPLY_TIME
                && let Some(session) = self.sessions.get_mut(session)
            {
                session.is_back_silent = true;
            }
            let is_in_flight = matches!(callback.phase, Phase::InFlight { .. });
            if callback.deadline <= now && !callback.is_over {
                late.push(key);
            }
            if !is_in_flight && callback.not_before <= now {
                due.push(callback.client);
            }
        }
        for client in due {
            self.callbacks.touch(client);
        }
        for key in late {
            self.end_callback(key, CallbackOutcome::TimedOut);
        }
    }

    /// Reports the outcome of a callback to the caller, unless no caller waits for it.
    fn end_callback(&mut self, key: CallbackKey, outcome: CallbackOutcome) {
        let Some(callback) = self.callbacks.get(key) else { return };
        let (client, word) = (callback.client, callback.word);
        if !callback.is_over {
            self.notices.push_back(Notice::Callback(CallbackEvent { client, word, outcome }));
        }
        self.give_up(key);
    }

    /// Removes a callback. If it is in flight, it occupies its slot until the client replies.
    fn give_up(&mut self, key: CallbackKey) {
        let Some(callback) = self.callbacks.get_mut(key) else { return };
        match callback.phase {
            Phase::Waiting => {
                self.callbacks.remove(key);
            }
            Phase::InFlight { .. } | Phase::Stranded { .. } => callback.is_over = true,
        }
    }

    /// Handles the loss of a connection of a session: callbacks in flight on it must be repeated on
    /// another connection.
    pub(super) fn strand(&mut self, session: SessionKey, lost: ConnectionId) {
        let Some(found) = self.sessions.get(session) else { return };
        for key in found.back_slots.users() {
            let Some(callback) = self.callbacks.get_mut(key) else { continue };
            match callback.phase {
                Phase::InFlight { slot, connection, .. } if connection == lost => {
                    callback.phase = Phase::Stranded { session, slot };
                    callback.not_before = Moment::default();
                }
                _ => {}
            }
        }
        self.callbacks.touch(found.client);
    }

    /// Handles the end of a session: callbacks in flight on it must be sent over another session.
    pub(super) fn requeue(&mut self, session: &Session) {
        for key in session.back_slots.users() {
            let Some(callback) = self.callbacks.get_mut(key) else { continue };
            callback.phase = Phase::Waiting;
            if callback.is_over {
                self.callbacks.remove(key);
            }
        }
        self.callbacks.touch(session.client);
    }
}
