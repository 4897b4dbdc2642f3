//! Prints the cost of encoding and decoding the four hot procedures, in nanoseconds per message
//! including the header, in the machine's own byte order and the other one.
//!
//! Invariant: every figure comes with a checksum of the work done, so that the compiler cannot omit
//! the work.

use std::hint::black_box;
use std::time::Instant;

use dafs_types::{
    CacheHint, FileHandle, RmrContext, RmrTarget, SequenceNumber, Stability, StateId, Status,
    StreamId, Verifier,
};
use dafs_wire::messages::{
    InlineData, Placement, ReadDirect, ReadDirectResult, ReadInline, ReadInlineResult, WriteDirect,
    WriteInline, WriteResult,
};
use dafs_wire::{
    ByteOrder, Checksum, DirectBuffer, DirectBuffers, DirectChecksum, Procedure, Request,
    RequestHeader, Response, ResponseHeader, decode_request, decode_response, encode_request,
    encode_response,
};

/// The number of messages per measurement; `--quick` uses fewer.
const ROUNDS: u64 = 20_000_000;

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { 1000 } else { ROUNDS };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        println!("{order:?}");
        requests(order, rounds);
        responses(order, rounds);
    }
    checksum(rounds);
}

/// Runs `step` for the given number of rounds and prints the time of one.
fn measure(what: &str, rounds: u64, mut step: impl FnMut(u64) -> u64) {
    let (start, mut work) = (Instant::now(), 0u64);
    for round in 0..rounds {
        work = work.wrapping_mul(31).wrapping_add(step(round));
    }
    let each = start.elapsed().as_nanos() as f64 / rounds as f64;
    println!("  {what:<24} {each:7.1} ns  (work {work:016x})");
}

fn requests(order: ByteOrder, rounds: u64) {
    let header = RequestHeader::new(StreamId(3), SequenceNumber(9));
    let buffer =
        [DirectBuffer { target: RmrTarget(1 << 40), length: 4096, context: RmrContext(77) }];
    let (file, state, hint) = (FileHandle([7; 64]), StateId(5), CacheHint(0));
    let buffers = DirectBuffers::from(&buffer);
    let follows = InlineData::Follows { length: 4096 };
    let all = [
        Request::ReadDirect(ReadDirect { file, state, offset: 1, length: 4096, hint, buffers }),
        Request::WriteDirect(WriteDirect {
            file,
            state,
            offset: 1,
            length: 4096,
            stability: Stability::Unstable,
            hint,
            checksum: Checksum::NONE,
            buffers,
        }),
        Request::ReadInline(ReadInline { file, state, offset: 1, length: 4096, hint }),
        Request::WriteInline(WriteInline {
            file,
            state,
            offset: 1,
            stability: Stability::Unstable,
            hint,
            placement: Placement::Packed,
            data: follows,
        }),
    ];
    for request in all {
        let name = request.procedure().name();
        let mut message = [0; 8192];
        let length = encode_request(order, &header, &request, &mut message).expect("it fits");
        measure(&format!("encode {name}"), rounds, |round| {
            let mut header = header;
            header.sequence = SequenceNumber(round as u16);
            let length =
                encode_request(order, black_box(&header), black_box(&request), &mut message);
            black_box(&mut message);
            length.unwrap_or(0) as u64
        });
        let whole = if matches!(request, Request::WriteInline(_)) { length + 4096 } else { length };
        measure(&format!("decode {name}"), rounds, |_| {
            match decode_request(order, black_box(&message[..whole])) {
                Ok((header, Request::ReadDirect(read))) => {
                    let buffer = read.buffers.get(0).unwrap_or_default();
                    u64::from(header.sequence.0) + read.offset + buffer.target.0
                }
                Ok((header, request)) => {
                    black_box(&request);
                    u64::from(header.sequence.0)
                }
                Err(_) => 0,
            }
        });
    }
}

fn responses(order: ByteOrder, rounds: u64) {
    let request = RequestHeader::new(StreamId(3), SequenceNumber(9));
    let header = ResponseHeader::answering(&request, Status::Ok, 16);
    let written =
        WriteResult { length: 4096, committed: Stability::Unstable, verifier: Verifier([1; 8]) };
    let all = [
        Response::ReadDirect(ReadDirectResult {
            end_of_file: false,
            length: 4096,
            checksum: Checksum::NONE,
        }),
        Response::WriteDirect(written),
        Response::ReadInline(ReadInlineResult {
            end_of_file: false,
            data: InlineData::Follows { length: 4096 },
        }),
        Response::WriteInline(written),
    ];
    for response in all {
        let procedure = response.procedure().unwrap_or(Procedure::Null);
        let name = procedure.name();
        let mut message = [0; 8192];
        let length = encode_response(order, &header, &response, &mut message).expect("it fits");
        measure(&format!("encode {name} reply"), rounds, |round| {
            let mut header = header;
            header.sequence = SequenceNumber(round as u16);
            let length =
                encode_response(order, black_box(&header), black_box(&response), &mut message);
            black_box(&mut message);
            length.unwrap_or(0) as u64
        });
        let inline = matches!(response, Response::ReadInline(_));
        let whole = if inline { length + 4096 } else { length };
        measure(&format!("decode {name} reply"), rounds, |_| {
            match decode_response(order, procedure, black_box(&message[..whole])) {
                Ok((header, response)) => {
                    black_box(&response);
                    u64::from(header.sequence.0)
                }
                Err(_) => 0,
            }
        });
    }
}

fn checksum(rounds: u64) {
    let data: Vec<u8> = (0..65_536u32).map(|index| (index * 7) as u8).collect();
    let passes = (rounds / 1000).max(1);
    let start = Instant::now();
    let mut sums = DirectChecksum::new();
    for _ in 0..passes {
        sums.update(black_box(&data));
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = (passes * data.len() as u64) as f64 / seconds / 1e9;
    println!("checksum {rate:.1} GB/s ({:?})", sums.finish());
}
