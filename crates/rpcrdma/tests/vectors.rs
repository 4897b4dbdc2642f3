//! Messages between Linux's NFS client and this server, as captured by `tests/interop`, and what
//! tshark reads in their headers (`tests/interop/rdma-vectors`).

use dafs_rpcrdma::header::{
    Body, Chunk, Chunks, Direction, Message, Segment, Xid, decode, direction, encode, encoded_bytes,
};

use crate::common::hex;

/// A line of the file, word by word.
struct Vector<'t> {
    name: &'t str,
    /// What tshark reads: the words between the sender and the message.
    header: Vec<&'t str>,
    bytes: Vec<u8>,
}

fn vectors() -> Vec<Vector<'static>> {
    let lines = include_str!("vectors/linux").lines().filter(|line| !line.starts_with('#'));
    let vector = |line: &'static str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, _sender, header @ .., message] = &words[..] else { panic!("{line}") };
        assert_eq!(header.len(), WORDS.len(), "{name}");
        Vector { name, header: header.to_vec(), bytes: hex(message) }
    };
    lines.map(vector).collect()
}

/// What tshark reads, in the order of the file.
const WORDS: [&str; 14] = [
    "identifier",
    "credits",
    "procedure of the header",
    "direction",
    "program",
    "procedure",
    "Read list",
    "Reply chunk",
    "Write chunks",
    "positions",
    "numbers of segments",
    "handles",
    "lengths",
    "offsets",
];

/// Returns numbers as tshark prints them.
fn list<T>(numbers: impl IntoIterator<Item = T>, print: impl Fn(T) -> String) -> String {
    let words: Vec<String> = numbers.into_iter().map(print).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

/// Returns the words of a decoded message, without those that are about its RPC message.
fn words_of(message: &Message<'_>) -> [String; 11] {
    let (procedure, chunks) = match &message.body {
        Body::Message { chunks, .. } => (0, chunks),
        Body::NoMessage { chunks } => (1, chunks),
        other => panic!("{other:?}"),
    };
    let counted = || chunks.writes.iter().chain(&chunks.reply);
    let segments = || chunks.segments();
    [
        format!("{:#010x}", message.xid.0),
        message.credits.to_string(),
        procedure.to_string(),
        u32::from(!chunks.reads.is_empty()).to_string(),
        u32::from(chunks.reply.is_some()).to_string(),
        chunks.writes.len().to_string(),
        list(&chunks.reads, |read| read.position.to_string()),
        list(counted(), |chunk: &Chunk| chunk.0.len().to_string()),
        list(segments(), |segment: &Segment| format!("{:#010x}", segment.handle.0)),
        list(segments(), |segment| segment.length.to_string()),
        list(segments(), |segment| format!("{:#018x}", segment.offset)),
    ]
}

/// Returns the direction, the program and the procedure of an RPC message. A reply has the
/// direction alone.
fn rpc_words(rpc: &[u8], xid: Xid) -> Vec<String> {
    let word = |index: usize| u32::from_be_bytes(rpc[4 * index..][..4].try_into().unwrap());
    match direction(rpc, xid).unwrap() {
        Direction::Call => [word(1), word(3), word(5)].iter().map(u32::to_string).collect(),
        Direction::Reply => vec!["1".to_owned()],
    }
}

#[test]
fn messages_of_linux_are_what_tshark_reads() {
    for Vector { name, header, bytes } in vectors() {
        let message = decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let expected = header[..3].iter().chain(&header[6..]);
        let names = WORDS[..3].iter().chain(&WORDS[6..]);
        for ((found, expected), word) in words_of(&message).iter().zip(expected).zip(names) {
            assert_eq!(found, expected, "{name}: {word}");
        }
        // tshark waits for the data of Read chunks before it reads the RPC message.
        if let (Body::Message { rpc, .. }, false) = (&message.body, header[3] == "-") {
            for (found, expected) in rpc_words(rpc, message.xid).iter().zip(&header[3..]) {
                assert_eq!(found, expected, "{name}");
            }
        }
    }
}

#[test]
fn messages_of_linux_are_encoded_as_they_were() {
    for Vector { name, bytes, .. } in vectors() {
        let message = decode(&bytes).unwrap();
        let mut encoded = Vec::new();
        encode(&message, &mut encoded);
        assert_eq!(encoded, bytes, "{name}");
        let (chunks, rest): (&Chunks, usize) = match &message.body {
            Body::Message { chunks, rpc } => (chunks, rpc.len()),
            Body::NoMessage { chunks } => (chunks, 0),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(encoded_bytes(chunks) + rest, bytes.len(), "{name}");
    }
}

/// The captures have each shape that the Linux client and the server use.
#[test]
fn all_shapes_are_there() {
    let shapes = [
        "client-call-",
        "client-read-",
        "client-call-write-",
        "client-call-chunk-",
        "client-reply-",
        "server-reply-",
        "server-reply-write-",
        "server-long-reply-chunk-",
        "server-call-",
    ];
    let all = vectors();
    for shape in shapes {
        let has_shape = |vector: &Vector<'_>| {
            vector.name.split_once(shape).is_some_and(|(_, rest)| rest.parse::<u32>().is_ok())
        };
        assert!(all.iter().any(has_shape), "{shape}");
    }
}
