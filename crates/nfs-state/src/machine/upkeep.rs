//! Periodic work, lost connections, and the end of clients.

use dafs_types::Moment;

use super::NfsState;
use crate::callbacks::CallbackEvent;
use crate::clients::EndedClient;
use crate::keys::{ClientKey, SessionId4};
use crate::peer::ConnectionId;
use crate::sessions::SlotRecall;

/// An action that the server must take after a call of [`NfsState`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A client has ended. The server must release everything that the client holds.
    Ended(EndedClient),
    /// A persistent session has ended. The server must remove its record from the journal.
    SessionEnded(SessionId4),
    /// A callback has ended.
    Callback(CallbackEvent),
    /// A client must use fewer slots. The server may send CB_RECALL_SLOT, so that the client learns
    /// this immediately.
    RecallSlots(SlotRecall),
}

impl NfsState {
    /// Ends leases and adjusts the number of slots. The caller must call this about once a second.
    pub fn on_time(&mut self, now: Moment) {
        self.clients.on_time(now);
        self.end_clients();
        self.on_callback_time(now);
        let recalls = self.sessions.balance();
        self.notices.extend(recalls.into_iter().map(Notice::RecallSlots));
    }

    /// Handles the loss of a connection: it is no longer bound to any session.
    pub fn connection_lost(&mut self, connection: ConnectionId) {
        for key in self.sessions.unbind(connection) {
            let client = self.sessions.get(key).and_then(|s| self.clients.get_mut(s.client));
            if let Some(client) = client {
                client.back_connections -= 1;
            }
            self.strand(key, connection);
        }
    }

    /// Reports that another client needs something that `holder` holds. Returns true if the record
    /// of `holder` no longer exists, because its lease had expired.
    pub fn conflict(&mut self, holder: ClientKey, now: Moment) -> bool {
        let is_gone = self.clients.conflict(holder, now);
        self.end_clients();
        is_gone
    }

    /// Removes a client because an administrator or a fence demands it.
    pub fn revoke_client(&mut self, client: ClientKey) {
        self.clients.revoke(client);
        self.end_clients();
    }

    /// Removes and returns the next notice. The caller must take all notices after each call.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Removes the sessions of the clients that have ended.
    pub(super) fn end_clients(&mut self) {
        while let Some(mut ended) = self.clients.poll_ended() {
            for key in std::mem::take(&mut ended.sessions) {
                self.remove_session(key);
            }
            self.callbacks.remove_client(ended.key);
            self.remove_states(ended.key);
            self.notices.push_back(Notice::Ended(ended));
        }
    }
}
