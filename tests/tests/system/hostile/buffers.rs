//! Tests memory that a client advertises but does not own, not fully or no longer.

use dafs_client::OpenOptions;
use dafs_dat::{Domain, EndpointConfig, Rights};
use dafs_memory::{Memory, Pages};
use dafs_types::{CacheHint, FileHandle, RmrContext, RmrTarget, Stability, StateId, Status};
use dafs_wire::messages::{GetAttributesDirect, ReadDirect, WriteDirect};
use dafs_wire::{AttributeBitmap, Checksum, DirectBuffer, DirectBuffers, Request};

use crate::bystander::beside_bystanders;
use crate::fixture::{Fixture, Transport, pattern};
use crate::rogue::Rogue;

const FILE_BYTES: usize = 64 << 10;

/// Starts a session with an open file of [`FILE_BYTES`].
fn prepared(fixture: &Fixture, transport: Transport) -> (Rogue, FileHandle, StateId) {
    std::fs::write(fixture.local("file"), pattern(FILE_BYTES, 5)).unwrap();
    let mut rogue = Rogue::logged_in(&fixture.address(transport));
    let (file, state) = rogue.open("file");
    (rogue, file, state)
}

fn reading(file: FileHandle, state: StateId, length: u32, buffers: &[DirectBuffer]) -> Request<'_> {
    let (hint, buffers) = (CacheHint::default(), DirectBuffers::from(buffers));
    Request::ReadDirect(ReadDirect { file, state, offset: 0, length, hint, buffers })
}

fn writing(file: FileHandle, state: StateId, length: u32, buffers: &[DirectBuffer]) -> Request<'_> {
    Request::WriteDirect(WriteDirect {
        file,
        state,
        offset: 0,
        length,
        stability: Stability::FileSync,
        hint: CacheHint::default(),
        checksum: Checksum::NONE,
        buffers: DirectBuffers::from(buffers),
    })
}

#[test]
fn a_region_is_found_behind_more_packets_than_one_turn_takes() {
    let fixture = Fixture::new();
    let (mut rogue, file, state) = prepared(&fixture, Transport::Shm);
    let memory = Memory::shared(4096, Pages::Small).unwrap();
    // The server handles the last one only after it has read all the others.
    let regions: Vec<_> = (0..500).map(|_| rogue.expose(&memory)).collect();
    for region in [&regions[499], &regions[250], &regions[0]] {
        let buffer = rogue.buffer(region, 0, 4096);
        assert_eq!(rogue.outcome(&reading(file, state, 4096, &[buffer])), Some(Status::Ok));
        assert!(memory.to_vec(0, 4096) == pattern(FILE_BYTES, 5)[..4096]);
        memory.write(0, &[0; 4096]);
    }
}

#[test]
fn memory_of_another_user_beyond_his_share_is_served_and_not_mapped() {
    use std::os::unix::fs::PermissionsExt;
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::new();
    let address = fixture.address(Transport::Shm);
    std::fs::write(fixture.local("file"), pattern(FILE_BYTES, 5)).unwrap();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(fixture.root(), 0o711);
    open(&fixture.root().join("socket"), 0o777);
    open(&fixture.local("file"), 0o666);
    // No page of it exists. Each page that a copy creates is charged to the copying thread.
    let info = rustix::system::sysinfo();
    let length = (info.totalram * info.mem_unit as u64 / 2) as usize;
    let own = Memory::shared(length, Pages::Small).unwrap();
    let mapped_before = mappings_of(length);
    let other = || {
        let user = rustix::process::Uid::from_raw(70_007);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut rogue = Rogue::logged_in(&address);
        let (file, state) = rogue.open("file");
        let region = rogue.expose(&own);
        let buffer = rogue.buffer(&region, length as u64 / 2, FILE_BYTES as u32);
        let request = reading(file, state, FILE_BYTES as u32, std::slice::from_ref(&buffer));
        assert_eq!(rogue.outcome(&request), Some(Status::Ok));
        assert_eq!(mappings_of(length), mapped_before);
    };
    std::thread::scope(|scope| scope.spawn(other).join().unwrap());
    assert!(own.to_vec(length / 2, FILE_BYTES) == pattern(FILE_BYTES, 5));
}

/// Returns the number of this process's mappings with this length.
fn mappings_of(length: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_so_long = |line: &&str| {
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        end - start >= length as u64 && line.contains("memfd:")
    };
    maps.lines().filter(is_so_long).count()
}

#[test]
fn what_was_damaged_on_its_way_never_reaches_the_file() {
    beside_bystanders(|fixture, transport| {
        let before = pattern(FILE_BYTES, 5);
        std::fs::write(fixture.local("file"), &before).unwrap();
        let mut rogue = Rogue::logged_in_sealed(&fixture.address(transport));
        let (file, state) = rogue.open("file");
        let own = Memory::shared(FILE_BYTES, Pages::Small).unwrap();
        let data = pattern(FILE_BYTES, 6);
        own.write(0, &data);
        let region = rogue.expose(&own);
        let (_, session) = fixture.connect(transport);
        let other = session.open("/file", &OpenOptions::read()).unwrap();
        let mut seen = vec![0; FILE_BYTES];
        // The last one is valid. The file is cached from the first one on.
        for (length, stability, is_damaged) in [
            (4096, Stability::Unstable, true),
            (FILE_BYTES as u32 - 1, Stability::Unstable, true),
            (FILE_BYTES as u32, Stability::FileSync, true),
            (FILE_BYTES as u32, Stability::FileSync, false),
        ] {
            assert_eq!(other.read_at(&mut seen, 0).unwrap(), FILE_BYTES);
            assert!(seen == before, "a damaged write shows");
            let mut sealed = data[..length as usize].to_vec();
            sealed[17] ^= u8::from(is_damaged);
            let (checksum, hint) = (Checksum::of(&sealed), CacheHint::default());
            let half = length / 2;
            let buffers = [(0, half), (half, length - half)]
                .map(|(from, length)| rogue.buffer(&region, u64::from(from), length));
            let buffers = DirectBuffers::from(&buffers[..]);
            let (offset, expected) = (0, if is_damaged { Status::Chksum } else { Status::Ok });
            let write =
                WriteDirect { file, state, offset, length, stability, hint, checksum, buffers };
            assert_eq!(rogue.outcome(&Request::WriteDirect(write)), Some(expected));
        }
        assert_eq!(other.read_at(&mut seen, 0).unwrap(), FILE_BYTES);
        assert!(seen == data && std::fs::read(fixture.local("file")).unwrap() == data);
    });
}

#[test]
fn large_writes_that_were_damaged_are_refused_however_many_wait_to_be_looked_at() {
    beside_bystanders(|fixture, transport| {
        const LENGTH: u32 = 1 << 20;
        const WRITES: u16 = 6;
        let before = pattern((LENGTH * u32::from(WRITES)) as usize, 5);
        std::fs::write(fixture.local("large"), &before).unwrap();
        let mut rogue = Rogue::logged_in_sealed(&fixture.address(transport));
        let (file, state) = rogue.open("large");
        let own = Memory::shared(LENGTH as usize, Pages::Small).unwrap();
        let data = pattern(LENGTH as usize, 6);
        own.write(0, &data);
        let region = rogue.expose(&own);
        let buffers = [rogue.buffer(&region, 0, LENGTH)];
        for number in 0..WRITES {
            let mut sealed = data.clone();
            sealed[LENGTH as usize - 1] ^= (number % 2) as u8;
            let write = WriteDirect {
                file,
                state,
                offset: u64::from(LENGTH) * u64::from(number),
                length: LENGTH,
                stability: Stability::Unstable,
                hint: CacheHint::default(),
                checksum: Checksum::of(&sealed),
                buffers: DirectBuffers::from(&buffers[..]),
            };
            let expected = if number % 2 == 0 { Status::Ok } else { Status::Chksum };
            assert_eq!(rogue.outcome(&Request::WriteDirect(write)), Some(expected), "{number}");
        }
        let (_, session) = fixture.connect(transport);
        let other = session.open("/large", &OpenOptions::read()).unwrap();
        let mut seen = vec![0; before.len()];
        assert_eq!(other.read_at(&mut seen, 0).unwrap(), before.len());
        let parts = seen.chunks(LENGTH as usize).zip(before.chunks(LENGTH as usize));
        for (number, (seen, before)) in parts.enumerate() {
            assert!(seen == if number % 2 == 0 { &data[..] } else { before }, "{number}");
        }
    });
}

/// The memory that a rogue client really has.
const OWN_BYTES: u32 = 16 << 10;

/// Advertises memory that `forge` makes from valid memory, for reading and for writing.
fn advertises(rights: Rights, forge: impl Fn(DirectBuffer) -> DirectBuffer) {
    beside_bystanders(|fixture, transport| {
        let before = pattern(FILE_BYTES, 5);
        for kind in 0..6 {
            let (mut rogue, file, state) = prepared(fixture, transport);
            let memory = if kind % 2 == 0 {
                Memory::shared(OWN_BYTES as usize, Pages::Small).unwrap()
            } else {
                Memory::from_heap(vec![0; OWN_BYTES as usize].into())
            };
            let region = rogue.interface.register(&memory, Domain(0), rights).unwrap();
            let forged = [forge(rogue.buffer(&region, 0, 4096))];
            let length = forged[0].length;
            let request = match kind / 2 {
                0 => reading(file, state, length, &forged),
                1 => writing(file, state, length, &forged),
                _ => {
                    let wanted = AttributeBitmap::of(5);
                    let forged = forged[0];
                    Request::GetAttrDirect(GetAttributesDirect { file, wanted, buffer: forged })
                }
            };
            rogue.request(0, 900, &request);
            rogue.ends();
            assert_eq!(memory.to_vec(0, OWN_BYTES as usize), vec![0; OWN_BYTES as usize]);
        }
        assert!(std::fs::read(fixture.local("file")).unwrap() == before, "the file has changed");
    });
}

/// Returns a buffer that begins this many bytes later.
fn moved(good: DirectBuffer, bytes: u64) -> DirectBuffer {
    DirectBuffer { target: RmrTarget(good.target.0.wrapping_add(bytes)), ..good }
}

#[test]
fn memory_that_was_never_registered_ends_the_connection() {
    advertises(Rights::REMOTE, |good| DirectBuffer {
        context: RmrContext(good.context.0 ^ 0xdead_be00),
        ..good
    });
}

#[test]
fn memory_beyond_its_end_ends_the_connection() {
    advertises(Rights::REMOTE, |good| moved(good, u64::from(OWN_BYTES) - 8));
}

#[test]
fn memory_before_its_beginning_ends_the_connection() {
    advertises(Rights::REMOTE, |good| moved(good, 1u64.wrapping_neg()));
}

#[test]
fn memory_around_the_end_of_all_addresses_ends_the_connection() {
    let target = RmrTarget(u64::MAX - 100);
    advertises(Rights::REMOTE, |good| DirectBuffer { target, ..good });
}

#[test]
fn memory_without_rights_ends_the_connection() {
    advertises(Rights::LOCAL, |good| good);
}

#[test]
fn memory_with_the_other_right_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        for is_read in [true, false] {
            let (mut rogue, file, state) = prepared(fixture, transport);
            let memory = Memory::shared(OWN_BYTES as usize, Pages::Small).unwrap();
            // A READ of the file writes this memory, and a WRITE reads it.
            let rights = Rights { remote_read: is_read, remote_write: !is_read };
            let region = rogue.interface.register(&memory, Domain(0), rights).unwrap();
            let buffers = [rogue.buffer(&region, 0, 4096)];
            let request = if is_read {
                reading(file, state, 4096, &buffers)
            } else {
                writing(file, state, 4096, &buffers)
            };
            rogue.request(0, 900, &request);
            rogue.ends();
            assert_eq!(memory.to_vec(0, OWN_BYTES as usize), vec![0; OWN_BYTES as usize]);
        }
        assert!(std::fs::read(fixture.local("file")).unwrap() == pattern(FILE_BYTES, 5));
    });
}

#[test]
fn memory_taken_back_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        let (mut rogue, file, state) = prepared(fixture, transport);
        let memory = Memory::shared(OWN_BYTES as usize, Pages::Small).unwrap();
        let region = rogue.expose(&memory);
        let buffers = [rogue.buffer(&region, 0, 4096)];
        assert_eq!(rogue.outcome(&reading(file, state, 4096, &buffers)), Some(Status::Ok));
        assert!(memory.to_vec(0, 4096) == pattern(FILE_BYTES, 5)[..4096]);
        memory.write(0, &[0; 4096]);
        rogue.interface.deregister(region.key);
        rogue.request(0, 900, &reading(file, state, 4096, &buffers));
        rogue.ends();
        assert_eq!(memory.to_vec(0, 4096), vec![0; 4096]);
    });
}

#[test]
fn buffers_that_do_not_fit_their_request_are_refused() {
    beside_bystanders(|fixture, transport| {
        let (mut rogue, file, state) = prepared(fixture, transport);
        let memory = Memory::shared(OWN_BYTES as usize, Pages::Small).unwrap();
        let region = rogue.expose(&memory);
        let too_small = [rogue.buffer(&region, 0, 100), rogue.buffer(&region, 100, 99)];
        let all_lengths = [rogue.buffer(&region, 0, u32::MAX), rogue.buffer(&region, 0, u32::MAX)];
        for (length, buffers) in
            [(200, &too_small[..]), (200, &too_small[..1]), (1, &[]), (u32::MAX, &all_lengths[..])]
        {
            let refused = [Status::TooSmall, Status::Inval];
            let status = rogue.outcome(&reading(file, state, length, buffers));
            assert!(status.is_some_and(|status| refused.contains(&status)), "{status:?}");
            let status = rogue.outcome(&writing(file, state, length, buffers));
            assert!(status.is_some_and(|status| refused.contains(&status)), "{status:?}");
        }
        // Many empty buffers are unusual but valid.
        let mut many = vec![rogue.buffer(&region, 0, 0); 40];
        many.push(rogue.buffer(&region, 0, 4096));
        assert_eq!(rogue.outcome(&reading(file, state, 4096, &many)), Some(Status::Ok));
        assert!(memory.to_vec(0, 4096) == pattern(FILE_BYTES, 5)[..4096]);
    });
}

#[test]
fn a_client_that_dies_amid_transfers_leaves_the_file_whole() {
    beside_bystanders(|fixture, transport| {
        let contents = pattern(8 << 20, 6);
        std::fs::write(fixture.local("large"), &contents).unwrap();
        for round in 0..12 {
            let config = EndpointConfig::default();
            let mut rogue = Rogue::connect_with(&fixture.address(transport), &config);
            rogue.log_in();
            let (file, state) = rogue.open("large");
            let memory = if round % 2 == 0 {
                Memory::shared(8 << 20, Pages::Small).unwrap()
            } else {
                Memory::anonymous(8 << 20, Pages::Small).unwrap()
            };
            memory.write(0, &contents);
            let region = rogue.expose(&memory);
            let buffers = [rogue.buffer(&region, 0, 8 << 20)];
            rogue.request(0, 900, &reading(file, state, 8 << 20, &buffers));
            rogue.request(1, 0, &writing(file, state, 8 << 20, &buffers));
            for _ in 0..round {
                rogue.interface.poll();
            }
        }
        let (_, honest) = fixture.connect(transport);
        let file = honest.open("/large", &dafs_client::OpenOptions::read()).unwrap();
        let mut bytes = vec![0; contents.len()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), contents.len());
        assert!(bytes == contents, "what was written was the same, so it is the same");
    });
}
