//! Features of the simulated network only: injected faults, virtual time, replay.

use std::time::Duration;

use dafs_dat::sim::{Fault, FaultPlan, Network, NetworkConfig};
use dafs_dat::{BreakReason, CompletionStatus, EndpointConfig, Event, Operation, Rights};

use crate::fixture::{ACCEPTOR, Fixture, INITIATOR, Sim, World};
use crate::pair::{Buffer, DOMAIN, Pair, pattern};

fn world(config: NetworkConfig) -> World {
    let mut world = Sim { early_success_ppm: 0, in_flight_max: 64 }.world(0);
    let network = Network::new(config);
    world.initiator.sim = Some(network.at(INITIATOR));
    world.acceptor.sim = Some(network.at(ACCEPTOR));
    world.network = Some(network);
    world
}

pub(crate) fn pair(config: NetworkConfig) -> Pair {
    let world = world(config);
    let limits = EndpointConfig::default();
    Pair::over(world, &limits, &limits)
}

pub(crate) fn network(pair: &Pair) -> Network {
    pair.world.network.clone().unwrap()
}

/// Returns a network on which success means that the data was delivered.
fn honest(seed: u64) -> NetworkConfig {
    NetworkConfig { early_success_ppm: 0, ..NetworkConfig::new(seed) }
}

/// Posts a write and a message from the acceptor to the initiator.
fn write_and_tell(pair: &mut Pair) -> (Buffer, Buffer) {
    let target = pair.initiator.buffer(64, Rights::REMOTE);
    let inbox = pair.initiator.buffer(64, Rights::LOCAL);
    let source = pair.acceptor.filled(&pattern(1, 64), Rights::LOCAL);
    pair.initiator.receive(1, &[inbox.whole()]);
    pair.acceptor.write(2, &[source.whole()], target.all_remote());
    pair.acceptor.send(3, &pattern(2, 64));
    (target, inbox)
}

fn status(pair: &Pair, context: u64) -> CompletionStatus {
    pair.acceptor.completion(context).unwrap().status
}

#[test]
fn a_break_before_placement_loses_the_write_and_what_follows() {
    let mut pair = pair(honest(1));
    network(&pair).inject(Fault::BreakBefore, 0);
    let (target, inbox) = write_and_tell(&mut pair);
    pair.until_broken();
    assert_eq!((target.bytes(), inbox.bytes()), (vec![0; 64], vec![0; 64]));
    assert_eq!(status(&pair, 2), CompletionStatus::Flushed);
    assert_eq!(status(&pair, 3), CompletionStatus::Flushed);
    assert_eq!(network(&pair).statistics().breaks_before, 1);
}

#[test]
fn a_break_after_placement_loses_only_the_acknowledgement() {
    let mut flushed = 0;
    for seed in 0..20 {
        let mut pair = pair(honest(seed));
        network(&pair).inject(Fault::BreakAfter, 0);
        let (target, inbox) = write_and_tell(&mut pair);
        pair.until_broken();
        assert_eq!(target.bytes(), pattern(1, 64));
        assert_eq!(inbox.bytes(), vec![0; 64]);
        flushed += u32::from(status(&pair, 2) == CompletionStatus::Flushed);
        assert_eq!(network(&pair).statistics().breaks_after, 1);
    }
    assert_eq!(flushed, 20, "its success was never heard of");
}

#[test]
fn a_break_after_delivery_leaves_the_message_and_takes_the_success() {
    let mut pair = pair(honest(1));
    network(&pair).inject(Fault::BreakAfter, 1);
    let (target, inbox) = write_and_tell(&mut pair);
    pair.until_broken();
    assert_eq!((target.bytes(), inbox.bytes()), (pattern(1, 64), pattern(2, 64)));
    assert_eq!(pair.initiator.completion(1).unwrap().status, CompletionStatus::Success);
    assert_eq!(status(&pair, 3), CompletionStatus::Flushed);
}

#[test]
fn success_may_come_before_the_loss() {
    let config = NetworkConfig { early_success_ppm: 1_000_000, ..NetworkConfig::new(1) };
    let mut pair = pair(config);
    network(&pair).inject(Fault::BreakBefore, 0);
    let (target, _) = write_and_tell(&mut pair);
    pair.until_broken();
    assert_eq!(target.bytes(), vec![0; 64]);
    assert_eq!(status(&pair, 2), CompletionStatus::Success);
}

#[test]
fn a_delay_keeps_the_order() {
    let mut pair = pair(honest(1));
    let network = network(&pair);
    network.set_faults(FaultPlan { delay_ns_max: 1_000_000_000, ..FaultPlan::default() });
    network.inject(Fault::Delay, 0);
    let (target, inbox) = write_and_tell(&mut pair);
    pair.until("the message", |pair| pair.initiator.completion(1).is_some());
    assert_eq!((target.bytes(), inbox.bytes()), (pattern(1, 64), pattern(2, 64)));
    assert_eq!(network.statistics().delays, 1);
}

#[test]
fn a_flipped_bit_breaks_or_slips_through() {
    for seed in 0..10 {
        let mut caught = pair(honest(seed));
        network(&caught).inject(Fault::FlipCaught, 0);
        let (target, _) = write_and_tell(&mut caught);
        caught.until_broken();
        assert_eq!(target.bytes(), vec![0; 64]);
        assert_eq!(network(&caught).statistics().flips_caught, 1);

        let mut silent = pair(honest(seed));
        network(&silent).inject(Fault::FlipSilent, 1);
        let (target, inbox) = write_and_tell(&mut silent);
        silent.until("the message", |pair| pair.initiator.completion(1).is_some());
        assert_eq!(target.bytes(), pattern(1, 64));
        let (seen, sent) = (inbox.bytes(), pattern(2, 64));
        let flipped: u32 = seen.iter().zip(sent).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
        silent.assert_alive(100);
    }
}

#[test]
fn a_killed_node_takes_its_connections_along() {
    let mut pair = pair(honest(1));
    let network = network(&pair);
    write_and_tell(&mut pair);
    pair.turn();
    network.kill_node(ACCEPTOR);
    pair.until_broken();
    // There is no reply until the node is back and listens.
    pair.initiator.events.clear();
    let limits = EndpointConfig::default();
    pair.connect(&limits, b"");
    pair.until("the connect given up", |pair| pair.initiator.is_broken());
    let unreachable =
        |event: &Event| matches!(event, Event::Broken { reason: BreakReason::Unreachable(_), .. });
    assert!(pair.initiator.events.iter().any(unreachable));
    network.restart_node(ACCEPTOR);
    pair.acceptor.interface = dafs_dat::Interface::new(pair.world.acceptor.clone()).unwrap();
    pair.acceptor.interface.listen(&pair.world.address).unwrap();
    pair.acceptor.events.clear();
    pair.initiator.events.clear();
    pair.join(&limits, &limits);
    pair.assert_alive(50);
}

#[test]
fn a_short_partition_is_only_late_and_a_long_one_breaks() {
    let mut pair = pair(honest(1));
    let network = network(&pair);
    let (target, inbox) = write_and_tell(&mut pair);
    pair.acceptor.interface.flush();
    network.partition(ACCEPTOR);
    network.advance_to(network.now_ns() + 500_000_000);
    pair.initiator.interface.poll();
    pair.initiator.collect();
    assert_eq!(pair.initiator.completions().count(), 0);
    assert!(network.statistics().holds > 0);
    network.heal(ACCEPTOR);
    pair.until("the message", |pair| pair.initiator.completion(1).is_some());
    assert_eq!((target.bytes(), inbox.bytes()), (pattern(1, 64), pattern(2, 64)));
    pair.assert_alive(10);
    network.partition(INITIATOR);
    pair.acceptor.send(20, b"nobody hears");
    pair.until_broken();
    assert!(network.now_ns() > 1_000_000_000);
}

#[test]
fn what_may_last_for_ever_is_over_at_no_moment() {
    let (hold_ns_max, connect_ns_max) = (u64::MAX, u64::MAX);
    let mut pair = pair(NetworkConfig { hold_ns_max, connect_ns_max, ..honest(1) });
    let network = network(&pair);
    pair.turn();
    network.partition(ACCEPTOR);
    pair.initiator.send(1, b"later");
    pair.connect(&EndpointConfig::default(), b"");
    // Nothing advances the clock to the end of the partition.
    assert_eq!(pair.initiator.interface.wait(1, None), 0);
    network.run_until_quiet(100);
    pair.turn();
    assert_eq!(network.next_ns(), None);
    assert!(!pair.initiator.is_broken() && network.now_ns() < 1_000_000_000);
    let inbox = pair.acceptor.buffer(64, Rights::LOCAL);
    pair.acceptor.receive(2, &[inbox.whole()]);
    network.heal(ACCEPTOR);
    pair.until("the message", |pair| pair.acceptor.received().len() == 1);
}

#[test]
fn a_partition_keeps_the_order_of_what_it_held() {
    for seed in 0..50 {
        let mut pair = pair(honest(seed));
        let network = network(&pair);
        let inbox = pair.acceptor.buffer(40, Rights::LOCAL);
        for number in 0..40 {
            pair.acceptor.receive(number, &[inbox.region.local(number, 1)]);
            pair.initiator.send(number, &[number as u8]);
            match number % 10 {
                3 => network.partition(ACCEPTOR),
                8 => network.heal(ACCEPTOR),
                _ => {}
            }
            pair.turn();
        }
        network.heal(ACCEPTOR);
        pair.until("all messages", |pair| pair.acceptor.received().len() == 40);
        assert_eq!(inbox.bytes(), (0..40).collect::<Vec<u8>>(), "seed {seed}");
    }
}

#[test]
fn a_broken_cable_breaks_one_connection() {
    let mut pair = pair(honest(1));
    let network = network(&pair);
    write_and_tell(&mut pair);
    let connections = network.connections();
    assert_eq!(connections.len(), 1);
    assert_eq!((connections[0].initiator, connections[0].acceptor), (INITIATOR, ACCEPTOR));
    network.break_connection(connections[0].id);
    pair.until_broken();
    assert_eq!(network.connections(), []);
}

#[test]
fn a_close_may_lose_what_is_under_way() {
    let mut pair = pair(honest(1));
    let network = network(&pair);
    network.set_faults(FaultPlan { close_loses_ppm: 1_000_000, ..FaultPlan::default() });
    let (target, _) = write_and_tell(&mut pair);
    pair.acceptor.interface.flush();
    let endpoint = pair.acceptor.endpoint();
    pair.acceptor.interface.disconnect(endpoint);
    pair.until_broken();
    assert_eq!(target.bytes(), vec![0; 64]);
    assert_eq!(network.statistics().lossy_closes, 1);
}

#[test]
fn a_buffer_changed_too_early_shows() {
    let mut pair = pair(honest(1));
    let inbox = pair.initiator.buffer(64, Rights::LOCAL);
    let source = pair.acceptor.filled(&pattern(1, 64), Rights::LOCAL);
    pair.initiator.receive(1, &[inbox.whole()]);
    let whole = [dafs_dat::Gather::Segment(source.whole())];
    pair.acceptor.gather(2, &whole, dafs_dat::SendOptions::default());
    pair.acceptor.interface.flush();
    source.memory.write(0, &pattern(9, 64));
    pair.until("the message", |pair| pair.initiator.completion(1).is_some());
    assert_eq!(inbox.bytes(), pattern(9, 64));
}

#[test]
fn a_buffer_of_a_closed_connection_is_free() {
    let mut pair = pair(honest(1));
    let inbox = pair.initiator.buffer(64, Rights::LOCAL);
    let source = pair.acceptor.filled(&pattern(1, 64), Rights::LOCAL);
    pair.initiator.receive(1, &[inbox.whole()]);
    let whole = [dafs_dat::Gather::Segment(source.whole())];
    pair.acceptor.gather(2, &whole, dafs_dat::SendOptions::default());
    pair.acceptor.interface.flush();
    let endpoint = pair.acceptor.endpoint();
    pair.acceptor.interface.disconnect(endpoint);
    source.memory.write(0, &pattern(9, 64));
    pair.until_broken();
    assert_eq!(inbox.bytes(), pattern(1, 64));
}

#[test]
fn waiting_moves_the_virtual_clock_only_as_far_as_needed() {
    let mut pair = pair(honest(1));
    pair.settle();
    let network = network(&pair);
    assert_eq!(network.next_ns(), None);
    let before = network.now_ns();
    assert_eq!(pair.acceptor.interface.wait(1, None), 0, "quiet: nothing to wait for");
    assert_eq!(pair.acceptor.interface.wait(1, Some(Duration::from_secs(3600))), 0);
    assert_eq!(network.now_ns(), before);
    let inbox = pair.acceptor.buffer(8, Rights::LOCAL);
    pair.acceptor.receive(1, &[inbox.whole()]);
    pair.initiator.send(1, b"tick");
    pair.initiator.interface.flush();
    assert_eq!(pair.acceptor.interface.wait(1, Some(Duration::from_nanos(10))), 0);
    assert_eq!(network.now_ns(), before + 10);
    assert_eq!(pair.acceptor.interface.wait(1, None), 1);
    let latency = network.now_ns() - before;
    assert!((1_000..=20_000).contains(&latency), "{latency}");
}

#[test]
fn a_bounded_flight_still_delivers_everything() {
    let mut pair = pair(NetworkConfig { in_flight_max: 2, ..NetworkConfig::new(3) });
    let inbox = pair.acceptor.buffer(100, Rights::LOCAL);
    for number in 0..100 {
        pair.acceptor.receive(number, &[inbox.region.local(number, 1)]);
        pair.initiator.send(number, &[number as u8]);
    }
    pair.initiator.interface.flush();
    let network = network(&pair);
    network.run_until_quiet(1_000);
    pair.acceptor.interface.poll();
    pair.acceptor.collect();
    assert_eq!(pair.acceptor.received().len(), 2, "no more were under way");
    pair.until("all messages", |pair| pair.acceptor.received().len() == 100);
    assert_eq!(inbox.bytes(), (0..100).collect::<Vec<u8>>());
}

#[test]
fn connections_overtake_each_other_but_never_themselves() {
    let mut overtaken = false;
    for seed in 0..20 {
        let mut pair = pair(honest(seed));
        let limits = EndpointConfig::default();
        let first = (pair.initiator.endpoint(), pair.acceptor.endpoint());
        pair.initiator.events.clear();
        pair.acceptor.events.clear();
        pair.join(&limits, &limits);
        let second = (pair.initiator.endpoint(), pair.acceptor.endpoint());
        let inbox = pair.acceptor.buffer(8, Rights::LOCAL);
        for (context, (from, to)) in [(1, first), (2, second)] {
            pair.acceptor.set_endpoint(to);
            pair.acceptor.receive(context, &[inbox.whole()]);
            pair.initiator.set_endpoint(from);
            pair.initiator.send(context, b"race");
        }
        pair.until("both", |pair| pair.acceptor.received().len() == 2);
        overtaken |= pair.acceptor.received()[0].cookie == 2;
    }
    assert!(overtaken);
}

/// Runs traffic in both directions with all faults at once. Returns the events in order and the
/// hash.
fn storm(seed: u64) -> (u64, Vec<String>, dafs_dat::sim::Statistics) {
    let config = NetworkConfig {
        in_flight_max: 8,
        faults: FaultPlan {
            break_before_ppm: 3_000,
            break_after_ppm: 3_000,
            delay_ppm: 50_000,
            delay_ns_max: 100_000,
            flip_caught_ppm: 2_000,
            flip_silent_ppm: 10_000,
            close_loses_ppm: 300_000,
            count_max: 100,
        },
        ..NetworkConfig::new(seed)
    };
    let mut pair = Pair::apart(world(config));
    let limits = EndpointConfig { read_depth: 2, ..EndpointConfig::default() };
    pair.connect(&limits, b"");
    let pending = pair.request();
    let endpoint = pair.acceptor.interface.accept(pending, DOMAIN, &limits, b"");
    pair.acceptor.set_endpoint(endpoint);
    pair.settle();
    let ours = pair.initiator.buffer(4096, Rights::REMOTE);
    let theirs = pair.acceptor.buffer(4096, Rights::REMOTE);
    for round in 0..10 {
        if pair.initiator.is_broken() || pair.acceptor.is_broken() {
            break;
        }
        for (side, local, remote) in
            [(&mut pair.initiator, &ours, &theirs), (&mut pair.acceptor, &theirs, &ours)]
        {
            let base = round * 10;
            side.receive(base, &[local.region.local(0, 100)]);
            let part = local.region.local(200, 100);
            side.write(base + 1, &[part], remote.region.remote(1000, 100));
            side.read(base + 2, &[part], remote.region.remote(2000, 100));
        }
        pair.initiator.send(round * 10 + 3, &pattern(seed, 50));
        pair.acceptor.send(round * 10 + 3, &pattern(seed, 60));
        pair.turn();
        pair.turn();
    }
    pair.settle();
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.disconnect(endpoint);
    pair.until_broken();
    let describe = |events: &[Event]| events.iter().map(|event| format!("{event:?}")).collect();
    let mut events: Vec<String> = describe(&pair.initiator.events);
    events.append(&mut describe(&pair.acceptor.events));
    let network = network(&pair);
    (network.trace_hash(), events, network.statistics())
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let (first, second) = (storm(seed), storm(seed));
        assert_eq!(first, second, "seed {seed}");
        hashes.insert(first.0);
    }
    assert_eq!(hashes.len(), 50, "and every seed its own");
}

#[test]
fn a_thousand_seeds_keep_every_promise() {
    let mut total = dafs_dat::sim::Statistics::default();
    let mut successes = 0;
    for seed in 0..1000 {
        let (_, events, statistics) = storm(seed);
        let success = format!("{:?}", CompletionStatus::Success);
        successes += events.iter().filter(|event| event.contains(&success)).count();
        total.breaks_before += statistics.breaks_before;
        total.breaks_after += statistics.breaks_after;
        total.delays += statistics.delays;
        total.flips_caught += statistics.flips_caught;
        total.flips_silent += statistics.flips_silent;
        total.lossy_closes += statistics.lossy_closes;
    }
    let kinds = [
        total.breaks_before,
        total.breaks_after,
        total.delays,
        total.flips_caught,
        total.flips_silent,
    ];
    assert!(kinds.iter().all(|count| *count > 0), "{total:?}");
    assert!(successes > 1000, "{successes}");
}

#[test]
fn an_outstanding_read_holds_later_successes_back() {
    let mut pair = pair(honest(4));
    let far = pair.initiator.buffer(64, Rights::REMOTE);
    let near = pair.acceptor.buffer(64, Rights::LOCAL);
    let inbox = pair.initiator.buffer(64, Rights::LOCAL);
    for number in 0..20 {
        pair.initiator.receive(number, &[inbox.whole()]);
        pair.acceptor.read(2 * number, &[near.whole()], far.all_remote());
        pair.acceptor.send(2 * number + 1, b"after");
    }
    pair.until("all work", |pair| pair.acceptor.completions().count() == 40);
    let order: Vec<u64> = pair.acceptor.completions().map(|c| c.cookie).collect();
    assert_eq!(order, (0..40).collect::<Vec<_>>());
    assert_eq!(pair.acceptor.done(Operation::RdmaRead).len(), 20);
}
