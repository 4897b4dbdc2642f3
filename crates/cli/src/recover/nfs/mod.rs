//! The load of one NFSv4.1 client. It changes the same directory and the same files as the DAFS
//! clients.
//!
//! Invariant: an operation that fails is a violation, unless an earlier attempt may have succeeded
//! and the server has not promised to remember it.

mod mount;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result, bail};
use dafs_nfs_suite::nfs4::attributes::SIZE;
use dafs_nfs_suite::nfs4::ops::{self, How};
use dafs_nfs_suite::nfs4::session::Wish;
use dafs_nfs_suite::nfs4::{Body, Set, StateId};
use dafs_nfs_suite::rpc::Auth;
use dafs_nfs_suite::status;
use dafs_types::Random;

use self::mount::{Answer, Mount, OpenId, PERSIST};
use super::exclusion::{COUNTER_LOCK, LEDGER_LOCK};
use super::expect;
use super::load::{COUNTER, LEDGER, Outcome, STRIPE_BYTES, STRIPES, UNDONE, UNDONE_BYTES};
use super::model::{RECORD_BYTES, record};

pub(super) use self::mount::Counts;

/// The kinds of operations, in the order of [`Outcome::counts`].
pub(super) const KINDS: [&str; 10] = [
    "over NFS: files made exclusively",
    "over NFS: written unstably and committed",
    "over NFS: written synchronously",
    "over NFS: renames",
    "over NFS: removals",
    "over NFS: sizes set",
    "over NFS: increments under a lock",
    "over NFS: records appended under a lock",
    "over NFS: parts of a shared file overwritten",
    "over NFS: files compared",
];

pub(super) struct NfsLoad {
    pub number: u32,
    pub server: SocketAddr,
    pub random: Random,
    pub stop: Arc<AtomicBool>,
}

impl NfsLoad {
    /// Runs operations until the test is stopped. Sends on `connected` when the session is
    /// established.
    pub(super) fn run(mut self, connected: Sender<()>) -> Result<Outcome> {
        let mut mount = Mount::new(self.server, wish(self.number, &mut self.random))?;
        // If the test has already stopped, there is no receiver, and nothing waits for the message.
        let _ = connected.send(());
        drop(connected);
        let (root, directory) = mount.directories()?;
        let ledger = mount.open_existing(&root, LEDGER)?;
        let outcome = Outcome::new(self.number, &KINDS, super::shared_home(self.number));
        let mut worker = Worker { mount, root, directory, ledger, random: self.random, outcome };
        while !self.stop.load(Ordering::Acquire) {
            worker.step()?;
        }
        let Worker { mut mount, mut outcome, .. } = worker;
        mount.close(ledger)?;
        outcome.nfs = Some(mount.counts);
        Ok(outcome)
    }
}

/// Reads files and lists directories, for the check of the final state.
pub(super) struct Reader {
    mount: Mount,
}

impl Reader {
    pub(super) fn new(server: SocketAddr, random: &mut Random) -> Result<Self> {
        Ok(Self { mount: Mount::new(server, wish(u32::MAX, random))? })
    }

    /// Returns the content of a file.
    pub(super) fn read(&mut self, path: &str) -> Result<Vec<u8>> {
        let fh = self.mount.find(path)?;
        self.mount.read_all(|_| Ok((fh.clone(), StateId::ANONYMOUS)))
    }

    /// Returns the names in a directory.
    pub(super) fn list(&mut self, path: &str) -> Result<BTreeSet<String>> {
        let fh = self.mount.find(path)?;
        self.mount.list(&fh)
    }
}

fn wish(number: u32, random: &mut Random) -> Wish {
    let owner = format!("dafs-recover-test-{number}");
    let auth = Auth::user(rustix::process::geteuid().as_raw());
    let mut verifier = [0; 8];
    verifier.copy_from_slice(&random.bytes(8));
    Wish { verifier, flags: PERSIST, ..Wish::new(owner.as_bytes(), auth, 1) }
}

impl Mount {
    /// Returns the handles of the root and of the directory that all clients change.
    fn directories(&mut self) -> Result<(Vec<u8>, Vec<u8>)> {
        Ok((self.find("/")?, self.find(super::SHARED_DIRECTORY)?))
    }

    fn find(&mut self, path: &str) -> Result<Vec<u8>> {
        let reply = self
            .ok(|_| {
                let mut ops = vec![ops::putrootfh()];
                ops.extend(path.split('/').filter(|name| !name.is_empty()).map(ops::lookup));
                ops.push(ops::getfh());
                Ok(ops)
            })
            .with_context(|| path.to_owned())?;
        Ok(reply.fh(reply.results.len() - 1)?)
    }

    /// Reads a whole file. `file` returns its handle and the present state id.
    fn read_all(&mut self, file: impl Fn(&Self) -> Result<(Vec<u8>, StateId)>) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let at = content.len() as u64;
            let reply = self.ok(|mount| {
                let (fh, state) = file(mount)?;
                Ok(vec![ops::putfh(&fh), ops::read(state, at, READ_BYTES)])
            })?;
            let (is_end, data) = reply.data(1)?;
            content.extend_from_slice(data);
            if is_end {
                return Ok(content);
            }
            expect(!data.is_empty(), || format!("READ at {at} returns nothing"))?;
        }
    }

    fn list(&mut self, fh: &[u8]) -> Result<BTreeSet<String>> {
        let (mut names, mut cookie, mut verifier) = (BTreeSet::new(), 0, [0; 8]);
        loop {
            let reply = self.ok(|_| {
                let page = ops::readdir(cookie, verifier, (PAGE_BYTES, PAGE_BYTES), &[]);
                Ok(vec![ops::putfh(fh), page])
            })?;
            let Body::Page(page) = reply.body(1)? else { bail!("READDIR has no page") };
            for (next, name, _) in &page.entries {
                cookie = *next;
                names.insert(String::from_utf8_lossy(name).into_owned());
            }
            verifier = page.verifier;
            if page.eof {
                return Ok(names);
            }
        }
    }

    fn size(&mut self, open: OpenId) -> Result<u64> {
        let reply =
            self.ok(|mount| Ok(vec![ops::putfh(&mount.held(open)?.fh), ops::getattr(&[SIZE])]))?;
        Ok(reply.attrs(1)?.number(SIZE)?)
    }

    /// Writes a piece. Returns true if it is stable, and the write verifier.
    fn write(
        &mut self,
        open: OpenId,
        (at, bytes): (u64, &[u8]),
        stable: u32,
    ) -> Result<(bool, [u8; 8])> {
        let reply = self.ok(|mount| {
            let held = mount.held(open)?;
            Ok(vec![ops::putfh(&held.fh), ops::write(held.state, at, stable, bytes)])
        })?;
        let Body::Written { count, committed, verifier } = reply.body(1)? else {
            bail!("WRITE has no results")
        };
        expect(*count as usize == bytes.len() && *committed >= stable, || {
            format!("WRITE wrote {count} of {} bytes, stability {committed}", bytes.len())
        })?;
        Ok((*committed == FILE_SYNC, *verifier))
    }

    /// Writes pieces unstably, and repeats them until they are committed.
    fn commit(&mut self, open: OpenId, pieces: &[(u64, Vec<u8>)]) -> Result<()> {
        loop {
            let mut verifiers = Vec::new();
            for (at, bytes) in pieces {
                let (is_stable, verifier) = self.write(open, (*at, bytes), UNSTABLE)?;
                verifiers.extend((!is_stable).then_some(verifier));
            }
            let reply =
                self.ok(|mount| Ok(vec![ops::putfh(&mount.held(open)?.fh), ops::commit(0, 0)]))?;
            let Body::Verifier(committed) = reply.body(1)? else { bail!("COMMIT has no verifier") };
            if verifiers.iter().all(|verifier| verifier == committed) {
                return Ok(());
            }
            self.counts.rewritten += pieces.len() as u64;
        }
    }

    fn set_size(&mut self, open: OpenId, size: u64) -> Result<()> {
        self.set(open, &Set::new().size(size))
    }

    fn set(&mut self, open: OpenId, set: &Set) -> Result<()> {
        self.ok(|mount| {
            let held = mount.held(open)?;
            Ok(vec![ops::putfh(&held.fh), ops::setattr(held.state, set)])
        })
        .map(drop)
    }
}

struct Worker {
    mount: Mount,
    root: Vec<u8>,
    /// The directory that all clients change.
    directory: Vec<u8>,
    /// The ledger, which stays open so that every incarnation of the server reclaims the open.
    ledger: OpenId,
    random: Random,
    outcome: Outcome,
}

impl Worker {
    fn step(&mut self) -> Result<()> {
        let kind = match (self.outcome.model.files.len(), self.random.below(KINDS.len())) {
            (0, _) => 0,
            (FILES_MAX.., 0) => 4,
            (_, kind) => kind,
        };
        let done = match kind {
            0 => self.create(),
            1 => self.write_and_commit(),
            2 => self.write_stably(),
            3 => self.rename(),
            4 => self.remove(),
            5 => self.set_size(),
            6 => self.count_up(),
            7 => self.append_to_ledger(),
            8 => self.overwrite_stripe(),
            _ => self.compare(),
        };
        let is_done = done.with_context(|| {
            format!("{}, number {}", KINDS[kind], self.outcome.counts[kind] + 1)
        })?;
        self.outcome.counts[kind] += u64::from(is_done);
        Ok(())
    }

    /// Returns the name of a file in the shared directory.
    fn shared_name(&self, name: &str) -> String {
        let path = self.outcome.model.path(name);
        path.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Creates a file under a name that another file may have had before. So a removal or rename
    /// that the server executed twice would be noticed.
    fn create(&mut self) -> Result<bool> {
        let name = self.unused();
        let shared = self.shared_name(&name);
        let is_exclusive = self.random.percent(50);
        let how = match is_exclusive {
            true => {
                let mut verifier = [0; 8];
                verifier.copy_from_slice(&self.random.bytes(8));
                How::Exclusive(verifier)
            }
            false => How::Guarded(Set::new().mode(0o644)),
        };
        let open = match self.mount.open(&self.directory, &shared, &how)? {
            Ok(open) => open,
            // An exclusive creation recognizes its own file, so it may be repeated always.
            Err(Answer { reply, may_be_second: true })
                if reply.status == status::EXIST && !is_exclusive =>
            {
                self.mount.open_existing(&self.directory, &shared)?
            }
            Err(Answer { reply, may_be_second }) => {
                return expect(false, || {
                    format!(
                        "the creation of {shared} fails with {} (exclusive: {is_exclusive}, \
                        may have been repeated: {may_be_second})",
                        status::name(reply.status)
                    )
                })
                .map(|()| false);
            }
        };
        let size = self.mount.size(open)?;
        expect(size == 0, || format!("the new file {shared} has {size} bytes"))?;
        if is_exclusive {
            self.mount.set(open, &Set::new().mode(0o644))?;
        }
        self.mount.close(open)?;
        self.outcome.model.files.insert(name, Vec::new());
        Ok(true)
    }

    fn unused(&mut self) -> String {
        loop {
            let name = format!("n{}", self.random.below(NAMES));
            if !self.outcome.model.files.contains_key(&name) {
                return name;
            }
        }
    }

    /// Opens one of the client's files. Returns its name, the open and its expected length.
    fn some_file(&mut self) -> Result<(String, OpenId, usize)> {
        let name = self.outcome.model.pick(&mut self.random).context("there is no file")?;
        let length = self.outcome.model.files[&name].len();
        let open = self.mount.open_existing(&self.directory, &self.shared_name(&name))?;
        Ok((name, open, length))
    }

    /// Returns random bytes for a random place in a file with this length, or at its end.
    fn some_piece(&mut self, length: usize) -> (usize, Vec<u8>) {
        let at = self.random.below(length + 1);
        let count = 1 + self.random.below(WRITE_BYTES_MAX);
        (at, self.random.bytes(count))
    }

    fn write_and_commit(&mut self) -> Result<bool> {
        let (name, open, length) = self.some_file()?;
        let count = 1 + self.random.below(PIECES_MAX);
        let pieces: Vec<_> = (0..count).map(|_| self.some_piece(length)).collect();
        let sent: Vec<_> = pieces.iter().map(|(at, bytes)| (*at as u64, bytes.clone())).collect();
        self.mount.commit(open, &sent)?;
        self.mount.close(open)?;
        for (at, bytes) in pieces {
            self.outcome.model.write(&name, at, &bytes);
        }
        Ok(true)
    }

    fn write_stably(&mut self) -> Result<bool> {
        let (name, open, length) = self.some_file()?;
        let (at, bytes) = self.some_piece(length);
        self.mount.write(open, (at as u64, &bytes), FILE_SYNC)?;
        self.mount.close(open)?;
        self.outcome.model.write(&name, at, &bytes);
        Ok(true)
    }

    fn rename(&mut self) -> Result<bool> {
        let old = self.outcome.model.pick(&mut self.random).context("there is no file")?;
        // Sometimes the new name replaces another file.
        let new = match self.outcome.model.pick(&mut self.random) {
            Some(other) if other != old && self.random.percent(20) => other,
            _ => self.unused(),
        };
        let (from, to) = (self.shared_name(&old), self.shared_name(&new));
        let directory = ops::putfh(&self.directory);
        let ops = vec![directory.clone(), ops::savefh(), directory, ops::rename(&from, &to)];
        let answer = self.mount.call(|_| Ok(ops.clone()))?;
        self.done_once(&format!("the rename of {from} to {to}"), &answer)?;
        if let Some(content) = self.outcome.model.files.remove(&old) {
            self.outcome.model.files.insert(new, content);
        }
        Ok(true)
    }

    fn remove(&mut self) -> Result<bool> {
        let name = self.outcome.model.pick(&mut self.random).context("there is no file")?;
        let shared = self.shared_name(&name);
        let ops = vec![ops::putfh(&self.directory), ops::remove(&shared)];
        let answer = self.mount.call(|_| Ok(ops.clone()))?;
        self.done_once(&format!("the removal of {shared}"), &answer)?;
        self.outcome.model.files.remove(&name);
        Ok(true)
    }

    /// Checks that an operation on a name that exists has succeeded, now or in an earlier attempt.
    fn done_once(&self, what: &str, answer: &Answer) -> Result<()> {
        let is_done = match answer.reply.status {
            status::OK => true,
            status::NOENT => answer.may_be_second,
            _ => false,
        };
        expect(is_done, || format!("{what} fails with {}", status::name(answer.reply.status)))
    }

    fn set_size(&mut self) -> Result<bool> {
        let (name, open, length) = self.some_file()?;
        let size = self.random.below(length + 100);
        self.mount.set_size(open, size as u64)?;
        self.mount.close(open)?;
        if let Some(content) = self.outcome.model.files.get_mut(&name) {
            content.resize(size, 0);
        }
        Ok(true)
    }

    /// Writes bytes under a lock, by one of both ways.
    fn write_either_way(&mut self, open: OpenId, at: u64, bytes: &[u8]) -> Result<()> {
        if self.random.percent(50) {
            return self.mount.commit(open, &[(at, bytes.to_vec())]);
        }
        self.mount.write(open, (at, bytes), FILE_SYNC).map(drop)
    }

    /// Increments the shared counter under a lock that all clients take.
    fn count_up(&mut self) -> Result<bool> {
        let open = self.mount.open_existing(&self.root, COUNTER)?;
        let is_locked = self.mount.lock(open)?;
        if is_locked {
            COUNTER_LOCK.enter(self.outcome.number)?;
            let number = self.read_open(open)?;
            let number = number.try_into().map_err(|_| super::violated("a torn counter".into()))?;
            let number = u64::from_le_bytes(number) + 1;
            self.write_either_way(open, 0, &number.to_le_bytes())?;
            COUNTER_LOCK.leave();
            self.mount.unlock(open)?;
            self.outcome.counted += 1;
        }
        self.mount.close(open)?;
        Ok(is_locked)
    }

    fn append_to_ledger(&mut self) -> Result<bool> {
        let ledger = self.ledger;
        if !self.mount.lock(ledger)? {
            return Ok(false);
        }
        LEDGER_LOCK.enter(self.outcome.number)?;
        let at = self.mount.size(ledger)?;
        expect(at.is_multiple_of(RECORD_BYTES as u64), || format!("{LEDGER} has {at} bytes"))?;
        let record = record(self.outcome.number, self.outcome.entries);
        self.write_either_way(ledger, at, &record)?;
        LEDGER_LOCK.leave();
        self.mount.unlock(ledger)?;
        self.outcome.entries += 1;
        Ok(true)
    }

    /// Overwrites the client's part of a file. Other clients write the bytes before and after.
    fn overwrite_stripe(&mut self) -> Result<bool> {
        let open = self.mount.open_existing(&self.root, STRIPES)?;
        let bytes = self.random.bytes(STRIPE_BYTES);
        let at = self.outcome.number as usize * STRIPE_BYTES;
        self.write_either_way(open, at as u64, &bytes)?;
        self.mount.close(open)?;
        self.outcome.stripe = bytes;
        Ok(true)
    }

    fn read_open(&mut self, open: OpenId) -> Result<Vec<u8>> {
        self.mount.read_all(|mount| {
            let held = mount.held(open)?;
            Ok((held.fh.clone(), held.state))
        })
    }

    /// Compares one of the client's files, or the file whose changes are undone, with what it must
    /// contain.
    fn compare(&mut self) -> Result<bool> {
        if self.random.percent(30) {
            return self.compare_undone();
        }
        let (name, open, _) = self.some_file()?;
        let found = self.read_open(open)?;
        self.mount.close(open)?;
        let expected = &self.outcome.model.files[&name];
        expect(found == *expected, || super::check::differs(&name, &found, expected))?;
        Ok(true)
    }

    fn compare_undone(&mut self) -> Result<bool> {
        let open = self.mount.open_existing(&self.root, UNDONE)?;
        let is_locked = self.mount.lock(open)?;
        if is_locked {
            let found = self.read_open(open)?;
            let expected = [0; UNDONE_BYTES];
            expect(found == expected, || super::check::differs(UNDONE, &found, &expected))?;
            self.mount.unlock(open)?;
        }
        self.mount.close(open)?;
        Ok(is_locked)
    }
}

/// The stabilities of WRITE.
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;
/// The number of names that a client uses for its files.
const NAMES: usize = 30;
/// The maximum number of files of one client.
const FILES_MAX: usize = 20;
const WRITE_BYTES_MAX: usize = 20_000;
const PIECES_MAX: usize = 4;
const READ_BYTES: u32 = 256 << 10;
const PAGE_BYTES: u32 = 32 << 10;
