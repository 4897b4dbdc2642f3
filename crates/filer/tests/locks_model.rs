//! Random calls, checked against a simple model: for each byte of two small files, which owners
//! hold it and how. The model knows what may be granted, what breaks, what is rolled back and which
//! undo data must be kept; it follows the table's actions and checks them. After every step it also
//! checks that no two grants conflict, that a waiter that is ready is granted when it asks, and
//! that no request waits without being blocked.
//!
//! `DAFS_LOCK_SEED=<seed> cargo test -p dafs-filer --test main locks_model` replays a failure;
//! `DAFS_LOCK_SEEDS=<count>` runs more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::locks_common::*;
use dafs_filer::locks::*;
use dafs_filer::{FileKey, IoKind};
use dafs_ops::Fault;
use dafs_types::*;

const BYTES: usize = 12;
const FILES: u64 = 2;
const CLIENTS: usize = 3;
const NAMES: [&str; 2] = ["a", "b"];
const STEPS: usize = 600;
const SEEDS: u64 = 100;

/// The state of one owner's lock at one byte.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Held,
    Breakable,
    Broken,
    /// The byte is being rolled back; afterwards it is broken, gone or held again.
    Undoing(Then),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Broken,
    Gone,
    Held,
    Breakable,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    mode: LockMode,
    attributes: LockAttributes,
    at: At,
    /// True if the lock is used under an open, which it is not before it is reclaimed.
    open: bool,
}

impl Cell {
    fn is_broken(&self) -> bool {
        matches!(self.at, At::Broken | At::Undoing(Then::Broken))
    }

    fn is_orphan(&self) -> bool {
        self.is_broken() || self.at == At::Undoing(Then::Gone)
    }
}

/// A client's incarnation and an owner's name.
type Who = (u64, &'static str);
type Place = (u64, usize);

/// The locks of each owner at each byte, and those that belong to no owner. Broken shared locks may
/// overlap each other and the locks that their former owner has taken since.
#[derive(Default)]
struct Model {
    own: BTreeMap<(Place, Who), Cell>,
    orphans: Vec<((Place, Who), Cell)>,
    undo: BTreeSet<Place>,
    records: BTreeMap<LockId, LockRecord>,
    rollbacks: BTreeMap<RollbackId, (u64, ByteRange)>,
    ready: BTreeSet<u64>,
    /// Locks that belong to an owner, as the table listed them before a call.
    pieces: Vec<(u64, ByteRange, Who)>,
}

/// Returns the positions of a range: single bytes, and one position for all bytes beyond them.
fn bytes(range: ByteRange) -> std::ops::Range<usize> {
    range.first() as usize..(range.last().min(BYTES as u64) as usize + 1)
}

impl Model {
    /// Returns all locks at some bytes of a file, each with its owner.
    fn cells(&self, file: u64, range: ByteRange) -> impl Iterator<Item = (Who, &Cell)> {
        let here = move |place: &Place| place.0 == file && bytes(range).contains(&place.1);
        let orphans = self.orphans.iter().map(|(key, cell)| (key, cell));
        let all = self.own.iter().chain(orphans);
        all.filter(move |((place, _), _)| here(place)).map(|((_, who), cell)| (*who, cell))
    }

    fn in_way(&self, file: u64, who: Who, range: ByteRange, mode: LockMode) -> Vec<Cell> {
        let is_own = |other: Who, cell: &Cell| other == who && !cell.is_orphan();
        let against = |cell: &Cell| cell.mode == Write || mode == Write;
        let cells = self.cells(file, range);
        cells.filter(|(w, cell)| !is_own(*w, cell) && against(cell)).map(|(_, c)| *c).collect()
    }

    /// Changes the lock at each position for which `which` returns a value.
    fn change(&mut self, mut which: impl FnMut(Place, Who, &Cell) -> Option<Option<Cell>>) {
        for ((place, who), cell) in std::mem::take(&mut self.own) {
            let outcome = which(place, who, &cell).unwrap_or(Some(cell));
            match outcome {
                Some(cell) if cell.is_orphan() => self.orphans.push(((place, who), cell)),
                Some(cell) => assert_eq!(self.own.insert((place, who), cell), None),
                None => {}
            }
        }
    }

    fn broken(cell: &Cell) -> Cell {
        let undoing = cell.attributes.auto_recovery;
        Cell { at: if undoing { At::Undoing(Then::Broken) } else { At::Broken }, ..*cell }
    }

    /// Breaks the breakable locks that conflict with a request. Each breaks completely; its range
    /// is taken from the table's list before the call.
    fn break_by(&mut self, file: u64, who: Who, range: ByteRange, mode: LockMode) {
        let pieces = std::mem::take(&mut self.pieces);
        let hit = |place: Place, other: Who, cell: &Cell| {
            let reached = |&(f, r, w): &(u64, ByteRange, Who)| {
                let here = (f, w) == (place.0, other) && bytes(r).contains(&place.1);
                here && f == file && r.overlaps(range)
            };
            let against = cell.mode == Write || mode == Write;
            cell.at == At::Breakable && other != who && against && pieces.iter().any(reached)
        };
        self.change(|place, other, cell| hit(place, other, cell).then(|| Some(Self::broken(cell))));
        self.pieces = pieces;
    }

    fn fail(&mut self, client: u64, restarted: bool) {
        self.change(|_, who, cell| {
            if who.0 != client {
                return None;
            }
            let persist = cell.attributes.persist;
            Some(match cell.at {
                At::Undoing(_) => {
                    let then = match (persist, restarted) {
                        (false, _) => Then::Gone,
                        (true, true) => Then::Broken,
                        (true, false) => Then::Breakable,
                    };
                    Some(Cell { at: At::Undoing(then), ..*cell })
                }
                _ if persist && restarted => Some(Self::broken(cell)),
                _ if persist => Some(Cell { at: At::Breakable, ..*cell }),
                _ if cell.attributes.auto_recovery => {
                    Some(Cell { at: At::Undoing(Then::Gone), ..*cell })
                }
                _ => None,
            })
        });
    }

    fn rolled_back(&mut self, file: u64, range: ByteRange) {
        let here = |place: Place| place.0 == file && bytes(range).contains(&place.1);
        self.change(|place, _, cell| match cell.at {
            At::Undoing(Then::Held) if here(place) => Some(Some(Cell { at: At::Held, ..*cell })),
            At::Undoing(Then::Breakable) if here(place) => {
                Some(Some(Cell { at: At::Breakable, ..*cell }))
            }
            _ => None,
        });
        self.orphans
            .retain(|((place, _), cell)| !here(*place) || cell.at != At::Undoing(Then::Gone));
        for ((place, _), cell) in &mut self.orphans {
            if here(*place) && cell.at == At::Undoing(Then::Broken) {
                cell.at = At::Broken;
            }
        }
    }

    fn place(&mut self, file: u64, who: Who, range: ByteRange, cell: Cell) {
        for byte in bytes(range) {
            self.own.insert(((file, byte), who), cell);
        }
    }

    /// Follows an action, and checks what must hold when it comes.
    fn follow(&mut self, action: LockAction) {
        match action {
            LockAction::WriteRecord(record) => {
                self.records.insert(record.id, *record);
            }
            LockAction::RemoveRecord(id) => assert!(self.records.remove(&id).is_some()),
            LockAction::KeepUndo { file, range } => {
                let new = bytes(range).all(|byte| self.undo.insert((file.0, byte)));
                assert!(new, "undo data starts once");
            }
            LockAction::DropUndo { file, range } => {
                let had = bytes(range).all(|byte| self.undo.remove(&(file.0, byte)));
                assert!(had, "dropped undo data was kept before");
            }
            LockAction::Rollback { rollback, file, range } => {
                assert!(bytes(range).all(|byte| self.undo.contains(&(file.0, byte))));
                self.rollbacks.insert(rollback, (file.0, range));
            }
            LockAction::Ready { waiter, .. } => {
                self.ready.insert(waiter.0);
            }
            LockAction::Free { .. } => panic!("nobody watches"),
            LockAction::WaiterBroken { waiter, .. } | LockAction::WaiterGone { waiter } => {
                self.ready.remove(&waiter.0);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Cell> {
        self.own.values().chain(self.orphans.iter().map(|(_, cell)| cell))
    }

    /// Checks that records and undo data cover exactly the locks that need them.
    fn check_promises(&self) {
        let recorded = |cell: &&Cell| cell.attributes != PLAIN;
        let cells: usize = self.all().filter(recorded).count();
        let places = self.records.values().map(|record| bytes(record.range).len());
        assert_eq!(places.sum::<usize>(), cells, "records cover the locks with options");
        let undoing = |cell: &&Cell| cell.attributes.auto_recovery && cell.at != At::Broken;
        let cells = self.all().filter(undoing).count();
        assert_eq!(self.undo.len(), cells, "undo data is kept exactly where it may be needed");
    }
}

fn reclaim_of(attributes: LockAttributes, range: ByteRange) -> LockRequest {
    let whole = claiming(Claim::Reclaim, with(attributes, request(Read, 0, u64::MAX)));
    LockRequest { offset: range.first(), length: range.length(), ..whole }
}

struct Run {
    seed: u64,
    config: LockConfig,
    random: Random,
    bench: Bench,
    model: Model,
    now: Moment,
    lives: [u8; CLIENTS],
    waiters: u64,
    waited: BTreeMap<u64, (usize, &'static str, LockRequest)>,
    granted: usize,
    log: Vec<String>,
}

fn name_of(client: u64, owner: &[u8]) -> Who {
    let name = NAMES.into_iter().find(|name| name.as_bytes() == owner).unwrap();
    (client, name)
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let tail = self.log.len().saturating_sub(40);
            eprintln!("{}", self.log[tail..].join("\n"));
            let seed = self.seed;
            eprintln!("DAFS_LOCK_SEED={seed} cargo test -p dafs-filer --test main locks_model");
        }
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let config = LockConfig {
            waiter_silence_max: Duration::from_secs(20),
            mandatory: seed.is_multiple_of(2),
            ..config()
        };
        Self {
            seed,
            random: Random::new(seed),
            bench: Bench::new(config.clone()),
            config,
            model: Model::default(),
            now: T0,
            lives: [0; CLIENTS],
            waiters: 0,
            waited: BTreeMap::new(),
            granted: 0,
            log: Vec::new(),
        }
    }

    fn owner(&self, client: usize, name: &'static str) -> LockOwner<'static> {
        let life_now = self.lives[client];
        let base = life(client as u8 + 1, 0, name);
        let id = (client as u64 + 1) * 1000 + u64::from(life_now);
        LockOwner {
            client: LockClient {
                id: ClientId(id),
                verifier: Verifier([life_now; 8]),
                ..base.client
            },
            state: StateId(id * 1000 + u64::from(name.as_bytes()[0])),
            ..base
        }
    }

    fn someone(&mut self) -> (usize, &'static str) {
        (self.random.below(CLIENTS), NAMES[self.random.below(NAMES.len())])
    }

    fn range(&mut self) -> ByteRange {
        let first = self.random.below(BYTES) as u64;
        match self.random.percent(10) {
            true => ends(first, u64::MAX),
            false => ends(first, (first + self.random.below(5) as u64).min(BYTES as u64 - 1)),
        }
    }

    fn step(&mut self) {
        self.now = self.now.after(Duration::from_secs(1));
        self.bench.table.on_tick(self.now);
        self.follow();
        match self.random.below(100) {
            0..48 => self.lock(),
            48..56 => self.ask_again(),
            56..76 => self.unlock(),
            76..80 => self.repair(),
            80..83 => self.abort(),
            83..90 => self.roll_back(),
            90..92 => self.close(),
            92..94 => self.lease(),
            94..95 => self.restart(),
            95..97 => self.cancel(),
            97..98 => self.leave(),
            98 => self.server_restart(),
            _ => {}
        }
        self.follow();
        self.serve_ready();
        self.judge();
    }

    fn follow(&mut self) {
        for action in self.bench.actions() {
            self.log.push(format!("    {action:?}"));
            let lost = match &action {
                LockAction::WaiterBroken { waiter, .. } => {
                    let (client, name, asked) = self.waited[&waiter.0];
                    let who = (self.owner(client, name).client.id.0, name);
                    let range = ByteRange::new(asked.offset, asked.length).unwrap();
                    // The request broke all breakable locks that conflicted.
                    self.model.break_by(asked.file.0, who, range, asked.mode);
                    Some(waiter.0)
                }
                LockAction::WaiterGone { waiter } => Some(waiter.0),
                _ => None,
            };
            if let Some(lost) = lost {
                assert!(self.waited.remove(&lost).is_some(), "{lost} was not waiting");
            }
            self.model.follow(action);
        }
        let own = |entry: &LockEntry<'_>| entry.condition != LockCondition::Broken;
        let locks = self.bench.table.locks().filter(own);
        let described =
            locks.map(|entry| (entry.file.0, entry.range, name_of(entry.client.0, entry.owner)));
        self.model.pieces = described.collect();
    }

    fn lock(&mut self) {
        let (client, name) = self.someone();
        let range = self.range();
        let mode = if self.random.percent(50) { Read } else { Write };
        let attributes = match (self.random.below(10), mode) {
            (0..6, _) => PLAIN,
            (6 | 7, _) | (_, Read) => P,
            (8, Write) => A,
            (_, Write) => PA,
        };
        let wait = match self.random.below(3) {
            0 => Wait::No,
            which => {
                self.waiters += 1;
                let id = WaiterId(self.waiters);
                if which == 1 { Wait::Poll(id) } else { Wait::Parked(id) }
            }
        };
        let file = FileKey(self.random.below(FILES as usize) as u64);
        let (offset, length) = (range.first(), range.length());
        let claim = Claim::New;
        self.ask(client, name, LockRequest { file, offset, length, mode, attributes, claim, wait });
    }

    fn ask(&mut self, client: usize, name: &'static str, asked: LockRequest) {
        let owner = self.owner(client, name);
        let who = (owner.client.id.0, name);
        let range = ByteRange::new(asked.offset, asked.length).unwrap();
        // A request repeated under another id takes over the position of the old one.
        let same = |other: &LockRequest| LockRequest { wait: asked.wait, ..*other } == asked;
        let before: Vec<u64> = self
            .waited
            .iter()
            .filter(|(_, (c, n, other))| (*c, *n) == (client, name) && same(other))
            .map(|(id, _)| *id)
            .collect();
        let answer = self.bench.table.lock(&owner, &asked, self.now);
        self.log.push(format!("{who:?} {asked:?} -> {answer:?}"));
        let own: Vec<Cell> = self
            .model
            .cells(asked.file.0, range)
            .filter(|(w, cell)| *w == who && !cell.is_orphan())
            .map(|(_, cell)| *cell)
            .collect();
        let lacks = |cell: &Cell| {
            (cell.attributes.persist && !asked.attributes.persist)
                || (cell.attributes.auto_recovery && !asked.attributes.auto_recovery)
        };
        // Every result but one ends the wait.
        for id in before {
            self.waited.remove(&id);
            self.model.ready.remove(&id);
        }
        match answer {
            Err(LockError::RollingBack) => {
                assert!(own.iter().any(|cell| matches!(cell.at, At::Undoing(_))));
            }
            Err(LockError::OptionsDiffer) => assert!(own.iter().any(lacks)),
            Err(error) => panic!("{error}"),
            Ok(answer) => {
                assert!(!own.iter().any(lacks));
                self.judge_answer(client, name, &asked, &answer);
            }
        }
    }

    fn judge_answer(
        &mut self,
        client: usize,
        name: &'static str,
        asked: &LockRequest,
        answer: &LockReply,
    ) {
        let who = (self.owner(client, name).client.id.0, name);
        let range = ByteRange::new(asked.offset, asked.length).unwrap();
        let file = asked.file.0;
        self.model.break_by(file, who, range, asked.mode);
        let in_way = self.model.in_way(file, who, range, asked.mode);
        let broken = in_way.iter().any(Cell::is_broken);
        assert_eq!(matches!(answer, LockReply::Broken(_)), broken);
        match answer {
            LockReply::Broken(_) => {}
            LockReply::Granted => {
                assert!(in_way.is_empty(), "conflicts: {in_way:?}");
                let (mode, attributes) = (asked.mode, asked.attributes);
                let cell = Cell { mode, attributes, at: At::Held, open: true };
                self.model.place(file, who, range, cell);
                self.granted += 1;
            }
            LockReply::Denied(_) => {
                let before = |(c, n, other): &(usize, &str, LockRequest)| {
                    let there = ByteRange::new(other.offset, other.length).unwrap();
                    let against = other.mode == Write || asked.mode == Write;
                    let stranger = (*c, *n) != (client, name) && other.file == asked.file;
                    stranger && against && there.overlaps(range)
                };
                assert!(!in_way.is_empty() || self.waited.values().any(before));
            }
            LockReply::Deadlock(_) => {
                let circle = self.waits_for_itself(client, name, Some(asked));
                assert!(circle || in_way.is_empty(), "a deadlock without a cycle");
            }
            LockReply::Waiting { .. } => {
                assert!(!self.waits_for_itself(client, name, Some(asked)), "a circle");
                let (Wait::Poll(id) | Wait::Parked(id)) = asked.wait else { panic!("no wait") };
                self.waited.insert(id.0, (client, name, *asked));
            }
        }
    }

    /// Returns true if an owner waits for itself through locks alone, given one more request.
    fn waits_for_itself(
        &self,
        client: usize,
        name: &'static str,
        more: Option<&LockRequest>,
    ) -> bool {
        let me = (self.owner(client, name).client.id.0, name);
        let mut edges: Vec<(Who, Who)> = Vec::new();
        let with_more = more.map(|asked| (client, name, *asked));
        for (c, n, asked) in self.waited.values().copied().chain(with_more) {
            let who = (self.owner(c, n).client.id.0, n);
            let range = ByteRange::new(asked.offset, asked.length).unwrap();
            for (other, cell) in self.model.cells(asked.file.0, range) {
                let against = cell.mode == Write || asked.mode == Write;
                if other != who && !cell.is_orphan() && against {
                    edges.push((who, other));
                }
            }
        }
        let mut reached: BTreeSet<Who> =
            edges.iter().filter(|(from, _)| *from == me).map(|(_, to)| *to).collect();
        loop {
            let next: Vec<Who> = edges
                .iter()
                .filter(|(from, to)| reached.contains(from) && !reached.contains(to))
                .map(|(_, to)| *to)
                .collect();
            if next.is_empty() {
                return reached.contains(&me);
            }
            reached.extend(next);
        }
    }

    /// Lets a waiter ask again now and then, ready or not.
    fn ask_again(&mut self) {
        let ids: Vec<u64> = self.waited.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let (client, name, mut asked) = self.waited[&ids[self.random.below(ids.len())]];
        self.waiters += 1;
        asked.wait = match asked.wait {
            Wait::Poll(_) => Wait::Poll(WaiterId(self.waiters)),
            Wait::Parked(_) | Wait::No => Wait::Parked(WaiterId(self.waiters)),
        };
        self.ask(client, name, asked);
    }

    /// Lets some of the ready waiters ask at once: each gets its lock, or would wait for itself.
    fn serve_ready(&mut self) {
        while self.random.percent(60) {
            let entry = self.bench.table.waiting_requests().find(|entry| entry.ready);
            let Some(id) = entry.map(|entry| entry.waiter.0) else { return };
            assert!(self.model.ready.contains(&id), "the driver was notified");
            let (client, name, asked) = self.waited[&id];
            let waited = self.bench.table.counters().waited;
            self.ask(client, name, asked);
            assert_eq!(self.bench.table.counters().waited, waited, "ready but not granted");
            self.follow();
        }
    }

    fn unlock(&mut self) {
        let ((client, name), range) = (self.someone(), self.range());
        let owner = self.owner(client, name);
        let file = self.random.below(FILES as usize) as u64;
        let (first, length) = (range.first(), range.length());
        let done = self.bench.table.unlock(owner.name(), FileKey(file), first, length, self.now);
        self.log.push(format!("{:?} unlocks {file} {range:?} -> {done:?}", owner.client.id));
        let who = (owner.client.id.0, name);
        let here =
            |place: Place, w: Who| w == who && place.0 == file && bytes(range).contains(&place.1);
        let mut own = self.model.own.iter().filter(|((place, w), _)| here(*place, *w));
        let undoing = own.any(|(_, cell)| matches!(cell.at, At::Undoing(_)));
        assert_eq!(done.is_err(), undoing);
        if !undoing {
            self.model.change(|place, w, _| here(place, w).then_some(None));
        }
    }

    fn close(&mut self) {
        let (client, name) = self.someone();
        let owner = self.owner(client, name);
        let file = self.random.below(FILES as usize) as u64;
        self.bench.table.release_open(owner.name(), FileKey(file), self.now);
        self.log.push(format!("{:?} {name} closes {file}", owner.client.id));
        let who = (owner.client.id.0, name);
        self.model_release(|place, w| w == who && place.0 == file);
    }

    fn leave(&mut self) {
        let client = self.random.below(CLIENTS);
        let id = self.owner(client, "a").client.id;
        self.bench.table.release_client(id, self.now);
        self.log.push(format!("{id:?} leaves"));
        self.model_release(|_, w| w.0 == id.0);
    }

    fn model_release(&mut self, which: impl Fn(Place, Who) -> bool) {
        self.model.change(|place, w, cell| {
            which(place, w).then_some(match cell.at {
                At::Undoing(_) => Some(Cell { at: At::Undoing(Then::Gone), ..*cell }),
                // The owner cannot make final what it has not reclaimed.
                At::Held | At::Breakable if !cell.open && cell.attributes.persist => {
                    Some(Cell { at: At::Breakable, ..*cell })
                }
                At::Held | At::Breakable if !cell.open && cell.attributes.auto_recovery => {
                    Some(Cell { at: At::Undoing(Then::Gone), ..*cell })
                }
                _ => None,
            })
        });
    }

    fn repair(&mut self) {
        let ((client, name), range) = (self.someone(), self.range());
        let owner = self.owner(client, name);
        let file = self.random.below(FILES as usize) as u64;
        let asked = LockRequest {
            file: FileKey(file),
            ..claiming(Claim::Repair, request(Write, range.first(), range.last()))
        };
        let answer = self.bench.table.lock(&owner, &asked, self.now);
        self.log
            .push(format!("{:?} {name} repairs {file} {range:?} -> {answer:?}", owner.client.id));
        let who = (owner.client.id.0, name);
        let was_breakable = |cell: &Cell| cell.at == At::Breakable;
        match answer {
            Ok(LockReply::Granted) => {
                let in_way = self.model.in_way(file, who, range, Write);
                assert!(in_way.iter().all(|cell| cell.at == At::Broken), "{in_way:?}");
                assert!(!in_way.is_empty());
                let here = |place: &Place| place.0 == file && bytes(range).contains(&place.1);
                self.model.orphans.retain(|((place, _), _)| !here(place));
                let cell = Cell { mode: Write, attributes: P, at: At::Held, open: true };
                self.model.place(file, who, range, cell);
            }
            Ok(LockReply::Broken(_)) => {
                assert!(self.model.in_way(file, who, range, Write).iter().any(was_breakable));
                self.model.break_by(file, who, range, Write);
            }
            Err(LockError::NothingThere) => {
                assert!(!self.model.cells(file, range).any(|(_, cell)| cell.is_broken()));
            }
            Ok(LockReply::Denied(_) | LockReply::Deadlock(_)) | Err(_) => {}
            Ok(LockReply::Waiting { .. }) => panic!("a repair waits"),
        }
    }

    fn abort(&mut self) {
        let ((client, name), range) = (self.someone(), self.range());
        let owner = self.owner(client, name);
        let file = self.random.below(FILES as usize) as u64;
        let (first, length) = (range.first(), range.length());
        let begun = self.bench.table.abort(owner.name(), FileKey(file), first, length);
        self.log.push(format!("{:?} {name} aborts {file} {range:?} -> {begun:?}", owner.client.id));
        if begun.is_ok() {
            let who = (owner.client.id.0, name);
            self.model.change(|place, w, cell| {
                let here = w == who && place.0 == file && bytes(range).contains(&place.1);
                (here && cell.attributes.auto_recovery)
                    .then_some(Some(Cell { at: At::Undoing(Then::Held), ..*cell }))
            });
        }
    }

    fn roll_back(&mut self) {
        let running: Vec<RollbackId> = self.model.rollbacks.keys().copied().collect();
        if running.is_empty() {
            return;
        }
        let rollback = running[self.random.below(running.len())];
        let (file, range) = self.model.rollbacks.remove(&rollback).unwrap();
        assert!(self.bench.table.rollback_done(rollback, self.now));
        self.log.push(format!("{rollback:?} done"));
        self.model.rolled_back(file, range);
    }

    fn lease(&mut self) {
        let client = self.random.below(CLIENTS);
        let id = self.owner(client, "a").client.id;
        self.bench.table.lease_expired(id, self.now);
        self.log.push(format!("{id:?} lease expired"));
        self.model.fail(id.0, false);
        if self.random.percent(50) {
            self.follow();
            self.bench.table.client_renewed(id);
            self.log.push(format!("{id:?} renewed"));
            self.model.change(|_, who, cell| match cell.at {
                At::Breakable if who.0 == id.0 && cell.open => {
                    Some(Some(Cell { at: At::Held, ..*cell }))
                }
                At::Undoing(Then::Breakable) if who.0 == id.0 => {
                    Some(Some(Cell { at: At::Undoing(Then::Held), ..*cell }))
                }
                _ => None,
            });
        }
    }

    fn restart(&mut self) {
        let client = self.random.below(CLIENTS);
        let before = self.owner(client, "a").client.id;
        // Waiters of the old incarnation are told before the new one begins.
        self.bench.table.client_restarted(before, self.now);
        self.log.push(format!("{before:?} restarted"));
        self.model.fail(before.0, true);
        self.follow();
        self.lives[client] += 1;
    }

    /// Restarts the server with its records. Some owners reclaim what they had, and the grace
    /// period ends.
    fn server_restart(&mut self) {
        self.log.push("the server restarts".to_owned());
        self.bench.table = LockTable::new(self.config.clone());
        let records: Vec<LockRecord> = self.model.records.values().cloned().collect();
        self.bench.table.restore(records.clone());
        self.bench.table.begin_grace();
        self.model.rollbacks.clear();
        self.model.ready.clear();
        self.waited.clear();
        self.follow();
        assert_eq!(self.bench.table.records(), records);
        self.model.change(|_, _, cell| {
            let kept = cell.attributes != PLAIN;
            Some(kept.then_some(Cell { at: At::Breakable, open: false, ..*cell }))
        });
        for record in records {
            if record.phase == RecordPhase::Held && self.random.percent(60) {
                self.reclaim(&record);
            }
        }
        self.bench.table.grace_over(self.now);
        self.model.change(|_, _, cell| {
            let revoked = cell.at == At::Breakable && !cell.attributes.persist;
            revoked.then_some(Some(Cell { at: At::Undoing(Then::Gone), ..*cell }))
        });
    }

    fn reclaim(&mut self, record: &LockRecord) {
        let who = name_of(record.client.0, &record.owner);
        let client = usize::from(record.client_name[0]) - 1;
        let owner = self.owner(client, who.1);
        // An earlier incarnation of the client was replaced, so its locks are broken.
        assert_eq!(owner.client.id, record.client);
        let asked = LockRequest {
            file: record.file,
            mode: record.mode,
            ..reclaim_of(record.attributes, record.range)
        };
        let answer = self.bench.table.lock(&owner, &asked, self.now);
        assert_eq!(answer, Ok(LockReply::Granted), "{record:?}");
        let cell =
            Cell { mode: record.mode, attributes: record.attributes, at: At::Held, open: true };
        self.model.place(record.file.0, who, record.range, cell);
    }

    fn cancel(&mut self) {
        let ids: Vec<u64> = self.waited.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.random.below(ids.len())];
        assert!(self.bench.table.cancel(WaiterId(id), self.now));
        self.log.push(format!("{id} cancelled"));
        self.waited.remove(&id);
        self.model.ready.remove(&id);
    }

    fn judge(&mut self) {
        self.judge_locks();
        self.judge_waiters();
        self.model.check_promises();
        let listed: Vec<LockRecord> = self.model.records.values().cloned().collect();
        assert_eq!(self.bench.table.records(), listed);
        for _ in 0..4 {
            self.judge_io();
        }
    }

    /// Checks that the table's locks are the model's, byte by byte, and that no two conflict.
    fn judge_locks(&self) {
        let mut seen: BTreeMap<Place, Vec<(Who, LockMode)>> = BTreeMap::new();
        let mut cells = 0;
        for entry in self.bench.table.locks() {
            let who = name_of(entry.client.0, entry.owner);
            for byte in bytes(entry.range) {
                let place = (entry.file.0, byte);
                let own = self.model.own.get(&(place, who)).into_iter();
                let orphans = self.model.orphans.iter().filter(|(key, _)| *key == (place, who));
                let same = |cell: &Cell| {
                    let condition = match cell.at {
                        At::Held => LockCondition::Held,
                        At::Breakable => LockCondition::Breakable,
                        At::Broken => LockCondition::Broken,
                        At::Undoing(_) => LockCondition::RollingBack,
                    };
                    let described = (cell.mode, cell.attributes, condition);
                    described == (entry.mode, entry.attributes, entry.condition)
                };
                let mut known = own.chain(orphans.map(|(_, cell)| cell));
                assert!(known.any(same), "{entry:?} at {byte} is not in the model");
                for &(other, mode) in seen.get(&place).into_iter().flatten() {
                    assert!(mode == Read && entry.mode == Read, "{who:?} and {other:?} at {byte}");
                }
                seen.entry(place).or_default().push((who, entry.mode));
                cells += 1;
            }
        }
        assert_eq!(cells, self.model.own.len() + self.model.orphans.len());
    }

    /// Checks the waiters: each is blocked by something; none is ready against a lock; no two ready
    /// ones conflict; none waits for itself.
    fn judge_waiters(&self) {
        let entries: Vec<_> = self.bench.table.waiting_requests().collect();
        assert_eq!(entries.len(), self.waited.len());
        for (index, entry) in entries.iter().enumerate() {
            let (client, name, asked) = self.waited[&entry.waiter.0];
            assert_eq!((entry.file, entry.mode), (asked.file, asked.mode));
            let who = name_of(entry.client.0, entry.owner);
            let in_way = self.model.in_way(entry.file.0, who, entry.range, entry.mode);
            assert!(!in_way.iter().any(|cell| cell.is_broken() || cell.at == At::Breakable));
            let earlier = entries[..index].iter().filter(|e| {
                let against = e.mode == Write || entry.mode == Write;
                let other = (e.client, e.owner) != (entry.client, entry.owner);
                e.file == entry.file && e.range.overlaps(entry.range) && other && against
            });
            if entry.ready {
                assert!(in_way.is_empty(), "{entry:?} is ready but conflicts with {in_way:?}");
                assert_eq!(earlier.count(), 0, "{entry:?} is ready before its turn");
            } else {
                let mut blocking =
                    earlier.filter(|e| e.ready || !self.waits_for(&entries, e, entry));
                assert!(!in_way.is_empty() || blocking.next().is_some(), "{entry:?} is forgotten");
            }
            assert!(!self.waits_for_itself(client, name, None), "{who:?} waits for itself");
        }
        let stuck = !entries.is_empty() && entries.iter().all(|entry| !entry.ready);
        if stuck {
            // A rollback, or an owner that does not wait, blocks at least one waiter.
            let waits = |who: Who| entries.iter().any(|e| name_of(e.client.0, e.owner) == who);
            let free = entries.iter().any(|e| {
                let who = name_of(e.client.0, e.owner);
                self.model.cells(e.file.0, e.range).any(|(other, cell)| {
                    let against = cell.mode == Write || e.mode == Write;
                    other != who && against && (!waits(other) || cell.is_orphan())
                })
            });
            let own_rollback = !self.model.rollbacks.is_empty();
            assert!(free || own_rollback, "every waiter waits for another waiter");
        }
    }

    /// Returns true if the owner of one request waits for that of another, according to the list.
    fn waits_for(
        &self,
        entries: &[WaiterEntry<'_>],
        from: &WaiterEntry<'_>,
        to: &WaiterEntry<'_>,
    ) -> bool {
        let mut reached = BTreeSet::from([(from.client, from.owner)]);
        loop {
            let next: Vec<_> = entries
                .iter()
                .filter(|entry| reached.contains(&(entry.client, entry.owner)))
                .flat_map(|entry| entry.waits_for.iter().copied())
                .filter(|whom| !reached.contains(whom))
                .collect();
            if next.is_empty() {
                return reached.contains(&(to.client, to.owner));
            }
            reached.extend(next);
        }
    }

    fn judge_io(&mut self) {
        let ((client, name), range) = (self.someone(), self.range());
        let owner = self.owner(client, name);
        let file = self.random.below(FILES as usize) as u64;
        let kind = if self.random.percent(50) { IoKind::Read } else { IoKind::Write };
        let anonymous = self.random.percent(30);
        let state = if anonymous { StateId::ANONYMOUS } else { owner.state };
        let verdict =
            self.bench.table.check_io(FileKey(file), state, range.first(), range.length(), kind);
        let who = (owner.client.id.0, name);
        let mode = if kind == IoKind::Read { Read } else { Write };
        let mandatory = self.seed.is_multiple_of(2);
        let refusals: Vec<Fault> = self
            .model
            .cells(file, range)
            .filter(|(_, cell)| cell.mode == Write || mode == Write)
            .filter_map(|(other, cell)| {
                let broken = if anonymous { Fault::RangeLocked } else { Fault::StaleState };
                let own = other == who && !anonymous && cell.open;
                let undone = cell.attributes.auto_recovery && kind == IoKind::Write;
                match cell.at {
                    At::Broken | At::Undoing(Then::Broken) => Some(broken),
                    At::Undoing(_) => Some(Fault::RangeLocked),
                    At::Held | At::Breakable if own => None,
                    At::Held | At::Breakable if mandatory || undone => Some(Fault::RangeLocked),
                    At::Held | At::Breakable => None,
                }
            })
            .collect();
        match verdict {
            Ok(()) => assert_eq!(refusals, []),
            Err(status) => assert!(refusals.contains(&status), "{status:?} of {refusals:?}"),
        }
        let mut undo: BTreeSet<Place> = BTreeSet::new();
        self.bench.table.undo_ranges(FileKey(file), range.first(), range.length(), |range| {
            undo.extend(bytes(range).map(|byte| (file, byte)));
        });
        let orphans = self.model.orphans.iter().map(|(key, cell)| (key, cell));
        let covered = self.model.own.iter().chain(orphans).filter(|((place, _), cell)| {
            let here = place.0 == file && bytes(range).contains(&place.1);
            here && cell.attributes.auto_recovery
        });
        assert_eq!(undo, covered.map(|((place, _), _)| *place).collect());
    }

    /// Releases all clients and checks that nothing is left.
    fn end(mut self) -> usize {
        for client in 0..CLIENTS {
            let id = self.owner(client, "a").client.id;
            self.bench.table.client_restarted(id, self.now);
            self.model.fail(id.0, true);
            self.follow();
            self.lives[client] += 1;
        }
        while !self.model.rollbacks.is_empty() {
            self.roll_back();
            self.follow();
        }
        self.judge();
        let repairer = self.owner(0, "a");
        for file in 0..FILES {
            let whole = claiming(Claim::Repair, request(Write, 0, u64::MAX));
            let asked = LockRequest { file: FileKey(file), ..whole };
            let answer = self.bench.table.lock(&repairer, &asked, self.now);
            assert!(matches!(answer, Ok(LockReply::Granted) | Err(LockError::NothingThere)));
        }
        self.bench.table.release_client(repairer.client.id, self.now);
        self.follow();
        self.bench.assert_empty();
        assert!(self.model.records.is_empty() && self.model.undo.is_empty());
        self.granted
    }
}

fn run(seed: u64) -> usize {
    let mut run = Run::new(seed);
    for _ in 0..STEPS {
        run.step();
    }
    run.end()
}

#[test]
fn the_table_agrees_with_the_model() {
    if let Ok(seed) = std::env::var("DAFS_LOCK_SEED") {
        run(seed.parse().expect("a seed is a number"));
        return;
    }
    let seeds = std::env::var("DAFS_LOCK_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(SEEDS);
    let granted: usize = (0..seeds).map(run).sum();
    // Most steps must not have been refused.
    assert!(granted > STEPS * seeds as usize / 20, "{granted} grants");
}
