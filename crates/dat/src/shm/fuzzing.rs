//! Fuzzes the packets and ring contents that a hostile process may produce.

use dafs_memory::{Memory, Pages};

use super::control::{self, Packet, PeerFile};
use super::delta::{LINE_BODY_BYTES, SHORT_BYTES_MAX};
use super::lane::Layout;
use super::ring::{Consumer, FrameHeader, FrameKind, Producer};
use crate::connection::Alarm;

/// Fuzzes a control packet, a ring's frames, or a ring's control words, as the first byte selects.
pub(crate) fn control(data: &[u8]) {
    let Some((&[mode, count], bytes)) = data.split_first_chunk() else { return };
    match mode % 3 {
        0 => packet(bytes, usize::from(count % 4)),
        1 => frames(bytes, usize::from(count)),
        _ => words(bytes),
    }
}

/// Checks that a packet gives the same result each time it is parsed, and that packets of this side
/// can be parsed.
fn packet(bytes: &[u8], descriptor_count: usize) {
    let fds = |count: usize| -> Vec<PeerFile> {
        let null = || std::fs::File::open("/dev/null").map(|null| PeerFile::new(null.into()));
        (0..count).filter_map(|_| null().ok()).collect()
    };
    let again = match control::parse(bytes, fds(descriptor_count)) {
        None => return,
        Some(Packet::Hello(hello, _)) => control::hello(&hello),
        Some(Packet::Accept { reaches_process, private_data, .. }) => {
            control::accept(reaches_process, &private_data)
        }
        Some(Packet::Reject { private_data }) => control::reject(&private_data),
        Some(Packet::Expose(region, _)) => control::expose(&region),
        Some(Packet::Withdraw(stag)) => control::withdraw(stag),
        Some(Packet::Terminate(text)) => control::terminate(&text),
        Some(Packet::HandOver(name, _)) => control::hand_over(name),
    };
    let reread = control::parse(&again, fds(descriptor_count));
    assert!(reread.is_some(), "our own packet {again:?} is read");
}

/// Checks frames that a peer may have written: no frame extends beyond the ring, and the number of
/// frames is limited.
fn frames(bytes: &[u8], head_laps: usize) {
    let memory = ring();
    let [forth, _] = Layout::pair(CAPACITY);
    let mut consumer = Consumer::new(memory.clone(), forth);
    let start = Layout::total_bytes(0);
    memory.write(start, &bytes[..bytes.len().min(CAPACITY)]);
    for _ in 0..FRAMES_MAX {
        let Ok(Some((header, at))) = consumer.peek() else { break };
        let length = header.length as usize;
        let here = if header.kind == FrameKind::Delta { LINE_BODY_BYTES } else { length };
        assert!(at >= start && at + here <= start + CAPACITY, "{header:?} leaves");
        if header.is_short() {
            let Ok(message) = consumer.message(header) else { break };
            assert_eq!(message.len(), length);
        }
        consumer.advance(header);
        consumer.publish();
        consumer
            .prepare_sleep(Alarm { threshold: head_laps % 3, early: head_laps.is_multiple_of(2) });
    }
}

/// Checks that this side writes only within its half of the ring even if the peer's control words
/// are wrong.
fn words(bytes: &[u8]) {
    let memory = ring();
    let [_, back] = Layout::pair(CAPACITY);
    let mut producer = Producer::new(memory.clone(), back);
    let start = Layout::total_bytes(0) + CAPACITY;
    for step in bytes.chunks_exact(11) {
        let (&[place, low, high], word) = step.split_first_chunk().unwrap_or((&[0; 3], &[]));
        let at = CONTROL_BYTES + usize::from(place) % (CONTROL_BYTES / 8) * 8;
        memory.write(at, word);
        let length = u32::from(u16::from_le_bytes([low, high]) % 9000);
        let Some(at) = producer.reserve(length) else {
            producer.block(length);
            continue;
        };
        assert!(at >= start && at + length as usize <= memory.length(), "{length} at {at}");
        if length as usize <= SHORT_BYTES_MAX {
            let message = [place; SHORT_BYTES_MAX];
            assert!(producer.put(&message[..length as usize], 0), "room was reserved");
        } else {
            producer.commit(FrameHeader { kind: FrameKind::Write, length, word: 1 });
        }
        producer.must_wake(place % 2 == 0);
    }
    // Whatever was sent, the other half is unchanged.
    let other = memory.to_vec(Layout::total_bytes(0), CAPACITY);
    assert!(other.iter().all(|byte| *byte == 0));
}

fn ring() -> Memory {
    // Zeroed and aligned like the rings of two processes.
    Memory::anonymous(Layout::total_bytes(CAPACITY), Pages::Small).expect("a little memory")
}

const CAPACITY: usize = 16 << 10;
/// The number of bytes of the control words of one direction.
const CONTROL_BYTES: usize = 512;
/// An upper bound for the number of frames in one lap around the ring.
const FRAMES_MAX: usize = 4 * CAPACITY / 64;
