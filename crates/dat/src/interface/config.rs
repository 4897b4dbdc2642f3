//! What the maker of an interface, or of an endpoint, says about it.

use std::io;
use std::time::Duration;

use crate::shm::SocketTrust;
use crate::wait::WaitPolicy;
use crate::{AcceptGroup, EndpointId, MpaOptions, OWNERS_MAX, TlsServer, TlsTarget, sim};

/// Limits and habits of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// When to spin and when to sleep.
    pub wait: WaitPolicy,
    /// Whose interface it is, below [`OWNERS_MAX`](crate::OWNERS_MAX): every [`EndpointId`] of it
    /// says so. Where a process has several interfaces, each has another.
    pub owner: u8,
    /// Whom it shares the connections with that come to their listeners. Each has another owner.
    pub group: Option<AcceptGroup>,
    /// Most endpoints, pending ones included; 1,048,576 at most.
    pub endpoints_max: usize,
    /// Longest time a connect or an accept may take.
    pub connect_timeout: Duration,
    /// Most bytes that all connections together hold that do not stand yet: halves of messages
    /// by which TLS begins, and answers that peers do not take. Beyond them the connections of
    /// whoever has most are ended.
    pub unfinished_bytes_max: usize,
    /// The simulated network, for [`Address::Sim`](crate::Address::Sim).
    pub sim: Option<sim::Network>,
    /// TLS for whoever connects to a listener over TCP and begins with it.
    pub tls: Option<TlsServer>,
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self {
            wait: WaitPolicy::default(),
            owner: 0,
            group: None,
            endpoints_max: 16_384,
            connect_timeout: Duration::from_secs(10),
            unfinished_bytes_max: 16 << 20,
            sim: None,
            tls: None,
        }
    }
}

impl InterfaceConfig {
    /// Whether there can be such an interface.
    pub(super) fn check(&self) -> io::Result<()> {
        let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if usize::from(self.owner) >= OWNERS_MAX {
            return refused(format!("owner {} is not below {OWNERS_MAX}", self.owner));
        }
        if self.endpoints_max > EndpointId::COUNT_MAX {
            let (wanted, most) = (self.endpoints_max, EndpointId::COUNT_MAX);
            return refused(format!("an interface has at most {most} endpoints, not {wanted}"));
        }
        Ok(())
    }
}

/// Limits of one endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Longest message, sent or received, in bytes.
    pub message_bytes_max: u32,
    /// Most posted receives.
    pub receives_max: u32,
    /// Most outstanding sends, writes and reads together.
    pub work_max: u32,
    /// Most RDMA reads under way at once, in either direction.
    pub read_depth: u16,
    /// Whether iWARP frames carry a CRC (either side's wish decides). Over TLS, which
    /// leaves it nothing to find, this side does not ask for it.
    pub crc: bool,
    /// How the side that connects over TCP begins.
    pub mpa: MpaOptions,
    /// The side that connects over TCP speaks TLS, and with whom. Nothing to the side that
    /// accepts, nor to other transports.
    pub tls: Option<TlsTarget>,
    /// Whose server the side that connects to a Unix socket talks to.
    pub socket_trust: SocketTrust,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            message_bytes_max: 64 * 1024,
            receives_max: 512,
            work_max: 4096,
            read_depth: 64,
            crc: false,
            mpa: MpaOptions::default(),
            tls: None,
            socket_trust: SocketTrust::default(),
        }
    }
}
