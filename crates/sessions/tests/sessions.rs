//! Channels, CONNECT, authentication, client identities, admission.

use std::time::Duration;

use crate::common::*;
use dafs_filer::*;
use dafs_sessions::*;
use dafs_types::*;

fn bench() -> Bench {
    Bench::new(SessionConfig::default())
}

fn refused(status: Status) -> Result<(), Refusal> {
    Err(Refusal::Answer(status))
}

#[test]
fn a_session_is_made_in_two_steps() {
    let mut bench = bench();
    let channel = bench.channel();
    assert_eq!(bench.exchange(channel, RequestClass::Ordinary), refused(Status::NotAuthenticated));
    assert_eq!(bench.exchange(channel, RequestClass::Authenticate), refused(Status::IllegalState));
    assert_eq!(bench.exchange(channel, RequestClass::Bind), Ok(()));
    let results = bench.connect(channel, "a", 1);
    assert_eq!(results.granted.max_requests, 8);
    assert_eq!(bench.sessions.ids(channel), Some((results.session_id, results.client_id)));
    let fence = bench.sessions.party_of(channel).fence.unwrap();
    assert_eq!(bench.filer.identity(fence).map(FenceId::as_str), Some("fence"));
    assert_eq!(bench.exchange(channel, RequestClass::SecurityInfo), Ok(()));
    assert_eq!(bench.exchange(channel, RequestClass::Ordinary), refused(Status::NotAuthenticated));
    assert_eq!(bench.exchange(channel, RequestClass::Connect), refused(Status::IllegalState));
    assert_eq!(bench.sessions.credentials(channel), None);
    assert_eq!(bench.authenticate(channel), Ok(Authenticated::default()));
    assert_eq!(bench.sessions.credentials(channel), Some(&Credentials::nobody()));
    assert_eq!(bench.exchange(channel, RequestClass::Ordinary), Ok(()));
    assert_eq!(bench.exchange(channel, RequestClass::Authenticate), refused(Status::IllegalState));
    assert_eq!(bench.exchange(channel, RequestClass::Bind), refused(Status::IllegalState));
    assert_eq!(bench.exchange(channel, RequestClass::Credential), refused(Status::NotAuthorized));
    assert_eq!(bench.sessions.counters().requests_refused, 7);
    bench.drop_channel(channel);
    bench.assert_empty();
}

#[test]
fn connect_checks_version_names_and_state() {
    let mut bench = bench();
    let channel = bench.channel();
    let mut connect = |arguments: ConnectArguments<'_>| bench.connect_with(channel, &arguments);
    let refusal = |status, protocol_version| Err(ConnectRefusal { status, protocol_version });
    let good = arguments("a", 1);
    let newer = ConnectArguments { protocol_version: 9, ..good };
    assert_eq!(connect(newer), refusal(Status::IllegalProt, 1));
    let older = ConnectArguments { protocol_version: 0, ..good };
    assert_eq!(connect(older), refusal(Status::IllegalProt, 0));
    let nameless = ConnectArguments { client_id_string: b"", ..good };
    assert_eq!(connect(nameless), refusal(Status::Inval, 1));
    let name = vec![b'x'; limits::OWNER_BYTES_MAX + 1];
    let long = ConnectArguments { client_id_string: &name, ..good };
    assert_eq!(connect(long), refusal(Status::Inval, 1));
    let fence = "f".repeat(limits::FENCE_ID_BYTES_MAX + 1);
    let long = ConnectArguments { fence_id: &fence, ..good };
    assert_eq!(connect(long), refusal(Status::Inval, 1));
    assert!(connect(good).is_ok());
    assert_eq!(connect(good), refusal(Status::IllegalState, 1));
    assert_eq!(bench.sessions.counters().connects_refused, 6);
}

#[test]
fn ids_are_drawn_and_never_zero_or_repeated() {
    struct Stuck(u64);
    impl Entropy for Stuck {
        fn next_u64(&mut self) -> u64 {
            self.0
        }
    }
    let connect = |bench: &mut Bench, channel, name, number| {
        let Bench { sessions, filer, .. } = bench;
        sessions.connect(filer, channel, &arguments(name, 1), &mut Stuck(number))
    };
    let mut bench = bench();
    let channel = bench.channel();
    let zero = connect(&mut bench, channel, "a", 0);
    assert_eq!(zero.map_err(|r| r.status), Err(Status::Resource));
    assert!(connect(&mut bench, channel, "a", 5).is_ok());
    let channel = bench.channel();
    let again = connect(&mut bench, channel, "b", 5);
    assert_eq!(again.map_err(|r| r.status), Err(Status::Resource));
}

#[test]
fn connect_and_auth_in_one_step_can_be_undone() {
    let mut bench = bench();
    let channel = bench.channel();
    bench.admit(channel, &head(RequestClass::Connect, 0), Moment(0)).unwrap();
    bench.connect_with(channel, &arguments("a", 1)).unwrap();
    assert_eq!(bench.sessions.counters().credits, 8);
    assert_eq!(
        bench.sessions.begin_auth(channel, AuthRequest::Gss { is_first: true }),
        AuthDecision::Reject(Status::NotSupp)
    );
    bench.connect_failed(channel);
    let grant = bench.sessions.finish(channel, StreamId(0));
    assert_eq!(grant, Grant { target_credits: 1, receives_to_post: 1 });
    assert_eq!((bench.sessions.ids(channel), bench.sessions.counters().credits), (None, 1));
    bench.connect(channel, "a", 1);
}

#[test]
fn identity_comes_from_the_kernel_the_configuration_or_a_password() {
    let mut bench = bench();
    let who = Credentials::new(1000, 100, [7]).unwrap();
    let local = bench.channel_from(PeerIdentity::Local(who.clone()));
    bench.connect(local, "local", 1);
    assert_eq!(
        bench.sessions.auth_types(local),
        [AuthType::None, AuthType::Default, AuthType::Text]
    );
    bench.authenticate(local).unwrap();
    assert_eq!(bench.sessions.credentials(local), Some(&who));

    let authentication = AuthPolicy { anonymous: None, ..AuthPolicy::default() };
    let config = SessionConfig { authentication, ..SessionConfig::default() };
    let mut bench = Bench::new(config);
    let remote = bench.channel();
    bench.connect(remote, "remote", 1);
    assert_eq!(bench.sessions.auth_types(remote), [AuthType::Text]);
    assert_eq!(bench.authenticate(remote), Err(Status::NotSupp));
    let request = AuthRequest::Text { user: "ada" };
    assert_eq!(bench.sessions.begin_auth(remote, request), AuthDecision::VerifyPassword);
    // While the driver verifies a proof, no other request may authenticate.
    assert_eq!(bench.exchange(remote, RequestClass::Authenticate), refused(Status::IllegalState));
    let refusal = bench.finish_auth(remote, Err(Status::NotAuthorized), Moment(0));
    assert_eq!(refusal, Err(Status::NotAuthorized));
    assert_eq!(bench.sessions.begin_auth(remote, request), AuthDecision::VerifyPassword);
    bench.finish_auth(remote, Ok(who.clone().into()), Moment(0)).unwrap();
    assert_eq!(bench.sessions.credentials(remote), Some(&who));
}

#[test]
fn guessing_passwords_ends_the_channel() {
    let mut bench = bench();
    let channel = bench.channel();
    bench.connect(channel, "a", 1);
    for _ in 0..3 {
        assert_eq!(
            bench.sessions.begin_auth(channel, AuthRequest::Text { user: "ada" }),
            AuthDecision::VerifyPassword
        );
        let _ = bench.finish_auth(channel, Err(Status::NotAuthorized), Moment(0));
    }
    let closing = Err(Refusal::Break(BreakReason::ChannelClosing));
    assert_eq!(bench.exchange(channel, RequestClass::Authenticate), closing);
    let close = vec![(channel, CloseReason::AuthenticationFailed)];
    assert_eq!(bench.on_tick(Moment(1)), TickActions { close, released: vec![] });
    assert_eq!(bench.on_tick(Moment(1)), TickActions::default());
}

#[test]
fn a_proof_that_was_delayed_does_not_count_as_a_failed_attempt() {
    let mut bench = bench();
    let channel = bench.channel();
    bench.connect(channel, "a", 1);
    let request = AuthRequest::Text { user: "ada" };
    for _ in 0..10 {
        assert_eq!(bench.sessions.begin_auth(channel, request), AuthDecision::VerifyPassword);
        let refused = bench.finish_auth(channel, Err(Status::Delay), Moment(0));
        assert_eq!(refused, Err(Status::Delay));
    }
    assert_eq!(bench.sessions.begin_auth(channel, request), AuthDecision::VerifyPassword);
    let who = Credentials::plain(7, 7).unwrap();
    bench.finish_auth(channel, Ok(who.clone().into()), Moment(0)).unwrap();
    assert_eq!(bench.sessions.credentials(channel), Some(&who));
}

fn host(number: u8) -> Holder {
    Holder::at(std::net::Ipv4Addr::new(192, 0, 2, number).into())
}

/// Opens a channel of a holder, as the driver does, and closes the displaced channels.
fn open_by(bench: &mut Bench, holder: Holder) -> Result<ChannelId, ChannelRefusal> {
    let kind = description(ChannelKind::Operation);
    let opened = bench.sessions.channel_opened_by(holder, PeerIdentity::Remote, kind, Moment(0));
    for displaced in bench.sessions.take_displaced() {
        bench.drop_channel(displaced);
    }
    opened
}

#[test]
fn the_holder_with_most_unauthenticated_channels_is_displaced() {
    let config =
        SessionConfig { channels_max: 256, unauthenticated_max: 32, ..SessionConfig::default() };
    let mut bench = Bench::new(config);
    let opened: Vec<_> = (0..100).map(|_| open_by(&mut bench, host(1)).unwrap()).collect();
    assert_eq!(bench.sessions.counters().unauthenticated, 32);
    let closing = Err(Refusal::Break(BreakReason::ChannelClosing));
    assert_eq!(bench.exchange(opened[0], RequestClass::Connect), closing, "the oldest went first");
    let another = open_by(&mut bench, host(2)).unwrap();
    let root = open_by(&mut bench, Holder::User(0)).unwrap();
    let user = open_by(&mut bench, Holder::User(7)).unwrap();
    // Each peer has its own address: the channels of this host stay.
    for number in 10..=255 {
        open_by(&mut bench, host(number)).unwrap();
    }
    for (channel, name) in [(root, "root"), (user, "user")] {
        bench.connect(channel, name, 1);
        bench.authenticate(channel).unwrap();
    }
    assert_eq!(
        bench.exchange(another, RequestClass::Connect),
        closing,
        "the channel took too long"
    );
    // A user of this host cannot keep other hosts out, either.
    for _ in 0..100 {
        open_by(&mut bench, Holder::User(7)).unwrap();
    }
    let late = open_by(&mut bench, host(1)).unwrap();
    bench.connect(late, "late", 1);
    bench.authenticate(late).unwrap();
}

#[test]
fn one_address_cannot_take_all_channels_and_the_last_are_for_this_host() {
    let config =
        SessionConfig { channels_max: 256, unauthenticated_max: 256, ..SessionConfig::default() };
    let mut bench = Bench::new(config);
    let mut names = (0..).map(|number| format!("client {number}"));
    let mut take_all = |bench: &mut Bench, holder| {
        let mut count = 0;
        while let Ok(channel) = open_by(bench, holder) {
            bench.connect(channel, &names.next().unwrap(), 1);
            bench.authenticate(channel).unwrap();
            count += 1;
        }
        count
    };
    let first = take_all(&mut bench, host(1));
    assert!((100..=192).contains(&first), "{first}");
    for number in 2..4 {
        assert!(take_all(&mut bench, host(number)) > 0, "{number}");
    }
    for number in 4..100 {
        take_all(&mut bench, host(number));
    }
    assert!(take_all(&mut bench, Holder::User(7)) > 0, "a user of this host");
    assert_eq!(open_by(&mut bench, Holder::User(7)), Err(ChannelRefusal::Share));
    assert!(take_all(&mut bench, Holder::User(0)) > 0, "its superuser");
    assert_eq!(open_by(&mut bench, Holder::User(0)), Err(ChannelRefusal::Channels));
}

#[test]
fn clients_of_one_holder_cannot_take_all_opens() {
    let filer = FilerConfig { opens_max: 64, opens_per_client_max: 16, ..FilerConfig::default() };
    let mut bench = Bench::new(Config { filer, ..Config::default() });
    let mut files = 0..;
    let mut take_all = |bench: &mut Bench, holder: Holder, name: &str| {
        let channel = open_by(bench, holder).unwrap();
        bench.connect(channel, name, 1);
        bench.authenticate(channel).unwrap();
        assert_eq!(bench.exchange(channel, RequestClass::Ordinary), Ok(()));
        let mut count = 0;
        loop {
            let file = files.next().unwrap();
            let open = open_for(file, "owner", ShareAccess::Read);
            match bench.open(channel, &open) {
                Ok(_) => count += 1,
                Err(status) => {
                    assert_eq!(status, dafs_ops::Fault::Limit);
                    return count;
                }
            }
        }
    };
    let sum: u32 = (0..8).map(|n| take_all(&mut bench, host(1), &format!("greedy {n}"))).sum();
    assert!((40..=48).contains(&sum), "{sum}");
    assert!(take_all(&mut bench, host(2), "modest") > 0);
}

#[test]
fn channels_are_limited_and_must_authenticate_in_time() {
    let config = SessionConfig {
        channels_max: 3,
        unauthenticated_max: 2,
        rdma_read: false,
        ..SessionConfig::default()
    };
    let mut bench = Bench::new(config);
    let open = |sessions: &mut Sessions, kind| {
        sessions.channel_opened(PeerIdentity::Remote, description(kind), Moment(0))
    };
    let refused = open(&mut bench.sessions, ChannelKind::RdmaRead);
    assert_eq!(refused, Err(ChannelRefusal::Kind));
    let first = open(&mut bench.sessions, ChannelKind::Operation).unwrap();
    let second = open(&mut bench.sessions, ChannelKind::Operation).unwrap();
    let refused = open(&mut bench.sessions, ChannelKind::Operation);
    assert_eq!(refused, Err(ChannelRefusal::Unauthenticated));
    bench.connect(first, "a", 1);
    bench.authenticate(first).unwrap();
    bench.connect(second, "b", 1);
    bench.authenticate(second).unwrap();
    let third = open(&mut bench.sessions, ChannelKind::Operation).unwrap();
    let refused = open(&mut bench.sessions, ChannelKind::Operation);
    assert_eq!(refused, Err(ChannelRefusal::Channels));
    assert_eq!(bench.on_tick(Moment(9_999_999_999)).close, []);
    let late = (third, CloseReason::NotAuthenticatedInTime);
    assert_eq!(bench.on_tick(Moment(10_000_000_000)).close, [late]);
    bench.drop_channel(third);
    // The slot is reused with another id.
    let fourth = bench.channel();
    assert_eq!(fourth.index(), third.index());
    let closing = Err(Refusal::Break(BreakReason::ChannelClosing));
    assert_eq!(bench.exchange(third, RequestClass::Connect), closing);
    assert_eq!(bench.sessions.counters().channels_refused, 3);
}

#[test]
fn silence_closes_a_session_only_if_configured() {
    let config =
        SessionConfig { silence_max: Some(Duration::from_secs(60)), ..SessionConfig::default() };
    let mut bench = Bench::new(config);
    let idle = bench.session("idle");
    let busy = bench.session("busy");
    bench.admit(busy, &head(RequestClass::Ordinary, 0), Moment(0)).unwrap();
    assert_eq!(bench.on_tick(LATER).close, [(idle, CloseReason::Silent)]);
    let mut bench = Bench::new(SessionConfig::default());
    bench.session("idle");
    assert_eq!(bench.on_tick(LATER), TickActions::default());
}

#[test]
fn an_incarnation_has_one_client_id() {
    let mut bench = bench();
    let first = bench.channel();
    let id = bench.connect(first, "a", 1).client_id;
    // Case A twice at once: neither session has authenticated.
    let second = bench.channel();
    assert_eq!(bench.connect(second, "a", 1).client_id, id);
    bench.authenticate(first).unwrap();
    bench.authenticate(second).unwrap();
    // Case B: the record exists.
    let third = bench.channel();
    let results = bench.connect(third, "a", 1);
    assert_eq!(results.client_id, id);
    assert_ne!(bench.sessions.ids(first).map(|ids| ids.0), Some(results.session_id));
    bench.authenticate(third).unwrap();
    assert_eq!(bench.filer.counters().clients, 1);
    // Once forgotten, the client gets a new id and so learns that its state is gone.
    for channel in [first, second, third] {
        bench.drop_channel(channel);
    }
    let fourth = bench.channel();
    assert_ne!(bench.connect(fourth, "a", 1).client_id, id);
}

#[test]
fn a_client_id_whose_state_was_lost_before_authentication_is_stale() {
    let mut bench = bench();
    let first = bench.channel();
    bench.connect(first, "a", 1);
    let pending_before = bench.channel();
    bench.connect(pending_before, "a", 1);
    bench.authenticate(first).unwrap();
    let pending_after = bench.channel();
    bench.connect(pending_after, "a", 1);
    bench.drop_channel(first);
    assert_eq!(bench.authenticate(pending_before), Err(Status::StaleClientId));
    assert_eq!(bench.authenticate(pending_after), Err(Status::StaleClientId));
}

#[test]
fn a_client_name_belongs_to_one_principal() {
    let mut bench = bench();
    let owner = bench.session("a");
    let opened = bench.open(owner, &open_for(1, "o", ShareAccess::Read)).unwrap();
    for life in [1, 2] {
        let thief = bench.channel();
        bench.connect(thief, "a", life);
        let request = AuthRequest::Text { user: "mallory" };
        assert_eq!(bench.sessions.begin_auth(thief, request), AuthDecision::VerifyPassword);
        let outcome = bench.finish_auth(thief, Ok(Credentials::nobody().into()), Moment(0));
        assert_eq!(outcome, Err(Status::ClidInUse));
    }
    assert_eq!(bench.check_io(owner, opened.state_id, FileKey(1), IoKind::Read), Ok(()));
}

#[test]
fn a_restarted_client_loses_its_state_with_its_first_request() {
    let mut bench = bench();
    let old = bench.session("a");
    let (_, old_id) = bench.sessions.ids(old).unwrap();
    let opened = bench.open(old, &open_for(1, "o", ShareAccess::Read)).unwrap();
    let new = bench.channel();
    assert_ne!(bench.connect(new, "a", 2).client_id, old_id);
    assert_eq!(bench.check_io(old, opened.state_id, FileKey(1), IoKind::Read), Ok(()));
    let released =
        Closed { file: FileKey(1), state_id: opened.state_id, last_of_file: true, delete: false };
    assert_eq!(bench.authenticate(new), Ok(Authenticated::default()));
    assert_eq!(bench.check_io(old, opened.state_id, FileKey(1), IoKind::Read), Ok(()));
    assert_eq!(bench.filer.take_released(), []);
    assert_eq!(bench.sessions.take_condemned(), []);
    let first = bench.admit(new, &head(RequestClass::Ordinary, 0), Moment(0)).unwrap();
    assert!(first.begins_incarnation);
    assert_eq!(bench.filer.take_released(), [released]);
    assert_eq!(bench.sessions.take_condemned(), [old]);
    let closing = Err(Refusal::Break(BreakReason::ChannelClosing));
    assert_eq!(bench.exchange(old, RequestClass::Ordinary), closing);
    assert_eq!(bench.drop_channel(old), []);
    assert_eq!(bench.filer.counters().client_restarts, 1);
    bench.drop_channel(new);
    bench.assert_empty();
}

#[test]
fn a_late_connect_does_not_end_the_present_incarnation() {
    let mut bench = bench();
    let lives = bench.session("a");
    let opened = bench.open(lives, &open_for(1, "o", ShareAccess::Read)).unwrap();
    let works = |bench: &mut Bench| {
        bench.check_io(lives, opened.state_id, FileKey(1), IoKind::Read) == Ok(())
    };
    // The connections of a dead incarnation can send no requests, however many there are.
    for _ in 0..2 {
        let late = bench.channel();
        bench.connect(late, "a", 9);
        bench.authenticate(late).unwrap();
        assert!(works(&mut bench));
        let next = bench.channel();
        bench.connect(next, "a", 9);
        bench.authenticate(next).unwrap();
        for dead in [late, next] {
            bench.drop_channel(dead);
        }
        assert!(works(&mut bench));
        assert_eq!(bench.filer.counters().clients, 1);
    }
    // A session that has existed for so long was not made by a dead client.
    let late = bench.channel();
    bench.connect(late, "a", 9);
    bench.authenticate(late).unwrap();
    bench.exchange(lives, RequestClass::Ordinary).unwrap();
    assert_eq!(bench.on_tick(LATER), TickActions::default());
    assert_eq!(bench.filer.take_released().len(), 1);
    assert_eq!(bench.sessions.take_condemned(), [lives]);
    assert_eq!(bench.exchange(late, RequestClass::Ordinary), Ok(()));
    bench.drop_channel(lives);
    bench.drop_channel(late);
    bench.assert_empty();
}

#[test]
fn of_two_new_incarnations_the_one_that_sends_a_request_wins() {
    let mut bench = bench();
    let old = bench.session("a");
    let [second, third] = [2, 3].map(|life| {
        let channel = bench.channel();
        bench.connect(channel, "a", life);
        bench.authenticate(channel).unwrap();
        channel
    });
    assert_eq!(bench.exchange(third, RequestClass::Ordinary), Ok(()));
    assert_eq!(bench.sessions.take_condemned(), [old]);
    bench.drop_channel(old);
    bench.drop_channel(second);
    // Another session of the living incarnation belongs to the same client.
    let beside = bench.channel();
    let client = bench.connect(beside, "a", 3).client_id;
    assert_eq!(bench.sessions.ids(third).map(|ids| ids.1), Some(client));
    bench.authenticate(beside).unwrap();
    assert_eq!(bench.exchange(beside, RequestClass::Ordinary), Ok(()));
    assert_eq!(bench.filer.take_released(), []);
    assert_eq!(bench.sessions.take_condemned(), []);
    assert_eq!(bench.filer.counters().clients, 1);
}

#[test]
fn chains_are_admitted_member_by_member() {
    const FORWARD: u16 = ChainFlags::FORWARD;
    const BACK: u16 = ChainFlags::BACK;
    let mut bench = bench();
    let channel = bench.session("a");
    let mut send = |class, flags, credentials| {
        let (chain_flags, cred_handle) = (ChainFlags(flags), CredHandle(credentials));
        let head = RequestHead { chain_flags, cred_handle, ..head(class, 0) };
        let outcome = bench.admit(channel, &head, Moment(0)).map(|admitted| admitted.place);
        bench.sessions.finish(channel, StreamId(0));
        outcome
    };
    let form = Err(Refusal::Answer(Status::ChainForm));
    let broken = Err(Refusal::Answer(Status::ChainBroken));
    let ordinary = RequestClass::Ordinary;
    assert_eq!(send(ordinary, FORWARD, 0), Ok(ChainPlace::First));
    assert_eq!(send(ordinary, FORWARD | BACK, 0), Ok(ChainPlace::Middle));
    assert_eq!(send(ordinary, BACK, 0), Ok(ChainPlace::Last));
    assert_eq!(send(ordinary, 0, 0), Ok(ChainPlace::Alone));
    assert_eq!(send(ordinary, BACK, 0), form);
    assert_eq!(send(ordinary, FORWARD, 0), Ok(ChainPlace::First));
    assert_eq!(send(ordinary, 0, 0), form);
    assert_eq!(send(RequestClass::Special, FORWARD, 0), form);
    assert_eq!(send(ordinary, BACK, 0), broken);
    // A member that is refused for its credentials breaks the chain like any failed member.
    assert_eq!(send(ordinary, FORWARD, 1), Err(Refusal::Answer(Status::NoCreds)));
    assert_eq!(send(ordinary, BACK, 0), broken);
    assert_eq!(send(ordinary, 0, 0), Ok(ChainPlace::Alone));
}

#[test]
fn a_damaged_request_does_not_end_its_channel() {
    let mut bench = bench();
    let channel = bench.session("a");
    let forward = ChainFlags(ChainFlags::FORWARD);
    let member = RequestHead { chain_flags: forward, ..head(RequestClass::Ordinary, 0) };
    bench.admit(channel, &member, Moment(0)).unwrap();
    bench.sessions.finish(channel, StreamId(0));
    bench.sessions.mark_chain_unknown(channel);
    assert_eq!(bench.exchange(channel, RequestClass::Ordinary), Ok(()));
}

#[test]
fn untrusted_clients_name_no_credentials() {
    let mut bench = bench();
    let channel = bench.session("a");
    let head = RequestHead { cred_handle: CredHandle(1), ..head(RequestClass::Ordinary, 0) };
    let outcome = bench.admit(channel, &head, Moment(0));
    assert_eq!(outcome, Err(Refusal::Answer(Status::NoCreds)));
}

#[test]
fn an_unauthenticated_channel_cannot_grow() {
    let mut bench = bench();
    let channel = bench.channel();
    for _ in 0..10 {
        let mut head = head(RequestClass::Ordinary, 0);
        head.desired_credits = 200;
        assert!(bench.admit(channel, &head, Moment(0)).is_err());
        assert_eq!(bench.sessions.finish(channel, StreamId(0)).target_credits, 1);
    }
}

#[test]
fn classes_agree_with_the_table_of_procedures() {
    for &procedure in dafs_wire::Procedure::ALL {
        let is_special = procedure.chain_class() == dafs_wire::ChainClass::Special;
        let class = RequestClass::of(procedure.number());
        assert_eq!(class != RequestClass::Ordinary, is_special, "{}", procedure.name());
    }
    assert_eq!(PROTOCOL_VERSION, dafs_wire::PROTOCOL_VERSION);
    assert_eq!(RequestClass::of(u32::MAX), RequestClass::Ordinary);
}

#[test]
fn views_show_the_limits_and_weights_of_sessions() {
    let heavy = CreditWeight::new(7).unwrap();
    let weights = [(b"heavy".as_slice().into(), heavy)].into();
    let credits = CreditPolicy { weights, ..CreditPolicy::default() };
    let mut bench = Bench::new(SessionConfig { credits, ..SessionConfig::default() });
    let (first, second) = (bench.session("light"), bench.session("heavy"));
    let id = |channel| bench.sessions.ids(channel).unwrap().0;
    let views: Vec<_> = bench.sessions.credit_views().collect();
    let weights: Vec<_> = views.iter().map(|view| (view.session, view.weight.get())).collect();
    assert_eq!(weights, [(id(first), 1), (id(second), 7)]);
    assert!(views.iter().all(|view| view.credits == 8 && view.outstanding == 0));
}
