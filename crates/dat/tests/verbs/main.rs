//! Tests of the verbs provider beyond the conformance suite: the declarations of the C libraries'
//! structures, and the errors on a host without a device.

mod absent;
mod device;
mod layout;

use dafs_dat::{Address, Domain, EndpointConfig, EndpointId, Event, Interface};

/// Connects two interfaces; `server` listens at an address.
fn connect(server: &mut Interface, client: &mut Interface, address: &Address) -> EndpointId {
    let config = EndpointConfig::default();
    let endpoint = client.connect(address, Domain(0), &config, b"").unwrap();
    loop {
        server.poll();
        client.poll();
        if let Some(Event::ConnectionRequest { pending, .. }) = server.next_event() {
            server.accept(pending, Domain(0), &config, b"");
        }
        match client.next_event() {
            Some(Event::Established { .. }) => return endpoint,
            Some(other) => panic!("not connected: {other:?}"),
            None => {}
        }
    }
}
