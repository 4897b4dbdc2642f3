//! The reactors of a server: how many there are, at which address each listens, and which one runs
//! next.
//!
//! Invariant: with one reactor no random numbers are drawn here.

use std::time::Duration;

use dafs_dat::sim::Network;
use dafs_dat::{AcceptGroup, Address, Interface, InterfaceConfig, ServingInterface};
use dafs_server::SteppedServer;
use dafs_types::{Moment, Random};

use crate::plan::SERVER_NODE;

/// The name of the environment variable that sets the number of reactors of all servers, regardless
/// of their seeds.
pub const REACTORS_VARIABLE: &str = "DAFS_SIM_REACTORS";

/// Returns the number of reactors of a seed's server: one to four, unless [`REACTORS_VARIABLE`]
/// sets it.
#[must_use]
pub fn reactors_of(seed: u64) -> usize {
    let set = std::env::var(REACTORS_VARIABLE).ok().and_then(|text| text.parse().ok());
    set.unwrap_or_else(|| 1 + Random::new(seed ^ SALT).below(REACTORS_MAX)).clamp(1, REACTORS_MAX)
}

/// Creates an interface for each reactor. The interfaces share the incoming connections. The first
/// interface listens when the server starts; each of the others listens at the port that belongs to
/// its number.
pub(crate) fn interfaces(
    network: &Network,
    count: usize,
    endpoints_max: usize,
) -> Result<Vec<ServingInterface>, String> {
    let group = (count > 1).then(AcceptGroup::new);
    let config = |owner| InterfaceConfig {
        sim: Some(network.at(SERVER_NODE)),
        owner,
        group: group.clone(),
        endpoints_max,
        ..InterfaceConfig::default()
    };
    (0..).take(count).map(|owner| interface(config(owner))).collect()
}

fn interface(config: InterfaceConfig) -> Result<ServingInterface, String> {
    let owner = usize::from(config.owner);
    let interface = Interface::serving(config);
    let mut interface = interface.map_err(|error| format!("an interface: {error}"))?;
    if owner > 0 {
        let listener = interface.listen(&address(owner));
        listener.map_err(|error| format!("listening: {error}"))?;
    }
    Ok(interface)
}

/// Creates the interface of the reactor that serves NFS clients. It has no listener.
pub(crate) fn guest_interface(network: &Network, owner: usize) -> Result<ServingInterface, String> {
    let owner = u8::try_from(owner).unwrap_or(u8::MAX);
    let sim = Some(network.at(SERVER_NODE));
    let interface =
        Interface::serving(InterfaceConfig { sim, owner, ..InterfaceConfig::default() });
    interface.map_err(|error| format!("an interface: {error}"))
}

/// Returns the address at which a reactor listens.
pub(crate) fn address(reactor: usize) -> Address {
    Address::Sim { node: SERVER_NODE, port: u16::try_from(reactor).unwrap_or(u16::MAX) }
}

/// Draws the reactor for a new connection.
pub(crate) fn draw(count: usize, random: &mut Random) -> usize {
    if count > 1 { random.below(count) } else { 0 }
}

/// Chooses the reactor that runs next.
pub(crate) struct Turns {
    random: Random,
    /// True if reactors are stalled now and then, like threads that lose their processor.
    stalls: bool,
    /// The stalled reactor and the time at which it continues.
    stalled: Option<(usize, Moment)>,
}

impl Turns {
    pub(crate) fn new(seed: u64, stalls: bool) -> Self {
        Self { random: Random::new(seed ^ TURN_SALT), stalls, stalled: None }
    }

    /// Runs a turn, or half a turn, of one of the reactors that are awake.
    pub(crate) fn step(&mut self, server: &mut SteppedServer, now: Moment) {
        let count = server.reactors();
        let stalled = self.stalled.filter(|(_, until)| now < *until).map(|(reactor, _)| reactor);
        let awake: Vec<usize> = (0..count)
            .filter(|reactor| Some(*reactor) != stalled && server.is_awake(*reactor, now))
            .collect();
        let drawn = draw(awake.len(), &mut self.random);
        let Some(reactor) = awake.get(drawn).copied() else { return server.work() };
        server.step(reactor, now);
        if count > 1 && stalled.is_none() && self.stalls {
            self.stall(reactor, server.is_moving(reactor), now);
        }
    }

    /// Now and then stalls a reactor that has just run, mostly in the middle of its turn.
    fn stall(&mut self, reactor: usize, is_moving: bool, now: Moment) {
        let chance = if is_moving { 50 } else { 1 };
        if self.random.percent(chance) {
            let span_ns = self.random.below(STALL_NS_MAX) as u64;
            self.stalled = Some((reactor, now.after(Duration::from_nanos(span_ns))));
        }
    }
}

/// The maximum duration of a stall in nanoseconds. It is shorter than every timeout of other
/// components.
const STALL_NS_MAX: usize = 1_000_000;
const REACTORS_MAX: usize = 4;
/// A constant that makes the random numbers of this module differ from other random numbers of the
/// same seed.
const SALT: u64 = 0x4eac_7045_0f5e_7e45;
/// A constant that makes the random numbers for the choice of turns differ from other random
/// numbers of the same seed.
const TURN_SALT: u64 = 0x7045_7e45_c4a5_0f5e;
