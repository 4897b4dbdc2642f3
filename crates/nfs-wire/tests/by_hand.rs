//! Messages that were written by hand from the RFCs, and what they mean.

use dafs_nfs_wire::rpc::gss::{GssCall, GssCredential, GssProcedure, GssService};
use dafs_nfs_wire::rpc::{
    Accepted, Auth, AuthStat, AuthSys, Call, CallError, Credential, Outcome, Refused, Rejected,
    ReplyBody, START_TLS, Versions, begin_record, decode_call, encode_call, encode_reply,
    end_record, failure, flavor, success,
};
use dafs_nfs_wire::xdr::*;
use dafs_nfs_wire::{mount3, nfs3, nfsacl3, nlm, nsm, rpcbind, rquota};

/// Returns the bytes of hexadecimal digits. The rest of a line after `;` is a comment.
fn hex(text: &str) -> Vec<u8> {
    let digits: String = text
        .lines()
        .filter_map(|line| line.split(';').next())
        .flat_map(str::chars)
        .filter(|character| !character.is_whitespace())
        .collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Checks that bytes and value are the same in both directions.
#[track_caller]
fn same<'b, T: Xdr<'b> + PartialEq + std::fmt::Debug>(bytes: &'b [u8], value: T) {
    assert_eq!(decode_whole(bytes), Ok(value));
    let value: T = decode_whole(bytes).unwrap();
    assert_eq!(encode_whole(&value).as_deref(), Ok(bytes));
}

const GETATTR: &str = "
    00000001                    ; xid
    00000000 00000002           ; call, RPC version 2
    000186a3 00000003 00000001  ; NFS, version 3, GETATTR
    00000001 00000024           ; AUTH_SYS, 36 bytes
    00000007                    ; stamp
    00000004 686f7374           ; 'host'
    000003e8 00000064           ; uid 1000, gid 100
    00000003 00000064 0000000a 00000018
    00000000 00000000           ; no verifier
    00000005 0102030405 000000  ; a handle of 5 bytes, and padding
";

#[test]
fn a_call_with_auth_sys() {
    let bytes = hex(GETATTR);
    let mut reader = Reader::new(&bytes);
    let call = decode_call(&mut reader).unwrap();
    assert_eq!((call.xid, call.program, call.version, call.procedure), (1, 100_003, 3, 1));
    assert_eq!(call.header, &bytes[..68]);
    let Ok(Credential::Sys(sys)) = call.credential.credential() else { panic!("{call:?}") };
    let gids = Inline::new(&[100, 10, 24]).unwrap();
    let expected = AuthSys { stamp: 7, machine_name: Opaque(b"host"), uid: 1000, gid: 100, gids };
    assert_eq!(sys, expected);
    let arguments = nfs3::Arguments::decode(nfs3::Procedure::GetAttr, &mut reader).unwrap();
    let file = nfs3::FileArgs { file: Opaque(&[1, 2, 3, 4, 5]) };
    assert_eq!(arguments, nfs3::Arguments::GetAttr(file));
    assert_eq!(reader.finish(), Ok(()));

    let mut writer = Writer::new();
    encode_call(&call, &mut writer);
    arguments.encode(&mut writer);
    assert_eq!(writer.contiguous(), Ok(&bytes[..]));
}

#[test]
fn a_call_that_cannot_be_accepted() {
    let good = hex(GETATTR);
    let decode = |bytes: &[u8]| decode_call(&mut Reader::new(bytes)).map(|_| ());
    let with = |at: usize, word: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        decode(&bytes)
    };
    let refused = |body| Err(CallError::Refuse(Refused { xid: 1, body: ReplyBody::Denied(body) }));
    let versions = Versions { low: 2, high: 2 };
    assert_eq!(with(4, 1), Err(CallError::IsReply));
    assert_eq!(with(4, 2), Err(CallError::NotACall));
    assert_eq!(with(8, 3), refused(Rejected::RpcMismatch(versions)));
    assert_eq!(with(28, 401), refused(Rejected::AuthError(AuthStat::BadCred)));
    assert_eq!(with(72, 401), refused(Rejected::AuthError(AuthStat::BadVerf)));
    assert_eq!(decode(&good[..20]), Err(CallError::NotACall));
    assert_eq!(decode(&good[..40]), refused(Rejected::AuthError(AuthStat::BadCred)));
    assert_eq!(decode_call(&mut Reader::partial(&good[..40], good.len())), Err(CallError::Absent));

    // Seventeen groups, a name of 256 bytes, and bytes after the groups are mistakes.
    let sys = &good[32..68];
    fn credential(flavor: u32, body: &[u8]) -> Result<Credential<'_>, AuthStat> {
        Auth { flavor, body: Opaque(body) }.credential()
    }
    assert!(credential(flavor::SYS, sys).is_ok());
    assert_eq!(credential(flavor::SYS, &sys[..32]), Err(AuthStat::BadCred));
    assert_eq!(credential(flavor::SYS, &[sys, &[0; 4]].concat()), Err(AuthStat::BadCred));
    let many = [&sys[..20], &[0, 0, 0, 17], &[0; 68]].concat();
    assert_eq!(credential(flavor::SYS, &many), Err(AuthStat::BadCred));
    let long = [&[0; 6][..], &[1, 0], &[b'h'; 256], &[0; 12]].concat();
    assert_eq!(credential(flavor::SYS, &long), Err(AuthStat::BadCred));
    assert_eq!(credential(flavor::SHORT, &[]), Err(AuthStat::RejectedCred));
    assert_eq!(credential(99, &[]), Err(AuthStat::BadCred));
    assert_eq!(credential(flavor::TLS, &[]), Ok(Credential::Tls));
    assert_eq!(credential(flavor::TLS, &[0; 4]), Err(AuthStat::BadCred));
}

#[test]
fn a_gss_credential() {
    let body = hex("
        00000001            ; version
        00000000 00000009   ; data, sequence number 9
        00000003            ; privacy
        00000002 abcd 0000  ; handle
    ");
    let call = GssCall {
        procedure: GssProcedure::Data,
        sequence: 9,
        service: GssService::Privacy,
        handle: Opaque(&[0xab, 0xcd]),
    };
    let credential = Auth { flavor: flavor::GSS, body: Opaque(&body) }.credential();
    assert_eq!(credential, Ok(Credential::Gss(GssCredential::Version1(call))));
    same(&body, GssCredential::Version1(call));
    let mut other = body.clone();
    other[3] = 2;
    let credential = Auth { flavor: flavor::GSS, body: Opaque(&other) }.credential();
    assert_eq!(credential, Err(AuthStat::BadCred));
}

#[test]
fn replies() {
    let reply = |body| {
        let mut writer = Writer::new();
        encode_reply(0x01020304, body, &mut writer);
        writer.into_buffer()
    };
    let tls = Auth { flavor: flavor::NONE, body: Opaque(START_TLS) };
    let bytes = hex("
        01020304 00000001 00000000           ; xid, reply, accepted
        00000000 00000008 5354415254544c53  ; AUTH_NONE, 'STARTTLS'
        00000000                            ; success
    ");
    assert_eq!(reply(success(tls)), bytes);
    let versions = Versions { low: 3, high: 4 };
    let bytes = hex("
        01020304 00000001 00000000
        00000000 00000000
        00000002 00000003 00000004          ; program mismatch, 3 to 4
    ");
    assert_eq!(reply(failure(Auth::NONE, Outcome::ProgMismatch(versions))), bytes);
    let bytes = hex("01020304 00000001 00000001 00000001 00000005");
    assert_eq!(reply(ReplyBody::Denied(Rejected::AuthError(AuthStat::TooWeak))), bytes);
    let decoded: dafs_nfs_wire::rpc::Reply<'_> = decode_whole(&bytes).unwrap();
    assert_eq!(decoded.xid, 0x01020304);
    let bytes = hex("01020304 00000001 00000000 00000000 00000000 00000004");
    let accepted = Accepted { verifier: Auth::NONE, outcome: Outcome::GarbageArgs };
    assert_eq!(reply(ReplyBody::Accepted(accepted)), bytes);
}

const ATTRIBUTES: &str = "
    00000001 000001a4 00000001          ; regular file, mode 0644, one link
    000003e8 00000064                   ; uid, gid
    0000000000000005 0000000000001000   ; size, used
    00000008 00000001                   ; device 8, 1
    00000000000000aa 00000000000000bb   ; file system, file
    00000001 00000002 00000003 00000004 00000005 00000006
";

fn attributes() -> nfs3::Attributes {
    let time = |seconds| nfs3::Time { seconds, nanoseconds: seconds + 1 };
    nfs3::Attributes {
        file_type: nfs3::FileType::Regular,
        mode: 0o644,
        link_count: 1,
        uid: 1000,
        gid: 100,
        size: 5,
        used: 4096,
        device: nfs3::DeviceNumber { major: 8, minor: 1 },
        fs_id: 0xaa,
        file_id: 0xbb,
        access_time: time(1),
        modify_time: time(3),
        change_time: time(5),
    }
}

#[test]
fn a_reply_to_read_leaves_out_its_data() {
    let read = nfs3::ReadOk {
        attributes: Some(attributes()),
        count: 5,
        eof: true,
        data: Payload::Elsewhere(5),
    };
    let mut writer = Writer::new();
    let begun = begin_record(&mut writer);
    encode_reply(9, success(Auth::NONE), &mut writer);
    nfs3::Results::Read(nfs3::ReadResult::Ok(read)).encode(&mut writer);
    end_record(&mut writer, begun);
    let expected = hex(&format!(
        "
        80000088                            ; mark: 136 bytes, last fragment
        00000009 00000001 00000000 00000000 00000000 00000000
        00000000                            ; NFS3_OK
        00000001 {ATTRIBUTES}
        00000005 00000001                   ; count, eof
        00000005                            ; 5 bytes of data follow
    "
    ));
    let pieces: Vec<_> = writer.pieces().collect();
    assert_eq!(pieces, [Piece::Bytes(&expected), Piece::Payload(5), Piece::Bytes(&[0; 3])]);
    assert_eq!(writer.length(), 4 + 136);

    let whole = [&expected[28..], b"hello", &[0; 3]].concat();
    let read = nfs3::ReadOk { data: Payload::Here(b"hello"), ..read };
    same(&whole, nfs3::ReadResult::Ok(read));
}

#[test]
fn a_write_is_found_while_its_data_arrives() {
    let mut bytes = hex("
        00000005 00000000 00000002
        000186a3 00000003 00000007           ; NFS, version 3, WRITE
        00000000 00000000 00000000 00000000  ; no credential, no verifier
        00000004 01020304                    ; handle
        0000000000002000 00000006 00000002   ; offset, count, FILE_SYNC
        00000006                             ; 6 bytes of data
    ");
    let start = bytes.len();
    bytes.extend(b"abcdef\0\0");
    for arrived in 0..bytes.len() {
        let found = nfs3::write_under_way(&bytes[..arrived], bytes.len()).unwrap();
        if arrived < start {
            assert_eq!(found, None);
            continue;
        }
        let found = found.unwrap();
        assert_eq!(found.call.xid, 5);
        assert_eq!(found.place, Place { start, length: 6 });
        assert_eq!(found.arguments.file, Opaque(&[1, 2, 3, 4]));
        assert_eq!((found.arguments.offset, found.arguments.count), (0x2000, 6));
        assert_eq!(found.arguments.stable, nfs3::Stability::FileSync);
    }
    // All of it is here, so nothing is under way.
    assert_eq!(nfs3::write_under_way(&bytes, bytes.len()), Ok(None));
    // A record that is shorter than its data is refused when it is here.
    assert_eq!(nfs3::write_under_way(&bytes[..start], start + 4), Ok(None));
    // Another procedure has no data to wait for.
    bytes[23] = 6;
    assert_eq!(nfs3::write_under_way(&bytes[..start], bytes.len()), Ok(None));
}

#[test]
fn arguments_of_version_3() {
    let at = nfs3::DirectoryOp { directory: Opaque(&[9; 4]), name: Opaque(b"new") };
    let create = nfs3::CreateArgs {
        at,
        how: nfs3::CreateHow::Guarded(nfs3::SetAttributes {
            mode: Some(0o600),
            size: Some(0),
            access_time: nfs3::SetTime::ToServerTime,
            modify_time: nfs3::SetTime::ToClientTime(nfs3::Time { seconds: 1, nanoseconds: 2 }),
            ..nfs3::SetAttributes::default()
        }),
    };
    let bytes = hex("
        00000004 09090909 00000003 6e657700  ; directory, 'new'
        00000001                             ; GUARDED
        00000001 00000180                    ; mode 0600
        00000000 00000000                    ; neither uid nor gid
        00000001 0000000000000000            ; size 0
        00000001                             ; access time: the server's
        00000002 00000001 00000002           ; modify time: the client's
    ");
    same(&bytes, create);
    let bytes = hex("00000004 09090909 00000003 6e657700 00000002 0102030405060708");
    let how = nfs3::CreateHow::Exclusive([1, 2, 3, 4, 5, 6, 7, 8]);
    same(&bytes, nfs3::CreateArgs { at, how });
    let bytes = hex("00000004 09090909 00000003 6e657700 00000001");
    same(&bytes, nfs3::MkNodArgs { at, what: nfs3::MkNodData::Other(nfs3::FileType::Regular) });
    let bytes = hex("00000004 09090909 0000000000000002 0000000000000003 00000400 00000800");
    let plus = nfs3::ReadDirPlusArgs {
        directory: Opaque(&[9; 4]),
        cookie: 2,
        verifier: [0, 0, 0, 0, 0, 0, 0, 3],
        directory_count: 1024,
        count_max: 2048,
    };
    same(&bytes, plus);
}

#[test]
fn a_page_of_a_directory_is_written_entry_by_entry() {
    let entry = |cookie, name| nfs3::EntryPlus {
        file_id: 7,
        name: Opaque(name),
        cookie,
        attributes: Some(attributes()),
        file: Some(Opaque(&[1, 2, 3, 4])),
    };
    let bytes = hex(&format!(
        "
        00000000 00000000 0000000000000000  ; NFS3_OK, no attributes, verifier
        00000001 0000000000000007 00000001 61000000 0000000000000001
        00000001 {ATTRIBUTES} 00000001 00000004 01020304
        00000001 0000000000000007 00000002 62630000 0000000000000002
        00000001 {ATTRIBUTES} 00000001 00000004 01020304
        00000000 00000001                   ; no more entries, end of directory
    "
    ));
    let entries = Chain(vec![entry(1, b"a"), entry(2, b"bc")]);
    let ok = nfs3::ReadDirPlusOk { attributes: None, verifier: [0; 8], entries, eof: true };
    same(&bytes, nfs3::ReadDirPlusResult::Ok(ok));

    // The same page, written without a list, ends before the entry that does not fit.
    let mut writer = Writer::new();
    nfs3::Status::Ok.encode(&mut writer);
    None::<nfs3::Attributes>.encode(&mut writer);
    [0u8; 8].encode(&mut writer);
    assert!(writer.chain_item(&entry(1, b"a"), bytes.len() - 8));
    assert!(writer.chain_item(&entry(2, b"bc"), bytes.len() - 8));
    assert!(!writer.chain_item(&entry(3, b"d"), bytes.len() - 8));
    writer.chain_end();
    true.encode(&mut writer);
    assert_eq!(writer.contiguous(), Ok(&bytes[..]));
}

#[test]
fn results_of_version_3() {
    let bytes = hex(&format!(
        "
        0000000d                     ; NFS3ERR_ACCES
        00000001 0000000000000004 00000001 00000002 00000003 00000004
        00000001 {ATTRIBUTES}
        00000000 00000000
    "
    ));
    let from = nfs3::WccData {
        before: Some(nfs3::WccAttributes {
            size: 4,
            modify_time: nfs3::Time { seconds: 1, nanoseconds: 2 },
            change_time: nfs3::Time { seconds: 3, nanoseconds: 4 },
        }),
        after: Some(attributes()),
    };
    let both = nfs3::RenameOk { from, to: nfs3::WccData::default() };
    same(&bytes, nfs3::RenameResult::Fail(nfs3::Status::Acces, both));
    same(&hex("00002718"), nfs3::GetAttrResult::Fail(nfs3::Status::Jukebox));
    let unknown = decode_whole::<nfs3::GetAttrResult>(&[0, 0, 0, 3]);
    assert_eq!(unknown, Err(XdrError::Value { kind: "Status", value: 3 }));
    let bytes = hex("
        00000000 00000000
        00100000 00100000 00001000 00100000 00100000 00001000 00020000
        7fffffffffffffff 00000000 00000001 0000001b
    ");
    let info = nfs3::FsInfoOk {
        attributes: None,
        read_max: 1 << 20,
        read_preferred: 1 << 20,
        read_multiple: 4096,
        write_max: 1 << 20,
        write_preferred: 1 << 20,
        write_multiple: 4096,
        directory_preferred: 1 << 17,
        file_bytes_max: i64::MAX as u64,
        time_delta: nfs3::Time { seconds: 0, nanoseconds: 1 },
        properties: nfs3::FsProperties::LINK
            | nfs3::FsProperties::SYMLINK
            | nfs3::FsProperties::HOMOGENEOUS
            | nfs3::FsProperties::CANSETTIME,
    };
    same(&bytes, nfs3::FsInfoResult::Ok(info));
}

#[test]
fn programs_beside_nfs() {
    let bytes = hex("00000000 00000004 0a0b0c0d 00000002 00000001 0005f373");
    let flavors = Inline::new(&[flavor::SYS, flavor::KRB5]).unwrap();
    let mounted = mount3::Mounted { handle: Opaque(&[10, 11, 12, 13]), flavors };
    same(&bytes, mount3::MountResult::Ok(mounted));
    same(&hex("0000000d"), mount3::MountResult::Fail(mount3::MountStatus::Acces));
    let bytes = hex("
        00000001 00000002 2f610000          ; '/a'
        00000001 00000003 2a2e6f00          ; for '*.o'
        00000000
        00000001 00000001 2f000000 00000000 ; '/', for all
        00000000
    ");
    let exports: Chain<mount3::Export<'_>, { mount3::LIST_COUNT_MAX }> = Chain(vec![
        mount3::Export { directory: Opaque(b"/a"), groups: Chain(vec![Opaque(b"*.o")]) },
        mount3::Export { directory: Opaque(b"/"), groups: Chain(vec![]) },
    ]);
    same(&bytes, exports);

    let bytes = hex("
        00000002 c00c 0000 00000001 00000001 ; cookie, waits, exclusive
        00000003 63617400 00000001 aa000000  ; 'cat', file
        00000001 bb000000 0000002a           ; owner, process 42
        0000000000000010 ffffffffffffffff    ; offset, length
        00000000 00000003                    ; not a reclaim, state 3
    ");
    let lock = nlm::v4::Lock {
        caller: Opaque(b"cat"),
        file: Opaque(&[0xaa]),
        owner: Opaque(&[0xbb]),
        process: 42,
        offset: 16,
        length: u64::MAX,
    };
    let cookie = Opaque(&[0xc0, 0x0c]);
    let arguments = nlm::v4::LockArgs {
        cookie,
        waits: true,
        is_exclusive: true,
        lock,
        reclaims: false,
        state: 3,
    };
    same(&bytes, arguments);
    let bytes = hex("
        00000002 c00c 0000 00000001          ; denied, because of
        00000001 0000002a 00000001 bb000000 00000010 00000020
    ");
    let holder = nlm::v3::Holder {
        is_exclusive: true,
        process: 42,
        owner: Opaque(&[0xbb]),
        offset: 16,
        length: 32,
    };
    let reply = nlm::v3::TestReply::Denied(holder);
    same(&bytes, nlm::v3::TestResult { cookie, reply });
    let reply = nlm::v4::TestReply::Other(nlm::LockStatus::Granted);
    same(&hex("00000002 c00c 0000 00000000"), nlm::v4::TestResult { cookie, reply });
}

#[test]
fn smaller_programs() {
    let mapping = rpcbind::v2::Mapping {
        program: 100_003,
        version: 3,
        protocol: rpcbind::v2::PROTOCOL_TCP,
        port: 2049,
    };
    same(&hex("000186a3 00000003 00000006 00000801"), mapping);
    let registration = rpcbind::Registration {
        program: 100_005,
        version: 3,
        netid: Opaque(b"tcp6"),
        address: Opaque(b"::.8.1"),
        owner: Opaque(b""),
    };
    let bytes = hex("000186a5 00000003 00000004 74637036 00000006 3a3a2e382e31 0000 00000000");
    same(&bytes, registration);
    let notice = nsm::NotifyArgs { host: Opaque(b"cat"), state: 5 };
    same(&hex("00000003 63617400 00000005"), notice);
    same(&hex("00000002"), rquota::QuotaResult::Fail(rquota::QuotaStatus::NoQuota));
    let question =
        rquota::v2::GetQuotaArgs { path: Opaque(b"/a"), kind: rquota::v2::GROUP_QUOTA, id: 7 };
    same(&hex("00000002 2f610000 00000001 00000007"), question);
    let entry = |kind, id, permissions| nfsacl3::AclEntry { kind, id, permissions };
    let bytes = hex("
        00000004 01020304 0000000f      ; file, all parts
        00000002 00000002               ; two entries, and both are here
        00000001 00000000 00000006
        00000002 000003e8 00000004
        00000000 00000000               ; no default list
    ");
    let acl = nfsacl3::Acl {
        mask: nfsacl3::AclMask(15),
        access_count: 2,
        access: List(vec![
            entry(nfsacl3::AclKind::USER_OBJECT, 0, 6),
            entry(nfsacl3::AclKind::USER, 1000, 4),
        ]),
        default_count: 0,
        default: List(vec![]),
    };
    same(&bytes, nfsacl3::SetAclArgs { file: Opaque(&[1, 2, 3, 4]), acl });
}

#[test]
fn values_outside_their_bounds_are_not_encoded() {
    let long = [0; 65];
    let file = nfs3::FileArgs { file: Opaque(&long) };
    assert_eq!(encode_whole(&file), Err(XdrError::TooMany { count: 65, bound: 64 }));
    assert!(Inline::<u32, 16>::new(&[0; 17]).is_none());
    let ok = nfs3::GetAttrResult::Fail(nfs3::Status::Ok);
    assert!(encode_whole(&ok).is_err());
    let call = Call {
        xid: 1,
        program: 2,
        version: 3,
        procedure: 4,
        credential: Auth { flavor: 1, body: Opaque(&[0; 401]) },
        verifier: Auth::NONE,
        header: &[],
    };
    let mut writer = Writer::new();
    encode_call(&call, &mut writer);
    assert_eq!(writer.fault(), Some(XdrError::TooMany { count: 401, bound: 400 }));
}
