//! The table of guests (users of clients that use another protocol than DAFS, such as NFS), by the
//! endpoint ids that stand for them.
//!
//! Invariant: an endpoint id refers to the same guest for the whole time in which a request uses
//! it.

use std::collections::VecDeque;
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{Party, WaiterId};
use dafs_files::caller::{Caller, Identity};
use dafs_types::{ClientId, FileHandle, QuickMap, StateId};

use crate::persistent::PersistentSessions;
use crate::repeats::Repeats;

/// A user of a client whose protocol is not DAFS.
#[derive(Debug)]
pub(crate) struct Guest {
    endpoint: EndpointId,
    /// The identity whose permissions are checked.
    pub who: Arc<Identity>,
    /// The client and the fence identity of the guest.
    pub party: Party,
}

/// What a client of guests must be told about a delegation or a lock.
#[derive(Clone, Debug)]
pub(crate) enum GuestNotice {
    /// The client must be asked to return the delegation with this state id. If `truncate` is true,
    /// it need not write back its data.
    Recall { state: StateId, truncate: bool },
    /// The client must be asked for the attributes of a file that is delegated to it. The request
    /// with this id waits for them.
    AskAttributes { client: ClientId, file: FileHandle, waiter: WaiterId },
    /// The delegation of a file was revoked.
    Revoked { client: ClientId, file: FileHandle },
    /// A lock that was denied to this owner can be taken now. `word` is the number that was given
    /// with the watch.
    LockFree { owner: Box<[u8]>, file: FileHandle, word: u64 },
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
    /// The clients of guests that hold delegations or wait for locks.
    holders: QuickMap<ClientId, ()>,
    /// Notices that the reactor of the guests has not handled yet. Each delegation and each watched
    /// lock of these clients has few, because the reactor takes all of them in each turn.
    notices: VecDeque<GuestNotice>,
    /// The calls that guests may send again.
    pub repeats: Repeats,
    /// The persistent sessions of guests, with the requests that they may send again.
    pub persistent: PersistentSessions,
}

impl Guest {
    /// Returns the caller of the guest's requests.
    pub(crate) fn caller(&self) -> Caller {
        Caller { who: self.who.clone(), party: self.party }
    }
}

impl Guests {
    /// Creates the table of guests whose requests are served by the reactor with this number.
    /// `None` if no reactor serves guests.
    pub(crate) fn new(reactor: Option<usize>) -> Self {
        // No interface has this owner number.
        let owner = reactor.and_then(|reactor| u8::try_from(reactor).ok()).unwrap_or(u8::MAX);
        Self {
            owner,
            slots: Vec::new(),
            free: Vec::new(),
            next: 1,
            holders: QuickMap::default(),
            notices: VecDeque::new(),
            repeats: Repeats::default(),
            persistent: PersistentSessions::default(),
        }
    }

    /// Returns true if the endpoint id is that of a guest, or of a guest that was removed.
    pub(crate) fn is_guest(&self, endpoint: EndpointId) -> bool {
        endpoint.owner() == self.reactor()
    }

    /// Returns an endpoint id that stands for no guest, for calls without a user. Their results go
    /// to the reactor of the guests, too.
    pub(crate) fn nobody(&self) -> EndpointId {
        EndpointId::outside(self.owner, GUESTS_MAX as u32, 1)
    }

    /// Returns the number of the reactor that serves the guests.
    pub(crate) fn reactor(&self) -> usize {
        usize::from(self.owner)
    }

    /// Records that a client of guests may get notices from now on.
    pub(crate) fn expect_notices(&mut self, client: ClientId) {
        self.holders.insert(client, ());
    }

    /// Removes a client that gets no notices any more.
    pub(crate) fn end_notices(&mut self, client: ClientId) {
        self.holders.remove(&client);
    }

    /// Queues a notice to a client. Returns false if the client is not one of
    /// guests.
    pub(crate) fn notify(&mut self, client: ClientId, notice: GuestNotice) -> bool {
        let is_holder = self.holders.contains_key(&client);
        if is_holder {
            self.notices.push_back(notice);
        }
        is_holder
    }

    /// Removes and returns the oldest notice.
    pub(crate) fn next_notice(&mut self) -> Option<GuestNotice> {
        self.notices.pop_front()
    }

    /// Returns the number of guests.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
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

/// The maximum number of guests.
const GUESTS_MAX: usize = 1 << 16;
