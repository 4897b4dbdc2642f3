//! The body of the fuzz target, and a generator of headers with faults. Not part of the public
//! interface.
//!
//! Invariant: no input causes a panic, a valid message is encoded as the same bytes again, and what
//! a connection holds stays within its limits.

use std::time::Duration;

use dafs_types::{Entropy, Moment, Random};

use crate::header::{
    Body, Chunk, Chunks, Fault, Handle, Message, ReadSegment, Segment, TransportError, Xid, decode,
    encode,
};
use crate::limits::ServerConfig;
use crate::private_data::PrivateData;
use crate::server::{Action, Connection, Reply};

/// Decodes arbitrary bytes, and gives them to a connection as messages. The first byte of each
/// message is its length in units of four bytes.
pub fn messages(data: &[u8]) {
    let config = ServerConfig {
        credits: 4,
        call_bytes: 1 << 16,
        connection_bytes: 1 << 17,
        reads: 2,
        ..ServerConfig::default()
    };
    let mut connection = Connection::new(config, PrivateData::find(data));
    let mut rest = data;
    let mut now = Moment(0);
    while let Some((length, bytes)) = rest.split_first() {
        let (message, after) = bytes.split_at(bytes.len().min(4 * usize::from(*length)));
        rest = after;
        same_again(message);
        now = now.after(Duration::from_millis(10));
        connection.receive(message, now);
        drive(&mut connection, message, now);
        assert!(connection.reserved_bytes() <= config.connection_bytes, "too many bytes");
        assert!(connection.calls_in_flight() <= config.credits, "too many calls");
    }
    connection.on_time(now.after(Duration::from_secs(3600)));
}

/// Checks that a valid message is encoded as the same bytes again.
pub fn same_again(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else { return };
    let mut again = Vec::new();
    encode(&message, &mut again);
    // Bytes after an error or a DONE are ignored.
    assert_eq!(again, bytes[..again.len()], "a message changed");
}

/// Does what the connection asks for: every third read fails or stays open, and calls are replied
/// to, refused, or kept.
fn drive(connection: &mut Connection, message: &[u8], now: Moment) {
    let choice = message.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    while let Some(action) = connection.poll_action() {
        match action {
            Action::Read(read) if choice % 16 == 1 => {
                let _ = read;
                connection.failed();
            }
            Action::Read(_) if choice % 8 == 3 => {}
            Action::Read(read) => {
                let mut bytes = vec![0; read.from.length as usize];
                // So that long calls can be complete.
                if let Some((place, xid)) = bytes.first_chunk_mut::<4>().zip(message.first_chunk())
                {
                    *place = *xid;
                }
                connection.read_done(read.id, &bytes, now);
            }
            Action::Call(call) => {
                let fetched = vec![0; call.fetched_bytes()];
                let whole = call.assemble(&fetched);
                assert_eq!(whole.len(), call.length(), "parts are missing");
                let _ = crate::binding::check_call(&call, &fetched);
                let reply = Reply { bytes: &whole, items: &[] };
                if choice % 4 > 0 && connection.reply(call.id, &reply, now).is_err() {
                    let _ = connection.refuse(call.id, now);
                }
            }
            Action::Send(send) if choice % 32 != 5 => connection.sent(send.id, now),
            _ => {}
        }
    }
}

/// Generates a message that has one fault, and returns the fault.
#[must_use]
pub fn malformed(random: &mut Random) -> (Vec<u8>, Fault) {
    let mut bytes = Vec::new();
    let message = Message {
        xid: Xid(random.next_u64() as u32),
        credits: random.below(300) as u32,
        body: Body::Message { chunks: chunks(random), rpc: &[] },
    };
    encode(&message, &mut bytes);
    let put = |bytes: &mut Vec<u8>, at: usize, value: u32| {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    };
    match random.below(11) {
        0 => {
            bytes.truncate(random.below(16));
            (bytes, Fault::Short)
        }
        1 => {
            let version = 2 + random.below(1 << 31) as u32;
            put(&mut bytes, 4, version);
            bytes.truncate(16 + random.below(bytes.len()));
            (bytes, Fault::Version(version))
        }
        2 => {
            let procedure = 5 + random.below(1 << 31) as u32;
            put(&mut bytes, 12, procedure);
            (bytes, Fault::Procedure(procedure))
        }
        3 => {
            put(&mut bytes, 12, 2);
            (bytes, Fault::Padded)
        }
        4 => {
            bytes.truncate(16 + random.below(bytes.len() - 16));
            (bytes, Fault::Truncated)
        }
        5 => {
            let value = 2 + random.below(1 << 31) as u32;
            put(&mut bytes, 16, value);
            (bytes, Fault::Mark(value))
        }
        6 => {
            // A Write chunk with a count that lies. Nothing follows it.
            let count = 65 + random.below(1 << 31) as u32;
            bytes.truncate(16);
            [0, 1, count].iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
            (bytes, Fault::Segments)
        }
        7 => {
            bytes.truncate(16);
            let read: [u32; 6] = [1, 8, random.next_u64() as u32, 2, u32::MAX, u32::MAX];
            read.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
            bytes.extend([0; 12]);
            (bytes, Fault::Wraps)
        }
        8 => {
            put(&mut bytes, 12, 1);
            bytes.extend(random.bytes(4));
            (bytes, Fault::Trailing)
        }
        9 => {
            bytes.truncate(16);
            bytes.extend([0; 12]);
            put(&mut bytes, 12, 1);
            (bytes, Fault::Nothing)
        }
        _ => {
            bytes.truncate(16);
            put(&mut bytes, 12, 4);
            bytes.extend((3 + random.below(1 << 31) as u32).to_be_bytes());
            (bytes, Fault::Error)
        }
    }
}

/// Generates a valid list of chunks.
#[must_use]
pub fn chunks(random: &mut Random) -> Chunks {
    let segment = |random: &mut Random| Segment {
        handle: Handle(random.next_u64() as u32),
        length: random.below(1 << 20) as u32,
        offset: random.next_u64() >> 1,
    };
    let chunk = |random: &mut Random| {
        let count = random.below(4);
        Chunk((0..count).map(|_| segment(random)).collect())
    };
    let read = |random: &mut Random| ReadSegment {
        position: 4 * random.below(1000) as u32,
        segment: segment(random),
    };
    Chunks {
        reads: (0..random.below(5)).map(|_| read(random)).collect(),
        writes: (0..random.below(4)).map(|_| chunk(random)).collect(),
        reply: random.percent(50).then(|| chunk(random)),
    }
}

/// Returns seeds for the corpus: messages of every kind, each as [`messages`] takes them.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let rpc: Vec<u8> = [7_u32, 0, 2, 100_003, 3, 7, 0, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    let segment = |length| Segment { handle: Handle(9), length, offset: 4096 };
    let read = |position, length| ReadSegment { position, segment: segment(length) };
    let reads = |reads| Chunks { reads, ..Chunks::default() };
    let writes = vec![Chunk(vec![segment(100), segment(50)]), Chunk::default()];
    let reply = Some(Chunk(vec![segment(64)]));
    let seeds = [
        ("short-call", Body::Message { chunks: Chunks::default(), rpc: &rpc }),
        ("read-chunk", Body::Message { chunks: reads(vec![read(40, 6)]), rpc: &rpc }),
        ("long-call", Body::NoMessage { chunks: reads(vec![read(0, 100), read(48, 8)]) }),
        ("write-list", Body::Message { chunks: Chunks { writes, ..Chunks::default() }, rpc: &rpc }),
        ("reply-chunk", Body::Message { chunks: Chunks { reply, ..Chunks::default() }, rpc: &rpc }),
        ("done", Body::Done),
        ("error-version", Body::Error(TransportError::VERSION)),
        ("error-chunk", Body::Error(TransportError::Chunk)),
    ];
    let framed = |body: Body<'_>| {
        let mut message = Vec::new();
        encode(&Message { xid: Xid(7), credits: 16, body }, &mut message);
        let length = u8::try_from(message.len() / 4).unwrap_or(u8::MAX);
        [&[length][..], &message].concat()
    };
    seeds.into_iter().map(|(name, body)| (name, framed(body))).collect()
}
