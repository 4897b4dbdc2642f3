//! Every request and reply survives encoding, in both byte orders. Truncated or damaged messages
//! are refused or decode to something else, but never panic.

use crate::material::{Scratch, material, prepare};
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::*;
use proptest::prelude::*;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

fn request_header(seed: u64) -> RequestHeader {
    let mut header = RequestHeader::new(StreamId(seed as u16), SequenceNumber(7));
    header.desired_credits = (seed >> 16) as u16;
    header.chain_flags = ChainFlags((seed >> 32) as u16 & 0x1f);
    header.analyzer = seed;
    header.credentials = dafs_types::CredHandle(seed as u32);
    header
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn requests_come_back(material in material(), seed in any::<u64>()) {
        for order in ORDERS {
            let mut scratch = Scratch::default();
            let prepared = prepare(&material, order, &mut scratch);
            for request in prepared.requests() {
                let mut buffer = vec![0xa5; 16_384];
                let header = request_header(seed);
                let length = encode_request(order, &header, &request, &mut buffer).unwrap();
                let message = &buffer[..length];
                let (read, again) = decode_request(order, message).unwrap();
                prop_assert_eq!(again, request);
                prop_assert_eq!(read.length as usize, length);
                let procedure = request.procedure();
                let expected =
                    RequestHeader { procedure: procedure.number(), length: read.length, ..header };
                prop_assert_eq!(read, expected);
                let bound = HEADER_BYTES + procedure.request_fixed_bytes();
                prop_assert!(length >= bound);
                // A buffer one byte too short is refused, and nothing after it is touched.
                let short = encode_request(order, &header, &request, &mut buffer[..length - 1]);
                prop_assert_eq!(short, Err(EncodeError::Space));
                prop_assert!(buffer[length..].iter().all(|byte| *byte == 0xa5));
            }
        }
    }

    #[test]
    fn responses_come_back(material in material(), seed in any::<u64>()) {
        for order in ORDERS {
            let mut scratch = Scratch::default();
            let prepared = prepare(&material, order, &mut scratch);
            for (status, procedure, response) in prepared.responses() {
                let mut buffer = vec![0xa5; 16_384];
                let header = ResponseHeader::answering(&request_header(seed), status, 3);
                let length = encode_response(order, &header, &response, &mut buffer).unwrap();
                if procedure == Procedure::FetchResponse {
                    continue;
                }
                let (read, again) = decode_response(order, procedure, &buffer[..length]).unwrap();
                prop_assert_eq!(again, response);
                prop_assert_eq!(read, ResponseHeader { length: read.length, ..header });
                prop_assert!(length <= procedure.reply_bytes_max());
            }
        }
    }

    #[test]
    fn cut_messages_are_refused(material in material()) {
        for order in ORDERS {
            let mut scratch = Scratch::default();
            let prepared = prepare(&material, order, &mut scratch);
            for request in prepared.requests() {
                let mut buffer = vec![0; 16_384];
                let header = request_header(1);
                let length = encode_request(order, &header, &request, &mut buffer).unwrap();
                for cut in 0..length {
                    prop_assert!(decode_request(order, &buffer[..cut]).is_err());
                    let mut shorter = buffer[..cut].to_vec();
                    relabel(order, &mut shorter, 36);
                    let refused = decode_request(order, &shorter);
                    // The padding of a write is agreed in advance: only a receiver that knows it
                    // can tell that the message is now padded less.
                    if let (true, Ok((_, other))) = (is_padded(&request), &refused) {
                        prop_assert!(is_padded(other) && *other != request);
                        continue;
                    }
                    prop_assert!(refused.is_err(), "{:?} cut to {}", request, cut);
                    prop_assert_eq!(refused.unwrap_err().header.is_some(), cut >= HEADER_BYTES);
                }
            }
            for (status, procedure, response) in prepared.responses() {
                let mut buffer = vec![0; 16_384];
                let header = ResponseHeader::answering(&request_header(1), status, 3);
                let length = encode_response(order, &header, &response, &mut buffer).unwrap();
                for cut in 0..length {
                    let mut shorter = buffer[..cut].to_vec();
                    relabel(order, &mut shorter, 32);
                    let _ = decode_response(order, procedure, &shorter);
                }
            }
        }
    }

    #[test]
    fn flipped_bits_do_not_panic(material in material(), place in any::<u32>(), bit in 0..8u8) {
        for order in ORDERS {
            let mut scratch = Scratch::default();
            let prepared = prepare(&material, order, &mut scratch);
            for request in prepared.requests() {
                let mut buffer = vec![0; 16_384];
                let header = request_header(1);
                let length = encode_request(order, &header, &request, &mut buffer).unwrap();
                buffer[place as usize % length] ^= 1 << bit;
                fuzzing::request(&buffer[..length]);
            }
            for (status, procedure, response) in prepared.responses() {
                let mut buffer = vec![0; 16_384];
                let header = ResponseHeader::answering(&request_header(1), status, 3);
                let length =
                    1 + encode_response(order, &header, &response, &mut buffer[1..]).unwrap();
                buffer[0] = procedure.index() as u8;
                buffer[1 + place as usize % (length - 1)] ^= 1 << bit;
                fuzzing::response(&buffer[..length]);
            }
        }
    }
}

fn is_padded(request: &Request<'_>) -> bool {
    use dafs_wire::messages::Placement;
    match request {
        Request::WriteInline(write) => write.placement != Placement::Packed,
        Request::AppendInline(append) => append.placement != Placement::Packed,
        _ => false,
    }
}

/// Sets the length field at `at` to the actual length.
fn relabel(order: ByteOrder, message: &mut [u8], at: usize) {
    let length = message.len() as u32;
    if let Some(field) = message.get_mut(at..at + 4) {
        field.copy_from_slice(&match order {
            ByteOrder::Little => length.to_le_bytes(),
            ByteOrder::Big => length.to_be_bytes(),
        });
    }
}

#[test]
fn data_may_follow_what_is_encoded() {
    use dafs_wire::messages::{InlineData, ReadInlineResult};
    let data = b"0123456789";
    let header = ResponseHeader::answering(&request_header(1), Status::Ok, 1);
    let answer = |data| Response::ReadInline(ReadInlineResult { end_of_file: true, data });
    let mut whole = [0; 128];
    let mut prefix = [0; 48];
    let here = answer(InlineData::Here(data));
    let follows = answer(InlineData::Follows { length: 10 });
    let whole_length = encode_response(ByteOrder::NATIVE, &header, &here, &mut whole).unwrap();
    let length = encode_response(ByteOrder::NATIVE, &header, &follows, &mut prefix).unwrap();
    assert_eq!((length, whole_length), (48, 58));
    assert_eq!(whole[..whole_length], [&prefix[..], &data[..]].concat());
    seal(&mut prefix, &[&data[..4], &data[4..]]);
    assert!(is_intact(&[&prefix[..], &data[..]].concat()));
}

#[test]
fn a_read_of_one_buffer_is_small() {
    use dafs_wire::messages::ReadDirect;
    let buffers = [DirectBuffer::default()];
    let read = Request::ReadDirect(ReadDirect {
        file: dafs_types::FileHandle::NULL,
        state: dafs_types::StateId(1),
        offset: 2,
        length: 3,
        hint: dafs_types::CacheHint(0),
        buffers: (&buffers).into(),
    });
    let mut buffer = [0; 256];
    let length = encode_request(ByteOrder::NATIVE, &request_header(0), &read, &mut buffer);
    assert_eq!(length, Ok(160));
    assert_eq!(Procedure::ReadDirect.reply_bytes_max(), 56);
}

#[test]
fn another_version_is_refused_with_its_header() {
    let mut buffer = [0; 64];
    let mut header = request_header(5);
    header.version = 9;
    let null = Request::Null(messages::Empty);
    let length = encode_request(ByteOrder::Big, &header, &null, &mut buffer).unwrap();
    let refused = decode_request(ByteOrder::Big, &buffer[..length]).unwrap_err();
    assert_eq!(refused.status(), Status::IllegalProt);
    assert_eq!(refused.header.map(|header| header.stream), Some(StreamId(5)));
}

/// A refusal may have results: a token tells an honest client why (`docs/spec/gaps.md`).
#[test]
fn a_refused_token_may_be_answered_by_another() {
    use dafs_wire::messages::{AuthResult, ClientAuthResult};
    let token = b"your clock is wrong".as_slice();
    let authentication = AuthResult::Gss { major: 0xd_0000, minor: 37, token };
    let response = Response::ClientAuth(ClientAuthResult { authentication, trusted: false });
    let header = ResponseHeader::answering(&request_header(1), Status::NotAuthorized, 1);
    let mut buffer = [0; 256];
    for order in ORDERS {
        for (sent, procedure) in
            [(&response, Procedure::ClientAuth), (&Response::Failed, Procedure::ClientAuth)]
        {
            let length = encode_response(order, &header, sent, &mut buffer).unwrap();
            let (_, read) = decode_response(order, procedure, &buffer[..length]).unwrap();
            assert_eq!(read, *sent);
        }
        // After any other failure nothing is decoded after the header.
        let header = ResponseHeader { status: Status::Inval, ..header };
        assert!(encode_response(order, &header, &response, &mut buffer).is_err());
    }
}

/// A token of the maximum length, in a request that was negotiated to be that long.
#[test]
fn a_long_token_fits_the_longest_request() {
    use dafs_wire::limits::TOKEN_BYTES_MAX;
    use dafs_wire::messages::{AuthRequest, ClientAuth, GssProcedure, GssService};
    let (procedure, service) = (GssProcedure::Init, GssService::Authentication);
    for (length, fits) in [(TOKEN_BYTES_MAX, true), (TOKEN_BYTES_MAX + 1, false)] {
        let token = vec![7; length];
        let authentication = AuthRequest::Gss { procedure, service, token: &token };
        let request = Request::ClientAuth(ClientAuth { authentication });
        let mut buffer = vec![0; dafs_types::limits::REQUEST_BYTES_MAX];
        let encoded = encode_request(ByteOrder::Big, &request_header(1), &request, &mut buffer);
        assert_eq!(encoded.is_ok(), fits);
        if let Ok(length) = encoded {
            let (_, read) = decode_request(ByteOrder::Big, &buffer[..length]).unwrap();
            assert_eq!(read, request);
        }
    }
}

#[test]
fn a_full_listing_ends_where_it_must() {
    use dafs_types::{FileAttributes, ReaddirCookie};
    for room in 0..700 {
        let mut buffer = vec![0x5a; room];
        let wanted = attributes::file::bits::OBJECT_SIZE;
        let Ok(mut writer) = ReaddirWriter::new(ByteOrder::Big, wanted, &mut buffer) else {
            assert!(room < 8);
            continue;
        };
        let size = FileAttributes { size: Some(5), ..FileAttributes::default() };
        let names: Vec<String> = (0..).map(|index| format!("entry-{index}")).take(20).collect();
        let mut taken = 0;
        for (index, name) in names.iter().enumerate() {
            let before = writer.byte_count();
            if !writer.push(ReaddirCookie(index as u64 + 3), name, &size).unwrap() {
                assert_eq!(writer.byte_count(), before);
                break;
            }
            taken += 1;
        }
        let expected = writer.byte_count();
        let entries = writer.finish();
        assert_eq!(entries.bytes().len(), expected);
        let again = DirectoryEntries::parse(ByteOrder::Big, entries.bytes()).unwrap();
        assert_eq!(again.len(), taken);
        for (entry, name) in again.iter().zip(&names) {
            let entry = entry.unwrap();
            assert_eq!((entry.name, entry.attributes.file()), (name.as_str(), size.clone()));
        }
        assert!(buffer[expected..].len() < room);
    }
}

#[test]
fn lists_beyond_their_bounds_are_refused_on_both_sides() {
    use dafs_types::{Ace, AceFlags, AceKind, AceRights, SetAttributes, limits};
    let entry = |who: usize| Ace {
        kind: AceKind::Allow,
        flags: AceFlags::default(),
        rights: AceRights::ALL,
        who: "w".repeat(who),
    };
    let set = |acl: Vec<Ace>| SetAttributes { acl: Some(acl), ..SetAttributes::default() };
    let most = vec![entry(limits::ACL_WHO_BYTES_MAX); limits::ACL_ENTRIES_MAX];
    let mut buffer = vec![0; limits::REQUEST_BYTES_MAX];
    for order in ORDERS {
        let longest = FileAttributeBlock::encode_set(order, &set(most.clone()), &mut buffer);
        let longest = longest.unwrap();
        assert!(longest.bytes().len() <= dafs_wire::limits::ACL_BYTES_MAX + 24);
        assert_eq!(longest.set().unwrap().acl.as_ref(), Some(&most));
        // One entry more than the limit, at the position of the count.
        let mut bytes = longest.bytes().to_vec();
        let (list, count) = (24, limits::ACL_ENTRIES_MAX as u32 + 1);
        bytes[list..list + 4].copy_from_slice(&match order {
            ByteOrder::Little => count.to_le_bytes(),
            ByteOrder::Big => count.to_be_bytes(),
        });
        let refused = FileAttributeBlock::parse(order, &bytes).unwrap_err();
        assert_eq!(refused, DecodeError::TooMany { what: "access control list" });
        for beyond in [
            vec![entry(1); limits::ACL_ENTRIES_MAX + 1],
            vec![entry(limits::ACL_WHO_BYTES_MAX + 1)],
        ] {
            let refused = FileAttributeBlock::encode_set(order, &set(beyond), &mut buffer);
            assert!(matches!(refused, Err(EncodeError::TooMany { .. })));
        }
    }
}
