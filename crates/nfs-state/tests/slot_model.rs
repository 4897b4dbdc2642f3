//! The slots of a session in random histories: lost requests, lost replies, duplicates, late
//! arrivals, and restarts of the server. Every request is carried out exactly once. The model must
//! also detect servers with planted defects, so that it is known to fail when it should.

use std::collections::{BTreeMap, BTreeSet};

use dafs_nfs_state::{
    Nfs4Error, SequenceAsk, Sequenced, SessionId4, SessionKey, SlotEnd, SlotRecord, StateConfig,
    create_flags,
};
use dafs_types::Random;

use crate::common::{ROOT, World, ask, caller, create_ask, created};

const SLOTS: u32 = 4;

/// A defect of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// After a restart, the server does not know the journaled requests.
    ForgetJournal,
    /// The server journals a request only when its reply is sent, not when it is carried out.
    JournalLate,
    /// The server keeps no replies.
    KeepNothing,
}

/// A client that repeats a request until it has had the reply, and the network between.
struct Run {
    random: Random,
    defect: Option<Defect>,
    world: World,
    epoch: u32,
    session: SessionId4,
    /// The request that each slot waits for. The checksum names the request.
    waiting: BTreeMap<u32, SequenceAsk>,
    next: [u32; SLOTS as usize],
    /// Requests on their way. They may arrive twice, in any order, or never.
    network: Vec<SequenceAsk>,
    /// Requests that the server has admitted and not finished.
    running: Vec<(dafs_nfs_state::RequestKey, SequenceAsk, bool)>,
    /// The requests that were carried out.
    done: BTreeSet<u64>,
    /// The journaled requests, by slot.
    journal: BTreeMap<u32, SequenceAsk>,
    replies: u64,
    requests: u64,
}

impl Run {
    fn new(seed: u64, defect: Option<Defect>) -> Self {
        let mut world = World::with(config(1));
        let exchanged = world.exchange("client", 1, 0, ROOT).unwrap();
        let mut create = create_ask(exchanged.id, 1);
        create.flags |= create_flags::PERSIST;
        create.fore.requests_max = SLOTS;
        let session = created(world.create_with(&create, &caller(ROOT))).session;
        Self {
            random: Random::new(seed),
            defect,
            world,
            epoch: 1,
            session,
            waiting: BTreeMap::new(),
            next: [1; SLOTS as usize],
            network: Vec::new(),
            running: Vec::new(),
            done: BTreeSet::new(),
            journal: BTreeMap::new(),
            replies: 0,
            requests: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..30 => self.send(),
            30..70 => self.arrive(),
            70..98 => self.finish(),
            _ => self.restart(),
        }
    }

    /// Sends a new request on a free slot, or repeats one.
    fn send(&mut self) {
        let slot = self.random.below(SLOTS as usize) as u32;
        let request = *self.waiting.entry(slot).or_insert_with(|| {
            self.requests += 1;
            let sequence = self.next[slot as usize];
            SequenceAsk {
                checksum: self.requests,
                must_keep: self.requests & 1 == 0,
                ..ask(self.session, slot, sequence)
            }
        });
        self.network.push(request);
    }

    /// Lets a request arrive, which may arrive again later.
    fn arrive(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let index = self.random.below(self.network.len());
        let request = match self.random.percent(20) {
            true => self.network[index],
            false => self.network.swap_remove(index),
        };
        let is_current =
            self.waiting.get(&request.slot).is_some_and(|w| w.checksum == request.checksum);
        match self.world.sequence(&request) {
            Ok(Sequenced::New(admitted)) => {
                assert!(is_current, "a late duplicate was carried out: {request:?}");
                let is_first = self.done.insert(request.checksum);
                assert!(is_first || !request.must_keep, "carried out twice: {request:?}");
                if request.must_keep && self.defect != Some(Defect::JournalLate) {
                    self.journal.insert(request.slot, request);
                }
                self.running.push((admitted.request, request, request.must_keep));
            }
            Ok(Sequenced::Resume(admitted)) => {
                assert_eq!(self.journal[&request.slot].checksum, request.checksum);
                self.running.push((admitted.request, request, request.must_keep));
            }
            Ok(Sequenced::Repeat(key)) => {
                let reply = self.world.state.kept_reply(key).unwrap().to_vec();
                self.reply(&request, &reply);
            }
            Ok(Sequenced::RepeatNotKept(_)) => {
                assert!(!request.must_keep);
                self.reply(&request, &request.checksum.to_be_bytes());
            }
            Err(Nfs4Error::Delay) => {}
            Err(Nfs4Error::SeqMisordered) => assert!(!is_current, "{request:?}"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Finishes a request. Its reply may be lost.
    fn finish(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let index = self.random.below(self.running.len());
        let (key, request, must_keep) = self.running.swap_remove(index);
        let reply = request.checksum.to_be_bytes();
        if must_keep {
            self.journal.insert(request.slot, request);
        }
        let is_kept = must_keep && self.defect != Some(Defect::KeepNothing);
        let kept = is_kept.then_some(reply.as_slice());
        assert!(self.world.state.finish(key, kept, self.world.now));
        if self.random.percent(60) {
            self.reply(&request, &reply);
        }
    }

    /// The client gets a reply. Only the reply of the request that it waits for counts.
    fn reply(&mut self, request: &SequenceAsk, reply: &[u8]) {
        if self.waiting.get(&request.slot).is_some_and(|w| w.checksum == request.checksum) {
            assert_eq!(reply, request.checksum.to_be_bytes());
            assert!(self.done.contains(&request.checksum));
            self.waiting.remove(&request.slot);
            self.next[request.slot as usize] += 1;
            self.replies += 1;
        }
    }

    /// Returns what the journal has about the last journaled request of a slot. The reply is there
    /// if the request was finished.
    fn slot_record(&self, request: &SequenceAsk) -> SlotRecord {
        let SequenceAsk { slot, sequence, checksum, .. } = *request;
        let is_running = self.running.iter().any(|(_, other, _)| other.checksum == checksum);
        let end = match is_running {
            true => SlotEnd::Unfinished,
            false => SlotEnd::Replied(checksum.to_be_bytes().as_slice().into()),
        };
        SlotRecord { slot, sequence, checksum, end }
    }

    /// The server restarts with what its journal has. The connections end with it, so that nothing
    /// is on its way any more.
    fn restart(&mut self) {
        let key = self.world.state.sessions().find(self.session).unwrap();
        let record = self.world.state.record(key).unwrap();
        let mut slots: Vec<_> =
            self.journal.values().map(|request| self.slot_record(request)).collect();
        if self.defect == Some(Defect::ForgetJournal) {
            slots.clear();
        }
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.epoch += 1;
        self.world = World::with(config(self.epoch));
        let record = dafs_nfs_state::SessionRecord::decode(&bytes).unwrap();
        let _: SessionKey = self.world.state.restore(record, slots, self.world.now).unwrap();
        self.network.clear();
        self.running.clear();
    }
}

fn config(epoch: u32) -> StateConfig {
    StateConfig { is_persistent: true, ..StateConfig::new(epoch) }
}

/// Runs the history of a seed. Returns the number of replies that the client got.
///
/// # Errors
/// The message of the check that failed.
fn run(seed: u64, defect: Option<Defect>) -> Result<u64, String> {
    let history = || {
        let mut run = Run::new(seed, defect);
        for _ in 0..1500 {
            run.step();
        }
        run.replies
    };
    std::panic::catch_unwind(history).map_err(|payload| match payload.downcast::<String>() {
        Ok(what) => *what,
        Err(payload) => format!("{:?}", payload.downcast::<&str>().ok()),
    })
}

#[test]
fn every_request_is_carried_out_once_in_every_history() {
    for seed in 0..SEEDS {
        let replies = run(seed, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert!(replies > 50, "seed {seed}: {replies} replies");
    }
}

/// Checks that one of the seeds detects a defect by the check with this message.
fn is_caught(defect: Defect, check: &str) {
    let caught = (0..SEEDS).find_map(|seed| Some((seed, run(seed, Some(defect)).err()?)));
    let (seed, what) = caught.unwrap_or_else(|| panic!("{defect:?} goes unnoticed"));
    assert!(what.contains(check), "{defect:?} is caught by seed {seed}, but by: {what}");
}

#[test]
fn a_server_that_forgets_journaled_requests_is_caught() {
    is_caught(Defect::ForgetJournal, "carried out twice");
}

#[test]
fn a_server_that_journals_requests_late_is_caught() {
    is_caught(Defect::JournalLate, "carried out twice");
}

#[test]
fn a_server_that_keeps_no_replies_is_caught() {
    is_caught(Defect::KeepNothing, "must_keep");
}

/// The number of histories that each test runs at most.
const SEEDS: u64 = 300;
