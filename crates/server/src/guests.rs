//! Callers that are not DAFS connections, such as users of NFS clients.
//!
//! Like a request of a DAFS connection, a request of a guest carries an endpoint id, so that tasks,
//! locks and fencing lists treat both in the same way. The result of a guest's request is not sent
//! over the network interface. Instead, the code of the guest's protocol takes the result from
//! [`GuestResults`] and encodes the reply.
//!
//! Invariant: an endpoint id refers to the same guest for the whole time in which a request uses
//! it.

use std::collections::VecDeque;
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::Party;
use dafs_files::caller::{Caller, Identity};
use dafs_files::outcome::Outcome;
use smallvec::SmallVec;

use crate::moving::transfer::Cookie;
use crate::reply_to::ReplyTo;

/// A user of a client whose protocol is not DAFS.
#[derive(Debug)]
pub(crate) struct Guest {
    endpoint: EndpointId,
    /// The identity whose permissions are checked.
    pub who: Arc<Identity>,
    /// The client and the fence identity of the guest.
    pub party: Party,
}

/// All guests.
#[derive(Debug)]
pub(crate) struct Guests {
    /// The owner number in the guests' endpoint ids, which is the number of their reactor.
    owner: u8,
    slots: Vec<Option<Guest>>,
    free: Vec<u32>,
    /// The generation of the next guest.
    next: u32,
}

/// The results of requests of guests, in the order in which the requests ended.
#[derive(Debug, Default)]
pub(crate) struct GuestResults {
    ended: VecDeque<(ReplyTo, GuestResult)>,
}

/// The result of one request of a guest.
#[derive(Debug)]
pub(crate) enum GuestResult {
    /// The outcome of an operation.
    Outcome(Outcome),
    /// The bytes of a read, which stay pinned in the cache until the loan ends.
    Read(GuestRead),
    /// The record that a reply waits for is durable.
    Durable,
}

/// The bytes that a read of a guest has found.
#[derive(Debug)]
pub(crate) struct GuestRead {
    /// The ranges of the cache's arena, each an offset and a length in bytes.
    pub pieces: SmallVec<[(u64, u32); 4]>,
    /// True if the file ends after these bytes.
    pub is_end: bool,
    /// Identifies the loan of the pieces. The loan must be ended when the pieces have been sent.
    pub cookie: Cookie,
}

impl GuestRead {
    /// Returns the number of bytes found.
    pub(crate) fn length(&self) -> u32 {
        self.pieces.iter().map(|(_, length)| *length).sum()
    }
}

impl Guest {
    /// Returns the caller of the guest's requests.
    pub(crate) fn caller(&self) -> Caller {
        Caller { who: self.who.clone(), party: self.party }
    }
}

impl Guests {
    /// Creates the table of guests whose requests are served by the reactor with this number.
    pub(crate) fn new(reactor: usize) -> Self {
        let owner = u8::try_from(reactor).unwrap_or(u8::MAX);
        Self { owner, slots: Vec::new(), free: Vec::new(), next: 1 }
    }

    /// Returns the number of the reactor that serves the guests.
    pub(crate) fn reactor(&self) -> usize {
        usize::from(self.owner)
    }

    /// Adds a guest and returns the endpoint id for its requests. `None` if there are too many
    /// guests.
    pub(crate) fn insert(&mut self, who: Arc<Identity>, party: Party) -> Option<EndpointId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() >= GUESTS_MAX => return None,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        let endpoint = EndpointId::outside(self.owner, index, self.next);
        self.next = self.next.wrapping_add(1).max(1);
        self.slots[index as usize] = Some(Guest { endpoint, who, party });
        Some(endpoint)
    }

    /// Returns the guest with this endpoint id. `None` for a DAFS connection, and for a guest that
    /// was removed.
    pub(crate) fn get(&self, endpoint: EndpointId) -> Option<&Guest> {
        let guest = self.slots.get(endpoint.index())?.as_ref();
        guest.filter(|guest| guest.endpoint == endpoint)
    }

    /// Removes a guest. The guest's requests in progress are treated like those of a client that
    /// has disconnected.
    pub(crate) fn remove(&mut self, endpoint: EndpointId) -> Option<Guest> {
        self.get(endpoint)?;
        self.free.push(endpoint.index() as u32);
        self.slots[endpoint.index()].take()
    }
}

impl GuestResults {
    /// Adds the result of a request.
    pub(crate) fn push(&mut self, to: ReplyTo, result: GuestResult) {
        self.ended.push_back((to, result));
    }

    /// Removes and returns the oldest result.
    pub(crate) fn pop(&mut self) -> Option<(ReplyTo, GuestResult)> {
        self.ended.pop_front()
    }

    /// Returns true if a result waits to be taken.
    pub(crate) fn is_any(&self) -> bool {
        !self.ended.is_empty()
    }
}

/// The maximum number of guests.
const GUESTS_MAX: usize = 1 << 16;
