//! Tests invalid packets on the Unix socket of shared memory, and invalid memory files.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_dat::Address;
use dafs_memory::{Memory, Pages};
use dafs_server::ServerConfig;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::SealFlags;

use super::shm::{
    CAPACITY, Control, FRAMES, RING_BYTES, Rings, borrowed, expose, hello, memory_file,
};
use crate::bystander::beside_bystanders_of;
use crate::fixture::{Ending, Fixture, HANG, Transport, pattern};
use crate::rogue::encoded;

/// Long enough for honest clients.
const SHORT: Duration = Duration::from_secs(1);

/// Runs a case against the Unix socket, with honest sessions that must continue.
fn beside(case: impl FnOnce(&Fixture, &Address)) {
    beside_with(|_| {}, case);
}

fn beside_with(change: impl FnOnce(&mut ServerConfig), case: impl FnOnce(&Fixture, &Address)) {
    beside_bystanders_of(change, |fixture| case(fixture, &fixture.address(Transport::Shm)));
}

#[test]
fn rubbish_before_the_first_word_ends_the_connection() {
    beside(|_, address| {
        for seed in 0..200u64 {
            let rubbish = pattern(1 + (seed as usize * 37) % 1900, seed);
            let control = Control::connect(address);
            control.send(&rubbish, &[]);
            control.ends();
        }
        // Each kind of packet, truncated, out of order, or without its descriptors.
        for kind in 0..=255 {
            for length in [1, 2, 9, 22, 1024, 1025] {
                let control = Control::connect(address);
                let mut packet = hello(CAPACITY as u32);
                packet.resize(length, 0);
                packet[0] = kind;
                control.send(&packet, &[]);
                control.ends();
            }
        }
    });
}

#[test]
fn a_ring_of_impossible_size_ends_the_connection() {
    beside(|_, address| {
        let memory = Memory::shared(RING_BYTES, Pages::Small).unwrap();
        for capacity in [0, 1, 64, 4096, 65_535, 65_537, 1 << 17, 1 << 22, 1 << 31, u32::MAX] {
            let control = Control::connect(address);
            control.send(&hello(capacity), &[memory.file().unwrap()]);
            control.ends();
        }
    });
}

#[test]
fn a_ring_in_what_is_no_sealed_memory_file_ends_the_connection() {
    beside(|fixture, address| {
        let plain = std::fs::File::create(fixture.root().join("plain")).unwrap();
        plain.set_len(RING_BYTES as u64).unwrap();
        let null = std::fs::File::open("/dev/zero").unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let bytes = RING_BYTES as u64;
        let wrong: Vec<OwnedFd> = vec![
            plain.into(),
            null.into(),
            reader,
            writer,
            memory_file(bytes, SealFlags::empty()),
            memory_file(bytes, SealFlags::GROW),
            memory_file(bytes - 4096, SealFlags::SHRINK),
            memory_file(0, SealFlags::SHRINK),
            memory_file(bytes, SealFlags::SHRINK | SealFlags::WRITE),
        ];
        for file in &wrong {
            let control = Control::connect(address);
            control.send(&hello(CAPACITY as u32), &[file.as_fd()]);
            control.ends();
        }
    });
}

#[test]
fn packets_out_of_place_end_a_standing_connection() {
    beside(|_, address| {
        let ring = Memory::shared(RING_BYTES, Pages::Small).unwrap();
        let packets: Vec<Vec<u8>> = vec![
            hello(CAPACITY as u32),
            vec![2, 1],
            vec![3],
            vec![0],
            vec![7],
            vec![255; 1000],
            expose(1, 0, 10)[..20].to_vec(),
            vec![5, 1, 2],
            b"\x06said by the peer".to_vec(),
        ];
        for packet in packets {
            for count in 0..3 {
                let rings = Rings::logged_in(address);
                let fds = vec![ring.file().unwrap(); count];
                rings.control.send(&packet, &fds);
                rings.ends();
            }
        }
    });
}

#[test]
fn regions_that_cannot_be_end_the_connection() {
    beside(|_, address| {
        let sealed = memory_file(64 << 10, SealFlags::SHRINK);
        let unsealed = memory_file(64 << 10, SealFlags::empty());
        let read_only = memory_file(64 << 10, SealFlags::SHRINK | SealFlags::WRITE);
        let cases: Vec<(Vec<u8>, Option<&OwnedFd>)> = vec![
            (expose(256, 0x1000, (64 << 10) + 1), Some(&sealed)),
            (expose(256, 0x1000, 1 << 40), Some(&sealed)),
            (expose(256, 0x1000, u64::MAX), Some(&sealed)),
            (expose(256, u64::MAX, 4096), Some(&sealed)),
            (expose(256, u64::MAX, 4096), None),
            (expose(256, 0x1000, 0), Some(&sealed)),
            (expose(256, 0x1000, 64 << 10), Some(&unsealed)),
            (expose(256, 0x1000, 64 << 10), Some(&read_only)),
        ];
        for (packet, file) in cases {
            let rings = Rings::logged_in(address);
            let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
            rings.control.send(&packet, &fds);
            rings.ends();
        }
        // A duplicate name, and more regions than a peer may have.
        let rings = Rings::logged_in(address);
        rings.control.send(&expose(256, 0x1000, 4096), &[]);
        rings.control.send(&expose(256, 0x9000, 4096), &[]);
        rings.ends();
        let rings = Rings::logged_in(address);
        for number in 0..1025 {
            rings.control.send(&expose(number, 0x1000, 4096), &[sealed.as_fd()]);
        }
        rings.ends();
    });
}

#[test]
fn descriptors_that_nobody_asked_for_end_the_connection_and_are_closed() {
    beside(|_, address| {
        let files: Vec<OwnedFd> = (0..8).map(|_| memory_file(10, SealFlags::SHRINK)).collect();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut fds = borrowed(&files);
        fds.push(writer.as_fd());
        // With each packet, and with more than one packet has; before and after the start.
        for count in 1..=8 {
            let rings = Rings::logged_in(address);
            rings.control.send(&[5, 1, 0, 0, 0], &fds[9 - count..]);
            rings.ends();
            let control = Control::connect(address);
            control.send(&hello(CAPACITY as u32), &fds[9 - count..]);
            control.ends();
        }
        let rings = Rings::logged_in(address);
        rings.control.send(&[5, 1, 0, 0, 0], &fds[..1]);
        rings.ends();
        drop(writer);
        // The pipe ends when no process, including the server, has its writing end.
        let mut end = [PollFd::new(&reader, PollFlags::empty())];
        let hang = HANG.try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut end, Some(&hang)).unwrap(), 1, "it stays open");
        assert!(end[0].revents().contains(PollFlags::HUP));
    });
}

#[test]
fn a_flood_of_regions_of_who_has_not_logged_in_keeps_nobody_waiting() {
    beside(|fixture, address| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ending = Ending(&stop);
            for _ in 0..3 {
                scope.spawn(|| {
                    let rings = Rings::connect(address);
                    let file = memory_file(64 << 20, SealFlags::SHRINK);
                    while !stop.load(Ordering::Acquire) {
                        rings.control.send(&expose(256, 0x1000, 64 << 20), &[file.as_fd()]);
                        rings.control.send(&[5, 0, 1, 0, 0], &[]);
                    }
                });
            }
            for _ in 0..20 {
                for transport in [Transport::Shm, Transport::Tcp] {
                    let (_, honest) = fixture.connect(transport);
                    honest.ping().unwrap();
                }
            }
        });
    });
}

#[test]
fn memory_on_huge_pages_ends_the_connection_and_leaves_nothing_mapped() {
    use rustix::fs::MemfdFlags;
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // A kernel without huge pages does not support such files.
    let Ok(file) = rustix::fs::memfd_create("huge rogue", flags) else { return };
    rustix::fs::ftruncate(&file, HUGE).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    beside(|_, address| {
        for length in [4096, HUGE - 4096, HUGE] {
            let rings = Rings::logged_in(address);
            rings.control.send(&expose(256, 0x20_0000, length), &[file.as_fd()]);
            // Where no huge pages are reserved, they cannot be mapped anyway.
            let reason = rings.control.ends_because();
            assert!(reason.contains("huge pages"), "{reason:?}");
        }
        let control = Control::connect(address);
        control.send(&hello(CAPACITY as u32), &[file.as_fd()]);
        let reason = control.ends_because();
        assert!(reason.contains("huge pages"), "{reason:?}");
    });
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("huge rogue"), "{maps}");
}

#[test]
fn memory_in_use_cannot_be_cut_and_may_be_emptied() {
    beside(|_, address| {
        let mut rings = Rings::logged_in(address);
        let file = rings.memory.file().unwrap();
        assert!(rustix::fs::ftruncate(file, 0).is_err(), "a sealed file was cut");
        assert!(rustix::fs::ftruncate(file, 4096).is_err(), "a sealed file was cut");
        // Holes in it read as zeros: they are no frames, and harm only the client.
        let mode = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, mode, 0, RING_BYTES as u64).unwrap();
        rings.wake();
        rings.header(0xf | 1 << 4);
        rings.ends();
        assert_eq!(rings.memory.to_vec(FRAMES + CAPACITY, 8), [0; 8]);
    });
}

#[test]
fn a_wake_up_that_would_block_stalls_nobody() {
    use rustix::fs::OFlags;
    beside(|fixture, address| {
        let mut rings = Rings::logged_in(address);
        for wake in &rings.wakes {
            let flags = rustix::fs::fcntl_getfl(wake).unwrap();
            rustix::fs::fcntl_setfl(wake, flags - OFlags::NONBLOCK).unwrap();
        }
        // The counter is full: a write to it without a check would block.
        rustix::fs::fcntl_setfl(&rings.wakes[0], OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::write(&rings.wakes[0], &(u64::MAX - 2).to_ne_bytes());
        while rustix::io::write(&rings.wakes[0], &1u64.to_ne_bytes()).is_ok() {}
        rustix::fs::fcntl_setfl(&rings.wakes[0], OFlags::empty()).unwrap();
        let brim = rustix::io::write(&rings.wakes[1], &1u64.to_ne_bytes());
        assert!(brim.is_err(), "what wakes us cannot be written to");
        // This side sleeps from the first message on, so each reply must wake it.
        for round in 1..50u16 {
            rings.set_word(super::shm::BACK + 128, 1);
            let null = dafs_wire::Request::Null(dafs_wire::messages::Empty);
            rings.put_message(&encoded(0, round, &null));
            // The counter is full, so only a packet makes the server check the ring.
            rings.control.send(&[5, 1, 0, 0, 0], &[]);
            rings.await_answers(usize::from(round) + 1);
            let (_, honest) = fixture.connect(Transport::Shm);
            honest.ping().unwrap();
        }
    });
}

#[test]
fn silent_connections_keep_nobody_out_however_many_they_are() {
    // There is room for 72 connections.
    let few = |config: &mut ServerConfig| config.sessions.channels_max = 8;
    beside_with(few, |fixture, address| {
        let _silent: Vec<Control> = (0..200).map(|_| Control::connect(address)).collect();
        for transport in [Transport::Shm, Transport::Tcp] {
            let (_, honest) = fixture.connect(transport);
            honest.ping().unwrap();
        }
    });
}

#[test]
fn a_connection_that_says_nothing_is_ended() {
    beside_with(
        |config| config.patience.connect = SHORT,
        |_, address| {
            let silent: Vec<Control> = (0..20).map(|_| Control::connect(address)).collect();
            silent.iter().for_each(Control::ends);
        },
    );
}

#[test]
fn a_session_that_never_logs_in_is_ended() {
    beside_with(
        |config| config.sessions.authentication.timeout = SHORT,
        |_, address| {
            let silent: Vec<Rings> = (0..20).map(|_| Rings::connect(address)).collect();
            silent.iter().for_each(Rings::ends);
        },
    );
}
