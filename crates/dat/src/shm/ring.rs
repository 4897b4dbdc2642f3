//! A one-way ring of frames in memory that two processes share.
//!
//! One side produces, the other consumes; neither locks. A frame is a header word
//! and a body; it starts on a cache line and never wraps around. The header names
//! the lap around the ring, so the consumer polls exactly one word, on the very line
//! that carries the frame's beginning, and a frame of one line touches one line.
//!
//! Invariants:
//! - before a header is committed, the word where the next header will be is not one
//!   of this lap: an older header, or zero where it may have been payload;
//! - `tail - head <= capacity - LINE`: the producer never touches unread bytes;
//! - nothing read from the ring is trusted: the header is loaded once, its length is
//!   checked against the ring, and bodies are copied out before they are parsed.
//!   A hostile peer can spoil its own messages only.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use dafs_memory::Memory;

use super::delta::Last;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A message; the header's word names a region to invalidate, or is zero.
    Send,
    /// Part of an RDMA write: address u64, then bytes. The word is the STag.
    Write,
    /// An RDMA read request: address u64, length u32. The word is the STag.
    ReadRequest,
    /// Part of the answer to the oldest unanswered read request.
    ReadResponse,
    /// A message as a difference from the short one before it; always one line.
    Delta,
    /// Nothing more up to the end of the ring; goes on at its start.
    Wrap,
}

impl FrameKind {
    fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            1 => Some(Self::Send),
            2 => Some(Self::Write),
            3 => Some(Self::ReadRequest),
            4 => Some(Self::ReadResponse),
            5 => Some(Self::Delta),
            6 => Some(Self::Wrap),
            _ => None,
        }
    }

    fn bits(self) -> u64 {
        match self {
            Self::Send => 1,
            Self::Write => 2,
            Self::ReadRequest => 3,
            Self::ReadResponse => 4,
            Self::Delta => 5,
            Self::Wrap => 6,
        }
    }
}

/// A frame's header: body length, kind, and a word of its own. In memory a lap
/// number stands beside them: see [`lap_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    pub length: u32,
    pub word: u32,
}

impl FrameHeader {
    /// Kind in four bits (never zero), lap in eight, length in twenty, word on top.
    fn pack(self, lap: u64) -> u64 {
        self.kind.bits() | lap << 4 | u64::from(self.length) << 12 | u64::from(self.word) << 32
    }

    fn unpack(bits: u64) -> Option<Self> {
        Some(Self {
            kind: FrameKind::from_bits(bits & 0xf)?,
            length: (bits >> 12) as u32 & 0xf_ffff,
            word: (bits >> 32) as u32,
        })
    }

    /// What the frame counts for a sleeper that waits for so many messages: what
    /// it must act upon at once counts as very many.
    fn wake_units(self) -> u64 {
        match self.kind {
            FrameKind::Send | FrameKind::Delta => 1,
            FrameKind::ReadRequest | FrameKind::ReadResponse => URGENT_UNITS,
            FrameKind::Write | FrameKind::Wrap => 0,
        }
    }

    fn frame_bytes(self) -> u64 {
        match self.kind {
            FrameKind::Delta => LINE as u64,
            _ => (u64::from(self.length) + HEADER_BYTES as u64).next_multiple_of(LINE as u64),
        }
    }
}

/// Where one direction's words and bytes lie in the shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Offset of this direction's control words.
    control: usize,
    /// Offset of this direction's frames.
    data: usize,
    /// Octets of frames, a power of two.
    capacity: usize,
}

impl Layout {
    /// The layouts of both directions: initiator to acceptor, then back.
    pub fn pair(capacity: usize) -> [Self; 2] {
        [0, 1].map(|direction| Self {
            control: direction * CONTROL_BYTES,
            data: 2 * CONTROL_BYTES + direction * capacity,
            capacity,
        })
    }

    /// Octets of shared memory for both directions.
    pub fn total_bytes(capacity: usize) -> usize {
        2 * CONTROL_BYTES + 2 * capacity
    }

    /// Whether a capacity that a peer announces is acceptable.
    pub fn is_valid_capacity(capacity: usize) -> bool {
        capacity.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity)
    }

    /// The capacity that suits messages of up to `message_bytes` octets.
    pub fn capacity_for(message_bytes: u32) -> usize {
        let wanted = (message_bytes as usize).saturating_mul(4).saturating_add(4 * LINE);
        wanted.next_power_of_two().clamp(CAPACITY_DEFAULT, CAPACITY_MAX)
    }

    /// Longest body one frame may have.
    pub fn body_bytes_max(capacity: usize) -> u32 {
        u32::try_from(capacity / 2 - LINE).unwrap_or(u32::MAX)
    }
}

/// One direction's shared words.
#[derive(Debug)]
struct Control {
    memory: Memory,
    offset: usize,
}

impl Control {
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        let pointer = self.memory.pointer(self.offset + at, 8);
        // SAFETY: inside the mapping, which lives as long as `self.memory`; aligned,
        // since mappings are page-aligned and `at` is a multiple of 8; the other
        // process uses the same word atomically or spoils only its own connection.
        unsafe { AtomicU64::from_ptr(pointer.cast()) }
    }

    /// Octets consumed; written by the consumer.
    fn head(&self) -> &AtomicU64 {
        self.word(0)
    }

    /// Count of wake units at which to wake the consumer, zero while it is awake.
    fn wake_at(&self) -> &AtomicU64 {
        self.word(128)
    }

    /// Wake units produced; written by the producer.
    fn produced(&self) -> &AtomicU64 {
        self.word(256)
    }

    /// Counts what the producer's side has taken back from its peer; written by the
    /// producer's side.
    fn revision(&self) -> &AtomicU64 {
        self.word(448)
    }

    /// Whether the producer waits for room; set by the producer.
    fn blocked(&self) -> &AtomicU32 {
        let pointer = self.memory.pointer(self.offset + 384, 4);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(pointer.cast()) }
    }
}

/// The sending end.
#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    control: Control,
    data: usize,
    capacity: u64,
    tail: u64,
    head_seen: u64,
    units: u64,
    /// The short message that went by last.
    last: Last,
    /// A bit for each line whose first word may be anything, since it was payload.
    payload_lines: Box<[u64]>,
}

impl Producer {
    pub fn new(memory: Memory, layout: Layout) -> Self {
        let control = Control { memory: memory.clone(), offset: layout.control };
        let capacity = layout.capacity as u64;
        Self {
            memory,
            control,
            data: layout.data,
            capacity,
            tail: 0,
            head_seen: 0,
            units: 0,
            last: Last::new(),
            payload_lines: vec![0; layout.capacity / LINE / 64].into(),
        }
    }

    /// Offset in the shared memory at which the body of the next frame goes, if the
    /// ring has room for it. Nothing is visible before [`Producer::commit`].
    #[inline]
    pub fn reserve(&mut self, length: u32) -> Option<usize> {
        let header = FrameHeader { kind: FrameKind::Send, length, word: 0 };
        let size = header.frame_bytes();
        let position = self.tail & (self.capacity - 1);
        let to_end = self.capacity - position;
        // A frame that would cross the end is preceded by a wrap marker.
        let (skip, room) = if size > to_end { (to_end, to_end + size) } else { (0, size) };
        if !self.has_room(room + LINE as u64) {
            return None;
        }
        if skip != 0 {
            let wrap = FrameHeader { kind: FrameKind::Wrap, length: 0, word: 0 };
            self.commit_lines(wrap, skip);
        }
        Some(self.data + (self.tail & (self.capacity - 1)) as usize + HEADER_BYTES)
    }

    /// Makes the frame whose body was put at the reserved place visible.
    #[inline]
    pub fn commit(&mut self, header: FrameHeader) {
        if header.kind == FrameKind::Send {
            self.last.forget();
        }
        self.commit_lines(header, header.frame_bytes());
        self.own_ahead();
    }

    /// Makes `size` octets from the tail visible as one frame.
    #[inline]
    fn commit_lines(&mut self, header: FrameHeader, size: u64) {
        self.clear_next(size);
        let lap = lap_of(self.tail, self.capacity);
        self.header_word(self.tail).store(header.pack(lap), Ordering::Release);
        self.tail += size;
        self.units = self.units.wrapping_add(header.wake_units());
    }

    /// Makes sure that the place of the next header holds none of this lap, and keeps
    /// the account of payload lines.
    #[inline]
    fn clear_next(&mut self, size: u64) {
        let first = self.tail & (self.capacity - 1);
        self.mark_payload(first, false);
        for line in 1..size / LINE as u64 {
            self.mark_payload(first + line * LINE as u64, true);
        }
        let next = (self.tail + size) & (self.capacity - 1);
        if self.is_payload(next) {
            self.header_word(next).store(0, Ordering::Relaxed);
            self.mark_payload(next, false);
        }
    }

    #[inline]
    fn mark_payload(&mut self, position: u64, is_payload: bool) {
        let line = position as usize / LINE;
        let bit = 1 << (line % 64);
        let word = &mut self.payload_lines[line / 64];
        *word = if is_payload { *word | bit } else { *word & !bit };
    }

    #[inline]
    fn is_payload(&self, position: u64) -> bool {
        let line = position as usize / LINE;
        self.payload_lines[line / 64] & (1 << (line % 64)) != 0
    }

    /// Puts a short message at the reserved place and makes it visible, as a difference
    /// from the one before where that is shorter. The first line,
    /// which the consumer polls, is touched last and only once: touched earlier, it
    /// would travel to the other core and back before the frame is whole.
    #[inline]
    pub fn put(&mut self, at: usize, header: FrameHeader, message: &[u8]) {
        match self.last.advance(message) {
            Some(delta) if header.word == 0 => {
                let header = FrameHeader { kind: FrameKind::Delta, ..header };
                self.put_frame(at, header, &delta.to_line());
            }
            _ => self.put_frame(at, header, message),
        }
    }

    #[inline]
    fn put_frame(&mut self, at: usize, header: FrameHeader, body: &[u8]) {
        let size = header.frame_bytes();
        let (first, rest) = body.split_at(body.len().min(LINE - HEADER_BYTES));
        if !rest.is_empty() {
            self.memory.write(at + first.len(), rest);
        }
        self.clear_next(size);
        fence(Ordering::Release);
        self.memory.write(at, first);
        let lap = lap_of(self.tail, self.capacity);
        self.header_word(self.tail).store(header.pack(lap), Ordering::Release);
        self.tail += size;
        self.units = self.units.wrapping_add(header.wake_units());
        self.own_ahead();
    }

    /// Asks for the lines behind the next header now, while there is time: the consumer
    /// does not look at them before they carry a frame.
    #[inline]
    fn own_ahead(&self) {
        for line in 1..=LINES_AHEAD {
            let position = (self.tail + line * LINE as u64) & (self.capacity - 1);
            self.memory.prefetch_for_write(self.data + position as usize);
        }
    }

    /// Announces what was committed. True if the consumer sleeps and must be woken:
    /// enough messages are there, or `urgent`.
    #[inline]
    pub fn must_wake(&self, urgent: bool) -> bool {
        self.control.produced().store(self.units, Ordering::Release);
        // Orders our commits before the look at the sleeper's word; the consumer
        // fences between setting that word and its last look at `produced`.
        fence(Ordering::SeqCst);
        let wake_at = self.control.wake_at().load(Ordering::Relaxed);
        wake_at != 0
            && (urgent || self.units.wrapping_sub(wake_at) < u64::MAX / 2)
            && self
                .control
                .wake_at()
                .compare_exchange(wake_at, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Asks to be woken when there is room. True if room appeared meanwhile.
    pub fn block(&mut self, length: u32) -> bool {
        self.control.blocked().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let head = self.control.head().load(Ordering::Acquire);
        let freed = head != self.head_seen;
        if freed {
            self.control.blocked().store(0, Ordering::Relaxed);
        }
        freed && self.reserve(length).is_some()
    }

    /// Tells the peer that control packets take something back from it.
    pub fn revise(&self) {
        self.control.revision().fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn has_room(&mut self, bytes: u64) -> bool {
        if self.capacity - (self.tail - self.head_seen) >= bytes {
            return true;
        }
        let head = self.control.head().load(Ordering::Acquire);
        // A head outside what was produced is the peer's lie; ignoring it leaves the
        // ring full, and the connection's own time-outs end it.
        if head >= self.head_seen && head <= self.tail {
            self.head_seen = head;
        }
        self.capacity - (self.tail - self.head_seen) >= bytes
    }

    #[inline]
    fn header_word(&self, at: u64) -> &AtomicU64 {
        header_word(&self.memory, self.data, at & (self.capacity - 1))
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    control: Control,
    data: usize,
    capacity: u64,
    head: u64,
    published: u64,
    units: u64,
}

/// The peer put something into the ring that cannot be a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFrame(pub u64);

impl Consumer {
    pub fn new(memory: Memory, layout: Layout) -> Self {
        let control = Control { memory: memory.clone(), offset: layout.control };
        let capacity = layout.capacity as u64;
        Self { memory, control, data: layout.data, capacity, head: 0, published: 0, units: 0 }
    }

    /// The next frame's header and the offset of its body in the shared memory.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<(FrameHeader, usize)>, BadFrame> {
        loop {
            let position = self.head & (self.capacity - 1);
            let bits = header_word(&self.memory, self.data, position).load(Ordering::Acquire);
            let lap = lap_of(self.head, self.capacity);
            if bits == 0 || (bits >> 4) & 0xff != lap {
                return Ok(None);
            }
            let header = FrameHeader::unpack(bits).ok_or(BadFrame(bits))?;
            if header.kind == FrameKind::Wrap && position != 0 {
                self.head += self.capacity - position;
                continue;
            }
            let fits = header.frame_bytes() <= self.capacity - position;
            if !fits || header.kind == FrameKind::Wrap {
                return Err(BadFrame(bits));
            }
            return Ok(Some((header, self.data + position as usize + HEADER_BYTES)));
        }
    }

    /// The frame last peeked at has been copied out.
    #[inline]
    pub fn advance(&mut self, header: FrameHeader) {
        self.head += header.frame_bytes();
        self.units = self.units.wrapping_add(header.wake_units());
    }

    /// Gives the room of consumed frames back. True if the producer waits for it and
    /// must be woken.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published != self.head {
            self.control.head().store(self.head, Ordering::Release);
            self.published = self.head;
        }
        self.take_blocked()
    }

    /// Announces that we sleep until `threshold` more messages are there. False if
    /// they are there already, or something else is that cannot wait.
    pub fn arm(&mut self, threshold: usize) -> bool {
        let wake_at = self.units.wrapping_add(threshold as u64).max(1);
        self.control.wake_at().store(wake_at, Ordering::Relaxed);
        // Pairs with the fence in `must_wake`: either the producer sees our word or
        // we see its count.
        fence(Ordering::SeqCst);
        let produced = self.control.produced().load(Ordering::Acquire);
        let enough = produced.wrapping_sub(wake_at) < u64::MAX / 2;
        // The count is the peer's word: without a frame to show for it, it would keep us
        // awake for nothing, and from everybody else.
        let has_work = (enough || threshold == 1) && !matches!(self.peek(), Ok(None));
        !has_work
    }

    /// Whether the producer waits for room; clears the flag.
    pub fn take_blocked(&self) -> bool {
        self.control.blocked().load(Ordering::Relaxed) != 0
            && self.control.blocked().swap(0, Ordering::AcqRel) != 0
    }

    /// The peer's count of what it has taken back from us.
    #[inline]
    pub fn revision(&self) -> u64 {
        self.control.revision().load(Ordering::Acquire)
    }

    /// We are awake again.
    pub fn disarm(&self) {
        self.control.wake_at().store(0, Ordering::Relaxed);
    }
}

/// The number of the lap that a position lies in, as headers carry it. An older header
/// can only be taken for a new one after 256 laps without a write to its line; the
/// account of payload lines has it zeroed before.
#[inline]
fn lap_of(position: u64, capacity: u64) -> u64 {
    // A power of two: a division of words would cost more than the rest of a look.
    ((position >> capacity.trailing_zeros()) + 1) & 0xff
}

#[inline]
fn header_word(memory: &Memory, data: usize, position: u64) -> &AtomicU64 {
    let pointer = memory.pointer(data + position as usize, HEADER_BYTES);
    // SAFETY: inside the mapping, which the borrow keeps alive; frames start on
    // multiples of LINE, so the word is aligned; both processes use it atomically.
    unsafe { AtomicU64::from_ptr(pointer.cast()) }
}

/// Octets of a frame header.
pub const HEADER_BYTES: usize = 8;
/// Frames start on multiples of this: a cache line.
const LINE: usize = 64;
/// Lines a usual request takes, and one for the header after it.
const LINES_AHEAD: u64 = 4;
/// More than any threshold.
const URGENT_UNITS: u64 = 1 << 32;
const CONTROL_BYTES: usize = 512;
const CAPACITY_DEFAULT: usize = 64 << 10;
const CAPACITY_MIN: usize = 16 << 10;
const CAPACITY_MAX: usize = 2 << 20;

const _: () = assert!(CAPACITY_MAX / 2 <= 1 << 20, "a body's length must fit its 20 bits");

#[cfg(test)]
mod tests {
    use dafs_memory::Pages;

    use super::*;

    fn ring() -> (Producer, Consumer) {
        let memory = Memory::shared(Layout::total_bytes(CAPACITY_MIN), Pages::Small).unwrap();
        let layout = Layout::pair(CAPACITY_MIN)[1];
        (Producer::new(memory.clone(), layout), Consumer::new(memory, layout))
    }

    fn send(producer: &mut Producer, body: &[u8]) -> bool {
        let length = u32::try_from(body.len()).unwrap();
        let Some(offset) = producer.reserve(length) else { return false };
        producer.memory.write(offset, body);
        producer.commit(FrameHeader { kind: FrameKind::Send, length, word: 7 });
        true
    }

    fn receive(consumer: &mut Consumer) -> Option<Vec<u8>> {
        let (header, offset) = consumer.peek().unwrap()?;
        assert_eq!(header.word, 7);
        let body = consumer.memory.to_vec(offset, header.length as usize);
        consumer.advance(header);
        consumer.publish();
        Some(body)
    }

    #[test]
    fn frames_of_all_sizes_pass_in_order_around_the_ring() {
        let (mut producer, mut consumer) = ring();
        let mut expected = std::collections::VecDeque::new();
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let length = (state >> 33) as usize % 3000;
            let body = vec![(state >> 20) as u8; length];
            if send(&mut producer, &body) {
                expected.push_back(body);
            } else {
                assert_eq!(receive(&mut consumer), expected.pop_front());
            }
        }
        while let Some(body) = expected.pop_front() {
            assert_eq!(receive(&mut consumer), Some(body));
        }
        assert_eq!(receive(&mut consumer), None);
    }

    #[test]
    fn stale_bytes_are_never_taken_for_a_frame() {
        let (mut producer, mut consumer) = ring();
        // Bodies full of what would be valid headers.
        let body = FrameHeader { kind: FrameKind::Send, length: 1, word: 7 }.pack(1).to_le_bytes();
        for count in (0..500).map(|i| i % 90) {
            assert!(send(&mut producer, &body.repeat(count)));
            assert_eq!(receive(&mut consumer).map(|b| b.len()), Some(count * 8));
            assert_eq!(receive(&mut consumer), None);
        }
    }

    #[test]
    fn garbage_is_an_error() {
        let (producer, mut consumer) = ring();
        producer.header_word(0).store(0x1f, Ordering::Release);
        assert!(consumer.peek().is_err());
        let long = FrameHeader { kind: FrameKind::Send, length: 0xf_ffff, word: 0 };
        producer.header_word(0).store(long.pack(1), Ordering::Release);
        assert!(consumer.peek().is_err());
    }

    #[test]
    fn the_sleeper_is_woken_once_when_its_count_is_reached() {
        let (mut producer, mut consumer) = ring();
        assert!(consumer.arm(2));
        assert!(send(&mut producer, b"a"));
        assert!(!producer.must_wake(false));
        assert!(send(&mut producer, b"b"));
        assert!(producer.must_wake(false));
        assert!(!producer.must_wake(false));
        assert!(!consumer.arm(2));
    }

    #[test]
    fn a_full_ring_blocks_until_room_is_published() {
        let (mut producer, mut consumer) = ring();
        while send(&mut producer, &[0; 1000]) {}
        assert!(!producer.block(1000));
        let (header, _) = consumer.peek().unwrap().unwrap();
        consumer.advance(header);
        assert!(consumer.publish());
        assert!(send(&mut producer, &[0; 1000]));
    }
}
