//! Offences by the thousand, and what the server's process holds afterwards.
//!
//! The server runs in a process of its own: this very program, started again. So its
//! descriptors, mappings and resident memory are nobody else's.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use dafs_dat::{Address, EndpointConfig};
use dafs_memory::{Memory, Pages};
use dafs_wire::Request;
use dafs_wire::messages::{Empty, SessionOptions};

use super::offences::offences;
use super::shm::{CAPACITY, Control, Rings, expose, hello};
use super::tcp::{DEPTH, Wire, enhanced, request};
use crate::bystander::{Bystanders, contents};
use crate::fixture::{BAD_FRAMES, Fixture, HANG, Transport, Watch, pattern};
use crate::rogue::{Rogue, connect_data};

/// A server in a process of its own.
struct Process {
    child: Child,
    /// Kept, so that it may go on writing.
    _output: BufReader<ChildStdout>,
    shm: Address,
    tcp: Address,
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    descriptors: usize,
    mappings: usize,
    anonymous_kib: u64,
}

impl Process {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["hostile::flood::the_process_of_a_server", "--exact", "--nocapture"])
            .env(SERVES, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let ready = output.by_ref().lines().map(Result::unwrap).find_map(|line| {
            let (_, addresses) = line.split_once(READY)?;
            let (tcp, shm) = addresses.split_once(' ')?;
            let tcp = Address::Tcp(tcp.strip_prefix("tcp:")?.parse().ok()?);
            Some((Address::Shm(PathBuf::from(shm.strip_prefix("shm:")?)), tcp))
        });
        let (shm, tcp) = ready.expect("a server");
        Self { child, _output: output, shm, tcp }
    }

    fn holdings(&self) -> Holdings {
        let place = Path::new("/proc").join(self.child.id().to_string());
        let text = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
        let status = text("status");
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        Holdings {
            descriptors: std::fs::read_dir(place.join("fd")).unwrap().count(),
            mappings: text("maps").lines().count(),
            anonymous_kib: anonymous.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its standard input is the server's end.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Not a test but what [`Process::start`] starts; without its word it does nothing.
#[test]
fn the_process_of_a_server() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::write(fixture.local("bystander"), contents()).unwrap();
    let (tcp, shm) = (fixture.address(Transport::Tcp), fixture.address(Transport::Shm));
    println!("{READY}{tcp} {shm}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Commits an offence again and again beside honest sessions: once to warm up, then many
/// times, and nothing has grown.
fn again_and_again(offend: impl Fn(&Process, u64)) {
    so_often(ROUNDS, offend);
}

fn so_often(rounds: u64, offend: impl Fn(&Process, u64)) {
    let _watch = Watch::start();
    let process = Process::start();
    let addresses = [process.shm.clone(), process.tcp.clone()];
    let mut bystanders = Bystanders::start(&addresses);
    (0..WARM_UP).for_each(|round| offend(&process, round));
    bystanders.go_on();
    let mut before = process.holdings();
    // The last rounds of the warm-up may not have ended yet: the least counts.
    for _ in 0..20 {
        bystanders.go_on();
        let now = process.holdings();
        before.descriptors = before.descriptors.min(now.descriptors);
        before.mappings = before.mappings.min(now.mappings);
    }
    (0..rounds).for_each(|round| offend(&process, round));
    let begun = Instant::now();
    let after = loop {
        bystanders.go_on();
        let after = process.holdings();
        let is_back = after.descriptors <= before.descriptors
            && after.mappings <= before.mappings + MAPPINGS_SLACK
            && after.anonymous_kib <= before.anonymous_kib + GROWTH_KIB;
        if is_back || begun.elapsed() > HANG {
            assert!(is_back, "before {before:?}, after {after:?}");
            break after;
        }
    };
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
        // Half a start, and gone.
        let whole = request(0x10, 2, &enhanced(DEPTH, &connect_data()));
        Wire::open(&process.tcp).send(&whole[..round as usize % whole.len()]);
        Control::connect(&process.shm).send(&hello(CAPACITY as u32), &[]);
    });
}

/// Every kind of bad frame, and each has its answer. A million of them takes minutes:
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
        // Two names: who asks over TCP is nobody the server knows, and a name may still be
        // in use by the user whose connection has only just gone.
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
        rings.header(pattern(8, round).iter().fold(0, |bits, octet| bits << 8 | u64::from(*octet)));
        let mut wire = Wire::logged_in(&process.tcp, round % 2 == 0);
        wire.send(&pattern(3000, round));
    });
}

const WARM_UP: u64 = 200;
const ROUNDS: u64 = 1500;
/// Mappings that an allocator may make at any time.
const MAPPINGS_SLACK: usize = 16;
/// A leak of one KiB in a round would show; what an allocator keeps is much less.
const GROWTH_KIB: u64 = 1 << 10;
/// Tells the program that it is to be a server.
const SERVES: &str = "DAFS_TEST_SERVES";
const READY: &str = "ready: ";
