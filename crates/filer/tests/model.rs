//! Random event sequences against models simple enough to be believed.

use std::collections::{BTreeMap, VecDeque};

use crate::common::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;
use proptest::prelude::*;

// ---- Opens -------------------------------------------------------------------------

/// Who opened what: client, owner, file.
type Holder = (usize, u8, u64);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    access: u32,
    deny: u32,
    key: Option<u64>,
    deny_remove: bool,
    state_id: StateId,
}

#[derive(Clone, Debug)]
enum OpenEvent {
    Open { holder: Holder, access: u32, deny: u32, key: Option<u64>, deny_remove: bool },
    Downgrade { holder: Holder, access: u32, deny: u32, keep_key: bool },
    Close { holder: Holder },
    Io { holder: Holder, write: bool, anonymous: bool },
    Remove { file: u64, check_open: bool },
    Leave { client: usize },
}

const CLIENTS: usize = 3;

fn holder() -> impl Strategy<Value = Holder> {
    (0..CLIENTS, 0..2u8, 0..3u64)
}

fn open_event() -> impl Strategy<Value = OpenEvent> {
    let key = prop_oneof![3 => Just(None), 1 => (0..2u64).prop_map(Some)];
    prop_oneof![
        8 => (holder(), 1..4u32, prop_oneof![3 => Just(0), 1 => 0..4u32], key, any::<bool>())
            .prop_map(|(holder, access, deny, key, deny_remove)| OpenEvent::Open {
                holder, access, deny, key, deny_remove
            }),
        2 => (holder(), 1..4u32, 0..4u32, any::<bool>()).prop_map(
            |(holder, access, deny, keep_key)| OpenEvent::Downgrade {
                holder, access, deny, keep_key
            }
        ),
        4 => holder().prop_map(|holder| OpenEvent::Close { holder }),
        4 => (holder(), any::<bool>(), any::<bool>()).prop_map(|(holder, write, anonymous)| {
            OpenEvent::Io { holder, write, anonymous }
        }),
        2 => (0..3u64, any::<bool>())
            .prop_map(|(file, check_open)| OpenEvent::Remove { file, check_open }),
        1 => (0..CLIENTS).prop_map(|client| OpenEvent::Leave { client }),
    ]
}

struct OpenModel {
    bench: Bench,
    channels: Vec<ChannelId>,
    held: BTreeMap<Holder, Held>,
}

impl OpenModel {
    fn new() -> Self {
        let mut bench = Bench::new(FilerConfig::default());
        let channels = (0..CLIENTS).map(|client| bench.session(&client.to_string())).collect();
        Self { bench, channels, held: BTreeMap::new() }
    }

    fn others(&self, holder: Holder) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |(h, _)| h.2 == holder.2 && **h != holder).map(|(_, v)| v)
    }

    fn of_file(&self, file: u64) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |(holder, _)| holder.2 == file).map(|(_, held)| held)
    }

    fn step(&mut self, event: &OpenEvent) {
        match *event {
            OpenEvent::Open { holder, access, deny, key, deny_remove } => {
                self.open(holder, access, deny, key, deny_remove);
            }
            OpenEvent::Downgrade { holder, access, deny, keep_key } => {
                self.downgrade(holder, access, deny, keep_key);
            }
            OpenEvent::Close { holder } => self.close(holder),
            OpenEvent::Io { holder, write, anonymous } => self.io(holder, write, anonymous),
            OpenEvent::Remove { file, check_open } => self.remove(file, check_open),
            OpenEvent::Leave { client } => self.leave(client),
        }
        self.assert_no_conflict();
    }

    fn open(
        &mut self,
        holder: Holder,
        access: u32,
        deny: u32,
        key: Option<u64>,
        deny_remove: bool,
    ) {
        let own = self.held.get(&holder).copied();
        let (all_access, all_deny) =
            (access | own.map_or(0, |o| o.access), deny | own.map_or(0, |o| o.deny));
        let conflict =
            self.others(holder).any(|o| all_access & o.deny != 0 || all_deny & o.access != 0);
        let keys: Vec<_> = self.of_file(holder.2).filter_map(|held| held.key).collect();
        let mismatch = key.is_some_and(|key| keys.iter().any(|&other| other != key));
        let owner = holder.1.to_string();
        let disposition =
            if deny_remove { DeleteDisposition::Deny } else { DeleteDisposition::DontCare };
        let arguments = OpenArguments {
            deny: ShareDeny::from_number(deny).unwrap(),
            key: key.map(ShareKey),
            disposition,
            ..open_for(holder.2, &owner, ShareAccess::from_number(access).unwrap())
        };
        let first_of_file = self.of_file(holder.2).next().is_none();
        let outcome = self.bench.open(self.channels[holder.0], &arguments);
        match outcome {
            Err(status) => {
                let wanted = if conflict { Fault::ShareDenied } else { Fault::KeyMismatch };
                assert!(conflict || mismatch, "refused without a reason: {status}");
                assert_eq!(status, wanted);
            }
            Ok(opened) => {
                assert!(!conflict && !mismatch, "granted against {:?}", self.held);
                assert_eq!((opened.first_of_file, opened.reopened), (first_of_file, own.is_some()));
                if let Some(own) = own {
                    assert_eq!(opened.state_id, own.state_id);
                }
                let held = Held {
                    access: all_access,
                    deny: all_deny,
                    key: own.and_then(|own| own.key).or(key),
                    deny_remove: deny_remove || own.is_some_and(|own| own.deny_remove),
                    state_id: opened.state_id,
                };
                self.held.insert(holder, held);
            }
        }
    }

    fn downgrade(&mut self, holder: Holder, access: u32, deny: u32, keep_key: bool) {
        let Some(held) = self.held.get_mut(&holder) else { return };
        let key = held.key.filter(|_| keep_key);
        let outcome = self.bench.open_downgrade(
            self.channels[holder.0],
            held.state_id,
            FileKey(holder.2),
            ShareAccess::from_number(access).unwrap(),
            ShareDeny::from_number(deny).unwrap(),
            key.map(ShareKey),
        );
        if access & !held.access != 0 || deny & !held.deny != 0 {
            assert_eq!(outcome, Err(Fault::Invalid));
        } else {
            assert_eq!(outcome, Ok(()));
            (held.access, held.deny, held.key) = (access, deny, key);
        }
    }

    fn close(&mut self, holder: Holder) {
        let Some(held) = self.held.remove(&holder) else { return };
        let (channel, file) = (self.channels[holder.0], FileKey(holder.2));
        let closed = self.bench.close(channel, held.state_id, file).unwrap();
        assert_eq!(closed.last_of_file, self.of_file(holder.2).next().is_none());
        let again = self.bench.close(channel, held.state_id, file);
        assert_eq!(again, Err(Fault::OldState));
    }

    fn io(&mut self, holder: Holder, write: bool, anonymous: bool) {
        let (kind, bit) = if write { (IoKind::Write, 2) } else { (IoKind::Read, 1) };
        let (channel, file) = (self.channels[holder.0], FileKey(holder.2));
        if anonymous {
            let denied = self.of_file(holder.2).any(|held| held.deny & bit != 0);
            let wanted = if denied { Err(Fault::RangeLocked) } else { Ok(()) };
            let outcome = self.bench.check_io(channel, StateId::ANONYMOUS, file, kind);
            assert_eq!(outcome, wanted);
        } else if let Some(held) = self.held.get(&holder) {
            let wanted = if held.access & bit != 0 { Ok(()) } else { Err(Fault::OpenLacksAccess) };
            assert_eq!(self.bench.check_io(channel, held.state_id, file, kind), wanted);
            let stranger = self.channels[(holder.0 + 1) % CLIENTS];
            let outcome = self.bench.check_io(stranger, held.state_id, file, kind);
            assert_eq!(outcome, Err(Fault::BadState));
        }
    }

    fn remove(&mut self, file: u64, check_open: bool) {
        let mode = if check_open { RemoveMode::CheckOpen } else { RemoveMode::Unchecked };
        let open = self.of_file(file).next().is_some();
        let denied = self.of_file(file).any(|held| held.deny_remove);
        let wanted = if !open {
            Ok(RemoveDecision::Now)
        } else if check_open || denied {
            Err(Fault::NameHeldOpen)
        } else {
            Ok(RemoveDecision::KeepDataUntilLastClose)
        };
        assert_eq!(self.bench.filer.remove_check(FileKey(file), mode), wanted);
    }

    fn leave(&mut self, client: usize) {
        let mut released: Vec<_> = self
            .bench
            .drop_channel(self.channels[client])
            .iter()
            .map(|closed| (closed.file.0, closed.state_id))
            .collect();
        let mut wanted: Vec<_> = self
            .held
            .iter()
            .filter(|(holder, _)| holder.0 == client)
            .map(|(holder, held)| (holder.2, held.state_id))
            .collect();
        released.sort();
        wanted.sort();
        assert_eq!(released, wanted);
        self.held.retain(|holder, _| holder.0 != client);
        self.channels[client] = self.bench.session(&client.to_string());
    }

    /// The promise itself, over what was granted.
    fn assert_no_conflict(&self) {
        for (holder, held) in &self.held {
            for other in self.others(*holder) {
                assert_eq!(held.access & other.deny, 0);
                assert!(held.key.is_none() || other.key.is_none() || held.key == other.key);
            }
        }
        assert_eq!(self.bench.filer.counters().opens as usize, self.held.len());
    }

    fn finish(mut self) {
        for holder in self.held.keys().copied().collect::<Vec<_>>() {
            self.close(holder);
        }
        let counters = self.bench.filer.counters();
        assert_eq!((counters.opens, counters.files), (0, 0));
        for channel in std::mem::take(&mut self.channels) {
            assert_eq!(self.bench.drop_channel(channel), []);
        }
        self.bench.assert_empty();
    }
}

// ---- Credits -----------------------------------------------------------------------

#[derive(Clone, Debug)]
enum CreditEvent {
    /// The client sends a request on its n-th free stream.
    Send {
        client: usize,
        pick: usize,
        desired: u16,
    },
    /// The server takes the next request in.
    Receive {
        client: usize,
    },
    /// The server answers the n-th request it holds.
    Answer {
        client: usize,
        pick: usize,
    },
    /// The client reads the next response.
    Read {
        client: usize,
    },
    Tick,
    /// The connection breaks and the client comes back.
    Reconnect {
        client: usize,
    },
}

fn credit_event() -> impl Strategy<Value = CreditEvent> {
    let client = 0..CLIENTS;
    let desired = prop_oneof![2 => Just(0u16), 1 => 1..70u16];
    prop_oneof![
        12 => (client.clone(), any::<usize>(), desired)
            .prop_map(|(client, pick, desired)| CreditEvent::Send { client, pick, desired }),
        10 => client.clone().prop_map(|client| CreditEvent::Receive { client }),
        9 => (client.clone(), any::<usize>())
            .prop_map(|(client, pick)| CreditEvent::Answer { client, pick }),
        9 => client.clone().prop_map(|client| CreditEvent::Read { client }),
        1 => Just(CreditEvent::Tick),
        1 => client.prop_map(|client| CreditEvent::Reconnect { client }),
    ]
}

/// A client that keeps the rule of draft 3.2.6.4.2, with both directions of its wire.
struct Requester {
    channel: ChannelId,
    nreq: u16,
    busy: Vec<u16>,
    to_server: VecDeque<(u16, u16)>,
    to_client: VecDeque<(u16, u16)>,
    at_server: Vec<u16>,
    /// It has not asked for anything.
    is_new: bool,
    /// Receives the server has posted.
    posted: u16,
}

struct CreditModel {
    bench: Bench,
    requesters: Vec<Requester>,
    budget: u32,
}

impl CreditModel {
    fn new(budget: u32) -> Self {
        let config = FilerConfig {
            channels_max: CLIENTS as u32,
            credits_budget: budget,
            credits_initial: 4,
            ..FilerConfig::default()
        };
        let mut bench = Bench::new(config);
        let requesters = (0..CLIENTS).map(|client| Requester::new(&mut bench, client)).collect();
        Self { bench, requesters, budget }
    }

    fn step(&mut self, event: &CreditEvent) {
        let filer = &mut self.bench.filer;
        match *event {
            CreditEvent::Send { client, pick, desired } => {
                self.requesters[client].send(pick, desired);
            }
            CreditEvent::Receive { client } => self.requesters[client].receive(filer),
            CreditEvent::Answer { client, pick } => self.requesters[client].answer(filer, pick),
            CreditEvent::Read { client } => self.requesters[client].read(),
            CreditEvent::Tick => assert_eq!(filer.on_tick(Moment(0)), TickActions::default()),
            CreditEvent::Reconnect { client } => {
                self.bench.drop_channel(self.requesters[client].channel);
                self.requesters[client] = Requester::new(&mut self.bench, client);
            }
        }
        let charged = self.bench.filer.counters().credits;
        assert!(charged <= self.budget);
        let posted: u32 = self.requesters.iter().map(Requester::receives_in_use).sum();
        assert!(posted <= charged, "{posted} receives on {charged} credits");
    }

    /// Brings every client to the edge of its right, and then one step beyond.
    fn violate(mut self, stream: u16) {
        for requester in &mut self.requesters {
            let filer = &mut self.bench.filer;
            while requester.to_client.front().is_some() {
                requester.read();
            }
            while requester.send(0, 0) {}
            while !requester.to_server.is_empty() {
                requester.receive(filer);
            }
            assert!(requester.busy.len() >= usize::from(requester.nreq));
            // After a fall the client may hold high streams: then a low one is free, and
            // nothing but the count gives the offence away.
            let free = (0..requester.nreq).find(|stream| !requester.busy.contains(stream));
            let beyond = head(RequestClass::Ordinary, free.unwrap_or(stream));
            let outcome = filer.admit(requester.channel, &beyond, Moment(0));
            assert!(matches!(outcome, Err(Refusal::Break(_))), "{outcome:?}");
        }
        for requester in &self.requesters {
            self.bench.filer.channel_closed(requester.channel, ChannelEnd::Lost, Moment(0));
        }
        self.bench.assert_empty();
    }
}

impl Requester {
    fn new(bench: &mut Bench, client: usize) -> Self {
        let channel = bench.channel();
        let results = bench.connect(channel, &client.to_string(), 1);
        bench.authenticate(channel).unwrap();
        let nreq = results.granted.max_requests as u16;
        Self {
            channel,
            nreq,
            busy: vec![],
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            at_server: vec![],
            is_new: true,
            posted: nreq,
        }
    }

    fn receives_in_use(&self) -> u32 {
        u32::from(self.posted) + self.at_server.len() as u32
    }

    fn send(&mut self, pick: usize, desired: u16) -> bool {
        let free: Vec<u16> = (0..self.nreq).filter(|s| !self.busy.contains(s)).collect();
        if self.busy.len() >= usize::from(self.nreq) || free.is_empty() {
            return false;
        }
        let stream = free[pick % free.len()];
        self.busy.push(stream);
        self.to_server.push_back((stream, desired));
        true
    }

    fn receive(&mut self, filer: &mut Filer) {
        let Some((stream, desired_nreq)) = self.to_server.pop_front() else { return };
        assert!(self.posted > 0, "a request met no receive");
        self.posted -= 1;
        let head = RequestHead { desired_nreq, ..head(RequestClass::Ordinary, stream) };
        let admitted = filer.admit(self.channel, &head, Moment(0));
        self.at_server.push(stream);
        assert_eq!(admitted, {
            let (kept, place) = (KeptSession::NONE, ChainPlace::Alone);
            let outstanding = self.at_server.len() as u16;
            Ok(Admitted { kept, place, outstanding, begins_life: std::mem::take(&mut self.is_new) })
        });
    }

    fn answer(&mut self, filer: &mut Filer, pick: usize) {
        if self.at_server.is_empty() {
            return;
        }
        let stream = self.at_server.swap_remove(pick % self.at_server.len());
        let grant = filer.finish(self.channel, StreamId(stream));
        assert!(grant.target_nreq >= 1 && grant.target_nreq <= 64);
        self.posted += grant.receives_to_post;
        self.to_client.push_back((stream, grant.target_nreq));
    }

    fn read(&mut self) {
        let Some((stream, target)) = self.to_client.pop_front() else { return };
        self.busy.retain(|&busy| busy != stream);
        self.nreq = (self.nreq - 1).max(target);
        assert!(self.nreq >= 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_two_conflicting_opens_are_ever_granted(
        events in prop::collection::vec(open_event(), 1..150)
    ) {
        let mut model = OpenModel::new();
        for event in &events {
            model.step(event);
        }
        model.finish();
    }

    #[test]
    fn obeying_clients_are_never_broken_and_others_always(
        budget in prop_oneof![Just(3u32), 4..40u32, Just(1000)],
        events in prop::collection::vec(credit_event(), 1..600),
        stream in prop_oneof![0..80u16, any::<u16>()],
    ) {
        let mut model = CreditModel::new(budget);
        for event in &events {
            model.step(event);
        }
        model.violate(stream);
    }
}
