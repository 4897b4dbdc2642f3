//! Each row of the error tables: the violation, the code, the quoted headers, and that the stream
//! then stays closed.

use dafs_iwarp::{
    Established, Event, HEADER_BYTES_MAX, Outbound, PlacementContext, PlacementError, ReadRequest,
    Receiver, Refusal, Role, Stag, Step, TERMINATE_BYTES_MAX, TERMINATE_FPDU_BYTES_MAX,
    TRAILER_BYTES_MAX, TaggedOffset, TerminateCode, Transmitter, Violation, fpdu_length,
};

const IRD: u16 = 1;
const ORD: u16 = 1;

fn established(crc: bool) -> Established {
    Established::client_server(Role::Initiator, crc, IRD, ORD)
}

fn receiver() -> Receiver {
    Receiver::new(&established(false))
}

/// Returns a frame without CRC around a ULPDU.
fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let length = ulpdu.len() as u16;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(fpdu_length(length), 0);
    bytes
}

fn tagged(control: [u8; 2], stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    [&control[..], &stag.to_be_bytes(), &offset.to_be_bytes(), payload].concat()
}

fn untagged(control: [u8; 2], fields: [u32; 4], payload: &[u8]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()).collect();
    [&control[..], &fields, payload].concat()
}

fn read_ulpdu(sequence: u32, request: &ReadRequest) -> Vec<u8> {
    untagged([0x41, 0x41], [0, 1, sequence, 0], &request.encode())
}

/// Returns the bytes of the receiver's Terminate. Checks that it is returned only once and that
/// nothing is accepted after it.
fn last_words(receiver: &mut Receiver, violation: Violation) -> Vec<u8> {
    assert_eq!(receiver.violation(), Some(violation));
    assert_eq!(receiver.next_step(), Step::Closed);
    let terminate = receiver.take_terminate().expect("one Terminate");
    assert_eq!(terminate.code, violation.terminate_code());
    assert_eq!(receiver.take_terminate(), None);
    let send = frame(&untagged([0x41, 0x43], [0, 0, 1, 0], b""));
    assert_eq!(receiver.on_fpdu(&send), Err(violation));
    assert_eq!(receiver.check_header(&send[..20]), Err(violation));
    assert_eq!(receiver.open_read(ReadRequest::default()), Err(Refusal::Closed));
    assert_eq!(receiver.take_terminate(), None);
    let mut bytes = [0; TERMINATE_BYTES_MAX];
    let length = terminate.encode(&mut bytes);
    bytes[..length].to_vec()
}

/// Feeds the ULPDUs. The last one must be refused, and the Terminate must quote its DDP header.
fn breach(mut receiver: Receiver, ulpdus: &[Vec<u8>], expected: Violation, control: [u8; 2]) {
    let (last, before) = ulpdus.split_last().unwrap();
    for ulpdu in before {
        receiver.on_fpdu(&frame(ulpdu)).expect("legal").expect("whole");
    }
    assert_eq!(receiver.on_fpdu(&frame(last)), Err(expected));
    let bytes = last_words(&mut receiver, expected);
    let header_length = if last[0] & 0x80 != 0 { 14 } else { 18 };
    let mut words = vec![control[0], control[1], 0xc0, 0];
    words.extend_from_slice(&(last.len() as u16).to_be_bytes());
    words.extend_from_slice(&last[..header_length]);
    assert_eq!(bytes, words, "{expected:?}");
}

fn with_open_read() -> Receiver {
    let mut receiver = receiver();
    let request = ReadRequest {
        sink_stag: Stag(5),
        sink_offset: TaggedOffset(100),
        length: 8,
        ..ReadRequest::default()
    };
    assert_eq!(receiver.open_read(request).unwrap().request(), &request);
    receiver
}

#[test]
fn mpa_errors_quote_nothing() {
    let mut damaged = frame(&untagged([0x41, 0x43], [0, 0, 1, 0], b"x"));
    damaged[21] ^= 1;
    let mut with_crc = Receiver::new(&established(true));
    assert_eq!(with_crc.on_fpdu(&damaged), Err(Violation::CrcMismatch));
    assert_eq!(last_words(&mut with_crc, Violation::CrcMismatch), [0x20, 2, 0, 0]);
    for bytes in [[0, 13, 0x80], [0, 17, 0]] {
        let mut receiver = receiver();
        assert_eq!(receiver.on_fpdu(&bytes), Err(Violation::FpduTooShort));
        assert_eq!(last_words(&mut receiver, Violation::FpduTooShort), [0x20, 3, 0, 0]);
    }
}

#[test]
fn crc_is_checked_in_the_trailer_too() {
    let mut receiver = Receiver::new(&established(true));
    let bytes = frame(&untagged([0x41, 0x43], [0, 0, 1, 0], b"x"));
    receiver.check_header(&bytes[..20]).unwrap();
    receiver.on_payload(b"x").unwrap();
    assert_eq!(receiver.on_trailer(&bytes[21..]), Err(Violation::CrcMismatch));
    assert_eq!(last_words(&mut receiver, Violation::CrcMismatch), [0x20, 2, 0, 0]);
}

#[test]
fn tagged_errors() {
    let write = |stag, offset, last: bool| {
        tagged([if last { 0xc1 } else { 0x81 }, 0x40], stag, offset, b"12345678")
    };
    let version = tagged([0xc0, 0x40], 1, 0, b"");
    breach(receiver(), &[version], Violation::TaggedDdpVersion, [0x11, 4]);
    let wrap = write(1, u64::MAX - 7, true);
    breach(receiver(), &[wrap], Violation::TaggedWrap, [0x11, 3]);
    let other_stag = [write(1, 0, false), write(2, 8, true)];
    breach(receiver(), &other_stag, Violation::TaggedStag, [0x11, 0]);
    let gap = [write(1, 0, false), write(1, 16, true)];
    breach(receiver(), &gap, Violation::TaggedRange, [0x11, 1]);
    let overlap = [write(1, 0, false), write(1, 0, true)];
    breach(receiver(), &overlap, Violation::TaggedRange, [0x11, 1]);
}

#[test]
fn read_response_errors() {
    let response = |stag, offset, payload: &[u8]| tagged([0xc1, 0x42], stag, offset, payload);
    let unasked = response(5, 100, b"12345678");
    breach(receiver(), &[unasked], Violation::Opcode, [0x02, 6]);
    let stag = response(6, 100, b"12345678");
    breach(with_open_read(), &[stag], Violation::TaggedStag, [0x11, 0]);
    let offset = response(5, 101, b"12345678");
    breach(with_open_read(), &[offset], Violation::TaggedRange, [0x11, 1]);
    let long = response(5, 100, b"123456789");
    breach(with_open_read(), &[long], Violation::TaggedRange, [0x11, 1]);
    let short = response(5, 100, b"1234567");
    breach(with_open_read(), &[short], Violation::TaggedRange, [0x11, 1]);
    let empty = response(5, 100, b"");
    breach(with_open_read(), &[empty], Violation::TaggedRange, [0x11, 1]);
    let twice = response(5, 100, b"12345678");
    breach(with_open_read(), &[twice.clone(), twice], Violation::Opcode, [0x02, 6]);
}

#[test]
fn untagged_errors() {
    let send = |fields| untagged([0x41, 0x43], fields, b"1234");
    let version = untagged([0x42, 0x43], [0, 0, 1, 0], b"");
    breach(receiver(), &[version], Violation::UntaggedDdpVersion, [0x12, 6]);
    breach(receiver(), &[send([0, 3, 1, 0])], Violation::QueueNumber, [0x12, 1]);
    breach(receiver(), &[send([0, 0, 2, 0])], Violation::MessageSequence, [0x12, 3]);
    breach(receiver(), &[send([0, 0, 0, 0])], Violation::MessageSequence, [0x12, 3]);
    let twice = [send([0, 0, 1, 0]), send([0, 0, 1, 0])];
    breach(receiver(), &twice, Violation::MessageSequence, [0x12, 3]);
    breach(receiver(), &[send([0, 0, 1, 4])], Violation::MessageOffset, [0x12, 4]);
    let not_last = untagged([0x01, 0x43], [0, 0, 1, 0], b"1234");
    let gap = [not_last.clone(), send([0, 0, 1, 8])];
    breach(receiver(), &gap, Violation::MessageOffset, [0x12, 4]);
    let interleaved = [not_last, send([0, 0, 2, 0])];
    breach(receiver(), &interleaved, Violation::MessageSequence, [0x12, 3]);
    let long_request = untagged([0x41, 0x41], [0, 1, 1, 0], &[0; 29]);
    breach(receiver(), &[long_request], Violation::MessageTooLong, [0x12, 5]);
    let terminate = untagged([0x41, 0x47], [0, 2, 2, 0], &[0; 4]);
    breach(receiver(), &[terminate], Violation::MessageSequence, [0x12, 3]);
}

#[test]
fn operation_errors() {
    let version = untagged([0x41, 0x83], [0, 0, 1, 0], b"");
    breach(receiver(), &[version], Violation::RdmapVersion, [0x02, 5]);
    let unknown = untagged([0x41, 0x48], [0, 0, 1, 0], b"");
    breach(receiver(), &[unknown], Violation::Opcode, [0x02, 6]);
    let untagged_write = untagged([0x41, 0x40], [0, 0, 1, 0], b"");
    breach(receiver(), &[untagged_write], Violation::Opcode, [0x02, 6]);
    let tagged_send = tagged([0xc1, 0x43], 1, 0, b"");
    breach(receiver(), &[tagged_send], Violation::Opcode, [0x02, 6]);
    let wrong_queue = untagged([0x41, 0x41], [0, 0, 1, 0], &[0; 28]);
    breach(receiver(), &[wrong_queue], Violation::Opcode, [0x02, 6]);
    let changed = [
        untagged([0x01, 0x43], [0, 0, 1, 0], b"1234"),
        untagged([0x41, 0x45], [0, 0, 1, 4], b"1234"),
    ];
    breach(receiver(), &changed, Violation::Opcode, [0x02, 6]);
    let request = ReadRequest::default();
    let deep = [read_ulpdu(1, &request), read_ulpdu(2, &request)];
    breach(receiver(), &deep, Violation::ReadDepth, [0x02, 7]);
    let short = untagged([0x41, 0x41], [0, 1, 1, 0], &[0; 27]);
    breach(receiver(), &[short], Violation::ReadRequestForm, [0x02, 7]);
    let split = untagged([0x01, 0x41], [0, 1, 1, 0], &[0; 28]);
    breach(receiver(), &[split], Violation::ReadRequestForm, [0x02, 7]);
}

#[test]
fn answered_reads_make_room() {
    let mut receiver = receiver();
    let request = ReadRequest::default();
    for sequence in 1..50 {
        let bytes = frame(&read_ulpdu(sequence, &request));
        let fpdu = receiver.on_fpdu(&bytes).unwrap().unwrap();
        assert!(matches!(fpdu.event, Event::ReadRequested { .. }));
        receiver.on_read_answered().unwrap();
    }
    assert_eq!(receiver.on_read_answered(), Err(Refusal::OutOfOrder));
}

#[test]
fn protection_errors_quote_the_read_request() {
    let rows = [
        (PlacementError::InvalidStag, 0),
        (PlacementError::Bounds, 1),
        (PlacementError::TooLong, 1),
        (PlacementError::Access, 2),
        (PlacementError::StagNotOfStream, 3),
        (PlacementError::ToWrap, 4),
        (PlacementError::CannotInvalidate, 9),
    ];
    let request = ReadRequest { length: 7, source_stag: Stag(0xabcd), ..ReadRequest::default() };
    let ulpdu = read_ulpdu(1, &request);
    for (error, code) in rows {
        let violation = Violation::Placement(error, PlacementContext::ReadRequest);
        let mut words = vec![0x01, code, 0xe0, 0, 0, 46];
        words.extend_from_slice(&ulpdu);
        let mut at_once = receiver();
        at_once.on_fpdu(&frame(&ulpdu)).unwrap();
        assert_eq!(at_once.refuse(error), violation);
        assert_eq!(last_words(&mut at_once, violation), words);
        // The same, after other frames have come in between.
        let mut later = receiver();
        let fpdu = later.on_fpdu(&frame(&ulpdu)).unwrap().unwrap().event;
        let Event::ReadRequested { sequence, request } = fpdu else { panic!("{fpdu:?}") };
        later.on_fpdu(&frame(&untagged([0x41, 0x43], [0, 0, 1, 0], b"x"))).unwrap();
        assert_eq!(later.refuse_read(sequence, &request, error), violation);
        assert_eq!(last_words(&mut later, violation), words);
    }
}

#[test]
fn wrapping_read_request_is_a_protection_error() {
    let request =
        ReadRequest { length: 2, source_offset: TaggedOffset(u64::MAX), ..ReadRequest::default() };
    let ulpdu = read_ulpdu(1, &request);
    let mut receiver = receiver();
    assert_eq!(receiver.on_fpdu(&frame(&ulpdu)), Err(Violation::ReadRequestWrap));
    let mut words = vec![0x01, 4, 0xe0, 0, 0, 46];
    words.extend_from_slice(&ulpdu);
    assert_eq!(last_words(&mut receiver, Violation::ReadRequestWrap), words);
}

/// Refuses to place `ulpdu`, before and after the frame is complete.
fn refusal(ulpdu: &[u8], error: PlacementError, context: PlacementContext, control: [u8; 2]) {
    let violation = Violation::Placement(error, context);
    let header_length = if ulpdu[0] & 0x80 != 0 { 14 } else { 18 };
    let mut words = vec![control[0], control[1], 0xc0, 0];
    words.extend_from_slice(&(ulpdu.len() as u16).to_be_bytes());
    words.extend_from_slice(&ulpdu[..header_length]);
    let bytes = frame(ulpdu);
    let mut whole = receiver();
    whole.on_fpdu(&bytes).unwrap();
    assert_eq!(whole.refuse(error), violation);
    assert_eq!(last_words(&mut whole, violation), words, "{error:?}");
    let mut at_header = receiver();
    at_header.on_header(&bytes).unwrap();
    assert_eq!(at_header.refuse(error), violation);
    assert_eq!(last_words(&mut at_header, violation), words, "{error:?}");
}

#[test]
fn refused_writes() {
    let rows = [
        (PlacementError::InvalidStag, 0),
        (PlacementError::Access, 0),
        (PlacementError::NoBuffer, 0),
        (PlacementError::CannotInvalidate, 0),
        (PlacementError::Bounds, 1),
        (PlacementError::TooLong, 1),
        (PlacementError::StagNotOfStream, 2),
        (PlacementError::ToWrap, 3),
    ];
    for (error, code) in rows {
        let write = tagged([0xc1, 0x40], 9, 9, b"1234");
        refusal(&write, error, PlacementContext::Tagged, [0x11, code]);
    }
}

#[test]
fn refused_sends() {
    let rows = [
        (PlacementError::NoBuffer, [0x12, 2]),
        (PlacementError::TooLong, [0x12, 5]),
        (PlacementError::Bounds, [0x12, 5]),
        (PlacementError::ToWrap, [0x12, 5]),
        (PlacementError::InvalidStag, [0x01, 0]),
        (PlacementError::Access, [0x01, 2]),
        (PlacementError::StagNotOfStream, [0x01, 3]),
        (PlacementError::CannotInvalidate, [0x01, 9]),
    ];
    for (error, control) in rows {
        let send = untagged([0x41, 0x46], [77, 0, 1, 0], b"1234");
        refusal(&send, error, PlacementContext::Send, control);
    }
}

#[test]
fn local_catastrophe_quotes_nothing() {
    let mut receiver = receiver();
    assert_eq!(receiver.fail(), Violation::LocalCatastrophe);
    assert_eq!(last_words(&mut receiver, Violation::LocalCatastrophe), [0, 0, 0, 0]);
}

#[test]
fn every_placement_error_has_a_known_code() {
    use PlacementContext as Context;
    use PlacementError as Error;
    for context in [Context::Tagged, Context::Send, Context::ReadRequest] {
        for error in [
            Error::NoBuffer,
            Error::TooLong,
            Error::InvalidStag,
            Error::Bounds,
            Error::Access,
            Error::StagNotOfStream,
            Error::ToWrap,
            Error::CannotInvalidate,
        ] {
            assert!(error.terminate_code(context).is_known());
        }
    }
}

#[test]
fn start_up_codes() {
    let code = |violation: Violation| violation.terminate_code();
    assert_eq!(code(Violation::FrameKey), TerminateCode::MPA_START_UP_FRAME);
    assert_eq!(code(Violation::MarkersRequired), TerminateCode::MPA_START_UP_FRAME);
    assert_eq!(code(Violation::InsufficientReadDepth).code, 6);
    assert_eq!(code(Violation::NoMatchingReadyToReceive).code, 7);
}

#[test]
fn terminate_is_sent_once_and_never_answered() {
    let mut broken = receiver();
    broken.refuse(PlacementError::NoBuffer);
    let terminate = broken.take_terminate().unwrap();
    let mut transmitter = Transmitter::new(&established(true), 1440);
    let mut bytes = [0; TERMINATE_FPDU_BYTES_MAX];
    let length = transmitter.terminate(&terminate, &mut bytes).unwrap();
    assert_eq!(transmitter.terminate(&terminate, &mut bytes), Err(Refusal::Closed));
    let send = Outbound::Send { solicited: false, invalidate: None };
    assert_eq!(transmitter.begin(send, 0).err(), Some(Refusal::Closed));

    let mut peer = Receiver::new(&established(true));
    let fpdu = peer.on_fpdu(&bytes[..length]).unwrap().unwrap();
    assert_eq!(fpdu.event, Event::Terminated);
    assert_eq!(peer.received_terminate(), Some(&terminate));
    assert_eq!(peer.next_step(), Step::Closed);
    assert_eq!(peer.violation(), None);
    assert_eq!(peer.take_terminate(), None);
    assert!(peer.on_fpdu(&bytes[..length]).is_err());
    assert_eq!(peer.take_terminate(), None);
}

#[test]
fn unreadable_terminate_closes_all_the_same() {
    let mut receiver = receiver();
    let bytes = frame(&untagged([0x41, 0x47], [0, 2, 1, 0], &[0x20]));
    assert_eq!(receiver.on_fpdu(&bytes).unwrap().unwrap().event, Event::Terminated);
    assert_eq!(receiver.received_terminate(), None);
    assert_eq!(receiver.take_terminate(), None);
}

#[test]
fn empty_tagged_segments_are_not_looked_at() {
    let mut receiver = with_open_read();
    let mut feed = |ulpdu: Vec<u8>| receiver.on_fpdu(&frame(&ulpdu)).unwrap().unwrap().event;
    assert_eq!(feed(tagged([0xc1, 0x40], 0xffff, u64::MAX, b"")), Event::Written);
    assert_eq!(feed(tagged([0x81, 0x40], 1, 0, b"12")), Event::Continued);
    assert_eq!(feed(tagged([0x81, 0x40], 9, 9, b"")), Event::Continued);
    assert_eq!(feed(tagged([0xc1, 0x40], 1, 2, b"34")), Event::Written);
    assert_eq!(feed(tagged([0x81, 0x42], 9, 9, b"")), Event::Continued);
    let done = feed(tagged([0xc1, 0x42], 5, 100, b"12345678"));
    assert!(matches!(done, Event::ReadCompleted { .. }));
}

#[test]
fn kinds_may_interleave_with_each_other() {
    let mut receiver = with_open_read();
    let mut feed = |ulpdu: Vec<u8>| receiver.on_fpdu(&frame(&ulpdu)).unwrap().unwrap().event;
    feed(untagged([0x01, 0x43], [0, 0, 1, 0], b"12"));
    feed(tagged([0x81, 0x40], 1, 0, b"12"));
    feed(tagged([0x81, 0x42], 5, 100, b"1234"));
    let sent = feed(untagged([0x41, 0x43], [0, 0, 1, 2], b"345"));
    assert!(matches!(sent, Event::Received { length: 5, .. }));
    assert_eq!(feed(tagged([0xc1, 0x40], 1, 2, b"34")), Event::Written);
    let done = feed(tagged([0xc1, 0x42], 5, 104, b"5678"));
    assert!(matches!(done, Event::ReadCompleted { .. }));
}

#[test]
fn wrong_calls_are_refused() {
    let mut receiver = receiver();
    assert_eq!(receiver.on_payload(b"x"), Err(Refusal::OutOfOrder));
    assert_eq!(receiver.on_placed(1), Err(Refusal::OutOfOrder));
    let bytes = frame(&read_ulpdu(1, &ReadRequest::default()));
    receiver.on_header(&bytes).unwrap();
    assert_eq!(receiver.on_placed(28), Err(Refusal::OutOfOrder));
    assert_eq!(receiver.on_payload(&[0; 29]), Err(Refusal::OutOfOrder));
    assert_eq!(receiver.on_trailer(&[0; 4]), Err(Violation::LocalCatastrophe));
    assert_eq!(last_words(&mut receiver, Violation::LocalCatastrophe), [0; 4]);
}

#[test]
fn responder_waits_for_the_initiator() {
    let responder = Established::client_server(Role::Responder, false, IRD, ORD);
    let mut transmitter = Transmitter::new(&responder, 1440);
    let send = Outbound::Send { solicited: false, invalidate: None };
    assert_eq!(transmitter.begin(send, 0).err(), Some(Refusal::PeerSilent));
    transmitter.on_peer_spoke();
    let mut header = [0; HEADER_BYTES_MAX];
    let mut segments = transmitter.begin(send, 0).unwrap();
    let segment = segments.next_segment(&mut header).unwrap();
    assert_eq!((segment.length, segment.last, segment.trailer_length), (0, true, 4));
    assert_eq!(segments.next_segment(&mut header), None);
    // The refused call has not consumed a sequence number.
    assert_eq!(header[12..16], [0, 0, 0, 1]);
    let mut trailer = [0xff; TRAILER_BYTES_MAX];
    assert_eq!(segment.finish(segment.checksum(&header), &mut trailer), 4);
}
