//! The traffic of NFS clients, for the statistics of the server.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{Front, Link};
use crate::guests::GuestRead;
use crate::meter::nfs::{NfsClientNumbers, NfsTransport};
use crate::nfs::calls;
use crate::nfs::gss::Route;
use crate::reactor::Reactor;

impl Front {
    /// Updates the traffic of clients in the statistics from time to time.
    pub(super) fn publish_clients(&mut self, reactor: &mut Reactor<'_>) {
        let now = reactor.shared.life.now();
        if now.since(self.published) < PUBLISHING {
            return;
        }
        self.published = now;
        if let Some(meter) = reactor.shared.meter.nfs() {
            meter.clients = self.clients();
        }
    }

    /// Returns the machines that are connected, and their traffic.
    fn clients(&self) -> Vec<NfsClientNumbers> {
        let mut found: BTreeMap<IpAddr, NfsClientNumbers> = BTreeMap::new();
        for link in self.links.iter().flatten() {
            let address = link.traffic.address;
            let client = found.entry(address).or_insert(NfsClientNumbers::none(address));
            client.add_connection(self.transport_of(link), &link.traffic);
        }
        found.into_values().collect()
    }

    fn transport_of(&self, link: &Link) -> NfsTransport {
        match self.connections.is_rdma(link.id) {
            true => NfsTransport::Rdma,
            false if link.is_datagram => NfsTransport::Udp,
            false if self.connections.is_tls(link.id) => NfsTransport::Tls,
            false => NfsTransport::Tcp,
        }
    }

    /// Counts the reply that is in the writer.
    pub(super) fn count_reply(
        &mut self,
        reactor: &mut Reactor<'_>,
        to: &Route,
        reads: &[GuestRead],
    ) {
        let read_bytes = reads.iter().map(|read| u64::from(read.length())).sum();
        let mut address = None;
        if let Some(link) = self.link(to.link) {
            link.traffic.read_bytes += read_bytes;
            link.traffic.written_bytes += u64::from(to.note.written());
            address = Some(link.traffic.address);
        }
        let results = calls::results_of(self.writer.bytes());
        reactor.shared.meter.end_nfs(&to.note, results, read_bytes, address);
    }
}

/// The time between two updates of the traffic of clients. With thousands of connections, an update
/// takes a fraction of a millisecond.
const PUBLISHING: Duration = Duration::from_millis(250);
