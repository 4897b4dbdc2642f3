//! Start-up: the frames byte by byte, the agreed terms, and frames captured from Linux siw.

use dafs_iwarp::{
    ConnectConfig, DEPTH_NOT_NEGOTIATED, Established, Event, FRAME_BYTES_MAX, Initiator,
    InitiatorOutcome, Outbound, PRIVATE_DATA_OUT_BYTES_MAX, READ_REQUEST_FPDU_BYTES,
    ReadyToReceive, ReadyToReceiveSet, Receiver, Refusal, Responder, Role,
    TERMINATE_FPDU_BYTES_MAX, Target, Terminate, TerminateCode, Transmitter, Violation,
};

const REQUEST_KEY: &[u8] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8] = b"MPA ID Rep Frame";

fn frame(key: &[u8], flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let length = (private_data.len() as u16).to_be_bytes();
    [key, &[flags, revision], &length, private_data].concat()
}

fn config() -> ConnectConfig {
    ConnectConfig::default()
}

/// Returns the default with some changes.
fn with(change: impl FnOnce(&mut ConnectConfig)) -> ConnectConfig {
    let mut config = config();
    change(&mut config);
    config
}

fn plain() -> ConnectConfig {
    with(|c| c.enhanced = false)
}

/// Runs both machines against each other.
fn meet(
    initiator_config: ConnectConfig,
    responder_config: ConnectConfig,
) -> Result<(Established, Established), Violation> {
    let mut initiator = Initiator::new(initiator_config, b"from initiator").unwrap();
    let mut responder = Responder::new();
    let progress = responder.on_bytes(initiator.request()).unwrap();
    assert_eq!(progress.consumed, initiator.request().len());
    assert_eq!(progress.outcome.unwrap().private_data, b"from initiator");
    let (reply, accepted) = responder.accept(&responder_config, b"from responder").unwrap();
    match initiator.on_bytes(&reply)?.outcome.unwrap() {
        InitiatorOutcome::Accepted { established, private_data } => {
            assert_eq!(private_data, b"from responder");
            Ok((established, accepted))
        }
        InitiatorOutcome::Rejected { .. } => panic!("not rejected"),
    }
}

#[test]
fn plain_frames_byte_by_byte() {
    let initiator = Initiator::new(plain(), b"ab").unwrap();
    assert_eq!(initiator.request(), frame(REQUEST_KEY, 0, 1, b"ab"));
    let mut responder = Responder::new();
    let request = responder.on_bytes(initiator.request()).unwrap().outcome.unwrap();
    assert!(!request.enhanced && !request.crc && !request.markers);
    let (reply, established) = responder.accept(&config(), b"xyz").unwrap();
    assert_eq!(reply, frame(REPLY_KEY, 0, 1, b"xyz"));
    assert_eq!(established, Established::client_server(Role::Responder, false, 16, 16));
    assert_eq!(responder.reject(&config(), b"no").unwrap(), frame(REPLY_KEY, 0x20, 1, b"no"));
}

#[test]
fn enhanced_frames_byte_by_byte() {
    let all = ReadyToReceiveSet { write: true, read: true, send: true };
    let wishes = with(|c| {
        c.crc = true;
        c.ird = 5;
        c.ord = 0x123;
        c.ready_to_receive = all;
    });
    let initiator = Initiator::new(wishes, b"p").unwrap();
    let expected = frame(REQUEST_KEY, 0x50, 2, &[0xc0, 5, 0xc1, 0x23, b'p']);
    assert_eq!(initiator.request(), expected);
    let mut responder = Responder::new();
    let request = responder.on_bytes(initiator.request()).unwrap().outcome.unwrap();
    assert_eq!(request.peer_depth, Some((5, 0x123)));
    assert!(request.enhanced && request.crc && request.peer_to_peer.is_some());
    let (reply, established) = responder.accept(&config(), b"q").unwrap();
    assert_eq!(reply, frame(REPLY_KEY, 0x50, 2, &[0x80, 16, 0xc0, 5, b'q']));
    assert_eq!((established.ird, established.ord, established.crc), (16, 5, true));
}

#[test]
fn crc_is_used_if_either_side_wants_it() {
    for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
        for enhanced in [false, true] {
            let initiator = with(|c| {
                c.crc = one;
                c.enhanced = enhanced;
            });
            let responder = with(|c| c.crc = other);
            let (here, there) = meet(initiator, responder).unwrap();
            assert_eq!((here.crc, there.crc), (one || other, one || other));
        }
    }
}

#[test]
fn depths_are_fitted_to_the_smaller() {
    let initiator = with(|c| {
        c.ird = 4;
        c.ord = 100;
    });
    let responder = with(|c| {
        c.ird = 30;
        c.ord = 9;
    });
    let (here, there) = meet(initiator, responder).unwrap();
    assert_eq!((here.ird, here.ord), (4, 30));
    assert_eq!((there.ird, there.ord), (30, 4));
    assert_eq!(here.peer_depth, Some((30, 4)));
    assert_eq!(there.peer_depth, Some((4, 100)));
}

#[test]
fn depths_not_negotiated_stay() {
    let initiator = with(|c| {
        c.ird = 4;
        c.ord = 100;
        c.negotiate_depth = false;
    });
    let request = Initiator::new(initiator, b"").unwrap().request().to_vec();
    assert_eq!(request[20..], [0x3f, 0xff, 0x3f, 0xff]);
    let responder = with(|c| {
        c.ird = 30;
        c.ord = 9;
    });
    let (here, there) = meet(initiator, responder).unwrap();
    assert_eq!((here.ird, here.ord), (4, 100));
    assert_eq!((there.ird, there.ord), (30, 9));
    assert_eq!(here.peer_depth, Some((DEPTH_NOT_NEGOTIATED, DEPTH_NOT_NEGOTIATED)));
}

#[test]
fn too_deep_a_responder_is_told_so() {
    let mut initiator = Initiator::new(with(|c| c.ird = 4), b"").unwrap();
    let reply = frame(REPLY_KEY, 0x50, 2, &[0, 16, 0, 5]);
    assert_eq!(initiator.on_bytes(&reply), Err(Violation::InsufficientReadDepth));
    let (bytes, length) = initiator.terminate_fpdu().unwrap();
    // The frame has a CRC, as the reply required.
    let peer = Established::client_server(Role::Responder, true, 0, 0);
    let mut receiver = Receiver::new(&peer);
    let fpdu = receiver.on_fpdu(&bytes[..length]).unwrap().unwrap();
    assert_eq!(fpdu.event, Event::Terminated);
    assert_eq!(fpdu.payload, [0x20, 6, 0, 0]);
    assert_eq!(initiator.on_bytes(&reply), Err(Violation::InsufficientReadDepth));
}

#[test]
fn ready_to_receive_is_agreed_on() {
    let set = |write, read, send| ReadyToReceiveSet { write, read, send };
    let agree = |wanted, offered| {
        let initiator = with(|c| c.ready_to_receive = wanted);
        let responder = with(|c| c.ready_to_receive = offered);
        meet(initiator, responder).map(|(here, _)| here.ready_to_receive)
    };
    let (write, read, send) =
        (set(true, false, false), set(false, true, false), set(false, false, true));
    assert_eq!(agree(write, set(true, true, true)), Ok(Some(ReadyToReceive::Write)));
    assert_eq!(agree(set(true, true, true), read), Ok(Some(ReadyToReceive::Read)));
    assert_eq!(agree(set(true, true, true), send), Ok(Some(ReadyToReceive::Send)));
    assert_eq!(agree(read, ReadyToReceiveSet::EMPTY), Ok(Some(ReadyToReceive::Read)));
    assert_eq!(agree(ReadyToReceiveSet::EMPTY, write), Ok(None));
    assert_eq!(agree(send, write), Err(Violation::NoMatchingReadyToReceive));
}

#[test]
fn no_common_ready_to_receive_is_told() {
    let wants = with(|c| c.ready_to_receive = ReadyToReceiveSet::WRITE_AND_READ);
    let mut initiator = Initiator::new(wants, b"").unwrap();
    let reply = frame(REPLY_KEY, 0x10, 2, &[0xc0, 16, 0, 16]);
    assert_eq!(initiator.on_bytes(&reply), Err(Violation::NoMatchingReadyToReceive));
    let (bytes, length) = initiator.terminate_fpdu().unwrap();
    assert_eq!(bytes[20..length], [0x20, 7, 0, 0, 0, 0, 0, 0, 0, 0][..length - 20]);
}

#[test]
fn read_indication_needs_no_depth_of_the_user() {
    let read = ReadyToReceiveSet { write: false, read: true, send: false };
    let idle = with(|c| {
        c.ird = 0;
        c.ord = 0;
        c.ready_to_receive = read;
    });
    let (here, there) = meet(
        idle,
        with(|c| {
            c.ird = 0;
            c.ord = 0;
        }),
    )
    .unwrap();
    assert_eq!((here.ord, there.ird), (1, 1));
    indicate(here, there);
}

/// Checks that the responder may send after the initiator's ready-to-receive indication.
fn indicate(here: Established, there: Established) {
    let mut transmitter = Transmitter::new(&here, 1440);
    let mut receiver = Receiver::new(&here);
    let send = Outbound::Send { solicited: false, invalidate: None };
    assert_eq!(transmitter.begin(send, 0).err(), Some(Refusal::ReadyToReceivePending));
    let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
    let length = transmitter.ready_to_receive(&mut receiver, &mut bytes).unwrap();
    assert_eq!(transmitter.ready_to_receive_pending(), None);
    let again = transmitter.ready_to_receive(&mut receiver, &mut bytes);
    assert_eq!(again, Err(Refusal::OutOfOrder));
    assert!(transmitter.begin(send, 0).is_ok());

    let mut peer = Receiver::new(&there);
    assert!(!peer.has_heard());
    let fpdu = peer.on_fpdu(&bytes[..length]).unwrap().unwrap();
    assert_eq!(fpdu.total_length, length);
    assert!(peer.has_heard());
    match fpdu.event {
        Event::Written => assert!(matches!(fpdu.placement.target, Target::Write { .. })),
        Event::Received { length, .. } => assert_eq!(length, 0),
        Event::ReadRequested { request, .. } => assert_eq!(request.length, 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_indication_is_understood() {
    for kind in [ReadyToReceive::Write, ReadyToReceive::Read, ReadyToReceive::Send] {
        for crc in [false, true] {
            let mut here = Established::client_server(Role::Initiator, crc, 1, 1);
            here.ready_to_receive = Some(kind);
            indicate(here, Established::client_server(Role::Responder, crc, 1, 1));
        }
    }
}

#[test]
fn write_indication_byte_by_byte() {
    let mut here = Established::client_server(Role::Initiator, false, 1, 1);
    here.ready_to_receive = Some(ReadyToReceive::Write);
    let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
    let length = Transmitter::new(&here, 1440)
        .ready_to_receive(&mut Receiver::new(&here), &mut bytes)
        .unwrap();
    // Linux siw sends the same bytes: STag 1, offset 0.
    let expected = [0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..length], expected);
}

#[test]
fn rejection_carries_data_and_depths() {
    let mut initiator = Initiator::new(config(), b"").unwrap();
    let mut responder = Responder::new();
    responder.on_bytes(initiator.request()).unwrap();
    let needs = with(|c| {
        c.ird = 2;
        c.ord = 64;
    });
    let reply = responder.reject(&needs, b"why").unwrap();
    assert_eq!(reply, frame(REPLY_KEY, 0x30, 2, b"\0\x02\0\x40why"));
    let outcome = initiator.on_bytes(&reply).unwrap().outcome.unwrap();
    let expected =
        InitiatorOutcome::Rejected { private_data: b"why".to_vec(), peer_depth: Some((2, 64)) };
    assert_eq!(outcome, expected);
    assert_eq!(initiator.terminate_fpdu(), None);
}

#[test]
fn markers_are_refused_on_both_sides() {
    let mut responder = Responder::new();
    let request = responder.on_bytes(&frame(REQUEST_KEY, 0x80, 1, b"")).unwrap().outcome.unwrap();
    assert!(request.markers);
    assert_eq!(responder.accept(&config(), b"").err(), Some(Refusal::OutOfOrder));
    assert_eq!(responder.reject(&config(), b"").unwrap(), frame(REPLY_KEY, 0x20, 1, b""));
    let mut initiator = Initiator::new(config(), b"").unwrap();
    let reply = frame(REPLY_KEY, 0x80, 1, b"");
    assert_eq!(initiator.on_bytes(&reply), Err(Violation::MarkersRequired));
    assert_eq!(initiator.terminate_fpdu(), None);
}

#[test]
fn revisions() {
    for revision in 0..=2 {
        let mut responder = Responder::new();
        responder.on_bytes(&frame(REQUEST_KEY, 0, revision, b"")).unwrap();
        let (reply, established) = responder.accept(&config(), b"").unwrap();
        assert_eq!(reply, frame(REPLY_KEY, 0, revision, b""));
        assert_eq!(established.revision, revision);
    }
    let request = frame(REQUEST_KEY, 0, 3, b"");
    assert_eq!(Responder::new().on_bytes(&request), Err(Violation::FrameRevision));
    // Before revision 2, the S bit is reserved and has no meaning.
    let mut responder = Responder::new();
    let request = responder.on_bytes(&frame(REQUEST_KEY, 0x10, 1, b"data")).unwrap();
    let request = request.outcome.unwrap();
    assert_eq!((request.enhanced, request.private_data.as_slice()), (false, &b"data"[..]));
}

#[test]
fn plain_responder_lets_the_initiator_fall_back() {
    let initiator = Initiator::new(config(), b"data").unwrap();
    let mut responder = Responder::new();
    responder.on_bytes(initiator.request()).unwrap();
    assert_eq!(responder.accept(&plain(), b"").err(), Some(Refusal::OutOfOrder));
    let retry = initiator.plain_retry().unwrap();
    assert_eq!(retry.request(), frame(REQUEST_KEY, 0, 1, b"data"));
    assert!(retry.plain_retry().is_none());
    let mut responder = Responder::new();
    responder.on_bytes(retry.request()).unwrap();
    assert!(responder.accept(&plain(), b"").is_ok());
}

#[test]
fn plain_request_wants_a_plain_reply() {
    let reply = frame(REPLY_KEY, 0x10, 2, &[0, 1, 0, 1]);
    let mut initiator = Initiator::new(plain(), b"").unwrap();
    assert_eq!(initiator.on_bytes(&reply), Err(Violation::FrameRevision));
    // In the other direction, the depths stay as they are.
    let mut initiator = Initiator::new(config(), b"").unwrap();
    let outcome = initiator.on_bytes(&frame(REPLY_KEY, 0, 1, b"")).unwrap().outcome.unwrap();
    let expected = Established::client_server(Role::Initiator, false, 16, 16);
    assert!(matches!(outcome, InitiatorOutcome::Accepted { established, .. }
        if established == expected));
}

#[test]
fn malformed_frames() {
    let refused = |bytes: &[u8]| Responder::new().on_bytes(bytes).unwrap_err();
    assert_eq!(refused(b"G"), Violation::FrameKey);
    assert_eq!(refused(&frame(REPLY_KEY, 0, 1, b"")), Violation::FrameKey);
    assert_eq!(refused(&frame(REQUEST_KEY, 0, 1, &[0; 513])), Violation::FramePrivateData);
    assert_eq!(refused(&frame(REQUEST_KEY, 0x10, 2, &[0; 3])), Violation::FramePrivateData);
    let mut initiator = Initiator::new(config(), b"").unwrap();
    // Both sides are initiators.
    assert_eq!(initiator.on_bytes(&frame(REQUEST_KEY, 0, 1, b"")), Err(Violation::FrameKey));
    let too_long = [0; PRIVATE_DATA_OUT_BYTES_MAX + 1];
    assert_eq!(Initiator::new(config(), &too_long).err(), Some(Refusal::PrivateDataTooLong));
    assert_eq!(Responder::new().accept(&config(), b"").err(), Some(Refusal::OutOfOrder));
}

#[test]
fn any_splitting_and_what_follows_is_left_alone() {
    let bytes = frame(REQUEST_KEY, 0x50, 2, &[7; 512]);
    assert_eq!(bytes.len(), FRAME_BYTES_MAX);
    let mut followed = bytes.clone();
    followed.extend_from_slice(&[0xaa; 50]);
    let at_once = Responder::new().on_bytes(&followed).unwrap();
    assert_eq!(at_once.consumed, bytes.len());
    for cut in 1..bytes.len() {
        let mut responder = Responder::new();
        let first = responder.on_bytes(&followed[..cut]).unwrap();
        assert_eq!((first.consumed, first.outcome), (cut, None));
        let second = responder.on_bytes(&followed[cut..]).unwrap();
        assert_eq!(second.consumed, bytes.len() - cut);
        assert_eq!(second.outcome, at_once.outcome);
        assert_eq!(responder.on_bytes(&followed).unwrap().consumed, 0);
    }
}

/// The request of `rping -c` on Linux siw.
#[test]
fn seen_of_rping() {
    let bytes = frame(REQUEST_KEY, 0x10, 2, &[0, 1, 0, 1]);
    assert_eq!(bytes.len(), 24);
    let mut responder = Responder::new();
    let request = responder.on_bytes(&bytes).unwrap().outcome.unwrap();
    assert_eq!(request.peer_depth, Some((1, 1)));
    assert!(!request.crc && request.peer_to_peer.is_none() && request.private_data.is_empty());
    let (reply, established) = responder.accept(&config(), b"").unwrap();
    assert_eq!(reply, frame(REPLY_KEY, 0x10, 2, &[0, 16, 0, 1]));
    assert_eq!((established.ird, established.ord), (16, 1));
}

/// The request of `mount -o proto=rdma` on Linux siw, and its first frame: a Send with an
/// RPC-over-RDMA call.
#[test]
fn seen_of_nfs_client() {
    let private_data = [0, 0x80, 0, 0, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
    let bytes = frame(REQUEST_KEY, 0x10, 2, &private_data);
    assert_eq!(bytes.len(), 32);
    let mut responder = Responder::new();
    let request = responder.on_bytes(&bytes).unwrap().outcome.unwrap();
    assert_eq!(request.peer_depth, Some((128, 0)));
    assert_eq!(request.private_data, private_data[4..]);
    let (_, established) = responder.accept(&config(), b"").unwrap();
    assert_eq!((established.ird, established.ord), (16, 16));

    let mut first = vec![0, 0x56, 0x41, 0x43];
    first.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    first.extend_from_slice(&[0x11; 0x56 - 18]);
    first.extend_from_slice(&[0; 4]);
    let mut receiver = Receiver::new(&established);
    let fpdu = receiver.on_fpdu(&first).unwrap().unwrap();
    assert_eq!((fpdu.total_length, fpdu.payload.len()), (first.len(), 0x56 - 18));
    assert!(matches!(fpdu.event, Event::Received { length: 68, invalidate: None, .. }));
}

/// The reply of the kernel's NFS server over siw, with CRC: it echoes the bit.
#[test]
fn seen_of_nfs_server() {
    let private_data = [0, 16, 0, 16, 0xf6, 0xab, 0x0e, 0x18, 0, 1, 3, 3];
    let mut initiator = Initiator::new(with(|c| c.crc = true), b"").unwrap();
    let reply = frame(REPLY_KEY, 0x50, 2, &private_data);
    let outcome = initiator.on_bytes(&reply).unwrap().outcome.unwrap();
    let InitiatorOutcome::Accepted { established, private_data: told } = outcome else {
        panic!("not rejected");
    };
    assert_eq!(told, private_data[4..]);
    assert_eq!((established.crc, established.ird, established.ord), (true, 16, 16));
}

#[test]
fn terminate_frame_fits_its_buffer() {
    let established = Established::client_server(Role::Initiator, true, 0, 0);
    let terminate = Terminate::new(TerminateCode::MPA_CRC, None, None);
    let mut bytes = [0; TERMINATE_FPDU_BYTES_MAX];
    let length = Transmitter::new(&established, 0).terminate(&terminate, &mut bytes).unwrap();
    assert_eq!(bytes[..4], [0, 22, 0x41, 0x47]);
    assert_eq!(length, 28);
}
