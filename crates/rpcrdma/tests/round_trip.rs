//! Headers, encoded and decoded again.

use dafs_rpcrdma::header::{
    Body, Chunk, Chunks, Handle, Message, ReadSegment, Segment, TransportError, Xid, decode,
    encode, encoded_bytes,
};
use proptest::prelude::*;

fn segment() -> impl Strategy<Value = Segment> {
    (any::<u32>(), any::<u32>(), 0..u64::MAX - u64::from(u32::MAX))
        .prop_map(|(handle, length, offset)| Segment { handle: Handle(handle), length, offset })
}

fn chunk() -> impl Strategy<Value = Chunk> {
    prop::collection::vec(segment(), 0..5).prop_map(Chunk)
}

fn chunks() -> impl Strategy<Value = Chunks> {
    let read =
        (any::<u32>(), segment()).prop_map(|(position, segment)| ReadSegment { position, segment });
    let reads = prop::collection::vec(read, 0..16);
    let writes = prop::collection::vec(chunk(), 0..8);
    (reads, writes, prop::option::of(chunk())).prop_map(|(reads, writes, reply)| Chunks {
        reads,
        writes,
        reply,
    })
}

fn same(xid: u32, credits: u32, body: Body<'_>) -> Vec<u8> {
    let message = Message { xid: Xid(xid), credits, body };
    let mut bytes = Vec::new();
    encode(&message, &mut bytes);
    assert_eq!(decode(&bytes), Ok(message));
    bytes
}

proptest! {
    #[test]
    fn messages_survive(
        xid: u32,
        credits: u32,
        chunks in chunks(),
        rpc in prop::collection::vec(any::<u8>(), 0..100),
        low: u32,
        high: u32,
    ) {
        let bytes = same(xid, credits, Body::Message { chunks: chunks.clone(), rpc: &rpc });
        prop_assert_eq!(bytes.len(), encoded_bytes(&chunks) + rpc.len());
        if !chunks.is_empty() {
            same(xid, credits, Body::NoMessage { chunks });
        }
        same(xid, credits, Body::Done);
        same(xid, credits, Body::Error(TransportError::Chunk));
        same(xid, credits, Body::Error(TransportError::Version { low, high }));
    }

    #[test]
    fn a_chunk_is_filled_from_its_start(chunk in chunk(), share in 0..=4_u64) {
        let length = chunk.length() / 4 * share;
        let filled = chunk.filled(length);
        prop_assert_eq!(filled.length(), length);
        let pairs = chunk.0.iter().zip(&filled.0);
        let partly = pairs.clone().position(|(all, used)| used.length < all.length);
        let rest = partly.map_or(&[][..], |index| &filled.0[index + 1..]);
        prop_assert!(rest.iter().all(|segment| segment.length == 0));
        for (all, used) in pairs {
            prop_assert_eq!((all.handle, all.offset), (used.handle, used.offset));
        }
    }
}
