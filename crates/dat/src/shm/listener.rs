//! The Unix socket that clients on this host connect to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::binding;
use super::found::{FoundSocket, SocketTrust};
use super::{Connection, remote};
use crate::spare::Spare;
use crate::{Address, AddressError, ListenerId, disposal};

/// A Unix socket that listens at a path. Dropping the listener removes the socket file.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The listening socket; `None` only during drop.
    socket: Option<OwnedFd>,
    path: PathBuf,
    spare: Spare,
}

impl Listener {
    /// Binds the socket and listens. Replaces a socket file on which no process listens; a file
    /// with a live listener is an error.
    pub(crate) fn bind(path: &Path) -> Result<Self, AddressError> {
        Self::try_bind(path).map_err(|error| AddressError::System {
            address: Address::Shm(path.to_path_buf()),
            source: error.into(),
        })
    }

    fn try_bind(path: &Path) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = binding::bind(path, SocketType::SEQPACKET, flags)?;
        rustix::net::listen(&socket, BACKLOG)?;
        remote::learn_limits();
        Ok(Self { socket: Some(socket), path: path.to_path_buf(), spare: Spare::new() })
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn address(&self) -> Address {
        Address::Shm(self.path.clone())
    }

    /// Returns the number of peers that were turned away because no descriptors were free.
    pub(crate) fn turned_away(&self) -> u64 {
        self.spare.turned_away()
    }

    pub(crate) fn accept(&mut self, id: ListenerId, deadline: Instant) -> Option<Connection> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listening = self.socket.as_ref()?;
        // A peer may have sent descriptors before it was accepted; this thread must not close them.
        let accept = || rustix::net::accept_with(listening, flags);
        let socket = self.spare.accept(accept, disposal::socket)?;
        Some(Connection::inbound(socket, id, self.path.clone(), deadline))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
        // Peers that were not accepted yet may have sent descriptors, so `disposal` closes the
        // socket.
        if let Some(socket) = self.socket.take() {
            disposal::socket(socket);
        }
    }
}

/// Returns a control socket connected to a server that `trust` allows.
pub(super) fn connect_by(path: &Path, trust: SocketTrust) -> std::io::Result<OwnedFd> {
    let found = match trust {
        SocketTrust::Named => return Ok(connect(path)?),
        SocketTrust::Found => FoundSocket::look(path)?,
        SocketTrust::OfUser(user) => FoundSocket::look_at_place_of(path, user)?,
    };
    let found = found.ok_or(rustix::io::Errno::NOENT)?;
    let socket = connect(&found.path())?;
    found.judge(&socket, path)?;
    Ok(socket)
}

/// Returns a connected control socket.
pub(super) fn connect(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

/// The number of connections that may wait to be accepted. The kernel limits it to
/// `net.core.somaxconn`, which has the same default. A connect beyond it fails immediately.
const BACKLOG: i32 = 4096;
