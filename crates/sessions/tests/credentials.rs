//! Registered credentials: which clients may register which ones, and how long a request keeps
//! them.

use std::collections::{BTreeMap, BTreeSet};

use crate::dice::*;
use dafs_sessions::*;
use dafs_types::*;
use dafs_wire::messages::CredentialData;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn table(policy: CredentialPolicy) -> CredentialTable {
    let mut table = CredentialTable::new(3, policy);
    table.join(A, 4);
    table.join(B, 4);
    table
}

fn user(uid: u32) -> Credentials {
    Credentials::plain(uid, uid).unwrap()
}

fn numbered(uid: u32) -> CredentialData<'static> {
    CredentialData::Id { uid, gid: uid, groups: (&[]).into() }
}

fn register(table: &mut CredentialTable, client: ClientId, uid: u32) -> Result<CredHandle, Status> {
    match table.register(client, true, &numbered(uid))? {
        Registration::Done(handle) => Ok(handle),
        other => panic!("{other:?}"),
    }
}

/// Returns the user that a request of this client would act for.
fn acting(table: &mut CredentialTable, client: ClientId, handle: CredHandle) -> Option<u32> {
    let held = table.acquire(client, handle).ok()?;
    let uid = table.credentials(&held).uid();
    table.finish(held);
    Some(uid)
}

#[test]
fn credentials_serve_only_their_client() {
    let mut table = table(CredentialPolicy::default());
    let handle = register(&mut table, A, 7).unwrap();
    assert_ne!(handle, CredHandle(0));
    assert_eq!(acting(&mut table, A, handle), Some(7));
    assert_eq!(table.acquire(B, handle), Err(Status::NoCreds));
    assert_eq!(table.acquire(A, CredHandle(handle.0 + 1)), Err(Status::NoCreds));
    assert_eq!(table.acquire(A, CredHandle(0)), Err(Status::NoCreds));
    assert_eq!(table.release(B, true, handle), Err(Status::NoCreds));
    assert_eq!(table.release(A, true, handle), Ok(()));
    assert_eq!(table.release(A, true, handle), Err(Status::NoCreds));
    assert_eq!(table.acquire(A, handle), Err(Status::NoCreds));
    let counters = CredentialCounters {
        taken: 0,
        clients: 2,
        registered: 1,
        unknown: 4,
        ..Default::default()
    };
    assert_eq!(table.counters(), counters);
}

#[test]
fn the_untrusted_register_and_release_nothing() {
    let mut table = table(CredentialPolicy::default());
    let handle = register(&mut table, A, 7).unwrap();
    assert_eq!(table.register(A, false, &numbered(1)), Err(Status::NotAuthorized));
    assert_eq!(table.release(A, false, handle), Err(Status::NotAuthorized));
    assert_eq!(acting(&mut table, A, handle), Some(7));
}

#[test]
fn every_type_of_the_draft() {
    let policy = CredentialPolicy { groups_max: 3, ..CredentialPolicy::default() };
    let mut table = table(policy.clone());
    let id = |groups: &'static [u32]| CredentialData::Id { uid: 5, gid: 6, groups: groups.into() };
    let Ok(Registration::Done(handle)) = table.register(A, true, &id(&[9, 8, 9])) else { panic!() };
    let held = table.acquire(A, handle).unwrap();
    let expected = Credentials::new(5, 6, [8, 9]).unwrap();
    assert_eq!(table.credentials(&held), &expected);
    table.finish(held);
    assert_eq!(table.register(A, true, &id(&[1, 2, 3, 4])), Err(Status::Inval));
    let Ok(Registration::Done(handle)) = table.register(A, true, &CredentialData::Default) else {
        panic!()
    };
    assert_eq!(acting(&mut table, A, handle), Some(65_534));
    assert_eq!(table.register(A, true, &CredentialData::Gss(b"x")), Err(Status::NotSupp));
    let policy = CredentialPolicy { gss_names: true, default: None, ..policy };
    let mut table = CredentialTable::new(3, policy);
    table.join(A, 1);
    assert_eq!(table.register(A, true, &CredentialData::Default), Err(Status::NotSupp));
    let looked = table.register(A, true, &CredentialData::Gss(b"x"));
    let name = CredentialName::Gss(Box::from(&b"x"[..]));
    assert!(matches!(looked, Ok(Registration::LookUp(_, found)) if found == name));
}

#[test]
fn the_user_number_minus_one_cannot_be_registered() {
    const NONE: u32 = u32::MAX;
    let mut table = table(CredentialPolicy::default());
    for (uid, gid, groups) in [(NONE, 6, &[][..]), (5, NONE, &[]), (5, 6, &[7, NONE])] {
        let data = CredentialData::Id { uid, gid, groups: groups.into() };
        assert_eq!(table.register(A, true, &data), Err(Status::Inval), "{uid} {gid} {groups:?}");
    }
    assert_eq!(table.counters().taken, 0);
}

#[test]
fn a_name_is_registered_once_it_is_known() {
    let mut table = table(CredentialPolicy::default());
    let look = |table: &mut CredentialTable, name| match table.register(
        A,
        true,
        &CredentialData::Name(name),
    ) {
        Ok(Registration::LookUp(lookup, CredentialName::User(found))) => {
            assert_eq!(&*found, name);
            lookup
        }
        other => panic!("{other:?}"),
    };
    let known = look(&mut table, "ann");
    let unknown = look(&mut table, "bob");
    // The lookup counts, but its handle names nothing yet.
    assert_eq!(table.counters().taken, 2);
    assert!(table.iter().all(|shown| shown.credentials.is_none()));
    assert_eq!(table.looked_up(unknown, None), Err(Status::Inval));
    let handle = table.looked_up(known, Some(user(9))).unwrap();
    assert_eq!(acting(&mut table, A, handle), Some(9));
    assert_eq!(table.looked_up(known, Some(user(1))), Err(Status::BadSession));
    assert_eq!(table.looked_up(unknown, Some(user(1))), Err(Status::BadSession));
    let late = look(&mut table, "cid");
    table.client_gone(A);
    assert_eq!(table.looked_up(late, Some(user(9))), Err(Status::StaleClientId));
    assert_eq!(table.counters().taken, 0);
}

#[test]
fn credentials_in_use_are_not_released() {
    let mut table = table(CredentialPolicy::default());
    let handle = register(&mut table, A, 7).unwrap();
    let first = table.acquire(A, handle).unwrap();
    let second = table.acquire(A, handle).unwrap();
    assert_eq!(table.release(A, true, handle), Err(Status::CrHandConflict));
    table.finish(first);
    assert_eq!(table.release(A, true, handle), Err(Status::CrHandConflict));
    assert_eq!(acting(&mut table, A, handle), Some(7));
    table.finish(second);
    assert_eq!(table.release(A, true, handle), Ok(()));
    assert_eq!(table.counters().conflicts, 2);
}

#[test]
fn a_request_outlives_its_client() {
    let mut table = table(CredentialPolicy::default());
    let handle = register(&mut table, A, 7).unwrap();
    let idle = register(&mut table, A, 8).unwrap();
    let held = table.acquire(A, handle).unwrap();
    table.client_gone(A);
    assert_eq!(table.credentials(&held).uid(), 7);
    let shown: Vec<_> = table.iter().collect();
    let credentials = user(7);
    let orphan =
        RegisteredCredential { client: None, handle, credentials: Some(&credentials), uses: 1 };
    assert_eq!(shown, [orphan]);
    // The same client starts again without credentials.
    table.join(A, 4);
    for handle in [handle, idle] {
        assert_eq!(table.acquire(A, handle), Err(Status::NoCreds));
    }
    table.finish(held);
    assert_eq!(table.counters().taken, 0);
}

#[test]
fn the_first_session_fixes_the_number() {
    let policy = CredentialPolicy {
        is_served: true,
        per_client_default: 2,
        per_client_max: 3,
        total_max: 4,
        ..CredentialPolicy::default()
    };
    let mut table = CredentialTable::new(3, policy.clone());
    assert_eq!(table.agreed(A), None);
    assert_eq!(table.join(A, policy.agree(0)), 2);
    assert_eq!(table.join(A, policy.agree(3)), 2);
    assert_eq!(table.agreed(A), Some(2));
    assert_eq!(table.join(B, policy.agree(9)), 3);
    let first = register(&mut table, A, 1).unwrap();
    register(&mut table, A, 1).unwrap();
    assert_eq!(register(&mut table, A, 1), Err(Status::Resource));
    register(&mut table, B, 1).unwrap();
    register(&mut table, B, 1).unwrap();
    // The table is full, although B may have a third.
    assert_eq!(register(&mut table, B, 1), Err(Status::Resource));
    table.release(A, true, first).unwrap();
    assert!(register(&mut table, B, 1).is_ok());
    assert_eq!(table.register(ClientId(9), true, &numbered(1)), Err(Status::BadSession));
}

#[test]
fn a_handle_is_reused_late_and_is_never_zero() {
    let mut table = CredentialTable::new(u64::MAX, CredentialPolicy::default());
    table.join(A, 1);
    let mut seen = BTreeSet::new();
    for _ in 0..65_535 {
        let handle = register(&mut table, A, 1).unwrap();
        assert!(handle.0 != 0 && seen.insert(handle.0));
        table.release(A, true, handle).unwrap();
    }
    assert!(seen.contains(&register(&mut table, A, 1).unwrap().0));
}

// ---- The model -------------------------------------------------------------------------

#[derive(Default)]
struct Model {
    registered: BTreeMap<(ClientId, CredHandle), u32>,
    lookups: Vec<(ClientId, u64, CredentialLookup)>,
    uses: Vec<(ClientId, u64, CredHandle, u32, CredentialUse)>,
    seen: BTreeSet<CredHandle>,
    /// The number of incarnations of each client.
    lives: BTreeMap<ClientId, u64>,
}

const AGREED: usize = 4;
const CLIENTS: [ClientId; 2] = [A, B];

impl Model {
    fn life(&self, client: ClientId) -> u64 {
        self.lives.get(&client).copied().unwrap_or(0)
    }

    fn count(&self, client: ClientId) -> usize {
        let life = self.life(client);
        self.registered.keys().filter(|key| key.0 == client).count()
            + self.lookups.iter().filter(|lookup| lookup.0 == client && lookup.1 == life).count()
    }

    fn any_handle(&self, random: &mut Random) -> CredHandle {
        if self.seen.is_empty() || random.percent(5) {
            return CredHandle(random.below(1 << 18) as u32);
        }
        *self.seen.iter().nth(random.below(self.seen.len())).unwrap()
    }

    fn add(&mut self, client: ClientId, handle: CredHandle, uid: u32) {
        assert!(handle.0 != 0 && self.seen.insert(handle), "a handle was reused");
        self.registered.insert((client, handle), uid);
    }

    fn step(&mut self, table: &mut CredentialTable, random: &mut Random) {
        let client = pick(random, &CLIENTS);
        match random.below(12) {
            0..3 => self.register(table, random, client),
            3 if !self.lookups.is_empty() => self.answer(table, random),
            4..7 => {
                let handle = self.any_handle(random);
                let expected = self.registered.get(&(client, handle)).copied();
                match (table.acquire(client, handle), expected) {
                    (Ok(held), Some(uid)) => {
                        self.uses.push((client, self.life(client), handle, uid, held));
                    }
                    (Err(Status::NoCreds), None) => {}
                    other => panic!("{other:?}"),
                }
            }
            7..9 if !self.uses.is_empty() => {
                let at = random.below(self.uses.len());
                table.finish(self.uses.swap_remove(at).4);
            }
            9..11 => self.release(table, random, client),
            11 if random.percent(30) => {
                table.client_gone(client);
                table.join(client, AGREED as u32);
                *self.lives.entry(client).or_default() += 1;
                self.registered.retain(|key, _| key.0 != client);
            }
            _ => {}
        }
    }

    fn register(&mut self, table: &mut CredentialTable, random: &mut Random, client: ClientId) {
        let uid = random.below(100) as u32;
        let by_name = random.percent(40);
        let data = if by_name { CredentialData::Name("n") } else { numbered(uid) };
        let is_full = self.count(client) >= AGREED;
        match table.register(client, true, &data) {
            Ok(Registration::Done(handle)) if !is_full && !by_name => self.add(client, handle, uid),
            Ok(Registration::LookUp(lookup, _)) if !is_full && by_name => {
                self.lookups.push((client, self.life(client), lookup));
            }
            Err(Status::Resource) if is_full => {}
            other => panic!("{other:?}, full: {is_full}"),
        }
    }

    fn answer(&mut self, table: &mut CredentialTable, random: &mut Random) {
        let at = random.below(self.lookups.len());
        let (client, life, lookup) = self.lookups.swap_remove(at);
        let uid = random.below(100) as u32;
        let found = random.percent(70).then(|| user(uid));
        let is_gone = life != self.life(client);
        match (table.looked_up(lookup, found.clone()), found) {
            (Err(Status::StaleClientId), _) if is_gone => {}
            (Ok(handle), Some(_)) if !is_gone => self.add(client, handle, uid),
            (Err(Status::Inval), None) if !is_gone => {}
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, table: &mut CredentialTable, random: &mut Random, client: ClientId) {
        let handle = self.any_handle(random);
        let is_used = self.uses.iter().any(|held| held.0 == client && held.2 == handle);
        let expected = match self.registered.contains_key(&(client, handle)) {
            false => Err(Status::NoCreds),
            true if is_used => Err(Status::CrHandConflict),
            true => Ok(()),
        };
        assert_eq!(table.release(client, true, handle), expected);
        if expected.is_ok() {
            self.registered.remove(&(client, handle));
        }
    }

    fn check(&self, table: &CredentialTable) {
        for (_, _, _, uid, held) in &self.uses {
            assert_eq!(table.credentials(held).uid(), *uid);
        }
        let orphans: BTreeSet<_> = self
            .uses
            .iter()
            .filter(|held| held.1 != self.life(held.0))
            .map(|held| held.2)
            .collect();
        let taken = self.registered.len() + self.lookups.len() + orphans.len();
        assert_eq!(table.counters().taken as usize, taken);
        assert_eq!(table.iter().count(), taken);
    }
}

#[test]
fn a_request_keeps_its_credentials() {
    for_seeds("a_request_keeps_its_credentials", 300, |random| {
        let mut table = CredentialTable::new(random.below(1 << 30) as u64, Default::default());
        let mut model = Model::default();
        for client in CLIENTS {
            table.join(client, AGREED as u32);
        }
        for _ in 0..300 {
            model.step(&mut table, random);
            model.check(&table);
        }
        for (.., held) in std::mem::take(&mut model.uses) {
            table.finish(held);
        }
        for client in CLIENTS {
            table.client_gone(client);
        }
        for (.., lookup) in std::mem::take(&mut model.lookups) {
            assert_eq!(table.looked_up(lookup, None), Err(Status::StaleClientId));
        }
        assert_eq!((table.counters().taken, table.counters().clients), (0, 0));
    });
}
