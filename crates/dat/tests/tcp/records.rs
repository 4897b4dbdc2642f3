//! Connections that carry records, over real sockets of the loopback interface.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dafs_dat::records::{LinkId, Part, RecordEvent, Records, RecordsConfig};
use dafs_memory::{Memory, Pages};

/// The longest that a test waits for an event. It tells a hang from slow work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const RECORD_BYTES_MAX: usize = 1 << 20;

pub(crate) fn config() -> RecordsConfig {
    RecordsConfig {
        record_bytes_max: RECORD_BYTES_MAX,
        connections_max: 4,
        connections_per_address_max: 4,
        patience: PATIENCE,
        handshake_patience: PATIENCE,
        handshakes_per_address_max: 4,
    }
}

pub(crate) fn listening(config: RecordsConfig) -> (Records, SocketAddr) {
    let mut records = Records::new(config).expect("an epoll instance can be created");
    let address = records.listen("127.0.0.1:0".parse().unwrap()).expect("loopback can be used");
    (records, address)
}

/// Returns the next event.
pub(crate) fn next(records: &mut Records) -> RecordEvent {
    let begin = Instant::now();
    loop {
        if let Some(event) = records.next_event() {
            return event;
        }
        assert!(begin.elapsed() < PATIENCE, "no event has arrived");
        records.wait(Duration::from_millis(100));
    }
}

pub(crate) fn opened(records: &mut Records) -> LinkId {
    match next(records) {
        RecordEvent::Opened { link, .. } => {
            records.keep_of_records(link, RECORD_BYTES_MAX);
            link
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until the connection is closed, and returns the reason.
fn closed(records: &mut Records, link: LinkId) -> &'static str {
    let begin = Instant::now();
    loop {
        records.wait(Duration::from_millis(1));
        records.tick();
        match records.next_event() {
            Some(RecordEvent::Closed { link: ended, reason }) if ended == link => return reason,
            Some(other) => panic!("{other:?}"),
            None => assert!(begin.elapsed() < PATIENCE, "the connection is still open"),
        }
    }
}

pub(crate) fn record(bytes: &[u8]) -> Vec<u8> {
    let mark = (1 << 31) | bytes.len() as u32;
    [&mark.to_be_bytes(), bytes].concat()
}

pub(crate) fn read_record(stream: &mut impl Read) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mark = u32::from_be_bytes(mark);
    assert!(mark >> 31 == 1, "a reply is one fragment");
    let mut bytes = vec![0; (mark & !(1 << 31)) as usize];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_record_arrives_whole_however_it_is_sent() {
    let (mut records, address) = listening(config());
    let mut stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    let long: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
    let bytes = [record(b"one"), record(b""), record(&long)].concat();
    let (first, rest) = bytes.split_at(9);
    stream.write_all(first).unwrap();
    let mut sender = stream.try_clone().unwrap();
    let rest = rest.to_vec();
    let thread = std::thread::spawn(move || sender.write_all(&rest).unwrap());
    for expected in [b"one".to_vec(), Vec::new(), long] {
        match next(&mut records) {
            RecordEvent::Record { link: from, bytes } => {
                assert_eq!(from, link);
                assert!(bytes == expected, "{} bytes have arrived", bytes.len());
                records.recycle(bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    thread.join().unwrap();
}

#[test]
fn a_reply_from_memory_is_reported_when_the_kernel_has_it() {
    let (mut records, address) = listening(config());
    let mut stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    let memory = Memory::anonymous(1 << 20, Pages::Small).unwrap();
    memory.write(5000, b"cached bytes");
    let parts = [
        Part::Bytes(b"head "),
        Part::Memory { memory: &memory, offset: 5000, length: 12 },
        Part::Bytes(b" tail"),
    ];
    records.send(link, parts, [7]);
    records.send(link, [Part::Bytes(b"second")], []);
    records.flush();
    assert_eq!(read_record(&mut stream), b"head cached bytes tail");
    assert_eq!(read_record(&mut stream), b"second");
    assert!(matches!(next(&mut records), RecordEvent::Sent { cookie: 7 }));
    assert_eq!(records.unsent(link), 0);
}

#[test]
fn a_broken_connection_reports_the_memory_of_its_replies() {
    let (mut records, address) = listening(config());
    let stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    let memory = Memory::anonymous(32 << 20, Pages::Small).unwrap();
    let part = Part::Memory { memory: &memory, offset: 0, length: 32 << 20 };
    records.send(link, [part], [1]);
    records.send(link, [part], [2]);
    records.flush();
    assert!(records.unsent(link) > 0, "the peer reads nothing, so the kernel takes only a part");
    drop(stream);
    let mut seen = Vec::new();
    loop {
        match next(&mut records) {
            RecordEvent::Sent { cookie } => seen.push(cookie),
            RecordEvent::Closed { link: ended, .. } => {
                assert_eq!(ended, link);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [1, 2]);
    // A reply that comes too late is reported at once.
    records.send(link, [part], [3]);
    assert!(matches!(records.next_event(), Some(RecordEvent::Sent { cookie: 3 })));
}

#[test]
fn a_peer_that_does_not_read_is_disconnected() {
    let patience = Duration::from_millis(1);
    let (mut records, address) = listening(RecordsConfig { patience, ..config() });
    let _stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    let memory = Memory::anonymous(32 << 20, Pages::Small).unwrap();
    records.send(link, [Part::Memory { memory: &memory, offset: 0, length: 32 << 20 }], []);
    assert_eq!(closed(&mut records, link), "the peer does not read its replies");
}

#[test]
fn peers_beyond_the_limit_and_bad_records_are_disconnected() {
    let (mut records, address) = listening(RecordsConfig { connections_max: 1, ..config() });
    let mut first = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    let mut second = TcpStream::connect(address).unwrap();
    let begin = Instant::now();
    let mut byte = [0];
    second.set_nonblocking(true).unwrap();
    while second.read(&mut byte).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {
        records.wait(Duration::from_millis(1));
        assert!(begin.elapsed() < PATIENCE, "the second peer is still connected");
    }
    assert_eq!(records.connection_count(), 1);
    // The mark announces more than the limit.
    first.write_all(&u32::MAX.to_be_bytes()).unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    match next(&mut records) {
        RecordEvent::Closed { link: ended, .. } => assert_eq!(ended, link),
        other => panic!("{other:?}"),
    }
    assert_eq!(records.connection_count(), 0);
}

#[test]
fn a_paused_connection_is_not_read() {
    let (mut records, address) = listening(config());
    let mut stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    records.set_paused(link, true);
    stream.write_all(&record(b"later")).unwrap();
    for _ in 0..3 {
        records.wait(Duration::from_millis(1));
    }
    assert!(records.next_event().is_none());
    records.set_paused(link, false);
    assert!(matches!(next(&mut records), RecordEvent::Record { bytes, .. } if bytes == b"later"));
}

#[test]
fn a_flood_of_records_is_not_read_and_delays_nobody() {
    let (mut records, address) = listening(config());
    let mut flood = TcpStream::connect(address).unwrap();
    flood.set_nonblocking(true).unwrap();
    let flooding = opened(&mut records);
    let bytes = record(&[7; 1000]).repeat(64);
    let mut sent = 0;
    // The sender stops when the queue and the buffers of the sockets are full.
    loop {
        match flood.write(&bytes) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                let is_any_taken = (0..8).any(|_| {
                    records.wait(Duration::from_millis(10));
                    flood.write(&bytes).is_ok_and(|count| {
                        sent += count;
                        true
                    })
                });
                if !is_any_taken {
                    break;
                }
            }
        }
        assert!(sent < 64 << 20, "the server has taken {sent} bytes without an end");
    }
    let mut other = TcpStream::connect(address).unwrap();
    other.write_all(&record(b"one")).unwrap();
    // The connections take turns, so few records of the flood precede that of the other.
    let (mut before, mut second) = (0, None);
    loop {
        records.wait(Duration::ZERO);
        match next(&mut records) {
            RecordEvent::Opened { link, .. } => {
                records.keep_of_records(link, RECORD_BYTES_MAX);
                second = Some(link);
            }
            RecordEvent::Record { link, bytes } if Some(link) == second => {
                assert_eq!(bytes, b"one");
                break;
            }
            RecordEvent::Record { link, .. } if link == flooding => before += 1,
            other => panic!("{other:?}"),
        }
        assert!(before < 200, "the flood delays the other connection");
    }
}

#[test]
fn records_before_the_end_of_a_connection_are_delivered() {
    let (mut records, address) = listening(config());
    let mut stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    stream.write_all(&[record(b"one"), record(b"two")].concat()).unwrap();
    drop(stream);
    for expected in [b"one", b"two"] {
        match next(&mut records) {
            RecordEvent::Record { bytes, .. } => assert_eq!(bytes, expected),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(next(&mut records), RecordEvent::Closed { link: ended, .. } if ended == link));
}

#[test]
fn a_record_that_is_never_completed_ends_its_connection() {
    let patience = Duration::from_millis(1);
    let (mut records, address) = listening(RecordsConfig { patience, ..config() });
    let mut stream = TcpStream::connect(address).unwrap();
    let link = opened(&mut records);
    stream.write_all(&record(&[1; 500])[..100]).unwrap();
    assert_eq!(closed(&mut records, link), "the peer does not complete a record");
}

#[test]
fn an_address_has_a_share_of_the_connections() {
    let limits = RecordsConfig { connections_per_address_max: 2, ..config() };
    let (mut records, address) = listening(limits);
    let mut streams: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let first = opened(&mut records);
    opened(&mut records);
    records.wait(Duration::from_millis(1));
    assert_eq!(streams[2].read(&mut [0; 1]).unwrap(), 0, "the third connection is closed");
    records.close(first, "the test ends it");
    assert!(matches!(next(&mut records), RecordEvent::Closed { .. }));
    streams.push(TcpStream::connect(address).unwrap());
    opened(&mut records);
}

#[test]
fn of_an_unimportant_peer_only_the_start_of_a_record_is_kept() {
    let (mut records, address) = listening(config());
    let mut stream = TcpStream::connect(address).unwrap();
    let long = record(&[7; 300_000]);
    let link = match next(&mut records) {
        RecordEvent::Opened { link, .. } => link,
        other => panic!("{other:?}"),
    };
    stream.write_all(&record(b"early")).unwrap();
    for _ in 0..10 {
        records.wait(Duration::from_millis(1));
        assert!(records.next_event().is_none(), "the connection is not read yet");
    }
    records.keep_of_records(link, 100);
    let writer = std::thread::spawn(move || {
        stream.write_all(&long).unwrap();
        stream.write_all(&long).unwrap();
        stream
    });
    for expected in [b"early".to_vec(), vec![7; 100], vec![7; 100]] {
        match next(&mut records) {
            RecordEvent::Record { bytes, .. } => assert_eq!(bytes, expected),
            other => panic!("{other:?}"),
        }
    }
    let mut stream = writer.join().unwrap();
    records.keep_of_records(link, RECORD_BYTES_MAX);
    stream.write_all(&record(&[8; 3000])).unwrap();
    assert!(matches!(next(&mut records), RecordEvent::Record { bytes, .. } if bytes == [8; 3000]));
}

#[test]
fn a_record_without_its_end_is_not_delivered_to_who_wants_all_of_it() {
    let (mut records, address) = listening(config());
    let mut stream = TcpStream::connect(address).unwrap();
    let link = match next(&mut records) {
        RecordEvent::Opened { link, .. } => link,
        other => panic!("{other:?}"),
    };
    records.keep_of_records(link, 100);
    stream.write_all(&[record(&[7; 3000]), record(&[8; 3000])].concat()).unwrap();
    assert!(matches!(next(&mut records), RecordEvent::Record { bytes, .. } if bytes == [7; 100]));
    records.keep_of_records(link, RECORD_BYTES_MAX);
    assert_eq!(closed(&mut records, link), "the peer must send its last record again");
}
