//! The connections of NFS clients in a simulated network.
//!
//! Invariant: nothing here reads the clock of the machine or uses its sockets.

use std::time::Duration;

use dafs_dat::sim::Network;
use dafs_dat::{WaitPolicy, Waker};
use dafs_types::Moment;

use super::connections::Connections;
use super::{Front, NfsConfig, Shared};
use crate::config::ServerError;

impl Front {
    /// Listens on a port of a node of a simulated network.
    pub(crate) fn simulated(
        (network, port): (&Network, u16),
        config: &NfsConfig,
        waker: Waker,
        shared: &mut Shared,
    ) -> Result<Self, ServerError> {
        let what = "creating the NFS interface";
        let connections = Connections::new(WaitPolicy { spin_max: Duration::ZERO });
        let mut connections = connections.map_err(|source| ServerError::System { what, source })?;
        connections.records().listen_simulated(network, port)?;
        Ok(Self::over(connections, config, None, waker, shared))
    }

    /// Sends replies and receives calls.
    pub(in crate::nfs) fn receive_at(&mut self, now: Moment) {
        self.connections.records().poll_at(Duration::from_nanos(now.0));
    }

    /// Returns true if there are calls or connections to handle, or replies to send.
    pub(in crate::nfs) fn is_busy(&mut self) -> bool {
        self.connections.records().is_busy()
    }
}
