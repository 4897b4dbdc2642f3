//! Where messages arrive, and are read without being copied.
//!
//! Invariant: a slot is either posted, and then the transport's alone to write, or it is in
//! somebody's hands as an [`InboxSlot`], and then nobody else touches it. It changes hands with
//! the post and with the completion, and only there: an inbox makes its memory itself and gives
//! nobody another way to it. Its region has a private key, which [`Interface`] takes from nobody
//! else, and the cookies of its receives are private too, so that no other completion can be
//! taken for one of them.

use std::sync::atomic::{AtomicU64, Ordering};

use dafs_memory::{Memory, Pages};

use crate::{Completion, Domain, EndpointId, Interface, LocalKey, LocalSegment, Operation, Region};

/// Slots for messages, each of which is posted as a receive or free.
#[derive(Debug)]
pub struct Inbox {
    /// Cookie of its first slot; the others follow.
    cookies: u64,
    region: Region,
    /// The interface that the region is of.
    interface: u64,
    slot_bytes: u32,
    /// Where each slot is. Made for the post that wants it, a segment would be loaded in other
    /// words than it was stored in, and wait for whatever was stored before.
    segments: Box<[LocalSegment]>,
    /// Those that are posted.
    posted: Box<[Option<InboxSlot>]>,
    /// Those that are not, and in nobody's hands.
    free: Vec<InboxSlot>,
}

/// A slot in the hands of whoever reads the message in it.
#[derive(Debug)]
pub struct InboxSlot {
    /// Keeps the bytes: the inbox may be gone before its slot is.
    memory: Memory,
    offset: usize,
    length: usize,
    number: u16,
}

/// Why there is no inbox.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The system has no memory for it.
    #[error(transparent)]
    Memory(#[from] std::io::Error),
    /// The interface takes no more regions.
    #[error("the interface has no room for another region")]
    Regions,
}

impl Inbox {
    /// An inbox of `slots` slots of `slot_bytes` bytes each, for connections of one domain.
    ///
    /// # Errors
    /// Out of memory or of regions.
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

    /// Bytes of each slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// The region, for taking it back with [`Interface::deregister`].
    #[must_use]
    pub fn key(&self) -> LocalKey {
        self.region.key
    }

    /// Posts a free slot as a receive, by the interface that the inbox was made with. False if
    /// none is free, or the connection takes none: it is ending then, which an event tells.
    #[inline]
    pub fn post<E>(&mut self, interface: &mut Interface<E>, endpoint: EndpointId) -> bool {
        // In another's table the key may be another inbox's.
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

    /// Slots that may be posted.
    #[must_use]
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a slot back that nobody reads any more.
    #[inline]
    pub fn give_back(&mut self, slot: InboxSlot) {
        // In another's stead, a slot of this one would be posted that somebody has.
        if slot.memory.address() == self.region.address {
            self.free.push(slot);
        }
    }

    /// The slot whose receive has ended. `None` if it was no receive of this inbox.
    #[inline]
    pub(crate) fn ended(&mut self, completion: &Completion) -> Option<InboxSlot> {
        if completion.operation != Operation::Receive {
            return None;
        }
        let number = completion.context.wrapping_sub(self.cookies);
        self.posted.get_mut(usize::try_from(number).ok()?)?.take()
    }
}

impl InboxSlot {
    /// The first `length` bytes of the message, or all that the slot holds.
    #[inline]
    pub fn message(&mut self, length: u32) -> &mut [u8] {
        let length = self.length.min(length as usize);
        let start = self.memory.pointer(self.offset, length);
        // SAFETY: `pointer` has checked that the range lies inside the memory, which `self`
        // keeps and which is bytes of zero or of messages. The memory is the inbox's own, and
        // no two slots overlap; this one is not posted (invariant), so that until it is, which
        // takes it by value, only `self` leads to these bytes.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}

/// Whether a cookie is of an inbox's receive.
#[inline]
pub(crate) const fn is_private(cookie: u64) -> bool {
    cookie >= FIRST_COOKIE
}

static INBOXES: AtomicU64 = AtomicU64::new(0);
const FIRST_COOKIE: u64 = 1 << 63;
/// Bits of a cookie that tell the slots of an inbox apart.
const COOKIE_BITS: u32 = 16;
/// A processor's cache line.
const LINE_BYTES: usize = 64;
/// Between two slots: a power of two from slot to slot would have all of them in the same few
/// sets of the processor's caches, and each message would push the one before last out.
const SLOT_GAP_BYTES: usize = 256;
