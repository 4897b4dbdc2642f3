//! A one-way ring of frames in memory that two processes share.
//!
//! One side produces and the other consumes, without locks. A frame consists of a header word and a
//! body. It starts on a cache line and never wraps around. The header contains the number of the
//! lap around the ring, so that the consumer only polls one word, in the line that also contains
//! the start of the frame. A frame of one line moves only one line between the cores.
//!
//! Invariants:
//!
//! - Before a header is committed, the word at the position of the next header is not a header of
//!   this lap: it is an older header, or zero if it may have been payload.
//! - `tail - head <= capacity - LINE`: the producer never touches unread bytes.
//! - No data in the ring is trusted. A header is loaded once, its length is checked against the
//!   ring, and bodies are copied out before they are parsed. A hostile peer can damage only its own
//!   messages.

use std::sync::atomic::Ordering;

use dafs_memory::Memory;

use super::delta::{LINE_BODY_BYTES, Last, SHORT_BYTES_MAX};
use super::lane::{HEADER_BYTES, LINE, Lane, Layout};
use super::words::{RingMemory, Word};
use crate::connection::Alarm;

/// The kind of a frame, which determines the meaning of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A message. The header's word is the STag of a region to invalidate, or zero.
    Send,
    /// Part of an RDMA write: address u64, then bytes. The header's word is the STag.
    Write,
    /// An RDMA read request: address u64, length u32. The header's word is the STag.
    ReadRequest,
    /// Part of the response to the oldest pending read request of the receiving side.
    ReadResponse,
    /// A message as a difference from the previous short message; always one line.
    Delta,
    /// There are no more frames up to the end of the ring; the next frame is at the start.
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

/// The header of a frame: the length of the body, the kind, and one word. In memory, the header
/// also contains the lap number: see [`lap_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub kind: FrameKind,
    pub length: u32,
    pub word: u32,
}

impl FrameHeader {
    /// Packs the header: kind in 4 bits (never zero), lap in 8, length in 20, word in the upper 32
    /// bits.
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

    /// Returns the frame's weight for a consumer that sleeps until a number of messages have
    /// arrived. A frame that needs an immediate reaction has a very large weight.
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
            _ => frame_bytes(self.length),
        }
    }

    /// Returns true if the frame carries a message that [`Consumer::message`] copies out.
    #[inline]
    pub(super) fn is_short(self) -> bool {
        match self.kind {
            FrameKind::Send => self.length as usize <= SHORT_BYTES_MAX,
            FrameKind::Delta => true,
            _ => false,
        }
    }
}

/// The sending end of a ring.
#[derive(Debug)]
pub(super) struct Producer<L = Lane> {
    lane: L,
    tail: u64,
    head_seen: u64,
    units: u64,
    /// The copy of the most recent short message.
    last: Last,
    /// One bit for each line of the ring, set if the line's first word may have any value because
    /// it was payload.
    payload_lines: Box<[u64]>,
    /// The number of bits set in `payload_lines`.
    payload_line_count: u32,
}

impl Producer {
    pub(super) fn new(memory: Memory, layout: Layout) -> Self {
        Self::over(Lane::new(memory, layout))
    }
}

impl<L: RingMemory> Producer<L> {
    /// Creates the sending end of a ring in memory that is zero.
    fn over(lane: L) -> Self {
        let payload_lines = vec![0; (lane.capacity() as usize / LINE).div_ceil(64)].into();
        Self {
            lane,
            tail: 0,
            head_seen: 0,
            units: 0,
            last: Last::new(),
            payload_lines,
            payload_line_count: 0,
        }
    }

    /// Reserves space for the next frame and returns the offset of its body in the shared memory,
    /// or `None` if the ring has no room. The consumer sees nothing before [`Producer::commit`].
    #[inline]
    pub(super) fn reserve(&mut self, length: u32) -> Option<usize> {
        let size = frame_bytes(length);
        let to_end = self.lane.capacity() - self.lane.place(self.tail);
        // A wrap marker precedes a frame that would extend beyond the end of the ring.
        let (skip, room) = if size > to_end { (to_end, to_end + size) } else { (0, size) };
        if !self.has_room(room + LINE as u64) {
            return None;
        }
        if skip != 0 {
            self.clear_next(skip);
            self.show(FrameHeader { kind: FrameKind::Wrap, length: 0, word: 0 }, skip);
        }
        Some(self.lane.body(self.tail))
    }

    /// Makes a frame visible to the consumer, after its body was written at the reserved offset.
    #[inline]
    pub(super) fn commit(&mut self, header: FrameHeader) {
        if header.kind == FrameKind::Send {
            self.last.forget();
        }
        self.put_frame(header, |_, _| {});
    }

    /// Writes a message of at most [`SHORT_BYTES_MAX`] bytes into the ring and makes it visible, as
    /// a difference from the previous message if that is shorter. `word` is the STag of a region to
    /// invalidate, or zero. Returns false if the ring has no room.
    #[inline]
    pub(super) fn put(&mut self, message: &[u8], word: u32) -> bool {
        let length = message.len() as u32;
        if self.reserve(length).is_none() {
            return false;
        }
        match self.last.advance(message) {
            Some(delta) if word == 0 => {
                let header = FrameHeader { kind: FrameKind::Delta, length, word };
                self.put_frame(header, |lane, tail| lane.write_line(tail, &delta));
            }
            _ => {
                let header = FrameHeader { kind: FrameKind::Send, length, word };
                self.put_frame(header, |lane, tail| write_body(lane, tail, message));
            }
        }
        true
    }

    /// Calls `fill` to write the body of the frame at the tail, and then makes the frame visible.
    #[inline]
    fn put_frame(&mut self, header: FrameHeader, fill: impl FnOnce(&L, u64)) {
        let size = header.frame_bytes();
        self.clear_next(size);
        fill(&self.lane, self.tail);
        self.show(header, size);
        self.prefetch_ahead(size);
    }

    /// Makes `size` bytes at the tail visible as one frame. The word of the next header must be
    /// clear.
    #[inline]
    fn show(&mut self, header: FrameHeader, size: u64) {
        let lap = lap_of(self.tail, self.lane.capacity());
        self.lane.header(self.tail).store(header.pack(lap), Ordering::Release);
        self.tail += size;
        self.units = self.units.wrapping_add(header.wake_units());
    }

    /// Ensures that the word of the next header does not look like a header of this lap, and
    /// updates the record of payload lines.
    #[inline]
    fn clear_next(&mut self, size: u64) {
        if size == LINE as u64 && self.payload_line_count == 0 {
            return;
        }
        let first = self.lane.place(self.tail);
        self.mark_payload(first, false);
        for line in 1..size / LINE as u64 {
            self.mark_payload(first + line * LINE as u64, true);
        }
        let next = self.lane.place(self.tail + size);
        if self.is_payload(next) {
            self.lane.header(next).store(0, Ordering::Relaxed);
            self.mark_payload(next, false);
        }
    }

    #[inline]
    fn mark_payload(&mut self, place: u64, is_payload: bool) {
        let line = place as usize / LINE;
        let bit = 1 << (line % 64);
        let word = &mut self.payload_lines[line / 64];
        if (*word & bit != 0) != is_payload {
            *word ^= bit;
            let change = if is_payload { 1 } else { u32::MAX };
            self.payload_line_count = self.payload_line_count.wrapping_add(change);
        }
    }

    #[inline]
    fn is_payload(&self, place: u64) -> bool {
        let line = place as usize / LINE;
        self.payload_lines[line / 64] & (1 << (line % 64)) != 0
    }

    /// Prefetches the lines after the next header for writing while there is time, because the
    /// consumer does not access them before they contain a frame. All of these lines except the
    /// last `size` bytes have been prefetched before.
    #[inline]
    fn prefetch_ahead(&self, size: u64) {
        let end = self.tail + (LINES_AHEAD + 1) * LINE as u64;
        for line in 1..=(size / LINE as u64).min(LINES_AHEAD) {
            self.lane.prefetch_for_write(end - line * LINE as u64);
        }
    }

    /// Announces the committed frames. Returns true if the consumer sleeps and must be woken,
    /// because enough messages have arrived or `urgent` is true.
    #[inline]
    pub(super) fn must_wake(&self, urgent: bool) -> bool {
        self.lane.produced().store(self.units, Ordering::Release);
        // Orders the commits before the load of the sleeper's word. The consumer fences between
        // setting that word and its last load of `produced`.
        self.lane.fence(Ordering::SeqCst);
        let wake_at = self.lane.wake_at().load(Ordering::Relaxed);
        (urgent || self.units.wrapping_sub(wake_at) < u64::MAX / 2) && self.claim_wakeup(wake_at)
    }

    /// Returns true if the consumer has received everything, sleeps for one more message and wants
    /// an early wakeup. The message is about to be sent, and a wakeup takes time. A consumer that
    /// sleeps for more messages, or has more to receive, gains nothing from an early wakeup.
    pub(super) fn must_wake_early(&self) -> bool {
        let wake_at = self.lane.wake_at().load(Ordering::Relaxed);
        wake_at == self.units.wrapping_add(1)
            && self.lane.wants_early().load(Ordering::Relaxed) != 0
            && self.lane.head().load(Ordering::Relaxed) == self.tail
            && self.claim_wakeup(wake_at)
    }

    /// Returns true if the consumer sleeps and this call is the one that must wake it.
    #[inline]
    fn claim_wakeup(&self, wake_at: u64) -> bool {
        let word = self.lane.wake_at();
        wake_at != 0
            && word.compare_exchange(wake_at, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Reserves space as [`Producer::reserve`] does. If there is no room, asks the consumer to wake
    /// this side when there is room.
    #[inline]
    pub(super) fn reserve_or_block(&mut self, length: u32) -> Option<usize> {
        self.reserve(length).or_else(
            || {
                if self.block(length) { self.reserve(length) } else { None }
            },
        )
    }

    /// Asks the consumer to wake this side when there is room. Returns true if room has appeared
    /// meanwhile.
    pub(super) fn block(&mut self, length: u32) -> bool {
        self.lane.blocked().store(1, Ordering::Relaxed);
        self.lane.fence(Ordering::SeqCst);
        let head = self.lane.head().load(Ordering::Acquire);
        let freed = head != self.head_seen;
        if freed {
            self.lane.blocked().store(0, Ordering::Relaxed);
        }
        freed && self.reserve(length).is_some()
    }

    /// Informs the peer that a control packet withdraws a region, so that the peer reads its
    /// control packets before it next uses a region.
    pub(super) fn announce_withdrawal(&self) {
        self.lane.revision().fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn has_room(&mut self, bytes: u64) -> bool {
        let capacity = self.lane.capacity();
        if capacity - (self.tail - self.head_seen) >= bytes {
            return true;
        }
        let head = self.lane.head().load(Ordering::Acquire);
        // A head outside the produced range is invalid. It is ignored, so the ring stays full, and
        // the connection's timeouts end the connection.
        if head >= self.head_seen && head <= self.tail {
            self.head_seen = head;
        }
        capacity - (self.tail - self.head_seen) >= bytes
    }
}

/// The receiving end of a ring.
#[derive(Debug)]
pub(super) struct Consumer<L = Lane> {
    lane: L,
    head: u64,
    published: u64,
    units: u64,
    /// The copy of the most recent short message.
    last: Last,
    /// A message of one line, copied out of the ring.
    line: [u8; LINE_BODY_BYTES],
}

/// The result of [`Consumer::prepare_sleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// True if this side may sleep, because neither enough messages nor an urgent frame has
    /// arrived.
    pub may_sleep: bool,
    /// True if the producer waits for space and must be woken.
    pub must_wake: bool,
}

/// The error that the ring contains a word that cannot be a frame header. Contains that word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadFrame(pub u64);

impl Consumer {
    pub(super) fn new(memory: Memory, layout: Layout) -> Self {
        Self::over(Lane::new(memory, layout))
    }
}

impl<L: RingMemory> Consumer<L> {
    /// Creates the receiving end of a ring in memory that was zero.
    fn over(lane: L) -> Self {
        let line = [0; LINE_BODY_BYTES];
        Self { lane, head: 0, published: 0, units: 0, last: Last::new(), line }
    }

    /// Returns the next frame's header and the offset of its body in the shared memory.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<(FrameHeader, usize)>, BadFrame> {
        loop {
            let bits = self.lane.header(self.head).load(Ordering::Acquire);
            let lap = lap_of(self.head, self.lane.capacity());
            if bits == 0 || (bits >> 4) & 0xff != lap {
                return Ok(None);
            }
            let header = FrameHeader::unpack(bits).ok_or(BadFrame(bits))?;
            let place = self.lane.place(self.head);
            if header.kind == FrameKind::Wrap && place != 0 {
                self.head += self.lane.capacity() - place;
                continue;
            }
            let fits = header.frame_bytes() <= self.lane.capacity() - place;
            if !fits || header.kind == FrameKind::Wrap {
                return Err(BadFrame(bits));
            }
            return Ok(Some((header, self.lane.body(self.head))));
        }
    }

    /// Returns true if [`Consumer::peek`] would return a frame or an error.
    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        let bits = self.lane.header(self.head).load(Ordering::Acquire);
        bits != 0 && (bits >> 4) & 0xff == lap_of(self.head, self.lane.capacity())
    }

    /// Copies the message of the frame at the front out of the ring. The frame must be short, see
    /// [`FrameHeader::is_short`].
    #[inline]
    pub(super) fn message(&mut self, header: FrameHeader) -> Result<&[u8], BadFrame> {
        let length = header.length as usize;
        if header.kind == FrameKind::Delta {
            let line = self.lane.read_line(self.head);
            return self.last.apply(&line, length).map_err(|_| BadFrame(header.pack(0)));
        }
        if length <= LINE_BODY_BYTES {
            self.lane.read(self.head, &mut self.line);
            return Ok(&self.line[..length]);
        }
        Ok(self.last.refill(length, |bytes| self.lane.read(self.head, bytes)))
    }

    /// Advances past the frame at the front, whose content has been copied out.
    #[inline]
    pub(super) fn advance(&mut self, header: FrameHeader) {
        self.head += header.frame_bytes();
        self.units = self.units.wrapping_add(header.wake_units());
    }

    /// Releases the space of consumed frames. Returns true if the producer waits for space and must
    /// be woken.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if self.published != self.head {
            self.lane.head().store(self.head, Ordering::Release);
            self.published = self.head;
        }
        self.take_blocked()
    }

    /// Releases the space of consumed frames and announces that this side sleeps, see
    /// [`Consumer::arm`].
    pub(super) fn prepare_sleep(&mut self, alarm: Alarm) -> Rest {
        let was_waiting = self.publish();
        let may_sleep = self.arm(alarm);
        // This check comes after the fence in `arm`, so it sees a producer that has just blocked.
        Rest { may_sleep, must_wake: was_waiting || self.take_blocked() }
    }

    /// Announces that this side sleeps until the number of messages in `alarm` have arrived.
    /// Returns false if they have arrived already, or if a frame has arrived that cannot wait.
    fn arm(&mut self, alarm: Alarm) -> bool {
        let Alarm { threshold, early } = alarm;
        self.lane.wants_early().store(u64::from(early), Ordering::Relaxed);
        let wake_at = self.units.wrapping_add(threshold as u64).max(1);
        self.lane.wake_at().store(wake_at, Ordering::Relaxed);
        // Pairs with the fence in `must_wake`: either the producer sees this word, or this side
        // sees its count.
        self.lane.fence(Ordering::SeqCst);
        let produced = self.lane.produced().load(Ordering::Acquire);
        let enough = produced.wrapping_sub(wake_at) < u64::MAX / 2;
        // The peer writes this count. If it were trusted without checking for a frame, the peer
        // could keep this side awake for nothing, at the expense of all other connections.
        let has_work = (enough || threshold == 1) && !matches!(self.peek(), Ok(None));
        !has_work
    }

    /// Clears the flag that the producer sets when it waits for space. Returns true if it was set.
    #[inline]
    fn take_blocked(&self) -> bool {
        self.lane.blocked().load(Ordering::Relaxed) != 0
            && self.lane.blocked().swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the peer's count of its withdrawals.
    #[inline]
    pub(super) fn revision(&self) -> u64 {
        self.lane.revision().load(Ordering::Acquire)
    }

    /// Announces that this side is awake.
    pub(super) fn disarm(&self) {
        self.lane.wake_at().store(0, Ordering::Relaxed);
    }
}

/// Writes a frame's body. The first line, which the consumer polls, is written last and only once:
/// if it were written earlier, it would move to the other core and back before the frame is
/// complete.
#[inline]
fn write_body(lane: &impl RingMemory, tail: u64, body: &[u8]) {
    if let Some((first, rest)) = body.split_at_checked(LINE_BODY_BYTES) {
        lane.write(tail, LINE_BODY_BYTES, rest);
        lane.fence(Ordering::Release);
        lane.write(tail, 0, first);
    } else {
        lane.write(tail, 0, body);
    }
}

/// Returns the lap number of a position, as it appears in headers. An older header could be
/// mistaken for a new one only after 256 laps without a write to its line. The record of payload
/// lines ensures that the line is zeroed before that.
#[inline]
fn lap_of(position: u64, capacity: u64) -> u64 {
    // The capacity is a power of two: a division would cost more than the rest of a poll.
    ((position >> capacity.trailing_zeros()) + 1) & 0xff
}

/// Returns the number of bytes of a frame with a body of `length` bytes.
#[inline]
fn frame_bytes(length: u32) -> u64 {
    (u64::from(length) + HEADER_BYTES as u64).next_multiple_of(LINE as u64)
}

/// The number of lines of a typical request, plus one for the header after it.
const LINES_AHEAD: u64 = 4;
/// A number of wake units above any threshold, so that the consumer is woken immediately.
const URGENT_UNITS: u64 = 1 << 32;

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use dafs_memory::Pages;

    use super::super::lane::CAPACITY_MIN;
    use super::*;

    fn early(threshold: usize) -> Alarm {
        Alarm { threshold, early: true }
    }

    fn ring() -> (Memory, Producer, Consumer) {
        let memory = Memory::shared(Layout::total_bytes(CAPACITY_MIN), Pages::Small).unwrap();
        let layout = Layout::pair(CAPACITY_MIN)[1];
        let (near, far) = (memory.clone(), memory.clone());
        (memory, Producer::new(near, layout), Consumer::new(far, layout))
    }

    fn send(memory: &Memory, producer: &mut Producer, body: &[u8]) -> bool {
        let length = u32::try_from(body.len()).unwrap();
        let Some(offset) = producer.reserve(length) else { return false };
        memory.write(offset, body);
        producer.commit(FrameHeader { kind: FrameKind::Send, length, word: 7 });
        true
    }

    fn receive(memory: &Memory, consumer: &mut Consumer) -> Option<Vec<u8>> {
        let (header, offset) = consumer.peek().unwrap()?;
        assert_eq!(header.word, 7);
        let body = memory.to_vec(offset, header.length as usize);
        consumer.advance(header);
        consumer.publish();
        Some(body)
    }

    #[test]
    fn frames_of_all_sizes_pass_in_order_around_the_ring() {
        let (memory, mut producer, mut consumer) = ring();
        let mut expected = std::collections::VecDeque::new();
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let length = (state >> 33) as usize % 3000;
            let body = vec![(state >> 20) as u8; length];
            if send(&memory, &mut producer, &body) {
                expected.push_back(body);
            } else {
                assert_eq!(receive(&memory, &mut consumer), expected.pop_front());
            }
        }
        while let Some(body) = expected.pop_front() {
            assert_eq!(receive(&memory, &mut consumer), Some(body));
        }
        assert_eq!(receive(&memory, &mut consumer), None);
    }

    #[test]
    fn stale_bytes_are_never_taken_for_a_frame() {
        let (memory, mut producer, mut consumer) = ring();
        // The bodies are full of words that would be valid headers.
        let body = FrameHeader { kind: FrameKind::Send, length: 1, word: 7 }.pack(1).to_le_bytes();
        for count in (0..500).map(|i| i % 90) {
            assert!(send(&memory, &mut producer, &body.repeat(count)));
            assert_eq!(receive(&memory, &mut consumer).map(|b| b.len()), Some(count * 8));
            assert_eq!(receive(&memory, &mut consumer), None);
        }
    }

    #[test]
    fn garbage_is_an_error() {
        let (_, producer, mut consumer) = ring();
        producer.lane.header(0).store(0x1f, Ordering::Release);
        assert!(consumer.peek().is_err());
        let long = FrameHeader { kind: FrameKind::Send, length: 0xf_ffff, word: 0 };
        producer.lane.header(0).store(long.pack(1), Ordering::Release);
        assert!(consumer.peek().is_err());
    }

    #[test]
    fn the_sleeper_is_woken_once_when_its_count_is_reached() {
        let (memory, mut producer, mut consumer) = ring();
        assert!(consumer.arm(early(2)));
        assert!(send(&memory, &mut producer, b"a"));
        assert!(!producer.must_wake(false));
        assert!(send(&memory, &mut producer, b"b"));
        assert!(producer.must_wake(false));
        assert!(!producer.must_wake(false));
        assert!(!consumer.arm(early(2)));
    }

    #[test]
    fn the_sleeper_is_woken_ahead_of_the_message_it_waits_for() {
        let (memory, mut producer, mut consumer) = ring();
        assert!(!producer.must_wake_early(), "nobody sleeps");
        assert!(consumer.arm(early(2)));
        assert!(send(&memory, &mut producer, b"a"));
        assert!(!producer.must_wake_early(), "there is more to take");
        assert!(receive(&memory, &mut consumer).is_some());
        assert!(consumer.arm(early(2)));
        assert!(!producer.must_wake_early(), "two are missing");
        assert!(consumer.arm(early(1)));
        assert!(producer.must_wake_early());
        assert!(consumer.arm(Alarm { early: false, ..early(1) }));
        assert!(!producer.must_wake_early(), "it would rather sleep");
        // It has found nothing and sleeps again. The message itself wakes it.
        assert!(consumer.arm(early(1)));
        assert!(send(&memory, &mut producer, b"b"));
        assert!(producer.must_wake(false));
    }

    #[test]
    fn a_full_ring_blocks_until_room_is_published() {
        let (memory, mut producer, mut consumer) = ring();
        while send(&memory, &mut producer, &[0; 1000]) {}
        assert!(!producer.block(1000));
        let (header, _) = consumer.peek().unwrap().unwrap();
        consumer.advance(header);
        assert!(consumer.publish());
        assert!(send(&memory, &mut producer, &[0; 1000]));
    }
}
