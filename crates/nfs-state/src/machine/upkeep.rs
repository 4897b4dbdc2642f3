//! The passing of time, lost connections, and the end of clients.

use dafs_types::Moment;

use super::NfsState;
use crate::clients::EndedClient;
use crate::keys::ClientKey;
use crate::peer::ConnectionId;
use crate::sessions::SlotRecall;

/// What the server must do after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A client has ended, and everything that it holds must be released.
    Ended(EndedClient),
    /// A client is asked to use fewer slots. CB_RECALL_SLOT tells it at once.
    RecallSlots(SlotRecall),
}

impl NfsState {
    /// Handles the passing of time. The caller must call this about once a second.
    pub fn on_time(&mut self, now: Moment) {
        self.clients.on_time(now);
        self.end_clients();
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
        }
    }

    /// Reports that a client's state is in another's way. Returns true if the holder is gone,
    /// because its lease had expired.
    pub fn conflict(&mut self, holder: ClientKey, now: Moment) -> bool {
        let is_gone = self.clients.conflict(holder, now);
        self.end_clients();
        is_gone
    }

    /// Removes a client for an administrator or a fence.
    pub fn revoke_client(&mut self, client: ClientKey) {
        self.clients.revoke(client);
        self.end_clients();
    }

    /// Returns the next notice. The caller must take all of them after each call.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Removes the sessions of the clients that have ended.
    pub(super) fn end_clients(&mut self) {
        while let Some(mut ended) = self.clients.poll_ended() {
            for key in std::mem::take(&mut ended.sessions) {
                self.remove_session(key);
            }
            self.notices.push_back(Notice::Ended(ended));
        }
    }
}
