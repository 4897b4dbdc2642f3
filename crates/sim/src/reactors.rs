//! A server of one reactor or several: how many, where each of them listens, and which has the
//! next turn.
//!
//! Invariant: with one reactor no dice are thrown here.

use std::time::Duration;

use dafs_dat::sim::Network;
use dafs_dat::{AcceptGroup, Address, Interface, InterfaceConfig, ServingInterface};
use dafs_server::SteppedServer;
use dafs_types::{Moment, Random};

use crate::plan::SERVER_NODE;

/// The variable that gives the servers of all runs so many reactors, whatever their seeds say.
pub const REACTORS_VARIABLE: &str = "DAFS_SIM_REACTORS";

/// Reactors of a seed's server: one to four, if [`REACTORS_VARIABLE`] does not say how many.
#[must_use]
pub fn reactors_of(seed: u64) -> usize {
    let set = std::env::var(REACTORS_VARIABLE).ok().and_then(|text| text.parse().ok());
    set.unwrap_or_else(|| 1 + Random::new(seed ^ SALT).below(REACTORS_MAX)).clamp(1, REACTORS_MAX)
}

/// An interface for each, which share what comes to any of them. The server has the first listen;
/// each of the others listens at the port of its number.
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
        listener.map_err(|error| format!("a port of its own: {error}"))?;
    }
    Ok(interface)
}

/// Where a reactor listens.
pub(crate) fn address(reactor: usize) -> Address {
    Address::Sim { node: SERVER_NODE, port: u16::try_from(reactor).unwrap_or(u16::MAX) }
}

/// Which of them a connection goes to.
pub(crate) fn draw(count: usize, random: &mut Random) -> usize {
    if count > 1 { random.below(count) } else { 0 }
}

/// Says whose turn it is.
pub(crate) struct Turns {
    random: Random,
    /// Whether reactors are kept from going on at times, as threads are whose processor is taken.
    stalls: bool,
    /// Who is kept from it, and until when.
    stalled: Option<(usize, Moment)>,
}

impl Turns {
    pub fn new(seed: u64, stalls: bool) -> Self {
        Self { random: Random::new(seed ^ TURN_SALT), stalls, stalled: None }
    }

    /// A turn of one of those that are awake, or half of one.
    pub fn step(&mut self, server: &mut SteppedServer, now: Moment) {
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

    /// Whoever was just busy is stalled at times, mostly in the middle of its turn.
    fn stall(&mut self, reactor: usize, is_moving: bool, now: Moment) {
        let chance = if is_moving { 50 } else { 1 };
        if self.random.percent(chance) {
            let span_ns = self.random.below(STALL_NS_MAX) as u64;
            self.stalled = Some((reactor, now.after(Duration::from_nanos(span_ns))));
        }
    }
}

/// Less than others wait for anything.
const STALL_NS_MAX: usize = 1_000_000;
const REACTORS_MAX: usize = 4;
/// Makes the dice of this others than those of everything else.
const SALT: u64 = 0x4eac_7045_0f5e_7e45;
/// The same of their turns.
const TURN_SALT: u64 = 0x7045_7e45_c4a5_0f5e;
