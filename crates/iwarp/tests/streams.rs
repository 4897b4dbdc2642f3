//! Properties of whole streams: the same events occur however the bytes are split.

use crate::pair::{Happening, Intake, Pair, Side, at, pattern};
use dafs_iwarp::{Outbound, ReadRequest, Stag};
use proptest::prelude::*;

const BUFFER_BYTES: usize = 200_000;
const DEPTH: u16 = 4;
const SINK: Stag = Stag(0x0a01);
const SOURCE: Stag = Stag(0x0b02);

#[derive(Clone, Debug)]
enum Work {
    Send { length: usize, solicited: bool, invalidate: Option<u32> },
    Write { offset: usize, length: usize },
    Read { sink_offset: usize, source_offset: usize, length: usize },
}

fn any_length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), 1usize..64, 64usize..5_000, 5_000usize..100_000]
}

fn any_work() -> impl Strategy<Value = Work> {
    let offset = 0usize..BUFFER_BYTES / 2;
    prop_oneof![
        (any_length(), any::<bool>(), proptest::option::of(any::<u32>())).prop_map(
            |(length, solicited, invalidate)| Work::Send { length, solicited, invalidate }
        ),
        (offset.clone(), any_length()).prop_map(|(offset, length)| Work::Write { offset, length }),
        (offset.clone(), offset, any_length()).prop_map(|(sink_offset, source_offset, length)| {
            Work::Read { sink_offset, source_offset, length }
        }),
    ]
}

fn any_mulpdu() -> impl Strategy<Value = u16> {
    prop_oneof![128u16..300, 300u16..9_000, 9_000u16..=64_768]
}

fn any_intake() -> impl Strategy<Value = Intake> {
    prop_oneof![Just(Intake::Whole), Just(Intake::Piecemeal)]
}

/// The events that the two sides must see, as determined by the posted work.
#[derive(Default)]
struct Expected {
    responder_log: Vec<Happening>,
    read_log: Vec<Happening>,
    initiator_sink: Vec<u8>,
    responder_sink: Vec<u8>,
}

fn prepared(crc: bool, mulpdus: (u16, u16), intakes: (Intake, Intake)) -> (Pair, Expected) {
    let mut pair = Pair::new(crc, DEPTH, mulpdus, intakes);
    for side in [&mut pair.initiator, &mut pair.responder] {
        side.memory.insert(SINK.0, vec![0; BUFFER_BYTES]);
        side.memory.insert(SOURCE.0, pattern(77, BUFFER_BYTES));
    }
    let expected = Expected {
        initiator_sink: vec![0; BUFFER_BYTES],
        responder_sink: vec![0; BUFFER_BYTES],
        ..Expected::default()
    };
    (pair, expected)
}

fn post(side: &mut Side, expected: &mut Expected, index: usize, work: &Work) {
    let seed = index as u8;
    match *work {
        Work::Send { length, solicited, invalidate } => {
            let (payload, invalidate) = (pattern(seed, length), invalidate.map(Stag));
            side.post(Outbound::Send { solicited, invalidate }, &payload);
            expected.responder_log.push(Happening::Received { payload, solicited, invalidate });
        }
        Work::Write { offset, length } => {
            let payload = pattern(seed, length);
            side.post(Outbound::Write { stag: SINK, offset: at(offset as u64) }, &payload);
            expected.responder_sink[offset..offset + length].copy_from_slice(&payload);
            expected.responder_log.push(Happening::Written);
        }
        Work::Read { sink_offset, source_offset, length } => {
            let request = ReadRequest {
                sink_stag: SINK,
                sink_offset: at(sink_offset as u64),
                length: length as u32,
                source_stag: SOURCE,
                source_offset: at(source_offset as u64),
            };
            side.post_read(request);
            let source = pattern(77, BUFFER_BYTES);
            expected.initiator_sink[sink_offset..sink_offset + length]
                .copy_from_slice(&source[source_offset..source_offset + length]);
            expected.responder_log.push(Happening::ReadRequested(request));
            expected.read_log.push(Happening::ReadCompleted(request));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn cutting_is_invisible(
        crc in any::<bool>(),
        mulpdus in (any_mulpdu(), any_mulpdu()),
        intakes in (any_intake(), any_intake()),
        works in proptest::collection::vec(any_work(), 1..24),
        pieces in proptest::collection::vec(1usize..20_000, 1..12),
    ) {
        let (mut pair, mut expected) = prepared(crc, mulpdus, intakes);
        for (index, work) in works.iter().enumerate() {
            if matches!(work, Work::Read { .. })
                && pair.initiator.receiver.open_read_count() == usize::from(DEPTH)
            {
                pair.carry(&pieces);
            }
            post(&mut pair.initiator, &mut expected, index, work);
        }
        pair.carry(&pieces);
        prop_assert_eq!(pair.initiator.violation, None);
        prop_assert_eq!(pair.responder.violation, None);
        prop_assert_eq!(pair.initiator.receiver.open_read_count(), 0);
        prop_assert!(pair.responder.log == expected.responder_log);
        prop_assert!(pair.initiator.log == expected.read_log);
        prop_assert!(pair.initiator.memory[&SINK.0] == expected.initiator_sink);
        prop_assert!(pair.responder.memory[&SINK.0] == expected.responder_sink);
    }

    #[test]
    fn both_intakes_place_alike(
        crc in any::<bool>(),
        mulpdu in any_mulpdu(),
        works in proptest::collection::vec(any_work(), 1..8),
        pieces in proptest::collection::vec(1usize..500, 1..12),
    ) {
        let mut seen = Vec::new();
        for (intake, pieces) in [
            (Intake::Whole, &[usize::MAX][..]),
            (Intake::Whole, &pieces),
            (Intake::Piecemeal, &[usize::MAX][..]),
            (Intake::Piecemeal, &pieces),
        ] {
            let (mut pair, mut expected) = prepared(crc, (mulpdu, mulpdu), (intake, intake));
            for (index, work) in works.iter().enumerate() {
                if !matches!(work, Work::Read { .. }) {
                    post(&mut pair.initiator, &mut expected, index, work);
                }
            }
            pair.carry(pieces);
            seen.push((pair.responder.placements, pair.responder.log));
        }
        prop_assert!(seen.windows(2).all(|two| two[0] == two[1]));
    }

    #[test]
    fn a_flipped_bit_is_always_found(
        mulpdu in 128u16..2_000,
        works in proptest::collection::vec(any_work(), 1..6),
        place in any::<prop::sample::Index>(),
        bit in 0u32..8,
    ) {
        let (mut pair, mut expected) =
            prepared(true, (mulpdu, mulpdu), (Intake::Whole, Intake::Whole));
        for (index, work) in works.iter().take(DEPTH as usize).enumerate() {
            post(&mut pair.initiator, &mut expected, index, work);
        }
        let mut bytes = std::mem::take(&mut pair.initiator.outgoing);
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        // A length that was increased swallows the following bytes, so append enough of them.
        bytes.extend_from_slice(&[0; 1 << 17]);
        let before = frames_before(&bytes, place);
        pair.responder.take_in(&bytes);
        prop_assert!(pair.responder.violation.is_some());
        prop_assert_eq!(pair.responder.placements.len(), before);
        prop_assert!(expected.responder_log.starts_with(&pair.responder.log));
    }

    #[test]
    fn garbage_ends_streams_and_nothing_else(
        crc in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        intake in any_intake(),
    ) {
        let (mut pair, _) = prepared(crc, (128, 128), (intake, intake));
        // Random Writes would be outside the buffers, so only headers of other kinds are used.
        if bytes.get(2).is_none_or(|control| control & 0x80 == 0) {
            pair.responder.take_in(&bytes);
        }
    }
}

/// Returns the number of frames that lie completely before `place`, by undamaged lengths.
fn frames_before(bytes: &[u8], place: usize) -> usize {
    let (mut count, mut start) = (0, 0);
    loop {
        let shape = dafs_iwarp::FpduShape::peek(&bytes[start..]).unwrap();
        if start + 2 > place || start + shape.total_length() > place {
            return count;
        }
        start += shape.total_length();
        count += 1;
    }
}

#[test]
fn piece_by_piece_of_one_byte() {
    let (mut pair, mut expected) =
        prepared(true, (128, 200), (Intake::Piecemeal, Intake::Piecemeal));
    let works = [
        Work::Write { offset: 5, length: 1000 },
        Work::Send { length: 0, solicited: true, invalidate: Some(9) },
        Work::Read { sink_offset: 3, source_offset: 11, length: 777 },
        Work::Read { sink_offset: 0, source_offset: 0, length: 0 },
        Work::Send { length: 333, solicited: false, invalidate: None },
    ];
    for (index, work) in works.iter().enumerate() {
        post(&mut pair.initiator, &mut expected, index, work);
    }
    pair.carry(&[1]);
    assert_eq!(pair.responder.log, expected.responder_log);
    assert_eq!(pair.initiator.log, expected.read_log);
    assert_eq!(pair.initiator.memory[&SINK.0], expected.initiator_sink);
    assert_eq!(pair.responder.memory[&SINK.0], expected.responder_sink);
}
