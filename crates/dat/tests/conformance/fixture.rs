//! What a provider needs to be tested by the suite.
//!
//! Invariant: every world is new. No two tests share a listener, a path or a network.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dafs_dat::sim::{Network, NetworkConfig};
use dafs_dat::{Address, EndpointConfig, InterfaceConfig, TlsServer, TlsTarget};

use crate::certificates::Authority;

/// A provider under test.
pub(crate) trait Fixture {
    /// Creates a world for one test. `seed` matters for simulated networks.
    fn world(&self, seed: u64) -> World;
}

/// Everything needed to connect two interfaces.
pub(crate) struct World {
    /// The address at which the acceptor listens.
    pub address: Address,
    /// An address at which nothing listens.
    pub nowhere: Address,
    /// The configuration of the connecting side.
    pub initiator: InterfaceConfig,
    /// The configuration of the listening side.
    pub acceptor: InterfaceConfig,
    /// The limits of the provider's endpoints.
    pub endpoint: EndpointConfig,
    /// Present if connections go through a proxy that cuts the stream by this seed.
    pub dribbles: Option<u64>,
    /// The simulated network, if the provider is `sim`.
    pub network: Option<Network>,
    /// The number of bytes of private data that a connect can carry.
    pub private_bytes_max: usize,
    scratch: Option<PathBuf>,
}

impl World {
    fn real(address: Address, nowhere: Address, crc: bool) -> Self {
        let config = InterfaceConfig {
            connect_timeout: Duration::from_secs(5),
            ..InterfaceConfig::default()
        };
        Self {
            address,
            nowhere,
            initiator: config.clone(),
            acceptor: config,
            endpoint: EndpointConfig { crc, ..EndpointConfig::default() },
            dribbles: None,
            network: None,
            private_bytes_max: 512,
            scratch: None,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(path) = &self.scratch {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// The deterministic simulator.
pub(crate) struct Sim {
    /// See [`NetworkConfig::early_success_ppm`].
    pub early_success_ppm: u32,
    /// See [`NetworkConfig::in_flight_max`].
    pub in_flight_max: usize,
}

/// Shared memory on one host.
pub(crate) struct Shm;

/// Software iWARP over loopback.
#[allow(dead_code, reason = "switched on in main.rs once the provider passes")]
pub(crate) struct Tcp {
    /// True if frames carry a CRC.
    pub crc: bool,
}

/// Software iWARP through a proxy that forwards few or very many bytes at a time.
pub(crate) struct Dribbled {
    /// True if frames carry a CRC.
    pub crc: bool,
}

/// Software iWARP over TLS, with a certificate on each side.
pub(crate) struct Tls {
    /// True to use the same proxy as [`Dribbled`].
    pub dribbles: bool,
}

/// An RDMA device of this host, whose address is in [`VERBS_VARIABLE`].
pub(crate) struct Verbs;

impl Verbs {
    fn address(port: u16) -> Option<Address> {
        let text = std::env::var(VERBS_VARIABLE).ok()?;
        let ip = text.parse().unwrap_or_else(|_| panic!("{VERBS_VARIABLE}={text} is no address"));
        Some(Address::Verbs(std::net::SocketAddr::new(ip, port)))
    }

    fn is_software_iwarp() -> bool {
        let survey = dafs_dat::verbs::RdmaSurvey::take();
        survey.is_ok_and(|s| s.devices.first().is_some_and(|device| device.name.contains("siw")))
    }

    /// Returns why no device can be tested.
    fn excuse() -> Option<String> {
        if Self::address(0).is_some() {
            return None;
        }
        let devices = match dafs_dat::verbs::RdmaSurvey::take() {
            Ok(survey) if survey.devices.is_empty() => "this host has no RDMA device".to_owned(),
            Ok(survey) => format!("{} RDMA devices are here", survey.devices.len()),
            Err(unavailable) => unavailable.to_string(),
        };
        Some(format!("{VERBS_VARIABLE} names no address of an RDMA device ({devices})"))
    }
}

impl Fixture for Verbs {
    fn world(&self, _seed: u64) -> World {
        let at = |port| Self::address(port).expect("an address");
        let mut world = World::real(at(0), at(9), false);
        world.private_bytes_max = 54;
        world
    }
}

/// The variable with the IP address of the RDMA device to test.
const VERBS_VARIABLE: &str = "DAFS_VERBS_ADDRESS";

impl Fixture for Tls {
    fn world(&self, seed: u64) -> World {
        // All tests share them, because they do not depend on the test.
        static SIDES: LazyLock<(TlsServer, TlsTarget)> = LazyLock::new(|| {
            let authority = Authority::new();
            (authority.server(true), authority.target())
        });
        let mut world = Tcp { crc: false }.world(seed);
        world.dribbles = self.dribbles.then_some(seed);
        world.acceptor.tls = Some(SIDES.0.clone());
        world.endpoint.tls = Some(SIDES.1.clone());
        world
    }
}

impl Fixture for Dribbled {
    fn world(&self, seed: u64) -> World {
        let mut world = Tcp { crc: self.crc }.world(seed);
        world.dribbles = Some(seed);
        world
    }
}

impl Fixture for Sim {
    fn world(&self, seed: u64) -> World {
        let network = Network::new(NetworkConfig {
            early_success_ppm: self.early_success_ppm,
            in_flight_max: self.in_flight_max,
            ..NetworkConfig::new(seed)
        });
        let mut world = World::real(Address::sim(ACCEPTOR), Address::sim(NOBODY), false);
        world.initiator.sim = Some(network.at(INITIATOR));
        world.acceptor.sim = Some(network.at(ACCEPTOR));
        world.network = Some(network);
        world
    }
}

impl Fixture for Shm {
    fn world(&self, _seed: u64) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dafs-dat-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        let address = Address::Shm(path.join("listener"));
        let mut world = World::real(address, Address::Shm(path.join("nobody")), false);
        world.scratch = Some(path);
        world
    }
}

impl Fixture for Tcp {
    fn world(&self, _seed: u64) -> World {
        let any = ([127, 0, 0, 1], 0).into();
        // The discard port of a loopback address that nothing else uses.
        let nowhere = ([127, 0, 0, 9], 9).into();
        World::real(Address::Tcp(any), Address::Tcp(nowhere), self.crc)
    }
}

/// Returns why a provider need not pass a case, if it need not.
pub(crate) fn excuse(provider: &str, case: &str) -> Option<String> {
    if provider.ends_with("::verbs")
        && let Some(why) = Verbs::excuse()
    {
        return Some(why);
    }
    if provider.ends_with("::verbs") && SHARING.contains(&case) {
        return Some("RDMA devices' connections stay with the interface that listens".to_owned());
    }
    let excuses = if provider.ends_with("::verbs") && Verbs::is_software_iwarp() {
        &SOFTWARE_IWARP[..]
    } else {
        &EXCUSES[..]
    };
    excuses
        .iter()
        .find(|(module, excused, _)| provider.ends_with(module) && *excused == case)
        .map(|(_, _, why)| (*why).to_owned())
}

/// Provider, case, and the reason why the case does not apply.
const EXCUSES: [(&str, &str, &str); 3] = [
    ("tcp_dribbled", "the_limit_of_endpoints_holds", HELD_BACK),
    ("tcp_dribbled_crc", "the_limit_of_endpoints_holds", HELD_BACK),
    ("tls_dribbled", "the_limit_of_endpoints_holds", HELD_BACK),
];
const HELD_BACK: &str = "it counts what has arrived, and a proxy holds that back";

/// The cases about interfaces that share connections.
const SHARING: [&str; 4] = [
    "connections_to_one_address_are_shared_evenly",
    "a_member_that_never_looks_keeps_nobody_waiting",
    "a_member_that_is_dropped_takes_its_connections_along",
    "a_connection_that_is_discounted_takes_nobodys_place",
];

/// The same for the kernel's software iWARP, siw.
const SOFTWARE_IWARP: [(&str, &str, &str); 2] = [
    ("verbs", "a_refused_read_breaks_and_moves_nothing", "siw grants reads of all that has a name"),
    ("verbs", "a_send_invalidates_a_region", "siw does not tell what a message has invalidated"),
];

/// The number of the node that connects.
pub(crate) const INITIATOR: u32 = 1;
/// The number of the node that listens.
pub(crate) const ACCEPTOR: u32 = 2;
const NOBODY: u32 = 3;
