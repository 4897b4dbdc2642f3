//! Measures the cost of a cached read, if the cache of its file is used by the calling thread, or
//! by another core that is asked through a ring. It uses the real cache, blocks and copies, but no
//! transport and no protocol.
//!
//! ```text
//! cargo run --release -p dafs-store --example shard_cost
//! ```
//!
//! For each arrangement it prints the nanoseconds for a random read of 4 KiB, and the number of
//! messages for each read: the median of five runs. It needs at least two cores, and prints how
//! many there are. The conclusions are in `docs/decisions/0037-a-shard-for-each-core.md`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use dafs_memory::{Memory, Pages};
use dafs_store::cache::{BLOCK_BYTES, Cache, CacheConfig, CachedFile, Pieces, Pin, Planned, Read};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{AttributeChanges, Credentials, Store};
use dafs_types::{CacheHint, CreateMode, ShareAccess};

const FILE_BYTES: u64 = 128 << 20;
const READS: u64 = 400_000;
const TURNS: usize = 5;
const RING_SLOTS: usize = 64;
/// The word that tells the owner to end.
const END: u64 = u64::MAX;

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores; nanoseconds for a read of 4 KiB, and messages for each");
    let arrangements: [Arrangement; 9] = [
        ("same thread", alone, 0),
        ("other core looks up, asker copies, 1 under way", || asked(1, Who::Asker), 3),
        ("other core looks up, asker copies, 32 under way", || asked(32, Who::Asker), 3),
        ("other core looks up and copies, 1 under way", || asked(1, Who::Owner), 2),
        ("other core looks up and copies, 32 under way", || asked(32, Who::Owner), 2),
        ("other core asleep, looks up and copies, 1 under way", asleep, 2),
        ("two threads, each with its own files", two_alone, 0),
        ("two threads, the same files behind a lock", two_locked, 0),
        ("two threads, half of all reads of the other's files, 32 under way", two_mixed, 3),
    ];
    let mut times = vec![Vec::new(); arrangements.len()];
    for _ in 0..TURNS {
        for (times, (_, run, _)) in times.iter_mut().zip(&arrangements) {
            times.push(run());
        }
    }
    for (times, (name, _, messages)) in times.iter_mut().zip(&arrangements) {
        times.sort_by(f64::total_cmp);
        println!("{name:66} {:8.0} {messages:4}", times[TURNS / 2]);
    }
}

/// The name of an arrangement, the function that measures nanoseconds per read, and the number of
/// messages per read.
type Arrangement = (&'static str, fn() -> f64, u32);

/// The thread that copies the bytes of a read whose file belongs to another core.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Asker,
    Owner,
}

/// A cache with one completely cached file, and a client's buffer.
struct Shard {
    cache: Cache,
    file: CachedFile,
    buffer: Memory,
    random: u64,
}

impl Shard {
    fn new(seed: u64) -> Self {
        let limits = MemoryLimits { bytes_max: 1 << 30, object_count_max: 10 };
        let store = MemoryStore::new(limits);
        let who = Credentials::superuser();
        let top = store.root(&who).expect("a root").handle;
        let (changes, access) = (AttributeChanges::default(), ShareAccess::Both);
        let (_, file) = store
            .create_file(&who, &top, b"f", CreateMode::Guarded, &changes, access)
            .expect("a file");
        file.set_size(FILE_BYTES).expect("space");
        let version = file.version().expect("a version");
        let config = CacheConfig { arena_bytes: 256 << 20, ..CacheConfig::default() };
        let mut cache = Cache::new(config).expect("address space");
        let open = cache.open(file, version).expect("room");
        let mut jobs = Vec::new();
        for offset in (0..FILE_BYTES).step_by(1 << 20) {
            let planned = cache.plan_fill(open, offset, 1 << 20, CacheHint::default(), &mut jobs);
            assert!(matches!(planned, Planned::Jobs | Planned::Ready));
            for job in jobs.drain(..) {
                let _ = cache.on_filled(job.run());
            }
        }
        Self { cache, file: open, buffer: Self::buffer(), random: seed }
    }

    fn buffer() -> Memory {
        Memory::anonymous(RING_SLOTS * BLOCK_BYTES, Pages::Small).expect("memory")
    }

    /// The offset of a random block of the file.
    fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % (FILE_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64
    }

    /// The position of a block in the arena, and its pin.
    fn look_up(&mut self, offset: u64) -> (u64, Pin) {
        let mut pieces = Pieces::new();
        let read = self.cache.read(self.file, offset, BLOCK_BYTES as u32, &mut pieces);
        assert!(matches!(read, Read::Hit { .. }), "everything is cached");
        let piece = pieces.pop().expect("a block is one piece");
        (piece.offset, piece.pin)
    }

    fn read_here(&mut self, slot: usize) {
        let offset = self.draw();
        let (place, pin) = self.look_up(offset);
        copy(self.cache.arena(), place, &self.buffer, slot);
        self.cache.unpin(pin);
    }
}

fn copy(arena: &Memory, place: u64, buffer: &Memory, slot: usize) {
    let place = usize::try_from(place).expect("within the arena");
    Memory::copy(arena, place, buffer, slot * BLOCK_BYTES, BLOCK_BYTES);
}

/// Words from one thread to another. A slot is full if its stamp is that of the current round.
struct Ring {
    slots: [Slot; RING_SLOTS],
}

#[repr(align(64))]
#[derive(Default)]
struct Slot {
    stamp: AtomicU64,
    word: AtomicU64,
    ticket: AtomicU64,
}

impl Ring {
    fn new() -> Self {
        Self { slots: std::array::from_fn(|_| Slot::default()) }
    }

    /// Puts a word in. The asking thread never has more words in flight than there are slots.
    fn put(&self, sequence: u64, word: u64, ticket: u64) {
        let slot = &self.slots[sequence as usize % RING_SLOTS];
        slot.word.store(word, Ordering::Relaxed);
        slot.ticket.store(ticket, Ordering::Relaxed);
        slot.stamp.store(sequence + 1, Ordering::Release);
    }

    fn take(&self, sequence: u64) -> Option<(u64, u64)> {
        let slot = &self.slots[sequence as usize % RING_SLOTS];
        if slot.stamp.load(Ordering::Acquire) != sequence + 1 {
            return None;
        }
        Some((slot.word.load(Ordering::Relaxed), slot.ticket.load(Ordering::Relaxed)))
    }
}

/// The rings for requests, replies, and returned pins.
struct Rings {
    asks: Ring,
    answers: Ring,
    pins: Ring,
}

impl Rings {
    fn new() -> Arc<Self> {
        Arc::new(Self { asks: Ring::new(), answers: Ring::new(), pins: Ring::new() })
    }
}

fn per_read(start: Instant, reads: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / reads as f64
}

fn alone() -> f64 {
    let mut shard = Shard::new(1);
    let start = Instant::now();
    for round in 0..READS {
        shard.read_here(round as usize % RING_SLOTS);
    }
    per_read(start, READS)
}

/// The state of an owner between its turns.
struct Owner {
    asked: u64,
    returned: u64,
    pins: Vec<Option<Pin>>,
}

impl Owner {
    fn new() -> Self {
        Self { asked: 0, returned: 0, pins: (0..RING_SLOTS).map(|_| None).collect() }
    }

    /// Takes pins back and serves requests. Returns false once it was told to end.
    fn turn(&mut self, shard: &mut Shard, rings: &Rings, who: Who, buffer: &Memory) -> bool {
        while let Some((_, ticket)) = rings.pins.take(self.returned) {
            self.returned += 1;
            shard.cache.unpin(self.pins[ticket as usize].take().expect("it is pinned"));
        }
        while let Some((offset, ticket)) = rings.asks.take(self.asked) {
            if offset == END {
                return false;
            }
            let (place, pin) = shard.look_up(offset);
            if who == Who::Owner {
                copy(shard.cache.arena(), place, buffer, ticket as usize);
                shard.cache.unpin(pin);
            } else {
                self.pins[ticket as usize] = Some(pin);
            }
            rings.answers.put(self.asked, place, ticket);
            self.asked += 1;
        }
        true
    }
}

/// One thread asks, and another owns the file. Both spin.
fn asked(depth: u64, who: Who) -> f64 {
    let rings = Rings::new();
    let mut shard = Shard::new(1);
    let (arena, buffer) = (shard.cache.arena().clone(), shard.buffer.clone());
    let (theirs, target) = (rings.clone(), buffer.clone());
    let owner = std::thread::spawn(move || {
        let mut owner = Owner::new();
        while owner.turn(&mut shard, &theirs, who, &target) {
            std::hint::spin_loop();
        }
    });
    let mut draw = Draw(1);
    let (mut sent, mut done) = (0, 0);
    let start = Instant::now();
    while done < READS {
        while sent < READS && sent - done < depth {
            rings.asks.put(sent, draw.next(), sent % RING_SLOTS as u64);
            sent += 1;
        }
        while let Some((place, ticket)) = rings.answers.take(done) {
            if who == Who::Asker {
                copy(&arena, place, &buffer, ticket as usize);
                rings.pins.put(done, 0, ticket);
            }
            done += 1;
        }
    }
    let time = per_read(start, READS);
    rings.asks.put(sent, END, 0);
    owner.join().expect("the owner ends");
    time
}

/// Random offsets for a thread without a cache.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (FILE_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64
    }
}

/// Both the owner and the asking thread sleep until they are woken for each read.
fn asleep() -> f64 {
    const READS: u64 = 20_000;
    let rings = Rings::new();
    let mut shard = Shard::new(1);
    let buffer = shard.buffer.clone();
    let (theirs, asker) = (rings.clone(), std::thread::current());
    let is_up = Arc::new(AtomicBool::new(false));
    let up = is_up.clone();
    let owner = std::thread::spawn(move || {
        let mut owner = Owner::new();
        up.store(true, Ordering::Release);
        loop {
            let before = owner.asked;
            if !owner.turn(&mut shard, &theirs, Who::Owner, &buffer) {
                break;
            }
            match owner.asked == before {
                true => std::thread::park(),
                false => asker.unpark(),
            }
        }
    });
    while !is_up.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let mut draw = Draw(1);
    let start = Instant::now();
    for round in 0..READS {
        rings.asks.put(round, draw.next(), round % RING_SLOTS as u64);
        owner.thread().unpark();
        while rings.answers.take(round).is_none() {
            std::thread::park();
        }
    }
    let time = per_read(start, READS);
    rings.asks.put(READS, END, 0);
    owner.thread().unpark();
    owner.join().expect("the owner ends");
    time
}

/// Two reactors, each of whose clients read its own files.
fn two_alone() -> f64 {
    let mut shards = [Shard::new(1), Shard::new(2)];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for shard in &mut shards {
            scope.spawn(move || {
                for round in 0..READS {
                    shard.read_here(round as usize % RING_SLOTS);
                }
            });
        }
    });
    per_read(start, 2 * READS)
}

/// Two reactors with one cache. Each lookup and each return of a pin takes a lock.
fn two_locked() -> f64 {
    let shard = Shard::new(1);
    let arena = shard.cache.arena().clone();
    let buffers = [shard.buffer.clone(), Shard::buffer()];
    let shard = Mutex::new(shard);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (index, buffer) in buffers.iter().enumerate() {
            let (shard, arena) = (&shard, &arena);
            scope.spawn(move || {
                let mut draw = Draw(index as u64);
                for round in 0..READS {
                    let (place, pin) = lock(shard).look_up(draw.next());
                    copy(arena, place, buffer, round as usize % RING_SLOTS);
                    lock(shard).cache.unpin(pin);
                }
            });
        }
    });
    per_read(start, 2 * READS)
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().expect("nobody panics with it")
}

/// Two reactors, where every second read of each one's clients is for a file of the other.
fn two_mixed() -> f64 {
    let rings = [Rings::new(), Rings::new()];
    let shards = [Shard::new(1), Shard::new(2)];
    let arenas = [0, 1].map(|index: usize| shards[index].cache.arena().clone());
    let ended = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (index, mut shard) in shards.into_iter().enumerate() {
            let (mine, theirs) = (&rings[index], &rings[1 - index]);
            let (arena, ended) = (&arenas[1 - index], &ended);
            scope.spawn(move || mix(&mut shard, mine, theirs, arena, ended));
        }
    });
    per_read(start, 2 * READS)
}

fn mix(shard: &mut Shard, mine: &Rings, theirs: &Rings, arena: &Memory, ended: &AtomicU64) {
    let mut owner = Owner::new();
    let buffer = shard.buffer.clone();
    let mut draw = Draw(shard.random);
    let (mut here, mut sent, mut done) = (0, 0, 0);
    while here + done < READS {
        while here + sent < READS && sent - done < 16 {
            theirs.asks.put(sent, draw.next(), sent % RING_SLOTS as u64);
            sent += 1;
            if here + sent < READS {
                shard.read_here(here as usize % RING_SLOTS);
                here += 1;
            }
        }
        while let Some((place, ticket)) = theirs.answers.take(done) {
            copy(arena, place, &buffer, ticket as usize);
            theirs.pins.put(done, 0, ticket);
            done += 1;
        }
        owner.turn(shard, mine, Who::Asker, &buffer);
    }
    ended.fetch_add(1, Ordering::AcqRel);
    while ended.load(Ordering::Acquire) < 2 {
        owner.turn(shard, mine, Who::Asker, &buffer);
    }
}
