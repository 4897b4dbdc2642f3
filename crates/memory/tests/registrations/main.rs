//! Several threads map, register, unmap and map memory again, while a device moves bytes through
//! the registrations. No thread may ever see the bytes of another mapping.
//!
//! `DAFS_STRESS_SECONDS` sets the duration; the default is three seconds.

mod ring;

use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dafs_memory::registrations::{Made, Purpose, Wanted};
use dafs_memory::{CacheLimits, PAGE_BYTES, RegistrationCache, WatchError, Watched};
use dafs_types::Random;

use crate::ring::{Device, Registered};

const THREADS: usize = 4;
/// The number of mappings of one thread.
const MAPPINGS: usize = 6;
const PAGES_MAX: usize = 48;

/// A mapping, with the contents of each of its pages.
struct Mapping {
    address: usize,
    pages: Vec<u64>,
}

/// A device, the cache of its registrations, and mappings that move from thread to thread.
struct Setting {
    device: Device,
    cache: Mutex<RegistrationCache<Registered>>,
    exchange: Mutex<Vec<Mapping>>,
}

struct Worker<'s> {
    setting: &'s Setting,
    dice: Random,
    mappings: Vec<Mapping>,
    file: File,
    /// The contents of the next filled pages; never the same twice.
    stamp: u64,
}

/// Returns a setting. Prints a message and returns `None` if the kernel lacks a feature.
fn setting(limits: CacheLimits) -> Option<Setting> {
    let probe = Mapping::new(1);
    let watched = Watched::new(probe.address, PAGE_BYTES);
    if let Err(WatchError::Unavailable { source }) = watched {
        dafs_tests::skip(format_args!("this kernel watches no memory: {source}"));
        return None;
    }
    match Device::new() {
        Ok(device) => {
            let cache = Mutex::new(RegistrationCache::new(limits));
            Some(Setting { device, cache, exchange: Mutex::default() })
        }
        Err(error) => {
            dafs_tests::skip(format_args!("this kernel has no io_uring: {error}"));
            None
        }
    }
}

impl Setting {
    /// Makes the device fill a range from a file, or the file from the range.
    fn transfer(&self, file: &File, address: usize, length: usize, is_read: bool) {
        let purpose = Purpose { device: 0, rights: u32::from(is_read) };
        let wanted = Wanted { purpose, address, length };
        // The lock is held while the device works, so that no registration is revoked meanwhile.
        let mut cache = self.cache.lock().unwrap();
        let register = || {
            let registration = self.device.register(address, length)?;
            Ok(Made { registration, follows_memory: false })
        };
        let of = cache.begin(wanted, register).unwrap();
        cache.registration(&of).unwrap().transfer(file, address, length, is_read);
        cache.end(of);
    }
}

impl Worker<'_> {
    fn step(&mut self) {
        let index = self.dice.below(MAPPINGS);
        match self.dice.below(32) {
            0..=11 => self.read(index),
            12..=17 => self.write(index),
            18..=21 => {
                self.mappings[index].check();
                self.replace(index);
            }
            22..=24 => self.map_over(index),
            25..=26 => self.resize(index),
            27..=29 => {
                let mut exchange = self.setting.exchange.lock().unwrap();
                let other = self.dice.below(exchange.len());
                std::mem::swap(&mut exchange[other], &mut self.mappings[index]);
            }
            // A range cannot be watched for a second after a discard, so this must be rare.
            30 if self.dice.below(512) == 0 => self.give_back(index),
            30 if self.dice.below(16) == 0 => self.fork(index),
            _ => self.mappings[index].check(),
        }
    }

    /// Uses a new mapping at once. Its addresses may be those of another thread's mapping that has
    /// just ended, before that thread's call has returned.
    fn replace(&mut self, index: usize) {
        let count = [1, PAGES_MAX / 2, PAGES_MAX][self.dice.below(3)];
        let former = std::mem::replace(&mut self.mappings[index], Mapping::new(count));
        self.read(index);
        drop(former);
    }

    /// Chooses some pages of a mapping.
    fn part(&mut self, index: usize) -> std::ops::Range<usize> {
        let count = self.mappings[index].pages.len();
        let first = if self.dice.below(2) == 0 { 0 } else { self.dice.below(count) };
        first..first + 1 + self.dice.below(count - first)
    }

    fn read(&mut self, index: usize) {
        let part = self.part(index);
        self.stamp += 1;
        let bytes = self.stamp.to_ne_bytes().repeat(part.len() * PAGE_BYTES / 8);
        self.file.write_all_at(&bytes, 0).unwrap();
        let mapping = &mut self.mappings[index];
        self.setting.transfer(&self.file, mapping.page(part.start), bytes.len(), true);
        mapping.pages[part.clone()].fill(self.stamp);
        mapping.check_part(part);
    }

    fn write(&mut self, index: usize) {
        let part = self.part(index);
        self.stamp += 1;
        let mapping = &mut self.mappings[index];
        mapping.fill(part.clone(), self.stamp);
        let mut bytes = vec![0; part.len() * PAGE_BYTES];
        self.setting.transfer(&self.file, mapping.page(part.start), bytes.len(), false);
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        let is_it = bytes.chunks_exact(8).all(|word| word == self.stamp.to_ne_bytes());
        assert!(is_it, "the device has read other memory");
    }

    fn map_over(&mut self, index: usize) {
        let part = self.part(index);
        let mapping = &mut self.mappings[index];
        map(mapping.page(part.start), part.len());
        mapping.pages[part].fill(0);
    }

    fn give_back(&mut self, index: usize) {
        let part = self.part(index);
        let mapping = &mut self.mappings[index];
        let (start, length) = (mapping.page(part.start), part.len() * PAGE_BYTES);
        // SAFETY: these pages belong to a mapping of this test, and their bytes are not needed.
        let given = unsafe { libc::madvise(start as *mut _, length, libc::MADV_DONTNEED) };
        assert_eq!(given, 0);
        mapping.pages[part].fill(0);
    }

    fn resize(&mut self, index: usize) {
        let count = 1 + self.dice.below(PAGES_MAX);
        let mapping = &mut self.mappings[index];
        let (old, new) = (mapping.pages.len() * PAGE_BYTES, count * PAGE_BYTES);
        let flags = libc::MREMAP_MAYMOVE;
        // SAFETY: this is a whole mapping of this test, and no pointer into it is used.
        let moved = unsafe { libc::mremap(mapping.address as *mut _, old, new, flags) };
        if moved == libc::MAP_FAILED {
            // It now consists of several mappings, only some of which were watched.
            return;
        }
        mapping.address = moved as usize;
        mapping.pages.resize(count, 0);
    }

    /// Forks a child that shares all pages until one of the two writes.
    fn fork(&mut self, index: usize) {
        // SAFETY: the child writes to its own memory and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let count = self.mappings[index].pages.len();
            self.mappings[index].fill(0..count, u64::MAX);
            // SAFETY: this ends the child.
            unsafe { libc::_exit(0) };
        }
        self.read(index);
        // SAFETY: this waits for the child and ignores its status.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        self.mappings[index].check();
    }
}

impl Mapping {
    fn new(count: usize) -> Self {
        Self { address: map(0, count), pages: vec![0; count] }
    }

    fn page(&self, number: usize) -> usize {
        self.address + number * PAGE_BYTES
    }

    /// Returns the bytes of some pages, as words.
    fn words(&self, part: std::ops::Range<usize>) -> &[u64] {
        let count = part.len() * PAGE_BYTES / 8;
        // SAFETY: the range is inside a live mapping that is not written during the borrow: the
        // device works only for calls of this thread.
        unsafe { std::slice::from_raw_parts(self.page(part.start) as *const u64, count) }
    }

    fn fill(&mut self, part: std::ops::Range<usize>, stamp: u64) {
        let (start, count) = (self.page(part.start), part.len() * PAGE_BYTES / 8);
        // SAFETY: the range is inside a live mapping.
        unsafe { std::slice::from_raw_parts_mut(start as *mut u64, count) }.fill(stamp);
        self.pages[part].fill(stamp);
    }

    fn check(&self) {
        self.check_part(0..self.pages.len());
    }

    fn check_part(&self, part: std::ops::Range<usize>) {
        for number in part {
            let wanted = self.pages[number];
            let is_it = self.words(number..number + 1).iter().all(|word| *word == wanted);
            assert!(is_it, "page {number} of {} has other bytes", self.pages.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is a mapping of this test that is no longer used.
        unsafe { libc::munmap(self.address as *mut _, self.pages.len() * PAGE_BYTES) };
    }
}

/// Maps pages, at an address that the kernel chooses or over other mappings of the test.
fn map(address: usize, count: usize) -> usize {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let length = count * PAGE_BYTES;
    // SAFETY: new memory at an address that the kernel chooses, or over the test's own pages.
    let mapped = unsafe { libc::mmap(address as *mut _, length, rights, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped as usize
}

fn memory_file() -> File {
    // SAFETY: the arguments are a name and no flags; the result is a descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"source".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: the call has just created this descriptor, so it has no other owner.
    unsafe { File::from_raw_fd(fd) }
}

#[test]
fn nobody_sees_the_bytes_of_another_mapping() {
    let limits = CacheLimits::default().entries_max(40).bytes_max(4 << 20).checks_pages(true);
    let Some(setting) = setting(limits) else { return };
    let seconds = std::env::var("DAFS_STRESS_SECONDS").map_or(3, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    setting.exchange.lock().unwrap().extend((0..8).map(|_| Mapping::new(PAGES_MAX)));
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let setting = &setting;
            scope.spawn(move || {
                let mappings = (0..MAPPINGS).map(|_| Mapping::new(PAGES_MAX)).collect();
                let dice = Random::new(number as u64 + 1);
                let (file, stamp) = (memory_file(), (number as u64 + 1) << 48);
                let mut worker = Worker { setting, dice, mappings, file, stamp };
                while Instant::now() < until {
                    (0..16).for_each(|_| worker.step());
                }
                worker.mappings.iter().for_each(Mapping::check);
            });
        }
    });
    let counters = setting.cache.lock().unwrap().counters();
    eprintln!("{counters:?}");
    assert!(counters.hits > 0 && counters.invalidations > 0 && counters.evictions > 0);
    setting.cache.lock().unwrap().clear();
    let left = setting.cache.lock().unwrap().counters();
    assert_eq!((left.entries, left.bytes), (0, 0));
}
