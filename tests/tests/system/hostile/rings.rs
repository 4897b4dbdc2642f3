//! Tests a client that overwrites the rings it shares with the server.

use std::sync::atomic::{AtomicBool, Ordering};

use dafs_dat::Address;
use dafs_wire::Request;
use dafs_wire::messages::Empty;

use super::shm::{BACK, CAPACITY, FRAMES, RING_BYTES, Rings};
use crate::bystander::beside_bystanders_of;
use crate::fixture::{Ending, Fixture, Transport, pattern, transports};
use crate::rogue::encoded;

const SEND: u64 = 1;
const WRITE: u64 = 2;
const READ_REQUEST: u64 = 3;
const READ_RESPONSE: u64 = 4;
const DELTA: u64 = 5;
const WRAP: u64 = 6;

/// Runs a case over shared memory, with honest sessions that must continue.
fn beside(case: impl FnOnce(&Address)) {
    beside_bystanders_of(|_| {}, |fixture| case(&fixture.address(Transport::Shm)));
}

#[test]
fn frames_that_cannot_be_end_the_connection() {
    beside(|address| {
        let too_long = CAPACITY as u64;
        let frames: Vec<(u64, u64, u64, Vec<u8>)> = vec![
            // An unknown kind.
            (0, 10, 0, vec![]),
            (7, 10, 0, vec![]),
            (15, 0, 0, vec![]),
            // Longer than the rest of the ring, than the ring, and than any receive.
            (SEND, too_long, 0, vec![]),
            (SEND, 0xf_ffff, 0, vec![]),
            (SEND, 5000, 0, vec![1; 5000]),
            (SEND, 0, 0, vec![]),
            (SEND, 300, 0, vec![0xa5; 300]),
            // A message that invalidates a region which the server never exposed.
            (SEND, 300, 0x100, vec![0xa5; 300]),
            // The server exposes nothing: neither writes nor reads may reach any memory.
            (WRITE, 7, 0x101, vec![0; 8]),
            (WRITE, 100, 0x101, vec![0; 100]),
            (WRITE, 8, 0x101, vec![0xff; 8]),
            (READ_REQUEST, 11, 0x101, vec![0; 12]),
            (READ_REQUEST, 12, 0x101, vec![0; 12]),
            (READ_REQUEST, 12, 0x101, vec![0xff; 12]),
            (READ_RESPONSE, 0, 0, vec![]),
            (READ_RESPONSE, 100, 0, vec![0; 100]),
            // A difference from a message of another length, or beyond its end.
            (DELTA, 7, 0, vec![0xff; 56]),
            (DELTA, 0xf_ffff, 0, vec![0xff; 56]),
            (DELTA, 0, 0, vec![0; 56]),
            (WRAP, 0, 0, vec![]),
        ];
        for (kind, length, word, body) in frames {
            let mut fresh = Rings::connect(address);
            // At the very beginning a wrap marker is invalid; later it is valid.
            fresh.frame(kind, length, word, &body, 64);
            fresh.ends();
            let mut rings = Rings::logged_in(address);
            if kind != WRAP && kind != 0 {
                rings.frame(kind, length, word, &body, 64);
                rings.ends();
            }
        }
    });
}

#[test]
fn more_reads_than_may_be_open_end_the_connection() {
    beside(|address| {
        let mut rings = Rings::logged_in(address);
        for _ in 0..500 {
            rings.put_frame(READ_REQUEST, 12, 0x101, &[0; 12], 64);
        }
        rings.wake();
        rings.ends();
    });
}

#[test]
fn a_ring_wrapped_for_ever_stalls_nobody() {
    beside(|address| {
        let mut rings = Rings::logged_in(address);
        // Lap after lap with one short message each, as fast as the server follows, until the lap
        // numbers repeat. Every reply takes one line.
        for round in 1..2000u16 {
            rings.message(&encoded(0, round, &Request::Null(Empty)));
            rings.await_announced(u64::from(round) + 1);
            rings.give_back(u64::from(round) * 64);
            rings.put_wrap();
        }
        let lap = rings.lap();
        rings.header(0xf | lap << 4);
        rings.ends();
    });
}

#[test]
fn words_that_lie_harm_their_own_connection_alone() {
    beside(|address| {
        for value in [u64::MAX, u64::MAX - 63, 1 << 63, 1 << 20, 64, 1, 0] {
            let mut rings = Rings::logged_in(address);
            // Every word of both directions: heads, counts, wakeups, revisions.
            for at in (0..FRAMES).step_by(8) {
                rings.set_word(at, value);
            }
            for round in 1..100u16 {
                rings.put_message(&encoded(0, round, &Request::Null(Empty)));
                rings.wake();
                rings.set_word(BACK, value.wrapping_mul(u64::from(round)));
                rings.set_word(BACK + 128, value);
            }
        }
    });
}

#[test]
fn a_count_that_lies_keeps_nobody_awake() {
    // There is no other client over shared memory: data on sockets must be noticed all the same.
    let fixture = Fixture::new();
    let rings = Rings::logged_in(&fixture.address(Transport::Shm));
    // Endless messages are announced to a sleeping server, but there is none.
    rings.set_word(256, u64::MAX / 4);
    rings.wake();
    for transport in transports() {
        let (_, honest) = fixture.connect(transport);
        honest.ping().unwrap();
    }
}

#[test]
fn a_server_that_is_never_read_from_stops_answering_that_client() {
    beside(|address| {
        // The head never moves: the ring fills up with replies and stays full.
        let mut rings = Rings::logged_in(address);
        for round in 1..3000u16 {
            let at = rings.position();
            if at + 256 > CAPACITY {
                break;
            }
            rings.message(&encoded(0, round, &Request::Null(Empty)));
        }
    });
}

#[test]
fn scribbling_everywhere_at_random_harms_nobody_else() {
    beside(|address| {
        for seed in 0..150u64 {
            let mut rings = Rings::logged_in(address);
            let rubbish = pattern(RING_BYTES, seed);
            let (start, length) = match seed % 3 {
                0 => (0, RING_BYTES),
                1 => (0, FRAMES),
                _ => (FRAMES, CAPACITY),
            };
            rings.memory.write(start, &rubbish[start..start + length]);
            rings.wake();
            // Also while the server reads it.
            for round in 0..20u64 {
                let lap = rings.lap();
                let bits = (seed * 77 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                rings.header(bits & !0xff0 | lap << 4);
            }
        }
    });
}

#[test]
fn a_message_that_changes_under_the_server_is_read_once() {
    beside(|address| {
        let mut rings = Rings::logged_in(address);
        let good = encoded(0, 1, &Request::Null(Empty));
        let memory = rings.memory.clone();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ending = Ending(&is_done);
            scope.spawn(|| {
                let rubbish = pattern(4096, 3);
                let mut at = 0;
                while !is_done.load(Ordering::Acquire) {
                    memory.write(FRAMES + 8 + at % 8192, &rubbish[..56]);
                    at += 64;
                }
            });
            for _ in 0..200 {
                if rings.position() + 256 > CAPACITY {
                    break;
                }
                rings.message(&good);
            }
        });
    });
}
