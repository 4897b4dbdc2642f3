//! Records that are datagrams (UDP).
//!
//! Each datagram is a record of a connection of its own, which ends with the reply. So calls by UDP
//! are handled like other calls, and nothing is kept for a peer between its calls.
//!
//! Invariant: a peer gets at most one datagram for a datagram that it has sent.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dafs_memory::Memory;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::Part;

/// A socket that receives datagrams.
pub(super) struct DatagramSocket {
    pub socket: Arc<OwnedFd>,
    pub address: SocketAddr,
}

/// The sender of a datagram, and the reply.
pub(super) struct Datagram {
    socket: Arc<OwnedFd>,
    peer: SocketAddr,
    /// The first four bytes of the datagram, which identify a call.
    xid: [u8; 4],
    reply: Vec<u8>,
    is_too_long: bool,
}

impl DatagramSocket {
    /// Opens a socket. With port 0, the system chooses the port.
    pub(super) fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        rustix::net::bind(&socket, &address)?;
        let bound = rustix::net::getsockname(&socket)?;
        let address = SocketAddr::try_from(bound).unwrap_or(address);
        Ok(Self { socket: Arc::new(socket), address })
    }

    /// Receives a datagram into the buffer. Returns its length and its sender; `None` if none has
    /// arrived. A datagram that is too short for a call is skipped.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Option<(usize, Datagram)> {
        loop {
            let received = rustix::net::recvfrom(&*self.socket, &mut *buffer, RecvFlags::DONTWAIT);
            let (length, _, from) = match received {
                Ok(received) => received,
                // The error is about a reply that an earlier peer did not take.
                Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            };
            let peer = from.and_then(|from| SocketAddr::try_from(from).ok());
            let xid = buffer[..length].first_chunk().copied();
            let (Some(peer), Some(xid)) = (peer, xid) else { continue };
            let (socket, reply) = (self.socket.clone(), Vec::new());
            return Some((length, Datagram { socket, peer, xid, reply, is_too_long: false }));
        }
    }
}

impl Datagram {
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sets the reply.
    pub(super) fn put<'a>(&mut self, parts: impl IntoIterator<Item = Part<'a>>) {
        self.reply.clear();
        for part in parts {
            let length = match part {
                Part::Bytes(bytes) => bytes.len(),
                Part::Memory { length, .. } => length as usize,
            };
            if self.reply.len() + length > DATAGRAM_BYTES_MAX {
                self.is_too_long = true;
                return;
            }
            match part {
                Part::Bytes(bytes) => self.reply.extend_from_slice(bytes),
                Part::Memory { memory, offset, length } => {
                    self.reply.extend(copied(memory, offset, length));
                }
            }
        }
    }

    /// Sends the reply. A reply that cannot be sent is lost, and the peer asks again.
    pub(super) fn send(&self) {
        let failure = [&self.xid[..], &SYSTEM_ERROR].concat();
        let reply = if self.is_too_long { &failure } else { &self.reply };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::sendto(&*self.socket, reply, flags, &self.peer);
    }
}

fn copied(memory: &Memory, offset: u64, length: u32) -> Vec<u8> {
    memory.to_vec(usize::try_from(offset).unwrap_or(usize::MAX), length as usize)
}

/// The maximum length of a datagram in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// The rest of a reply which says that the call was accepted, but that the server failed
/// (RFC 5531): a reply, accepted, a verifier without flavor and body, SYSTEM_ERR.
const SYSTEM_ERROR: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
