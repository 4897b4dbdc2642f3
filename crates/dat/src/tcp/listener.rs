//! The listening TCP socket, and the socket of a connect.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::Connection;
use crate::spare::Spare;
use crate::{Address, AddressError, ListenerId, TlsServer};

/// A socket that listens on a TCP address.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
    tls: Option<TlsServer>,
    spare: Spare,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr, tls: Option<TlsServer>) -> Result<Self, AddressError> {
        let failed = |error: rustix::io::Errno| AddressError::System {
            address: Address::Tcp(address),
            source: error.into(),
        };
        let socket = listening_socket(address).map_err(failed)?;
        let bound = rustix::net::getsockname(&socket).map_err(failed)?;
        let address = SocketAddr::try_from(bound).unwrap_or(address);
        Ok(Self { socket, address, tls, spare: Spare::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(self.address)
    }

    /// Returns the number of peers that were turned away because no descriptors were free.
    pub(crate) fn turned_away(&self) -> u64 {
        self.spare.turned_away()
    }

    pub(crate) fn accept(&mut self, id: ListenerId, deadline: Instant) -> Option<Connection> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listening = &self.socket;
        let (socket, peer) =
            self.spare.accept(|| rustix::net::acceptfrom_with(listening, flags), drop)?;
        sockopt::set_tcp_nodelay(&socket, true).ok()?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(self.address);
        Some(Connection::inbound(socket, id, peer, self.tls.as_ref(), deadline))
    }
}

/// Returns a socket that listens on an address.
pub(crate) fn listening_socket(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = socket(&address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Returns a socket whose connect is in progress.
pub(super) fn connect(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = socket(address)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

fn socket(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// The number of connections that may wait to be accepted. The kernel limits it to
/// `net.core.somaxconn`, which has the same default. A client beyond this limit tries again after a
/// second.
const BACKLOG: i32 = 4096;
