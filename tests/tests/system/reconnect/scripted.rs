//! Tests exactly how a client recovers, with a server that replies as a test wants.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dafs_client::{
    Client, ClientConfig, ClientError, OpenOptions, Recovery, RecoveryOptions, Session,
    SessionEvent, SessionOptions, Stability, Status,
};
use dafs_types::{ChangeInfo, StateId};
use dafs_wire::messages::{CreateResult, DirectoryChanged, Empty, OpenTarget, SetAttributesResult};
use dafs_wire::{AttributeBitmap, Procedure, Request, Response};

use super::script::{Act, Script, handle, opened};

/// Returns another client id after the first connection, as a restarted server would.
pub(crate) fn restarted(connection: u64) -> u64 {
    if connection == 1 { 1 } else { 2 }
}

pub(crate) fn options(give_up_after: Duration) -> SessionOptions {
    let recovery = Recovery::On(
        RecoveryOptions::default()
            .give_up_after(give_up_after)
            .pause_min(Duration::from_millis(1))
            .pause_max(Duration::from_millis(5)),
    );
    SessionOptions::default().recovery(recovery)
}

pub(crate) type Events = Rc<RefCell<Vec<SessionEvent>>>;

pub(crate) fn connect(script: &Script) -> (Client, Session, Events) {
    connect_with(script, &options(Duration::from_secs(60)))
}

fn connect_with(script: &Script, options: &SessionOptions) -> (Client, Session, Events) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(&script.address, options).unwrap();
    let events = Events::default();
    let told = events.clone();
    session.on_event(move |event| told.borrow_mut().push(event.clone()));
    (client, session, events)
}

/// Returns the events without their texts.
pub(crate) fn names(events: &Events) -> Vec<String> {
    let name = |event: &SessionEvent| match event {
        SessionEvent::Lost { .. } => "lost".to_owned(),
        SessionEvent::Reconnecting { attempt } => format!("attempt {attempt}"),
        SessionEvent::Recovered {
            server_restarted,
            reissued,
            fetched,
            reclaimed,
            lost,
            unknown,
            credentials_lost: 0,
        } => format!(
            "recovered{}: reissued {reissued} fetched {fetched} reclaimed {reclaimed} lost {lost} \
             unknown {unknown}",
            if *server_restarted { " from a restart" } else { "" }
        ),
        SessionEvent::GaveUp { .. } => "gave up".to_owned(),
        other => format!("{other:?}"),
    };
    events.borrow().iter().map(name).collect()
}

fn done() -> Act {
    Act::Say(Status::Ok, Response::Null(Empty))
}

pub(crate) fn closed() -> Act {
    Act::Say(Status::Ok, Response::Close(Empty))
}

pub(crate) fn discarded() -> Act {
    Act::Say(Status::Ok, Response::DiscardResponses(Empty))
}

pub(crate) fn made() -> Act {
    let result = CreateResult { file: handle(9), directory: ChangeInfo::default() };
    Act::Say(Status::Ok, Response::Create(result))
}

fn set() -> Act {
    let result = SetAttributesResult { set: AttributeBitmap(0) };
    Act::Say(Status::Ok, Response::SetAttrInline(result))
}

fn removed() -> Act {
    let result = DirectoryChanged { directory: ChangeInfo::default() };
    Act::Say(Status::Ok, Response::Remove(result))
}

#[test]
fn a_request_that_was_carried_out_is_fetched_and_not_made_again() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (1, _) => Act::Break,
            (_, Request::FetchResponse(_)) => made(),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, other) => panic!("{other:?}"),
        },
    );
    let (_client, session, events) = connect(&script);
    session.create_dir("/new", 0o755).unwrap();
    assert_eq!(
        names(&events),
        ["lost", "attempt 1", "recovered: reissued 0 fetched 1 reclaimed 0 lost 0 unknown 0"]
    );
    // It disconnects cleanly, because the server keeps its knowledge of lost sessions.
    drop(session);
    let asked = ["1: CREATE new", "2: FETCH CREATE of 1", "2: DISCARD 1", "2: DISCONNECT"];
    assert_eq!(script.asked(), asked);
}

#[test]
fn a_request_that_was_not_carried_out_is_made_again() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (1, _) => Act::Break,
            (_, Request::FetchResponse(_)) => Act::refuse(Status::NoXidMatch),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, Request::Create(_)) => made(),
            (_, _) => done(),
        },
    );
    let (_client, session, _) = connect(&script);
    session.create_dir("/new", 0o755).unwrap();
    let asked = ["1: CREATE new", "2: FETCH CREATE of 1", "2: DISCARD 1", "2: CREATE new"];
    assert_eq!(script.asked(), asked);
}

#[test]
fn memory_is_named_again_only_when_the_old_session_is_at_rest() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (_, Request::Open(_)) => opened(7, 11),
            (1, _) => Act::Break,
            (_, Request::CheckResponse(_)) => Act::refuse(Status::NoXidMatch),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, Request::ReadDirect(_)) => Act::refuse(Status::Io),
            (_, _) => closed(),
        },
    );
    let (_client, session, _) = connect(&script);
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    let error = file.read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(error.status(), Some(Status::Io));
    assert_eq!(
        script.asked(),
        ["1: OPEN file Read", "1: READ 11", "2: CHECK of 1", "2: DISCARD 1", "2: READ 11"]
    );
}

#[test]
fn opens_are_taken_back_from_a_server_that_has_restarted() {
    let mut patience = 2;
    let script = Script::start(restarted, move |connection, request| match (connection, request) {
        (1, Request::Open(_)) => opened(7, 11),
        (1, _) => Act::Break,
        (_, Request::CheckResponse(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::Open(open)) if matches!(open.target, OpenTarget::Previous { .. }) => {
            patience -= 1;
            if patience >= 0 { Act::refuse(Status::Grace) } else { opened(7, 22) }
        }
        (_, Request::LockT(_)) => Act::refuse(Status::Grace),
        (_, Request::DiscardResponses(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::SetAttrInline(_)) => set(),
        (_, Request::Close(_)) => closed(),
        (_, _) => done(),
    });
    let (_client, session, events) = connect(&script);
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    let former = file.state();
    session.ping().unwrap();
    file.set_len(5).unwrap();
    // Its old state id is still translated.
    let raw = dafs_wire::messages::Close { file: handle(7), state: former };
    let call = session.start(&Request::Close(raw)).unwrap();
    dafs_client::block_on(&session.client(), call).unwrap();
    assert_eq!((former, file.state()), (StateId(11), StateId(22)));
    drop((file, session));
    assert_eq!(
        script.asked(),
        [
            "1: OPEN file Both",
            "1: NULL",
            "2: CHECK of 1",
            "2: OPEN again 7 Both",
            "2: OPEN again 7 Both",
            "2: OPEN again 7 Both",
            "2: LOCKT",
            "2: DISCARD 1",
            "2: NULL",
            "2: SETATTR 22",
            "2: CLOSE 22",
            // The file does not know that state id.
            "2: CLOSE 22",
            "2: DISCONNECT",
        ]
    );
    assert_eq!(
        names(&events).last().unwrap(),
        "recovered from a restart: reissued 1 fetched 0 reclaimed 1 lost 0 unknown 0"
    );
}

#[test]
fn an_open_that_a_former_life_of_the_server_made_is_taken_back_before_it_is_told() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, _) => Act::Break,
        // A state id of the previous incarnation.
        (_, Request::FetchResponse(_)) => opened(7, 0),
        (_, Request::Open(open)) if matches!(open.target, OpenTarget::Previous { .. }) => {
            opened(7, 33)
        }
        (_, Request::LockT(_)) => Act::refuse(Status::Grace),
        (_, Request::DiscardResponses(_)) => discarded(),
        (_, Request::Close(_)) => closed(),
        (_, _) => Act::Break,
    });
    let (_client, session, events) = connect(&script);
    let new = OpenOptions::write().create_new(true);
    let file = session.open("/new", &new).unwrap();
    assert_eq!(file.state(), StateId(33));
    file.close().unwrap();
    assert_eq!(
        script.asked(),
        [
            "1: OPEN new Both",
            "2: FETCH OPEN of 1",
            "2: OPEN again 7 Both",
            "2: LOCKT",
            "2: DISCARD 1",
            "2: CLOSE 33",
        ]
    );
    assert_eq!(
        names(&events).last().unwrap(),
        "recovered from a restart: reissued 0 fetched 1 reclaimed 0 lost 0 unknown 0"
    );
}

#[test]
fn a_close_that_was_under_way_is_over_when_the_server_has_restarted() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, Request::Open(_)) => opened(7, 11),
        (1, _) => Act::Break,
        (_, Request::CheckResponse(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::DiscardResponses(_)) => discarded(),
        (_, _) => done(),
    });
    let (_client, session, _) = connect(&script);
    session.open("/file", &OpenOptions::read()).unwrap().close().unwrap();
    session.ping().unwrap();
    assert_eq!(
        script.asked(),
        ["1: OPEN file Read", "1: CLOSE 11", "2: CHECK of 1", "2: DISCARD 1", "2: NULL"]
    );
}

#[test]
fn without_reclaim_a_file_is_opened_by_its_name_if_it_kept_nobody_out() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, Request::Open(open)) => match open.deny {
            dafs_client::ShareDeny::None => opened(7, 11),
            _ => opened(8, 12),
        },
        (1, _) => Act::Break,
        (_, Request::CheckResponse(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::Open(open)) if matches!(open.target, OpenTarget::Null { .. }) => opened(7, 22),
        (_, Request::Open(_)) => Act::refuse(Status::NotSupp),
        (_, Request::LockT(_)) => Act::refuse(Status::Grace),
        (_, Request::DiscardResponses(_)) => discarded(),
        (_, Request::Close(close)) if close.state == StateId(12) => {
            Act::refuse(Status::StaleStateId)
        }
        (_, Request::Close(_)) => closed(),
        (_, _) => done(),
    });
    let (_client, session, events) = connect(&script);
    let shared = session.open("/shared", &OpenOptions::write()).unwrap();
    let deny = OpenOptions::read().deny(dafs_client::ShareDeny::Write);
    let held = session.open("/held", &deny).unwrap();
    session.ping().unwrap();
    shared.close().unwrap();
    let error = held.close().unwrap_err();
    assert_eq!(error.status(), Some(Status::Stale));
    assert!(error.to_string().contains("lost when the server restarted"), "{error}");
    assert_eq!(
        script.asked()[4..],
        [
            "2: OPEN again 7 Both",
            "2: OPEN again 8 Read",
            "2: OPEN shared Both",
            "2: LOCKT",
            "2: DISCARD 1",
            "2: NULL",
            "2: CLOSE 22",
            "2: CLOSE 12",
        ]
    );
    assert_eq!(
        names(&events).last().unwrap(),
        "recovered from a restart: reissued 1 fetched 0 reclaimed 1 lost 1 unknown 0"
    );
}

#[test]
fn what_an_attempt_that_breaks_off_has_found_out_is_not_asked_again() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (1, Request::Null(_)) => Act::Break,
            (1, _) => Act::Wait,
            (_, Request::FetchResponse(fetch)) if fetch.procedure == Procedure::Remove.number() => {
                Act::refuse(Status::NoXidMatch)
            }
            (2, _) => Act::Break,
            (_, Request::FetchResponse(_)) => made(),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, Request::Remove(_)) => removed(),
            (_, _) => done(),
        },
    );
    let (client, session, events) = connect(&script);
    let root = session.root();
    let removing = session.remove_in_async(root, "old", "/old");
    let making = session.symlink_in_async(root, "new", "/new", b"text");
    session.ping().unwrap();
    dafs_client::block_on(&client, removing).unwrap();
    dafs_client::block_on(&client, making).unwrap();
    assert_eq!(
        script.asked(),
        [
            "1: REMOVE old",
            "1: CREATE new",
            "1: NULL",
            "2: FETCH REMOVE of 1",
            "2: FETCH CREATE of 1",
            "3: FETCH CREATE of 1",
            "3: DISCARD 2",
            "3: DISCARD 1",
            "3: REMOVE old",
            "3: NULL",
        ]
    );
    assert_eq!(
        names(&events),
        [
            "lost",
            "attempt 1",
            "attempt 2",
            "recovered: reissued 2 fetched 1 reclaimed 0 lost 0 unknown 0"
        ]
    );
}

#[test]
fn a_request_that_is_put_off_is_asked_again_until_it_is_not() {
    let mut answers = [Status::Grace, Status::Delay, Status::Grace].into_iter();
    let script = Script::start(
        |_| 1,
        move |_, request| match request {
            Request::Create(_) => answers.next().map_or_else(made, Act::refuse),
            _ => done(),
        },
    );
    let (_client, session, events) = connect(&script);
    session.create_dir("/new", 0o755).unwrap();
    assert_eq!(script.asked(), ["1: CREATE new"; 4]);
    assert!(events.borrow().is_empty());
    // Without recovery, the application gets the server's status.
    let script = Script::start(|_| 1, |_, _| Act::refuse(Status::Grace));
    let off = SessionOptions::default().recovery(Recovery::Off);
    let (_client, session, _) = connect_with(&script, &off);
    assert_eq!(session.create_dir("/new", 0o755).unwrap_err().status(), Some(Status::Grace));
    // After enough waiting, too.
    let (_client, session, _) = connect_with(&script, &options(Duration::from_millis(20)));
    assert_eq!(session.create_dir("/new", 0o755).unwrap_err().status(), Some(Status::Grace));
}

#[test]
fn a_question_that_is_put_off_is_told_from_a_request_that_was() {
    // The server delayed the request, and says so when it is queried for it.
    let mut fetches = 0;
    let script = Script::start(
        |_| 1,
        move |connection, request| match (connection, request) {
            (1, _) => Act::Break,
            (2, Request::FetchResponse(_)) => {
                fetches += 1;
                Act::refuse(Status::Delay)
            }
            (2, Request::CheckResponse(_)) if fetches == 1 => Act::refuse(Status::Delay),
            (3, Request::FetchResponse(_)) => Act::refuse(Status::Delay),
            (_, Request::CheckResponse(_)) => done(),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, _) => made(),
        },
    );
    let (_client, session, _) = connect(&script);
    session.create_dir("/new", 0o755).unwrap();
    assert_eq!(
        script.asked(),
        [
            "1: CREATE new",
            "2: FETCH CREATE of 1",
            // The query was delayed, not the request: start again.
            "2: CHECK of 1",
            "3: FETCH CREATE of 1",
            // The request was delayed, so it can be sent again.
            "3: CHECK of 1",
            "3: DISCARD 2",
            "3: DISCARD 1",
            "3: CREATE new",
        ]
    );
}

#[test]
fn a_request_that_kills_every_server_is_given_up() {
    let script = Script::start(
        |number| number,
        |_, request| match request {
            Request::Remove(_) => Act::Break,
            Request::FetchResponse(_) => Act::refuse(Status::NoXidMatch),
            Request::DiscardResponses(_) => discarded(),
            _ => done(),
        },
    );
    let (_client, session, events) = connect_with(&script, &options(Duration::from_millis(30)));
    let error = session.remove("/poison").unwrap_err();
    assert!(matches!(error, ClientError::SessionEnded { .. }), "{error}");
    assert_eq!(names(&events).last().unwrap(), "gave up");
    assert_eq!(session.ping().unwrap_err(), error, "at once, and by the same words");
}

#[test]
fn what_nobody_knows_any_more_is_said_to_be_unknown() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, _) => Act::Break,
        (_, Request::FetchResponse(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::DiscardResponses(_)) => Act::refuse(Status::UnknownSession),
        (_, _) => removed(),
    });
    let (_client, session, events) = connect(&script);
    let error = session.remove("/file").unwrap_err();
    assert!(matches!(&error, ClientError::OutcomeUnknown { what } if what.contains("\"file\"")));
    assert!(error.to_string().contains("check before repeating it"), "{error}");
    assert_eq!(
        names(&events).last().unwrap(),
        "recovered from a restart: reissued 0 fetched 0 reclaimed 0 lost 0 unknown 1"
    );
    session.remove("/file").unwrap();
}

#[test]
fn a_listener_may_use_the_client() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (1, _) => Act::Break,
            (_, Request::CheckResponse(_)) => Act::refuse(Status::NoXidMatch),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, _) => done(),
        },
    );
    let (client, session, _) = connect(&script);
    let count = Rc::new(RefCell::new(0));
    let (seen, listening) = (count.clone(), client.clone());
    session.on_event(move |_| {
        *seen.borrow_mut() += 1;
        listening.poll(dafs_client::Group::DEFAULT);
    });
    session.ping().unwrap();
    assert_eq!(*count.borrow(), 3);
}

#[test]
fn a_cancelled_transfer_is_not_asked_again() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (_, Request::Open(_)) => opened(7, 11),
            (1, Request::ReadDirect(_)) => Act::Break,
            (_, Request::CheckResponse(_)) => Act::refuse(Status::NoXidMatch),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, _) => closed(),
        },
    );
    let (client, session, _) = connect(&script);
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    let slice = client.allocate(4096).unwrap().slice(0, 4096).unwrap();
    let group = client.group();
    let reading = session.submit_read(&file, 0, slice.clone(), group, 0).unwrap();
    assert!(client.cancel(reading));
    client.wait(group, 1, None);
    assert_eq!(client.next(group).unwrap().result, Err(ClientError::Cancelled));
    let asked = script.asked();
    assert_eq!(asked.iter().filter(|asked| asked.contains("READ")).count(), 1, "{asked:?}");
    let refused = session.submit_write(&file, 0, slice, Stability::Unstable, group, 0);
    assert!(refused.is_ok());
}
