//! The Unix socket beside the rings: who the peer is, how the connection begins
//! and ends, and which regions it may reach.
//!
//! Invariant: one packet is one message (SOCK_SEQPACKET); a packet that does not
//! parse is a violation, and descriptors that come with it are closed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::{PeerProcess, Stag};

/// What the two sides say to each other beside the rings.
#[derive(Debug)]
pub enum Packet {
    /// Initiator's first word. With it: ring memory.
    Hello(Hello, OwnedFd),
    /// The connection stands. `reaches_process` says that `process_vm_*` works. With
    /// it: what wakes the acceptor, and what becomes readable to wake the initiator.
    Accept { reaches_process: bool, private_data: Box<[u8]>, wakes: [OwnedFd; 2] },
    /// It does not.
    Reject { private_data: Box<[u8]> },
    /// A region became reachable; with its memory file, if it has one.
    Expose(ExposedRegion, Option<OwnedFd>),
    /// A region is no longer reachable.
    Withdraw(Stag),
    /// The peer broke the rules; it learns which.
    Terminate(String),
}

/// The initiator's description of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Octets of frames in each direction.
    pub capacity: u32,
    /// Address of a word in the initiator, to try `process_vm_readv` on.
    pub probe_address: u64,
    /// What the word holds.
    pub probe_value: u64,
    /// The connecting application's own bytes.
    pub private_data: Box<[u8]>,
}

/// A region as its owner announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposedRegion {
    pub stag: Stag,
    pub address: u64,
    pub length: u64,
    pub remote_read: bool,
    pub remote_write: bool,
}

/// What the kernel may write into.
///
/// # Safety
/// Any octets are a value.
unsafe trait SocketOption {}
// SAFETY: a number.
unsafe impl SocketOption for u32 {}
// SAFETY: three numbers without padding.
unsafe impl SocketOption for libc::ucred {}

/// The socket, non-blocking; `None` once closed.
#[derive(Debug)]
pub struct ControlSocket(Option<OwnedFd>);

impl ControlSocket {
    pub fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }

    /// The descriptor, while it is open.
    pub fn fd(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Closes it; nobody is told of it any more.
    pub fn close(&mut self) {
        self.0 = None;
    }

    /// Who the kernel says connected. Number, identity and groups are those of that
    /// moment, whatever the process has become since.
    pub fn peer(&self) -> Option<PeerProcess> {
        let mut credentials = [libc::ucred { pid: 0, uid: 0, gid: 0 }];
        // The safe wrapper cannot express pid 0, a peer outside our namespace.
        self.option(libc::SO_PEERCRED, &mut credentials).ok()?;
        let [libc::ucred { pid, uid, gid }] = credentials;
        Some(PeerProcess { pid, uid, gid, groups: self.peer_groups() })
    }

    /// Kernels before 4.13 do not know; none then, which gives no right to anybody.
    fn peer_groups(&self) -> Box<[u32]> {
        let mut groups = vec![0u32; GROUPS_AT_FIRST];
        let mut found = self.option(libc::SO_PEERGROUPS, &mut groups);
        if found.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ERANGE)) {
            groups = vec![0; GROUPS_MAX];
            found = self.option(libc::SO_PEERGROUPS, &mut groups);
        }
        groups.truncate(found.unwrap_or(0));
        groups.into()
    }

    /// Has the kernel write an option of the socket into `values`; how many it wrote.
    fn option<T: SocketOption>(&self, name: i32, values: &mut [T]) -> io::Result<usize> {
        let socket = self.fd()?.as_raw_fd();
        let mut length = libc::socklen_t::try_from(size_of_val(values)).unwrap_or(0);
        // SAFETY: the kernel writes at most `length` octets, which are `values`' own, and
        // any octets are values of a `SocketOption`.
        let result = unsafe {
            let place = values.as_mut_ptr().cast();
            libc::getsockopt(socket, libc::SOL_SOCKET, name, place, &raw mut length)
        };
        if result == 0 {
            Ok(length as usize / size_of::<T>())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sends a packet with descriptors. Waits for room in the socket for a bounded
    /// time: the peer must drain it before it uses what the packet announces.
    pub fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let socket = self.fd()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(socket, &[io::IoSlice::new(packet)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait_for_room()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next packet, if one is there. `Ok(None)`: nothing now.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer is gone, `InvalidData` for what does not parse.
    pub fn receive(&self) -> io::Result<Option<Packet>> {
        let socket = self.fd()?;
        let mut buffer = [0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let slices = &mut [io::IoSliceMut::new(&mut buffer)];
        let (length, is_cut) = match rustix::net::recvmsg(socket, slices, &mut control, flags) {
            Ok(message) => (message.bytes, message.flags.contains(ReturnFlags::TRUNC)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let fds: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let whole = if is_cut { &[] } else { &buffer[..length] };
        parse(whole, fds)
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed control packet"))
    }

    fn wait_for_room(&self) -> io::Result<()> {
        let socket = self.fd()?;
        let mut polled = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::OUT)];
        let limit = rustix::event::Timespec::try_from(ROOM_TIMEOUT)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match rustix::event::poll(&mut polled, Some(&limit)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer does not read its control socket",
            )),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Longest private data a connection may carry (that of MPA, RFC 5044 7.1).
pub const PRIVATE_BYTES_MAX: usize = 512;
/// Supplementary groups of most, and the most that Linux lets a process have.
const GROUPS_AT_FIRST: usize = 64;
const GROUPS_MAX: usize = 65_536;
const PACKET_BYTES_MAX: usize = 1024;
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
const MAGIC: &[u8; 8] = b"DATSHM\x00\x03";

pub fn hello(hello: &Hello) -> Vec<u8> {
    let mut packet = vec![1];
    packet.extend_from_slice(MAGIC);
    packet.extend_from_slice(&hello.capacity.to_le_bytes());
    packet.extend_from_slice(&hello.probe_address.to_le_bytes());
    packet.extend_from_slice(&hello.probe_value.to_le_bytes());
    packet.extend_from_slice(&hello.private_data);
    packet
}

pub fn accept(reaches_process: bool, private_data: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, u8::from(reaches_process)];
    packet.extend_from_slice(private_data);
    packet
}

pub fn reject(private_data: &[u8]) -> Vec<u8> {
    let mut packet = vec![3];
    packet.extend_from_slice(private_data);
    packet
}

pub fn expose(region: &ExposedRegion) -> Vec<u8> {
    let rights = u8::from(region.remote_read) | u8::from(region.remote_write) << 1;
    let mut packet = vec![4, rights];
    packet.extend_from_slice(&region.stag.0.to_le_bytes());
    packet.extend_from_slice(&region.address.to_le_bytes());
    packet.extend_from_slice(&region.length.to_le_bytes());
    packet
}

pub fn withdraw(stag: Stag) -> Vec<u8> {
    let mut packet = vec![5];
    packet.extend_from_slice(&stag.0.to_le_bytes());
    packet
}

pub fn terminate(text: &str) -> Vec<u8> {
    let mut packet = vec![6];
    packet.extend_from_slice(&text.as_bytes()[..text.len().min(200)]);
    packet
}

pub(super) fn parse(packet: &[u8], fds: Vec<OwnedFd>) -> Option<Packet> {
    let (kind, rest) = packet.split_first()?;
    let mut reader = Reader(rest);
    let mut fds = fds.into_iter();
    let parsed = match kind {
        1 => {
            (reader.take(8)? == MAGIC).then_some(())?;
            let hello = Hello {
                capacity: reader.u32()?,
                probe_address: reader.u64()?,
                probe_value: reader.u64()?,
                private_data: reader.rest(),
            };
            Packet::Hello(hello, fds.next()?)
        }
        2 => Packet::Accept {
            reaches_process: reader.take(1)?[0] != 0,
            private_data: reader.rest(),
            wakes: [fds.next()?, fds.next()?],
        },
        3 => Packet::Reject { private_data: reader.rest() },
        4 => {
            let rights = reader.take(1)?[0];
            let region = ExposedRegion {
                stag: Stag(reader.u32()?),
                address: reader.u64()?,
                length: reader.u64()?,
                remote_read: rights & 1 != 0,
                remote_write: rights & 2 != 0,
            };
            Packet::Expose(region, fds.next())
        }
        5 => Packet::Withdraw(Stag(reader.u32()?)),
        6 => Packet::Terminate(String::from_utf8_lossy(&reader.rest()).into_owned()),
        _ => return None,
    };
    Some(parsed)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn rest(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::fs::Gid;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn peer() -> PeerProcess {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        ControlSocket::new(pair.0).peer().unwrap()
    }

    #[test]
    fn the_kernel_says_who_connected() {
        let peer = peer();
        assert_eq!(peer.pid, rustix::process::getpid().as_raw_nonzero().get());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    }

    #[test]
    fn groups_are_those_of_who_connected_however_many() {
        if !rustix::process::geteuid().is_root() {
            return; // Without privilege groups cannot be chosen.
        }
        for count in [0, 2, GROUPS_AT_FIRST, GROUPS_AT_FIRST + 1, 1000] {
            let groups: Vec<u32> = (0..count as u32).map(|number| 5000 + number).collect();
            let chosen: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            // Groups are each thread's own, and go with it.
            let found = std::thread::spawn(move || {
                rustix::thread::set_thread_groups(&chosen).unwrap();
                peer().groups
            });
            assert_eq!(*found.join().unwrap(), *groups);
        }
    }
}
