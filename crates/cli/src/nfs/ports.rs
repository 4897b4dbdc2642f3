//! The ports that every user of this machine can open.
//!
//! NFS clients must have a port below 1024, so that the users of a machine cannot act as others.
//! That holds only if the kernel of the machine reserves these ports for the superuser. This server
//! knows that of its own machine alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use dafs_server::{NfsClients, NfsPeers, NfsRules, Origin, PRIVILEGED_PORTS};

/// Returns the lowest port that every user of this machine can open. `None` if it is unknown.
pub(super) fn open_to_all() -> Option<u16> {
    std::fs::read_to_string(SETTING).ok()?.trim().parse().ok()
}

/// Returns a warning if clients of this machine must have a port below 1024, and every user can
/// open such a port. `open` is the lowest port that every user can open.
pub(super) fn risk(rules: &NfsRules, open: Option<u16>) -> Option<String> {
    let open = open.filter(|open| *open < PRIVILEGED_PORTS)?;
    let trusts_ports = |entry: &NfsClients| entry.sys_terms().is_some_and(|(_, any)| !any);
    let found = rules.entries().find(|entry| trusts_ports(entry) && serves_this_machine(entry))?;
    let NfsClients { clients, source, .. } = found;
    Some(format!(
        "nfs: any user of this machine can act as other users ({clients}, {source}), because \
        every user can open ports from {open} on; set net.ipv4.ip_unprivileged_port_start to \
        {PRIVILEGED_PORTS}"
    ))
}

/// Returns true if an entry names this machine by one of its addresses.
fn serves_this_machine(entry: &NfsClients) -> bool {
    match &entry.who {
        NfsPeers::Anyone => true,
        NfsPeers::Addresses(origins) => origins.iter().any(has_own_address),
        // The name of this machine is not looked up.
        NfsPeers::Named(_) => false,
    }
}

/// Returns true if an origin contains the address from which this machine would send to it.
fn has_own_address(origin: &Origin) -> bool {
    let Origin::Network { address, .. } = origin else { return false };
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // This sends nothing: the system only chooses the address to send from.
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((*address, DISCARD))?;
        socket.local_addr()
    });
    own.is_ok_and(|own| origin.has_address(own.ip()))
}

/// The kernel's setting, which holds for both versions of IP.
const SETTING: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// A port for a datagram that is never sent.
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use dafs_server::{Flavor, FlavorTerms, PartialTerms};

    use super::*;

    #[test]
    fn low_ports_that_all_may_open_are_a_risk_where_they_are_asked_for() {
        let own = NfsRules::default();
        assert_eq!(risk(&own, Some(1024)), None);
        assert_eq!(risk(&own, None), None);
        let told = risk(&own, Some(80)).unwrap();
        assert!(told.contains("(localhost, default)") && told.contains("from 80 on"), "{told}");
        // Who serves all ports is warned of that.
        assert_eq!(risk(&NfsRules::for_all(Vec::new(), true), Some(80)), None);
        // These addresses are for documentation, so they are not of this machine.
        let others = vec!["192.0.2.77".parse().unwrap(), "2001:db8::/64".parse().unwrap()];
        assert_eq!(risk(&NfsRules::for_all(others, false), Some(80)), None);
        let own = vec!["192.0.2.77".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
        let mut own = NfsRules::for_all(own, false);
        assert!(risk(&own, Some(80)).is_some());
        // Kerberos proves who calls, so the port does not matter.
        let terms = PartialTerms::default();
        own.others[0].flavors = vec![FlavorTerms { flavor: Flavor::Krb5, terms, any_port: false }];
        assert_eq!(risk(&own, Some(80)), None);
    }
}
