//! Tests TCP peers that violate MPA, DDP or RDMAP, during start-up and afterwards.

use std::time::Duration;

use dafs_dat::Address;
use dafs_server::ServerConfig;
use dafs_wire::Request;
use dafs_wire::messages::Empty;

use super::offences::offences;
use super::tcp::{DEPTH, Wire, enhanced, fpdu, request, start_up, untagged};
use crate::bystander::beside_bystanders_of;
use crate::fixture::{Transport, pattern};
use crate::rogue::{connect_data, encoded};

/// Runs a case against the TCP listener, with honest sessions that must continue.
fn beside(case: impl FnOnce(&Address)) {
    beside_with(|_| {}, case);
}

fn beside_with(change: impl FnOnce(&mut ServerConfig), case: impl FnOnce(&Address)) {
    beside_bystanders_of(change, |fixture| case(&fixture.address(Transport::Tcp)));
}

#[test]
fn rubbish_before_the_start_ends_the_connection() {
    beside(|address| {
        for seed in 0..200u64 {
            let mut wire = Wire::open(address);
            wire.send(&pattern(1 + (seed as usize * 53) % 5000, seed));
            wire.closes();
        }
        let mut wire = Wire::open(address);
        wire.send(b"GET / HTTP/1.1\r\n\r\n");
        wire.closes();
    });
}

#[test]
fn start_up_frames_that_cannot_be_end_the_connection() {
    beside(|address| {
        let good = enhanced(DEPTH, &connect_data());
        let mut long = request(0x10, 2, &good);
        long[18..20].copy_from_slice(&513u16.to_be_bytes());
        long.resize(20 + 513, 0);
        let frames = [
            // A reply frame, an unknown revision, too much and too little private data, markers, no
            // connect data.
            start_up(b"MPA ID Rep Frame", 0x10, 2, &good),
            request(0x10, 3, &good),
            request(0x10, 255, &good),
            long,
            request(0x10, 2, &good[..3]),
            request(0x90, 2, &good),
            request(0x10, 2, &enhanced(DEPTH, b"")),
            request(0x10, 2, &enhanced(DEPTH, &[0xa5; 16])),
            request(0x10, 2, &enhanced(DEPTH, &connect_data()[..15])),
        ];
        for frame in frames {
            let mut wire = Wire::open(address);
            wire.send(&frame);
            wire.closes();
        }
    });
}

#[test]
fn half_a_start_and_then_silence_is_ended() {
    let short = Duration::from_secs(1);
    beside_with(
        |config| config.patience.connect = short,
        |address| {
            let whole = request(0x10, 2, &enhanced(DEPTH, &connect_data()));
            let cuts = [0, 1, 15, 16, 19, 20, 23, whole.len() - 1];
            let silent = cuts.map(|cut| {
                let mut wire = Wire::open(address);
                wire.send(&whole[..cut]);
                wire
            });
            silent.into_iter().for_each(Wire::closes);
        },
    );
}

#[test]
fn a_stream_that_never_logs_in_is_ended() {
    let short = Duration::from_secs(1);
    beside_with(
        |config| config.sessions.authentication.timeout = short,
        |address| {
            let frame = fpdu(&untagged(0x41, 0x43, 0, 1, 0, &[1; 500]), false);
            let silent = [0, 1, 2, 19, 20, 21, 300].map(|cut| {
                let mut wire = Wire::connect(address, false);
                wire.send(&frame[..cut]);
                wire
            });
            silent.into_iter().for_each(|wire| assert_eq!(wire.ends(), None));
        },
    );
}

#[test]
fn segments_that_cannot_be_end_the_stream_with_their_reason() {
    beside(|address| {
        // Message 1 was the login.
        let mut wrong = Vec::new();
        for offence in offences(2) {
            for crc in [false, true].into_iter().filter(|crc| offence.is_one(*crc)) {
                let mut wire = Wire::logged_in(address, crc);
                wire.send(&offence.frame(crc));
                let said = wire.ends();
                if said != Some(offence.terminate) {
                    wrong.push((offence.what, crc, said));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}

#[test]
fn frames_too_short_for_any_header_end_the_stream() {
    beside(|address| {
        for length in 0..18 {
            for crc in [false, true] {
                let mut wire = Wire::logged_in(address, crc);
                let segment = untagged(0x41, 0x43, 0, 2, 0, b"");
                wire.segment(&segment[..length]);
                assert!(wire.ends().is_some(), "{length} bytes");
            }
        }
    });
}

#[test]
fn a_wrong_checksum_ends_the_stream() {
    beside(|address| {
        let null = encoded(0, 1, &Request::Null(Empty));
        let whole = fpdu(&untagged(0x41, 0x43, 0, 2, 0, &null), true);
        // Any byte of it: header, message, checksum.
        for at in (2..whole.len()).step_by(5) {
            let mut wire = Wire::logged_in(address, true);
            let mut frame = whole.clone();
            frame[at] ^= 0x10;
            wire.send(&frame);
            assert_eq!(wire.ends(), Some((2, 0, 2)), "byte {at}");
        }
    });
}

#[test]
fn more_reads_than_the_depth_end_the_stream() {
    beside(|address| {
        let mut wire = Wire::logged_in(address, false);
        let mut frames = Vec::new();
        for sequence in 1..200 {
            frames.extend(fpdu(&untagged(0x41, 0x41, 1, sequence, 0, &[0; 28]), false));
        }
        wire.send(&frames);
        assert!(wire.ends().is_some());
    });
}

#[test]
fn rubbish_in_a_standing_stream_ends_it() {
    beside(|address| {
        for seed in 0..100u64 {
            let crc = seed % 2 == 1;
            let mut wire = Wire::logged_in(address, crc);
            // Long enough for the longest frame that its first bytes may announce.
            wire.send(&pattern(70_000, seed));
            wire.ends();
        }
    });
}

#[test]
fn a_client_that_dies_within_a_frame_leaves_nothing() {
    beside(|address| {
        let null = encoded(0, 1, &Request::Null(Empty));
        let whole = fpdu(&untagged(0x41, 0x43, 0, 2, 0, &null), false);
        for cut in 0..whole.len() {
            let mut wire = Wire::logged_in(address, false);
            wire.send(&whole[..cut]);
        }
    });
}

#[test]
fn a_terminate_out_of_the_blue_ends_the_stream_without_an_answer() {
    beside(|address| {
        for body in [&[0x11, 0, 0, 0][..], &[0xff; 4], &[], &[0x12; 50]] {
            let mut wire = Wire::logged_in(address, false);
            wire.segment(&untagged(0x41, 0x47, 2, 1, 0, body));
            wire.ends();
        }
    });
}
