//! The table of all callbacks that have not ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dafs_base::Slab;
use dafs_types::Moment;

use crate::Nfs4Error;
use crate::keys::{CallbackKey, CallbackTag, ClientKey, SessionId4, SessionKey};
use crate::limits::{CALLBACKS_MAX, CALLBACKS_PER_CLIENT_MAX};
use crate::peer::ConnectionId;

/// The request of a client to which a callback refers, so that the client processes the reply to
/// this request before the callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferringCall {
    /// The session of the request.
    pub session: SessionId4,
    /// The slot of the request.
    pub slot: u32,
    /// The sequence number of the request.
    pub sequence: u32,
}

/// The reply of a client to a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackReply {
    /// CB_SEQUENCE succeeded, and the operation after it had this status.
    Done(u32),
    /// CB_SEQUENCE succeeded, and the server must send the operation after it again later.
    Postponed,
    /// The client is busy: the server must send the whole callback again later, with the same
    /// sequence number.
    Busy,
    /// CB_SEQUENCE failed, because the client does not know the session or expects other sequence
    /// numbers.
    SessionFault,
}

/// The end of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackEvent {
    /// The client that the callback was for.
    pub client: ClientKey,
    /// The caller's number for the callback.
    pub word: u64,
    /// The outcome of the callback.
    pub outcome: CallbackOutcome,
}

/// The outcome of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// The client has replied with this status.
    Replied(u32),
    /// The client has not replied before the deadline. If the callback was a recall, the caller
    /// must revoke the state.
    TimedOut,
}

/// A callback that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    pub client: ClientKey,
    pub word: u64,
    pub deadline: Moment,
    pub not_before: Moment,
    pub referring: Option<ReferringCall>,
    pub phase: Phase,
    /// True if no caller waits for the callback any more. It still occupies its slot until the
    /// client replies.
    pub is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    InFlight { session: SessionKey, slot: u32, connection: ConnectionId, sent: Moment },
    Stranded { session: SessionKey, slot: u32 },
}

/// All callbacks that have not ended, in the order in which they were queued.
#[derive(Debug)]
pub(crate) struct Callbacks {
    table: Slab<Callback, CallbackTag>,
    by_client: BTreeMap<ClientKey, VecDeque<CallbackKey>>,
    /// The clients to which a callback can perhaps be sent now that could not be sent before.
    touched: BTreeSet<ClientKey>,
}

impl Callbacks {
    pub(crate) fn new() -> Self {
        Self {
            table: Slab::tagged(CALLBACKS_MAX),
            by_client: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    pub(crate) fn get(&self, key: CallbackKey) -> Option<&Callback> {
        self.table.get(key.0)
    }

    pub(crate) fn get_mut(&mut self, key: CallbackKey) -> Option<&mut Callback> {
        self.table.get_mut(key.0)
    }

    /// Adds a callback.
    ///
    /// # Errors
    /// NOSPC if the client or the table has too many callbacks.
    pub(crate) fn add(&mut self, callback: Callback) -> Result<CallbackKey, Nfs4Error> {
        let client = callback.client;
        let count = self.by_client.get(&client).map_or(0, VecDeque::len);
        if count >= CALLBACKS_PER_CLIENT_MAX {
            return Err(Nfs4Error::NoSpc);
        }
        let key = self.table.try_insert(callback).map_err(|_| Nfs4Error::NoSpc)?;
        self.by_client.entry(client).or_default().push_back(CallbackKey(key));
        self.touched.insert(client);
        Ok(CallbackKey(key))
    }

    /// Removes and returns a callback; `None` if it has already ended.
    pub(crate) fn remove(&mut self, key: CallbackKey) -> Option<Callback> {
        let callback = self.table.remove(key.0)?;
        if let Some(own) = self.by_client.get_mut(&callback.client) {
            own.retain(|other| *other != key);
            if own.is_empty() {
                self.by_client.remove(&callback.client);
                self.touched.remove(&callback.client);
            } else {
                self.touched.insert(callback.client);
            }
        }
        Some(callback)
    }

    /// Removes all callbacks of a client that has ended.
    pub(crate) fn remove_client(&mut self, client: ClientKey) {
        for key in self.by_client.remove(&client).unwrap_or_default() {
            self.table.remove(key.0);
        }
        self.touched.remove(&client);
    }

    /// Records that a callback can perhaps be sent to a client now.
    pub(crate) fn touch(&mut self, client: ClientKey) {
        if self.by_client.contains_key(&client) {
            self.touched.insert(client);
        }
    }

    /// Returns a client to which a callback can perhaps be sent now.
    pub(crate) fn touched(&self) -> Option<ClientKey> {
        self.touched.first().copied()
    }

    /// Records that no further callback can be sent to a client now.
    pub(crate) fn untouch(&mut self, client: ClientKey) {
        self.touched.remove(&client);
    }

    /// Iterates over the callbacks of a client, in the order in which they were queued.
    pub(crate) fn of_client(
        &self,
        client: ClientKey,
    ) -> impl Iterator<Item = (CallbackKey, &Callback)> {
        let own = self.by_client.get(&client).into_iter().flatten();
        own.filter_map(|key| Some((*key, self.get(*key)?)))
    }

    /// Iterates over all callbacks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallbackKey, &Callback)> {
        self.table.iter().map(|(key, callback)| (CallbackKey(key), callback))
    }
}
