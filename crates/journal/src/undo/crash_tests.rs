//! Tests undo data on a disk that crashes at random. The tests change a file only where its bytes
//! are saved, and check that the file can always be restored.

use std::collections::VecDeque;
use std::fs::File;
use std::io;

use dafs_types::{CloneSource, Random};

use super::*;
use crate::storage::{CloneError, CrashStorage, Operation};
use crate::test_hooks::with;

/// The result of a run: the first violation of a guarantee, if any.
type Verdict = Result<(), String>;

const ID: UndoId = UndoId(0x1234);
const HEADER: &[u8] = b"whose lock, on which file";
const FILE_BYTES: usize = 60_000;
const STEPS: usize = 80;

struct World {
    random: Random,
    storage: CrashStorage,
    undo: UndoLog,
    job: Option<UndoJob>,
    original: Vec<u8>,
    /// The contents of the file. Changes are durable immediately, which is the worst case for a
    /// rollback.
    file: Vec<u8>,
    /// Changes that wait until the bytes that they will overwrite are durably saved.
    waiting: VecDeque<(PieceNumber, Change)>,
    seen: Seen,
}

/// A file whose blocks can be shared.
struct Source(Vec<u8>);

impl CloneSource for Source {
    fn file(&self) -> Option<&File> {
        None
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn block_bytes(&self) -> io::Result<u64> {
        Ok(512)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let from = (offset as usize).min(self.0.len());
        let bytes = &self.0[from..self.0.len().min(from + buffer.len())];
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// Counts of the events in a run, which show what the test has covered.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    changes: u64,
    resumed: u64,
    unfinished: u64,
    poisoned: u64,
    refused: u64,
    cloned: u64,
    not_cloned: u64,
}

fn config() -> UndoConfig {
    UndoConfig {
        piece_bytes_max: 3000,
        buffered_bytes_max: 9000,
        bytes_max: 40_000,
        range_count_max: 60,
        ..UndoConfig::default()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let original = random.bytes(FILE_BYTES);
        let storage = CrashStorage::new();
        storage.set_reflinks(random.percent(60));
        let size = original.len() as u64;
        let undo = UndoLog::create(&storage, ID, config(), &mut random, size, HEADER)
            .expect("a disk that works");
        let (file, waiting, seen) = (original.clone(), VecDeque::new(), Seen::default());
        Self { random, storage, undo, job: None, original, file, waiting, seen }
    }

    fn step(&mut self) -> Verdict {
        match self.random.below(100) {
            0..45 => self.change(),
            45..50 => self.clone(),
            50..65 => {
                self.job = self.job.take().or_else(|| self.undo.take_job());
                Ok(())
            }
            65..88 => self.run_job(),
            88..90 => {
                let operations = [Operation::Write, Operation::Sync, Operation::Clone];
                let operation = operations[self.random.below(3)];
                self.storage.fail_next(operation);
                Ok(())
            }
            90..92 => {
                self.storage.power_off_after(self.random.below(3) as u64);
                if self.random.percent(50) { self.run_job() } else { self.clone() }
            }
            92..94 => {
                if let Some(job) = self.job.take() {
                    drop(job.run());
                }
                self.restart()
            }
            _ => self.restart(),
        }
    }

    /// Saves the bytes that a change will overwrite. The change is made when these bytes are
    /// durable.
    fn change(&mut self) -> Verdict {
        let offset = self.random.below(FILE_BYTES + 5000);
        let length_max = if self.random.percent(80) { 700 } else { 3000 };
        let length = 1 + self.random.below(length_max);
        if self.random.percent(5) {
            // The part to be cut off is saved first, as far as possible.
            let at = FILE_BYTES - self.random.below(3000).min(FILE_BYTES);
            let saved = self.save(at, FILE_BYTES - at)?;
            self.waiting.extend(saved.map(|number| (number, Change::Truncate(at))));
        } else {
            let bytes = self.random.bytes(length);
            let saved = self.save(offset, length)?;
            self.waiting.extend(saved.map(|number| (number, Change::Write(offset, bytes))));
        }
        self.make_changes();
        Ok(())
    }

    /// Saves a range by sharing blocks.
    fn clone(&mut self) -> Verdict {
        let from = self.random.below(FILE_BYTES);
        let to = from + self.random.below(FILE_BYTES / 4);
        let source = Source(self.file.clone());
        let range = from as u64..to as u64;
        let missing = self.undo.missing(range.clone()).next();
        let wanted = if self.random.percent(50) { missing } else { Some(range) };
        let Some(job) = wanted.and_then(|range| self.undo.clone_job(range)) else { return Ok(()) };
        match job.run(&self.storage, &source) {
            Ok(cloned) => match self.undo.save_cloned(&cloned) {
                Ok(_) if self.undo.covers(cloned.range()) => self.seen.cloned += 1,
                Ok(_) => return Err("what was cloned is not covered".to_owned()),
                Err(UndoError::Wait) => return self.run_job(),
                Err(UndoError::Full { .. } | UndoError::TooScattered { .. }) => {
                    self.seen.refused += 1;
                }
                Err(error) => return Err(chain_of(&error)),
            },
            // The injected failure may have occurred; then the bytes are copied.
            Err(CloneError::Unable { .. } | CloneError::Failed { .. }) => {
                self.seen.not_cloned += 1;
            }
        }
        if self.storage.is_off() { self.restart() } else { Ok(()) }
    }

    /// Saves a range. Returns `None` if the call is refused or there is no space now.
    fn save(&mut self, offset: usize, length: usize) -> Result<Option<PieceNumber>, String> {
        let range = offset as u64..(offset + length) as u64;
        let mut present = self.file.clone();
        present.resize(present.len().max(offset + length), 0);
        match self.undo.save(range.start, &present[offset..offset + length]) {
            Ok(number) if self.undo.covers(range) => Ok(Some(number)),
            Ok(_) => Err("what was saved is not covered".to_owned()),
            Err(UndoError::Wait) => self.run_job().map(|()| None),
            Err(UndoError::Full { .. } | UndoError::TooScattered { .. }) => {
                self.seen.refused += 1;
                Ok(None)
            }
            Err(error) => Err(chain_of(&error)),
        }
    }

    fn make_changes(&mut self) {
        while let Some((number, _)) = self.waiting.front()
            && *number <= self.undo.durable()
            && let Some((_, change)) = self.waiting.pop_front()
        {
            self.seen.changes += 1;
            match change {
                Change::Write(offset, bytes) => {
                    let end = offset + bytes.len();
                    self.file.resize(self.file.len().max(end), 0);
                    self.file[offset..end].copy_from_slice(&bytes);
                }
                Change::Truncate(size) => self.file.truncate(size),
            }
        }
    }

    fn run_job(&mut self) -> Verdict {
        let Some(job) = self.job.take().or_else(|| self.undo.take_job()) else { return Ok(()) };
        match self.undo.on_done(job.run()) {
            Ok(_) => {
                self.make_changes();
                Ok(())
            }
            Err(UndoError::Poisoned { .. }) => {
                self.seen.poisoned += 1;
                let refused = self.undo.save(0, b"never");
                ensure(matches!(refused, Err(UndoError::Poisoned { .. })), "it goes on")?;
                self.restart()
            }
            Err(error) => Err(chain_of(&error)),
        }
    }

    /// Simulates a crash or a kill, checks that the file could be restored, and continues the run.
    fn restart(&mut self) -> Verdict {
        self.job = None;
        self.waiting.clear();
        for attempt in 0.. {
            if self.random.percent(30) {
                self.storage.kill();
            } else {
                self.storage.crash(&mut self.random);
            }
            self.check_rollback()?;
            let is_harmed = attempt < 4 && self.random.percent(40);
            if is_harmed {
                self.storage.power_off_after(self.random.below(5) as u64);
            }
            match UndoLog::resume(&self.storage, ID, config()) {
                Ok(undo) => {
                    self.seen.resumed += 1;
                    self.undo = undo;
                    return Ok(());
                }
                Err(UndoError::Storage { .. }) if is_harmed => self.seen.unfinished += 1,
                Err(error) => return Err(chain_of(&error)),
            }
        }
        Ok(())
    }

    /// Restores all saved bytes in a copy of the file, in another order than they were saved.
    fn check_rollback(&mut self) -> Verdict {
        let mut found = UndoLog::open(&self.storage, ID).map_err(|error| chain_of(&error))?;
        ensure(found.header() == HEADER && found.id() == ID, "another header")?;
        let size = found.original_size() as usize;
        let mut pieces = Vec::new();
        while let Some(piece) = found.next_piece().map_err(|error| chain_of(&error))? {
            let (offset, content) = (piece.offset, contents(piece));
            pieces.push((offset as usize, content));
        }
        for (offset, content) in &mut pieces {
            if let Err(length) = content {
                let mut bytes = vec![0; *length as usize];
                let read = found.read_cloned(*offset as u64, &mut bytes);
                read.map_err(|error| chain_of(&error))?;
                *content = Ok(bytes);
            }
        }
        let mut pieces: Vec<(usize, Vec<u8>)> =
            pieces.into_iter().filter_map(|(offset, bytes)| Some((offset, bytes.ok()?))).collect();
        pieces.sort_by_key(|(_, bytes)| crc32c::crc32c(bytes));
        let mut file = self.file.clone();
        file.resize(size, 0);
        let mut is_put_back = vec![false; size];
        for (offset, bytes) in pieces {
            let range = offset..offset + bytes.len();
            ensure(!is_put_back[range.clone()].contains(&true), "pieces overlap")?;
            is_put_back[range.clone()].fill(true);
            file[range].copy_from_slice(&bytes);
        }
        ensure(file == self.original, "the file is not what it was")
    }
}

/// Returns the bytes of a piece that was saved by copying, or the number of bytes of a cloned
/// piece.
fn contents(piece: Piece<'_>) -> Result<Vec<u8>, u64> {
    match piece.content {
        Content::Copied(bytes) => Ok(bytes.to_vec()),
        Content::Cloned { length } => Err(length),
    }
}

fn ensure(holds: bool, why: &str) -> Verdict {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

fn run(seed: u64) -> Result<Seen, String> {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.restart()?;
    Ok(world.seen)
}

fn check(seed: u64) -> Seen {
    run(seed).unwrap_or_else(|why| {
        panic!(
            "{why}\nreplay it with: DAFS_JOURNAL_SEED={seed} cargo test -p dafs-journal \
             undo::crash_tests::replay"
        )
    })
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_file_goes_back_to_what_it_was_after_any_crash() {
    let mut all = Seen::default();
    for seed in 0..variable("DAFS_JOURNAL_RUNS").unwrap_or(2000) {
        let seen = check(seed);
        all.changes += seen.changes;
        all.resumed += seen.resumed;
        all.unfinished += seen.unfinished;
        all.poisoned += seen.poisoned;
        all.refused += seen.refused;
        all.cloned += seen.cloned;
        all.not_cloned += seen.not_cloned;
    }
    let counts = [
        all.changes,
        all.resumed,
        all.unfinished,
        all.poisoned,
        all.refused,
        all.cloned,
        all.not_cloned,
    ];
    assert!(counts.iter().all(|count| *count >= 100), "too little of it occurred: {all:?}");
}

#[test]
fn replay() {
    check(variable("DAFS_JOURNAL_SEED").unwrap_or(1));
}

#[test]
fn defects_are_noticed() {
    for mutation in [
        Mutation::SkipGroupSync,
        Mutation::SkipCloneSync,
        Mutation::CloneSaved,
        Mutation::SkipNamesSync,
        Mutation::SkipRecoverySync,
        Mutation::RetrySync,
    ] {
        let caught = with(Some(mutation), || (0..1000).find(|seed| run(*seed).is_err()));
        assert!(caught.is_some(), "no run detects {mutation:?}");
    }
}

/// Runs jobs until no buffered data is left.
fn settle(undo: &mut UndoLog) {
    while let Some(job) = undo.take_job() {
        undo.on_done(job.run()).unwrap();
    }
}

#[test]
fn only_the_first_change_of_an_byte_is_saved() {
    let storage = CrashStorage::new();
    let mut random = Random::new(1);
    let mut undo =
        UndoLog::create(&storage, ID, UndoConfig::default(), &mut random, 100, b"").unwrap();
    assert!(undo.missing(10..200).eq(std::iter::once(10..100)));
    undo.save(10, &[1; 10]).unwrap();
    undo.save(5, &[2; 20]).unwrap();
    assert_eq!(undo.save(8, &[3; 10]).unwrap(), undo.last_saved());
    // Beyond the original size there is nothing to restore.
    undo.save(90, &[4; 20]).unwrap();
    undo.save(100, &[5; 20]).unwrap();
    assert!(undo.covers(90..300) && !undo.covers(0..6));
    settle(&mut undo);
    assert_eq!(undo.durable(), PieceNumber(4));
    let mut found = UndoLog::open(&storage, ID).unwrap();
    let mut pieces = Vec::new();
    for _ in 0..2 {
        pieces.clear();
        while let Some(piece) = found.next_piece().unwrap() {
            pieces.push((piece.offset, contents(piece).unwrap()));
        }
        found.rewind();
    }
    let expected = [(10, vec![1; 10]), (5, vec![2; 5]), (20, vec![2; 5]), (90, vec![4; 10])];
    assert_eq!(pieces, expected);
}

#[test]
fn what_is_saved_is_not_cloned_again() {
    let storage = CrashStorage::new();
    let (size, config) = (10_000, UndoConfig::default());
    let mut undo =
        UndoLog::create(&storage, ID, config.clone(), &mut Random::new(1), size, b"").unwrap();
    let source = Source((0..10_000).map(|at| (at / 7) as u8).collect());
    let none = undo.clone_job(0..10_000).unwrap().run(&storage, &source).unwrap_err();
    assert!(matches!(none, CloneError::Unable { .. }), "{none}");
    storage.set_reflinks(true);
    undo.save(1000, &[1; 1000]).unwrap();
    assert!(undo.clone_job(100..10_000).is_none() && undo.clone_job(3000..10_001).is_none());
    // Only whole blocks are cloned.
    let cloned = undo.clone_job(2000..10_000).unwrap().run(&storage, &source).unwrap();
    assert_eq!(cloned.range(), 2048..9728);
    undo.save_cloned(&cloned).unwrap();
    assert!(undo.missing(0..20_000).eq([0..1000, 2000..2048, 9728..10_000]));
    let none = undo.clone_job(9728..10_000).unwrap().run(&storage, &source).unwrap();
    assert!(none.range().is_empty());
    undo.save(0, &[2; 3000]).unwrap();
    settle(&mut undo);
    let mut undo = UndoLog::resume(&storage, ID, config).unwrap();
    assert!(undo.missing(0..20_000).eq(std::iter::once(9728..10_000)));
    assert_eq!(undo.save(512, &[3; 9000]).unwrap(), PieceNumber(4));
    assert!(undo.clone_job(2048..4096).is_none());
    let mut found = UndoLog::open(&storage, ID).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = found.next_piece().unwrap() {
        pieces.push((piece.offset, contents(piece)));
    }
    let copied = |offset: u64, byte: u8, length: usize| (offset, Ok(vec![byte; length]));
    let expected =
        [copied(1000, 1, 1000), (2048, Err(7680)), copied(0, 2, 1000), copied(2000, 2, 48)];
    assert_eq!(pieces, expected);
    let mut bytes = vec![0; 7680];
    found.read_cloned(2048, &mut bytes).unwrap();
    assert_eq!(bytes, source.0[2048..9728]);
    // Both blobs are removed, whichever was removed before. A second removal is an error.
    let left = storage.list().unwrap();
    assert_eq!(left, [clone::name_of(ID), name_of(ID)]);
    storage.remove(&name_of(ID)).unwrap();
    assert_eq!(UndoLog::list(&storage).unwrap(), [ID]);
    UndoLog::remove(&storage, ID).unwrap();
    assert!(UndoLog::remove(&storage, ID).is_err());
    assert_eq!(UndoLog::list(&storage).unwrap(), []);
}

#[test]
fn undo_data_of_the_first_version_goes_on_without_clones() {
    let storage = CrashStorage::new();
    storage.set_reflinks(true);
    let undo = UndoLog::create(&storage, ID, config(), &mut Random::new(1), 10_000, b"").unwrap();
    assert!(undo.clone_job(0..4096).is_some());
    let (stream, bytes) = (undo.lineage.stream, Vec::new());
    let header = Header { version: 1, id: ID, stream, original_size: 10_000, bytes };
    storage.corrupt(&name_of(ID), 0, &header.encode()[..]).unwrap();
    let mut undo = UndoLog::resume(&storage, ID, config()).unwrap();
    assert!(undo.clone_job(0..4096).is_none());
    undo.save(0, &[1; 1000]).unwrap();
    settle(&mut undo);
    let mut found = UndoLog::open(&storage, ID).unwrap();
    assert_eq!(found.next_piece().unwrap().map(contents), Some(Ok(vec![1; 1000])));
}

#[test]
fn a_clone_that_is_gone_is_damage() {
    let storage = CrashStorage::new();
    storage.set_reflinks(true);
    let mut undo =
        UndoLog::create(&storage, ID, config(), &mut Random::new(1), 10_000, b"").unwrap();
    let source = Source(vec![1; 10_000]);
    let cloned = undo.clone_job(0..4096).unwrap().run(&storage, &source).unwrap();
    undo.save_cloned(&cloned).unwrap();
    settle(&mut undo);
    storage.open(&clone::name_of(ID)).unwrap().set_length(1000).unwrap();
    let found = UndoLog::open(&storage, ID).unwrap();
    found.read_cloned(0, &mut [0; 1000]).unwrap();
    let error = found.read_cloned(0, &mut [0; 1001]).unwrap_err();
    assert!(matches!(error, UndoError::Corrupt { .. }), "{error}");
    storage.remove(&clone::name_of(ID)).unwrap();
    let found = UndoLog::open(&storage, ID).unwrap();
    assert!(found.read_cloned(0, &mut [0; 1]).is_err());
}

#[test]
fn undo_data_is_made_once_listed_and_removed() {
    let storage = CrashStorage::new();
    let mut random = Random::new(1);
    let mut create = |id, header: &[u8]| {
        UndoLog::create(&storage, id, config(), &mut random, 100, header).map(|_| ())
    };
    create(ID, &[7; HEADER_BYTES_MAX]).unwrap();
    create(UndoId(3), b"").unwrap();
    let again = create(ID, b"").unwrap_err();
    let exists = |source: &StorageError| matches!(source, StorageError::Exists { .. });
    assert!(matches!(&again, UndoError::Storage { source } if exists(source)), "{again}");
    let long = create(UndoId(4), &[7; HEADER_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(long, UndoError::TooLong { .. }));
    assert_eq!(UndoLog::list(&storage).unwrap(), [UndoId(3), ID]);
    assert_eq!(UndoLog::open(&storage, ID).unwrap().header(), [7; HEADER_BYTES_MAX]);
    UndoLog::remove(&storage, ID).unwrap();
    assert_eq!(UndoLog::list(&storage).unwrap(), [UndoId(3)]);
}

#[test]
fn damage_is_told_from_a_torn_end_and_from_what_never_began() {
    let made = || {
        let storage = CrashStorage::new();
        let mut undo =
            UndoLog::create(&storage, ID, config(), &mut Random::new(1), 10_000, b"").unwrap();
        for offset in [0, 2000, 4000] {
            undo.save(offset, &[9; 2000]).unwrap();
            settle(&mut undo);
        }
        storage
    };
    let block = BLOCK_BYTES as u64;
    let pieces = |storage: &CrashStorage| {
        let mut found = UndoLog::open(storage, ID)?;
        let mut count = 0;
        while found.next_piece()?.is_some() {
            count += 1;
        }
        Ok::<_, UndoError>(count)
    };
    assert_eq!(pieces(&made()).unwrap(), 3);
    for (offset, expected) in [(block + 100, None), (2 * block, None), (3 * block + 99, Some(2))] {
        let storage = made();
        storage.corrupt(&name_of(ID), offset, &[0xee]).unwrap();
        match (pieces(&storage), expected) {
            (Ok(count), Some(expected)) => assert_eq!(count, expected),
            (Err(UndoError::Corrupt { offset: at, .. }), None) => {
                assert_eq!(at, offset / block * block)
            }
            (other, _) => panic!("at {offset}: {other:?}"),
        }
    }
    let storage = made();
    storage.corrupt(&name_of(ID), 17, &[0xee]).unwrap();
    assert!(matches!(pieces(&storage), Err(UndoError::Corrupt { offset: 0, .. })));
    let storage = CrashStorage::new();
    storage.create(&name_of(ID)).unwrap();
    assert!(matches!(pieces(&storage), Err(UndoError::Unfinished { .. })));
}

#[test]
fn bounds_are_kept() {
    let storage = CrashStorage::new();
    let size = 1 << 20;
    let mut undo = UndoLog::create(&storage, ID, config(), &mut Random::new(1), size, b"").unwrap();
    assert!(matches!(undo.save(0, &[0; 3001]), Err(UndoError::TooLong { .. })));
    for index in 0..3 {
        undo.save(index * 3000, &[0; 2900]).unwrap_or_else(|error| panic!("{index}: {error}"));
    }
    assert!(matches!(undo.save(20_000, &[0; 1000]), Err(UndoError::Wait)));
    assert!(!undo.covers(20_000..20_001), "nothing is saved by halves");
    settle(&mut undo);
    let mut refused = None;
    for index in 0..100 {
        if let Err(error) = undo.save(100_000 + index * 10, &[1]) {
            refused = Some((index, error));
            break;
        }
    }
    assert!(
        matches!(refused, Some((57, UndoError::TooScattered { count_max: 60 }))),
        "{refused:?}"
    );
    settle(&mut undo);
    let config = UndoConfig { range_count_max: 100, ..config() };
    assert!(UndoLog::resume(&storage, ID, config.clone()).is_ok());
    let mut undo = UndoLog::resume(&storage, ID, config).unwrap();
    let mut refused = None;
    for index in 0..100 {
        match undo.save(200_000 + index * 3000, &[1; 3000]) {
            Ok(_) => settle(&mut undo),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(UndoError::Full { .. })), "{refused:?}");
    assert!(storage.open(&name_of(ID)).unwrap().length().unwrap() <= 40_000);
}
