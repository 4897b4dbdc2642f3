//! Tests batches whose bytes a client never delivers: they occupy shared memory.

use std::time::Duration;

use dafs_types::Status;
use dafs_wire::messages::SessionOptions as WireOptions;

use super::messages::{Batcher, One, SYNCHRONOUS, WRITE};
use crate::fixture::{Fixture, HANG, Transport, await_that, pattern};

const MIB: u32 = 1 << 20;
/// Together they need more than the available memory.
const SESSIONS: u64 = 70;
const BATCH_MIB: u64 = 4;

fn connect(fixture: &Fixture, transport: Transport) -> Batcher {
    let options = WireOptions { checksums: true, ..WireOptions::default() };
    let name: &[u8] = if transport == Transport::Tcp { b"far" } else { b"near" };
    Batcher::connect_with(fixture, transport, name, options)
}

/// Starts sessions from one address, each with a batch whose data it does not let the server fetch.
fn withheld(fixture: &Fixture) -> Vec<Batcher> {
    let batches = (0..SESSIONS).map(|_| {
        let mut batcher = connect(fixture, Transport::Tcp);
        let requests: Vec<_> = (0..BATCH_MIB).map(|name| One(name, WRITE, 0, MIB)).collect();
        batcher.send(1, &requests, SYNCHRONOUS);
        batcher
    });
    batches.collect()
}

/// Submits small batches until one has this status.
fn submit_until(batcher: &mut Batcher, wanted: Status) {
    await_that("a batch is answered as it should be", || {
        batcher.submit(&[One(0, WRITE, 0, 100)], SYNCHRONOUS) == wanted
    });
}

fn fixture(patience: Duration) -> Fixture {
    let fixture = Fixture::with(|config| config.patience.transfer = patience);
    std::fs::write(fixture.local("file"), pattern(1000, 1)).unwrap();
    fixture
}

#[test]
fn sessions_of_one_address_leave_memory_for_the_batches_of_others() {
    let fixture = fixture(HANG);
    let (mut near, mut own) =
        (connect(&fixture, Transport::Shm), connect(&fixture, Transport::Tcp));
    let held = withheld(&fixture);
    submit_until(&mut own, Status::Delay);
    assert_eq!(near.submit(&[One(0, WRITE, 0, 100)], SYNCHRONOUS), Status::Ok);
    drop(held);
}

#[test]
fn memory_that_withheld_batches_take_comes_back_though_nobody_waits_in_the_server() {
    let fixture = fixture(Duration::from_millis(200));
    let mut other = connect(&fixture, Transport::Tcp);
    let held = withheld(&fixture);
    submit_until(&mut other, Status::Delay);
    submit_until(&mut other, Status::Ok);
    drop(held);
}
