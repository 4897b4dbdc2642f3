//! The configuration of interfaces and endpoints.

use std::io;
use std::time::Duration;

use crate::shm::SocketTrust;
use crate::wait::WaitPolicy;
use crate::{AcceptGroup, EndpointId, MpaOptions, OWNERS_MAX, TlsServer, TlsTarget, sim};

/// The configuration of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// The limits of spinning before a sleep.
    pub wait: WaitPolicy,
    /// A number below [`OWNERS_MAX`](crate::OWNERS_MAX) that every [`EndpointId`] of this interface
    /// contains. The interfaces of one process need different numbers.
    pub owner: u8,
    /// The group with which the interface shares inbound connections. Each member needs a different
    /// `owner`.
    pub group: Option<AcceptGroup>,
    /// The maximum number of endpoints, including pending ones; at most 1,048,576.
    pub endpoints_max: usize,
    /// The maximum time that a connect or an accept may take.
    pub connect_timeout: Duration,
    /// The maximum number of bytes that all connections together may occupy before they are
    /// established: partial messages of the TLS handshake, and replies that peers have not read.
    /// Above this limit, connections of the user or host that occupies most are closed.
    pub unfinished_bytes_max: usize,
    /// The simulated network, needed for [`Address::Sim`](crate::Address::Sim).
    pub sim: Option<sim::Network>,
    /// The TLS settings for clients that connect to a TCP listener and begin with TLS.
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
    /// Checks that the configured values are within their limits.
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

/// The configuration of one endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The maximum length in bytes of a sent or received message.
    pub message_bytes_max: u32,
    /// The maximum number of receives that may be posted at a time.
    pub receives_max: u32,
    /// The maximum number of outstanding sends, writes and reads together.
    pub work_max: u32,
    /// The maximum number of RDMA reads in flight, in each direction.
    pub read_depth: u16,
    /// True to request a CRC in iWARP frames. A CRC is used if either side requests it. Over TLS,
    /// which detects all damage itself, this side never requests a CRC.
    pub crc: bool,
    /// The MPA options of the side that connects over TCP.
    pub mpa: MpaOptions,
    /// The TLS settings of the side that connects over TCP; `None` to connect without TLS. Ignored
    /// by the accepting side and by other transports.
    pub tls: Option<TlsTarget>,
    /// For the side that connects to a Unix socket: the users whose servers it trusts.
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
