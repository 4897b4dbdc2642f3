//! Tests that a client which takes all of a resource leaves some to others.

use std::net::Ipv4Addr;

use dafs_dat::EndpointConfig;
use dafs_types::Status;
use dafs_wire::Request;
use dafs_wire::messages::{Empty, SessionOptions};

use super::tcp::{DEPTH, Wire, enhanced, request};
use crate::fixture::{Fixture, Transport};
use crate::rogue::{Rogue, connect_data, encoded, login_as};

const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn fixture() -> Fixture {
    Fixture::with(|config| {
        config.sessions.channels_max = 128;
        config.sessions.unauthenticated_max = 64;
    })
}

/// Opens a connection that sends its connect data and nothing else, whatever happens to it.
fn idle(fixture: &Fixture, source: Ipv4Addr) -> Wire {
    let mut wire = Wire::open_from(&fixture.address(Transport::Tcp), source);
    wire.send(&request(0x10, 2, &enhanced(DEPTH, &connect_data())));
    wire
}

/// Starts a session from an address and returns its connection.
fn log_in(fixture: &Fixture, source: Ipv4Addr) -> Wire {
    let mut wire = Wire::open_from(&fixture.address(Transport::Tcp), source).stand(false);
    let login = encoded(0, 0, &login_as(b"guest", SessionOptions::default()));
    assert_eq!(wire.ask(&login), Status::Ok);
    wire
}

/// Logs in a local process, which must be admitted.
fn log_in_here(fixture: &Fixture) -> Rogue {
    let address = fixture.address(Transport::Shm);
    let mut rogue = Rogue::connect_with(&address, &EndpointConfig::default());
    rogue.log_in();
    assert_eq!(rogue.outcome(&Request::Null(Empty)), Some(Status::Ok));
    rogue
}

#[test]
fn idle_connections_of_one_address_keep_nobody_out() {
    let fixture = fixture();
    let taken: Vec<_> = (0..300).map(|_| idle(&fixture, NEAR)).collect();
    log_in(&fixture, FAR);
    log_in(&fixture, NEAR);
    log_in_here(&fixture);
    drop(taken);
}

#[test]
fn sessions_of_one_address_leave_room_for_others() {
    let fixture = fixture();
    let mut taken = Vec::new();
    let login = encoded(0, 0, &login_as(b"greedy", SessionOptions::default()));
    while let Some(mut wire) = Wire::open_from(&fixture.address(Transport::Tcp), NEAR).try_stand() {
        assert_eq!(wire.ask(&login), Status::Ok);
        taken.push(wire);
        assert!(taken.len() < 128, "one address has it all");
    }
    assert!(taken.len() > 64, "{}", taken.len());
    log_in(&fixture, FAR);
    log_in_here(&fixture);
}
