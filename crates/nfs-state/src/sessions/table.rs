//! The table of all sessions, and the memory for kept replies.

use dafs_base::Slab;
use dafs_types::QuickMap;
use smallvec::SmallVec;

use super::attributes::ChannelAttributes;
use super::connections::forget;
use super::session::{CallbackParameters, Session, SessionView, create_flags};
use super::slots::SlotTable;
use crate::Nfs4Error;
use crate::callbacks::BackSlots;
use crate::keys::{ClientKey, SessionId4, SessionKey, SessionTag};
use crate::limits::{
    KEPT_REPLY_BYTES_MIN, PERSISTENT_SLOTS_MAX, PERSISTENT_SLOTS_MIN,
    PERSISTENT_SLOTS_PER_PEER_MAX, REPLIES_BYTES_MAX, REPLIES_SHARE, SESSION_REPLIES_BYTES_MAX,
    StateConfig,
};
use crate::peer::{ConnectionId, PeerId, Principal};

/// The sessions to which each connection is bound.
pub(crate) type ByConnection = QuickMap<ConnectionId, SmallVec<[SessionKey; 1]>>;

/// All sessions of a server.
#[derive(Debug)]
pub struct Sessions {
    pub(super) config: StateConfig,
    next_index: u32,
    pub(super) table: Slab<Session, SessionTag>,
    by_id: QuickMap<SessionId4, SessionKey>,
    pub(super) by_connection: ByConnection,
    /// The number of bytes that are reserved for kept replies.
    pub(super) reserved: u64,
    persistent: PersistentSlots,
}

/// The number of slots of the persistent sessions.
#[derive(Debug, Default)]
struct PersistentSlots {
    total: u32,
    by_peer: QuickMap<PeerId, u32>,
}

/// The arguments for a new session.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub client: ClientKey,
    /// The host of the client.
    pub peer: PeerId,
    pub sequence: u32,
    pub creator: Principal,
    pub flags: u32,
    pub fore: ChannelAttributes,
    pub back: ChannelAttributes,
    pub callbacks: Option<CallbackParameters>,
    pub wants_back: bool,
}

impl Sessions {
    /// Creates an empty table.
    #[must_use]
    pub fn new(config: StateConfig) -> Self {
        debug_assert!(config.replies_bytes_max <= REPLIES_BYTES_MAX);
        Self {
            config,
            next_index: 1,
            table: Slab::default(),
            by_id: QuickMap::default(),
            by_connection: QuickMap::default(),
            reserved: 0,
            persistent: PersistentSlots::default(),
        }
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Returns true if a client of this host may have a persistent session with so many slots.
    pub(crate) fn has_persistent_room(&self, peer: PeerId, slots: u32) -> bool {
        let slots = slots.max(PERSISTENT_SLOTS_MIN);
        let of_peer = self.persistent.by_peer.get(&peer).copied().unwrap_or_default();
        self.persistent.total + slots <= PERSISTENT_SLOTS_MAX
            && of_peer + slots <= PERSISTENT_SLOTS_PER_PEER_MAX
    }

    /// Returns the number of bytes that are reserved for kept replies.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    /// Returns the key of the session with this id.
    ///
    /// # Errors
    /// BADSESSION if there is no such session.
    #[inline]
    pub fn find(&self, id: SessionId4) -> Result<SessionKey, Nfs4Error> {
        self.by_id.get(&id).copied().ok_or(Nfs4Error::BadSession)
    }

    /// Returns the visible part of a session; `None` if it has ended.
    #[must_use]
    pub fn view(&self, key: SessionKey) -> Option<SessionView<'_>> {
        self.get(key).map(|session| SessionView {
            id: session.id,
            client: session.client,
            flags: session.flags,
            fore: session.fore,
            back: session.back,
            callbacks: session.callbacks.as_ref(),
            connection_count: session.bindings.len(),
            running_count: session.slots.running(),
            slot_count: session.slots.enforced(),
            slot_target: session.slots.target(),
        })
    }

    #[inline]
    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.table.get(key.0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.table.get_mut(key.0)
    }

    /// Adds a session. It gets as many slots as it asks for, unless there is too little memory for
    /// their replies. `random` becomes part of its id, which is therefore hard to guess.
    ///
    /// # Errors
    /// DELAY if the table or the memory for replies is full.
    pub(crate) fn create(&mut self, new: NewSession, random: u64) -> Result<SessionKey, Nfs4Error> {
        if self.table.len() >= self.config.sessions_max as usize {
            return Err(Nfs4Error::Delay);
        }
        let slot_bytes = slot_bytes(&new.fore);
        let free = self.config.replies_bytes_max.saturating_sub(self.reserved);
        if free < slot_bytes {
            return Err(Nfs4Error::Delay);
        }
        let share = (free / REPLIES_SHARE).clamp(slot_bytes, SESSION_REPLIES_BYTES_MAX);
        let slot_count = u64::from(new.fore.requests_max).min(share / slot_bytes).max(1) as u32;
        let index = self.next_index;
        self.next_index = index.checked_add(1).ok_or(Nfs4Error::Delay)?;
        let id = SessionId4::new(self.config.epoch, index, random);
        Ok(self.insert(new, id, slot_count, SlotTable::new(slot_count)))
    }

    /// Adds a session with this id and these slots. The caller has checked that there is memory for
    /// them.
    pub(super) fn insert(
        &mut self,
        new: NewSession,
        id: SessionId4,
        slot_count: u32,
        slots: SlotTable,
    ) -> SessionKey {
        self.reserved += u64::from(slot_count) * slot_bytes(&new.fore);
        if new.flags & create_flags::PERSIST != 0 {
            self.persistent.add(new.peer, slot_count);
        }
        let key = SessionKey(self.table.insert(Session {
            id,
            client: new.client,
            peer: new.peer,
            sequence: new.sequence,
            creator: new.creator,
            flags: new.flags,
            fore: ChannelAttributes { requests_max: slot_count, ..new.fore },
            back: new.back,
            slots,
            bindings: SmallVec::new(),
            callbacks: new.callbacks,
            wants_back: new.wants_back,
            back_slots: BackSlots::new(new.back.requests_max),
            has_back_fault: false,
            is_back_silent: false,
        }));
        self.by_id.insert(id, key);
        key
    }

    /// Removes a session and returns it.
    pub(crate) fn remove(&mut self, key: SessionKey) -> Option<Session> {
        let session = self.table.remove(key.0)?;
        self.by_id.remove(&session.id);
        if session.is_persistent() {
            self.persistent.remove(session.peer, session.fore.requests_max);
        }
        self.reserved -= u64::from(session.slots.enforced()) * slot_bytes(&session.fore);
        for bound in &session.bindings {
            forget(&mut self.by_connection, bound.connection, key);
        }
        Some(session)
    }
}

impl PersistentSlots {
    fn add(&mut self, peer: PeerId, count: u32) {
        let count = count.max(PERSISTENT_SLOTS_MIN);
        self.total += count;
        *self.by_peer.entry(peer).or_default() += count;
    }

    fn remove(&mut self, peer: PeerId, count: u32) {
        let count = count.max(PERSISTENT_SLOTS_MIN);
        self.total -= count;
        if let Some(of_peer) = self.by_peer.get_mut(&peer) {
            *of_peer -= count;
            if *of_peer == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

/// Returns the number of bytes that are reserved for the kept reply of one slot.
pub(super) fn slot_bytes(fore: &ChannelAttributes) -> u64 {
    u64::from(fore.kept_bytes_max.max(KEPT_REPLY_BYTES_MIN))
}
