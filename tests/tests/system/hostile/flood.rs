//! Repeats offences thousands of times, and checks what the server's process holds afterwards.

use dafs_dat::EndpointConfig;
use dafs_memory::{Memory, Pages};
use dafs_wire::Request;
use dafs_wire::messages::{Empty, SessionOptions};

use super::offences::offences;
use super::process::Process;
use super::shm::{CAPACITY, Control, Rings, expose, hello};
use super::tcp::{DEPTH, Wire, enhanced, request};
use crate::fixture::{Watch, pattern};
use crate::rogue::{Rogue, connect_data};

/// Repeats an offence with honest sessions running: first to warm up, then many times, after which
/// the server must not have grown.
fn again_and_again(offend: impl Fn(&Process, u64)) {
    so_often(ROUNDS, offend);
}

fn so_often(rounds: u64, offend: impl Fn(&Process, u64)) {
    let watch = Watch::start();
    let mut process = Process::start();
    let mut bystanders = process.bystanders();
    let repeat = |process: &mut Process, count: u64| {
        for round in 0..count {
            offend(process, round);
            // The total time does not matter: the test hangs if no further offence completes.
            watch.goes_on();
            process.goes_on();
        }
    };
    repeat(&mut process, WARM_UP);
    let before = process.holdings_at_rest(&mut bystanders);
    repeat(&mut process, rounds);
    let after = process.comes_back_to(&before, &mut bystanders);
    eprintln!("before {before:?}, after {after:?}");
}

#[test]
fn garbage_over_the_transports_own_ways() {
    again_and_again(|process, round| {
        for address in [&process.shm, &process.tcp] {
            let mut rogue = Rogue::connect(address);
            rogue.send(&pattern(1 + round as usize % 4000, round));
            if round % 2 == 0 {
                rogue.ends();
            }
        }
    });
}

#[test]
fn rubbish_on_bare_sockets() {
    again_and_again(|process, round| {
        let rubbish = pattern(1 + (round as usize * 31) % 900, round);
        Control::connect(&process.shm).send(&rubbish, &[]);
        let mut wire = Wire::open(&process.tcp);
        wire.send(&rubbish);
        // Part of a start-up frame, then the connection is closed.
        let whole = request(0x10, 2, &enhanced(DEPTH, &connect_data()));
        Wire::open(&process.tcp).send(&whole[..round as usize % whole.len()]);
        Control::connect(&process.shm).send(&hello(CAPACITY as u32), &[]);
    });
}

/// Sends every kind of bad frame and expects the right reply. A million takes minutes:
/// `DAFS_BAD_FRAMES=1000000`, as `make test-interop` does.
#[test]
fn bad_frames() {
    let count = std::env::var(BAD_FRAMES).map_or(ROUNDS, |count| count.parse().unwrap());
    let offences = offences(1);
    so_often(count, |process, round| {
        let crc = round % 2 == 0;
        let mut possible = offences.iter().filter(|offence| offence.is_one(crc)).cycle();
        let offence = possible.nth(round as usize / 2 % offences.len()).unwrap();
        let mut wire = Wire::connect(&process.tcp, crc);
        wire.send(&offence.frame(crc));
        assert_eq!(wire.ends(), Some(offence.terminate), "{} in round {round}", offence.what);
    });
}

#[test]
fn sessions_that_die_with_all_they_have() {
    again_and_again(|process, round| {
        // Two names: a TCP client is an unknown user, and a name may still be in use by the user
        // whose connection has just ended.
        for (address, name) in [(&process.shm, b"near"), (&process.tcp, b"away")] {
            let config = EndpointConfig::default();
            let mut rogue = Rogue::connect_with(address, &config);
            rogue.log_in_as(name, SessionOptions::default());
            rogue.open("bystander");
            let memory = Memory::shared(1 << 20, Pages::Small).unwrap();
            rogue.expose(&memory);
            for stream in 1..8 {
                rogue.request(stream, round as u16, &Request::GetRootHandle(Empty));
            }
        }
    });
}

#[test]
fn rings_and_regions_of_liars() {
    again_and_again(|process, round| {
        let mut rings = Rings::logged_in(&process.shm);
        let memory = Memory::shared(1 << 20, Pages::Small).unwrap();
        for stag in 0..32 {
            let file = memory.file().unwrap();
            rings.control.send(&expose(stag, 0x1000, 1 << 20), &[file, file, file]);
        }
        rings.header(pattern(8, round).iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
        let mut wire = Wire::logged_in(&process.tcp, round % 2 == 0);
        wire.send(&pattern(3000, round));
    });
}

const WARM_UP: u64 = 200;
const ROUNDS: u64 = 1500;
/// The number of bad frames, if it differs from that of `make test`.
const BAD_FRAMES: &str = "DAFS_BAD_FRAMES";
