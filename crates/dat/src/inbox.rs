//! Receive buffers in which messages are read without being copied.
//!
//! Invariant: a slot is either posted, and then only the transport writes it, or owned by an
//! [`InboxSlot`], and then no other code accesses it. Ownership changes only with the post and with
//! the completion. To ensure this, an inbox allocates its memory itself and gives no other code
//! access to it. Its region has a private key, which [`Interface`] accepts only from the inbox. The
//! cookies of its receives are private too, so that no other completion can be mistaken for a
//! completion of the inbox.

use std::sync::atomic::{AtomicU64, Ordering};

use dafs_memory::{Memory, Pages};

use crate::{Completion, Domain, EndpointId, Interface, LocalKey, LocalSegment, Operation, Region};

/// A set of message buffers (slots), each of which is posted as a receive, in use, or free.
#[derive(Debug)]
pub struct Inbox {
    /// The cookie of slot 0. The cookie of every other slot is this value plus the slot's number.
    cookies: u64,
    region: Region,
    /// The number of the interface in which the region is registered.
    interface: u64,
    slot_bytes: u32,
    /// The segment of each slot, built once. If a segment were built for each post, it would be
    /// loaded in words of other sizes than those that were stored, and that load would wait for all
    /// earlier stores.
    segments: Box<[LocalSegment]>,
    /// The slots that are posted, by number.
    posted: Box<[Option<InboxSlot>]>,
    /// The slots that are neither posted nor in use.
    free: Vec<InboxSlot>,
}

/// A slot owned by the code that reads the message in it.
#[derive(Debug)]
pub struct InboxSlot {
    /// The memory that contains the message. The slot holds a reference, because the inbox may be
    /// dropped before its slot.
    memory: Memory,
    offset: usize,
    length: usize,
    number: u16,
}

/// The reason why an inbox could not be created.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The system has no memory for the slots.
    #[error(transparent)]
    Memory(#[from] std::io::Error),
    /// The interface has no room for another region.
    #[error("the interface has no room for another region")]
    Regions,
}

impl Inbox {
    /// Creates an inbox of `slots` slots of `slot_bytes` bytes each, for connections of one domain.
    ///
    /// # Errors
    /// [`InboxError`] if there is no memory or no room for another region.
    pub fn new<E>(
        interface: &mut Interface<E>,
        domain: Domain,
        slots: u16,
        slot_bytes: u32,
    ) -> Result<Self, InboxError> {
        let length = slot_bytes as usize;
        let stride = length.next_multiple_of(LINE_BYTES) + SLOT_GAP_BYTES;
        let memory = Memory::anonymous(stride * usize::from(slots), Pages::Small)?;
        let registered = interface.register_private(&memory, domain);
        let (region, number) = registered.ok_or(InboxError::Regions)?;
        let slot = |number: u16| InboxSlot {
            memory: memory.clone(),
            offset: stride * usize::from(number),
            length,
            number,
        };
        let segment = |slot: &InboxSlot| region.local(slot.offset as u64, slot_bytes);
        let free: Vec<_> = (0..slots).map(slot).collect();
        Ok(Self {
            cookies: FIRST_COOKIE + (INBOXES.fetch_add(1, Ordering::Relaxed) << COOKIE_BITS),
            region,
            interface: number,
            slot_bytes,
            segments: free.iter().map(segment).collect(),
            posted: free.iter().map(|_| None).collect(),
            free: free.into_iter().rev().collect(),
        })
    }

    /// Returns the size of each slot in bytes.
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// Returns the key of the inbox's region, for [`Interface::deregister`].
    #[must_use]
    pub fn key(&self) -> LocalKey {
        self.region.key
    }

    /// Posts a free slot as a receive on the interface for which the inbox was created. Returns
    /// false if no slot is free or the connection accepts no receive. A connection that accepts no
    /// receive is about to end, which an event will report.
    #[inline]
    pub fn post<E>(&mut self, interface: &mut Interface<E>, endpoint: EndpointId) -> bool {
        // In another interface, this key may belong to the region of another inbox.
        if !interface.is_number(self.interface) {
            return false;
        }
        let Some(slot) = self.free.pop() else { return false };
        let number = usize::from(slot.number);
        let segment = &self.segments[number..=number];
        if interface.post_private(endpoint, self.cookies | number as u64, segment).is_err() {
            self.free.push(slot);
            return false;
        }
        self.posted[number] = Some(slot);
        true
    }

    /// Returns the number of slots that are free to be posted.
    #[must_use]
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes back a slot whose message is no longer needed.
    #[inline]
    pub fn give_back(&mut self, slot: InboxSlot) {
        // A slot of another inbox would make this inbox post a slot that is still in use.
        if slot.memory.address() == self.region.address {
            self.free.push(slot);
        }
    }

    /// Returns the slot whose receive has completed, or `None` if the completion belongs to no
    /// receive of this inbox.
    #[inline]
    pub(crate) fn ended(&mut self, completion: &Completion) -> Option<InboxSlot> {
        if completion.operation != Operation::Receive {
            return None;
        }
        let number = completion.cookie.wrapping_sub(self.cookies);
        self.posted.get_mut(usize::try_from(number).ok()?)?.take()
    }
}

impl InboxSlot {
    /// Returns the first `length` bytes of the message, limited to the size of the slot.
    #[inline]
    pub fn message(&mut self, length: u32) -> &mut [u8] {
        let length = self.length.min(length as usize);
        let start = self.memory.pointer(self.offset, length);
        // SAFETY: `pointer` has checked that the range lies inside the memory. `self` keeps the
        // memory alive, and it holds initialized bytes, of zeros or of messages. The memory belongs
        // to the inbox, and no two slots overlap. This slot is not posted (invariant), and posting
        // takes it by value, so until then only `self` leads to these bytes.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}

/// Returns true if a cookie belongs to a receive of an inbox.
#[inline]
pub(crate) const fn is_private(cookie: u64) -> bool {
    cookie >= FIRST_COOKIE
}

static INBOXES: AtomicU64 = AtomicU64::new(0);
const FIRST_COOKIE: u64 = 1 << 63;
/// The number of bits of a cookie that number the slots of an inbox.
const COOKIE_BITS: u32 = 16;
/// The size in bytes of a processor's cache line.
const LINE_BYTES: usize = 64;
/// The gap in bytes between two slots. If the distance of slots were a power of two, all slots
/// would share a few sets of the processor's caches, and each message would evict the one before
/// last.
const SLOT_GAP_BYTES: usize = 256;
