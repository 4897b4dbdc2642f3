//! Messages of NFSv4 written by hand, word by word, from the specifications.

use dafs_nfs_wire::nfs4::attributes::number;
use dafs_nfs_wire::nfs4::compound::{CallbackCompound, Compound, CompoundReply};
use dafs_nfs_wire::nfs4::layout_bodies::{FileLayoutUtility, FlexibleLayout};
use dafs_nfs_wire::nfs4::{Attributes, Bitmap, Fattr};
use dafs_nfs_wire::xdr::{Xdr, decode_whole, encode_whole};

/// Returns the bytes of a message: words in hexadecimal, and text in quotes with its padding.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        for word in line.split_whitespace() {
            if let Some(quoted) = word.strip_prefix('"') {
                bytes.extend(quoted.trim_end_matches('"').bytes());
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            } else {
                let word = u32::from_str_radix(word, 16).expect("a word in hexadecimal");
                bytes.extend(word.to_be_bytes());
            }
        }
    }
    bytes
}

/// Checks that the bytes are a value of the type, which is encoded as the same bytes, and returns
/// its description.
fn described<'b, T: Xdr<'b> + std::fmt::Debug>(bytes: &'b [u8]) -> String {
    let value: T = decode_whole(bytes).expect("a valid message");
    assert_eq!(encode_whole(&value).expect("it has an encoding"), bytes);
    format!("{value:?}")
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_first_compound_of_a_mount() {
    let call = bytes(
        r#"0 1 1                   // no tag, minor version 1, one operation
           2a                      // EXCHANGE_ID
           11223344 55667788       // verifier
           6 "owner1"              // owner
           101                     // flags
           0                       // no state protection
           1 6 "domain" 5 "Linux"  // implementation
           0 5f000000 0"#,
    );
    let text = described::<Compound<'_>>(&call);
    assert_contains(
        &text,
        &[
            "ExchangeId(ExchangeIdArgs",
            "verifier: Verifier([17, 34, 51, 68, 85, 102, 119, 136])",
            "owner: \"owner1\"",
            "flags: ExchangeFlags(257)",
            "protection: None",
            "name: \"Linux\"",
            "seconds: 1593835520",
        ],
    );
    let reply = bytes(
        r#"0 0 1                   // OK, no tag, one answer
           2a 0                    // EXCHANGE_ID, OK
           1 2                     // client id
           1 80010001              // sequence, flags
           0                       // no state protection
           0 7 5 "major"           // server owner
           5 "scope"
           0"#,
    );
    let text = described::<CompoundReply<'_>>(&reply);
    assert_contains(
        &text,
        &[
            "client: ClientId(4294967298)",
            "minor: 7",
            "major: \"major\"",
            "server_scope: \"scope\"",
        ],
    );
}

#[test]
fn a_session_is_created() {
    let call = bytes(
        r#"0 1 1 2b                // CREATE_SESSION
           1 2 1 3                 // client id, sequence, flags
           0 100000 100000 2000 8 40 0     // fore channel, no RDMA
           0 1000 1000 0 2 10 1 4          // back channel, with RDMA reads
           40000000                // program of the callbacks
           2 1                     // two flavors: AUTH_SYS, RPCSEC_GSS
           0 3 "box" 3e8 64 2 5 6
           6 2 1 01000000 1 02000000"#,
    );
    // The GSS handles have one byte each; their padding is part of the words above.
    let text = described::<Compound<'_>>(&call);
    assert_contains(
        &text,
        &[
            "flags: SessionFlags(3)",
            "operations_max: 8, requests_max: 64, rdma_reads: None",
            "rdma_reads: Some(4)",
            "callback_program: 1073741824",
            "machine_name: \"box\", uid: 1000, gid: 100, gids: [5, 6]",
            "service: Integrity",
        ],
    );
}

#[test]
fn a_file_is_opened_and_locked() {
    let call = bytes(
        r#"3 "run" 2 4
           35                      // SEQUENCE
           0 1 2 3 7 5 6 1         // session, sequence 7, slot 5, highest 6, cached
           16 5 "fh-12"            // PUTFH
           12 0                    // OPEN, sequence
           103 2                   // both and a read delegation, deny write
           0 9 3 "me."             // owner
           1 1                     // create, guarded
           2 10 2                  // two words: size (bit 4) and mode (bit 33)
           c 0 1000 1a4            // size 4096, mode 0644
           0 3 "new"               // claim by name
           c                       // LOCK
           2 0 0 10 ffffffff ffffffff      // exclusive, from 16 to the end
           1 0                     // a new locker
           4 61616161 62626262 63636363    // open state id
           0 0 9 3 "me.""#,
    );
    let text = described::<Compound<'_>>(&call);
    assert_contains(
        &text,
        &[
            "tag: \"run\", minor_version: 2",
            "sequence: 7, slot: 5, highest_slot: 6, cache_this: true",
            "PutFh(\"fh-12\")",
            "access: ShareAccess(259), deny: ShareDeny(2)",
            "how: Create(Guarded(Fattr",
            "claim: Name(\"new\")",
            "Lock(LockArgs { kind: Write, reclaim: false, offset: 16, length: 18446744073709551615",
            "locker: New(NewLocker",
            "sequence: 4, other: [97, 97, 97, 97, 98,",
        ],
    );
    let reply = bytes(
        r#"271a 0 2                // DENIED
           12 0                    // OPEN, OK
           1 61616161 62626262 63636363
           1 0 1 0 2 4             // atomic change from 1 to 2; flags
           1 10                    // the size was set
           1                       // a read delegation
           1 64646464 65656565 66666666 0
           0 0 1 9 "EVERYONE@"     // who may read
           c 271a                  // LOCK, DENIED
           0 0 0 5 1               // bytes 0 to 4, shared
           0 8 5 "other""#,
    );
    let text = described::<CompoundReply<'_>>(&reply);
    assert_contains(
        &text,
        &[
            "status: Denied",
            "change: ChangeInfo { atomic: true, before: 1, after: 2 }",
            "delegation: Read(ReadDelegation",
            "who: \"EVERYONE@\"",
            "Lock(Denied(LockDenied { offset: 0, length: 5, kind: Read",
            "owner: \"other\"",
        ],
    );
}

#[test]
fn data_moves() {
    let call = bytes(
        r#"0 2 4
           26 0 0 0 0 0 8 2 5 "hello"      // WRITE at 8, file sync
           19 0 0 0 0 0 0 1000             // READ
           45 0 0 0 0 0 20 1               // SEEK a hole from 32
           3c 0 0 0 0 0 0 0 0 0 0 0 4 0 0 1 1 0"#, // COPY all bytes to offset 4
    );
    let text = described::<Compound<'_>>(&call);
    assert_contains(
        &text,
        &[
            "offset: 8, stability: FileSync, data: 5 bytes",
            "count: 4096",
            "offset: 32, content: Hole",
            "target_offset: 4, count: 0, consecutive: true, synchronous: true",
        ],
    );
    let reply = bytes(
        r#"0 0 4
           26 0 5 2 1 2                    // WRITE: 5 bytes, file sync, verifier
           19 0 1 5 "hello"                // READ: end of file
           44 0 1 2 0 0 0 4 "abcd" 1 0 4 0 1000   // READ_PLUS: data, then a hole
           3c 0 0 0 5 2 1 2 1 1"#, // COPY: no callback, 5 bytes, file sync, verifier
    );
    let text = described::<CompoundReply<'_>>(&reply);
    assert_contains(
        &text,
        &[
            "WriteDone { count: 5, committed: FileSync,",
            "verifier: Verifier([0, 0, 0, 1, 0, 0, 0, 2])",
            "ReadDone { is_end: true, data: 5 bytes }",
            "Data(DataPart { offset: 0, data: 4 bytes })",
            "Hole(HolePart { offset: 4, length: 4096 })",
            "Started(CopyDone { response: WriteResponse { callback: None, count: 5",
        ],
    );
}

#[test]
fn a_directory_is_listed() {
    let reply = bytes(
        r#"0 0 1 1a 0
           0 9                             // verifier
           1 0 1 1 "a" 1 2 4 1             // entry: cookie 1, type regular
           1 0 2 2 "bb" 1 800 4 a          // entry: cookie 2, rdattr_error 10
           0 1"#,
    );
    let value: Result<CompoundReply<'_>, _> = decode_whole(&reply);
    let value = value.expect("a listing");
    let text = described::<CompoundReply<'_>>(&reply);
    assert_contains(&text, &["cookie: 1, name: \"a\"", "cookie: 2, name: \"bb\"", "is_end: true"]);
    assert_eq!(value.answers.len(), 1);
}

#[test]
fn a_delegation_is_recalled() {
    let call = bytes(
        r#"0 1 0 2
           b                       // CB_SEQUENCE
           0 1 2 3 1 0 0 0
           1 0 1 2 3 1 5 2         // one session with one call: sequence 5 of slot 2
           4                       // CB_RECALL
           3 61616161 62626262 63636363 0 4 "fh01""#,
    );
    let text = described::<CallbackCompound<'_>>(&call);
    assert_contains(
        &text,
        &[
            "calls: List([ReferringCall { sequence: 5, slot: 2 }])",
            "Recall(CbRecallArgs { state: StateId { sequence: 3,",
            "truncate: false, handle: \"fh01\"",
        ],
    );
}

#[test]
fn a_flexible_layout() {
    let body = bytes(
        r#"0 10000 1               // stripes of 64 KiB, one mirror
           2                       // with two servers
           1 1 1 1 64              // device and efficiency
           0 0 0 0                 // anonymous state id
           1 4 "h001" 4 "1001" 4 "2002"
           2 2 2 2 32
           0 0 0 0
           1 4 "h002" 4 "1001" 4 "2002"
           3 3c"#, // flags and seconds between reports
    );
    let text = described::<FlexibleLayout<'_>>(&body);
    assert_contains(
        &text,
        &[
            "stripe_bytes: 65536",
            "efficiency: 100, state: StateId { sequence: 0,",
            "handles: List([\"h002\"]), user: \"1001\", group: \"2002\"",
            "flags: FlexibleFlags(3), statistics_seconds: 60",
        ],
    );
    let utility = FileLayoutUtility::DENSE.with_stripe_bytes(65_599);
    assert_eq!((utility.0, utility.stripe_bytes()), (65_537, 65_536));
}

#[test]
fn attributes_of_every_word() {
    let encoded = bytes(
        r#"3 0000001a 00300010 00048000    // type, change, size; numlinks and so on
           0"#,
    );
    let fattr: Fattr<'_> = decode_whole(&encoded).expect("a mask and no values");
    let numbers: Vec<u32> = fattr.mask.iter().collect();
    assert_eq!(numbers, [1, 3, 4, 36, 52, 53, 79, 82]);
    let encoded = bytes(
        r#"3 0000001a 00300010 00048000
           3c                              // 60 bytes
           1 0 7 0 1000                    // regular, change 7, 4096 bytes
           4 "1000"                        // owner
           ffffffff ffffffff 5             // one second before 1970, and 5 ns
           0 2 3b9ac9ff                    // 2 s and 999,999,999 ns
           0 1"#, // monotonic change, xattrs
    );
    let fattr: Fattr<'_> = decode_whole(&encoded).expect("a mask and values");
    let values = fattr.decode().expect("valid attributes");
    assert_eq!((values.change, values.size), (Some(7), Some(4096)));
    assert_eq!(values.owner.map(|owner| owner.0), Some(&b"1000"[..]));
    assert_eq!(values.time_metadata.map(|time| time.seconds), Some(-1));
    assert_eq!(values.xattr_support, Some(true));
    assert_eq!(values.to_bytes().expect("an encoding"), encoded);
    let few = Attributes { change: Some(7), size: Some(4096), ..Attributes::default() };
    let mut writer = dafs_nfs_wire::xdr::Writer::new();
    few.encode(&Bitmap::of(&[number::size, number::mode]), &mut writer);
    assert_eq!(writer.bytes(), bytes("1 10 8 0 1000"));
}
