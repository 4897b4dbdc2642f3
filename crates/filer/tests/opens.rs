//! Opens: reservations, keys, state ids, last close, leases.

use std::time::Duration;

use crate::common::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

const FILE: FileKey = FileKey(1);

fn bench() -> (Bench, ClientKey, ClientKey) {
    let mut bench = Bench::new(FilerConfig::default());
    let (a, b) = (bench.session("a"), bench.session("b"));
    (bench, a, b)
}

fn reading(owner: &str) -> OpenArguments<'_> {
    open_for(FILE.0, owner, ShareAccess::Read)
}

fn writing(owner: &str) -> OpenArguments<'_> {
    open_for(FILE.0, owner, ShareAccess::Write)
}

#[test]
fn denials_hold_between_clients_and_between_owners() {
    let (mut bench, a, b) = bench();
    let denying = OpenArguments { deny: ShareDeny::Write, ..reading("o") };
    let opened = bench.open(a, &denying).unwrap();
    assert!(opened.first_of_file && !opened.reopened);
    assert_eq!(bench.open(b, &writing("o")), Err(Fault::ShareDenied));
    assert_eq!(bench.open(a, &writing("p")), Err(Fault::ShareDenied));
    assert!(bench.open(b, &reading("o")).is_ok());
    let denying = OpenArguments { deny: ShareDeny::Read, ..reading("q") };
    assert_eq!(bench.open(b, &denying), Err(Fault::ShareDenied));
    bench.close(a, opened.state_id, FILE).unwrap();
    assert!(bench.open(b, &writing("o")).is_ok());
    assert_eq!(bench.filer.counters().opens_share_denied, 3);
}

#[test]
fn an_owner_joins_its_opens_and_closes_them_once() {
    let (mut bench, a, b) = bench();
    let denying = OpenArguments { deny: ShareDeny::Write, ..reading("o") };
    let first = bench.open(a, &denying).unwrap();
    let second = bench.open(a, &writing("o")).unwrap();
    assert_eq!(second.state_id, first.state_id);
    assert!(second.reopened && !second.first_of_file);
    for kind in [IoKind::Read, IoKind::Write] {
        assert_eq!(bench.check_io(a, first.state_id, FILE, kind), Ok(()));
    }
    bench.open(b, &reading("o")).unwrap();
    // A conflicting open is refused and changes nothing.
    let more = OpenArguments { deny: ShareDeny::Read, ..reading("o") };
    assert_eq!(bench.open(a, &more), Err(Fault::ShareDenied));
    assert_eq!(bench.filer.counters().opens, 2);
    assert!(!bench.close(a, first.state_id, FILE).unwrap().last_of_file);
    assert_eq!(bench.close(a, first.state_id, FILE), Err(Fault::OldState));
    assert!(bench.open(b, &writing("p")).is_ok());
}

#[test]
fn thousands_of_owners_are_distinguished_by_file_client_and_name() {
    let (mut bench, a, b) = bench();
    // Names that are prefixes of each other, some short and some too long to be stored in place.
    let names: Vec<String> = (0..400).map(|length| "o".repeat(length)).collect();
    let all = |file: u64| names.iter().map(move |name| open_for(file, name, ShareAccess::Read));
    let mut states = Vec::new();
    for (client, file) in [(a, 1), (a, 2), (b, 1), (b, 2)] {
        for arguments in all(file) {
            let opened = bench.open(client, &arguments).unwrap();
            assert!(!opened.reopened, "{client:?}, {arguments:?}");
            states.push((client, FileKey(file), opened.state_id));
        }
    }
    let mut known = states.iter();
    for (client, file) in [(a, 1), (a, 2), (b, 1), (b, 2)] {
        for arguments in all(file) {
            let opened = bench.open(client, &arguments).unwrap();
            assert!(opened.reopened);
            assert_eq!(known.next(), Some(&(client, FileKey(file), opened.state_id)));
        }
    }
    // Every second open is closed; then its owner has none of that file.
    for (client, file, state) in states.iter().step_by(2) {
        bench.close(*client, *state, *file).unwrap();
    }
    for (number, (client, arguments)) in [(a, 1), (a, 2), (b, 1), (b, 2)]
        .into_iter()
        .flat_map(|(client, file)| all(file).map(move |arguments| (client, arguments)))
        .enumerate()
    {
        let opened = bench.open(client, &arguments).unwrap();
        assert_eq!(opened.reopened, number % 2 == 1, "{client:?}, {arguments:?}");
    }
}

#[test]
fn a_downgrade_only_removes_access() {
    let (mut bench, a, b) = bench();
    let arguments = OpenArguments {
        access: ShareAccess::Both,
        deny: ShareDeny::Both,
        key: Some(ShareKey(5)),
        ..reading("o")
    };
    let id = bench.open(a, &arguments).unwrap().state_id;
    let mut downgrade =
        |access, deny, key| bench.filer.open_downgrade(a, id, FILE, access, deny, key);
    let wrong_key = Some(ShareKey(6));
    assert_eq!(downgrade(ShareAccess::Read, ShareDeny::None, wrong_key), Err(Fault::Invalid));
    assert_eq!(downgrade(ShareAccess::Read, ShareDeny::Write, Some(ShareKey(5))), Ok(()));
    assert_eq!(
        downgrade(ShareAccess::Both, ShareDeny::None, Some(ShareKey(5))),
        Err(Fault::Invalid)
    );
    assert_eq!(
        downgrade(ShareAccess::Read, ShareDeny::Both, Some(ShareKey(5))),
        Err(Fault::Invalid)
    );
    assert_eq!(bench.check_io(a, id, FILE, IoKind::Write), Err(Fault::OpenLacksAccess));
    let keyed = OpenArguments { key: wrong_key, ..reading("o") };
    assert_eq!(bench.open(b, &keyed), Err(Fault::KeyMismatch));
    assert_eq!(
        bench.filer.open_downgrade(a, id, FILE, ShareAccess::Read, ShareDeny::None, None),
        Ok(())
    );
    assert!(bench.open(b, &keyed).is_ok());
}

#[test]
fn the_first_key_holds_until_its_last_open_ends() {
    let (mut bench, a, b) = bench();
    let keyed = |key, owner| OpenArguments { key: Some(ShareKey(key)), ..reading(owner) };
    let plain = bench.open(a, &reading("plain")).unwrap();
    let first = bench.open(a, &keyed(1, "o")).unwrap();
    let second = bench.open(b, &keyed(1, "o")).unwrap();
    assert_eq!(bench.open(b, &keyed(2, "p")), Err(Fault::KeyMismatch));
    assert!(bench.open(b, &reading("bypass")).is_ok());
    bench.close(a, first.state_id, FILE).unwrap();
    assert_eq!(bench.open(a, &keyed(2, "o")), Err(Fault::KeyMismatch));
    // An owner may present only one key, even if it is the last to hold it.
    assert_eq!(bench.open(b, &keyed(2, "o")), Err(Fault::KeyMismatch));
    bench.close(b, second.state_id, FILE).unwrap();
    assert!(bench.open(a, &keyed(2, "o")).is_ok());
    // A reopen may add the key later.
    let reopened = bench.open(a, &keyed(2, "plain")).unwrap();
    assert_eq!(reopened.state_id, plain.state_id);
}

#[test]
fn refused_state_ids_get_the_status_of_their_reason() {
    let (mut bench, a, b) = bench();
    let id = bench.open(a, &reading("o")).unwrap().state_id;
    assert_ne!(id, StateId::ANONYMOUS);
    let read =
        |bench: &mut Bench, channel, id, file| bench.check_io(channel, id, file, IoKind::Read);
    assert_eq!(read(&mut bench, a, id, FILE), Ok(()));
    assert_eq!(read(&mut bench, b, id, FILE), Err(Fault::BadState));
    assert_eq!(read(&mut bench, a, id, FileKey(2)), Err(Fault::BadState));
    let never = StateId(id.0 + 1);
    assert_eq!(read(&mut bench, a, never, FILE), Err(Fault::BadState));
    let ahead = StateId(id.0 + (1 << 20));
    assert_eq!(read(&mut bench, a, ahead, FILE), Err(Fault::BadState));
    bench.close(a, id, FILE).unwrap();
    assert_eq!(read(&mut bench, a, id, FILE), Err(Fault::OldState));
    assert_eq!(read(&mut bench, a, ahead, FILE), Err(Fault::BadState));
    let again = bench.open(a, &reading("o")).unwrap().state_id;
    assert_eq!(again, ahead);

    let mut restarted = Bench::new(FilerConfig::default());
    restarted.filer = Filer::new(FilerConfig::default(), 0x123456).unwrap();
    let a = restarted.session("a");
    assert_eq!(read(&mut restarted, a, id, FILE), Err(Fault::StaleState));
    let unknown = ClientKey::NONE;
    assert_eq!(read(&mut restarted, unknown, id, FILE), Err(Fault::NoClient));
    // The anonymous state id needs no client.
    assert_eq!(read(&mut restarted, unknown, StateId::ANONYMOUS, FILE), Ok(()));
}

#[test]
fn access_and_anonymous_io_are_checked() {
    let (mut bench, a, b) = bench();
    let id = bench.open(a, &reading("o")).unwrap().state_id;
    assert_eq!(bench.check_io(a, id, FILE, IoKind::Write), Err(Fault::OpenLacksAccess));
    let anonymous = StateId::ANONYMOUS;
    assert_eq!(bench.check_io(b, anonymous, FILE, IoKind::Write), Ok(()));
    let denying = OpenArguments { deny: ShareDeny::Write, ..reading("p") };
    let denier = bench.open(a, &denying).unwrap().state_id;
    assert_eq!(bench.check_io(b, anonymous, FILE, IoKind::Write), Err(Fault::RangeLocked));
    assert_eq!(bench.check_io(b, anonymous, FILE, IoKind::Read), Ok(()));
    assert_eq!(bench.check_io(b, anonymous, FileKey(2), IoKind::Write), Ok(()));
    bench.close(a, denier, FILE).unwrap();
    assert_eq!(bench.check_io(b, anonymous, FILE, IoKind::Write), Ok(()));
    assert_eq!(bench.filer.counters().io_refused, 2);
}

#[test]
fn removal_respects_dispositions_and_the_last_close_deletes() {
    let (mut bench, a, b) = bench();
    let check = |filer: &Filer, mode| filer.remove_check(FILE, mode);
    assert_eq!(check(&bench.filer, RemoveMode::CheckOpen), Ok(RemoveDecision::Now));
    assert!(!bench.filer.file_unlinked(FILE));
    let denying = OpenArguments { disposition: DeleteDisposition::Deny, ..reading("o") };
    let first = bench.open(a, &denying).unwrap().state_id;
    let second = bench.open(b, &reading("o")).unwrap().state_id;
    assert_eq!(check(&bench.filer, RemoveMode::Unchecked), Err(Fault::NameHeldOpen));
    bench.close(a, first, FILE).unwrap();
    let later = Ok(RemoveDecision::KeepDataUntilLastClose);
    assert_eq!(check(&bench.filer, RemoveMode::Unchecked), later);
    assert_eq!(check(&bench.filer, RemoveMode::CheckOpen), Err(Fault::NameHeldOpen));
    assert!(bench.filer.file_unlinked(FILE));
    let third = bench.open(a, &reading("o")).unwrap().state_id;
    assert!(!bench.close(b, second, FILE).unwrap().delete);
    let closed = bench.close(a, third, FILE).unwrap();
    assert!(closed.last_of_file && closed.delete && !bench.filer.is_open(FILE));
}

#[test]
fn unlinked_files_exist_until_the_last_close_or_a_link() {
    let (mut bench, a, _) = bench();
    let unlinked =
        |file| OpenArguments { unlinked: true, ..open_for(file, "o", ShareAccess::Both) };
    bench.open(a, &unlinked(1)).unwrap();
    bench.open(a, &unlinked(2)).unwrap();
    bench.filer.file_linked(FileKey(2));
    let mut released = bench.lose(a);
    released.sort_by_key(|closed| closed.file);
    let deleted: Vec<_> = released.iter().map(|closed| (closed.file.0, closed.delete)).collect();
    assert_eq!(deleted, [(1, true), (2, false)]);
}

#[test]
fn opens_are_limited_per_client_and_in_all() {
    let config = FilerConfig { opens_max: 3, opens_per_client_max: 2, ..FilerConfig::default() };
    let mut bench = Bench::new(config);
    let (a, b) = (bench.session("a"), bench.session("b"));
    let long = "x".repeat(limits::OWNER_BYTES_MAX + 2);
    assert_eq!(bench.open(a, &reading(&long)), Err(Fault::Invalid));
    bench.open(a, &reading("1")).unwrap();
    bench.open(a, &reading("2")).unwrap();
    assert_eq!(bench.open(a, &reading("3")), Err(Fault::Limit));
    assert!(bench.open(a, &reading("2")).unwrap().reopened);
    bench.open(b, &reading("1")).unwrap();
    assert_eq!(bench.open(b, &reading("2")), Err(Fault::Limit));
    assert_eq!(bench.filer.counters().opens_resource, 2);
}

#[test]
fn opens_belong_to_the_client_and_end_with_its_last_session() {
    let (mut bench, a, b) = bench();
    let sibling = bench.enter("a").unwrap();
    assert_eq!(sibling, a);
    let id = bench.open(a, &reading("o")).unwrap().state_id;
    assert_eq!(bench.check_io(sibling, id, FILE, IoKind::Read), Ok(()));
    assert_eq!(bench.lose(a), []);
    let closed = Closed { file: FILE, state_id: id, last_of_file: true, delete: false };
    assert_eq!(bench.lose(sibling), [closed]);
    assert_eq!(bench.lose(sibling), []);
    bench.lose(b);
    bench.assert_empty();
}

#[test]
fn a_lease_can_outlive_the_connection() {
    let config = FilerConfig { lease: Duration::from_secs(30), ..FilerConfig::default() };
    let mut bench = Bench::new(config);
    bench.is_kept = true;
    let first = bench.session("a");
    let client_id = bench.id(first);
    let id = bench.open(first, &reading("o")).unwrap().state_id;
    assert_eq!(bench.lose(first), []);
    // Reconnected before the timeout: same client id, same open.
    let second = bench.session("a");
    assert_eq!(bench.id(second), client_id);
    assert_eq!(bench.filer.on_tick(LATER), []);
    assert_eq!(bench.check_io(second, id, FILE, IoKind::Read), Ok(()));
    // Reconnected too late: the state is gone, and the new id shows it.
    bench.lose(second);
    assert_eq!(bench.filer.on_tick(Moment(29_999_999_999)), []);
    let closed = Closed { file: FILE, state_id: id, last_of_file: true, delete: false };
    assert_eq!(bench.filer.on_tick(Moment(30_000_000_000)), [closed]);
    let third = bench.session("a");
    assert_ne!(bench.id(third), client_id);
    assert_eq!(bench.check_io(second, id, FILE, IoKind::Read), Err(Fault::NoClient));
    // An orderly disconnect keeps nothing.
    bench.open(third, &reading("o")).unwrap();
    assert_eq!(bench.filer.client_leave(third, LeaveReason::Orderly, Moment(0)).len(), 1);
    bench.assert_empty();
}

#[test]
fn a_key_is_dangling_after_its_incarnation() {
    let mut bench = Bench::new(FilerConfig::default());
    let old = bench.session("a");
    let id = bench.open(old, &reading("o")).unwrap().state_id;
    // The next incarnation has no effect before it sends a request.
    let new = bench.enter_again("a", 2).unwrap();
    assert_eq!(bench.check_io(old, id, FILE, IoKind::Read), Ok(()));
    let begun = bench.filer.client_begin(new, Moment(0));
    assert_eq!(begun, BeginOutcome { before: Some(old), is_refused: false });
    let closed = Closed { file: FILE, state_id: id, last_of_file: true, delete: false };
    assert_eq!(bench.filer.take_released(), [closed]);
    // The next client reuses the slot, and the old key does not lead to it.
    let next = bench.session("b");
    assert_eq!(bench.open(old, &reading("o")), Err(Fault::NoClient));
    assert_eq!(bench.check_io(old, id, FILE, IoKind::Read), Err(Fault::NoClient));
    let id = bench.open(next, &reading("o")).unwrap().state_id;
    assert_eq!(bench.close(old, id, FILE), Err(Fault::NoClient));
    assert_eq!(bench.lose(old), []);
    assert_eq!(bench.filer.counters().client_restarts, 1);
}

#[test]
fn a_late_request_of_a_dead_incarnation_takes_nothing_from_the_next() {
    let mut bench = Bench::new(FilerConfig::default());
    let dead = bench.enter_again("a", 1).unwrap();
    let other = bench.enter_again("b", 1).unwrap();
    let living = bench.enter_again("a", 2).unwrap();
    assert_eq!(bench.filer.client_begin(living, Moment(0)), BeginOutcome::default());
    let id = bench.open(living, &reading("o")).unwrap().state_id;
    // A request that the dead incarnation sent before it died.
    let refused = BeginOutcome { before: None, is_refused: true };
    assert_eq!(bench.filer.client_begin(dead, Moment(0)), refused);
    assert_eq!(bench.check_io(living, id, FILE, IoKind::Read), Ok(()));
    assert_eq!(bench.open(dead, &reading("o")), Err(Fault::NoClient));
    // Other clients continue, and so does the next incarnation.
    assert_eq!(bench.filer.client_begin(other, Moment(0)), BeginOutcome::default());
    let next = bench.enter_again("a", 3).unwrap();
    let begun = bench.filer.client_begin(next, Moment(0));
    assert_eq!(begun, BeginOutcome { before: Some(living), is_refused: false });
}

#[test]
fn a_name_belongs_to_one_principal_and_lost_state_is_reported() {
    let mut bench = Bench::new(FilerConfig::default());
    bench.session("a");
    let other = Principal::User("eve".into());
    let entering = EnteringClient {
        id: ClientId(7),
        name: b"a",
        verifier: Verifier([2; 8]),
        principal: &other,
        holder: Holder::Elsewhere,
        expects_record: false,
        ends_reclaims_itself: false,
    };
    assert_eq!(bench.filer.client_enter(&entering), Err(EnterError::NameTaken));
    let lost = EnteringClient { name: b"b", expects_record: true, ..entering };
    assert_eq!(bench.filer.client_enter(&lost), Err(EnterError::StateLost));
    let told =
        EnteringClient { principal: &Principal::Anonymous, verifier: Verifier([1; 8]), ..entering };
    assert_eq!(bench.filer.client_enter(&told), Err(EnterError::StateLost));
}
