//! The tables of NFSv4 are consistent, and every row has a codec that agrees with it.

use dafs_nfs_wire::fuzzing::nfs4::{arm, encoded_attribute};
use dafs_nfs_wire::nfs4::attributes::{
    ATTRIBUTES, AttributeRow, Use, attribute_row, number, parse_fattr, readable_attributes,
    required_attributes, writable_attributes,
};
use dafs_nfs_wire::nfs4::table::{Effect, Handles, ILLEGAL, Position, Requirement};
use dafs_nfs_wire::nfs4::{
    Answer, AttributeError, Callback, CallbackAnswer, CallbackKind, Operation, OperationKind,
    Status,
};
use dafs_nfs_wire::xdr::{Xdr, decode_whole, encode_whole};

/// The number of generated encodings of each type.
const SEEDS: u64 = 50;

fn names(belongs: impl Fn(OperationKind) -> bool) -> Vec<&'static str> {
    let kinds = OperationKind::ALL.iter().copied().filter(|&kind| belongs(kind));
    kinds.map(OperationKind::name).collect()
}

#[test]
fn numbers_have_no_gaps_and_come_back() {
    let numbers: Vec<u32> = OperationKind::ALL.iter().map(|kind| kind.number()).collect();
    assert_eq!(numbers, (3..=75).collect::<Vec<_>>());
    let callbacks: Vec<u32> = CallbackKind::ALL.iter().map(|kind| kind.number()).collect();
    assert_eq!(callbacks, (3..=15).collect::<Vec<_>>());
    for kind in OperationKind::ALL {
        assert_eq!(OperationKind::from_number(kind.number()), Some(*kind));
    }
    for number in [0, 1, 2, 76, ILLEGAL] {
        assert_eq!(OperationKind::from_number(number), None);
        assert_eq!(CallbackKind::from_number(number), None);
    }
    assert_eq!(OperationKind::Illegal.number(), 10_044);
}

#[test]
fn rows_say_what_the_specifications_say() {
    let forbidden = names(|kind| kind.row().requirement == Requirement::Forbidden);
    let expected =
        ["OPEN_CONFIRM", "RENEW", "SETCLIENTID", "SETCLIENTID_CONFIRM", "RELEASE_LOCKOWNER"];
    assert_eq!(forbidden, expected);
    assert_eq!(names(|kind| kind.row().minor_version == 0), expected);
    assert_eq!(names(|kind| kind.row().position == Position::First), ["SEQUENCE"]);
    let alone = names(|kind| {
        matches!(kind.row().position, Position::Alone | Position::AfterSequenceOrAlone)
    });
    let expected = [
        "BIND_CONN_TO_SESSION",
        "EXCHANGE_ID",
        "CREATE_SESSION",
        "DESTROY_SESSION",
        "DESTROY_CLIENTID",
    ];
    assert_eq!(alone, expected);
    let both = names(|kind| kind.row().handles == Handles::Both);
    assert_eq!(both, ["LINK", "RENAME", "COPY", "CLONE"]);
    assert_eq!(names(|kind| kind.row().handles == Handles::Saved), ["RESTOREFH"]);
    assert_eq!(names(|kind| kind.row().minor_version == 2).len(), 17);
    let optional = names(|kind| {
        kind.row().requirement == Requirement::Optional && kind.row().minor_version == 1
    });
    let expected = [
        "DELEGPURGE",
        "DELEGRETURN",
        "LINK",
        "OPENATTR",
        "READLINK",
        "GET_DIR_DELEGATION",
        "GETDEVICEINFO",
        "GETDEVICELIST",
        "LAYOUTCOMMIT",
        "LAYOUTGET",
        "LAYOUTRETURN",
        "WANT_DELEGATION",
    ];
    assert_eq!(optional, expected);
    for read_only in [OperationKind::GetAttr, OperationKind::Read, OperationKind::Seek] {
        assert_eq!(read_only.row().effect, Effect::Idempotent);
    }
    for changing in [OperationKind::Rename, OperationKind::Lock, OperationKind::Clone] {
        assert_eq!(changing.row().effect, Effect::Changes);
    }
}

#[test]
fn operations_on_a_file_handle_may_lack_one() {
    // These operations may lack a handle, too, but their lists of errors say nothing of it.
    let exceptions = [OperationKind::GetDeviceList, OperationKind::OpenConfirm];
    for &kind in OperationKind::ALL {
        let row = kind.row();
        let needs_handle = row.handles != Handles::None && !exceptions.contains(&kind);
        assert_eq!(row.errors.contains(Status::NoFileHandle), needs_handle, "{}", row.name);
    }
}

#[test]
fn every_error_of_an_operation_can_be_answered() {
    for &kind in OperationKind::ALL {
        let errors = kind.errors();
        assert!(!errors.contains(Status::Ok), "{}", kind.name());
        for status in errors.iter() {
            let answer = Answer::failed(kind, status);
            assert_eq!((answer.kind(), answer.status()), (kind, status));
            let bytes = encode_whole(&answer).expect("a failure has an encoding");
            assert_eq!(bytes[4..8], status.number().to_be_bytes());
            assert_eq!(decode_whole(&bytes), Ok(answer));
        }
    }
    for &kind in CallbackKind::ALL {
        for status in kind.errors().iter() {
            let answer = CallbackAnswer::failed(kind, status);
            let bytes = encode_whole(&answer).expect("a failure has an encoding");
            assert_eq!(decode_whole(&bytes), Ok(answer));
        }
    }
    let illegal = Answer::failed(OperationKind::Illegal, Status::OpIllegal);
    let bytes = encode_whole(&illegal).expect("a failure has an encoding");
    assert_eq!(bytes, [0, 0, 0x27, 0x3c, 0, 0, 0x27, 0x3c]);
}

#[test]
fn errors_are_those_of_the_specifications() {
    let count = |kind: OperationKind| kind.errors().iter().count();
    // The numbers of entries in the lists of RFC 8881 section 15.2 and RFC 7862 section 11.2.
    let expected = [
        (OperationKind::Access, 17),
        (OperationKind::Close, 20),
        (OperationKind::CreateSession, 18),
        (OperationKind::DestroySession, 16),
        (OperationKind::ExchangeId, 17),
        (OperationKind::GetFh, 5),
        (OperationKind::LayoutGet, 35),
        (OperationKind::Link, 34),
        (OperationKind::Lock, 35),
        (OperationKind::Open, 46),
        (OperationKind::PutFh, 14),
        (OperationKind::Read, 31),
        (OperationKind::Rename, 32),
        (OperationKind::Sequence, 15),
        (OperationKind::SetAttr, 35),
        (OperationKind::Write, 34),
        (OperationKind::Allocate, 32),
        (OperationKind::Clone, 33),
        (OperationKind::Seek, 32),
        (OperationKind::WriteSame, 35),
        // One more than the list has: see the module of errors.
        (OperationKind::Copy, 38),
    ];
    for (kind, entries) in expected {
        assert_eq!(count(kind), entries, "{}", kind.name());
    }
    assert!(OperationKind::Open.errors().contains(Status::ShareDenied));
    assert!(OperationKind::Lock.errors().contains(Status::Deadlock));
    assert!(!OperationKind::Read.errors().contains(Status::NoSpc));
}

#[test]
fn every_call_and_answer_comes_back() {
    for seed in 0..SEEDS {
        for &kind in OperationKind::ALL {
            let mut bytes = Vec::new();
            arm(<Operation<'_> as Xdr<'_>>::SHAPE, kind.number(), seed, &mut bytes);
            let call: Operation<'_> = decode_whole(&bytes).expect("a generated call");
            assert_eq!(call.kind(), kind);
            assert_eq!(encode_whole(&call).as_ref(), Ok(&bytes), "{}", kind.name());
            bytes.clear();
            arm(<Answer<'_> as Xdr<'_>>::SHAPE, kind.number(), seed, &mut bytes);
            let answer: Answer<'_> = decode_whole(&bytes).expect("a generated answer");
            assert_eq!(answer.kind(), kind);
            assert_eq!(bytes[4..8], answer.status().number().to_be_bytes());
            assert_eq!(encode_whole(&answer).as_ref(), Ok(&bytes), "{}", kind.name());
        }
        for &kind in CallbackKind::ALL {
            let mut bytes = Vec::new();
            arm(<Callback<'_> as Xdr<'_>>::SHAPE, kind.number(), seed, &mut bytes);
            let call: Callback<'_> = decode_whole(&bytes).expect("a generated call");
            assert_eq!(call.kind(), kind);
            assert_eq!(encode_whole(&call).as_ref(), Ok(&bytes), "{}", kind.name());
            bytes.clear();
            arm(<CallbackAnswer<'_> as Xdr<'_>>::SHAPE, kind.number(), seed, &mut bytes);
            let answer: CallbackAnswer<'_> = decode_whole(&bytes).expect("a generated answer");
            assert_eq!(answer.kind(), kind);
            assert_eq!(bytes[4..8], answer.status().number().to_be_bytes());
            assert_eq!(encode_whole(&answer).as_ref(), Ok(&bytes), "{}", kind.name());
        }
    }
}

#[test]
fn cut_calls_and_answers_are_refused() {
    for seed in 0..4 {
        for &kind in OperationKind::ALL {
            for (shape, is_call) in
                [(<Operation<'_> as Xdr<'_>>::SHAPE, true), (<Answer<'_> as Xdr<'_>>::SHAPE, false)]
            {
                let mut bytes = Vec::new();
                arm(shape, kind.number(), seed, &mut bytes);
                for cut in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
                    let part = &bytes[..cut];
                    let is_refused = if is_call {
                        decode_whole::<Operation<'_>>(part).is_err()
                    } else {
                        decode_whole::<Answer<'_>>(part).is_err()
                    };
                    assert!(is_refused, "{} of {} bytes cut at {cut}", kind.name(), bytes.len());
                }
            }
        }
    }
}

#[test]
fn attributes_are_in_the_order_of_their_numbers() {
    for (index, row) in ATTRIBUTES.iter().enumerate() {
        assert_eq!(row.number as usize, index);
        assert_eq!(attribute_row(row.number).map(|row| row.name), Some(row.name));
    }
    assert_eq!(ATTRIBUTES.len(), 87);
    assert!(attribute_row(87).is_none());
    assert_eq!(attribute_row(1).map(|row| row.name), Some("type"));
    let required: Vec<u32> = required_attributes().iter().collect();
    assert_eq!(required, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 75]);
    let write_only: Vec<&str> = rows(Use::Write).map(|row| row.name).collect();
    let expected = [
        "time_access_set",
        "time_modify_set",
        "layout_hint",
        "retention_set",
        "retentevt_set",
        "mode_set_masked",
        "mode_umask",
        "time_deleg_access",
        "time_deleg_modify",
    ];
    assert_eq!(write_only, expected);
    let both: Vec<&str> = rows(Use::Both).map(|row| row.name).collect();
    for name in ["size", "acl", "mode", "owner", "owner_group", "sec_label", "time_create"] {
        assert!(both.contains(&name), "{name}");
    }
    assert!(readable_attributes().contains(number::change));
    assert!(!writable_attributes().contains(number::change));
}

fn rows(access: Use) -> impl Iterator<Item = &'static AttributeRow> {
    ATTRIBUTES.iter().filter(move |row| row.access == access)
}

#[test]
fn every_attribute_comes_back() {
    for row in ATTRIBUTES {
        let mut decoded = 0;
        for seed in 0..SEEDS {
            let bytes = encoded_attribute(row, seed);
            let fattr = parse_fattr(&bytes).expect("a mask and values");
            let values = match fattr.decode() {
                // The generator does not know how many nanoseconds a second has.
                Err(AttributeError::Time) => continue,
                values => values.unwrap_or_else(|error| panic!("{}: {error}", row.name)),
            };
            decoded += 1;
            assert_eq!(values.mask().iter().collect::<Vec<_>>(), [row.number]);
            assert_eq!(values.to_bytes().as_ref(), Ok(&bytes), "{}", row.name);
            // Longer values are cut at fewer places.
            for cut in (0..fattr.values.len()).step_by(fattr.values.len() / 50 + 1) {
                let mut short = fattr;
                short.values.0 = &fattr.values[..cut];
                let error = short.decode().expect_err("a cut value");
                assert_eq!(error.status(), Status::BadXdr, "{} cut at {cut}", row.name);
            }
        }
        assert!(decoded > 0, "{} was never decoded", row.name);
    }
}
