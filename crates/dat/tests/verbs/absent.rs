//! On a host without a device or library, the provider's errors say so and what to do.

use std::os::fd::AsFd;

use dafs_dat::verbs::RdmaSurvey;
use dafs_dat::{
    Address, AddressError, DmabufError, DmabufRange, Domain, EndpointConfig, Interface,
    InterfaceConfig, Rights,
};

use crate::connect;

/// True if this host has a device, so that nothing is missing.
fn has_device() -> bool {
    RdmaSurvey::take().is_ok_and(|survey| !survey.devices.is_empty())
}

#[test]
fn a_host_without_devices_says_what_is_missing() {
    if has_device() {
        return dafs_tests::skip("this host has an RDMA device");
    }
    let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
    let address = Address::Verbs(([127, 0, 0, 1], 2050).into());
    let listening = interface.listen(&address).unwrap_err();
    let config = EndpointConfig::default();
    let connecting = interface.connect(&address, Domain(0), &config, b"").unwrap_err();
    for error in [listening, connecting] {
        assert!(matches!(error, AddressError::Verbs(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("dafs doctor") || text.contains("install"), "{text}");
    }
    assert_eq!(interface.endpoint_count(), 0);
}

#[test]
fn a_dmabuf_is_nothing_to_a_connection_without_a_device() {
    let place = tempfile::tempdir().unwrap();
    let address = Address::Shm(place.path().join("socket"));
    let mut server = Interface::new(InterfaceConfig::default()).unwrap();
    let mut client = Interface::new(InterfaceConfig::default()).unwrap();
    server.listen(&address).unwrap();
    let endpoint = connect(&mut server, &mut client, &address);
    let file = std::fs::File::open("/dev/null").unwrap();
    let dmabuf = DmabufRange { fd: file.as_fd(), offset: 0, length: 4096 };
    let refused = client.register_dmabuf(endpoint, dmabuf, Rights::REMOTE);
    assert!(matches!(refused, Err(DmabufError::Transport)), "{refused:?}");
    assert_eq!(client.region_count(), 0);
    client.release(endpoint);
    let refused = client.register_dmabuf(endpoint, dmabuf, Rights::REMOTE);
    assert!(matches!(refused, Err(DmabufError::NotConnected)), "{refused:?}");
}
