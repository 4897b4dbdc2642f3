//! Features that need a device and exist on no other transport: dmabufs.

use std::os::fd::AsFd;

use dafs_dat::{Address, DmabufError, DmabufRange, Interface, InterfaceConfig, Rights};

use crate::connect;

/// Returns the address of the device to test; the conformance suite uses the same variable.
fn address() -> Option<Address> {
    let ip = std::env::var("DAFS_VERBS_ADDRESS").ok()?;
    let ip = ip.parse().expect("DAFS_VERBS_ADDRESS is no address");
    Some(Address::Verbs(std::net::SocketAddr::new(ip, 0)))
}

#[test]
fn a_device_that_takes_no_dmabuf_says_which_would() {
    let Some(address) = address() else {
        return dafs_tests::skip("DAFS_VERBS_ADDRESS names no RDMA device");
    };
    let mut server = Interface::new(InterfaceConfig::default()).unwrap();
    let mut client = Interface::new(InterfaceConfig::default()).unwrap();
    let listener = server.listen(&address).unwrap();
    let address = server.listener_address(listener).unwrap();
    let endpoint = connect(&mut server, &mut client, &address);
    // This is not a dmabuf, so every device refuses it.
    let file = std::fs::File::open("/dev/null").unwrap();
    let dmabuf = DmabufRange { fd: file.as_fd(), offset: 0, length: 4096 };
    let refused = client.register_dmabuf(endpoint, dmabuf, Rights::REMOTE).unwrap_err();
    assert!(matches!(refused, DmabufError::Device { .. }), "{refused:?}");
    assert!(refused.to_string().contains("mlx5"), "{refused}");
    assert_eq!(client.region_count(), 0);
}
