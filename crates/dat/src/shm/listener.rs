//! The Unix socket that clients of this host connect to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::binding;
use super::found::{FoundSocket, SocketTrust};
use super::{Connection, remote};
use crate::spare::Spare;
use crate::{Address, AddressError, ListenerId, disposal};

/// Listens on a path; the socket file is removed when it goes.
#[derive(Debug)]
pub struct Listener {
    /// There until it is dropped.
    socket: Option<OwnedFd>,
    path: PathBuf,
    spare: Spare,
}

impl Listener {
    /// Binds and listens. A socket file that nobody listens on any more is replaced;
    /// one with a live listener is an error.
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

    /// Peers turned away for want of descriptors.
    pub(crate) fn turned_away(&self) -> u64 {
        self.spare.turned_away()
    }

    pub(crate) fn accept(&mut self, id: ListenerId, deadline: Instant) -> Option<Connection> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listening = self.socket.as_ref()?;
        // Before it was accepted, a peer may have sent what cannot be closed here.
        let accept = || rustix::net::accept_with(listening, flags);
        let socket = self.spare.accept(accept, disposal::socket)?;
        Some(Connection::inbound(socket, id, self.path.clone(), deadline))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
        // Who was not let in yet may have sent something.
        if let Some(socket) = self.socket.take() {
            disposal::socket(socket);
        }
    }
}

/// A control socket that is connected to whom that trust allows.
pub fn connect_by(path: &Path, trust: SocketTrust) -> std::io::Result<OwnedFd> {
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

/// A connected control socket.
pub fn connect(path: &Path) -> rustix::io::Result<OwnedFd> {
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

/// Most that may wait to be let in; the kernel lowers it to `net.core.somaxconn`, which is as
/// much. Beyond it a connect fails at once.
const BACKLOG: i32 = 4096;
