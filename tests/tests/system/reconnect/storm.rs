//! Runs the mixed load while connections break, networks are partitioned, and servers are stopped
//! and killed at random times.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dafs_client::{Client, ClientConfig, Recovery, RecoveryOptions, SessionEvent, SessionOptions};
use dafs_types::{Entropy, Random};

use super::child::ServerProcess;
use super::lanes::Load;
use super::proxy::Proxy;
use crate::fixture::{Ending, Transport, any, far};

/// What may happen to a client.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Its connection breaks.
    Cut,
    /// One of its connections breaks.
    CutOne,
    /// All data of its connection is dropped.
    Part,
    /// Its server is killed and restarted.
    Kill,
    /// Its server is stopped for longer than the client waits.
    Freeze,
}

#[test]
fn broken_and_parted_connections_are_pauses() {
    storm("cuts", Transport::Tcp, &[Trouble::Cut, Trouble::Cut, Trouble::Part]);
}

#[test]
fn a_frozen_server_is_a_pause() {
    storm("freezes", any(), &[Trouble::Freeze]);
}

#[test]
fn a_killed_server_is_a_pause() {
    storm("kills", any(), &[Trouble::Kill]);
}

#[test]
fn a_killed_server_is_a_pause_over_a_network() {
    storm("kills over a network", far(), &[Trouble::Kill]);
}

#[test]
fn everything_at_once_is_a_pause() {
    let all = [Trouble::Cut, Trouble::Part, Trouble::Kill, Trouble::Freeze];
    storm("everything", Transport::Tcp, &all);
}

#[test]
fn several_channels_go_through_everything_at_once() {
    let all = [Trouble::Cut, Trouble::Part, Trouble::Kill, Trouble::Freeze, Trouble::CutOne];
    storm_with(4, "everything over several channels", Transport::Tcp, &all);
}

#[test]
fn several_channels_go_through_the_end_of_their_server() {
    storm_with(4, "kills over several channels", any(), &[Trouble::Kill]);
}

/// Runs the rounds of a storm. `DAFS_RECONNECT_ROUNDS` sets their number, each with a new seed, and
/// `DAFS_RECONNECT_SEED` the first seed.
fn storm(name: &str, transport: Transport, troubles: &[Trouble]) {
    storm_with(1, name, transport, troubles);
}

/// Does the same for sessions with several channels.
fn storm_with(channels: u16, name: &str, transport: Transport, troubles: &[Trouble]) {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = given("DAFS_RECONNECT_ROUNDS").unwrap_or(1);
    let first = given("DAFS_RECONNECT_SEED").unwrap_or(1);
    for seed in first..first + rounds {
        for lanes in [1, 32] {
            let load = Load { lanes, steps: STEPS, seed };
            eprintln!("storm of {name}: {load:?}; again with DAFS_RECONNECT_SEED={seed}");
            storm_over(channels, transport, troubles, load);
        }
    }
}

fn storm_over(channels: u16, transport: Transport, troubles: &[Trouble], load: Load) {
    let server = Mutex::new(ServerProcess::start());
    let address = server.lock().unwrap().address(transport);
    let proxy = (transport == Transport::Tcp).then(|| Proxy::before(&address));
    let address = proxy.as_ref().map_or(address, |proxy| proxy.address.clone());
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = options().channels(channels);
    let session = loop {
        match client.connect_to(&address, &options) {
            Ok(session) => break session,
            // A busy machine may take longer than this client waits.
            Err(error) => eprintln!("{error}"),
        }
    };
    eprintln!("over {} channels", session.channel_count());
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    session.on_event(move |event| told.lock().unwrap().push(event.clone()));
    let export = server.lock().unwrap().local("");
    let (is_over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut random = Random::new(load.seed ^ 0x5eed);
    std::thread::scope(|scope| {
        let ending = Ending(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                // A random time, not a wait for an event.
                std::thread::park_timeout(Duration::from_millis(
                    random.next_u64() % TROUBLE_EVERY_MS,
                ));
                let trouble = troubles[random.below(troubles.len())];
                make(trouble, &mut server.lock().unwrap(), proxy.as_ref(), &mut random);
                made.fetch_add(1, Ordering::Release);
            }
        });
        let may_skip = troubles.iter().any(|trouble| matches!(trouble, Trouble::Kill));
        let is_enough = || {
            let events = events.lock().unwrap();
            let is_back = |event: &&SessionEvent| matches!(event, SessionEvent::Recovered { .. });
            let recovered = events.iter().filter(is_back).count();
            made.load(Ordering::Acquire) >= TROUBLES && recovered >= RECOVERIES
        };
        load.run(&session, &export, may_skip, &is_enough);
        drop(ending);
    });
    // It may be lost just now; then it reconnects and disconnects cleanly.
    session.disconnect().unwrap();
    check(&events.lock().unwrap());
}

fn make(trouble: Trouble, server: &mut ServerProcess, proxy: Option<&Proxy>, random: &mut Random) {
    match (trouble, proxy) {
        (Trouble::Cut, Some(proxy)) => proxy.cut(),
        (Trouble::Part, Some(proxy)) => proxy.part(),
        (Trouble::CutOne, Some(proxy)) => proxy.cut_any(random),
        (Trouble::Cut | Trouble::CutOne | Trouble::Part, None) => {
            unreachable!("only a proxy does that")
        }
        (Trouble::Kill, _) => {
            server.kill();
            server.revive();
        }
        (Trouble::Freeze, _) => {
            server.freeze();
            std::thread::park_timeout(Duration::from_millis(random.next_u64() % FREEZE_MS));
            server.thaw();
        }
    }
}

fn options() -> SessionOptions {
    SessionOptions::default()
        .recovery(Recovery::On(
            RecoveryOptions::default()
                .give_up_after(Duration::from_secs(120))
                .attempt_timeout(Duration::from_secs(2))
                .pause_min(Duration::from_millis(2))
                .pause_max(Duration::from_millis(50)),
        ))
        .answer_timeout(Some(Duration::from_millis(150)))
}

/// Checks that events are in a valid order, and that there were some.
fn check(events: &[SessionEvent]) {
    let mut is_lost = false;
    let (mut recovered, mut again, mut found) = (0, 0, 0);
    for event in events {
        match event {
            SessionEvent::Lost { .. } => {
                assert!(!is_lost, "{events:?}");
                is_lost = true;
            }
            SessionEvent::Reconnecting { .. } => assert!(is_lost, "{events:?}"),
            SessionEvent::Recovered { lost, unknown, reissued, fetched, .. } => {
                assert!(is_lost, "{events:?}");
                assert_eq!((*lost, *unknown), (0, 0), "{events:?}");
                is_lost = false;
                recovered += 1;
                again += reissued;
                found += fetched;
            }
            other => panic!("{other:?}"),
        }
    }
    eprintln!("came back {recovered} times: {found} results fetched, {again} requests made again");
    assert!(recovered >= RECOVERIES && !is_lost, "{events:?}");
}

/// The minimum number of steps per lane, and of failures.
const STEPS: usize = 20;
const TROUBLES: usize = 12;
/// The minimum number of recoveries. Some failures end before they are noticed.
const RECOVERIES: usize = 3;
const TROUBLE_EVERY_MS: u64 = 120;
const FREEZE_MS: u64 = 300;
