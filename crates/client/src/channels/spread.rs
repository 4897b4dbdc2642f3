//! Which channel a transfer goes over, and what waits for it.
//!
//! Invariant: a request that gives up what transfers need, or changes what they find, goes out when
//! the transfers of its open that were asked for before have ended.

use crate::core::Core;
use crate::ids::SessionKey;
use crate::transfer::Transfer;

impl Core {
    /// Sends a transfer of a session with several channels over that of its file.
    pub fn send_beside(&mut self, first: SessionKey, mut transfer: Transfer) {
        let key = self.sessions[first].role.channel_for(&transfer.job.file.handle);
        let key = key.unwrap_or(first);
        if key != first {
            transfer.go_beside();
        }
        self.send_or_queue(key, transfer);
    }

    /// Sends what has waited for transfers over other channels.
    pub fn send_held(&mut self, key: SessionKey) {
        for call in self.sessions[key].role.take_ready() {
            self.send_or_queue_call(key, call);
        }
    }
}
