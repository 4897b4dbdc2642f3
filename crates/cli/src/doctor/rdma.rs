//! The report of `dafs doctor` on RDMA devices.

use dafs_dat::Address;
use dafs_dat::verbs::{Device, RdmaSurvey};

use super::Findings;

/// Reports the RDMA devices. A host without RDMA devices is not a problem.
pub(super) fn look(findings: &mut Findings) {
    let survey = match RdmaSurvey::take() {
        Ok(survey) => survey,
        Err(error) => return findings.note(&format!("rdma: none: {}", join(&error))),
    };
    for name in &survey.without_provider {
        findings.bad(&format!(
            "rdma: the system's library has no provider for {name}: install ibverbs-providers"
        ));
    }
    if survey.devices.is_empty() {
        return findings.note("rdma: this host has no device");
    }
    if !survey.has_connection_manager {
        findings.bad("rdma: no /dev/infiniband/rdma_cm: modprobe rdma_ucm");
    }
    for device in &survey.devices {
        look_at(findings, device);
    }
    match survey.lock_bytes_max {
        Some(bytes) if bytes < LOCK_BYTES_MIN => findings.slow(&format!(
            "rdma: at most {} KiB may be locked in memory; a client locks its buffers, a server \
             its cache: raise LimitMEMLOCK, or ulimit -l",
            bytes >> 10
        )),
        _ => {}
    }
    if survey.devices.iter().any(|device| device.protocol() == "RoCE") {
        findings.note(
            "rdma: RoCE needs a lossless network: priority flow control or ECN on the switches \
            and here (dcb pfc show, mlnx_qos), and MTUs that fit",
        );
    }
}

fn look_at(findings: &mut Findings, device: &Device) {
    let (name, protocol) = (&device.name, device.protocol());
    for port in &device.ports {
        let mtu = port.mtu.map_or("?".to_owned(), |bytes| bytes.to_string());
        let what = format!("rdma: {name} port {} ({protocol}): {}", port.number, port.state);
        if port.is_active() {
            findings.good(&format!("{what}, MTU {mtu}"));
        } else {
            findings.note(&format!("{what}: not usable now"));
        }
        if device.is_iwarp {
            continue;
        }
        for gid in &port.gids {
            let (address, kind, interface) = (gid.address(), &gid.kind, &gid.interface);
            findings.note(&format!("rdma: {name} is {address} ({kind}) {interface}"));
        }
        if protocol == "RoCE" && !port.gids.iter().any(|gid| gid.kind == "RoCE v2") {
            findings.bad(&format!(
                "rdma: {name} has no GID for RoCE v2: give {name} an IP \
            address"
            ));
        }
    }
}

/// Reports whether NFS clients could be served over RDMA at this address.
pub(super) fn look_at_nfs(findings: &mut Findings, address: &Address) {
    let Address::Verbs(wanted) = address else {
        return findings.good(&format!(
            "NFS over RDMA at {address}: software iWARP, which needs no RDMA device here; the \
            clients need one that uses iWARP"
        ));
    };
    let devices = RdmaSurvey::take().map(|survey| survey.devices).unwrap_or_default();
    let has_address = |device: &&Device| {
        let mut gids = device.ports.iter().flat_map(|port| &port.gids);
        wanted.ip().is_unspecified() || gids.any(|gid| gid.address() == wanted.ip())
    };
    match devices.iter().find(has_address) {
        Some(device) => {
            findings.good(&format!("NFS over RDMA at {address}: device {}", device.name));
        }
        // The GIDs of a device that uses iWARP are no addresses.
        None if devices.iter().any(|device| device.is_iwarp) => findings.note(&format!(
            "NFS over RDMA at {address}: works if the address belongs to a device that uses iWARP"
        )),
        None => findings.bad(&format!(
            "NFS over RDMA at {address}: no RDMA device of this host has the address; without \
            verbs: the server uses iWARP in software"
        )),
    }
}

/// Returns the messages of an error and its sources in one line.
fn join(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", join(source)),
        None => error.to_string(),
    }
}

/// The number of bytes of locked memory below which only a few buffers can be registered.
const LOCK_BYTES_MIN: u64 = 64 << 20;
