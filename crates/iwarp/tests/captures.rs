//! Traffic between Linux siw and this implementation, as captured by `tests/interop`
//! (`tests/interop/vector`). Both sides must understand every byte as they did then.

use std::collections::BTreeMap;
use std::path::Path;

use dafs_iwarp::{
    ConnectConfig, Established, Event, Initiator, InitiatorOutcome, ReadyToReceiveSet, Receiver,
    Responder, Role,
};

/// The number of messages of each kind that one side has sent.
type Counts = BTreeMap<&'static str, usize>;

/// The receiver of one side's bytes, and the bytes that are not processed yet.
struct Half {
    receiver: Receiver,
    kept: Vec<u8>,
    counts: Counts,
}

impl Half {
    fn new(role: Role, crc: bool) -> Self {
        let established = Established::client_server(role, crc, 128, 128);
        Self { receiver: Receiver::new(&established), kept: Vec::new(), counts: Counts::new() }
    }

    /// Processes arrived bytes. Reads requested here are open at the other side.
    fn take(&mut self, bytes: &[u8], other: &mut Self) {
        self.kept.extend_from_slice(bytes);
        while let Some(frame) = self.receiver.on_fpdu(&self.kept).expect("no violation") {
            let kind = match frame.event {
                Event::Continued => "part",
                Event::Written => "write",
                Event::Received { invalidate: None, .. } => "send",
                Event::Received { .. } => "send-invalidate",
                Event::ReadRequested { request, .. } => {
                    let _open = other.receiver.open_read(request).expect("a read");
                    "read"
                }
                Event::ReadCompleted { .. } => {
                    other.receiver.on_read_answered().expect("it was asked for");
                    "answer"
                }
                Event::Terminated => "terminate",
                other => panic!("an event that this test does not know: {other:?}"),
            };
            *self.counts.entry(kind).or_default() += 1;
            let length = frame.total_length;
            self.kept.drain(..length);
            if kind == "terminate" {
                return;
            }
        }
    }
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let digits = digits.map(|pair| str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("a digit")).collect()
}

/// Returns what the initiator and the responder have sent, and the code of a Terminate.
fn decoded(name: &str) -> (Counts, Counts, Option<String>) {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name);
    let text = std::fs::read_to_string(place).expect("a capture");
    let mut lines = text.lines().map(|line| line.split_once(' ').expect("who, and what"));
    let (_, asked) = lines.next().expect("a request");
    let (_, replied) = lines.next().expect("a reply");
    let request = Responder::new().on_bytes(&bytes(asked)).expect("well-formed").outcome;
    let request = request.expect("whole");
    let mut config = ConnectConfig::default();
    config.crc = request.crc;
    config.enhanced = request.enhanced;
    (config.ird, config.ord) = (128, 128);
    config.ready_to_receive = request.peer_to_peer.unwrap_or(ReadyToReceiveSet::EMPTY);
    let mut initiator = Initiator::new(config, b"").expect("no private data");
    let outcome = initiator.on_bytes(&bytes(replied)).expect("well-formed").outcome;
    let Some(InitiatorOutcome::Accepted { established, .. }) = outcome else { panic!("accepted") };
    let mut from_initiator = Half::new(Role::Responder, established.crc);
    let mut from_responder = Half::new(Role::Initiator, established.crc);
    for (who, said) in lines {
        match who {
            "initiator" => from_initiator.take(&bytes(said), &mut from_responder),
            _ => from_responder.take(&bytes(said), &mut from_initiator),
        }
    }
    let code = [&from_initiator, &from_responder]
        .into_iter()
        .find_map(|half| half.receiver.received_terminate())
        .map(|terminate| terminate.code.to_string());
    (from_initiator.counts, from_responder.counts, code)
}

#[test]
fn rping_to_us_in_its_forms() {
    let asks = [("send", 2), ("part", 2), ("answer", 1)];
    let serves = [("read", 1), ("send", 1), ("write", 1), ("part", 2)];
    for name in ["rping-accept", "rping-accept-crc-siw", "rping-accept-v1"] {
        assert_eq!(decoded(name), (counts(&asks), counts(&serves), None), "{name}");
    }
    // The Write that shows readiness comes in addition.
    let (ready, served, _) = decoded("rping-accept-p2p");
    assert_eq!((ready["write"], ready["send"]), (1, 2));
    assert_eq!(served, counts(&serves));
}

#[test]
fn ready_by_a_read() {
    let (asked, served, _) = decoded("rping-connect-ready-read");
    assert!(asked["read"] == 1 && asked["answer"] >= 1, "{asked:?}");
    assert!(served["read"] >= 1 && served["answer"] == 1, "{served:?}");
}

#[test]
fn offences_and_what_is_said_of_them() {
    // siw sent the last three, with its own layout of the first word.
    let cases = [
        ("accept-read-bounds", "0/1/0x01"),
        ("accept-send-stag", "0/1/0x09"),
        ("connect-write-stag", "1/1/0x00"),
        ("connect-write-invalidated", "1/1/0x00"),
        ("connect-read-stag", "0/1/0x00"),
    ];
    for (name, expected) in cases {
        let (offends, judges, code) = decoded(name);
        assert_eq!(code.as_deref(), Some(expected), "{name}");
        assert_eq!(judges["terminate"], 1, "{name}: {offends:?} {judges:?}");
    }
}

#[test]
fn every_capture_is_looked_at() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    for file in std::fs::read_dir(place).expect("captures") {
        let name = file.expect("a capture").file_name();
        let (here, there, _) = decoded(name.to_str().expect("a name"));
        assert!(!here.is_empty() && !there.is_empty(), "{name:?}");
    }
}

fn counts(expected: &[(&'static str, usize)]) -> Counts {
    expected.iter().copied().collect()
}
