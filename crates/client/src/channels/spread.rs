//! Chooses the channel of a transfer, and holds back requests that must not overtake it.
//!
//! Invariant: a request that releases an object that transfers need, or changes the data that they
//! see, is sent after all earlier transfers of its open have ended.

use crate::core::Core;
use crate::ids::SessionKey;
use crate::transfer::Transfer;

impl Core {
    /// Sends a transfer over the channel of its file, in a session with several channels.
    pub(crate) fn send_on_file_channel(&mut self, first: SessionKey, mut transfer: Transfer) {
        let key = self.sessions[first].role.channel_for(&transfer.job.file.handle);
        let key = key.unwrap_or(first);
        if key != first {
            transfer.move_elsewhere();
        }
        self.send_or_queue(key, transfer);
    }

    /// Sends the held requests that no longer have to wait for transfers on other channels.
    pub(crate) fn send_held(&mut self, key: SessionKey) {
        for call in self.sessions[key].role.take_ready() {
            self.send_or_queue_call(key, call);
        }
    }
}
