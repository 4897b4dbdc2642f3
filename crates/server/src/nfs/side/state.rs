//! The state of the programs beside NFS version 3, and the notices after a restart of the server.

use std::collections::BTreeSet;
use std::net::IpAddr;

use dafs_nfs_wire::nsm::{NSM1, NotifyArgs, Procedure};
use dafs_nfs_wire::xdr::{Opaque, Writer, Xdr};

use super::blocked::Blocked;
use super::callbacks::{Callback, Callbacks};
use super::hosts::{self, Hosts};
use crate::nfs::config::NfsConfig;
use crate::reactor::Shared;

/// The state of the programs beside NFS version 3.
#[derive(Debug)]
pub(in crate::nfs) struct Side {
    pub(super) hosts: Hosts,
    pub(super) blocked: Blocked,
    pub(super) callbacks: Callbacks,
    /// The state number of this server's status monitor. It is odd, and grows with each start.
    pub(super) monitor: u32,
}

impl Side {
    /// Creates the state. After a restart, tells the hosts that had locks to reclaim them.
    pub(in crate::nfs) fn new(config: &NfsConfig, shared: &Shared) -> Self {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut side = Self {
            hosts: Hosts::default(),
            blocked: Blocked::default(),
            callbacks: Callbacks::new(config.rpcbind_port),
            monitor: since.as_secs() as u32 | 1,
        };
        if shared.filer.is_in_grace() {
            let records = shared.filer.client_records();
            let addresses: BTreeSet<_> =
                records.iter().filter_map(|record| hosts::address_in(&record.name)).collect();
            for address in addresses {
                side.callbacks.send(notice(address, side.monitor));
            }
        }
        side
    }
}

/// Returns the call that tells a host that this server has restarted.
fn notice(address: IpAddr, state: u32) -> Callback {
    let system = rustix::system::uname();
    let host = Opaque(system.nodename().to_bytes());
    let mut writer = Writer::new();
    NotifyArgs { host, state }.encode(&mut writer);
    Callback {
        number: 0,
        address,
        program: NSM1.number,
        version: NSM1.version,
        procedure: Procedure::Notify.number(),
        arguments: writer.bytes().to_vec(),
    }
}
