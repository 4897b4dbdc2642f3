//! Tests the log against a model of its guarantees, on a disk that crashes at random.
//!
//! The state is a hash over all records in their order. So a record that is lost, invented or
//! repeated, or that reappears, leads to another state. Every record differs from all other records
//! that were ever appended, including discarded records.

use std::sync::Arc;

use dafs_types::{Entropy, Random};

use super::*;
use crate::storage::{CrashStorage, Operation};
use crate::test_hooks::with;

/// The result of a run: the first violation of a guarantee, if any.
type Verdict = Result<(), String>;

struct World {
    random: Random,
    storage: CrashStorage,
    log: Log,
    job: Option<GroupJob>,
    /// The state before the first record, then the state after each record.
    states: Vec<u64>,
    durable: u64,
    /// A counter that makes every record different.
    serial: u64,
    seen: Seen,
}

/// Counts of the events in a run, which show what the test has covered.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The number of records that recovery found lost.
    lost: u64,
    /// The number of records that survived although they were not reported as durable.
    found: u64,
    /// Two counts: recoveries that used a checkpoint, and checkpoints that a restart interrupted.
    checkpoints: u64,
    broken_off: u64,
    /// The number of failed writes and syncs.
    poisoned: u64,
    /// The number of times that opening the log failed before it was complete.
    openings: u64,
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 48 << 10,
        segment_count_max: 40,
        spare_segment_count: 1,
        record_bytes_max: 6 << 10,
        buffered_bytes_max: 8 << 10,
        checkpoint_after_bytes: 16 << 10,
        checkpoint_bytes_max: 40 << 10,
        checkpoint_chunk_bytes: 2 << 10,
    }
}

fn mix(state: u64, bytes: &[u8]) -> u64 {
    let sum = u64::from(crc32c::crc32c(bytes)) << 32 | bytes.len() as u64;
    Random::new(state.rotate_left(7) ^ sum).next_u64()
}

/// Returns bytes that follow the first record of a checkpoint, so that the checkpoint is long.
fn filler(state: u64, index: u64) -> Vec<u8> {
    let mut random = Random::new(state ^ index);
    let length = random.below(3000);
    random.bytes(length)
}

impl World {
    fn new(seed: u64) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let storage = CrashStorage::new();
        let (log, _) = Log::open(Arc::new(storage.clone()), config(), &mut random)
            .map_err(|error| chain_of(&error))?;
        let (states, seen) = (vec![0], Seen::default());
        Ok(Self { random, storage, log, job: None, states, durable: 0, serial: 0, seen })
    }

    fn step(&mut self) -> Verdict {
        match self.random.below(100) {
            0..50 => self.append(),
            50..70 => self.take(),
            70..88 => self.run_job(),
            88..90 => self.checkpoint(),
            90..92 => {
                let operation = self.operation();
                self.storage.fail_next(operation);
                Ok(())
            }
            92..94 => {
                self.storage.power_off_after(self.random.clone().next_u64() % 6);
                self.run_job()
            }
            94..95 => {
                let left = self.random.below(100_000) as u64;
                self.storage.set_space_left(Some(left));
                Ok(())
            }
            95..97 => {
                // The group is written to the disk, but the log does not learn of it.
                if let Some(job) = self.job.take() {
                    drop(job.run());
                }
                self.restart()
            }
            _ => self.restart(),
        }
    }

    fn operation(&mut self) -> Operation {
        use Operation::{Create, Read, Sync, SyncNames, Write};
        [Write, Sync, Sync, Create, SyncNames, Read][self.random.below(6)]
    }

    fn append(&mut self) -> Verdict {
        let length = match self.random.below(10) {
            0 => self.random.below(6 << 10),
            1..3 => 0,
            _ => self.random.below(300),
        };
        self.serial += 1;
        let serial = self.serial.to_le_bytes();
        let bytes = self.random.bytes(length.saturating_sub(8));
        let kind = RecordKind(self.random.below(5) as u16);
        match self.log.append(kind, &[&serial, &bytes]) {
            Ok(number) => {
                let last = *self.states.last().expect("the first state");
                let whole = [&kind.0.to_le_bytes(), &serial[..], &bytes].concat();
                self.states.push(mix(last, &whole));
                let expected = self.states.len() as u64 - 1;
                ensure(number.0 == expected, || format!("{number:?} instead of {expected}"))
            }
            Err(LogError::Wait) => {
                self.take()?;
                self.run_job()
            }
            Err(LogError::Full { .. }) => self.checkpoint(),
            Err(error) => Err(chain_of(&error)),
        }
    }

    fn take(&mut self) -> Verdict {
        if self.job.is_none() {
            self.job = self.log.take_group();
        }
        ensure(!self.log.is_poisoned(), || "the log ran out of segments".to_owned())
    }

    fn run_job(&mut self) -> Verdict {
        let Some(job) = self.job.take() else { return Ok(()) };
        match self.log.on_group_done(job.run()) {
            Ok(number) => {
                self.durable = number.0;
                if self.log.wants_checkpoint() && self.random.percent(50) {
                    self.checkpoint()?;
                }
                Ok(())
            }
            Err(LogError::Poisoned { .. }) => {
                let refused = self.log.append(RecordKind(0), &[b"never"]);
                let refuses = matches!(refused, Err(LogError::Poisoned { .. }));
                self.seen.poisoned += 1;
                ensure(refuses && self.log.take_group().is_none(), || {
                    "a poisoned log takes records".to_owned()
                })?;
                self.restart()
            }
            Err(error) => Err(chain_of(&error)),
        }
    }

    fn checkpoint(&mut self) -> Verdict {
        let (count, state) = (self.states.len() as u64 - 1, *self.states.last().expect("one"));
        let filler_count = self.random.below(24) as u64;
        let head = [count, state, filler_count].map(u64::to_le_bytes).concat();
        let fillers: Vec<_> = (0..filler_count).map(|index| filler(state, index)).collect();
        let records = std::iter::once(&head).chain(&fillers);
        match self.log.begin_checkpoint(records.map(|bytes| (RecordKind(7), &bytes[..]))) {
            Ok(()) | Err(LogError::CheckpointUnderWay | LogError::CheckpointTooLarge { .. }) => {
                Ok(())
            }
            Err(error) => Err(chain_of(&error)),
        }
    }

    /// Simulates crashes and kills, some of them during recovery, until the log can be opened
    /// again.
    fn restart(&mut self) -> Verdict {
        self.job = None;
        self.seen.broken_off += u64::from(self.log.is_checkpoint_under_way());
        for attempt in 0.. {
            if self.random.percent(30) {
                self.storage.kill();
            } else {
                self.storage.crash(&mut self.random);
            }
            self.storage.set_space_left(None);
            let is_harmed = attempt < 5 && self.random.percent(40);
            if is_harmed && self.random.percent(70) {
                self.storage.power_off_after(self.random.clone().next_u64() % 12);
            } else if is_harmed {
                let operation = self.operation();
                self.storage.fail_next(operation);
            }
            let storage = Arc::new(self.storage.clone());
            match Log::open(storage, config(), &mut self.random) {
                Ok((log, recovered)) => match Recall::of(recovered) {
                    Ok(recall) => {
                        self.log = log;
                        return self.judge(&recall);
                    }
                    Err(Trouble::Log(LogError::Storage { .. })) if is_harmed => (),
                    Err(Trouble::Log(error)) => return Err(chain_of(&error)),
                    Err(Trouble::Wrong(why)) => return Err(why),
                },
                Err(LogError::Storage { .. }) if is_harmed => self.seen.openings += 1,
                Err(error) => return Err(format!("refused: {}", chain_of(&error))),
            }
        }
        Ok(())
    }

    /// Compares the recovered records with the model, and removes lost records from the model.
    fn judge(&mut self, recall: &Recall) -> Verdict {
        let (count, durable) = (recall.count, self.durable);
        let appended = self.states.len() as u64 - 1;
        ensure(count >= durable && count <= appended, || {
            format!("{count} records of {appended}, {durable} durable")
        })?;
        ensure(self.states[count as usize] == recall.state, || {
            format!("{count} records, but not those")
        })?;
        let numbers = [self.log.last_appended().0, self.log.durable().0];
        ensure(numbers == [count; 2], || format!("{count} records, but {numbers:?}"))?;
        self.seen.lost += appended - count;
        self.seen.found += count - durable;
        self.seen.checkpoints += u64::from(recall.has_checkpoint);
        self.states.truncate(count as usize + 1);
        self.durable = count;
        Ok(())
    }
}

/// The number of recovered records, and the state that results from them.
struct Recall {
    count: u64,
    state: u64,
    has_checkpoint: bool,
}

enum Trouble {
    Log(LogError),
    Wrong(String),
}

impl From<LogError> for Trouble {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl Recall {
    fn of(mut recovered: Recovered) -> Result<Self, Trouble> {
        let (last, has_checkpoint) = (recovered.last().0, recovered.has_checkpoint());
        let (mut recall, mut fillers) = (Self { count: 0, state: 0, has_checkpoint }, 0..0);
        let mut is_head = has_checkpoint;
        while let Some(record) = recovered.next_record()? {
            match record.origin {
                Origin::Checkpoint if is_head => {
                    is_head = false;
                    let word = |at| crate::group::get_u64(record.bytes, at);
                    (recall.count, recall.state, fillers) = (word(0), word(8), 0..word(16));
                }
                Origin::Checkpoint => match fillers.next() {
                    Some(index) if record.bytes == filler(recall.state, index) => (),
                    _ => return Err(Trouble::Wrong("another checkpoint".to_owned())),
                },
                Origin::Log(number) => {
                    recall.count += 1;
                    if number.0 != recall.count || !fillers.is_empty() {
                        return Err(Trouble::Wrong(format!("{number:?} at {}", recall.count)));
                    }
                    let whole = [&record.kind.0.to_le_bytes(), record.bytes].concat();
                    recall.state = mix(recall.state, &whole);
                }
            }
        }
        if is_head || last != recall.count {
            return Err(Trouble::Wrong(format!("{} records instead of {last}", recall.count)));
        }
        Ok(recall)
    }
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(why()) }
}

fn run(seed: u64) -> Result<Seen, String> {
    let mut world = World::new(seed)?;
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
             log::crash_tests::replay"
        )
    })
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_log_keeps_its_promises_over_any_crash() {
    let mut all = Seen::default();
    for seed in 0..variable("DAFS_JOURNAL_RUNS").unwrap_or(3000) {
        let seen = check(seed);
        all.lost += seen.lost;
        all.found += seen.found;
        all.checkpoints += seen.checkpoints;
        all.broken_off += seen.broken_off;
        all.poisoned += seen.poisoned;
        all.openings += seen.openings;
    }
    let counts = [all.lost, all.found, all.checkpoints, all.broken_off, all.poisoned, all.openings];
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
        Mutation::SkipHeaderSync,
        Mutation::SkipNamesSync,
        Mutation::SkipRecoverySync,
        Mutation::TrustStale,
        Mutation::RecycleEarly,
        Mutation::RetrySync,
    ] {
        let caught = with(Some(mutation), || (0..1000).find(|seed| run(*seed).is_err()));
        assert!(caught.is_some(), "no run detects {mutation:?}");
    }
}

const STEPS: usize = 150;

/// Writes groups of one record each. Returns the offset of each group's end.
fn written(storage: &CrashStorage, count: u64) -> Vec<u64> {
    let (mut log, _) = opened(storage).unwrap();
    let mut ends = Vec::new();
    for number in 0..count {
        log.append(RecordKind(1), &[&number.to_le_bytes(), &[7; 5000]]).unwrap();
        let done = log.take_group().unwrap().run();
        log.on_group_done(done).unwrap();
        ends.push(log.position);
    }
    ends
}

fn opened(storage: &CrashStorage) -> Result<(Log, Recovered), LogError> {
    Log::open(Arc::new(storage.clone()), config(), &mut Random::new(1))
}

fn count(mut recovered: Recovered) -> u64 {
    let mut count = 0;
    while recovered.next_record().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn damage_before_the_last_group_is_told_from_a_torn_end() {
    let storage = CrashStorage::new();
    let ends = written(&storage, 3);
    let name = slot_name(0);
    let at = |index: usize| if index == 0 { BLOCK_BYTES as u64 } else { ends[index - 1] };
    for index in 0..3 {
        for offset in [at(index), at(index) + 70, at(index) + 4500] {
            let storage = CrashStorage::new();
            written(&storage, 3);
            storage.corrupt(&name, offset, &[0xee]).unwrap();
            match opened(&storage) {
                // The last group could be torn: nothing after it proves that it was durable.
                Ok((_, recovered)) => assert_eq!((index, count(recovered)), (2, 2)),
                Err(LogError::Corrupt { name: damaged, offset, .. }) => {
                    assert!(index < 2, "group {index} at {offset}");
                    assert_eq!((damaged, offset), (name.clone(), at(index)));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn damage_is_told_once_a_later_segment_says_where_the_last_one_ended() {
    let storage = CrashStorage::new();
    let ends = written(&storage, 3);
    drop(opened(&storage).unwrap());
    storage.corrupt(&slot_name(0), ends[1] + 70, &[0xee]).unwrap();
    let error = opened(&storage).map(|_| ()).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { offset, .. } if offset == ends[1]), "{error}");
}

#[test]
fn a_damaged_header_is_told_from_one_never_finished() {
    let storage = CrashStorage::new();
    written(&storage, 1);
    storage.corrupt(&slot_name(0), 20, &[0xee]).unwrap();
    let error = opened(&storage).map(|_| ()).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { offset: 0, .. }), "{error}");
    // There is no group after this header, so nothing is lost with it.
    let storage = CrashStorage::new();
    drop(opened(&storage).unwrap());
    storage.corrupt(&slot_name(0), 20, &[0xee]).unwrap();
    opened(&storage).unwrap();
}

#[test]
fn files_of_another_journal_or_version_are_refused() {
    let (one, other) = (CrashStorage::new(), CrashStorage::new());
    written(&one, 1);
    let (log, _) = Log::open(Arc::new(other.clone()), config(), &mut Random::new(2)).unwrap();
    let mut header = log.last().header.encode();
    let blob = one.create(&slot_name(9)).unwrap();
    blob.preallocate(48 << 10).unwrap();
    blob.write_at(0, &header[..]).unwrap();
    assert!(matches!(opened(&one), Err(LogError::Foreign { .. })));
    header[8] = 9;
    let sum = crc32c::crc32c(&header[..124]).to_le_bytes();
    header[124..128].copy_from_slice(&sum);
    blob.write_at(0, &header[..]).unwrap();
    assert!(matches!(opened(&one), Err(LogError::Version { version: 9, .. })));
}

#[test]
fn the_owner_is_told_to_wait_and_to_make_checkpoints() {
    let storage = CrashStorage::new();
    let (mut log, _) = opened(&storage).unwrap();
    let record = [5; 4000];
    let mut refused_for = [0; 2];
    for _ in 0..1500 {
        match log.append(RecordKind(1), &[&record]) {
            Ok(_) => (),
            Err(LogError::Wait) => {
                refused_for[0] += 1;
                let done = log.take_group().unwrap().run();
                log.on_group_done(done).unwrap();
            }
            Err(LogError::Full { .. }) => {
                refused_for[1] += 1;
                assert!(log.wants_checkpoint());
                log.begin_checkpoint([(RecordKind(2), &b"all"[..])]).unwrap();
                let again = log.begin_checkpoint([]);
                assert!(matches!(again, Err(LogError::CheckpointUnderWay)));
                let done = log.take_group().unwrap().run();
                log.on_group_done(done).unwrap();
                assert!(!log.is_checkpoint_under_way() && log.segment_count() == 1);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused_for.iter().all(|count| *count > 1), "{refused_for:?}");
    let long = vec![0; (6 << 10) + 1];
    assert!(matches!(log.append(RecordKind(1), &[&long]), Err(LogError::TooLong { .. })));
    let big = [0; 6 << 10];
    let large = log.begin_checkpoint((0..8).map(|_| (RecordKind(2), &big[..])));
    assert!(matches!(large, Err(LogError::CheckpointTooLarge { .. })));
    assert!(log.slots.len() <= 40);
}

#[test]
fn bounds_may_differ_from_one_opening_to_the_next() {
    let storage = CrashStorage::new();
    written(&storage, 20);
    let larger = LogConfig { segment_bytes: 96 << 10, ..config() };
    let open = |config| Log::open(Arc::new(storage.clone()), config, &mut Random::new(1)).unwrap();
    let (mut log, recovered) = open(larger.clone());
    assert_eq!(count(recovered), 20);
    log.begin_checkpoint([]).unwrap();
    let done = log.take_group().unwrap().run();
    log.on_group_done(done).unwrap();
    drop(log);
    let (_, recovered) = open(larger);
    assert!(recovered.has_checkpoint());
    assert_eq!((recovered.last(), count(recovered)), (RecordNumber(20), 0));
    for name in storage.list().unwrap() {
        assert_eq!(storage.open(&name).unwrap().length().unwrap(), 96 << 10, "{name}");
    }
}
