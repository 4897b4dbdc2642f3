//! Headers that were written by hand from the XDR of RFC 8166, and what they mean.

use dafs_rpcrdma::header::{
    Body, Chunk, Chunks, Fault, Handle, Message, ReadSegment, Segment, TransportError, Xid, decode,
    encode,
};

use crate::common::hex;

#[track_caller]
fn same(bytes: &[u8], credits: u32, body: Body<'_>) {
    let message = Message { xid: Xid(0x1234_5678), credits, body };
    assert_eq!(decode(bytes).as_ref(), Ok(&message));
    let mut encoded = Vec::new();
    encode(&message, &mut encoded);
    assert_eq!(encoded, bytes);
}

fn segment(handle: u32, length: u32, offset: u64) -> Segment {
    Segment { handle: Handle(handle), length, offset }
}

#[track_caller]
fn refused(text: &str, fault: Fault, error: Option<TransportError>) {
    let found = decode(&hex(text)).unwrap_err();
    assert_eq!(found.fault, fault);
    assert_eq!(found.fault.error(), error);
    if fault != Fault::Short {
        assert_eq!(found.xid, Xid(0x1234_5678));
    }
}

#[test]
fn a_short_call() {
    let bytes = hex("12345678  ; identifier
        00000001  ; version
        00000080  ; 128 credits wanted
        00000000  ; RDMA_MSG
        00000000 00000000 00000000  ; no Read list, no Write list, no Reply chunk
        12345678 00000000 00000002  ; the start of an RPC call");
    let rpc = hex("12345678 00000000 00000002");
    same(&bytes, 128, Body::Message { chunks: Chunks::default(), rpc: &rpc });
}

#[test]
fn a_call_with_all_lists() {
    let bytes = hex("12345678 00000001 00000020 00000000
        00000001 00000090  ; a Read segment at position 144
        aabbccdd 00001000 0000000100000000  ; handle, length, offset
        00000001 00000090  ; another segment of the same chunk
        aabbccde 00000800 0000000200000000
        00000000  ; the end of the Read list
        00000001 00000002  ; a Write chunk of two segments
        00000011 00000400 0000000000001000
        00000012 00000200 0000000000002000
        00000001 00000000  ; a Write chunk without segments
        00000000  ; the end of the Write list
        00000001 00000001  ; a Reply chunk of one segment
        00000013 00002000 ffffffff00000000
        12345678 00000000  ; the start of an RPC call");
    let chunks = Chunks {
        reads: vec![
            ReadSegment { position: 144, segment: segment(0xaabb_ccdd, 4096, 1 << 32) },
            ReadSegment { position: 144, segment: segment(0xaabb_ccde, 2048, 2 << 32) },
        ],
        writes: vec![
            Chunk(vec![segment(0x11, 1024, 4096), segment(0x12, 512, 8192)]),
            Chunk(vec![]),
        ],
        reply: Some(Chunk(vec![segment(0x13, 8192, 0xffff_ffff_0000_0000)])),
    };
    let rpc = hex("12345678 00000000");
    same(&bytes, 32, Body::Message { chunks, rpc: &rpc });
}

#[test]
fn a_long_call_a_done_and_errors() {
    let bytes = hex("12345678 00000001 00000001 00000001  ; RDMA_NOMSG
        00000001 00000000  ; a Read segment at position 0
        00000007 00002000 0000000000000000
        00000000 00000000 00000000");
    let read = ReadSegment { position: 0, segment: segment(7, 8192, 0) };
    let chunks = Chunks { reads: vec![read], ..Chunks::default() };
    same(&bytes, 1, Body::NoMessage { chunks });
    same(&hex("12345678 00000001 00000005 00000003"), 5, Body::Done);
    let version = hex("12345678 00000001 00000005 00000004 00000001 00000001 00000002");
    same(&version, 5, Body::Error(TransportError::Version { low: 1, high: 2 }));
    let chunk = hex("12345678 00000001 00000005 00000004 00000002");
    same(&chunk, 5, Body::Error(TransportError::Chunk));
}

#[test]
fn each_fault_has_its_error() {
    let versions = Some(TransportError::Version { low: 1, high: 1 });
    let chunk = Some(TransportError::Chunk);
    refused("12345678 00000001 00000005", Fault::Short, None);
    refused("12345678 00000002 00000005 00000000", Fault::Version(2), versions);
    refused("12345678 00000000 00000005 00000004", Fault::Version(0), versions);
    refused("12345678 00000001 00000005 00000005", Fault::Procedure(5), chunk);
    refused("12345678 00000001 00000005 00000002", Fault::Padded, chunk);
    let start = "12345678 00000001 00000005 00000000";
    refused(&format!("{start} 00000000 00000000"), Fault::Truncated, chunk);
    refused(&format!("{start} 00000001 00000000 00000007"), Fault::Truncated, chunk);
    refused(&format!("{start} 00000000 00000001 00000002"), Fault::Truncated, chunk);
    refused(&format!("{start} 00000002"), Fault::Mark(2), chunk);
    refused(&format!("{start} 00000000 ffffffff"), Fault::Mark(u32::MAX), chunk);
    refused(&format!("{start} 00000000 00000000 00000003"), Fault::Mark(3), chunk);
    refused(&format!("{start} 00000000 00000001 00000041"), Fault::Segments, chunk);
    refused(&format!("{start} 00000000 00000000 00000001 ffffffff"), Fault::Segments, chunk);
    let read = "00000001 00000000 00000007 00000001 0000000000000000";
    refused(&format!("{start} {}", read.repeat(65)), Fault::Segments, chunk);
    let write = "00000001 00000000";
    refused(&format!("{start} 00000000 {}", write.repeat(17)), Fault::Chunks, chunk);
    let wraps = "00000001 00000008 00000007 00000002 ffffffffffffffff";
    refused(&format!("{start} {wraps}"), Fault::Wraps, chunk);
    let no_message = "12345678 00000001 00000005 00000001";
    refused(&format!("{no_message} 00000000 00000000 00000000"), Fault::Nothing, chunk);
    refused(&format!("{no_message} 00000000 00000000 00000000 00000000"), Fault::Trailing, chunk);
    // An error is never the reply to an error.
    refused("12345678 00000001 00000005 00000004", Fault::Error, None);
    refused("12345678 00000001 00000005 00000004 00000003", Fault::Error, None);
    refused("12345678 00000001 00000005 00000004 00000001 00000001", Fault::Error, None);
}
