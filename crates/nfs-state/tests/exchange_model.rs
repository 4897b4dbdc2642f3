//! EXCHANGE_ID and CREATE_SESSION against the table of RFC 8881 section 18.35.4, in random
//! histories.

use dafs_nfs_state::{CreateSessionOutcome, Nfs4Error, Principal, exchange_flags};
use dafs_types::ClientId;
use proptest::prelude::*;

use crate::common::{World, caller};

/// What the RFC says about one client owner.
#[derive(Clone, Debug, Default)]
struct Model {
    confirmed: Option<Record>,
    unconfirmed: Option<Record>,
}

#[derive(Clone, Debug, PartialEq)]
struct Record {
    verifier: u8,
    principal: u32,
    id: ClientId,
    sequence: u32,
    sessions: Vec<dafs_nfs_state::SessionId4>,
}

#[derive(Clone, Debug)]
enum Step {
    Exchange { owner: usize, verifier: u8, principal: u32, is_update: bool },
    Create { owner: usize, is_confirmed: bool, ahead: u32, principal: u32 },
    DestroySessions { owner: usize },
    DestroyClient { owner: usize, is_confirmed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 0..2usize;
    prop_oneof![
        4 => (owner.clone(), 0..2u8, 0..2u32, any::<bool>()).prop_map(
            |(owner, verifier, principal, is_update)| Step::Exchange {
                owner,
                verifier,
                principal,
                is_update
            }
        ),
        4 => (owner.clone(), any::<bool>(), 0..3u32, 0..2u32).prop_map(
            |(owner, is_confirmed, ahead, principal)| Step::Create {
                owner,
                is_confirmed,
                ahead,
                principal
            }
        ),
        1 => owner.clone().prop_map(|owner| Step::DestroySessions { owner }),
        1 => (owner, any::<bool>())
            .prop_map(|(owner, is_confirmed)| Step::DestroyClient { owner, is_confirmed }),
    ]
}

impl Model {
    /// Returns the expected error of an EXCHANGE_ID, or the record that it is about; `None` for a
    /// new one.
    fn exchange(
        &self,
        verifier: u8,
        principal: u32,
        is_update: bool,
    ) -> Result<Option<Record>, Nfs4Error> {
        match (is_update, &self.confirmed) {
            (true, None) => Err(Nfs4Error::NoEnt),
            (true, Some(record)) if record.verifier != verifier => Err(Nfs4Error::NotSame),
            (true, Some(record)) if record.principal != principal => Err(Nfs4Error::Perm),
            (true, Some(record)) => Ok(Some(record.clone())),
            (false, None) => Ok(None),
            (false, Some(record)) if record.principal != principal => {
                if record.sessions.is_empty() { Ok(None) } else { Err(Nfs4Error::ClidInUse) }
            }
            (false, Some(record)) if record.verifier == verifier => Ok(Some(record.clone())),
            (false, Some(_)) => Ok(None),
        }
    }
}

fn run(steps: Vec<Step>) {
    let mut world = World::new();
    let mut models = [Model::default(), Model::default()];
    let mut ids = std::collections::HashSet::new();
    for step in steps {
        match step {
            Step::Exchange { owner, verifier, principal, is_update } => {
                let model = &mut models[owner];
                let expected = model.exchange(verifier, principal, is_update);
                let flags = if is_update { exchange_flags::UPD_CONFIRMED_REC_A } else { 0 };
                let name = format!("owner {owner}");
                let who = Principal::System(principal);
                let actual = world.exchange(&name, verifier, flags, &who);
                match expected {
                    Err(error) => assert_eq!(actual, Err(error)),
                    Ok(Some(record)) => {
                        let actual = actual.unwrap();
                        assert_eq!((actual.id, actual.sequence), (record.id, record.sequence + 1));
                        assert_ne!(actual.flags & exchange_flags::CONFIRMED_R, 0);
                    }
                    Ok(None) => {
                        let actual = actual.unwrap();
                        assert_eq!(actual.flags & exchange_flags::CONFIRMED_R, 0);
                        assert!(ids.insert(actual.id), "an id was used again");
                        if model.confirmed.as_ref().is_some_and(|old| old.principal != principal) {
                            model.confirmed = None;
                        }
                        let (id, sequence) = (actual.id, 0);
                        let sessions = Vec::new();
                        model.unconfirmed =
                            Some(Record { verifier, principal, id, sequence, sessions });
                    }
                }
            }
            Step::Create { owner, is_confirmed, ahead, principal } => {
                create(&mut world, &mut models[owner], is_confirmed, ahead, principal);
            }
            Step::DestroySessions { owner } => {
                let Some(record) = &mut models[owner].confirmed else { continue };
                let who = Principal::System(record.principal);
                for session in record.sessions.drain(..) {
                    world.state.destroy_session(session, None, &caller(&who)).unwrap();
                }
            }
            Step::DestroyClient { owner, is_confirmed } => {
                let model = &mut models[owner];
                let place =
                    if is_confirmed { &mut model.confirmed } else { &mut model.unconfirmed };
                let Some(record) = place.clone() else { continue };
                let who = Principal::System(record.principal);
                let outcome = world.state.destroy_client(record.id, &caller(&who));
                if record.sessions.is_empty() {
                    assert_eq!(outcome, Ok(()));
                    *place = None;
                } else {
                    assert_eq!(outcome, Err(Nfs4Error::ClientIdBusy));
                }
            }
        }
        let kept = models.iter().flat_map(|model| [&model.confirmed, &model.unconfirmed]);
        let kept: Vec<&Record> = kept.flatten().collect();
        assert_eq!(world.state.clients().count(), kept.len());
        let sessions: usize = kept.iter().map(|record| record.sessions.len()).sum();
        assert_eq!(world.state.sessions().count(), sessions);
    }
}

fn create(world: &mut World, model: &mut Model, is_confirmed: bool, ahead: u32, principal: u32) {
    let place = if is_confirmed { &model.confirmed } else { &model.unconfirmed };
    let Some(mut record) = place.clone() else { return };
    let who = Principal::System(principal);
    let sequence = record.sequence + ahead;
    let actual = world.create(record.id, sequence, &who);
    let is_first = record.sequence == 0;
    match ahead {
        1 if !is_confirmed && record.principal != principal => {
            assert_eq!(actual, Err(Nfs4Error::ClidInUse));
        }
        1 => {
            let Ok(CreateSessionOutcome::Created(_, created)) = actual else {
                panic!("{actual:?}")
            };
            record.sequence = sequence;
            record.sessions.push(created.session);
            model.confirmed = Some(record);
            if !is_confirmed {
                model.unconfirmed = None;
            }
        }
        0 if !is_first => {
            let is_known = matches!(actual, Ok(CreateSessionOutcome::Repeated(_)))
                || actual == Err(Nfs4Error::ClidInUse);
            assert!(is_known, "{actual:?}");
        }
        _ => assert_eq!(actual, Err(Nfs4Error::SeqMisordered)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_history_follows_the_table_of_the_rfc(steps in prop::collection::vec(step(), 1..60)) {
        run(steps);
    }
}
