//! A server of one reactor or several: how many, where each of them listens, and which has the
//! next turn.
//!
//! Invariant: with one reactor no dice are thrown here.

use dafs_dat::sim::Network;
use dafs_dat::{Address, Interface, InterfaceConfig, ServingInterface};
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

/// An interface for each. The server has the first listen; each of the others listens at the port
/// of its number, since a simulated network knows who comes to which.
pub(crate) fn interfaces(
    network: &Network,
    count: usize,
    endpoints_max: usize,
) -> Result<Vec<ServingInterface>, String> {
    (0..).take(count).map(|owner| interface(network, owner, endpoints_max)).collect()
}

fn interface(
    network: &Network,
    owner: u8,
    endpoints_max: usize,
) -> Result<ServingInterface, String> {
    let sim = Some(network.at(SERVER_NODE));
    let config = InterfaceConfig { sim, owner, endpoints_max, ..InterfaceConfig::default() };
    let interface = Interface::serving(config);
    let mut interface = interface.map_err(|error| format!("an interface: {error}"))?;
    if owner > 0 {
        let listener = interface.listen(&address(usize::from(owner)));
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

/// A turn of one of those that are awake, or half of one.
pub(crate) fn step(server: &mut SteppedServer, random: &mut Random, now: Moment) {
    let awake: Vec<usize> =
        (0..server.reactors()).filter(|reactor| server.is_awake(*reactor, now)).collect();
    let drawn = draw(awake.len(), random);
    // If all sleep, threads are at work nevertheless.
    server.step(awake.get(drawn).copied().unwrap_or(0), now);
}

const REACTORS_MAX: usize = 4;
/// Makes the dice of this others than those of everything else.
const SALT: u64 = 0x4eac_7045_0f5e_7e45;
