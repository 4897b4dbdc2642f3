//! The load of one client.
//!
//! Invariant: an operation that fails is a violation. The client library reconnects automatically,
//! so an application should only see a pause.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, Result};
use dafs_client::{
    Client, ClientConfig, ClientError, File, LockKind, LockOptions, OpenOptions, Recovery,
    RecoveryOptions, Session, SessionEvent, SessionOptions,
};
use dafs_dat::Address;
use dafs_types::Random;

use super::exclusion::{COUNTER_LOCK, LEDGER_LOCK};
use super::killer::Victim;
use super::model::{Model, record};
use super::nfs::Counts;
use super::{SHARED_DIRECTORY, expect};

/// The kinds of operations, in the order of [`Outcome::counts`].
pub(super) const KINDS: [&str; 11] = [
    "files made exclusively",
    "appends to own files",
    "appends to a shared file",
    "overwritten and committed",
    "renames",
    "removals",
    "sizes set",
    "increments under a lock",
    "rolled back under an auto-recovery lock",
    "records appended under a lock",
    "parts of a shared file overwritten",
];

pub(super) struct Load {
    number: u32,
    address: Address,
    options: SessionOptions,
    random: Random,
    stop: Arc<AtomicBool>,
    home: String,
}

/// The operations that a client has completed, and the state of the files that must result.
pub(super) struct Outcome {
    pub number: u32,
    pub model: Model,
    /// The number of records that this client appended to the shared log.
    pub records: u64,
    /// The number of times that this client incremented the shared counter.
    pub counted: u64,
    /// The number of records that this client appended to the ledger.
    pub entries: u64,
    /// The content of this client's part of the file that all clients overwrite.
    pub stripe: Vec<u8>,
    /// The kinds of operations of the client.
    pub kinds: &'static [&'static str],
    /// The number of operations of each kind.
    pub counts: Vec<u64>,
    pub fetched: u64,
    pub reissued: u64,
    pub reclaimed: u64,
    /// What the deaths of the server caused, if this client is one of NFS.
    pub nfs: Option<Counts>,
}

impl Outcome {
    pub(super) fn new(number: u32, kinds: &'static [&'static str], home: String) -> Self {
        Self {
            number,
            model: Model::new(home),
            records: 0,
            counted: 0,
            entries: 0,
            stripe: vec![0; STRIPE_BYTES],
            kinds,
            counts: vec![0; kinds.len()],
            fetched: 0,
            reissued: 0,
            reclaimed: 0,
            nfs: None,
        }
    }
}

/// Statistics of reconnects and of the requests that were recovered.
#[derive(Default)]
struct Recoveries {
    fetched: Cell<u64>,
    reissued: Cell<u64>,
    reclaimed: Cell<u64>,
}

/// Creates the files that all clients share, and the directories of `clients` DAFS clients.
pub(super) fn prepare(victim: &Victim, clients: u32) -> Result<()> {
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect_to(&victim.address(0), &victim.options())?;
    for number in 0..clients {
        session.create_dir(format!("/c{number}"), 0o755)?;
    }
    session.create_dir(SHARED_DIRECTORY, 0o755)?;
    for path in [LOG, LEDGER, STRIPES] {
        session.open(path, &OpenOptions::write())?.close()?;
    }
    for path in [COUNTER, UNDONE] {
        let file = session.open(path, &OpenOptions::write())?;
        file.write_at(&[0; UNDONE_BYTES][..if path == COUNTER { 8 } else { UNDONE_BYTES }], 0)?;
        file.commit()?;
        file.close()?;
    }
    Ok(session.disconnect()?)
}

impl Load {
    /// `home` is the start of the paths of the client's files.
    pub(super) fn new(
        number: u32,
        victim: &Victim,
        random: Random,
        stop: Arc<AtomicBool>,
        home: String,
    ) -> Self {
        let (address, options) = (victim.address(number), victim.options());
        Self { number, address, options, random, stop, home }
    }

    /// Runs operations until the test is stopped. Sends on `connected` when the session is
    /// established.
    pub(super) fn run(self, connected: Sender<()>) -> Result<Outcome> {
        let client = Client::new(ClientConfig::default())?;
        // A server that lives for a fraction of a second must be reached during that time, so retry
        // often.
        let recovery = RecoveryOptions::default().pause_max(PAUSE_MAX);
        // Two of every four clients use as many connections as the server has reactors.
        let channels = if self.number % 4 < 2 { 1 } else { SessionOptions::CHANNELS_MAX };
        let recovery = Recovery::On(recovery);
        let options = self.options.recovery(recovery).channels(channels);
        let session = client.connect_to(&self.address, &options)?;
        // If the test has already stopped, there is no receiver, and nothing waits for the message.
        let _ = connected.send(());
        drop(connected);
        let recoveries = Rc::new(Recoveries::default());
        let noted = recoveries.clone();
        session.on_event(move |event| {
            if let SessionEvent::Recovered { fetched, reissued, reclaimed, .. } = event {
                noted.fetched.set(noted.fetched.get() + u64::from(*fetched));
                noted.reissued.set(noted.reissued.get() + u64::from(*reissued));
                noted.reclaimed.set(noted.reclaimed.get() + u64::from(*reclaimed));
            }
        });
        let outcome = Outcome::new(self.number, &KINDS, self.home);
        let log = session.open(LOG, &OpenOptions::write())?;
        let mut worker = Worker { session: &session, log, random: self.random, outcome };
        while !self.stop.load(Ordering::Acquire) {
            worker.step()?;
        }
        let Worker { log, mut outcome, .. } = worker;
        log.close()?;
        session.disconnect()?;
        outcome.fetched = recoveries.fetched.get();
        outcome.reissued = recoveries.reissued.get();
        outcome.reclaimed = recoveries.reclaimed.get();
        Ok(outcome)
    }
}

struct Worker<'s> {
    session: &'s Session,
    /// The shared log, which stays open so that every incarnation of the server reclaims the open.
    log: File,
    random: Random,
    outcome: Outcome,
}

impl Worker<'_> {
    fn step(&mut self) -> Result<()> {
        let kind = match (self.outcome.model.files.len(), self.random.below(KINDS.len() + 1)) {
            (0, _) => 0,
            (FILES_MAX.., 0) => 5,
            // Append most often, because appends matter most to applications.
            (_, kind) if kind == KINDS.len() => 2,
            (_, kind) => kind,
        };
        let done = match kind {
            0 => self.create(),
            1 => self.append(),
            2 => self.append_to_log(),
            3 => self.overwrite(),
            4 => self.rename(),
            5 => self.remove(),
            6 => self.set_size(),
            7 => self.count_up(),
            8 => self.roll_back(),
            9 => self.append_to_ledger(),
            _ => self.overwrite_stripe(),
        };
        self.outcome.counts[kind] += 1;
        done.with_context(|| format!("{}, number {}", KINDS[kind], self.outcome.counts[kind]))
    }

    fn path(&self, name: &str) -> String {
        self.outcome.model.path(name)
    }

    fn create(&mut self) -> Result<()> {
        let name = self.outcome.model.new_name();
        let options = OpenOptions::write().create_new(true);
        self.session.open(self.path(&name), &options)?.close()?;
        self.outcome.model.files.insert(name, Vec::new());
        Ok(())
    }

    /// Opens one of the client's files. Returns its name, the file and its expected length.
    fn some_file(&mut self) -> Result<(String, File, usize)> {
        let name = self.outcome.model.pick(&mut self.random).context("there is no file")?;
        let length = self.outcome.model.files[&name].len();
        let file = self.session.open(self.path(&name), &OpenOptions::write())?;
        Ok((name, file, length))
    }

    fn append(&mut self) -> Result<()> {
        let (name, file, length) = self.some_file()?;
        let count = 1 + self.random.below(APPEND_BYTES_MAX);
        let bytes = self.random.bytes(count);
        let at = file.append(&bytes)?;
        expect(at == length as u64, || {
            format!("{}: appended at {at}, but it had {length} bytes", file.path())
        })?;
        file.close()?;
        self.outcome.model.write(&name, length, &bytes);
        Ok(())
    }

    fn append_to_log(&mut self) -> Result<()> {
        let at = self.log.append(&record(self.outcome.number, self.outcome.records))?;
        expect(at.is_multiple_of(super::model::RECORD_BYTES as u64), || {
            format!("{LOG}: appended at {at}, within another record")
        })?;
        self.outcome.records += 1;
        Ok(())
    }

    fn overwrite(&mut self) -> Result<()> {
        let (name, file, length) = self.some_file()?;
        let (at, count) = (self.random.below(length + 1), 1 + self.random.below(WRITE_BYTES_MAX));
        let bytes = self.random.bytes(count);
        commit(&file, &bytes, at as u64)?;
        file.close()?;
        self.outcome.model.write(&name, at, &bytes);
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let model = &mut self.outcome.model;
        let old = model.pick(&mut self.random).context("there is no file")?;
        // Sometimes the new name replaces another file.
        let new = match model.pick(&mut self.random) {
            Some(other) if other != old && self.random.percent(20) => other,
            _ => model.new_name(),
        };
        self.session.rename(self.path(&old), self.path(&new))?;
        if let Some(content) = self.outcome.model.files.remove(&old) {
            self.outcome.model.files.insert(new, content);
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let name = self.outcome.model.pick(&mut self.random).context("there is no file")?;
        self.session.remove(self.path(&name))?;
        self.outcome.model.files.remove(&name);
        Ok(())
    }

    fn set_size(&mut self) -> Result<()> {
        let (name, file, length) = self.some_file()?;
        let size = self.random.below(length + 100);
        file.set_len(size as u64)?;
        file.commit()?;
        file.close()?;
        if let Some(content) = self.outcome.model.files.get_mut(&name) {
            content.resize(size, 0);
        }
        Ok(())
    }

    /// Increments the shared counter under a lock that all clients take.
    fn count_up(&mut self) -> Result<()> {
        let file = self.session.open(COUNTER, &OpenOptions::write())?;
        let options = LockOptions::default();
        file.lock(LockKind::Exclusive, 0, u64::MAX, options, None)?;
        COUNTER_LOCK.enter(self.outcome.number)?;
        let mut number = [0; 8];
        let got = file.read_at(&mut number, 0)?;
        expect(got == 8, || format!("{COUNTER} has {got} bytes"))?;
        commit(&file, &(u64::from_le_bytes(number) + 1).to_le_bytes(), 0)?;
        COUNTER_LOCK.leave();
        file.unlock(0, u64::MAX)?;
        file.close()?;
        self.outcome.counted += 1;
        Ok(())
    }

    /// Appends a record to a file by a write at its end, under a lock that all clients take.
    fn append_to_ledger(&mut self) -> Result<()> {
        let file = self.session.open(LEDGER, &OpenOptions::write())?;
        file.lock(LockKind::Exclusive, 0, u64::MAX, LockOptions::default(), None)?;
        LEDGER_LOCK.enter(self.outcome.number)?;
        let at = file.metadata()?.size;
        expect(at.is_multiple_of(super::model::RECORD_BYTES as u64), || {
            format!("{LEDGER} has {at} bytes")
        })?;
        commit(&file, &record(self.outcome.number, self.outcome.entries), at)?;
        LEDGER_LOCK.leave();
        file.unlock(0, u64::MAX)?;
        file.close()?;
        self.outcome.entries += 1;
        Ok(())
    }

    /// Overwrites the client's part of a file. Other clients write the bytes before and after.
    fn overwrite_stripe(&mut self) -> Result<()> {
        let file = self.session.open(STRIPES, &OpenOptions::write())?;
        let bytes = self.random.bytes(STRIPE_BYTES);
        commit(&file, &bytes, u64::from(self.outcome.number) * STRIPE_BYTES as u64)?;
        file.close()?;
        self.outcome.stripe = bytes;
        Ok(())
    }

    /// Changes a file under a lock that undoes the change, so the file must stay the same.
    fn roll_back(&mut self) -> Result<()> {
        let file = self.session.open(UNDONE, &OpenOptions::write())?;
        let options = LockOptions::AUTO_RECOVERY;
        file.lock(LockKind::Exclusive, 0, u64::MAX, options, None)?;
        let mut content = vec![0; UNDONE_BYTES + 1];
        let got = file.read_at(&mut content, 0)?;
        expect(got == UNDONE_BYTES && content.iter().all(|byte| *byte == 0), || {
            format!("{UNDONE}: changes under an auto-recovery lock were not undone")
        })?;
        let (at, count) = (self.random.below(UNDONE_BYTES), 1 + self.random.below(WRITE_BYTES_MAX));
        file.write_at(&vec![1; count], at as u64)?;
        file.abort_lock(0, u64::MAX)?;
        file.unlock(0, u64::MAX)?;
        // If the server died meanwhile, the data that was to be undone is lost, which is no error.
        match file.close() {
            Ok(()) | Err(ClientError::DataLost { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Repeats a write until it is committed, because a server that dies loses uncommitted data.
fn commit(file: &File, bytes: &[u8], at: u64) -> Result<()> {
    loop {
        file.write_at(bytes, at)?;
        match file.commit() {
            Err(ClientError::DataLost { .. }) => {}
            committed => return Ok(committed?),
        }
    }
}

pub(super) const LOG: &str = "/log";
pub(super) const COUNTER: &str = "/counter";
pub(super) const UNDONE: &str = "/undone";
/// The file to which all clients append records, under a lock.
pub(super) const LEDGER: &str = "/ledger";
/// The file of which each client overwrites a part.
pub(super) const STRIPES: &str = "/stripes";
/// The size of a part, which is not a multiple of a block, so that clients share blocks.
pub(super) const STRIPE_BYTES: usize = 1500;
pub(super) const UNDONE_BYTES: usize = 64 * 1024;
/// The maximum number of files of one client.
const FILES_MAX: usize = 40;
const APPEND_BYTES_MAX: usize = 5000;
const WRITE_BYTES_MAX: usize = 20_000;
const PAUSE_MAX: Duration = Duration::from_millis(40);
