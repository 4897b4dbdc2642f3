//! The log and undo data in a real directory, with groups written by another thread.

use std::sync::{Arc, mpsc};
use std::thread;

use dafs_journal::log::{GroupDone, GroupJob, Origin};
use dafs_journal::undo::{Content, SavedUndo};
use dafs_journal::{
    DirectoryStorage, Log, LogConfig, LogError, RecordKind, RecordNumber, Storage, StorageError,
    UndoConfig, UndoId, UndoLog,
};
use dafs_types::Random;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 20,
        record_bytes_max: 60_000,
        buffered_bytes_max: 128 << 10,
        checkpoint_after_bytes: 1 << 20,
        checkpoint_bytes_max: 1 << 20,
        checkpoint_chunk_bytes: 64 << 10,
        ..LogConfig::default()
    }
}

fn record(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let length = random.below(8000);
    random.bytes(length)
}

/// Starts a thread that runs jobs, like a server's worker pool.
fn pool() -> (mpsc::Sender<GroupJob>, mpsc::Receiver<GroupDone>, thread::JoinHandle<()>) {
    let (jobs, taken) = mpsc::channel::<GroupJob>();
    let (done, given) = mpsc::channel();
    let worker = thread::spawn(move || {
        for job in taken {
            done.send(job.run()).unwrap();
        }
    });
    (jobs, given, worker)
}

#[test]
fn records_outlive_the_log_that_took_them() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal");
    let storage: Arc<dyn Storage> = Arc::new(DirectoryStorage::open(&path).unwrap());
    let (mut log, mut recovered) = Log::open(storage, config(), &mut Random::new(1)).unwrap();
    assert_eq!(recovered.next_record().unwrap(), None);
    let in_use = DirectoryStorage::open(&path).unwrap_err();
    assert!(matches!(in_use, StorageError::InUse { .. }));
    let (jobs, done, worker) = pool();
    let (mut number, mut in_flight, mut checkpoints) = (0, false, 0);
    while number < 2000 {
        match log.append(RecordKind(1), &[&record(number + 1)]) {
            Ok(given) => {
                number += 1;
                assert_eq!(given, RecordNumber(number));
            }
            Err(LogError::Wait) => {
                log.on_group_done(done.recv().unwrap()).unwrap();
                in_flight = false;
            }
            Err(error) => panic!("{error}"),
        }
        if log.wants_checkpoint() {
            let state = number.to_le_bytes();
            log.begin_checkpoint([(RecordKind(2), &state[..])]).unwrap();
            checkpoints += 1;
        }
        if !in_flight && let Some(job) = log.take_group() {
            jobs.send(job).unwrap();
            in_flight = true;
        }
    }
    assert!(checkpoints > 2, "{checkpoints}");
    while log.durable() < log.last_appended() {
        if !in_flight {
            jobs.send(log.take_group().unwrap()).unwrap();
        }
        log.on_group_done(done.recv().unwrap()).unwrap();
        in_flight = false;
    }
    drop((log, recovered, jobs));
    worker.join().unwrap();
    assert_eq!(last_number(&path), 2000);
    assert_eq!(last_number(&path), 2000, "a second recovery finds the same");
}

/// Recovers and checks all records. Returns the number of the last one.
fn last_number(path: &std::path::Path) -> u64 {
    let storage = Arc::new(DirectoryStorage::open(path).unwrap());
    let (log, mut recovered) = Log::open(storage, config(), &mut Random::new(2)).unwrap();
    assert!(recovered.has_checkpoint());
    let mut number = 0;
    while let Some(found) = recovered.next_record().unwrap() {
        match found.origin {
            Origin::Checkpoint => number = u64::from_le_bytes(found.bytes.try_into().unwrap()),
            Origin::Log(given) => {
                number += 1;
                assert_eq!(given, RecordNumber(number));
                assert_eq!(found.bytes, record(number));
            }
        }
    }
    assert_eq!(log.durable(), RecordNumber(number));
    number
}

#[test]
fn undo_data_streams() {
    const FILE_BYTES: u64 = 16 << 20;
    const PIECE_BYTES: u64 = 256 << 10;
    let place = tempfile::tempdir().unwrap();
    let storage = DirectoryStorage::open(place.path()).unwrap();
    let (id, mut random) = (UndoId(7), Random::new(1));
    let config = UndoConfig {
        piece_bytes_max: PIECE_BYTES as usize,
        buffered_bytes_max: 1 << 20,
        range_count_max: 1000,
        ..UndoConfig::default()
    };
    let mut undo =
        UndoLog::create(&storage, id, config.clone(), &mut random, FILE_BYTES, b"who").unwrap();
    for offset in (0..FILE_BYTES).step_by(PIECE_BYTES as usize) {
        if offset == FILE_BYTES / 2 {
            undo = UndoLog::resume(&storage, id, config.clone()).unwrap();
            assert!(undo.covers(0..offset) && !undo.covers(0..offset + 1));
        }
        let number = undo.save(offset, &content(offset, PIECE_BYTES)).unwrap();
        let job = undo.take_job().unwrap();
        assert_eq!(undo.on_done(job.run()).unwrap(), number);
    }
    drop(undo);
    let mut found: SavedUndo = UndoLog::open(&storage, id).unwrap();
    assert_eq!((found.original_size(), found.header()), (FILE_BYTES, &b"who"[..]));
    let mut bytes = 0;
    while let Some(piece) = found.next_piece().unwrap() {
        assert_eq!(piece.content, Content::Copied(&content(piece.offset, PIECE_BYTES)));
        bytes += piece.length();
    }
    assert_eq!(bytes, FILE_BYTES);
    UndoLog::remove(&storage, id).unwrap();
    assert!(UndoLog::list(&storage).unwrap().is_empty());
}

fn content(offset: u64, length: u64) -> Vec<u8> {
    Random::new(offset).bytes(length as usize)
}
