//! The application's own memory: registered permanently by its owner, or lent to RDMA devices by
//! plain reads and writes.
//!
//! Tests that need a device run if `DAFS_VERBS_ADDRESS` is the IP address of one.

#[path = "../benches/common/mod.rs"]
mod common;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Served, config};
use dafs_client::{
    CacheCounters, CacheLimits, Client, ClientConfig, File, Memory, OpenOptions, OwnMemory,
    SessionOptions, TrustedPeers,
};
use tempfile::TempDir;

const LENGTH: usize = 300_000;
/// The smallest number of reads of one thread, however slow they are.
const ROUNDS_MIN: usize = 40;

fn cached(limits: CacheLimits) -> OwnMemory {
    // SAFETY: the tests' servers use registered memory only for the requests that name it.
    OwnMemory::Cached(limits, unsafe { TrustedPeers::new() })
}

fn serve(transport: &str) -> (TempDir, Served) {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start(place.path(), &config(place.path(), transport).unwrap()).unwrap();
    (place, served)
}

/// Starts a server on a device; prints a note and returns `None` without one.
fn serve_by_device() -> Option<(TempDir, Served)> {
    if std::env::var_os("DAFS_VERBS_ADDRESS").is_none() {
        dafs_tests::skip("DAFS_VERBS_ADDRESS names no RDMA device by its IP address");
        return None;
    }
    Some(serve("verbs"))
}

fn open(served: &Served, own_memory: OwnMemory, name: &str) -> (Client, File) {
    let client = Client::new(ClientConfig::default().own_memory(own_memory)).unwrap();
    let session = client.connect_to(&served.address, &SessionOptions::default()).unwrap();
    let file = session.open(name, &OpenOptions::write()).unwrap();
    (client, file)
}

fn content_of(seed: usize) -> Vec<u8> {
    (0..LENGTH).map(|index| (index / 7 + seed * 31) as u8).collect()
}

/// Writes and reads with the same memory, a few times. Returns the counters of registrations.
fn use_memory(served: &Served, own_memory: OwnMemory) -> CacheCounters {
    let (client, file) = open(served, own_memory, "/used");
    let mut bytes = vec![0; LENGTH];
    for round in 0..4 {
        bytes.copy_from_slice(&content_of(round));
        file.write_at(&bytes, 1000).unwrap();
        bytes.fill(0);
        // Not up to the end of the slice, which is beyond the end of the file.
        assert_eq!(file.read_at(&mut bytes, 1500).unwrap(), LENGTH - 500);
        assert_eq!(bytes[..LENGTH - 500], content_of(round)[500..]);
        assert!(bytes[LENGTH - 500..].iter().all(|byte| *byte == 0));
    }
    client.own_memory_counters()
}

#[test]
fn without_a_device_slices_are_copied() {
    for transport in ["shm", "tcp"] {
        let (_place, served) = serve(transport);
        let counters = use_memory(&served, cached(CacheLimits::default()));
        assert_eq!(counters, CacheCounters::default());
    }
}

#[test]
fn memory_of_an_owner_is_read_into_and_written_from() {
    for transport in ["shm", "tcp", "verbs"] {
        if transport == "verbs" && std::env::var_os("DAFS_VERBS_ADDRESS").is_none() {
            dafs_tests::skip_part("DAFS_VERBS_ADDRESS names no RDMA device by its IP address");
            continue;
        }
        let (_place, served) = serve(transport);
        let (client, file) = open(&served, OwnMemory::Copied, "/owned");
        file.write_at(&content_of(1), 0).unwrap();
        let owner = Arc::new(());
        let mut bytes = vec![0; LENGTH];
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the bytes outlive the owner, and nothing reads them before it is gone.
        let memory = unsafe { Memory::of_owner(base, LENGTH, Box::new(Arc::clone(&owner))) };
        let buffer = client.register_memory(memory).unwrap();
        let read = file.read_into(100, buffer.slice(0, LENGTH - 100).unwrap()).unwrap();
        assert_eq!(read.length as usize, LENGTH - 100);
        file.write_from(LENGTH as u64, buffer.slice(0, 5000).unwrap()).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(buffer);
        assert_eq!(Arc::strong_count(&owner), 1, "somebody still has the memory");
        assert_eq!(bytes[..LENGTH - 100], content_of(1)[100..]);
        let mut written = vec![0; 5000];
        assert_eq!(file.read_at(&mut written, LENGTH as u64).unwrap(), 5000);
        assert_eq!(written, bytes[..5000]);
    }
}

#[test]
fn slices_are_registered_for_each_call_or_stay_so() {
    let Some((_place, served)) = serve_by_device() else { return };
    let each = use_memory(&served, OwnMemory::Registered);
    assert_eq!((each.hits, each.misses, each.passing, each.entries), (0, 8, 8, 0));
    let kept = use_memory(&served, cached(CacheLimits::default()));
    // Registered once for reading and once for writing; again if other tests changed memory.
    assert_eq!(kept.hits + kept.misses, 8);
    assert!(kept.misses - kept.passing == 2 && kept.entries == 2, "{kept:?}");
    let follows = CacheLimits::default().on_demand(true);
    // Applies both if the device follows changes of memory and if it does not.
    let followed = use_memory(&served, cached(follows));
    assert_eq!(followed.hits + followed.misses, 8);
    assert_eq!(use_memory(&served, OwnMemory::Copied), CacheCounters::default());
}

#[test]
fn a_call_that_fails_leaves_nothing_registered() {
    let Some((_place, served)) = serve_by_device() else { return };
    let (client, file) = open(&served, cached(CacheLimits::default()), "/failing");
    let mut bytes = vec![0; LENGTH];
    file.write_at(&bytes, 0).unwrap();
    let before = client.own_memory_counters().entries;
    let reader = file.session().reader(file.session().root(), "/");
    assert!(reader.read_at(&mut bytes, 0).is_err(), "a directory was read");
    assert_eq!(client.own_memory_counters().entries, before);
}

/// Several threads allocate and free buffers whose addresses are reused: each read still returns
/// the file's bytes.
#[test]
fn no_read_goes_to_memory_that_has_gone() {
    let Some((_place, served)) = serve_by_device() else { return };
    let seconds = std::env::var("DAFS_STRESS_SECONDS").map_or(3, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let limits = CacheLimits::default().entries_max(16).checks_pages(true);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let served = &served;
            scope.spawn(move || {
                let (client, file) = open(served, cached(limits), &format!("/file{number}"));
                let content = content_of(number);
                file.write_at(&content, 0).unwrap();
                let mut kept: Vec<Vec<u8>> = Vec::new();
                let mut round = 0;
                while round < ROUNDS_MIN || Instant::now() < until {
                    round += 1;
                    let offset = round * 997 % 100_000;
                    // Each buffer is used several times, and freed after three others were
                    // allocated.
                    if round % 3 == 0 || kept.is_empty() {
                        kept.insert(0, vec![0; LENGTH - 100_000 + round % 7 * 4096]);
                        kept.truncate(3);
                    }
                    let index = round % kept.len();
                    let bytes = &mut kept[index];
                    bytes.fill(0);
                    let read = file.read_at(bytes, offset as u64).unwrap();
                    assert_eq!(bytes[..read], content[offset..offset + read]);
                }
                eprintln!("{:?}", client.own_memory_counters());
            });
        }
    });
}
