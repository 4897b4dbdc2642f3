//! The bodies of the fuzz targets, shared with the tests that replay their corpora.
//!
//! Invariant: every body accepts any bytes. It panics only if a machine broke a guarantee: the same
//! bytes must have the same effect however they are split, and each side must decode correctly what
//! the other side encodes.

use crate::connect::{
    ConnectConfig, ConnectRequest, DEPTH_NOT_NEGOTIATED, Initiator, InitiatorOutcome, Progress,
    ReadyToReceiveSet, Responder,
};
use crate::fpdu::{CRC_BYTES, FpduShape, MULPDU_MIN};
use crate::transmit::TERMINATE_FPDU_BYTES_MAX;
use crate::{
    Established, Event, PlacementError, ReadRequest, Receiver, Role, Stag, Step, TaggedOffset,
    Target, Terminate, Transmitter, Violation,
};

/// The number of reads that the stream body may have open.
const OPEN_READ_COUNT: u16 = 3;

/// Fuzzes start-up frames. Byte 0 selects the role and options, byte 1 the size of the pieces.
pub fn connect(data: &[u8]) {
    let Some((&[mode, cut], bytes)) = data.split_first_chunk() else { return };
    let config = ConnectConfig {
        crc: mode & 2 != 0,
        enhanced: mode & 4 != 0,
        ird: u16::from(mode >> 5) * 5,
        ord: u16::from(mode >> 6) * 7,
        negotiate_depth: mode & 8 == 0,
        ready_to_receive: ReadyToReceiveSet {
            write: mode & 16 != 0,
            read: mode & 48 == 48,
            send: mode & 80 == 80,
        },
    };
    if mode & 1 == 0 {
        connect_responder(&config, usize::from(cut), bytes);
    } else {
        connect_initiator(config, usize::from(cut), bytes);
    }
}

fn connect_responder(config: &ConnectConfig, cut: usize, bytes: &[u8]) {
    let (mut whole, mut pieces) = (Responder::new(), Responder::new());
    let at_once = whole.on_bytes(bytes);
    let piecewise = in_pieces(cut, bytes, |piece| pieces.on_bytes(piece));
    assert_eq!(at_once, piecewise);
    let Ok(Progress { outcome: Some(request), .. }) = at_once else { return };
    if let Ok(reply) = whole.reject(config, b"no") {
        let mut initiator = initiator_of(&request);
        let outcome = initiator.on_bytes(&reply).expect("a rejection is well-formed").outcome;
        assert!(matches!(outcome, Some(InitiatorOutcome::Rejected { .. })));
    }
    let Ok((reply, responder)) = whole.accept(config, b"yes") else { return };
    let mut initiator = initiator_of(&request);
    let progress = initiator.on_bytes(&reply).expect("our reply meets the request");
    assert_eq!(progress.consumed, reply.len());
    let Some(InitiatorOutcome::Accepted { established, private_data }) = progress.outcome else {
        panic!("an accepted request is accepted");
    };
    assert_eq!(private_data, b"yes");
    assert_eq!(established.crc, responder.crc);
    let negotiated = |depth: u16| depth != DEPTH_NOT_NEGOTIATED;
    if let Some((peer_ird, peer_ord)) = request.peer_depth {
        assert!(!negotiated(peer_ord) || established.ord <= responder.ird);
        assert!(!negotiated(peer_ird) || responder.ord <= established.ird);
        assert_eq!(established.ready_to_receive.is_some(), request.peer_to_peer.is_some());
    }
}

/// Returns an initiator that could have sent `request` and accepts any reply.
fn initiator_of(request: &ConnectRequest) -> Initiator {
    let (ird, ord) = request.peer_depth.unwrap_or((0, 0));
    let any = ReadyToReceiveSet { write: true, read: true, send: true };
    let config = ConnectConfig {
        crc: request.crc,
        enhanced: request.enhanced,
        ird,
        ord,
        negotiate_depth: true,
        ready_to_receive: if request.peer_to_peer.is_some() {
            any
        } else {
            ReadyToReceiveSet::EMPTY
        },
    };
    Initiator::new(config, b"").expect("no private data is not too long")
}

fn connect_initiator(config: ConnectConfig, cut: usize, bytes: &[u8]) {
    let mut whole = Initiator::new(config, b"seed").expect("short private data");
    let mut pieces = whole.clone();
    let at_once = whole.on_bytes(bytes);
    let piecewise = in_pieces(cut, bytes, |piece| pieces.on_bytes(piece));
    assert_eq!(at_once, piecewise);
    assert_eq!(whole.terminate_fpdu(), pieces.terminate_fpdu());
    if let Ok(Progress { outcome: Some(outcome), .. }) = at_once {
        assert!(whole.plain_retry().is_none());
        if let InitiatorOutcome::Accepted { established, .. } = outcome {
            assert!(established.ird <= config.ird);
            assert!(established.ord <= config.ord.max(1));
        }
    }
}

/// Feeds bytes in pieces of `cut` bytes and returns the total progress.
fn in_pieces<Outcome>(
    cut: usize,
    bytes: &[u8],
    mut feed: impl FnMut(&[u8]) -> Result<Progress<Outcome>, Violation>,
) -> Result<Progress<Outcome>, Violation> {
    let mut consumed = 0;
    for piece in bytes.chunks(cut.max(1)) {
        let progress = feed(piece)?;
        consumed += progress.consumed;
        if progress.outcome.is_some() {
            return Ok(Progress { consumed, outcome: progress.outcome });
        }
    }
    Ok(Progress { consumed, outcome: None })
}

/// Fuzzes data streams. Byte 0 selects the options, byte 1 the size of the pieces.
pub fn stream(data: &[u8]) {
    let Some((&[mode, cut], bytes)) = data.split_first_chunk() else { return };
    let crc = mode & 1 != 0;
    let established =
        Established::client_server(Role::Responder, crc, u16::from(mode >> 6), OPEN_READ_COUNT);
    let mut bytes = bytes.to_vec();
    if mode & 2 != 0 {
        repair_checksums(&mut bytes);
    }
    let mut whole = prepared(&established, mode);
    let mut pieces = prepared(&established, mode);
    let (whole_events, whole_violation) = take_whole(&mut whole, &bytes, mode);
    let (piece_events, piece_violation) = take_pieces(&mut pieces, &bytes, cut, mode);
    assert_eq!(whole_events, piece_events);
    assert!(whole_violation.is_none() || piece_violation.is_some());
    if !crc && whole_violation.is_some() {
        assert_eq!(whole_violation, piece_violation);
    }
    for receiver in [&mut whole, &mut pieces] {
        let (violation, terminate) = (receiver.violation(), receiver.take_terminate());
        assert_eq!(violation.is_some(), terminate.is_some());
        assert!(receiver.take_terminate().is_none());
        if let Some(terminate) = terminate {
            assert!(terminate.code.is_known());
            understood(crc, &terminate);
        }
    }
}

fn prepared(established: &Established, mode: u8) -> Receiver {
    let mut receiver = Receiver::new(established);
    if mode & 4 != 0 {
        for index in 0..u32::from(OPEN_READ_COUNT) {
            let request = ReadRequest {
                sink_stag: Stag(index),
                sink_offset: TaggedOffset(0),
                length: index * 8,
                ..ReadRequest::default()
            };
            let read = receiver.open_read(request).expect("there is room");
            assert_eq!(read.request(), &request);
        }
        assert!(receiver.open_read(ReadRequest::default()).is_err());
    }
    receiver
}

/// Writes the correct checksum into every complete frame.
fn repair_checksums(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some(shape) = FpduShape::peek(rest) {
        let total = shape.total_length();
        if rest.len() < total {
            return;
        }
        let (frame, behind) = rest.split_at_mut(total);
        let (covered, crc) = frame.split_at_mut(total - CRC_BYTES);
        crc.copy_from_slice(&crate::crc::checksum_of(covered));
        rest = behind;
    }
}

fn take_whole(receiver: &mut Receiver, bytes: &[u8], mode: u8) -> (Vec<Event>, Option<Violation>) {
    let (mut events, mut rest) = (Vec::new(), bytes);
    while receiver.next_step() != Step::Closed {
        match receiver.on_fpdu(rest) {
            Ok(Some(fpdu)) => {
                assert_eq!(fpdu.payload.len(), fpdu.placement.payload_length as usize);
                rest = &rest[fpdu.total_length..];
                events.push(fpdu.event);
                on_event(receiver, &fpdu.event, mode);
            }
            Ok(None) => break,
            Err(_) => break,
        }
    }
    (events, receiver.violation())
}

fn take_pieces(
    receiver: &mut Receiver,
    bytes: &[u8],
    cut: u8,
    mode: u8,
) -> (Vec<Event>, Option<Violation>) {
    let (mut events, mut rest) = (Vec::new(), bytes);
    let mut control = false;
    let result: Result<(), Violation> = (|| {
        loop {
            match receiver.next_step() {
                Step::Header { .. } => {
                    let Some(placement) = receiver.on_header(rest)? else { return Ok(()) };
                    rest = &rest[usize::from(placement.header_length)..];
                    control =
                        matches!(placement.target, Target::ReadRequest { .. } | Target::Terminate);
                }
                Step::Payload { bytes } => {
                    let length = usize::from(cut.max(1)).min(bytes as usize).min(rest.len());
                    if length == 0 {
                        return Ok(());
                    }
                    let (piece, behind) = rest.split_at(length);
                    rest = behind;
                    if control || receiver.crc_in_use() {
                        receiver.on_payload(piece).expect("payload was due");
                    } else {
                        receiver.on_placed(length as u32).expect("payload was due");
                    }
                }
                Step::Trailer { bytes } => {
                    let Some((trailer, behind)) = rest.split_at_checked(bytes) else {
                        return Ok(());
                    };
                    rest = behind;
                    let event = receiver.on_trailer(trailer)?;
                    events.push(event);
                    on_event(receiver, &event, mode);
                }
                Step::Closed => return Ok(()),
            }
        }
    })();
    assert!(result.is_ok() || result.err() == receiver.violation());
    (events, receiver.violation())
}

/// Responds to some reads and refuses others.
fn on_event(receiver: &mut Receiver, event: &Event, mode: u8) {
    match *event {
        Event::ReadRequested { sequence, request } => {
            if mode & 8 != 0 && request.length > 1 << 20 {
                receiver.refuse_read(sequence, &request, PlacementError::Bounds);
            } else if mode & 16 != 0 {
                receiver.on_read_answered().expect("one is unanswered");
            }
        }
        Event::Received { invalidate: Some(Stag(stag)), .. } if mode & 32 != 0 && stag > 9 => {
            receiver.refuse(PlacementError::CannotInvalidate);
        }
        Event::Continued
        | Event::Written
        | Event::Received { .. }
        | Event::ReadCompleted { .. }
        | Event::Terminated => {}
    }
}

/// Checks that another receiver decodes this Terminate correctly.
fn understood(crc: bool, terminate: &Terminate) {
    let established = Established::client_server(Role::Initiator, crc, 0, 0);
    let mut transmitter = Transmitter::new(&established, MULPDU_MIN);
    let mut bytes = [0; TERMINATE_FPDU_BYTES_MAX];
    let length = transmitter.terminate(terminate, &mut bytes).expect("the first one");
    assert!(transmitter.terminate(terminate, &mut bytes).is_err());
    let mut receiver = Receiver::new(&established);
    let fpdu = receiver.on_fpdu(&bytes[..length]).expect("well-formed").expect("whole");
    assert_eq!(fpdu.event, Event::Terminated);
    assert_eq!(receiver.received_terminate(), Some(terminate));
    assert!(receiver.take_terminate().is_none());
}
