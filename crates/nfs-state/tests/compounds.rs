//! Compounds: positions, handles, state ids and sizes, row by row.

use dafs_nfs_state::{
    Admitted, Compound, FileNumber, KindSet, Nfs4Error, OperationNumber as Op, SequenceAsk,
    Stateid4, exists_in, needs_current_handle,
};
use dafs_types::FileHandle;

use crate::common::{ROOT, World, ask, caller, create_ask, created, new};

const HEADER: u32 = 24;

fn admitted() -> Admitted {
    let mut world = World::new();
    let session = world.client("a").1.session;
    new(world.sequence(&ask(session, 0, 1)))
}

/// Begins a compound of a SEQUENCE and these operations, until one is refused.
fn in_session(operations: &[Op]) -> (Compound, Result<(), Nfs4Error>) {
    let mut compound = Compound::new(2, 1 + operations.len() as u32);
    compound.begin(Op::SEQUENCE).unwrap();
    compound.enter_session(&admitted(), HEADER, 0);
    let outcome = operations.iter().try_for_each(|operation| compound.begin(*operation));
    (compound, outcome)
}

fn handle(byte: u8) -> FileHandle {
    FileHandle([byte; FileHandle::LENGTH])
}

#[test]
fn each_operation_has_its_place() {
    let alone = |operation| Compound::new(1, 1).begin(operation);
    let with_others = |operation| Compound::new(1, 2).begin(operation);
    let establishing = [
        Op::EXCHANGE_ID,
        Op::CREATE_SESSION,
        Op::DESTROY_SESSION,
        Op::DESTROY_CLIENTID,
        Op::BIND_CONN_TO_SESSION,
    ];
    for operation in establishing {
        assert_eq!(alone(operation), Ok(()));
        assert_eq!(with_others(operation), Err(Nfs4Error::NotOnlyOp));
        let within = in_session(&[operation]).1;
        let expected = match operation {
            Op::BIND_CONN_TO_SESSION => Err(Nfs4Error::NotOnlyOp),
            _ => Ok(()),
        };
        assert_eq!(within, expected, "{operation:?}");
    }
    assert_eq!(alone(Op::SEQUENCE), Ok(()));
    assert_eq!(with_others(Op::SEQUENCE), Ok(()));
    assert_eq!(in_session(&[Op::SEQUENCE]).1, Err(Nfs4Error::SequencePos));
    assert_eq!(in_session(&[Op::PUTROOTFH, Op::SEQUENCE]).1, Err(Nfs4Error::SequencePos));
    for operation in [Op::PUTROOTFH, Op::GETATTR, Op::RECLAIM_COMPLETE, Op::TEST_STATEID] {
        assert_eq!(alone(operation), Err(Nfs4Error::OpNotInSession));
        assert_eq!(with_others(operation), Err(Nfs4Error::OpNotInSession));
    }
}

#[test]
fn operations_of_other_versions_are_refused_first() {
    let alone = |minor, operation| Compound::new(minor, 1).begin(operation);
    for number in [0, 1, 2, 76, 10_044, u32::MAX] {
        assert_eq!(alone(2, Op(number)), Err(Nfs4Error::OpIllegal));
        assert_eq!(in_session(&[Op(number)]).1, Err(Nfs4Error::OpIllegal));
    }
    assert_eq!(alone(1, Op::CLONE), Err(Nfs4Error::OpIllegal));
    assert_eq!(alone(2, Op::CLONE), Err(Nfs4Error::OpNotInSession));
    let old = [Op::SETCLIENTID, Op::RENEW, Op::OPEN_CONFIRM, Op::RELEASE_LOCKOWNER];
    for operation in old {
        assert_eq!(alone(1, operation), Err(Nfs4Error::NotSupp));
    }
    assert!(exists_in(Op::RECLAIM_COMPLETE, 1) && !exists_in(Op::ALLOCATE, 1));
}

#[test]
fn handles_must_be_there() {
    for (operation, name) in Op::ALL {
        if needs_current_handle(*operation) {
            let outcome = in_session(&[*operation]).1;
            assert_eq!(outcome, Err(Nfs4Error::NoFileHandle), "{name}");
        }
    }
    assert_eq!(in_session(&[Op::RESTOREFH]).1, Err(Nfs4Error::RestoreFh));
    let (mut compound, _) = in_session(&[Op::PUTFH]);
    compound.set_current(handle(1));
    assert_eq!(compound.begin(Op::RENAME), Err(Nfs4Error::NoFileHandle));
    compound.save().unwrap();
    assert_eq!(compound.begin(Op::RENAME), Ok(()));
    assert_eq!(compound.begin(Op::RESTOREFH), Ok(()));
    compound.clear_current();
    assert_eq!(compound.begin(Op::GETATTR), Err(Nfs4Error::NoFileHandle));
    assert_eq!(compound.saved(), Ok(&handle(1)));
}

#[test]
fn the_current_state_id_follows_the_current_handle() {
    let (mut compound, _) = in_session(&[Op::PUTROOTFH]);
    compound.set_current(handle(1));
    assert_eq!(compound.resolve(Stateid4::CURRENT), Err(Nfs4Error::BadStateId));
    let open = Stateid4 { sequence: 1, other: [7; 12] };
    compound.set_current(handle(2));
    compound.set_state(open);
    assert_eq!(compound.resolve(Stateid4::CURRENT), Ok(open));
    for other in [Stateid4::ANONYMOUS, Stateid4::BYPASS, Stateid4 { sequence: 9, ..open }] {
        assert_eq!(compound.resolve(other), Ok(other));
    }
    compound.save().unwrap();
    compound.set_current(handle(3));
    assert_eq!(compound.resolve(Stateid4::CURRENT), Err(Nfs4Error::BadStateId));
    assert_eq!(compound.resolve_saved(Stateid4::CURRENT), Ok(open));
    compound.restore().unwrap();
    assert_eq!(compound.current(), Ok(&handle(2)));
    assert_eq!(compound.resolve(Stateid4::CURRENT), Ok(open));
}

#[test]
fn a_session_destroys_itself_last() {
    let (compound, outcome) = in_session(&[Op::DESTROY_SESSION]);
    assert_eq!((outcome, compound.check_destroys_own()), (Ok(()), Ok(())));
    let mut compound = Compound::new(1, 3);
    compound.begin(Op::SEQUENCE).unwrap();
    compound.enter_session(&admitted(), HEADER, 0);
    compound.begin(Op::DESTROY_SESSION).unwrap();
    assert_eq!(compound.check_destroys_own(), Err(Nfs4Error::NotOnlyOp));
}

#[test]
fn a_reply_stays_within_the_limits_of_its_session() {
    let limits = |must_keep| Admitted { must_keep, reply_bytes_max: 400, ..admitted() };
    let begin = |admitted: &Admitted| {
        let mut compound = Compound::new(1, 3);
        compound.begin(Op::SEQUENCE).unwrap();
        compound.enter_session(admitted, HEADER, 4);
        compound.begin(Op::PUTROOTFH).unwrap();
        compound
    };
    let compound = begin(&limits(false));
    assert_eq!(compound.reply_bytes(), 84, "RPC header, tag, compound and SEQUENCE");
    assert_eq!(compound.room(), 400 - 84 - 8, "the next operation may fail");
    assert_eq!(compound.check_room(308), Ok(()));
    assert_eq!(compound.check_room(309), Err(Nfs4Error::RepTooBig));
    assert_eq!(compound.check_room(u32::MAX), Err(Nfs4Error::RepTooBig));
    let mut compound = begin(&Admitted { kept_bytes_max: 200, ..limits(true) });
    assert_eq!(compound.room(), 200 - 84 - 8);
    assert_eq!(compound.check_room(108), Ok(()));
    assert_eq!(compound.check_room(109), Err(Nfs4Error::RepTooBigToCache));
    assert_eq!(compound.check_room(309), Err(Nfs4Error::RepTooBig));
    compound.add_result(8);
    compound.begin(Op::PUTROOTFH).unwrap();
    assert!(compound.is_last());
    assert_eq!((compound.index(), compound.room()), (2, 200 - 84 - 8));
}

#[test]
fn a_request_goes_through_from_sequence_to_repeat() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let session = created(world.create_with(&create_ask(client.id, 1), &caller(ROOT))).session;
    let request = SequenceAsk { operation_count: 4, ..ask(session, 0, 1) };
    let admitted = new(world.sequence(&request));
    let mut compound = Compound::new(1, 4);
    compound.begin(Op::SEQUENCE).unwrap();
    compound.enter_session(&admitted, HEADER, 0);
    compound.begin(Op::PUTROOTFH).unwrap();
    compound.set_current(handle(1));
    compound.begin(Op::OPEN).unwrap();
    let file = FileNumber(3);
    let (key, id) = world.state.opened(admitted.client, b"owner", file, 5).unwrap();
    compound.set_current(handle(2));
    compound.set_state(id);
    compound.begin(Op::CLOSE).unwrap();
    let meant = compound.resolve(Stateid4::CURRENT).unwrap();
    let checked = world.state.check_state(admitted.client, &meant, KindSet::OPEN, Some(file));
    assert_eq!(checked, Ok(dafs_nfs_state::Checked::State(key)));
    world.state.ended(key);
    assert!(world.state.finish(admitted.request, Some(b"the reply"), world.now));
    assert!(matches!(world.sequence(&request), Ok(dafs_nfs_state::Sequenced::Repeat(_))));
}
