//! A simulated node that consists of several interfaces, like a server with several reactors.

use std::io::ErrorKind;

use dafs_dat::sim::{ConnectionInfo, Network, NetworkConfig};
use dafs_dat::{
    Address, AddressError, BreakReason, EndpointConfig, EndpointId, Event, Interface,
    InterfaceConfig, ListenerId,
};

use crate::pair::DOMAIN;

const SERVER: u32 = 1;
const CLIENT: u32 = 2;
const PORTS: u16 = 3;

/// A server of several interfaces, and a client.
struct Ports {
    network: Network,
    /// Indexed by port.
    servers: Vec<(Interface, ListenerId)>,
    client: Interface,
}

fn interface(network: &Network, node: u32) -> Interface {
    let config = InterfaceConfig { sim: Some(network.at(node)), ..InterfaceConfig::default() };
    Interface::new(config).unwrap()
}

fn at(port: u16) -> Address {
    Address::Sim { node: SERVER, port }
}

impl Ports {
    fn new(seed: u64) -> Self {
        let network = Network::new(NetworkConfig::new(seed));
        let listen = |port| {
            let mut interface = interface(&network, SERVER);
            let listener = interface.listen(&at(port)).expect("a free port");
            assert_eq!(interface.listener_address(listener), Some(at(port)));
            (interface, listener)
        };
        let servers = (0..PORTS).map(listen).collect();
        let client = interface(&network, CLIENT);
        Self { network, servers, client }
    }

    fn connect(&mut self, port: u16) -> EndpointId {
        let config = EndpointConfig::default();
        let said = port.to_be_bytes();
        self.client.connect(&at(port), DOMAIN, &config, &said).expect("a connect begun")
    }

    /// Runs the network until it is quiet. Servers accept. Returns the ports requested at each
    /// server, and the events of the client.
    fn settle(&mut self) -> (Vec<Vec<u16>>, Vec<Event>) {
        let (mut asked, mut heard) = (vec![Vec::new(); self.servers.len()], Vec::new());
        loop {
            for ((server, _), asked) in self.servers.iter_mut().zip(&mut asked) {
                server.poll();
                while let Some(event) = server.next_event() {
                    let Event::ConnectionRequest { pending, peer, private_data, .. } = event else {
                        continue;
                    };
                    assert_eq!(peer.address, Address::sim(CLIENT));
                    asked.push(u16::from_be_bytes(private_data[..].try_into().unwrap()));
                    server.accept(pending, DOMAIN, &EndpointConfig::default(), b"");
                }
            }
            self.client.poll();
            heard.extend(std::iter::from_fn(|| self.client.next_event()));
            if !self.network.advance() {
                return (asked, heard);
            }
        }
    }
}

fn is_unreachable(event: &Event) -> bool {
    matches!(event, Event::Broken { reason: BreakReason::Unreachable(_), .. })
}

#[test]
fn each_interface_of_a_node_hears_who_connects_to_its_port() {
    let run = |seed| {
        let mut ports = Ports::new(seed);
        for port in [2, 0, 1, 2] {
            ports.connect(port);
        }
        let (asked, heard) = ports.settle();
        assert_eq!(asked, [vec![0], vec![1], vec![2, 2]]);
        let established = |event: &&Event| matches!(event, Event::Established { .. });
        assert_eq!(heard.iter().filter(established).count(), 4);
        let to = |info: &ConnectionInfo| (info.initiator, info.acceptor, info.port);
        let connections: Vec<_> = ports.network.connections().iter().map(to).collect();
        assert_eq!(connections, [2, 0, 1, 2].map(|port| (CLIENT, SERVER, port)));
        ports.network.trace_hash()
    };
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "the same seed gives the same run");
    }
}

#[test]
fn a_port_has_one_listener() {
    let mut ports = Ports::new(1);
    let mut other = interface(&ports.network, SERVER);
    let refused = other.listen(&at(1));
    let Err(AddressError::System { address, source }) = refused else {
        panic!("two listeners on one port: {refused:?}");
    };
    assert_eq!((address, source.kind()), (at(1), ErrorKind::AddrInUse));
    // Another node has its own ports, and a port that is released is free.
    other.listen(&Address::Sim { node: CLIENT, port: 1 }).unwrap();
    let (server, listener) = &mut ports.servers[1];
    server.unlisten(*listener);
    other.listen(&at(1)).unwrap();
}

#[test]
fn where_nobody_listens_nobody_answers_and_other_ports_do() {
    let mut ports = Ports::new(1);
    ports.connect(PORTS);
    let (asked, heard) = ports.settle();
    assert!(asked.concat().is_empty() && heard.iter().any(is_unreachable), "{heard:?}");
    let (server, listener) = &mut ports.servers[1];
    server.unlisten(*listener);
    for port in 0..PORTS {
        ports.connect(port);
    }
    let (asked, heard) = ports.settle();
    assert_eq!(asked, [vec![0], vec![], vec![2]]);
    assert_eq!(heard.iter().filter(|event| is_unreachable(event)).count(), 1, "{heard:?}");
}

#[test]
fn all_interfaces_of_a_node_die_with_it() {
    let mut ports = Ports::new(1);
    for port in 0..PORTS {
        ports.connect(port);
    }
    let (asked, _) = ports.settle();
    assert_eq!(asked.concat().len(), usize::from(PORTS));
    ports.network.kill_node(SERVER);
    let (_, heard) = ports.settle();
    let broken = |event: &&Event| matches!(event, Event::Broken { .. });
    assert_eq!(heard.iter().filter(broken).count(), usize::from(PORTS));
    ports.network.restart_node(SERVER);
    // The next incarnation listens, although the listeners of the last one are dropped only now.
    let last = std::mem::take(&mut ports.servers);
    for port in 0..PORTS {
        let mut server = interface(&ports.network, SERVER);
        let listener = server.listen(&at(port)).expect("a port that is free again");
        ports.servers.push((server, listener));
    }
    drop(last);
    for port in 0..PORTS {
        ports.connect(port);
    }
    let (asked, _) = ports.settle();
    assert_eq!(asked, [vec![0], vec![1], vec![2]]);
}
