//! Tests very many clients at once: a thousand clients connect simultaneously, and a thousand start
//! a connection and do not continue. All permitted ones are served, and afterwards the server holds
//! no more than before.

use std::time::{Duration, Instant};

use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, Operation, Region, Rights, SendOptions,
};
use dafs_memory::{Memory, Pages};
use dafs_types::{Status, Verifier};
use dafs_wire::messages::{AuthRequest, ClientConnectAuth, Empty, SessionOptions};
use dafs_wire::{ByteOrder, ChannelType, ConnectData, Request};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::process::{Holdings, Process};
use super::shm::Control;
use super::tcp::{DEPTH, Wire, enhanced, request};
use crate::bystander::Bystanders;
use crate::fixture::{HANG, Watch, await_that};
use crate::rogue::{Rogue, connect_data, encoded, status_of};

/// Clients with a connection each, all in this thread.
struct Crowd {
    interface: Interface,
    inbox: Memory,
    region: Region,
    endpoints: Vec<EndpointId>,
}

impl Crowd {
    /// Connects all clients. None sends anything before all are connected.
    fn connect(address: &Address) -> Self {
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let inbox = Memory::anonymous(COUNT * SLOT_BYTES as usize, Pages::Small).unwrap();
        let region = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let config = EndpointConfig { message_bytes_max: SLOT_BYTES, ..EndpointConfig::default() };
        let connect = |number: usize| {
            let number = number as u32;
            let (client_instance, client_session) = (number, number);
            let channel = ChannelType::Operation;
            let data = ConnectData { client_instance, client_session, channel };
            let data = data.encode(ByteOrder::NATIVE);
            interface.connect(address, Domain(0), &config, &data).unwrap()
        };
        let endpoints = (0..COUNT).map(connect).collect();
        let mut crowd = Self { interface, inbox, region, endpoints };
        for _ in 0..COUNT {
            let event = crowd.event();
            assert!(matches!(event, Event::Established { .. }), "{event:?}");
        }
        crowd
    }

    /// Sends a request from each client. Each must succeed.
    fn ask(&mut self, encode: impl Fn(usize) -> Vec<u8>) {
        for (slot, endpoint) in self.endpoints.iter().enumerate() {
            let segment = self.region.local(slot as u64 * u64::from(SLOT_BYTES), SLOT_BYTES);
            self.interface.post_receive(*endpoint, slot as u64, &[segment]).unwrap();
            let request = encode(slot);
            let gather = [Gather::Bytes(&request)];
            self.interface.post_send(*endpoint, 0, &gather, SendOptions::default()).unwrap();
        }
        self.interface.flush();
        let mut answered = 0;
        while answered < COUNT {
            let Event::Completion(Completion { operation, status, cookie, length, .. }) =
                self.event()
            else {
                panic!("somebody's connection has ended")
            };
            assert_eq!(status, CompletionStatus::Success);
            if operation == Operation::Receive {
                let answer =
                    self.inbox.to_vec(cookie as usize * SLOT_BYTES as usize, length as usize);
                assert_eq!(status_of(&answer), Status::Ok, "of client {cookie}");
                answered += 1;
            }
        }
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.interface.next_event() {
                return event;
            }
            assert!(self.interface.wait(1, Some(HANG)) > 0, "nothing happens any more");
        }
    }
}

/// Encodes the first request of the client with this number.
fn login(number: usize) -> Vec<u8> {
    let name = format!("storm {number}");
    let login = ClientConnectAuth {
        options: SessionOptions::default(),
        fence_id: "",
        client_string: name.as_bytes(),
        verifier: Verifier([7; 8]),
        authentication: AuthRequest::None,
    };
    encoded(0, 0, &Request::ClientConnectAuth(login))
}

/// Runs a storm over one transport.
fn storm(process: &Process, address: &Address) {
    let (watch, mut bystanders) = (Watch::start(), process.bystanders());
    let one = || {
        let before = process.holdings();
        let begun = Instant::now();
        let mut crowd = Crowd::connect(address);
        let connected = begun.elapsed();
        crowd.ask(login);
        let logged_in = begun.elapsed();
        crowd.ask(|_| encoded(0, 1, &Request::GetRootHandle(Empty)));
        let rate = |time: Duration| COUNT as f64 / time.as_secs_f64();
        let (connects, logins) = (rate(connected), rate(logged_in));
        eprintln!("{address}: {connects:.0} connects in a second, {logins:.0} with a login");
        tell_costs(&before, &process.holdings());
        drop(crowd);
        await_end(process, &before);
        watch.goes_on();
    };
    // The first runs create what is kept for later ones, such as the allocator's free memory.
    one();
    one();
    let before = process.holdings_at_rest(&mut bystanders);
    one();
    one();
    let after = process.comes_back_to(&before, &mut bystanders);
    eprintln!("before {before:?}, after {after:?}");
}

#[test]
fn a_storm_over_tcp_is_served_to_the_last() {
    raise_descriptor_limit();
    let process = Process::patient(FOR_EVER);
    storm(&process, &process.tcp);
}

#[test]
fn a_storm_over_shared_memory_is_served_to_the_last() {
    raise_descriptor_limit();
    let process = Process::patient(FOR_EVER);
    storm(&process, &process.shm);
}

/// Starts connections over both transports, with their data so far.
fn halves(process: &Process) -> (Vec<Wire>, Vec<Control>) {
    let whole = request(0x10, 2, &enhanced(DEPTH, &connect_data()));
    let half = |number: usize| {
        let mut wire = Wire::open(&process.tcp);
        wire.send(&whole[..number % whole.len()]);
        wire
    };
    let wires = (0..COUNT).map(half).collect();
    (wires, (0..COUNT).map(|_| Control::connect(&process.shm)).collect())
}

#[test]
fn a_thousand_half_finished_requests_cost_next_to_nothing() {
    raise_descriptor_limit();
    let (_watch, process) = (Watch::start(), Process::patient(FOR_EVER));
    let mut bystanders = process.bystanders();
    let round = |bystanders: &mut Bystanders| {
        let before = process.holdings_at_rest(bystanders);
        let halves = halves(&process);
        // Each is admitted, and none must make room for another.
        let all = before.descriptors + 2 * COUNT;
        await_that("all are let in", || process.holdings().descriptors >= all);
        let during = process.holdings();
        tell_costs(&before, &during);
        bystanders.go_on();
        // Two names: the server may not know yet that the first client is gone.
        for (address, name) in [(&process.tcp, b"the first"), (&process.shm, b"the other")] {
            let mut rogue = Rogue::connect(address);
            rogue.log_in_as(name, SessionOptions::default());
        }
        drop(halves);
        await_end(&process, &before);
        during.anonymous_kib.saturating_sub(before.anonymous_kib)
    };
    // Resources of the first round are reused in the next.
    let cost_kib = round(&mut bystanders);
    assert!(cost_kib <= 2 * COUNT as u64 * HALF_KIB_MAX, "{cost_kib} KiB for who said nothing");
    let before = process.holdings();
    round(&mut bystanders);
    process.comes_back_to(&before, &mut bystanders);
}

#[test]
fn a_thousand_half_finished_requests_end_when_their_time_is_over() {
    raise_descriptor_limit();
    let (_watch, process) = (Watch::start(), Process::patient(Duration::from_secs(1)));
    let mut bystanders = process.bystanders();
    let end = || {
        let (wires, controls) = halves(&process);
        wires.into_iter().for_each(Wire::closes);
        controls.iter().for_each(Control::ends);
    };
    end();
    let before = process.holdings_at_rest(&mut bystanders);
    end();
    process.comes_back_to(&before, &mut bystanders);
}

/// Waits until all new connections are gone.
fn await_end(process: &Process, before: &Holdings) {
    let is_over = || process.holdings().descriptors <= before.descriptors;
    await_that("the server lets them go", is_over);
}

/// Prints the cost of a thousand connections to the server.
fn tell_costs(before: &Holdings, during: &Holdings) {
    let descriptors = during.descriptors.saturating_sub(before.descriptors);
    let anonymous_kib = during.anonymous_kib.saturating_sub(before.anonymous_kib);
    eprintln!("with them: {descriptors} descriptors and {anonymous_kib} KiB more");
}

/// Raises the descriptor limit of this process and of servers that it starts, if its hard limit
/// permits that. Each end of a shared memory connection has several descriptors.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = Some(DESCRIPTORS);
    if limit.current.is_none() || limit.current >= wanted {
        return;
    }
    let is_enough = limit.maximum.is_none() || limit.maximum >= wanted;
    assert!(is_enough, "{DESCRIPTORS} descriptors are needed, `ulimit -Hn` allows {limit:?}");
    limit.current = wanted;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// The number of simultaneous clients.
const COUNT: usize = 1000;
const SLOT_BYTES: u32 = 4608;
/// The maximum memory of the server for a connection before its first request.
const HALF_KIB_MAX: u64 = 4;
/// For both ends of all connections, and for concurrent tests.
const DESCRIPTORS: u64 = 12_000;
const FOR_EVER: Duration = Duration::from_secs(3600);
