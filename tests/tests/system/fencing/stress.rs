//! Tests everything concurrently: clients write and append continuously, while random lists exclude
//! some of them and admit them again. A judge knows when each write began and how it was answered.
//!
//! `DAFS_FENCE_SEED=N` repeats one run.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dafs_client::{
    Buffer, Call, Client, ClientConfig, FenceAccess, FenceObject, FenceUpdate, File, Group,
    OpenOptions, Session, Stability, Status,
};
use dafs_types::{CacheHint, Random};
use dafs_wire::Request;
use dafs_wire::messages::{AppendInline, InlineData, Placement};

use super::named;
use crate::fixture::{Fixture, Transport, transports};

const MEMBERS: usize = 4;
/// The places that a client writes to, with one write at a time each.
const SLOTS: usize = 6;
/// The distance between places. A write covers a random part of it.
const SPACE: usize = 128 << 10;
const STEPS: usize = 600;
/// The size of an appended record, which repeats its number.
const RECORD: usize = 512;

/// What the judge knows of one place.
#[derive(Clone, Default)]
struct Place {
    /// The last number written successfully.
    written: u64,
    /// The write in flight.
    writing: Option<Begun>,
    /// The contents when a change that excludes the client was answered.
    frozen: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Begun {
    number: u64,
    /// True if the client was admitted when the write began, and ever since.
    must_be_done: bool,
    /// True if the client was excluded before the write began, and ever since.
    must_be_refused: bool,
}

impl Begun {
    /// Checks the status of the write.
    fn judge(&self, status: Status) {
        match status {
            Status::Ok => assert!(!self.must_be_refused, "{} was let in", self.number),
            Status::Access => assert!(!self.must_be_done, "{} was refused", self.number),
            other => panic!("{} was answered with {other:?}", self.number),
        }
    }

    /// Notes that a list is about to change, or has just changed.
    fn blur(&mut self) {
        (self.must_be_done, self.must_be_refused) = (false, false);
    }
}

struct Member {
    session: Session,
    file: File,
    log: File,
    buffer: Buffer,
    is_in: bool,
    length: usize,
    places: Vec<Place>,
    appends: Vec<(Begun, Call)>,
    /// The records that were appended successfully.
    appended: Vec<u64>,
}

struct Scene {
    random: Random,
    client: Client,
    group: Group,
    members: Vec<Member>,
    fencer: Session,
    file: File,
    log: File,
    next: u64,
    /// All records when the last list was answered, and which clients were excluded.
    frozen_log: Option<(Vec<u64>, Vec<bool>)>,
}

impl Scene {
    fn new(fixture: &Fixture, transport: Transport, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let client = Client::new(ClientConfig::default()).unwrap();
        let connect = |name: &str| {
            let options = named(name).response_cache(true);
            client.connect_to(&fixture.address(transport), &options).unwrap()
        };
        let fencer = connect("fencer");
        let [file, log] = ["/file", "/log"].map(|path| {
            let file = fencer.open(path, &OpenOptions::write()).unwrap();
            file.write_at(&vec![0; RECORD], 0).unwrap();
            file
        });
        file.set_len((MEMBERS * SLOTS * SPACE) as u64).unwrap();
        let members = (0..MEMBERS).map(|index| {
            let session = connect(&format!("m{index}"));
            let open = |path| session.open(path, &OpenOptions::write()).unwrap();
            let (file, log) = (open("/file"), open("/log"));
            let length = 4096 << random.below(6);
            Member {
                file,
                log,
                session,
                buffer: client.allocate(SLOTS * SPACE).unwrap(),
                is_in: true,
                length,
                places: vec![Place::default(); SLOTS],
                appends: Vec::new(),
                appended: Vec::new(),
            }
        });
        let (members, group) = (members.collect(), client.group());
        Self { random, group, members, fencer, file, log, next: 1, client, frozen_log: None }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random.below(below)
    }

    fn step(&mut self) {
        match self.draw(20) {
            0 => self.change_list(),
            1..=4 => self.append(),
            5..=15 => self.write(),
            _ => self.take(),
        }
    }

    fn begin(&mut self, member: usize) -> Begun {
        self.next += 1;
        let is_in = self.members[member].is_in;
        Begun { number: self.next, must_be_done: is_in, must_be_refused: !is_in }
    }

    fn write(&mut self) {
        let (index, slot) = (self.draw(MEMBERS), self.draw(SLOTS));
        if self.members[index].places[slot].writing.is_some() {
            return self.take();
        }
        let begun = self.begin(index);
        let stability = [Stability::Unstable, Stability::DataSync][self.draw(4) / 3];
        let member = &mut self.members[index];
        member.places[slot].writing = Some(begun);
        member.buffer.write(slot * SPACE, &stamp(begun.number, member.length));
        let slice = member.buffer.slice(slot * SPACE, member.length).unwrap();
        let (offset, context) = (offset_of(index, slot), (index * SLOTS + slot) as u64);
        let (session, file) = (&member.session, &member.file);
        session.submit_write(file, offset, slice, stability, self.group, context).unwrap();
    }

    fn append(&mut self) {
        let index = self.draw(MEMBERS);
        if self.members[index].appends.len() >= 8 {
            return self.take();
        }
        let begun = self.begin(index);
        let member = &mut self.members[index];
        let request = AppendInline {
            file: member.log.handle(),
            state: member.log.state(),
            stability: Stability::DataSync,
            hint: CacheHint(0),
            placement: Placement::Packed,
            data: InlineData::Here(&stamp(begun.number, RECORD)),
        };
        let call = member.session.start(&Request::AppendInline(request)).unwrap();
        member.appends.push((begun, call));
    }

    /// Processes received replies.
    fn take(&mut self) {
        self.client.process_events(Some(std::time::Duration::ZERO));
        while let Some(completion) = self.client.next(self.group) {
            let (index, slot) =
                (completion.context as usize / SLOTS, completion.context as usize % SLOTS);
            let length = self.members[index].length;
            let place = &mut self.members[index].places[slot];
            let begun = place.writing.take().unwrap();
            match completion.result {
                Ok(_) => {
                    begun.judge(Status::Ok);
                    place.written = begun.number;
                    if let Some(frozen) = &place.frozen {
                        assert!(frozen[..] == stamp(begun.number, length), "answered, not there");
                    }
                }
                Err(error) => begun.judge(error.status().expect("a status")),
            }
        }
        for member in &mut self.members {
            let mut left = Vec::new();
            for (begun, mut call) in std::mem::take(&mut member.appends) {
                match pin!(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => left.push((begun, call)),
                    Poll::Ready(reply) => {
                        let (status, _) = reply.as_ref().unwrap().read().unwrap();
                        begun.judge(status);
                        if status == Status::Ok {
                            member.appended.push(begun.number);
                        }
                    }
                }
            }
            member.appends = left;
        }
    }

    /// Excludes some clients and admits others, in one of several ways.
    fn change_list(&mut self) {
        self.take();
        self.compare();
        let wanted: Vec<bool> = (0..MEMBERS).map(|_| self.draw(3) > 0).collect();
        let names: Vec<String> = (0..MEMBERS).map(|index| format!("m{index}")).collect();
        let of = |is_in: bool| -> Vec<&str> {
            let chosen = names.iter().zip(&wanted).filter(|(_, wanted)| **wanted == is_in);
            chosen.map(|(name, _)| name.as_str()).collect()
        };
        let (inside, outside) = (of(true), of(false));
        let all_in: Vec<&str> = std::iter::once("fencer").chain(inside.iter().copied()).collect();
        for member in &mut self.members {
            member.places.iter_mut().filter_map(|p| p.writing.as_mut()).for_each(Begun::blur);
            member.appends.iter_mut().for_each(|(begun, _)| begun.blur());
            for place in &mut member.places {
                place.frozen = None;
            }
        }
        let way = self.draw(3);
        for path in ["/file", "/log"] {
            let change = |access, update, ids: &[&str]| {
                self.fencer.set_fence(path, FenceObject::File, access, update, ids).unwrap();
            };
            match way {
                // The fence is removed and created again.
                0 => {
                    change(FenceAccess::Allow, FenceUpdate::Overwrite, &[]);
                    change(FenceAccess::Allow, FenceUpdate::Overwrite, &all_in);
                }
                1 => change(FenceAccess::Allow, FenceUpdate::Overwrite, &all_in),
                _ => {
                    change(FenceAccess::Allow, FenceUpdate::Append, &all_in);
                    change(FenceAccess::Deny, FenceUpdate::Remove, &outside);
                }
            }
        }
        for (member, is_in) in self.members.iter_mut().zip(&wanted) {
            member.is_in = *is_in;
        }
        self.freeze();
    }

    /// Stores the current data of excluded clients, which must not change.
    fn freeze(&mut self) {
        for index in 0..MEMBERS {
            if self.members[index].is_in {
                continue;
            }
            for slot in 0..SLOTS {
                let found = self.content(index, slot);
                let place = &mut self.members[index].places[slot];
                let writing = place.writing.map(|begun| begun.number);
                for block in found.chunks(4096) {
                    let number = number_in(block);
                    let is_known = number == place.written || Some(number) == writing;
                    // An earlier write that was refused may have been executed partly.
                    let is_older = number < place.written.max(writing.unwrap_or(0));
                    assert!(is_known || is_older, "{number} was never written to {index}:{slot}");
                }
                place.frozen = Some(found);
            }
        }
        let is_out = self.members.iter().map(|member| !member.is_in).collect();
        self.frozen_log = Some((self.records(), is_out));
    }

    /// Compares the stored data with the current data.
    fn compare(&mut self) {
        for index in 0..MEMBERS {
            for slot in 0..SLOTS {
                if let Some(frozen) = self.members[index].places[slot].frozen.clone() {
                    assert!(self.content(index, slot) == frozen, "{index}:{slot} has changed");
                }
            }
        }
        let Some((frozen, is_out)) = self.frozen_log.take() else { return };
        let now = self.records();
        assert!(now.starts_with(&frozen), "records only come to the end");
        for (member, _) in self.members.iter().zip(is_out).filter(|(_, is_out)| *is_out) {
            // All acknowledged records are among the stored ones, and no others were added.
            assert!(member.appended.iter().all(|number| frozen.contains(number)));
            let pending = member.appends.iter().map(|(begun, _)| begun.number);
            let mut later = now[frozen.len()..].iter();
            let pending: Vec<u64> = pending.collect();
            assert!(!later.any(|number| pending.contains(number)), "appended from outside");
        }
    }

    fn content(&self, index: usize, slot: usize) -> Vec<u8> {
        let mut found = vec![0; self.members[index].length];
        assert_eq!(self.file.read_at(&mut found, offset_of(index, slot)).unwrap(), found.len());
        found
    }

    fn records(&self) -> Vec<u64> {
        let size = self.log.metadata().unwrap().size as usize;
        let mut found = vec![0; size];
        assert_eq!(self.log.read_at(&mut found, 0).unwrap(), size);
        assert_eq!(size % RECORD, 0, "a record in part");
        found.chunks(RECORD).map(number_in).collect()
    }

    fn finish(mut self) {
        while self.members.iter().any(|member| {
            !member.appends.is_empty() || member.places.iter().any(|p| p.writing.is_some())
        }) {
            self.client.process_events(None);
            self.take();
        }
        self.compare();
        let records = self.records();
        for member in &self.members {
            assert!(member.appended.iter().all(|number| records.contains(number)));
        }
    }
}

fn offset_of(member: usize, slot: usize) -> u64 {
    ((member * SLOTS + slot) * SPACE) as u64
}

fn stamp(number: u64, length: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(length / 8)
}

/// Returns the number that a block or a record contains.
fn number_in(block: &[u8]) -> u64 {
    let mut numbers = block.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let first = numbers.next().unwrap();
    assert!(numbers.all(|number| number == first), "a torn block");
    first
}

#[test]
fn whoever_is_shut_out_changes_nothing_while_all_go_on() {
    let chosen = std::env::var("DAFS_FENCE_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    for seed in chosen.map_or(0..8, |seed| seed..seed + 1) {
        let transport = transports()[seed as usize % transports().len()];
        println!("DAFS_FENCE_SEED={seed} cargo test -p dafs-tests --test system fencing::stress");
        let fixture = Fixture::with(|config| {
            // The cache is small: writes wait for space.
            config.cache.dirty_bytes_max = 1 << 20;
        });
        let fixture = if seed % 3 == 2 { fixture.journaled() } else { fixture };
        let mut scene = Scene::new(&fixture, transport, seed);
        for _ in 0..STEPS {
            scene.step();
        }
        scene.finish();
    }
}
