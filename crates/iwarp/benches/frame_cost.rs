//! What framing costs: nanoseconds per frame for each way of the machine.
//!
//! Run with `cargo run --release -p dafs-iwarp --example frame_cost [frames]`.
//! Prints a checksum of the work as well, so that nothing is optimised away.

use std::hint::black_box;
use std::time::Instant;

use dafs_iwarp::{
    Established, HEADER_BYTES_MAX, Outbound, READ_REQUEST_FPDU_BYTES, ReadRequest, Receiver, Role,
    Stag, TRAILER_BYTES_MAX, TRAILER_WITHOUT_CRC, TaggedOffset, Transmitter,
};

const PAYLOAD_BYTES: usize = 4096;
const MULPDU: u16 = 64768;

fn main() {
    let frames: u32 =
        std::env::args().nth(1).and_then(|argument| argument.parse().ok()).unwrap_or(5_000_000);
    for crc in [false, true] {
        println!("crc {}", if crc { "on" } else { "off" });
        report("  transmit: write header and trailer, 4 KiB", frames, transmit(frames, crc));
        report("  transmit: read request", frames, read_requests(frames, crc));
        report("  receive: whole frame in a buffer, 4 KiB write", frames, whole(frames, crc));
        report("  receive: header, placed, trailer, 4 KiB write", frames, placed(frames, crc));
        report("  receive: whole frame, 64-byte send", frames, sends(frames, crc));
        report("  read: open, request, response of 4 KiB", frames, reads(frames, crc));
    }
}

fn report(name: &str, frames: u32, (nanoseconds, checksum): (u128, u64)) {
    let each = nanoseconds as f64 / f64::from(frames);
    println!("{name:50} {each:8.1} ns/frame  (work {checksum:016x})");
}

fn timed(frames: u32, mut work: impl FnMut(u32) -> u64) -> (u128, u64) {
    let mut checksum = 0u64;
    let start = Instant::now();
    for index in 0..frames {
        checksum = checksum.wrapping_mul(31).wrapping_add(work(index));
    }
    (start.elapsed().as_nanos(), checksum)
}

fn established(crc: bool) -> Established {
    Established::client_server(Role::Initiator, crc, 16, 16)
}

fn write() -> Outbound {
    Outbound::Write { stag: Stag(7), offset: TaggedOffset(0x1000) }
}

fn transmit(frames: u32, crc: bool) -> (u128, u64) {
    let mut transmitter = Transmitter::new(&established(crc), MULPDU);
    let payload = [0x5a; PAYLOAD_BYTES];
    let mut header = [0; HEADER_BYTES_MAX];
    let mut trailer = TRAILER_WITHOUT_CRC;
    timed(frames, |_| {
        let mut segments = transmitter.begin(black_box(write()), PAYLOAD_BYTES as u32).unwrap();
        let mut bytes = 0;
        while let Some(segment) = segments.next_segment(&mut header) {
            if transmitter.crc_in_use() {
                let mut checksum = segment.checksum(&header);
                checksum.update(&payload[segment.offset as usize..][..segment.length as usize]);
                segment.finish(checksum, &mut trailer);
            }
            bytes += segment.total_length() as u64;
        }
        bytes + u64::from(black_box(&header)[15]) + u64::from(black_box(&trailer)[0])
    })
}

fn read_requests(frames: u32, crc: bool) -> (u128, u64) {
    let mut transmitter = Transmitter::new(&established(crc), MULPDU);
    let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
    // Of one open read; what opening costs is in `reads`.
    let mut receiver = Receiver::new(&established(crc));
    let read = receiver.open_read(read_request(0)).unwrap();
    timed(frames, |_| {
        let length = transmitter.read_request(black_box(&read), &mut bytes).unwrap();
        length as u64 + u64::from(black_box(&bytes)[15])
    })
}

fn read_request(index: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: Stag(3),
        sink_offset: TaggedOffset(u64::from(index)),
        length: PAYLOAD_BYTES as u32,
        source_stag: Stag(4),
        source_offset: TaggedOffset(0),
    }
}

/// One frame of a message, as it would stand in a receive buffer.
fn frame(transmitter: &mut Transmitter, message: Outbound, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; HEADER_BYTES_MAX];
    let mut trailer = [0; TRAILER_BYTES_MAX];
    let mut segments = transmitter.begin(message, payload.len() as u32).unwrap();
    let segment = segments.next_segment(&mut header).unwrap();
    if transmitter.crc_in_use() {
        let mut checksum = segment.checksum(&header);
        checksum.update(payload);
        segment.finish(checksum, &mut trailer);
    }
    [&header[..segment.header_length], payload, &trailer[..segment.trailer_length]].concat()
}

fn whole(frames: u32, crc: bool) -> (u128, u64) {
    let mut transmitter = Transmitter::new(&established(crc), MULPDU);
    let bytes = frame(&mut transmitter, write(), &[0x5a; PAYLOAD_BYTES]);
    let mut receiver = Receiver::new(&established(crc));
    timed(frames, |_| {
        let fpdu = receiver.on_fpdu(black_box(&bytes)).unwrap().unwrap();
        black_box(&fpdu.event);
        u64::from(fpdu.placement.payload_length) + fpdu.total_length as u64
    })
}

fn placed(frames: u32, crc: bool) -> (u128, u64) {
    let mut transmitter = Transmitter::new(&established(crc), MULPDU);
    let bytes = frame(&mut transmitter, write(), &[0x5a; PAYLOAD_BYTES]);
    let (header, rest) = bytes.split_at(16);
    let (payload, trailer) = rest.split_at(PAYLOAD_BYTES);
    let mut receiver = Receiver::new(&established(crc));
    timed(frames, |_| {
        let placement = receiver.check_header(black_box(header)).unwrap();
        if crc {
            receiver.on_payload(payload).unwrap();
        } else {
            receiver.on_placed(placement.payload_length).unwrap();
        }
        black_box(receiver.on_trailer(black_box(trailer)).unwrap());
        u64::from(placement.payload_length)
    })
}

fn sends(frames: u32, crc: bool) -> (u128, u64) {
    const BATCH: usize = 1000;
    let send = Outbound::Send { solicited: false, invalidate: None };
    let mut transmitter = Transmitter::new(&established(crc), MULPDU);
    let bytes: Vec<Vec<u8>> =
        (0..BATCH).map(|_| frame(&mut transmitter, send, &[0x5a; 64])).collect();
    let mut receiver = Receiver::new(&established(crc));
    timed(frames, |index| {
        // Sequence numbers must go on, so start anew with every batch.
        let place = index as usize % BATCH;
        if place == 0 {
            receiver = Receiver::new(&established(crc));
        }
        let fpdu = receiver.on_fpdu(black_box(&bytes[place])).unwrap().unwrap();
        black_box(&fpdu.event);
        u64::from(fpdu.placement.payload_length)
    })
}

fn reads(frames: u32, crc: bool) -> (u128, u64) {
    let mut requester = Transmitter::new(&established(crc), MULPDU);
    let mut receiver = Receiver::new(&established(crc));
    let mut responder = Transmitter::new(&established(crc), MULPDU);
    let request = read_request(0x2000);
    let payload = [0x5a; PAYLOAD_BYTES];
    let response = frame(&mut responder, Outbound::answer_to(&request), &payload);
    let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
    timed(frames, |_| {
        let read = receiver.open_read(black_box(request)).unwrap();
        requester.read_request(&read, &mut bytes).unwrap();
        let fpdu = receiver.on_fpdu(black_box(&response)).unwrap().unwrap();
        black_box(&fpdu.event);
        u64::from(fpdu.placement.payload_length) + u64::from(black_box(&bytes)[15])
    })
}
