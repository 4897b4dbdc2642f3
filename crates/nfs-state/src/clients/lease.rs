//! Leases: their renewal and expiry, and the courtesy time of clients whose leases have expired.
//!
//! After its lease has expired, a client keeps its state and its sessions until another client
//! needs something that it holds, until the server needs the memory, or until the courtesy time
//! ends. Sessions are kept because a client learns from them which of its requests were executed.
//!
//! A client that was restored after a restart of the server and sends nothing ends with its lease.
//! Otherwise clients that never come back would be restored again and again.

use dafs_types::Moment;

use super::record::{Client, EndReason};
use super::table::Clients;
use crate::keys::ClientKey;

impl Clients {
    /// Renews a client's lease.
    #[inline]
    pub fn renew(&mut self, key: ClientKey, now: Moment) {
        if let Some(client) = self.get_mut(key) {
            client.renewed = client.renewed.max(now);
            client.is_courtesy = false;
            client.is_awaited = false;
        }
    }

    /// Reports that another client needs something that `holder` holds. If the lease of `holder`
    /// has expired, its record is removed. Returns true if the record no longer exists, so that the
    /// other client need not wait.
    pub fn conflict(&mut self, holder: ClientKey, now: Moment) -> bool {
        match self.get(holder) {
            None => true,
            Some(client) if self.has_lapsed(client, now) => {
                self.end(holder, EndReason::Expired);
                true
            }
            Some(_) => false,
        }
    }

    /// Removes unconfirmed clients, clients without state or sessions, and clients whose courtesy
    /// time has ended. The caller must call this about once a second.
    pub fn on_time(&mut self, now: Moment) {
        let lease = self.config.lease;
        let kept = lease + self.config.courtesy;
        let mut over = Vec::new();
        for (key, client) in self.records.iter_mut() {
            let idle = now.since(client.renewed);
            if client.running > 0 || idle <= lease {
                continue;
            }
            let may_stay = client.is_confirmed && client.has_state() && !client.is_awaited;
            if may_stay && idle <= kept {
                client.is_courtesy = true;
            } else {
                over.push(ClientKey(key));
            }
        }
        for key in over {
            self.end(key, EndReason::Expired);
        }
    }

    /// Removes the client whose lease expired the longest time ago, because the server needs
    /// memory. Returns true if there was such a client.
    pub(crate) fn evict(&mut self, now: Moment) -> bool {
        let victim = self.lapsed(now, None);
        if let Some(victim) = victim {
            self.end(victim, EndReason::Expired);
        }
        victim.is_some()
    }

    /// Removes a client because an administrator or a fence demands it.
    pub fn revoke(&mut self, key: ClientKey) {
        self.end(key, EndReason::Revoked);
    }

    /// Returns true if the client's lease has expired.
    pub(super) fn has_lapsed(&self, client: &Client, now: Moment) -> bool {
        client.running == 0 && now.since(client.renewed) > self.config.lease
    }
}
