//! Random event sequences, checked against simple models.

use std::collections::BTreeMap;

use crate::common::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;
use proptest::prelude::*;

// ---- Opens -------------------------------------------------------------------------

/// The holder of an open: client, owner, file.
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
    clients: Vec<ClientKey>,
    held: BTreeMap<Holder, Held>,
}

impl OpenModel {
    fn new() -> Self {
        let mut bench = Bench::new(FilerConfig::default());
        let clients = (0..CLIENTS).map(|client| bench.session(&client.to_string())).collect();
        Self { bench, clients, held: BTreeMap::new() }
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
        let outcome = self.bench.open(self.clients[holder.0], &arguments);
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
        let outcome = self.bench.filer.open_downgrade(
            self.clients[holder.0],
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
        let (client, file) = (self.clients[holder.0], FileKey(holder.2));
        let closed = self.bench.close(client, held.state_id, file).unwrap();
        assert_eq!(closed.last_of_file, self.of_file(holder.2).next().is_none());
        let again = self.bench.close(client, held.state_id, file);
        assert_eq!(again, Err(Fault::OldState));
    }

    fn io(&mut self, holder: Holder, write: bool, anonymous: bool) {
        let (kind, bit) = if write { (IoKind::Write, 2) } else { (IoKind::Read, 1) };
        let (client, file) = (self.clients[holder.0], FileKey(holder.2));
        if anonymous {
            let denied = self.of_file(holder.2).any(|held| held.deny & bit != 0);
            let wanted = if denied { Err(Fault::RangeLocked) } else { Ok(()) };
            let outcome = self.bench.check_io(client, StateId::ANONYMOUS, file, kind);
            assert_eq!(outcome, wanted);
        } else if let Some(held) = self.held.get(&holder) {
            let wanted = if held.access & bit != 0 { Ok(()) } else { Err(Fault::OpenLacksAccess) };
            assert_eq!(self.bench.check_io(client, held.state_id, file, kind), wanted);
            let stranger = self.clients[(holder.0 + 1) % CLIENTS];
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
            .lose(self.clients[client])
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
        self.clients[client] = self.bench.session(&client.to_string());
    }

    /// Checks that no two granted opens conflict.
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
        for client in std::mem::take(&mut self.clients) {
            assert_eq!(self.bench.lose(client), []);
        }
        self.bench.assert_empty();
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
}
